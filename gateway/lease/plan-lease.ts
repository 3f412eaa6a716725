/**
 * Decides which node holds a lane number, and what a node that may be its gateway does about it. Pure.
 *
 * A holder renews its Lease, and offers it when its node is about to leave. Another node takes a Lease that is free or
 * offered, or that was not renewed for its duration by a holder whose lane is lost (lease-watch.ts). A node that has
 * published its Endpoint for the lane keeps serving until the holder has every link up that this node had. So no
 * traffic is lost when a Lease changes its holder, even by mistake.
 */
import { type HeldLease, isRenewalDue, whyVacant } from '../../kubeapi/lease/lease.ts'
import { leavingReason, mayServe, remoteLaneOf } from '../../model/lanes/lanes.ts'
import type { ConnectionStatus, Gateway, Node } from '../../model/model.ts'
import type { CableRules } from '../cable/cable.ts'
import { clusterOfKey, healthKey } from '../world/world.ts'

/** The relevant content of a Lease. Its holder is a node, and its changes were seen while every read succeeded. */
export interface LeaseView extends HeldLease {
  /** Why another node should take it. Undefined if it is not offered. */
  readonly offer: string | undefined
}

export interface LeaseFacts {
  readonly node: string
  readonly nowMs: number
  /** Undefined if there is no Lease. */
  readonly lease: LeaseView | undefined
  /** The holder's lane is lost, as far as this node knows. Only then may a lapsed Lease be taken. */
  readonly lost: boolean
  /** Since when another node than its holder may take it, as far as this node knows. */
  readonly openSinceMs: number | undefined
  /** Why this node should not serve. Undefined if it may. */
  readonly away: string | undefined
  /** The node serves under no circumstances: the process ends, or the node is no longer a gateway. */
  readonly never: boolean
  /** How many other nodes come before this one. */
  readonly turn: number
  /** This node has published its Endpoint for the lane to the other clusters. */
  readonly reported: boolean
  /** The holder has every link up that this node had. */
  readonly relieved: boolean
  /** When this node last wrote the Lease. Undefined if another node has written it since. */
  readonly writtenMs: number | undefined
  /** Duration of this node's Leases. */
  readonly leaseMs: number
}

/** `serve` while another node is the holder means to hand over. */
export interface LeaseStep {
  readonly role: 'serve' | 'stand by'
  readonly write?: 'take' | 'renew'
}

/** How often a Lease is read that seems not to change. */
export const RELOOK_MS = 2000
/** How often a Lease is renewed within its duration. */
export const RENEWALS_PER_LEASE = 5
/** How long each node waits per node that comes before it. */
export const TURN_MS = 1500
/**
 * How long each node waits per node that comes before it while there is no Lease, because the pods of an installation
 * start within some seconds of each other.
 */
export const FIRST_TURN_MS = 5000
/** A node that is about to leave takes a lane only if no other node took it for this long. */
export const LAST_RESORT_MS = 10_000

export function planLease(facts: LeaseFacts): LeaseStep {
  const { lease, node, away } = facts
  if (lease?.holder === node) {
    const due = isDue(facts) || lease.offer !== away
    return { role: 'serve', ...(due ? { write: 'renew' as const } : {}) }
  }
  if (mayTake(facts)) return isTakenFromUs(facts) ? { role: 'serve' } : { role: 'serve', write: 'take' }
  return { role: facts.reported && !facts.relieved ? 'serve' : 'stand by' }
}

/** Why the Lease may be taken. Undefined if it may not. */
export function whyOpen(
  lease: LeaseView | undefined,
  nowMs: number,
  lost: boolean,
): 'free' | 'offered' | 'lapsed' | undefined {
  const why = whyVacant(lease, nowMs)
  // The lane of a holder that offered it and is lost does not keep working, so `lapsed` comes before `offered`.
  if (why === 'free' || (why === 'lapsed' && lost)) return why
  return lease?.offer === undefined ? undefined : 'offered'
}

function isDue({ nowMs, writtenMs, leaseMs }: LeaseFacts): boolean {
  return isRenewalDue(writtenMs, nowMs, leaseMs / RENEWALS_PER_LEASE)
}

/**
 * True if the Lease of this node was just deleted. It is not created at once, because the cause may delete it each
 * time, as a garbage collector does if the owner is gone.
 */
