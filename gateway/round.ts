/**
 * One round of changes to the kernel: each step is tried even when an earlier one failed, what was done and what
 * failed is kept, and the failures are thrown together at the end.
 */
import type { Drift } from '../kernel/drift.ts'
import type { LogFields, Logger } from '../runtime/logging/logger.ts'
import { errorOf } from '../runtime/thrown.ts'
import type { GatewayMetrics } from './metrics.ts'

export type ChangeKind = 'device' | 'address' | 'peers' | 'route' | 'rule' | 'nft' | 'sysctl'

export class Round {
  readonly #logger: Logger
  readonly #metrics: GatewayMetrics
  /** Absent where nothing is to be kept: a node that is taken back to what it was. */
  readonly drift: Drift | undefined
  readonly #failures: Error[] = []
  #changes = 0

  constructor(logger: Logger, metrics: GatewayMetrics, drift?: Drift) {
    this.#logger = logger
    this.#metrics = metrics
    this.drift = drift
  }

  /** How many steps have failed. */
  get failures(): number {
    return this.#failures.length
  }

  get changes(): number {
    return this.#changes
  }

  /** Does one thing; `text` says it in the tool's own words. True when it went well. */
  async change(kind: ChangeKind, text: string, action: () => Promise<unknown>): Promise<boolean> {
    const done = await this.attempt(action)
    if (done === undefined) return false
    this.note(kind, text)
    return true
  }

  /** Tells of a change that was made in passing. */
  note(kind: ChangeKind, text: string): void {
    this.#changes += 1
    this.#metrics.changes.inc({ kind })
    this.#logger.debug('changed', { kind, text })
  }

  /** Tells of something that users may want to know, and that is no failure. */
  tell(message: string, fields: LogFields): void {
    this.#logger.info(message, fields)
  }

  /** The result, or undefined when it failed. For steps that change nothing, or not always. */
  async attempt<T>(action: () => Promise<T>): Promise<{ readonly value: T } | undefined> {
    try {
      return { value: await action() }
    } catch (error) {
      this.#failures.push(errorOf(error))
      return undefined
    }
  }

  /** Throws when a step failed: the one error, or an AggregateError that tells all. */
  finish(): void {
    const [first, ...others] = this.#failures
    if (first === undefined) return
    if (others.length === 0) throw first
    throw new AggregateError(this.#failures, this.#failures.map((failure) => failure.message).join('; '))
  }
}
