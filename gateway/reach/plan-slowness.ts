/** How long the ends of a link wait for each other on a path that may be slow. Pure. */
import { type RoundTrip, answerWaitMs } from '../../kernel/probing/probing.ts'
import type { PeerHealthView, RelayPlace } from '../world/world.ts'

/** How long an answer may take on a usual path: a round trip of 0.33 s, by answerWaitMs(). */
export const USUAL_ANSWER_MS = 1000

interface LinkTrips {
  /** Where relays take packets for the far end. Absent: nowhere. */
  readonly relays?: readonly Pick<RelayPlace, 'roundTripMs'>[]
  readonly health: Pick<PeerHealthView, 'figures'> | undefined
}

/**
 * How many times longer an answer of the far end may take than on a usual path, from 1 to 5: by the slowest of the relays
 * that have both ends, and by what probes have measured. All that waits for the far end outside the tunnel waits so many
 * times longer, and so a call over a slow path goes as one over a usual path does, in slow motion: one that is repeated
 * before its answer is here forgets that answer.
 */
export function slowness(link: LinkTrips): number {
  const waits = knownTrips(link).map((trip) => answerWaitMs(trip, USUAL_ANSWER_MS))
  return Math.max(USUAL_ANSWER_MS, ...waits) / USUAL_ANSWER_MS
}

/** The variation before a link went down may only reflect how it failed, so most of it does not count. */
function knownTrips({ relays = [], health }: LinkTrips): readonly RoundTrip[] {
  const { rttMs = 0, jitterMs = 0 } = health?.figures ?? {}
  return [
    { rttMs, jitterMs: Math.min(jitterMs, rttMs / 4) },
    ...relays.flatMap(({ roundTripMs: rttMs }) => (rttMs === undefined ? [] : [{ rttMs }])),
  ]
}
