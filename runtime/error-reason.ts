/** The stable name of what went wrong (model/reasons/). */
import { type ReasonCode, knownReason, reasonRow } from '../model/reasons/reasons.ts'

/** Errors are wrapped a few times at most. */
const MOST_CAUSES = 8

/** What keeps a part from its work, as its status has it. */
export interface Failure {
  readonly message: string
  readonly reason: ReasonCode
}

/** Of the error, or of the first of its causes, or of those that it gathers, that has a name; undefined: none has. */
export function reasonOf(error: unknown): ReasonCode | undefined {
  let one = error
  for (let i = 0; i < MOST_CAUSES && one instanceof Error; i += 1) {
    const code = 'reason' in one && typeof one.reason === 'string' ? knownReason(one.reason) : undefined
    if (code !== undefined) return code
    if (one instanceof AggregateError) return firstReasonOf(one.errors)
    one = one.cause
  }
  return undefined
}

/** Of the first that has a name. */
export function firstReasonOf(errors: readonly unknown[]): ReasonCode | undefined {
  for (const error of errors) {
    const code = reasonOf(error)
    if (code !== undefined) return code
  }
  return undefined
}

/** Whether a command that fails for this reason prints its name, as the table says: its own reasons, and refusals. */
export function isPrinted(code: ReasonCode): boolean {
  const { shows } = reasonRow(code)
  return shows.includes('output of the command') || shows.includes('refusal by the broker')
}
