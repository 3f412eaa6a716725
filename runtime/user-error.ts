/** A mistake of the person at the keyboard, or something they must mend: printed without a stack trace. */
import type { ReasonCode } from '../model/reasons/reasons.ts'

export interface UserErrorInit {
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
