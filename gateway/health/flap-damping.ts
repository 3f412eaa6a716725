/**
 * Holds links that flap out of use, because each time they came up traffic would move to them and be lost again. Each
 * time a link goes down adds a penalty, which decays, and a link with too high a penalty is held for a time that
 * doubles with each further time. This is route flap damping (RFC 2439) with values for links that are probed several
 * times a second. A held link is still used if it is the only path: carryingLinks().
 */
import type { Clock } from '../../reconcile/reconcile.ts'

/** The penalty of a link decays by half in this time. */
export const HALF_LIFE_MS = 60_000
/** Penalty up to which a link is not held: three times in quick succession. */
export const FREE_PENALTY = 3
/** Hold time at that penalty; it doubles for each further time. */
export const FIRST_HOLD_MS = 10_000
export const MAX_HOLD_MS = 300_000
/** A higher penalty would not hold a link longer, but would decay later. */
export const MAX_PENALTY = FREE_PENALTY + Math.log2(MAX_HOLD_MS / FIRST_HOLD_MS)

/** Times are milliseconds of the monotonic clock. */
export interface FlapRecord {
  /** The penalty at `atMs`. Each time the link went down added 1. */
  readonly penalty: number
  readonly atMs: number
  /** The link is held out of use until then. */
  readonly heldUntilMs: number
}

export function penaltyAt({ penalty, atMs }: Pick<FlapRecord, 'penalty' | 'atMs'>, nowMs: number): number {
  return penalty * 0.5 ** (Math.max(0, nowMs - atMs) / HALF_LIFE_MS)
}

/** The record of a link that has just gone down. */
export function afterDown(before: FlapRecord | undefined, nowMs: number): FlapRecord {
  const penalty = Math.min(MAX_PENALTY, (before === undefined ? 0 : penaltyAt(before, nowMs)) + 1)
  const over = penalty - FREE_PENALTY
  const holdMs = over <= 0 ? 0 : Math.min(MAX_HOLD_MS, FIRST_HOLD_MS * 2 ** over)
  return { penalty, atMs: nowMs, heldUntilMs: Math.max(before?.heldUntilMs ?? -Infinity, nowMs + holdMs) }
}

export interface FlapDampingDeps {
  readonly clock: Clock
  /** Called when a hold ends. */
  readonly onRelease: (key: string) => void
}

interface Hold {
  /** End of the hold in milliseconds since 1970. */
  readonly until: number
  readonly cancel: () => void
}

export class FlapDamping {
  readonly #deps: FlapDampingDeps
  readonly #records = new Map<string, FlapRecord>()
  readonly #holds = new Map<string, Hold>()

  constructor(deps: FlapDampingDeps) {
    this.#deps = deps
  }

  /** True if the link is held out of use from now on and was not before. */
  onDown(key: string): boolean {
    const { clock } = this.#deps
    const nowMs = clock.monotonic()
    const record = afterDown(this.#records.get(key), nowMs)
    this.#records.set(key, record)
    if (record.heldUntilMs <= nowMs) return false
    const before = this.#holds.get(key)
    before?.cancel()
    const holdMs = record.heldUntilMs - nowMs
    const cancel = clock.setTimer(holdMs, () => {
      this.#holds.delete(key)
      this.#deps.onRelease(key)
    })
    this.#holds.set(key, { until: clock.now() + holdMs, cancel })
    return before === undefined
  }

  /** Until when the link is held out of use, in milliseconds since 1970. Undefined if it is not. */
  heldUntil(key: string): number | undefined {
    return this.#holds.get(key)?.until
  }

  /** Removes the records of all other links. */
  keep(keys: ReadonlySet<string>): void {
    for (const key of this.#records.keys()) {
      if (keys.has(key)) continue
      this.#records.delete(key)
      this.#holds.get(key)?.cancel()
      this.#holds.delete(key)
    }
  }

  close(): void {
    this.keep(new Set())
  }
}
