/**
 * One round of changes to the kernel: each step is tried even when an earlier one failed, what was done and what
 * failed is kept, and the failures are thrown together at the end.
 */
import { type Failure, errorOf, firstReasonOf } from '../../runtime/runtime.ts'
import type { LogFields, Logger } from '../../runtime/logging/logging.ts'
import type { Counter } from '../../runtime/metrics/metrics.ts'
import type { Drift } from '../kernel.ts'

export type ChangeKind =
  | 'device'
  | 'address'
  | 'peers'
  | 'neighbour'
  | 'forwarding-entry'
  | 'next-hop'
  | 'next-hop-group'
  | 'route'
  | 'rule'
  | 'nft'
  | 'sysctl'

export interface RoundDeps {
  readonly logger: Pick<Logger, 'debug' | 'info'>
  /** With the label `kind`; absent where changes are not counted. */
  readonly changes?: Counter
  /** Absent where nothing is to be kept: a node that is taken back to what it was. */
  readonly drift?: Drift
}

export class Round {
  readonly #deps: RoundDeps
  readonly #failures: Error[] = []
  #changes = 0

  constructor(deps: RoundDeps) {
    this.#deps = deps
  }

  get drift(): Drift | undefined {
    return this.#deps.drift
  }

  /** How many steps have failed. */
  get failures(): number {
    return this.#failures.length
  }

  /** What the failed steps say; undefined when none has failed. */
  get failure(): Failure | undefined {
    if (this.#failures.length === 0) return undefined
    const message = this.#failures.map((error) => error.message).join('; ')
    return { message, reason: firstReasonOf(this.#failures) ?? 'RoundFailed' }
  }

  get changes(): number {
    return this.#changes
  }

  /**
   * Does one thing; `text` says it in the tool's own words. True when it went well. `isFine` says which failures mean
   * that the kernel already is as it should be: then it went well, and nothing was changed.
   */
  async change(
    kind: ChangeKind,
    text: string,
    action: () => Promise<unknown>,
    isFine: (error: unknown) => boolean = () => false,
  ): Promise<boolean> {
    const done = await this.attempt(async () => {
      try {
        await action()
        return true
      } catch (error) {
        if (isFine(error)) return false
        throw error
      }
    })
    if (done?.value === true) this.note(kind, text)
    return done !== undefined
  }

  /** Logs a change that was made in passing. */
  note(kind: ChangeKind, text: string): void {
    this.#changes += 1
    this.#deps.changes?.inc({ kind })
    this.#deps.logger.debug('changed', { kind, text })
  }

  /** Logs something that users may want to know, and that is no failure. */
  report(message: string, fields: LogFields): void {
    this.#deps.logger.info(message, fields)
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

  /** Throws when a step failed: the one error, or an AggregateError with all of them. */
  finish(): void {
    const [first, ...others] = this.#failures
    if (first === undefined) return
    if (others.length === 0) throw first
    throw new AggregateError(this.#failures, this.failure?.message)
  }
}
