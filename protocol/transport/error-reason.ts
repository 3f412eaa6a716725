/** The reason code (model/reasons/) of an error between member and broker, for logs. */
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import { BrokerUnreachableError, CertificateError, RefusedError } from '../protocol.ts'
import { CodecError } from '../codec/codec.ts'
import { TokenError } from '../identity/identity.ts'

/** Returns the reason as a log field, or an empty object if the error has no reason. */
export function reasonField(error: unknown): { readonly reason?: ReasonCode } {
  if (error instanceof RefusedError || error instanceof CertificateError || error instanceof TokenError) {
    return { reason: error.reason }
  }
  if (error instanceof BrokerUnreachableError) return error.reason === undefined ? {} : { reason: error.reason }
  return error instanceof CodecError ? { reason: 'InvalidValue' } : {}
}
