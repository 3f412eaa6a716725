/** Converts refusals and certificate problems to gRPC statuses and back. No other module knows the status numbers. */
import { type Metadata as GrpcMetadata, Metadata, status } from '@grpc/grpc-js'
import { toUSVString } from 'node:util'
import { type RefusalCode, type RefusalReason, knownReason, knownRefusal } from '../../model/reasons/reasons.ts'
import {
  BrokerUnreachableError,
  CertificateError,
  type CertificateProblem,
  ProtocolError,
  RefusedError,
} from '../protocol.ts'
import { CodecError } from '../codec/codec.ts'

const MAX_DETAILS = 1000
const FIELD = 'sealane-field-bin'
const REASON = 'sealane-reason'
const CERTIFICATE = 'sealane-certificate'

/** The status of each kind of refusal, for members as for operators. */
export const REFUSAL_STATUS: Readonly<Record<RefusalCode, status>> = {
  InvalidArgument: status.INVALID_ARGUMENT,
  Unauthenticated: status.UNAUTHENTICATED,
  PermissionDenied: status.PERMISSION_DENIED,
  AlreadyExists: status.ALREADY_EXISTS,
  ResourceExhausted: status.RESOURCE_EXHAUSTED,
  FailedPrecondition: status.FAILED_PRECONDITION,
}
const PROBLEMS: readonly CertificateProblem[] = [
  'untrusted',
  'otherClusterset',
  'expired',
  'notYetValid',
  'wrongIdentity',
  'missing',
  'authorityRemoved',
]

export interface CallStatus {
  readonly code: status
  readonly details: string
  readonly metadata: GrpcMetadata
}

/**
 * Returns the status for the peer. An error that is not meant for the peer becomes "internal error"; the caller logs
 * it.
 */
export function errorToStatus(error: unknown): CallStatus {
  const metadata = new Metadata()
  if (error instanceof RefusedError) {
    metadata.set(FIELD, Buffer.from(error.field))
    metadata.set(REASON, error.reason)
    return { code: REFUSAL_STATUS[error.code], details: fit(error.message), metadata }
  }
  if (error instanceof CodecError) {
    metadata.set(FIELD, Buffer.from(error.field))
    metadata.set(REASON, 'InvalidValue' satisfies RefusalReason)
    return { code: status.INVALID_ARGUMENT, details: fit(error.message), metadata }
  }
  if (error instanceof CertificateError) {
    metadata.set(CERTIFICATE, error.problem)
    return { code: status.UNAUTHENTICATED, details: fit(error.message), metadata }
  }
  if (error instanceof BrokerUnreachableError) {
    if (error.reason !== undefined) metadata.set(REASON, error.reason)
    return { code: status.UNAVAILABLE, details: fit(error.message), metadata }
  }
  return { code: status.INTERNAL, details: 'internal error', metadata }
}

export function isForPeer(error: unknown): boolean {
  return errorToStatus(error).code !== status.INTERNAL
}

/** The shape of ServiceError in grpc-js. */
export interface GrpcFailure {
  readonly code: status
  readonly details: string
  readonly metadata?: GrpcMetadata
}

export function isGrpcFailure(error: unknown): error is GrpcFailure {
  return typeof error === 'object' && error !== null && 'code' in error && 'details' in error
}

/** Converts a failed call to an error for the caller. `where` is the broker's address, for the error text. */
export function statusToError(failure: GrpcFailure, where: string): Error {
  const problem = failure.metadata?.get(CERTIFICATE)[0]?.toString()
  const known = PROBLEMS.find((candidate) => candidate === problem)
  if (known !== undefined) return new CertificateError(known, failure.details)
  const code = (Object.keys(REFUSAL_STATUS) as RefusalCode[]).find((name) => REFUSAL_STATUS[name] === failure.code)
  const field = failure.metadata?.get(FIELD)[0]
  if (code !== undefined && (field !== undefined || failure.code !== status.RESOURCE_EXHAUSTED)) {
    const reason = knownRefusal(failure.metadata?.get(REASON)[0]?.toString()) ?? 'RefusedByBroker'
    return new RefusedError(reason, field?.toString() ?? '', failure.details, code)
  }
  if (failure.code === status.RESOURCE_EXHAUSTED) return new RefusedError('MessageTooLarge', 'message', failure.details)
  const text = `broker at ${where}: ${failure.details}`
  const broken = failure.code === status.UNIMPLEMENTED || failure.code === status.INTERNAL
  if (broken) return new ProtocolError(text)
  const reason = knownReason(failure.metadata?.get(REASON)[0]?.toString())
  return new BrokerUnreachableError(text, reason === undefined ? {} : { reason })
}

/** Shortens the text, because header values are limited, and replaces lone surrogates, which grpc-js cannot send. */
function fit(details: string): string {
  return toUSVString(details.slice(0, MAX_DETAILS))
}
