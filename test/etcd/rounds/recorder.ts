/** Records the calls and observations of a run, each with its time. */
import type { AnyCall, History, Observation, Outcome, QuietLook } from './checker/history.ts'

type Changed<T> = { -readonly [K in keyof T]: T[K] }
/** The fields of a call that are known before its answer comes. */
type Begun = AnyCall extends infer C ? (C extends AnyCall ? Omit<C, 'start' | 'end' | 'outcome'> : never) : never

export class Recorder implements History {
  readonly calls: AnyCall[] = []
  readonly observations: Observation[] = []
  readonly looks: QuietLook[] = []
  readonly #startMs = performance.now()
  #last = 0

  /** Returns the time. It never returns the same value twice, so that the order of events is certain. */
  now(): number {
    this.#last = Math.max(this.#last + 0.0001, performance.now() - this.#startMs)
    return this.#last
  }

  /** Records the start of a call. Its outcome is unknown until the returned function reports the answer. */
  begin(call: Begun): Answered {
    const open = { ...call, start: this.now(), end: Infinity, outcome: 'unknown' } as Changed<AnyCall>
    this.calls.push(open)
    return (outcome, more = {}) => Object.assign(open, more, { outcome, end: this.now() })
  }

  observe(what: Omit<Observation, 'at'>): void {
    this.observations.push({ ...what, at: this.now() })
  }

  look(what: Omit<QuietLook, 'at'>): void {
    this.looks.push({ ...what, at: this.now() })
  }
}

/**
 * Reports the answer to a call. A later report replaces an earlier one, because an answer may still arrive after the
 * caller stopped waiting.
 */
export type Answered = (outcome: Outcome, more?: Partial<JoinAnswer>) => void

interface JoinAnswer {
  readonly token: string
  readonly index: number
  readonly blocks: readonly string[]
}

export function countCalls(calls: readonly AnyCall[]): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const { t, outcome } of calls) counts[`${t} ${outcome}`] = (counts[`${t} ${outcome}`] ?? 0) + 1
  return counts
}
