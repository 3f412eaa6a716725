/** What a failed call of a relay on port 443 means. */
import type { ReasonCode } from '../../../model/reasons/reasons.ts'
import { ProxyError } from '../../../runtime/proxy/proxy.ts'
import { UserError } from '../../../runtime/runtime.ts'

/** By what the errors of relay-connection.ts carry: that file is loaded late. */
export function isRefusal(error: unknown): error is Error & { readonly why: string; readonly aheadMs: number } {
  return error instanceof Error && error.name === 'RelayRefusedError'
}

/** Whether another relay of this gateway is connected to the process to which the call has led. */
export function isNotWanted(error: unknown): boolean {
  return error instanceof Error && error.name === 'RelayNotWantedError'
}

/** The code of what has caused an error. Undefined: there is none. */
function codeOf(error: unknown): unknown {
  const cause: unknown = error instanceof Error ? error.cause : undefined
  return cause instanceof Error && 'code' in cause ? cause.code : undefined
}

/** A clock that differs by more makes tickets look expired, or not yet good. */
const WRONG_CLOCK_MS = 5 * 60_000

/** The reason code of a call that has failed. */
export function reasonOfFailure(error: unknown): ReasonCode {
  if (error instanceof ProxyError) return error.reason
  // The proxy of the environment cannot be parsed.
  if (error instanceof UserError) return 'InvalidValue'
  if (codeOf(error) === 'CERT_NOT_YET_VALID') return 'RelayWrongClock'
  if (!isRefusal(error)) return 'RelayUnreachable'
  if (error.why === 'foreignClusterset') return 'RelayForeignClusterset'
  const isClock = error.why === 'wrongClock' || (error.why === 'expired' && Math.abs(error.aheadMs) > WRONG_CLOCK_MS)
  return isClock ? 'RelayWrongClock' : 'RelayRefused'
}
