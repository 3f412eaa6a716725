/** Collects what checks of a store find wrong, up to a limit. */
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { Finding } from '../../protocol/admin/admin.ts'
import type { LogView } from '../store/store.ts'

/** Findings that are kept in full. A store with more is damaged as a whole. */
const MAX_KEPT = 1000

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

  /** Number of all findings, including those that are not kept. */
  get count(): number {
    return this.#count
  }
}

/** Rows whose form is valid, and the findings about them. */
export interface CheckContext {
  readonly view: LogView
  readonly findings: Findings
}
