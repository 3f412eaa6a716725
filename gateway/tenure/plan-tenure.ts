/**
 * Who holds the number of a lane, and what a node that may be its gateway does about it. Pure.
 *
 * A holder renews its Lease, and offers it when its node is about to go. Another node takes one that is free or
 * offered, or not renewed for its duration by a holder whose lane is lost (lease-watch.ts). A node that has published
 * its end of the lane to the other clusters goes on serving until the holder is up wherever it was up itself; so
 * nothing is lost when a Lease changes hands, wrongly or rightly.
 */

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
