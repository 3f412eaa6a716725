/**
 * Who holds the number of a lane, and what a node that may be its gateway does about it. Pure.
 *
 * A holder renews its Lease, and offers it when its node is about to go. Another node takes one that is free or
 * offered, or not renewed for its duration by a holder whose lane is lost (lease-watch.ts). A node that has published
 * its end of the lane to the other clusters goes on serving until the holder is up wherever it was up itself; so
 * nothing is lost when a Lease changes hands, wrongly or rightly.
 */
import { leavingReason, mayServe, remoteLaneOf } from '../../model/lanes/lanes.ts'
import type { ConnectionStatus, Gateway, Node } from '../../model/model.ts'
import type { CableRules } from '../cable/cable.ts'
import { clusterOfKey, healthKey } from '../world/world.ts'

/** What a Lease says. */
export interface LeaseView {
  /** Name of a node; empty: nobody. */
  readonly holder: string
  /** Why another node should take it; undefined: it should not. */
  readonly offer: string | undefined
  /** When its contents were last seen to change, while it could be read all the time. Monotonic milliseconds. */
  readonly changedMs: number
  readonly durationMs: number
}

export interface TenureFacts {
  readonly node: string
  readonly nowMs: number
  /** Undefined: there is none. */
  readonly lease: LeaseView | undefined
  /** The holder's lane is lost, as far as this node knows: only then is a Lease that lapsed open. */
  readonly lost: boolean
  /** Since when it may be taken by somebody else than its holder, as far as this node knows. */
  readonly openSinceMs: number | undefined
  /** Why this node should not serve; undefined when it may. */
  readonly away: string | undefined
  /** Not even where nobody else does: the process ends, or the node is no gateway any more. */
  readonly never: boolean
  /** How many other nodes go before this one. */
  readonly turn: number
  /** This node has published its end of the lane to the other clusters. */
  readonly reported: boolean
  /** The holder is up wherever this node was. */
  readonly relieved: boolean
  /** When this node last wrote the Lease; undefined when another node has written it since. */
  readonly writtenMs: number | undefined
  /** How long this node's Leases last. */
  readonly leaseMs: number
}

/** serve: beside another holder this is handing over. */
export interface TenureStep {
  readonly role: 'serve' | 'stand by'
  readonly write?: 'take' | 'renew'
}

/** How often a Lease is read that seems not to change. */
export const RELOOK_MS = 2000
/** So often a Lease is renewed before it lapses. */
export const RENEWALS_PER_LEASE = 5
/** The second best node waits for the best one, and so on. */
export const TURN_MS = 1500
/** The first time of all: the pods of an installation start within some seconds of each other. */
export const FIRST_TURN_MS = 5000
/** A node that is about to go takes a lane that nobody else took. */
export const LAST_RESORT_MS = 10_000

export function planTenure(facts: TenureFacts): TenureStep {
  const { lease, node, away, nowMs, writtenMs, leaseMs } = facts
  if (lease?.holder === node) {
    const due = writtenMs === undefined || nowMs - writtenMs >= leaseMs / RENEWALS_PER_LEASE || lease.offer !== away
    return { role: 'serve', ...(due ? { write: 'renew' as const } : {}) }
  }
  if (mayTake(facts)) return isTakenFromUs(facts) ? { role: 'serve' } : { role: 'serve', write: 'take' }
  return { role: facts.reported && !facts.relieved ? 'serve' : 'stand by' }
}

/** Why the Lease may be taken; undefined when it may not. */
export function whyOpen(
  lease: LeaseView | undefined,
  nowMs: number,
  lost: boolean,
): 'free' | 'offered' | 'lapsed' | undefined {
  if (lease === undefined || lease.holder === '') return 'free'
  // Whoever offered it and is gone goes on with nothing.
  if (lost && hasLapsed(lease, nowMs)) return 'lapsed'
  return lease.offer === undefined ? undefined : 'offered'
}

/** Not renewed for its duration. */
export function hasLapsed({ changedMs, durationMs }: LeaseView, nowMs: number): boolean {
  return nowMs - changedMs >= durationMs
}

/** Who removes it may do so each time, as a garbage collector does with what belongs to an owner that is gone. */
function isTakenFromUs({ lease, nowMs, writtenMs, leaseMs }: TenureFacts): boolean {
  return lease === undefined && writtenMs !== undefined && nowMs - writtenMs < leaseMs / RENEWALS_PER_LEASE
}

function mayTake({ lease, nowMs, lost, openSinceMs, away, never, turn }: TenureFacts): boolean {
  const why = whyOpen(lease, nowMs, lost)
  if (why === undefined || never || openSinceMs === undefined) return false
  if (away !== undefined) return why !== 'offered' && nowMs - openSinceMs >= LAST_RESORT_MS
  return nowMs - openSinceMs >= turn * (lease === undefined ? FIRST_TURN_MS : TURN_MS)
}

// How far the gateway that takes a lane over has come, seen from the one that has it. Pure.

