/**
 * Links that go down again and again. Each time they are back traffic would follow, only to be lost again. So each time
 * counts, what counted fades, and a link with too much of it is held out of use for a time that doubles with each
 * further time. The idea is that of route flap damping (RFC 2439), with figures for links that are probed several times
 * a second. What is held out and the only way is used all the same: carryingLinks().
 */
import type { Clock } from '../../reconcile/reconcile.ts'

/** What counted of a link fades by half in this time. */
export const HALF_LIFE_MS = 60_000
/** What a link may have without being held: three times in quick succession. */
export const FREE_PENALTY = 3
/** Above that, the first time doubled for each time more. */
export const FIRST_HOLD_MS = 10_000
export const MAX_HOLD_MS = 300_000
/** More would not be held longer, and would fade later. */
export const MAX_PENALTY = FREE_PENALTY + Math.log2(MAX_HOLD_MS / FIRST_HOLD_MS)

/** Milliseconds of the monotonic clock. */
export interface FlapRecord {
  /** One for each time that the link went down, at `atMs`. */
  readonly penalty: number
  readonly atMs: number
  /** Held out of use until then. */
  readonly heldUntilMs: number
}

export function penaltyAt({ penalty, atMs }: Pick<FlapRecord, 'penalty' | 'atMs'>, nowMs: number): number {
  return penalty * 0.5 ** (Math.max(0, nowMs - atMs) / HALF_LIFE_MS)
}

/** What is known of a link that has just gone down. */
export function afterDown(before: FlapRecord | undefined, nowMs: number): FlapRecord {
  const penalty = Math.min(MAX_PENALTY, (before === undefined ? 0 : penaltyAt(before, nowMs)) + 1)
  const over = penalty - FREE_PENALTY
  const holdMs = over <= 0 ? 0 : Math.min(MAX_HOLD_MS, FIRST_HOLD_MS * 2 ** over)
  return { penalty, atMs: nowMs, heldUntilMs: Math.max(before?.heldUntilMs ?? -Infinity, nowMs + holdMs) }
}

export interface FlapDampingDeps {
  readonly clock: Clock
  /** A hold is over. */
  readonly onRelease: (key: string) => void
}

interface Hold {
  /** Milliseconds since 1970. */
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

  /** True when the link is held out of use from now on, and was not before. */
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

  /** Until when it is held out of use, in milliseconds since 1970; undefined: it is not. */
  heldUntil(key: string): number | undefined {
    return this.#holds.get(key)?.until
  }

  /** Forgets all other links. */
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
