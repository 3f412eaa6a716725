/**
 * Where a process pins what it knows about itself: readiness checks and printable plans. http-status.ts serves it as
 * /healthz, /readyz, /debug/plan and /metrics.
 */

/** Undefined when ready, else the reason in words. */
export type ReadinessCheck = () => string | undefined

export class StatusBoard {
  readonly #checks = new Map<string, ReadinessCheck>()
  readonly #plans = new Map<string, () => string>()

  readiness(name: string, check: ReadinessCheck): void {
    this.#checks.set(name, check)
  }

  /** `print` gives the plan in the tool's own language (nft, ip, wg). */
  plan(name: string, print: () => string): void {
    this.#plans.set(name, print)
  }

  /** Reasons for not being ready, `name: reason`; empty when ready. */
  notReady(): string[] {
    return [...this.#checks].flatMap(([name, check]) => {
      const reason = check()
      return reason === undefined ? [] : [`${name}: ${reason}`]
    })
  }

  plans(): ReadonlyMap<string, string> {
    return new Map([...this.#plans].map(([name, print]) => [name, print()]))
  }
}
