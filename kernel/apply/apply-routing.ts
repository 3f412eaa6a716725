/**
 * Applies a plan of routes, rules, next hops, neighbours and forwarding entries to the kernel. It reads the present
 * state, adds before it deletes, and goes on after a failure. It considers only the tables, ids and the device that the
 * caller names as its own.
 */
import type { NextHopIds } from '../../model/model.ts'
import { keyedDiff } from '../../reconcile/reconcile.ts'
import { isExists, isNotFound } from '../kernel.ts'
import {
  type ForwardingEntry,
  type Neighbour,
  type NextHopGroup,
  type NextHopListing,
  type NextHopObject,
  type NextHopTable,
  type Route,
  type RouteTable,
  type Rule,
  formatGroup,
  formatHop,
  formatNextHopDeletion,
  normalHop,
} from '../route/route.ts'
import * as format from '../route/route.ts'
import { planClearance, planGroups } from './plan-next-hops.ts'
import type { ChangeKind, Round } from './round.ts'

// Applies next-hop objects and groups, as a part of applyRouting().

/** The next hops that the caller owns. */
interface NextHopScope {
  readonly table: NextHopTable
  readonly ids: NextHopIds
}

const NO_NEXT_HOPS: NextHopListing = { hops: [], groups: [] }

/** Returns the next hops and groups of the caller. Throws KernelError. */
async function observeNextHops(scope: NextHopScope | undefined, signal: AbortSignal): Promise<NextHopListing> {
  if (scope === undefined) return NO_NEXT_HOPS
  const { ids, table } = scope
  const isOurs = ({ id }: { readonly id: number }): boolean => id >= ids.first && id <= ids.last
  const { hops, groups } = await table.list(signal)
  return { hops: hops.filter(isOurs), groups: groups.filter(isOurs) }
}

/**
 * Removes what the kernel cannot replace in place. Returns true if anything was removed: the kernel then has also
 * removed the routes that used it, and the caller must read the state again.
 */
async function clearNextHops(
  { table }: NextHopScope,
  desired: NextHopListing,
  observed: NextHopListing,
  round: Round,
  signal: AbortSignal,
): Promise<boolean> {
  const clearance = planClearance(desired, observed)
  for (const item of clearance) {
    const kind = 'members' in item ? 'next-hop-group' : 'next-hop'
    await round.change(kind, formatNextHopDeletion(item), () => table.remove(item.id, signal), isNotFound)
  }
  if (clearance.length > 0) round.drift?.forget('next-hop', 'next-hop-group', 'route')
  return clearance.length > 0
}

/**
 * Adds and changes next hops and groups. Returns the functions that remove the rest, one for hops and one for groups.
 */
async function applyNextHops(
  { table }: NextHopScope,
  desired: NextHopListing,
  observed: NextHopListing,
  round: Round,
  signal: AbortSignal,
): Promise<readonly (() => Promise<void>)[]> {
  const hops = await apply(hopKind(table, signal), desired.hops, observed.hops, round)
  const { groups, kept } = planGroups(desired.groups, new Set(hops.failed.map(({ id }) => id)))
  const there = observed.groups.filter(({ id }) => !kept.has(id))
  return [hops.remove, (await apply(groupKind(table, signal), groups, there, round)).remove]
}

function hopKind(table: NextHopTable, signal: AbortSignal): Kind<NextHopObject> {
  return {
    kind: 'next-hop',
    key: ({ id }) => String(id),
    text: (hop) => formatHop(normalHop(hop)),
    format: formatHop,
    formatDeletion: formatNextHopDeletion,
    put: (hop) => table.replaceHop(hop, signal),
    remove: ({ id }) => table.remove(id, signal),
  }
}

function groupKind(table: NextHopTable, signal: AbortSignal): Kind<NextHopGroup> {
  return {
    kind: 'next-hop-group',
    key: ({ id }) => String(id),
    format: formatGroup,
    formatDeletion: formatNextHopDeletion,
    put: (group) => table.replaceGroup(group, signal),
    remove: ({ id }) => table.remove(id, signal),
  }
}

export interface RoutingPlan {
  readonly routes: readonly Route[]
  readonly rules: readonly Rule[]
  readonly neighbours?: readonly Neighbour[]
  readonly forwarding?: readonly ForwardingEntry[]
  /**
   * Ids are within the scope; routes may refer to them. An id must keep its meaning as long as a route refers to it.
   */
  readonly nextHops?: NextHopListing
}

/** What the caller owns. */
export interface RoutingScope {
  readonly tables: ReadonlySet<number>
  /** The device whose neighbours and forwarding entries are planned. If absent, none are considered. */
  readonly device?: string
  /** If absent, no next hops are planned or considered. */
  readonly nextHops?: NextHopScope
}

/** The plan for removing everything. */
export const NO_ROUTING: RoutingPlan = { routes: [], rules: [] }

/**
 * Applies the plan; idempotent. The round collects failures. If the state cannot be read, nothing is changed. Items are
 * added in the order of their dependencies and removed in the reverse order, so that a rule never refers to a table
 * that is not filled yet.
 */
