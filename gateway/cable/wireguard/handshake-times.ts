/**
 * When each peer shook hands last, by the clock that never jumps. A device dates handshakes by the wall clock, which
 * may be set forwards or back at any time; so a date only distinguishes one handshake from another, and what counts is
 * when it was seen to change.
 */
import type { DeviceState } from '../../../kernel/wireguard/wireguard.ts'

interface Seen {
  readonly lastHandshakeMs: number
  /** Monotonic. */
  readonly atMs: number
}

export class HandshakeTimes {
  #seen: ReadonlyMap<string, Seen> = new Map()
  #lookedMs = -Infinity

  /**
   * Looks at the devices. Gives, by public key, the monotonic time of the last handshake of each peer that ever had
   * one. Peers that are gone are forgotten.
   */
  look(
    devices: Iterable<DeviceState>,
    { nowMs, monotonicMs }: { readonly nowMs: number; readonly monotonicMs: number },
  ): ReadonlyMap<string, number> {
    const seen = new Map<string, Seen>()
    for (const { peers } of devices) {
      for (const { publicKey, lastHandshakeMs } of peers) {
        if (lastHandshakeMs === undefined) continue
        const before = this.#seen.get(publicKey)
        if (before?.lastHandshakeMs === lastHandshakeMs) seen.set(publicKey, before)
        else {
          // It is no older than the last look, whatever the wall clock says. One of before the first look may be of any
          // age; where the clock was set back since then, that is not known, and it counts as one of just now.
          const ageMs = Math.min(Math.max(0, nowMs - lastHandshakeMs), monotonicMs - this.#lookedMs)
          seen.set(publicKey, { lastHandshakeMs, atMs: monotonicMs - ageMs })
        }
      }
    }
    this.#seen = seen
    this.#lookedMs = monotonicMs
    return new Map([...seen].map(([publicKey, { atMs }]) => [publicKey, atMs]))
  }
}
