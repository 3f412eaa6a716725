/** The stable name of an error between member and broker (model/reasons/), for logs. */
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import { BrokerUnreachableError, CertificateError, RefusedError } from '../protocol.ts'
import { CodecError } from '../codec/codec.ts'
import { TokenError } from '../identity/identity.ts'

/** As a field of a log line; empty where the error has no name. */
export function reasonField(error: unknown): { readonly reason?: ReasonCode } {
  if (error instanceof RefusedError || error instanceof CertificateError || error instanceof TokenError) {
    return { reason: error.reason }
  }
  if (error instanceof BrokerUnreachableError) return error.reason === undefined ? {} : { reason: error.reason }
  return error instanceof CodecError ? { reason: 'InvalidValue' } : {}
}
