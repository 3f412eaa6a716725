/**
 * Wakes streams a slice at a time, with the rest of the world between two slices: a thousand streams that write at once
 * would keep publishers, handshakes and pings waiting for as long as they all take.
 */
import type { Clock } from '../../reconcile/clock.ts'

/** What one turn of the event loop may take. */
const TURN_MS = 5
const FEWEST = 16
const MOST = 512

export class WakeOrder {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #due = new Set<() => void>()
  #slice = 64
  #begunAt = 0
  #scheduled: NodeJS.Immediate | undefined

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock
  }

  /** Each is called once, soon; who is due already keeps its place. */
  wake(streams: Iterable<() => void>): void {
    for (const stream of streams) this.#due.add(stream)
    if (this.#scheduled === undefined) this.#run()
  }

  forget(stream: () => void): void {
    this.#due.delete(stream)
  }

  close(): void {
    clearImmediate(this.#scheduled)
    this.#scheduled = undefined
    this.#due.clear()
  }

  #run(): void {
    const now = this.#clock.monotonic()
    // What the streams of the last slice did, and all that came between.
    if (this.#scheduled !== undefined) this.#adapt(now - this.#begunAt)
    this.#begunAt = now
    let left = this.#slice
    for (const stream of this.#due) {
      this.#due.delete(stream)
      stream()
      if ((left -= 1) === 0) break
    }
    this.#scheduled = this.#due.size === 0 ? undefined : setImmediate(() => this.#run())
  }

  #adapt(tookMs: number): void {
    if (tookMs > TURN_MS) this.#slice = Math.max(FEWEST, this.#slice >> 1)
    else if (tookMs < TURN_MS / 2) this.#slice = Math.min(MOST, this.#slice + FEWEST)
  }
}
