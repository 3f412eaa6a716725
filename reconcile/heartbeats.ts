/**
 * Which of several heartbeats have stopped, for a process that only watches. Clocks of two machines are never compared:
 * a heartbeat is a text that changes, and what counts is when this process saw it change.
 *
 * A process that sees nothing knows nothing. So time counts against a heartbeat only while the view is known to be
 * live: a heartbeat moved, or the store was asked and answered. When proof of that is missing for longer than `gapMs`,
 * counting begins anew with the next one, and those who write get the whole time again. What has stopped stays so until
 * it moves.
 */
import type { Clock } from './clock.ts'

export interface HeartbeatsInit {
  /** A live view for so long, and no move: it has stopped. */
  readonly staleMs: number
  /** Without a move for so long, the view is to be proved. */
  readonly doubtMs: number
  /** Proofs that are further apart say nothing about the time between them. Longer than the pause between proofs. */
  readonly gapMs: number
}

interface Beat {
  readonly text: string
  /** Monotonic. */
  readonly movedMs: number
  stopped: boolean
}

export class Heartbeats {
  readonly #clock: Clock
  readonly #init: HeartbeatsInit
  readonly #beats = new Map<string, Beat>()
  /** The view was live from here, */
  #liveSinceMs = 0
  /** to here; monotonic. */
  #liveAtMs = -Infinity

  constructor(deps: { readonly clock: Clock }, init: HeartbeatsInit) {
    this.#clock = deps.clock
    this.#init = init
  }

  /**
   * The heartbeat that `name` shows now. One that shows none is never taken as stopped. A move proves the view. True
   * where it is another one than before; the first is none.
   */
  saw(name: string, text: string | undefined): boolean {
    if (text === undefined) {
      this.#beats.delete(name)
      return false
    }
    const before = this.#beats.get(name)?.text
    if (before === text) return false
    this.#beats.set(name, { text, movedMs: this.#clock.monotonic(), stopped: false })
    this.viewIsLive()
    return before !== undefined
  }

  /** There is no such thing any more. */
  forget(name: string): void {
    this.#beats.delete(name)
  }

  /** The store was asked just now, and saw() has been called with what it said. */
  viewIsLive(): void {
    const now = this.#clock.monotonic()
    if (now - this.#liveAtMs > this.#init.gapMs) this.#liveSinceMs = now
    this.#liveAtMs = now
    for (const beat of this.#beats.values()) {
      beat.stopped ||= now - Math.max(beat.movedMs, this.#liveSinceMs) >= this.#init.staleMs
    }
  }

  hasStopped(name: string): boolean {
    return this.#beats.get(name)?.stopped ?? false
  }

  /** Those that have stopped, sorted. */
  stopped(): readonly string[] {
    return this.#names(({ stopped }) => stopped)
  }

  /** Those that are late and not yet known to have stopped, sorted: to be asked for. */
  doubtful(): readonly string[] {
    const now = this.#clock.monotonic()
    return this.#names(({ stopped, movedMs }) => !stopped && now - movedMs >= this.#init.doubtMs)
  }

  #names(chosen: (beat: Beat) => boolean): readonly string[] {
    return [...this.#beats].flatMap(([name, beat]) => (chosen(beat) ? [name] : [])).sort()
  }
}
