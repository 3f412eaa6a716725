/**
 * Where a process pins what it knows about itself: readiness checks, printable plans, and what programs may read.
 * http/http-status.ts serves it as /healthz, /readyz, /debug/plan, /status and /metrics.
 */

/** Undefined when ready, else the reason in words. */
export type ReadinessCheck = () => string | undefined

/** Whether a caller gets nothing at all, by the address that its connection comes from. Must not throw. */
export type CallerCheck = (source: string) => boolean

export class StatusBoard {
  readonly #checks = new Map<string, ReadinessCheck>()
  readonly #plans = new Map<string, () => string>()
  readonly #reports = new Map<string, () => unknown>()
  readonly #turnedAway: CallerCheck[] = []

  readiness(name: string, check: ReadinessCheck): void {
    this.#checks.set(name, check)
  }

  /** `print` gives the plan in the tool's own language (nft, ip, wg). */
  plan(name: string, print: () => string): void {
    this.#plans.set(name, print)
  }

  /**
   * A field of /status, as JSON has it; undefined: nothing to say now. Whoever reaches the port reads it, from elsewhere
   * too: no names of clusters, no addresses, no keys.
   */
  report(field: string, value: () => unknown): void {
    this.#reports.set(field, value)
  }

  /** From now on whoever this says yes to gets no answer. */
  turnAway(check: CallerCheck): void {
    this.#turnedAway.push(check)
  }

  /** Whether a caller from this address gets no answer. */
  turnsAway(source: string): boolean {
    return this.#turnedAway.some((check) => check(source))
  }

  /** Reasons for not being ready, `name: reason`; empty when ready. */
  notReady(): string[] {
    return [...this.#checks].flatMap(([name, check]) => {
      const reason = check()
      return reason === undefined ? [] : [`${name}: ${reason}`]
    })
  }

  /** All fields that have something to say, and whether the process is ready. */
  reports(): Readonly<Record<string, unknown>> {
    const said = [...this.#reports].map(([field, value]) => [field, value()] as const)
    const fields = Object.fromEntries(said.filter(([, value]) => value !== undefined))
    return { ...fields, ready: this.notReady().length === 0 }
  }

  plans(): ReadonlyMap<string, string> {
    return new Map([...this.#plans].map(([name, print]) => [name, print()]))
  }
}
