/**
 * When the connections of members are to end, although all is well. Streams of members last for weeks, so that after
 * each start of a replica those that had to leave it would stay with the others for good. Each connection has a life of
 * its own length, so that at any time a few members connect anew, wherever their next call leads; and before a replica
 * stops, or when it is cut off from what others know, it sends its members away one by one.
 */
import type { Clock } from '../../reconcile/reconcile.ts'

/** The shortest life has so much of the mean one, and the longest as much more. */
const JITTER = 0.5
/** After its streams have ended, so long until a connection that is not closed by its member is closed by us. */
const CLOSE_MS = 10_000
/** Of a replica that is cut off members leave within this time. */
const LEAVE_MS = 5000
/** Mean life of a connection to one that is cut off: where all are, members must not go round and round. */
const CUT_OFF_AGE_MS = 60_000

export interface ConnectionLifeInit {
  readonly clock: Clock
  /** Mean; 0: for ever. */
  readonly ageMs: number
  /** Closes the connection of this peer. */
  readonly drop: (peer: string) => void
}

interface Life {
  readonly over: AbortController
  cancelTimer: () => void
}

export class ConnectionLife {
  readonly #init: ConnectionLifeInit
  readonly #lives = new Map<string, Life>()
  /** When the last connection is to end, by the monotonic clock, while the server drains. */
  #drainedAtMs: number | undefined
  #onEmpty: (() => void) | undefined
  #isCutOff = false

  constructor(init: ConnectionLifeInit) {
    this.#init = init
  }

  /** A member has connected. `peer` is grpc-js' text `address:port`. */
  begin(peer: string): void {
    const life: Life = { over: new AbortController(), cancelTimer: () => undefined }
    this.#lives.set(peer, life)
    const ageMs = this.#isCutOff ? CUT_OFF_AGE_MS : this.#init.ageMs
    if (this.#drainedAtMs !== undefined) this.#leaveBefore(peer, life, this.#drainedAtMs)
    else if (ageMs > 0) this.#endIn(peer, life, ageMs * (1 - JITTER + 2 * JITTER * this.#init.clock.random()))
  }

  /** The connection has closed. */
  forget(peer: string): void {
    this.#lives.get(peer)?.cancelTimer()
    this.#lives.delete(peer)
    if (this.#lives.size === 0) this.#onEmpty?.()
  }

  /** Aborted when the streams of this connection are to end; undefined: it is no member's, or has closed. */
  signalOf(peer: string): AbortSignal | undefined {
    return this.#lives.get(peer)?.over.signal
  }

  /** True: members leave now, and those that come meanwhile do not stay for long. */
  setCutOff(isCutOff: boolean): void {
    if (isCutOff && !this.#isCutOff && this.#drainedAtMs === undefined) {
      const atMs = this.#init.clock.monotonic() + LEAVE_MS
      for (const [peer, life] of this.#lives) this.#leaveBefore(peer, life, atMs)
    }
    this.#isCutOff = isCutOff
  }

  /** Ends all connections, each at a moment of its own within `ms`. Resolves when all have closed, or after `ms`. */
  async drain(ms: number): Promise<void> {
    const { clock } = this.#init
    if (ms <= 0 || this.#lives.size === 0) return
    this.#drainedAtMs = clock.monotonic() + ms
    for (const [peer, life] of this.#lives) this.#leaveBefore(peer, life, this.#drainedAtMs)
    await new Promise<void>((resolve) => {
      const cancel = clock.setTimer(ms, resolve)
      this.#onEmpty = () => {
        cancel()
        resolve()
      }
    })
  }

  #leaveBefore(peer: string, life: Life, atMs: number): void {
    const { clock } = this.#init
    this.#endIn(peer, life, Math.max(0, atMs - clock.monotonic()) * clock.random())
  }

  #endIn(peer: string, life: Life, ms: number): void {
    const { clock, drop } = this.#init
    if (life.over.signal.aborted) return
    life.cancelTimer()
    life.cancelTimer = clock.setTimer(ms, () => {
      life.over.abort()
      life.cancelTimer = clock.setTimer(CLOSE_MS, () => drop(peer))
    })
  }
}
