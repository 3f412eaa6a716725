/**
 * Knocks at one far kernel that wait for an answer. Each has its own time, whatever is knocked meanwhile: the way there
 * and back may take longer than the pause between two of them.
 */
import type { ProbeFigures } from './probe-stats.ts'

/** A knock that got no answer for so long gets none. */
export const KNOCK_LIFE_MS = 2000

interface Waiting {
  readonly sinceMs: number
  readonly stop: () => void
}

export class Knocks {
  /** Oldest first. They end by KNOCK_LIFE_MS, so there are never more than knocks in that time. */
  #waiting: readonly Waiting[] = []
  /** When this silence was knocked at first. */
  #firstMs: number | undefined

  /** How many wait. */
  get size(): number {
    return this.#waiting.length
  }

  add(nowMs: number, stop: (() => void) | undefined): void {
    this.#firstMs ??= nowMs
    if (stop !== undefined) this.#waiting = [...this.#waiting, { sinceMs: nowMs, stop }]
  }

  /** Ends those that have waited long enough. */
  expire(nowMs: number): void {
    const late = this.#waiting.filter(({ sinceMs }) => nowMs - sinceMs >= KNOCK_LIFE_MS)
    if (late.length === 0) return
    for (const { stop } of late) stop()
    this.#waiting = this.#waiting.filter((one) => !late.includes(one))
  }

  /** The far end has sent something: the next knock is the first of another silence. */
  silenceEnds(): void {
    this.#firstMs = undefined
  }

  /** Whether the first knock of this silence may still be on its way, by what is known of the way. */
  mayYetAnswer(nowMs: number, figures: ProbeFigures): boolean {
    return this.#firstMs !== undefined && nowMs - this.#firstMs < patienceMs(figures)
  }

  stop(): void {
    for (const { stop } of this.#waiting) stop()
    this.#waiting = []
    this.#firstMs = undefined
  }
}

/**
 * Half as much again as the way there and back takes, for it varies. Where that is not known: all of a knock's life.
 */
function patienceMs({ rttMs, jitterMs = 0 }: ProbeFigures): number {
  return rttMs === undefined ? KNOCK_LIFE_MS : Math.min(KNOCK_LIFE_MS, 1.5 * rttMs + 4 * jitterMs)
}
