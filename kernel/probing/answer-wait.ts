/** How long an answer over a path may take, by what is known of the path. One rule for all who wait for one. Pure. */

/** What is known of a path. Times are in milliseconds. */
export interface RoundTrip {
  /** Smoothed. Absent: not known. */
  readonly rttMs?: number
  /** Its variation. Absent: there is only one sample, or an estimate. */
  readonly jitterMs?: number
}

/** No answer is waited for longer: WireGuard, too, gives up a call after this time (REKEY_TIMEOUT). */
export const LONGEST_ANSWER_MS = 5000

/**
 * How long an answer may take, as RFC 6298 (2.2, 2.3) has it: the round-trip time, and a margin of four times its
 * variation, but at least half of it. The variation of an estimate counts as half of the time. At least `leastMs`, which
 * also counts if nothing is known, and at most LONGEST_ANSWER_MS.
 */
export function answerWaitMs({ rttMs, jitterMs }: RoundTrip, leastMs: number): number {
  if (rttMs === undefined) return leastMs
  const marginMs = jitterMs === undefined ? 2 * rttMs : rttMs / 2 + 4 * jitterMs
  return Math.min(LONGEST_ANSWER_MS, Math.max(leastMs, rttMs + marginMs))
}