function isTakenFromUs(facts: LeaseFacts): boolean {
  return facts.lease === undefined && !isDue(facts)
}

function mayTake({ lease, nowMs, lost, openSinceMs, away, never, turn }: LeaseFacts): boolean {
  const why = whyOpen(lease, nowMs, lost)
  if (why === undefined || never || openSinceMs === undefined) return false
  if (away !== undefined) return why !== 'offered' && nowMs - openSinceMs >= LAST_RESORT_MS
  return nowMs - openSinceMs >= turn * (lease === undefined ? FIRST_TURN_MS : TURN_MS)
}

// How far the gateway that takes over a lane has progressed, as seen from the previous one. Pure.

/** Links, by healthKey(), that a gateway reports as up on its lane. */
export function linksUp(gateway: Gateway | undefined, lane: number): ReadonlySet<string> {
  const all = gateway?.status?.connections ?? []
  return new Set(all.filter((one) => one.lane === lane && one.state === 'up').map(keyOf))
}

function keyOf(connection: ConnectionStatus): string {
  return healthKey(remoteLaneOf(connection), connection.cluster)
}

/**
 * The handover does not wait longer than this for a link that this node has lost as well: its far end has most probably
 * failed.
 */
const LOST_MS = 5000
/**
 * After this time, any link of the holder to a cluster is enough, because two particular nodes may be unable to reach
 * each other. It is less than a process has for a handover before it ends (HAND_OVER_MS).
 */
const SOME_LINK_MS = 15_000

interface HandingOverFacts {
  readonly lane: number
  /** The Gateway objects of the node that holds the lane now, and of this node. */
  readonly holder: Gateway | undefined
  readonly own: Gateway | undefined
  /** Links, by healthKey(), that this node has had up since the other node took the lane. */
  readonly needed: ReadonlySet<string>
  /** Time since the other node took the lane. */
  readonly elapsedMs: number
}

/** True if this node is no longer needed: the holder serves the lane and has every link up that this node had. */
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

// Which lane a node takes if its label leaves the number open. Pure.
//
// The first waiting node takes the first open lane, the second one the second, so that an installation serves all
// numbers at once. Each other node waits one turn for each node that comes before it. A node whose label names a number
// comes before all nodes whose label leaves it open.

export interface SearchedLane {
  readonly lane: number
  /** Name of a node. Empty if no node holds it. */
  readonly holder: string
  /** Since when another node than the holder may take it, in monotonic milliseconds. Undefined if none may. */
  readonly openSinceMs: number | undefined
  /** Its holder keeps serving until another node has it. */
  readonly offered: boolean
  /** No node has ever held it: the pods of an installation may be starting. */
  readonly isNew: boolean
  /** How many nodes may serve only this lane. */
  readonly pinned: number
  /** This node has published its Endpoint for the lane to the other clusters. */
  readonly reported: boolean
}

export interface SearchFacts {
  readonly node: string
  readonly nowMs: number
  readonly lanes: readonly SearchedLane[]
  /** How many nodes without a lane number come before this one. */
  readonly turn: number
  /** This node is about to leave or cannot create a lane. It takes only a lane that no other node takes. */
  readonly away: boolean
}

/** Undefined if the node takes no lane now. */
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

// Whether the lane of a holder with a lapsed Lease is lost, according to the API objects. Pure. Renewing a Lease needs
// a process that can write; a lane in the kernel needs no process.

interface LapsedHolderFacts {
  readonly rules: Pick<CableRules, 'endsWithProcess'>
  readonly lane: number
  /** Objects of the holder. Undefined if they do not exist. */
  readonly node: Node | undefined
  readonly gateway: Gateway | undefined
}

/** Why another node may take the lane. Undefined if these objects do not decide it and the machine is to be probed. */
export function whyLost({ rules, lane, node, gateway }: LapsedHolderFacts): string | undefined {
  if (node === undefined) return 'its Node does not exist'
  if (!mayServe(node, lane)) return 'its Node no longer has the label of this lane'
  const leaving = leavingReason(node)
  if (leaving !== undefined) return leaving
  if (linksUp(gateway, lane).size === 0) return 'its last status has no connection that is up'
  const own = gateway?.status?.lanes.find((one) => one.lane === lane)
  return own === undefined ? undefined : rules.endsWithProcess(own.driver)
}
