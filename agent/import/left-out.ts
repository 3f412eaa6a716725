/** Logs which of the broker's records are not used: each once, and a bounded number in one round. */
import { problemText } from '../../model/reasons/problem.ts'
import type { Clock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import type { Dropped } from './clusterset-view.ts'

/** Log lines about bad records in one round; a member could send any number of them. */
export const MAX_LINES = 20
/** The broker and this cluster receive each other's changes sooner than this. */
const SETTLE_MS = 10_000

export class LeftOut {
  readonly #deps: { readonly logger: Logger; readonly clock: Clock }
  /** By text: since when it is left out, monotonic, and whether that is logged. */
  #known = new Map<string, { readonly since: number; readonly isReported: boolean }>()

  constructor(deps: { readonly logger: Logger; readonly clock: Clock }) {
    this.#deps = deps
  }

  /** Takes all that is left out now. */
  report(dropped: readonly Dropped[]): void {
    const { clock, logger } = this.#deps
    const now = clock.monotonic()
    const before = this.#known
    this.#known = new Map()
    const fresh: Dropped[] = []
    for (const one of dropped) {
      const text = leftOutText(one)
      const { since, isReported } = before.get(text) ?? { since: now, isReported: false }
      const isDue = one.settles !== true || now - since >= SETTLE_MS
      if (isDue && !isReported && this.#known.get(text)?.isReported !== true) fresh.push(one)
      this.#known.set(text, { since, isReported: isReported || isDue })
    }
    for (const one of fresh.slice(0, MAX_LINES)) {
      logger.warn('left out of what the broker sent', { record: one.what, reason: one.reason, why: one.message })
    }
    if (fresh.length > MAX_LINES)
      logger.warn('more left out of what the broker sent', { reason: 'LinesOmitted', count: fresh.length - MAX_LINES })
  }
}

export function leftOutText(one: Dropped): string {
  return `${one.what}: ${problemText(one)}`
}
