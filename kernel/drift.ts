/**
 * Tells repairs from changes of the plan. Drift remembers what a loop has applied to the kernel. If the loop later
 * finds such an item missing or different while the plan is the same, another program has changed it. Each repair is
 * counted with its reason and logged.
 */
import type { ReasonCode } from '../model/reasons/reasons.ts'
import type { Clock } from '../reconcile/reconcile.ts'
import type { Logger } from '../runtime/logging/logging.ts'
import type { Counter } from '../runtime/metrics/metrics.ts'

/** Missing: removed. Changed: present, but different. Foreign: added by another program. */
export type DriftReason = Extract<ReasonCode, 'Missing' | 'Changed' | 'Foreign'>

export interface DriftDeps {
  readonly clock: Pick<Clock, 'monotonic'>
  readonly logger: Pick<Logger, 'warn'>
  /** Has the labels `what` and `reason`. */
  readonly repairs: Counter
}

/** How many items a log line names. Each item is the command that creates it. */
const MAX_ITEMS = 8
const MAX_ITEM_LENGTH = 200
/**
 * At most this many lines are logged for each kind in LINES_MS, because another program may undo our work again and
 * again. The counter still counts every repair.
 */
const LINES = 5
const LINES_MS = 10_000

export class Drift {
  readonly #deps: DriftDeps
  readonly #known = new Map<string, Set<string>>()
  readonly #lines = new Map<string, { sinceMs: number; lines: number }>()

  constructor(deps: DriftDeps) {
    this.#deps = deps
  }

  /** Returns those of the items to create that this loop had created before. */
  had(what: string, items: readonly string[]): string[] {
    const known = this.#known.get(what)
    return known === undefined ? [] : items.filter((item) => known.has(item))
  }

  /**
   * Returns those of the items to remove that this loop never created. Returns none as long as the loop has created
   * nothing of the kind.
   */
  neverHad(what: string, items: readonly string[]): string[] {
    const known = this.#known.get(what)
    return known === undefined ? [] : items.filter((item) => !known.has(item))
  }

  /** Records what the kernel now has of the kind through this loop. */
  settle(what: string, items: Iterable<string>): void {
    this.#known.set(what, new Set(items))
  }

  /** Forgets the kinds: what is removed of them, now or later, is removed by this loop. */
  forget(...kinds: readonly string[]): void {
    for (const what of kinds) this.#known.delete(what)
  }

  /** Logs and counts a repair. Does nothing if there are no items. */
  repaired(what: string, reason: DriftReason, items: readonly string[]): void {
    if (items.length === 0) return
    this.#deps.repairs.inc({ what, reason })
    if (!this.#mayLog(what)) return
    this.#deps.logger.warn(`another program changed kernel objects of Sealane; restoring them`, {
      what,
      reason,
      count: items.length,
      items: items.slice(0, MAX_ITEMS).map((item) => item.slice(0, MAX_ITEM_LENGTH)),
    })
  }

  #mayLog(what: string): boolean {
    const nowMs = this.#deps.clock.monotonic()
    const before = this.#lines.get(what)
    if (before === undefined || nowMs - before.sinceMs >= LINES_MS) {
      this.#lines.set(what, { sinceMs: nowMs, lines: 1 })
      return true
    }
    before.lines += 1
    return before.lines <= LINES
  }
}
