/**
 * Wakes streams a slice at a time, with the rest of the world between two slices: a thousand streams that write at once
 * would keep publishers, handshakes and pings waiting for as long as they all take. A round wakes each stream once. Who
 * is to be woken meanwhile waits for the next one, which begins when as much time has passed as the last one took: what
 * changes in that time is one message for each stream, and half of the time belongs to others. The first change after a
 * pause goes out at once.
 */
import type { Clock } from '../../reconcile/clock.ts'

/** What one turn of the event loop may take. */
const TURN_MS = 5
const FEWEST = 16
const MOST = 512
/** Timers are no finer than this. */
const SHORTEST_REST_MS = 2
/** However long a round took: what has changed is to be told. */
const LONGEST_REST_MS = 100

export class WakeOrder {
  readonly #clock: Pick<Clock, 'monotonic' | 'setTimer'>
  /** Of this round, and of the next one. */
  #due = new Set<() => void>()
  #later = new Set<() => void>()
  #slice = 64
  #roundAt = 0
  #roundSize = 0
  #turnAt = 0
  #turn: NodeJS.Immediate | undefined
  #cancelRest: (() => void) | undefined

  constructor(clock: Pick<Clock, 'monotonic' | 'setTimer'>) {
    this.#clock = clock
  }

  /** Each is called once, soon; who is due already keeps its place. */
  wake(streams: Iterable<() => void>): void {
    for (const stream of streams) if (!this.#due.has(stream)) this.#later.add(stream)
    if (this.#turn === undefined && this.#cancelRest === undefined) this.#begin()
  }

  forget(stream: () => void): void {
    this.#due.delete(stream)
    this.#later.delete(stream)
  }

  close(): void {
    clearImmediate(this.#turn)
    this.#cancelRest?.()
    this.#turn = undefined
    this.#cancelRest = undefined
    this.#due.clear()
    this.#later.clear()
  }

  #begin(): void {
    if (this.#later.size === 0) return
    ;[this.#due, this.#later] = [this.#later, this.#due]
    this.#roundSize = this.#due.size
    this.#roundAt = this.#clock.monotonic()
    this.#run(this.#roundAt)
  }

  #run(now: number): void {
    this.#turnAt = now
    let left = this.#slice
    for (const stream of this.#due) {
      this.#due.delete(stream)
      stream()
      if ((left -= 1) === 0) break
    }
    this.#turn = setImmediate(() => this.#next())
  }

  #next(): void {
    const now = this.#clock.monotonic()
    // What the streams of the last slice did, and all that came between.
    this.#adapt(now - this.#turnAt)
    if (this.#due.size > 0) this.#run(now)
    else this.#over(now)
  }

  #over(now: number): void {
    this.#turn = undefined
    const restMs = Math.min(now - this.#roundAt, LONGEST_REST_MS)
    // A few are no burden to the others, whatever else has taken the time.
    if (restMs < SHORTEST_REST_MS || this.#roundSize <= FEWEST) this.#begin()
    else
      this.#cancelRest = this.#clock.setTimer(restMs, () => {
        this.#cancelRest = undefined
        this.#begin()
      })
  }

  #adapt(tookMs: number): void {
    if (tookMs > TURN_MS) this.#slice = Math.max(FEWEST, this.#slice >> 1)
    else if (tookMs < TURN_MS / 2) this.#slice = Math.min(MOST, this.#slice + FEWEST)
  }
}
