/**
 * Distinguishes repairs from changes of the plan. What a loop has brought into the kernel it remembers here; what it
 * then finds missing or different, while it wants the same as before, somebody else has changed. Each repair is counted
 * with its reason and logged.
 */
import type { ReasonCode } from '../model/reasons/reasons.ts'
import type { Clock } from '../reconcile/reconcile.ts'
import type { Logger } from '../runtime/logging/logging.ts'
import type { Counter } from '../runtime/metrics/metrics.ts'

/** Missing: taken away. Changed: there, but not as it was. Foreign: put there by somebody else. */
export type DriftReason = Extract<ReasonCode, 'Missing' | 'Changed' | 'Foreign'>

export interface DriftDeps {
  readonly clock: Pick<Clock, 'monotonic'>
  readonly logger: Pick<Logger, 'warn'>
  /** With the labels `what` and `reason`. */
  readonly repairs: Counter
}

/** As many items as a line of the log has room for; each as the command that makes it. */
const MAX_ITEMS = 8
const MAX_ITEM_LENGTH = 200
/** Where somebody fights for what is ours, each kind has so many lines in that time; the rest is counted. */
const LINES = 5
const LINES_MS = 10_000

export class Drift {
  readonly #deps: DriftDeps
  readonly #known = new Map<string, Set<string>>()
  readonly #lines = new Map<string, { sinceMs: number; lines: number }>()

  constructor(deps: DriftDeps) {
    this.#deps = deps
  }

  /** Of items that have to be made: those that this loop had made before. */
  had(what: string, items: readonly string[]): string[] {
    const known = this.#known.get(what)
    return known === undefined ? [] : items.filter((item) => known.has(item))
  }

  /** Of items that nobody wants: those that this loop never made. None, before it has made anything of the kind. */
  neverHad(what: string, items: readonly string[]): string[] {
    const known = this.#known.get(what)
    return known === undefined ? [] : items.filter((item) => !known.has(item))
  }

  /** This is what the kernel has now of the kind, by this loop. */
  settle(what: string, items: Iterable<string>): void {
    this.#known.set(what, new Set(items))
  }

  /** What went of this kind, and will go, is our own doing. */
  forget(...kinds: readonly string[]): void {
    for (const what of kinds) this.#known.delete(what)
  }

  /** Logs a repair; nothing where there are no items. */
  repaired(what: string, reason: DriftReason, items: readonly string[]): void {
    if (items.length === 0) return
    this.#deps.repairs.inc({ what, reason })
    if (!this.#mayLog(what)) return
    this.#deps.logger.warn(`someone changed what is ours in this kernel; putting it right`, {
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

/**
 * What differs between two listings of a table (`nft list table`), in words: the chains, sets and maps that are
 * missing, that read differently, and that are new.
 */
export function tableDrift(before: string, now: string | undefined): { reason: DriftReason; items: string[] } {
  if (now === undefined) return { reason: 'Missing', items: ['the whole table'] }
  const [had, has] = [blocksOf(before), blocksOf(now)]
  const missing = [...had.keys()].filter((name) => !has.has(name))
  const changed = [...had].filter(([name, text]) => has.has(name) && has.get(name) !== text).map(([name]) => name)
  const foreign = [...has.keys()].filter((name) => !had.has(name))
  if (missing.length > 0) return { reason: 'Missing', items: missing }
  if (changed.length > 0) return { reason: 'Changed', items: changed }
  return { reason: 'Foreign', items: foreign.length > 0 ? foreign : ['the table'] }
}

/** Text of each chain, set, map and counter, by its kind and name. */
function blocksOf(listing: string): Map<string, string> {
  const found = new Map<string, string>()
  let name = ''
  for (const line of listing.split('\n')) {
    const head = /^\t(?:(chain|set|map|counter) (\S+)) \{/.exec(line)
    if (head !== null) name = `${head[1] ?? ''} ${head[2] ?? ''}`
    if (name !== '') found.set(name, `${found.get(name) ?? ''}${line}\n`)
    if (line === '\t}') name = ''
  }
  return found
}
