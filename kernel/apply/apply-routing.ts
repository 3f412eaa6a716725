/**
 * Brings routes, rules, neighbours and forwarding entries to a plan: reads what is there, adds before it deletes, goes
 * on past failures. Looks only at the tables and the device that the caller names as its own.
 */
import { keyedDiff } from '../../reconcile/diff.ts'
import { isExists, isNotFound } from '../errors.ts'
import * as format from '../route/format-ip.ts'
import type { ForwardingEntry, Neighbour, Route, RouteTable, Rule } from '../route/route-table.ts'
import type { ChangeKind, Round } from './round.ts'

export interface RoutingPlan {
  readonly routes: readonly Route[]
  readonly rules: readonly Rule[]
  readonly neighbours?: readonly Neighbour[]
  readonly forwarding?: readonly ForwardingEntry[]
}

/** What is the caller's own. */
export interface RoutingScope {
  readonly tables: ReadonlySet<number>
  /** Whose neighbours and forwarding entries are planned; absent: those of no device are looked at. */
  readonly device?: string
}

/** The plan of one who leaves. */
export const NO_ROUTING: RoutingPlan = { routes: [], rules: [] }

/**
 * Idempotent. What fails is kept in the round; when something cannot be read, nothing is changed. Things go in the
 * order in which they need each other, and away in the opposite one: a rule never leads to a table that is not there
 * yet.
 */
export async function applyRouting(
  table: RouteTable,
  plan: RoutingPlan,
  scope: RoutingScope,
  round: Round,
  signal: AbortSignal,
): Promise<void> {
  const observed = await round.attempt(() => observe(table, scope, signal))
  if (observed === undefined) return
  const { neighbours, forwarding, routes, rules } = observed.value
  const removals = [
    await bring(neighbourKind(table, signal), plan.neighbours ?? [], neighbours, round),
    await bring(forwardingKind(table, signal), plan.forwarding ?? [], forwarding, round),
    await bring(routeKind(table, signal), refusalsFirst(plan.routes), routes, round),
    await bring(ruleKind(table, signal), plan.rules, rules, round),
  ]
  for (const remove of removals.reverse()) await remove()
}

interface Observed {
  readonly neighbours: readonly Neighbour[]
  readonly forwarding: readonly ForwardingEntry[]
  readonly routes: readonly Route[]
  readonly rules: readonly Rule[]
}

async function observe(table: RouteTable, { tables, device }: RoutingScope, signal: AbortSignal): Promise<Observed> {
  const isOurs = (one: { readonly table: number }): boolean => tables.has(one.table)
  return {
    neighbours: device === undefined ? [] : await ifThere(table.neighbours(device, signal)),
    forwarding: device === undefined ? [] : await ifThere(table.forwardingEntries(device, signal)),
    // Several parts make routes with our protocol number; only the table shows whose a route is.
    routes: (await table.routes(signal)).filter(isOurs),
    rules: (await table.rules(signal)).filter(isOurs),
  }
}

/** Nothing, where the device could not be made. */
async function ifThere<T>(reading: Promise<readonly T[]>): Promise<readonly T[]> {
  try {
    return await reading
  } catch (error) {
    if (isNotFound(error)) return []
    throw error
  }
}

/** One kind of thing in the kernel. */
interface Kind<T> {
  readonly kind: ChangeKind
  /** What the kernel has one of. */
  readonly key: (item: T) => string
  /** By which two of one key are the same; the command that makes it where absent. */
  readonly text?: (item: T) => string
  readonly format: (item: T) => string
  readonly formatDeletion: (item: T) => string
  readonly put: (item: T) => Promise<void>
  /** Of a failed put: it is there all the same. */
  readonly isThere?: (error: unknown) => boolean
  readonly remove: (item: T) => Promise<void>
}

/** Adds and changes, in the order of `desired`. Gives what removes the rest. */
async function bring<T>(
  kind: Kind<T>,
  desired: readonly T[],
  observed: readonly T[],
  round: Round,
): Promise<() => Promise<void>> {
  const text = kind.text ?? kind.format
  const equal = (a: T, b: T): boolean => text(a) === text(b)
  const diff = keyedDiff({ desired, observed, desiredKey: kind.key, observedKey: kind.key, equal })
  const changed = diff.change.map((change) => change.desired)
  const { drift } = round
  drift?.repaired(kind.kind, 'Missing', drift.had(kind.kind, diff.add.map(kind.format)))
  drift?.repaired(kind.kind, 'Changed', drift.had(kind.kind, changed.map(kind.format)))
  drift?.repaired(kind.kind, 'Foreign', drift.neverHad(kind.kind, diff.remove.map(kind.format)))
  const there = new Set(desired.map(kind.format))
  const wanting = new Set([...diff.add, ...changed])
  for (const item of desired.filter((one) => wanting.has(one))) {
    const made = kind.format(item)
    if (!(await round.change(kind.kind, made, () => kind.put(item), kind.isThere))) there.delete(made)
  }
  drift?.settle(kind.kind, there)
  return async () => {
    for (const item of diff.remove) {
      // The kernel was faster: a device that goes takes along what hangs on it.
      await round.change(kind.kind, kind.formatDeletion(item), () => kind.remove(item), isNotFound)
    }
  }
}

function neighbourKind(table: RouteTable, signal: AbortSignal): Kind<Neighbour> {
  return {
    kind: 'neighbour',
    key: ({ address }) => address,
    format: format.formatNeighbour,
    formatDeletion: format.formatNeighbourDeletion,
    put: (item) => table.replaceNeighbour(item, signal),
    remove: (item) => table.deleteNeighbour(item, signal),
  }
}

function forwardingKind(table: RouteTable, signal: AbortSignal): Kind<ForwardingEntry> {
  return {
    kind: 'forwarding-entry',
    key: ({ mac }) => mac,
    format: format.formatForwardingEntry,
    formatDeletion: format.formatForwardingEntryDeletion,
    put: (item) => table.replaceForwardingEntry(item, signal),
    remove: (item) => table.deleteForwardingEntry(item, signal),
  }
}

function routeKind(table: RouteTable, signal: AbortSignal): Kind<Route> {
  return {
    kind: 'route',
    key: (route) => `${route.table} ${route.destination} ${route.metric ?? 0}`,
    text: hopsInOrder,
    format: format.formatRoute,
    formatDeletion: format.formatRouteDeletion,
    put: (item) => table.replaceRoute(item, signal),
    remove: (item) => table.deleteRoute(item, signal),
  }
}

function ruleKind(table: RouteTable, signal: AbortSignal): Kind<Rule> {
  return {
    kind: 'rule',
    key: format.formatRule,
    format: format.formatRule,
    formatDeletion: format.formatRuleDeletion,
    put: (item) => table.addRule(item, signal),
    isThere: isExists,
    remove: (item) => table.deleteRule(item, signal),
  }
}

/** The kernel lists the next hops of one route in an order of its own. */
function hopsInOrder(route: Route): string {
  if (route.nextHops.length < 2) return format.formatRoute(route)
  const hops = route.nextHops.map((hop) => ({ hop, text: `${hop.device} ${hop.via ?? ''} ${hop.weight ?? 1}` }))
  hops.sort((a, b) => (a.text < b.text ? -1 : a.text > b.text ? 1 : 0))
  return format.formatRoute({ ...route, nextHops: hops.map(({ hop }) => hop) })
}

/** In between, a packet may be refused but never leak. */
function refusalsFirst(routes: readonly Route[]): Route[] {
  return [...routes.filter(({ type }) => type !== 'unicast'), ...routes.filter(({ type }) => type === 'unicast')]
}
