/**
 * Who is sent to on a lane that more than one gateway of a cluster claims, and who is called beside it. Pure.
 *
 * A newcomer is not sent to before it has shaken hands: until then the one that served goes on. Both are peers of the
 * device; the newcomer's has no prefixes, so nothing is sent to it or taken from it but handshakes. Then the prefixes
 * move over in one step, and the other goes.
 */
import type { DeviceState } from '../kernel/wireguard.ts'
import type { Endpoint } from '../model/objects.ts'

export interface LaneServer {
  readonly server: Endpoint
  /** Came later, and has not shaken hands yet. */
  readonly successor?: Endpoint
}

/**
 * Takes the claims of one lane and cluster, the last one first, and the lane's device as it is. Who came last serves at
 * once where none of the others is being sent to: there is nothing to lose.
 */
export function chooseServer([last, ...others]: readonly [Endpoint, ...Endpoint[]], device?: DeviceState): LaneServer {
  const peers = new Map(device?.peers.map((peer) => [peer.publicKey, peer]))
  if (peers.get(last.spec.publicKey)?.lastHandshakeMs !== undefined) return { server: last }
  const serving = others.find(({ spec }) => (peers.get(spec.publicKey)?.allowedIps.length ?? 0) > 0)
  return serving === undefined ? { server: last } : { server: serving, successor: last }
}

/** How often the device is looked at for a successor's handshake, which nothing else tells about. */
const LOOK_MS = 200
const LOOK_CALMLY_MS = 2000
/** One that has not answered for so long may never do. */
const EAGER_FOR_MS = 20_000

/** When to look next, in milliseconds of the monotonic clock. `sinceMs`: when it was called first. */
export function nextLookMs(sinceMs: number, monotonicMs: number): number {
  return monotonicMs + (monotonicMs - sinceMs < EAGER_FOR_MS ? LOOK_MS : LOOK_CALMLY_MS)
}