/** Links, by healthKey(), that a gateway reports as up on its lane. */
export function linksUp(gateway: Gateway | undefined, lane: number): ReadonlySet<string> {
  const all = gateway?.status?.connections ?? []
  return new Set(all.filter((one) => one.lane === lane && one.state === 'up').map(keyOf))
}

function keyOf(connection: ConnectionStatus): string {
  return healthKey(remoteLaneOf(connection), connection.cluster)
}

/** A link that this node has lost as well is not waited for after so long: the far end has most probably died. */
const LOST_MS = 5000
/**
 * After so long a cluster that the holder reaches by some link is enough: between these two nodes there may be no way.
 * It is less than a process that ends has for all of it.
 */
const SOME_LINK_MS = 15_000

interface HandingOverFacts {
  readonly lane: number
  /** Of the node that holds the lane now, and of this one, as they report. */
  readonly holder: Gateway | undefined
  readonly own: Gateway | undefined
  /** Links, by healthKey(), that this node has had up since the other took the lane. */
  readonly needed: ReadonlySet<string>
  /** How long ago that was. */
  readonly elapsedMs: number
}

/** Nobody needs this node any more: the holder serves the lane, and is up wherever this node was. */
export function isRelieved({ lane, holder, own, needed, elapsedMs }: HandingOverFacts): boolean {
  if (holder?.status?.lanes.some((one) => one.lane === lane) !== true) return false
  const there = linksUp(holder, lane)
  const here = linksUp(own, lane)
  const reached = new Set([...there].map(clusterOfKey))
  return [...needed].every((key) => {
    if (there.has(key)) return true
    if (elapsedMs > SOME_LINK_MS && reached.has(clusterOfKey(key))) return true
    return elapsedMs > LOST_MS && !here.has(key)
  })
}

// Which lane a node takes whose label leaves the number open. Pure.
//
// The first of those that wait takes the first lane that is open, the second one the second, so that an installation
// has all its numbers at once. Whoever is further back waits a turn for each who goes before it. A node whose label says
// a number goes before all that would take any.

export interface SearchedLane {
  readonly lane: number
  /** Name of a node; empty: nobody. */
  readonly holder: string
  /** Since when it may be taken by somebody else, monotonic milliseconds; undefined: not. */
  readonly openSinceMs: number | undefined
  /** Its holder goes on until another node has it. */
  readonly offered: boolean
  /** Nobody ever held it: the pods of an installation may be starting. */
  readonly isNew: boolean
  /** How many nodes may serve this lane only. */
  readonly pinned: number
  /** This node has published its end of the lane to the other clusters. */
  readonly reported: boolean
}

export interface SearchFacts {
  readonly node: string
  readonly nowMs: number
  readonly lanes: readonly SearchedLane[]
  /** How many nodes without a number go before this one. */
  readonly turn: number
  /** This node is about to go, or can make no lane: it takes only what nobody has. */
  readonly away: boolean
}

/** Undefined: none of them, for now. */
export function planSearch({ node, nowMs, lanes, turn, away }: SearchFacts): number | undefined {
  const own = lanes.filter(({ holder }) => holder === node).sort(firstToTake)
  if (own[0] !== undefined) return own[0].lane
  const openFor = ({ openSinceMs }: SearchedLane): number => nowMs - (openSinceMs ?? Infinity)
  const open = lanes.filter(({ openSinceMs }) => openSinceMs !== undefined).sort(firstToTake)
  if (away) return open.find((one) => !one.offered && openFor(one) >= LAST_RESORT_MS)?.lane
  const inTurn = (one: SearchedLane, place: number): boolean => {
    const ahead = one.reported ? 0 : Math.max(0, turn - place)
    return openFor(one) >= (ahead + one.pinned) * (one.isNew ? FIRST_TURN_MS : TURN_MS)
  }
  const mine = open[turn]
  if (mine !== undefined && !open[0]?.reported && inTurn(mine, turn)) return mine.lane
  return open.find(inTurn)?.lane
}

function firstToTake(a: SearchedLane, b: SearchedLane): number {
  return Number(b.reported) - Number(a.reported) || a.pinned - b.pinned || a.lane - b.lane
}

// Whether the lane of a holder whose Lease lapsed is lost, by what the API says of it. Pure. A Lease is renewed by a
// process that can write; a lane of the kernel needs neither.

interface LapsedHolderFacts {
  readonly rules: Pick<CableRules, 'endsWithProcess'>
  readonly lane: number
  /** Of the holder; undefined: there is none. */
  readonly node: Node | undefined
  readonly gateway: Gateway | undefined
}

/** Why another node may take the lane; undefined: not by this, its machine is to be asked. */
export function whyLost({ rules, lane, node, gateway }: LapsedHolderFacts): string | undefined {
  if (node === undefined) return 'its Node is gone'
  if (!mayServe(node, lane)) return 'its Node has the label of this lane no more'
  const leaving = leavingReason(node)
  if (leaving !== undefined) return leaving
  if (linksUp(gateway, lane).size === 0) return 'its last word was that no connection is up'
  const own = gateway?.status?.lanes.find((one) => one.lane === lane)
  return own === undefined ? undefined : rules.endsWithProcess(own.driver)
}
