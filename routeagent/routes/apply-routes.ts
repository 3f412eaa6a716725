/** Makes the kernel agree with a route plan: reads what is there, adds before it deletes, goes on past failures. */
import {
  IPV6_FORWARDING,
  IP_FORWARDING,
  ROUTE_TABLE_FROM_LANES,
  ROUTE_TABLE_LANES,
  ROUTE_TABLE_NODE,
  ROUTE_TABLE_NODE_PUBLIC,
  RULE_NODE,
  RULE_NODE_BEFORE,
  VXLAN_DEVICE,
} from '../../model/kernel-ids.ts'
import type { Drift } from '../../kernel/drift.ts'
import { isExists, isNotFound } from '../../kernel/errors.ts'
import {
  formatForwardingEntry,
  formatLink,
  formatNeighbour,
  formatRoute,
  formatRule,
} from '../../kernel/route/format-ip.ts'
import { ensureForwarding, restoreForwarding } from '../../kernel/tuning/ip-forwarding.ts'
import type { Link, Route, RouteTable, Rule, VxlanLink } from '../../kernel/route/route-table.ts'
import type { Sysctl } from '../../kernel/tuning/sysctl.ts'
import { keyedDiff } from '../../reconcile/diff.ts'
import type { NodeRoutes } from './plan-node-routes.ts'

export interface ApplyRoutesDeps {
  readonly routes: RouteTable
  readonly sysctl: Sysctl
  /** File that remembers that forwarding of IPv4 was switched on by the routeagent; that of IPv6 has one beside it. */
  readonly forwardingMarker: string
  /** Absent where nothing is to be kept. */
  readonly drift?: Drift
}

export interface RouteApplication {
  /** Commands that were given; 0 when the kernel already agreed. */
  readonly changed: number
  readonly failures: readonly unknown[]
}

const OUR_TABLES: ReadonlySet<number> = new Set([ROUTE_TABLE_FROM_LANES, ROUTE_TABLE_NODE, ROUTE_TABLE_NODE_PUBLIC])

const FORWARDING: readonly string[] = [IP_FORWARDING, IPV6_FORWARDING]

/** Idempotent. What failed is told, not thrown; the next run reads the kernel again. */
export async function applyNodeRoutes(
  deps: ApplyRoutesDeps,
  plan: NodeRoutes,
  signal: AbortSignal,
): Promise<RouteApplication> {
  const steps = new Steps(deps.drift)
  await ensureLink(deps.routes, plan.link, steps, signal)
  await ensureSysctls(deps, plan, steps)
  const stale: (() => Promise<void>)[] = []
  await applyNeighbours(deps.routes, plan, steps, stale, signal)
  await applyRoutes(deps.routes, plan.routes, steps, stale, signal)
  await applyRules(deps.routes, plan.rules, steps, stale, signal)
  if (steps.failures.length === 0) steps.settle()
  for (const remove of stale) await steps.run(remove, isNotFound)
  return steps
}

/** Takes out everything that applyNodeRoutes() may have made. */
export async function removeNodeRoutes(deps: ApplyRoutesDeps, signal: AbortSignal): Promise<RouteApplication> {
  const { routes, sysctl, forwardingMarker } = deps
  const steps = new Steps()
  for (const rule of await ourRules(routes, signal)) {
    await steps.run(() => routes.deleteRule(rule, signal), isNotFound)
  }
  for (const route of await ourRoutes(routes, signal)) {
    await steps.run(() => routes.deleteRoute(route, signal), isNotFound)
  }
  const links = await routes.links(signal)
  if (links.some((link) => link.name === VXLAN_DEVICE)) {
    await steps.run(() => routes.deleteLink(VXLAN_DEVICE, signal), isNotFound)
  }
  for (const name of FORWARDING) {
    await steps.run(() => restoreForwarding(sysctl, forwardingMarker, name), never)
  }
  return steps
}

/** Runs one command after another and keeps count. */
class Steps implements RouteApplication {
  changed = 0
  readonly failures: unknown[] = []
  readonly #drift: Drift | undefined
  /** What is brought into the kernel now, by kind; remembered once all of it is there. */
  readonly made = new Map<string, readonly string[]>()

  constructor(drift?: Drift) {
    this.#drift = drift
  }

