/**
 * Who is sent to on a lane that more than one gateway of a cluster claims, and who is called beside it. Pure.
 *
 * A newcomer is not sent to before it has shaken hands: until then the one that served goes on. Both have links on the
 * device; the newcomer's has no prefixes, so nothing is sent to it or taken from it but handshakes. Then the prefixes
 * move over in one step, and the other goes. A server that has been silent for some seconds is replaced in the same way
 * by one that came before it, if that answers: the order in which they came may be known late, or wrongly.
 */
import type { Endpoint } from '../../model/model.ts'
import type { LinkState } from '../cable/cable.ts'

export interface LaneServer {
  readonly server: Endpoint
  /** Called beside it, to serve once it has shaken hands. */
  readonly successor?: Endpoint
}

/** A machine that is started anew, or a short break, is none of the others' business. */
const FALL_BACK_MS = 5000

export interface LaneFacts {
  /** The link to a gateway as it is; undefined: there is none. */
  readonly linkOf: (endpoint: Endpoint) => LinkState | undefined
  /** For how long the lane to that cluster has been down; 0: it is not. */
  readonly downMs: number
  /** Milliseconds of the clock that never jumps. */
  readonly monotonicMs: number
}

/**
 * Takes the claims of one lane and cluster, the newest first. The newest serves at once where packets go to none of the
 * others: there is nothing to lose.
 */
export function chooseServer(
  [last, ...others]: readonly [Endpoint, ...Endpoint[]],
  { linkOf, downMs, monotonicMs }: LaneFacts,
): LaneServer {
  const hasShaken = (endpoint: Endpoint): boolean => linkOf(endpoint)?.handshakeMs !== undefined
  const serving = others.find((endpoint) => linkOf(endpoint)?.carries === true)
  if (serving !== undefined) {
    return hasShaken(last) ? { server: last } : { server: serving, successor: last }
  }
  const before = others[Math.floor(downMs / FALL_BACK_MS - 1) % others.length]
  // One that shook hands just now has its time until the probes show it.
  const isSilent = downMs >= FALL_BACK_MS && monotonicMs - (linkOf(last)?.handshakeMs ?? -Infinity) >= FALL_BACK_MS
  if (!isSilent || before === undefined) return { server: last }
  const answers = others.find(hasShaken)
  return answers === undefined ? { server: last, successor: before } : { server: answers }
}

/** How often the device is looked at for a successor's handshake, which nothing else reports. */
const LOOK_MS = 200
const LOOK_CALMLY_MS = 2000
/** One that has not answered for so long may never do. */
const EAGER_FOR_MS = 20_000

/** When to look next, in milliseconds of the monotonic clock. `sinceMs`: when it was called first. */
export function nextLookMs(sinceMs: number, monotonicMs: number): number {
  return monotonicMs + (monotonicMs - sinceMs < EAGER_FOR_MS ? LOOK_MS : LOOK_CALMLY_MS)
}
