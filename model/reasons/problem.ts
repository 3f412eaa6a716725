/** What every check gives that finds something wrong. */
import type { ReasonCode } from './reasons.ts'

export interface Problem {
  readonly reason: ReasonCode
  /** For people. */
  readonly message: string
}

export function problem(reason: ReasonCode, message: string): Problem {
  return { reason, message }
}

/** As plans, and the `failure` of a status, print it. */
export function problemText({ reason, message }: Problem): string {
  return `${reason}: ${message}`
}
