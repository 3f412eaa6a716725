/** Errors: texts and reason codes of caught values, and errors for users. */
import { type ReasonCode, knownReason, reasonRow } from '../model/reasons/reasons.ts'

/** Returns the message of an error; of any other value, its text. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/** Returns the error itself; any other value becomes an Error with its text. */
export function errorOf(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error))
}

// The reason code of an error (model/reasons/).

/** The most causes to follow; errors are wrapped only a few times. */
const MOST_CAUSES = 8

/** What prevents a component from working, as in its status. */
export interface Failure {
  readonly message: string
  readonly reason: ReasonCode
}

/**
 * Returns the reason code of the error, or of the first of its causes or aggregated errors that has one; undefined if
 * none has.
 */
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

/** Returns the reason code of the first error that has one. */
export function firstReasonOf(errors: readonly unknown[]): ReasonCode | undefined {
  for (const error of errors) {
    const code = reasonOf(error)
    if (code !== undefined) return code
  }
  return undefined
}

/**
 * Whether a command that fails for this reason prints its code. The table decides: its own reasons, and refusals by the
 * broker.
 */
export function isPrinted(code: ReasonCode): boolean {
  const { shows } = reasonRow(code)
  return shows.includes('output of the command') || shows.includes('refusal by the broker')
}

// A mistake of the user, or a problem that the user has to solve: printed without a stack trace.

interface UserErrorInit {
  /** What to do about it, in one line. */
  readonly hint?: string
  /** 1: failed (default). 2: wrong usage. 3: defined by commands that use 1 and 2 otherwise (`sealane status`). */
  readonly exitCode?: 1 | 2 | 3
  readonly cause?: unknown
  /** Its reason code (model/reasons/). */
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

/** Ends a command whose result is an exit code: nothing more is printed. */
export class ExitWith extends Error {
  readonly exitCode: number
  constructor(exitCode: number) {
    super(`exit code ${exitCode}`)
    this.name = 'ExitWith'
    this.exitCode = exitCode
  }
}
