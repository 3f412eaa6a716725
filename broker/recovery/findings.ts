/** What a look at a store finds wrong, and how much of it is kept. */
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { LogView } from '../store/store.ts'

/** Findings that are kept in full; a store with more is damaged as a whole. */
const MAX_KEPT = 1000

export interface Finding {
  readonly reason: ReasonCode
  /** Scope and key of the row, or the file. */
  readonly subject: string
  /** For people: what is there, and what was expected. Never a secret. */
  readonly text: string
}

export class Findings {
  readonly #kept: Finding[] = []
  #count = 0

  add(reason: ReasonCode, subject: string, text: string): void {
    this.#count += 1
    if (this.#kept.length < MAX_KEPT) this.#kept.push({ reason, subject, text })
  }

  get kept(): readonly Finding[] {
    return this.#kept
  }

  /** All, also those that are not kept. */
  get count(): number {
    return this.#count
  }
}

/** Rows whose form is right, and where to say what is wrong with them. */
export interface CheckContext {
  readonly view: LogView
  readonly findings: Findings
}
