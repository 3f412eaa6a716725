/** Remembers which call each peer got last, so that a round knows who is to be called anew. */
import type { PlannedPeer } from '../cable/wireguard/plan-lanes.ts'

export class PeerCalls {
  /** Number of the last call, by public key: of peers that are being called only. */
  #last: ReadonlyMap<string, number> = new Map()

  /** Public keys of the peers whose next call is due. The first call (0) needs nothing: the peer is new or was up. */
  due(peers: readonly PlannedPeer[]): Set<string> {
    const attempts = new Map(
      peers.flatMap(({ publicKey, choice }) =>
        choice.attempt === undefined ? [] : [[publicKey, choice.attempt] as const],
      ),
    )
    const due = [...attempts].filter(([key, attempt]) => attempt > 0 && this.#last.get(key) !== attempt)
    this.#last = attempts
    return new Set(due.map(([key]) => key))
  }
}
