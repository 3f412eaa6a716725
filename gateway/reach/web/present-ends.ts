/**
 * Which far ends count as present at a relay on port 443: those of which its connection says so, and for some time those
 * of the connection before, because far ends come back each at its own time. One that another relay has now is not
 * waited for here.
 */
import type { Clock } from '../../../reconcile/reconcile.ts'

interface PresentEndsInit {
  readonly clock: Clock
  /** Whether a link of this gateway needs the end. */
  readonly isWanted: (name: string) => boolean
  /** Whether another relay has the end now. */
  readonly isElsewhere: (name: string) => boolean
  readonly onChange: () => void
}

/** Names are those of endName(). */
export class PresentEnds {
  readonly #init: PresentEndsInit
  /** Since when each is present, in milliseconds of the monotonic clock. */
  #present: ReadonlyMap<string, number> = new Map()
  /** The ends of which the present connection has said that they are there. */
  #heard: readonly string[] = []
  /** Those of an earlier connection, which count until lostUntilMs too. */
  #lost: readonly string[] = []
  #cancelLost: (() => void) | undefined
  #lostUntilMs = 0

  constructor(init: PresentEndsInit) {
    this.#init = init
  }

  /** Those that are present. */
  get names(): readonly string[] {
    return [...this.#present.keys()]
  }

  /** Until when those of an earlier connection count, on the monotonic clock. */
  get lostUntilMs(): number {
    return this.#lostUntilMs
  }

  /** Since when the end is present, on the monotonic clock. Undefined: it is not. */
  sinceMs(name: string): number | undefined {
    return this.#present.get(name)
  }

  /** Whether the present connection has said that the end is there. */
  hears(name: string): boolean {
    return this.#heard.includes(name)
  }

  /** The present connection has said that any end is there. */
  get hearsAny(): boolean {
    return this.#heard.length > 0
  }

  /** Takes all ends of which the connection says that they are there. */
  take(ends: readonly string[]): void {
    this.#heard = ends
    this.count()
  }

  /** Looks again which ends are wanted. */
  count(): void {
    const nowMs = this.#init.clock.monotonic()
    const known = [...this.#lost, ...this.#heard].filter((end) => this.#init.isWanted(end))
    const present = new Map(known.map((end) => [end, this.#present.get(end) ?? nowMs]))
    if (present.size === this.#present.size && [...present.keys()].every((end) => this.#present.has(end))) return
    this.#present = present
    this.#init.onChange()
  }

  /** Links go on at once by another relay that has their far ends too. The others wait for this one. */
  lose(forMs: number): void {
    this.#heard = []
    this.keep(this.names, this.#init.clock.monotonic() + forMs)
  }

  /** Counts these as present until then, unless another relay hears of them. */
  keep(names: readonly string[], untilMs: number): void {
    const { clock } = this.#init
    if (untilMs > this.#lostUntilMs) {
      this.#lostUntilMs = untilMs
      this.#cancelLost?.()
      this.#cancelLost = clock.setTimer(untilMs - clock.monotonic(), () => {
        this.#cancelLost = undefined
        this.#lost = []
        this.count()
      })
    }
    this.#lost = [...new Set([...this.#lost, ...names])]
    this.forgetFound()
  }

  /** Those that another relay hears of have not to come again here. */
  forgetFound(): void {
    this.#lost = this.#lost.filter((name) => !this.#init.isElsewhere(name))
    this.count()
  }

  forget(): void {
    this.#cancelLost?.()
    this.#cancelLost = undefined
    this.#lostUntilMs = 0
    this.#lost = []
    this.#heard = []
    this.count()
  }
}
