/**
 * Brings routes, rules, next hops, neighbours and forwarding entries to a plan: reads what is there, adds before it
 * deletes, goes on past failures. Looks only at the tables, ids and the device that the caller names as its own.
 */
import { isExists, isNotFound } from '../errors.ts'
import * as format from '../route/format-ip.ts'
import type { ForwardingEntry, Neighbour, Route, RouteTable, Rule } from '../route/route-table.ts'
import type { NextHopListing } from '../route/nexthop/next-hop-table.ts'
import { bringNextHops, clearNextHops, NO_NEXT_HOPS, observeNextHops, type NextHopScope } from './apply-next-hops.ts'
import { bring, type Kind } from './bring.ts'
import type { Round } from './round.ts'

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
