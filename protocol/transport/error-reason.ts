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

/**
 * How far a connection got that failed with this error: `tcp` if a server answered, directly or through a proxy.
 * Another connection to find that out would go past the proxy, and could fail on a busy machine.
 */
export function stageOf(error: unknown): 'nothing' | 'tcp' {
  const isAnswered = error instanceof BrokerUnreachableError ? error.isConnected : error instanceof CertificateError
  return isAnswered ? 'tcp' : 'nothing'
}
