/** Brings the lanes' route tables (of both families) and their rules to the plan. Other tables are never looked at. */
import { ROUTE_TABLE_LANES, ROUTE_TABLE_LANES_PUBLIC } from '../../model/kernel-ids.ts'
import { keyedDiff } from '../../reconcile/diff.ts'
import { formatRoute, formatRouteDeletion, formatRule, formatRuleDeletion } from '../../kernel/route/format-ip.ts'
import { isExists, isNotFound } from '../../kernel/errors.ts'
import type { Route, RouteTable, Rule } from '../../kernel/route/route-table.ts'
import type { LaneRoutesPlan } from './plan-lane-routes.ts'
import type { Round } from '../round.ts'

const OUR_TABLES: ReadonlySet<number> = new Set([ROUTE_TABLE_LANES, ROUTE_TABLE_LANES_PUBLIC])

/** Adds and replaces first, then removes what is not in the plan. An undefined plan removes everything. */
export async function applyRoutes(
  routes: RouteTable,
  plan: LaneRoutesPlan | undefined,
  round: Round,
  signal: AbortSignal,
): Promise<void> {
  const observed = await round.attempt(() => routes.routes(signal))
  if (observed !== undefined) {
    const diff = keyedDiff<Route, Route>({
      desired: plan?.routes ?? [],
      observed: observed.value.filter((route) => OUR_TABLES.has(route.table)),
      desiredKey: routeKey,
      observedKey: routeKey,
      equal: (a, b) => formatRoute(a) === formatRoute(b),
    })
    const { drift } = round
    const there = new Set((plan?.routes ?? []).map(formatRoute))
    drift?.repaired('route', 'Missing', drift.had('route', diff.add.map(formatRoute)))
    drift?.repaired(
      'route',
      'Changed',
      drift.had(
        'route',
        diff.change.map(({ desired }) => formatRoute(desired)),
      ),
    )
    drift?.repaired('route', 'Foreign', drift.neverHad('route', diff.remove.map(formatRoute)))
    for (const route of [...diff.add, ...diff.change.map((change) => change.desired)]) {
      const text = formatRoute(route)
      if (!(await round.change('route', text, () => routes.replaceRoute(route, signal)))) there.delete(text)
    }
    drift?.settle('route', there)
    if (plan !== undefined) await applyRules(routes, plan.rules, round, signal)
    for (const route of diff.remove) {
      await round.change('route', formatRouteDeletion(route), () =>
        ignore(isNotFound, routes.deleteRoute(route, signal)),
      )
    }
  }
  if (plan === undefined) await applyRules(routes, [], round, signal)
}

async function applyRules(
  routes: RouteTable,
  wanted: readonly Rule[],
  round: Round,
  signal: AbortSignal,
): Promise<void> {
  const observed = await round.attempt(() => routes.rules(signal))
  if (observed === undefined) return
  const diff = keyedDiff<Rule, Rule>({
    desired: wanted,
    observed: observed.value.filter((rule) => OUR_TABLES.has(rule.table)),
    desiredKey: formatRule,
    observedKey: formatRule,
    equal: () => true,
  })
  const { drift } = round
  const there = new Set(wanted.map(formatRule))
  drift?.repaired('rule', 'Missing', drift.had('rule', diff.add.map(formatRule)))
  drift?.repaired('rule', 'Foreign', drift.neverHad('rule', diff.remove.map(formatRule)))
  for (const rule of diff.add) {
    const text = formatRule(rule)
    const done = await round.change('rule', text, () => ignore(isExists, routes.addRule(rule, signal)))
    if (!done) there.delete(text)
  }
  drift?.settle('rule', there)
  for (const rule of diff.remove) {
    await round.change('rule', formatRuleDeletion(rule), () => ignore(isNotFound, routes.deleteRule(rule, signal)))
  }
}

function routeKey(route: Route): string {
  return `${route.table}|${route.destination}|${route.metric ?? 0}`
}

/** The kernel was faster: a device that goes takes its routes along. */
async function ignore(expected: (error: unknown) => boolean, action: Promise<void>): Promise<void> {
  try {
    await action
  } catch (error) {
    if (!expected(error)) throw error
  }
}
