/** What every component receives. A component's main.ts exports run<Component>(deps, config, signal). */
import type { Clock, LoopDeps } from '../reconcile/reconcile.ts'
import { messageOf } from './errors.ts'
import type { Logger } from './logging/logging.ts'
import type { Metrics } from './metrics/metrics.ts'

/** Returns undefined if ready, else the reason in words. */
type ReadinessCheck = () => string | undefined

/** Whether a caller gets no answer at all, decided by the source address of its connection. Must not throw. */
export type CallerCheck = (source: string) => boolean

/**
 * Collects what a process publishes about itself: readiness checks, printable plans, and fields for programs.
 * runtime/http/http-status.ts serves it as /healthz, /readyz, /debug/plan, /status and /metrics.
 */
export class StatusBoard {
  readonly #checks = new Map<string, ReadinessCheck>()
  readonly #plans = new Map<string, () => string>()
  readonly #reports = new Map<string, () => unknown>()
  readonly #details = new Map<string, () => unknown>()
  readonly #turnedAway: CallerCheck[] = []

  readiness(name: string, check: ReadinessCheck): void {
    this.#checks.set(name, check)
  }

  /** `print` returns the plan in the language of the tool (nft, ip, wg). */
  plan(name: string, print: () => string): void {
    this.#plans.set(name, print)
  }

  /**
   * Adds a field of /status as a JSON value; undefined omits it. Every client that reaches the port can read it, even
   * from other clusters, so it must not contain names of clusters, addresses or keys.
   */
  report(field: string, value: () => unknown): void {
    this.#reports.set(field, value)
  }

  /** Adds a JSON value at /debug/NAME, which only callers on this machine may read. */
  detail(name: string, value: () => unknown): void {
    this.#details.set(name, value)
  }

  /** The detail of this name; undefined if there is none. */
  detailOf(name: string): (() => unknown) | undefined {
    return this.#details.get(name)
  }

  /** Adds a check: callers for which it is true get no answer. */
  turnAway(check: CallerCheck): void {
    this.#turnedAway.push(check)
  }

  /** Whether a caller from this address gets no answer. */
  turnsAway(source: string): boolean {
    return this.#turnedAway.some((check) => check(source))
  }

  /** Returns the reasons for not being ready, `name: reason`; empty if ready. */
  notReady(): string[] {
    return [...this.#checks].flatMap(([name, check]) => {
      const reason = check()
      return reason === undefined ? [] : [`${name}: ${reason}`]
    })
  }

  /** Returns all fields that have a value, and whether the process is ready. */
  reports(): Readonly<Record<string, unknown>> {
    const said = [...this.#reports].map(([field, value]) => [field, value()] as const)
    const fields = Object.fromEntries(said.filter(([, value]) => value !== undefined))
    return { ...fields, ready: this.notReady().length === 0 }
  }

  plans(): ReadonlyMap<string, string> {
    return new Map([...this.#plans].map(([name, print]) => [name, print()]))
  }
}

export interface ComponentDeps {
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: Metrics
  readonly status: StatusBoard
}

// Common behaviour of all component loops: a failed run is logged with the loop's name, and every run is counted.

export interface LoopRun {
  readonly loop: string
  readonly ok: boolean
  readonly ms: number
}

interface ReportedLoop {
  readonly clock: Clock
  readonly logger: Pick<Logger, 'error'>
  /** The loop's name in log lines and metrics. */
  readonly loop: string
  /** Called after each run; counts it in the component's own metrics. */
  readonly count: (run: LoopRun) => void
}

/** Returns LoopDeps that log failed runs. */
export function reportedLoop({ clock, logger, loop, count }: ReportedLoop): LoopDeps {
  return {
    clock,
    onError: (error) =>
      logger.error('a round failed; retrying', { loop, reason: 'RoundFailed', why: messageOf(error) }),
    onRun: ({ ok, ms }) => count({ loop, ok, ms }),
  }
}
