/**
 * One round of changes to the kernel. Each step is tried even if an earlier one failed. The round collects changes and
 * failures, and throws all failures together at the end.
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
  | 'forward-policy'
  | 'nft'
  | 'sysctl'

export interface RoundDeps {
  readonly logger: Pick<Logger, 'debug' | 'info'>
  /** Has the label `kind`. If absent, changes are not counted. */
  readonly changes?: Counter
  /** Absent if nothing has to be kept in place, as when a node is restored to its former state. */
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

  /** Number of failed steps. */
  get failures(): number {
    return this.#failures.length
  }

  /** Describes the failed steps. Undefined if none has failed. */
  get failure(): Failure | undefined {
    if (this.#failures.length === 0) return undefined
    const message = this.#failures.map((error) => error.message).join('; ')
    return { message, reason: firstReasonOf(this.#failures) ?? 'RoundFailed' }
  }

  get changes(): number {
    return this.#changes
  }

  /**
   * Makes one change, which `text` describes as a command line. Returns true on success. If `isFine` accepts the error,
   * the kernel already has the desired state: this is a success, and no change is counted.
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

  /** Counts and logs a change that was made elsewhere. */
  note(kind: ChangeKind, text: string): void {
    this.#changes += 1
    this.#deps.changes?.inc({ kind })
    this.#deps.logger.debug('changed', { kind, text })
  }

  /** Logs information for users that is not a failure. */
  report(message: string, fields: LogFields): void {
    this.#deps.logger.info(message, fields)
  }

  /** Returns the result, or undefined if the action failed. For steps that change nothing, or not always. */
  async attempt<T>(action: () => Promise<T>): Promise<{ readonly value: T } | undefined> {
    try {
      return { value: await action() }
    } catch (error) {
      this.#failures.push(errorOf(error))
      return undefined
    }
  }

  /** Throws if a step failed: the single error, or an AggregateError with all of them. */
  finish(): void {
    const [first, ...others] = this.#failures
    if (first === undefined) return
    if (others.length === 0) throw first
    throw new AggregateError(this.#failures, this.failure?.message)
  }
}
