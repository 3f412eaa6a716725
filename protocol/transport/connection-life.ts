/**
 * Limits the age of member connections. Streams last for weeks, so without a limit the members that moved away from a
 * restarting replica would never return to it. Each connection has a random age limit, so that at any time a few
 * members reconnect, possibly to another replica. A replica that stops or is cut off from its store sends its members
 * away one by one.
 */
import type { Clock } from '../../reconcile/reconcile.ts'

/** Largest deviation of an age limit from the mean, as a fraction of the mean. */
const JITTER = 0.5
/** Time between the end of a connection's streams and its close by the broker, unless the member closes it first. */
const CLOSE_MS = 10_000
/** Time within which members leave a replica that is cut off. */
const LEAVE_MS = 5000
/**
 * Mean age limit at a replica that is cut off. It is long enough that members do not circle if all replicas are cut
 * off.
 */
const CUT_OFF_AGE_MS = 60_000

export interface ConnectionLifeInit {
  readonly clock: Clock
  /** Mean age limit; 0 for none. */
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
  /** Monotonic time at which the last connection must end while the server drains. */
  #drainedAtMs: number | undefined
  #onEmpty: (() => void) | undefined
  #isCutOff = false

  constructor(init: ConnectionLifeInit) {
    this.#init = init
  }

  /** Called when a member has connected. `peer` is the peer text of grpc-js, `address:port`. */
  begin(peer: string): void {
    const life: Life = { over: new AbortController(), cancelTimer: () => undefined }
    this.#lives.set(peer, life)
    const ageMs = this.#isCutOff ? CUT_OFF_AGE_MS : this.#init.ageMs
    if (this.#drainedAtMs !== undefined) this.#leaveBefore(peer, life, this.#drainedAtMs)
    else if (ageMs > 0) this.#endIn(peer, life, ageMs * (1 - JITTER + 2 * JITTER * this.#init.clock.random()))
  }

  /** Called when the connection has closed. */
  forget(peer: string): void {
    this.#lives.get(peer)?.cancelTimer()
    this.#lives.delete(peer)
    if (this.#lives.size === 0) this.#onEmpty?.()
  }

  /**
   * Signal that aborts when the streams of this connection must end. Undefined if no member has this connection open.
   */
  signalOf(peer: string): AbortSignal | undefined {
    return this.#lives.get(peer)?.over.signal
  }

  /** If true, current members leave now and members that connect later stay only briefly. */
  setCutOff(isCutOff: boolean): void {
    if (isCutOff && !this.#isCutOff && this.#drainedAtMs === undefined) {
      const atMs = this.#init.clock.monotonic() + LEAVE_MS
      for (const [peer, life] of this.#lives) this.#leaveBefore(peer, life, atMs)
    }
    this.#isCutOff = isCutOff
  }

  /** Ends all connections at random times within `ms`. Resolves when all have closed, or after `ms`. */
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
