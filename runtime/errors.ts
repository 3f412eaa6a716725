/** What a `catch` gets may be anything. */
import { type ReasonCode, knownReason, reasonRow } from '../model/reasons/reasons.ts'

/** What an error says; of anything else its text. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/** The error itself; anything else becomes one that says it. */
export function errorOf(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error))
}

// The stable name of what went wrong (model/reasons/).

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

// A mistake of the person at the keyboard, or something they must mend: printed without a stack trace.

interface UserErrorInit {
  /** What to do about it, one line. */
  readonly hint?: string
  /** 1 failed (default), 2 wrong usage. 3: as commands say that have another use for these (`sealane status`). */
  readonly exitCode?: 1 | 2 | 3
  readonly cause?: unknown
  /** Its stable name (model/reasons/). */
  readonly reason?: ReasonCode
}

export class UserError extends Error {
  readonly hint: string | undefined
  readonly exitCode: 1 | 2 | 3
  readonly reason: ReasonCode | undefined
  constructor(message: string, init: UserErrorInit = {}) {
    super(message, init.cause === undefined ? {} : { cause: init.cause })
    this.name = 'UserError'
    this.hint = init.hint
    this.exitCode = init.exitCode ?? 1
    this.reason = init.reason
  }
}

/** The work is done, and its answer is an exit code: nothing more is printed. */
export class ExitWith extends Error {
  readonly exitCode: number
  constructor(exitCode: number) {
    super(`exit code ${exitCode}`)
    this.name = 'ExitWith'
    this.exitCode = exitCode
  }
}