  /** Tells of what others did to things of this kind. */
  compare(
    what: string,
    found: { wanted: readonly string[]; add: readonly string[]; change?: readonly string[]; remove: readonly string[] },
  ): void {
    this.made.set(what, found.wanted)
    this.#drift?.repaired(what, 'Missing', this.#drift.had(what, found.add))
    this.#drift?.repaired(what, 'Changed', this.#drift.had(what, found.change ?? []))
    this.#drift?.repaired(what, 'Foreign', this.#drift.neverHad(what, found.remove))
  }

  /** The device is another one by the plan: what hung on it went with it. */
  forget(): void {
    this.#drift?.forget('link', 'neighbour', 'forwarding-entry', 'route')
  }

  isKnown(what: string, item: string): boolean {
    return this.#drift?.had(what, [item]).length === 1
  }

  settle(): void {
    for (const [what, items] of this.made) this.#drift?.settle(what, items)
  }

  /** `fine` says which failures mean that the kernel already is as it should be. */
  async run(step: () => Promise<unknown>, fine: (error: unknown) => boolean): Promise<void> {
    try {
      await step()
      this.changed += 1
    } catch (error) {
      if (!fine(error)) this.failures.push(error)
    }
  }
}

async function ensureLink(
  routes: RouteTable,
  link: NodeRoutes['link'],
  steps: Steps,
  signal: AbortSignal,
): Promise<void> {
  const found = (await routes.links(signal)).find((l) => l.name === link.name)
  const keep = found !== undefined && isSameOverlay(found, link)
  tellLink(link, found, keep, steps)
  if (found !== undefined && !keep) await steps.run(() => routes.deleteLink(link.name, signal), isNotFound)
  if (!keep) await steps.run(() => routes.addLink(link, signal), isExists)
  if (keep && found.mtu !== link.mtu) await steps.run(() => routes.setLink(link.name, { mtu: link.mtu }, signal), never)
  if (!keep || !found.up) await steps.run(() => routes.setLink(link.name, { up: true }, signal), never)
}

// The MTU follows the underlay's, and is no part of what the device is.
function tellLink(link: NodeRoutes['link'], found: Link | undefined, keep: boolean, steps: Steps): void {
  const text = formatLink({ ...link, mtu: 0 })
  if (!keep && !steps.isKnown('link', text)) steps.forget()
  const isStopped = keep && found?.up === false
  const add = found === undefined ? [text] : []
  const change = isStopped || (found !== undefined && !keep) ? [text] : []
  steps.compare('link', { wanted: [text], add, change, remove: [] })
}

function isSameOverlay(found: Link | VxlanLink, link: NodeRoutes['link']): boolean {
  if (found.kind !== 'vxlan' || !('vni' in found)) return false
  return found.vni === link.vni && found.port === link.port && found.local === link.local && found.mac === link.mac
}

async function ensureSysctls(deps: ApplyRoutesDeps, plan: NodeRoutes, steps: Steps): Promise<void> {
  const { sysctl, forwardingMarker } = deps
  for (const { name, value } of plan.sysctls) {
    if ((await sysctl.read(name))?.trim() === value) continue
    if (FORWARDING.includes(name)) {
      await steps.run(() => ensureForwarding(sysctl, forwardingMarker, name), never)
    } else await steps.run(() => sysctl.write(name, value), never)
  }
}

/** The difference in the words of the tools. */
function textsOf<T>(
  diff: {
    readonly add: readonly T[]
    readonly change: readonly { readonly desired: T }[]
    readonly remove: readonly T[]
  },
  wanted: readonly T[],
  format: (item: T) => string,
): Parameters<Steps['compare']>[1] {
  return {
    wanted: wanted.map(format),
    add: diff.add.map(format),
    change: diff.change.map(({ desired }) => format(desired)),
    remove: diff.remove.map(format),
  }
}

type Stale = (() => Promise<void>)[]

async function applyNeighbours(
  routes: RouteTable,
  plan: NodeRoutes,
  steps: Steps,
  stale: Stale,
  signal: AbortSignal,
): Promise<void> {
  const neighbours = keyedDiff({
    desired: plan.neighbours,
    observed: await present(() => routes.neighbours(VXLAN_DEVICE, signal)),
    desiredKey: (n) => n.address,
    observedKey: (n) => n.address,
    equal: (a, b) => a.mac === b.mac,
  })
  steps.compare('neighbour', textsOf(neighbours, plan.neighbours, formatNeighbour))
  for (const n of [...neighbours.add, ...neighbours.change.map((c) => c.desired)]) {
    await steps.run(() => routes.replaceNeighbour(n, signal), never)
  }
  stale.push(...neighbours.remove.map((n) => () => routes.deleteNeighbour(n, signal)))
  const entries = keyedDiff({
    desired: plan.forwarding,
    observed: await present(() => routes.forwardingEntries(VXLAN_DEVICE, signal)),
    desiredKey: (e) => e.mac,
    observedKey: (e) => e.mac,
    equal: (a, b) => a.destination === b.destination,
  })
  steps.compare('forwarding-entry', textsOf(entries, plan.forwarding, formatForwardingEntry))
  for (const e of [...entries.add, ...entries.change.map((c) => c.desired)]) {
    await steps.run(() => routes.replaceForwardingEntry(e, signal), never)
  }
  stale.push(...entries.remove.map((e) => () => routes.deleteForwardingEntry(e, signal)))
}

