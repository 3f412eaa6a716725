/**
 * How long Leases last that are not renewed: of the lane of a gateway, and of the agent that acts. A Lease says it
 * itself, so gateways and agents of one cluster may differ while the setting changes.
 */

/** A gateway that is started again has its Lease back sooner: nothing changes hands then. */
export const LANE_LEASE_MS = 15_000

/**
 * What may be chosen instead of LANE_LEASE_MS. With a shorter one, a holder on a busy node would lose it while it lives;
 * with a longer one, others would wait for minutes.
 */
export const LEASE_BOUNDS = { minMs: 3000, maxMs: 60_000 } as const

/** Milliseconds. Until a follower takes over from an agent that died: `durationMs` and `retryMs`. */
export interface ElectionTiming {
  readonly durationMs: number
  /** A leader that could not renew for so long gives up, before others take over. */
  readonly renewWithinMs: number
  readonly retryMs: number
}

/** For a cluster whose lanes have such a Lease: 10, 7 and 2 s by default. Nothing but imports waits for an agent. */
export function electionTiming(laneLeaseMs: number): ElectionTiming {
  const durationMs = Math.round((laneLeaseMs * 2) / 3)
  return { durationMs, renewWithinMs: Math.round(durationMs * 0.7), retryMs: Math.round(durationMs / 5) }
}
