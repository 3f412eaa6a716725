/** When something last came in from each peer, by what its device counts: a probe's answer is not the only sign of life. */
import type { Clock } from '../../../reconcile/clock.ts'
import type { DeviceState } from '../../../kernel/wireguard/wireguard.ts'

interface Heard {
  readonly rxBytes: number
  /** Of the monotonic clock; undefined while nothing has come in since we look. */
  readonly atMs: number | undefined
}

export class HeardPeers {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #peers = new Map<string, Heard>()

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock
  }

  /** Takes what the devices count now, by lane. Peers that are gone are forgotten. */
  look(devices: ReadonlyMap<number, DeviceState>): void {
    const nowMs = this.#clock.monotonic()
    const seen = new Set<string>()
    for (const [lane, { peers }] of devices) {
      for (const { publicKey, rxBytes } of peers) {
        const key = keyOf(lane, publicKey)
        seen.add(key)
        const before = this.#peers.get(key)
        // A peer that is made anew begins to count at 0; what it had counted before we looked is of no known time.
        const grown = before !== undefined && rxBytes > before.rxBytes
        this.#peers.set(key, { rxBytes, atMs: grown ? nowMs : before?.atMs })
      }
    }
    for (const key of this.#peers.keys()) if (!seen.has(key)) this.#peers.delete(key)
  }

  /** Milliseconds since then; undefined where nothing came in since we look. */
  heardMs(lane: number, publicKey: string): number | undefined {
    const atMs = this.#peers.get(keyOf(lane, publicKey))?.atMs
    return atMs === undefined ? undefined : this.#clock.monotonic() - atMs
  }
}

function keyOf(lane: number, publicKey: string): string {
  return `${lane}/${publicKey}`
}