async function applyRoutes(
  routes: RouteTable,
  desired: readonly Route[],
  steps: Steps,
  stale: Stale,
  signal: AbortSignal,
): Promise<void> {
  const diff = keyedDiff({
    desired,
    observed: await ourRoutes(routes, signal),
    desiredKey: routeKey,
    observedKey: routeKey,
    equal: (a, b) => routeText(a) === routeText(b),
  })
  steps.compare('route', textsOf(diff, desired, formatRoute))
  const wanted = [...diff.add, ...diff.change.map((c) => c.desired)]
  // Refusals first: in between, a packet may be refused but never leak.
  const inOrder = [...wanted.filter((r) => r.type !== 'unicast'), ...wanted.filter((r) => r.type === 'unicast')]
  for (const route of inOrder) await steps.run(() => routes.replaceRoute(route, signal), never)
  stale.push(...diff.remove.map((route) => () => routes.deleteRoute(route, signal)))
}

async function applyRules(
  routes: RouteTable,
  desired: readonly Rule[],
  steps: Steps,
  stale: Stale,
  signal: AbortSignal,
): Promise<void> {
  const all = await routes.rules(signal)
  const diff = keyedDiff({
    desired: afterLanes(desired, all),
    observed: all.filter((rule) => OUR_TABLES.has(rule.table)),
    desiredKey: ruleKey,
    observedKey: ruleKey,
    equal: () => true,
  })
  steps.compare('rule', textsOf(diff, afterLanes(desired, all), formatRule))
  for (const rule of diff.add) await steps.run(() => routes.addRule(rule, signal), isExists)
  stale.push(...diff.remove.map((rule) => () => routes.deleteRule(rule, signal)))
}

// A gateway process of an earlier release, which knows IPv4 alone, has its rule further back. This node's own lanes must
// stay before the way over the other gateway nodes, so the rule to that way waits where that release had it, until the
// gateway follows.
function afterLanes(desired: readonly Rule[], all: readonly Rule[]): Rule[] {
  const waits = all.some((rule) => rule.table === ROUTE_TABLE_LANES && rule.priority > RULE_NODE)
  return desired.map((rule) =>
    waits && rule.table === ROUTE_TABLE_NODE && rule.family !== 6 ? { ...rule, priority: RULE_NODE_BEFORE } : rule,
  )
}

// The gateway's table has the same protocol number; only the table tells whose a route is.
async function ourRoutes(routes: RouteTable, signal: AbortSignal): Promise<Route[]> {
  return (await routes.routes(signal)).filter((route) => OUR_TABLES.has(route.table))
}

async function ourRules(routes: RouteTable, signal: AbortSignal): Promise<Rule[]> {
  return (await routes.rules(signal)).filter((rule) => OUR_TABLES.has(rule.table))
}

/** Nothing, where the device could not be made. */
async function present<T>(read: () => Promise<readonly T[]>): Promise<readonly T[]> {
  try {
    return await read()
  } catch (error) {
    if (isNotFound(error)) return []
    throw error
  }
}

function routeKey(route: Route): string {
  return `${route.table} ${route.destination} ${route.metric ?? 0}`
}

function routeText(route: Route): string {
  const hops = route.nextHops.map((hop) =>
    [hop.device, hop.via ?? '', hop.onlink === true, route.nextHops.length > 1 ? (hop.weight ?? 1) : 1].join(' '),
  )
  return JSON.stringify([route.type, hops.sort(), route.mtu ?? 0, route.source ?? ''])
}

function ruleKey(rule: Rule): string {
  const { family = 4, table, priority, inputDevice, exceptMark, exceptInputDevice, source } = rule
  return [family, table, priority, inputDevice, exceptMark, exceptInputDevice, source].map((one) => one ?? '').join('|')
}

function never(): boolean {
  return false
}
