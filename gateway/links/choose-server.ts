/**
 * Chooses which gateway receives the traffic of a lane that more than one gateway of a cluster claims, and which one is
 * called beside it. Pure.
 *
 * A newcomer receives no traffic before it has completed a handshake; until then the previous server keeps it. Both
 * have links on the device. The newcomer's link has no prefixes, so only handshakes pass. Then the prefixes move in one
 * step, and the other link is removed. A server that has been silent for some seconds is replaced in the same way by an
 * earlier one, if that answers, because the order in which they came may be known late or wrongly.
 */
import type { Endpoint } from '../../model/model.ts'
import type { LinkState } from '../cable/cable.ts'

export interface LaneServer {
  readonly server: Endpoint
  /** Called beside the server. It serves once it has completed a handshake. */
  readonly successor?: Endpoint
}

/** The time of a restart or a short interruption, during which no other gateway is tried. */
const FALL_BACK_MS = 5000

export interface LaneFacts {
  /** The present link to a gateway. Undefined if there is none. */
  readonly linkOf: (endpoint: Endpoint) => LinkState | undefined
  /** How long the lane to that cluster has been down. 0: it is not. */
  readonly downMs: number
  /** The present time in milliseconds of the monotonic clock. */
  readonly monotonicMs: number
}

/**
 * Takes the claims of one lane and cluster, the newest first. The newest serves at once if no other one receives
 * traffic.
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
  // A gateway that has just completed a handshake gets time until the probes show it.
  const isSilent = downMs >= FALL_BACK_MS && monotonicMs - (linkOf(last)?.handshakeMs ?? -Infinity) >= FALL_BACK_MS
  if (!isSilent || before === undefined) return { server: last }
  const answers = others.find(hasShaken)
  return answers === undefined ? { server: last, successor: before } : { server: answers }
}

/** How often the device is read for a successor's handshake, which nothing else reports. */
const LOOK_MS = 200
const LOOK_CALMLY_MS = 2000
/** A successor that has not answered for this long may never answer. */
const EAGER_FOR_MS = 20_000

/** When to read the device next, in milliseconds of the monotonic clock. `sinceMs`: when it was first called. */
export function nextLookMs(sinceMs: number, monotonicMs: number): number {
  return monotonicMs + (monotonicMs - sinceMs < EAGER_FOR_MS ? LOOK_MS : LOOK_CALMLY_MS)
}
