/** What every component is handed. A component's main.ts exports run<Component>(deps, config, signal). */
import type { Clock, LoopDeps } from '../reconcile/reconcile.ts'
import { messageOf } from './errors.ts'
import type { Logger } from './logging/logging.ts'
import type { Metrics } from './metrics/metrics.ts'

/** Undefined when ready, else the reason in words. */
type ReadinessCheck = () => string | undefined

/** Whether a caller gets nothing at all, by the address that its connection comes from. Must not throw. */
export type CallerCheck = (source: string) => boolean

/**
 * Where a process pins what it knows about itself: readiness checks, printable plans, and what programs may read.
 * http/http-status.ts serves it as /healthz, /readyz, /debug/plan, /status and /metrics.
 */
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

export interface ComponentDeps {
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: Metrics
  readonly status: StatusBoard
}

// What the loops of all components have in common: a failed run is logged under the loop's name, every run is counted.

export interface LoopRun {
  /** The loop's name. */
  readonly loop: string
  readonly ok: boolean
  readonly ms: number
}

interface ReportedLoop {
  readonly clock: Clock
  readonly logger: Pick<Logger, 'error'>
  /** Its name in log lines and metrics. */
  readonly loop: string
  /** Called after each run; counts it in the component's own metrics. */
  readonly count: (run: LoopRun) => void
}

/** LoopDeps of a loop that says so when a run fails. */
export function reportedLoop({ clock, logger, loop, count }: ReportedLoop): LoopDeps {
  return {
    clock,
    onError: (error) =>
      logger.error('round failed, will be tried again', { loop, reason: 'RoundFailed', why: messageOf(error) }),
    onRun: ({ ok, ms }) => count({ loop, ok, ms }),
  }
}
