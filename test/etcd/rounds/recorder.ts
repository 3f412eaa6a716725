/** Takes down what happens, with the time of it. */
import type { AnyCall, History, Observation, Outcome, QuietLook } from './checker/history.ts'

type Changed<T> = { -readonly [K in keyof T]: T[K] }
/** What is known of a call before its answer comes. */
type Begun = AnyCall extends infer C ? (C extends AnyCall ? Omit<C, 'start' | 'end' | 'outcome'> : never) : never

export class Recorder implements History {
  readonly calls: AnyCall[] = []
  readonly observations: Observation[] = []
  readonly looks: QuietLook[] = []
  readonly #startMs = performance.now()
  #last = 0

  /** Never the same twice, so that what comes later is known to be later. */
  now(): number {
    this.#last = Math.max(this.#last + 0.0001, performance.now() - this.#startMs)
    return this.#last
  }

  /** The call counts as one of unknown outcome until its answer is told. */
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

/** Told again, the later answer counts: one that waited no longer may hear it after all. */
export type Answered = (outcome: Outcome, more?: Partial<JoinAnswer>) => void

interface JoinAnswer {
  readonly token: string
  readonly index: number
  readonly blocks: readonly string[]
}

/** How many ended how, by kind and outcome. */
export function countCalls(calls: readonly AnyCall[]): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const { t, outcome } of calls) counts[`${t} ${outcome}`] = (counts[`${t} ${outcome}`] ?? 0) + 1
  return counts
}
