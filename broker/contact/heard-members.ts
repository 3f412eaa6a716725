/** When each member was last connected, by the monotonic clock: the time that this broker was away does not count. */
import type { ClusterId } from '../../model/ids.ts'
import type { Clock } from '../../reconcile/clock.ts'

export interface SilentMember {
  readonly cluster: ClusterId
  /** Whole milliseconds. */
  readonly forMs: number
}

export class HeardMembers {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #startedAt: number
  readonly #heard = new Map<string, number>()

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock
    this.#startedAt = clock.monotonic()
  }

  note(cluster: string): void {
    this.#heard.set(cluster, this.#clock.monotonic())
  }

  /**
   * Which of `live` are not connected, and for how long. Those that are connected count as of now; all others are
   * forgotten.
   */
  silent(live: readonly ClusterId[], isConnected: (cluster: ClusterId) => boolean): readonly SilentMember[] {
    const now = this.#clock.monotonic()
    const members = new Set<string>(live)
    for (const cluster of this.#heard.keys()) if (!members.has(cluster)) this.#heard.delete(cluster)
    for (const cluster of live) if (isConnected(cluster)) this.#heard.set(cluster, now)
    return live
      .filter((cluster) => !isConnected(cluster))
      .map((cluster) => ({ cluster, forMs: Math.floor(now - (this.#heard.get(cluster) ?? this.#startedAt)) }))
  }
}
