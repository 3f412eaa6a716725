/**
 * Brings routes, rules, next hops, neighbours and forwarding entries to a plan: reads what is there, adds before it
 * deletes, goes on past failures. Looks only at the tables, ids and the device that the caller names as its own.
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

// Brings next-hop objects and groups to a plan, as a part of applyRouting.

/** Which next hops are the caller's own. */
interface NextHopScope {
  readonly table: NextHopTable
  readonly ids: NextHopIds
}

const NO_NEXT_HOPS: NextHopListing = { hops: [], groups: [] }

/** Those of the caller. Throws KernelError. */
async function observeNextHops(scope: NextHopScope | undefined, signal: AbortSignal): Promise<NextHopListing> {
  if (scope === undefined) return NO_NEXT_HOPS
  const { ids, table } = scope
  const isOurs = ({ id }: { readonly id: number }): boolean => id >= ids.first && id <= ids.last
  const { hops, groups } = await table.list(signal)
  return { hops: hops.filter(isOurs), groups: groups.filter(isOurs) }
}

/**
 * Removes what cannot be replaced in place. True when something was removed: the kernel then has removed the routes
 * over it too, and the caller has to read again.
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

/** Adds and changes; gives what removes the rest, hops and groups apart. */
async function bringNextHops(
  { table }: NextHopScope,
  desired: NextHopListing,
  observed: NextHopListing,
  round: Round,
  signal: AbortSignal,
): Promise<readonly (() => Promise<void>)[]> {
  const hops = await bring(hopKind(table, signal), desired.hops, observed.hops, round)
  const { groups, kept } = planGroups(desired.groups, new Set(hops.failed.map(({ id }) => id)))
  const there = observed.groups.filter(({ id }) => !kept.has(id))
  return [hops.remove, (await bring(groupKind(table, signal), groups, there, round)).remove]
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
  /** Of the ids in the scope; routes may name them. An id is to keep its meaning as long as a route names it. */
  readonly nextHops?: NextHopListing
}

/** What is the caller's own. */
export interface RoutingScope {
  readonly tables: ReadonlySet<number>
  /** Whose neighbours and forwarding entries are planned; absent: those of no device are looked at. */
  readonly device?: string
  /** Absent: no next hops are planned, and none are looked at. */
  readonly nextHops?: NextHopScope
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
  const desired = plan.nextHops ?? NO_NEXT_HOPS
  const observed = await observeCleared(table, desired, scope, round, signal)
  if (observed === undefined) return
  const { neighbours, forwarding, nextHops, routes, rules } = observed
  const removals = [
    (await bring(neighbourKind(table, signal), plan.neighbours ?? [], neighbours, round)).remove,
    (await bring(forwardingKind(table, signal), plan.forwarding ?? [], forwarding, round)).remove,
    ...(scope.nextHops === undefined ? [] : await bringNextHops(scope.nextHops, desired, nextHops, round, signal)),
    (await bring(routeKind(table, signal), refusalsFirst(plan.routes), routes, round)).remove,
    (await bring(ruleKind(table, signal), plan.rules, rules, round)).remove,
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

/** What is there, after next hops have gone that stand in the way. Undefined where it cannot be read. */
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

// Brings one kind of thing in the kernel to what is desired: adds and changes, then removes.

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

interface Brought<T> {
  /** What could not be made, or not be changed. */
  readonly failed: readonly T[]
  /** Removes what is there and not desired. */
  readonly remove: () => Promise<void>
}

/** Adds and changes, in the order of `desired`. What another program changed is counted as drift. */
async function bring<T>(
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
      // The kernel was faster: a device that goes takes along what hangs on it.
      await round.change(kind.kind, kind.formatDeletion(item), () => kind.remove(item), isNotFound)
    }
  }
  return { failed, remove }
}