export async function applyRouting(
  table: RouteTable,
  plan: RoutingPlan,
  scope: RoutingScope,
  round: Round,
  signal: AbortSignal,
): Promise<void> {
  const desired = plan.nextHops ?? NO_NEXT_HOPS
  const observed = await observeCleared(table, desired, scope, round, signal)
  if (observed === undefined) return
  const { neighbours, forwarding, nextHops, routes, rules } = observed
  const removals = [
    (await apply(neighbourKind(table, signal), plan.neighbours ?? [], neighbours, round)).remove,
    (await apply(forwardingKind(table, signal), plan.forwarding ?? [], forwarding, round)).remove,
    ...(scope.nextHops === undefined ? [] : await applyNextHops(scope.nextHops, desired, nextHops, round, signal)),
    (await apply(routeKind(table, signal), refusalsFirst(plan.routes), routes, round)).remove,
    (await apply(ruleKind(table, signal), plan.rules, rules, round)).remove,
  ]
  for (const remove of removals.reverse()) await remove()
}

interface Observed {
  readonly neighbours: readonly Neighbour[]
  readonly forwarding: readonly ForwardingEntry[]
  readonly nextHops: NextHopListing
  readonly routes: readonly Route[]
  readonly rules: readonly Rule[]
}

/**
 * Reads the state after it has removed the next hops that cannot be replaced. Undefined if the state cannot be read.
 */
async function observeCleared(
  table: RouteTable,
  desired: NextHopListing,
  scope: RoutingScope,
  round: Round,
  signal: AbortSignal,
): Promise<Observed | undefined> {
  const first = await round.attempt(() => observe(table, scope, signal))
  if (first === undefined || scope.nextHops === undefined) return first?.value
  const isCleared = await clearNextHops(scope.nextHops, desired, first.value.nextHops, round, signal)
  return isCleared ? (await round.attempt(() => observe(table, scope, signal)))?.value : first.value
}

async function observe(table: RouteTable, scope: RoutingScope, signal: AbortSignal): Promise<Observed> {
  const { tables, device } = scope
  const isOurs = (one: { readonly table: number }): boolean => tables.has(one.table)
  return {
    neighbours: device === undefined ? [] : await ifThere(table.neighbours(device, signal)),
    forwarding: device === undefined ? [] : await ifThere(table.forwardingEntries(device, signal)),
    nextHops: await observeNextHops(scope.nextHops, signal),
    // Several parts of Sealane create routes with our protocol number; only the table shows which part owns a route.
    routes: (await table.routes(signal)).filter(isOurs),
    rules: (await table.rules(signal)).filter(isOurs),
  }
}

/** Returns an empty list if the device does not exist. */
async function ifThere<T>(reading: Promise<readonly T[]>): Promise<readonly T[]> {
  try {
    return await reading
  } catch (error) {
    if (isNotFound(error)) return []
    throw error
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

/** Formats a route with its next hops sorted, since the kernel lists them in an order of its own. */
function hopsInOrder(route: Route): string {
  if (route.nextHops.length < 2) return format.formatRoute(route)
  const hops = route.nextHops.map((hop) => ({ hop, text: `${hop.device} ${hop.via ?? ''} ${hop.weight ?? 1}` }))
  hops.sort((a, b) => (a.text < b.text ? -1 : a.text > b.text ? 1 : 0))
  return format.formatRoute({ ...route, nextHops: hops.map(({ hop }) => hop) })
}

/** Puts refusing routes first: during the change, a packet may be refused but must not leak. */
function refusalsFirst(routes: readonly Route[]): Route[] {
  return [...routes.filter(({ type }) => type !== 'unicast'), ...routes.filter(({ type }) => type === 'unicast')]
}

// Applies one kind of item: adds and changes, then removes.

/** How to handle one kind of kernel item. */
interface Kind<T> {
  readonly kind: ChangeKind
  /** Identifies an item: the kernel has at most one item for each key. */
  readonly key: (item: T) => string
  /** Two items of one key are equal if their texts are. Defaults to `format`. */
  readonly text?: (item: T) => string
  readonly format: (item: T) => string
  readonly formatDeletion: (item: T) => string
  readonly put: (item: T) => Promise<void>
  /** True if the error of a failed put means that the item already exists. */
  readonly isThere?: (error: unknown) => boolean
  readonly remove: (item: T) => Promise<void>
}

interface Brought<T> {
  /** Items that could not be created or changed. */
  readonly failed: readonly T[]
  /** Removes the items that exist but are not desired. */
  readonly remove: () => Promise<void>
}

/** Adds and changes items in the order of `desired`. Counts what another program has changed as drift. */
async function apply<T>(
  kind: Kind<T>,
  desired: readonly T[],
  observed: readonly T[],
  round: Round,
): Promise<Brought<T>> {
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
  const failed: T[] = []
  for (const item of desired.filter((one) => wanting.has(one))) {
    const made = kind.format(item)
    if (await round.change(kind.kind, made, () => kind.put(item), kind.isThere)) continue
    there.delete(made)
    failed.push(item)
  }
  drift?.settle(kind.kind, there)
  const remove = async (): Promise<void> => {
    for (const item of diff.remove) {
      // The item may already be gone: when a device is removed, the kernel removes what depends on it.
      await round.change(kind.kind, kind.formatDeletion(item), () => kind.remove(item), isNotFound)
    }
  }
  return { failed, remove }
}
