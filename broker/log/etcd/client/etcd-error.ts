/** What etcd and the way to it answer, sorted once by what a caller can do about it. */
import { type ServiceError, status } from '@grpc/grpc-js'

/**
 * unreachable: nobody answered, and nothing was done. unknown: it was sent, and no answer came: it may have been done.
 * noLogin: etcd does not know who asks. denied: it knows, and refuses. noSpace: it takes no writes until it has room.
 * compacted: that revision is forgotten. tooLarge: it takes no request of that size.
 */
export type EtcdFailure =
  'unreachable' | 'unknown' | 'noLogin' | 'denied' | 'noSpace' | 'compacted' | 'tooLarge' | 'failed'

export class EtcdError extends Error {
  readonly failure: EtcdFailure
  constructor(failure: EtcdFailure, message: string, cause?: unknown) {
    super(message, cause === undefined ? {} : { cause })
    this.name = 'EtcdError'
    this.failure = failure
  }

  /** The last word is that no answer came in time. */
  get isLate(): boolean {
    const { cause } = this
    return cause instanceof EtcdError ? cause.isLate : isServiceError(cause) && cause.code === status.DEADLINE_EXCEEDED
  }
}

/** Takes what was called where, in words that go on after "etcd at HOST:PORT". */
export interface EtcdCall {
  /** host:port */
  readonly endpoint: string
  /** "list", "write of 3 rows" */
  readonly action: string
  readonly timeoutMs: number
}

/** Turns what grpc-js threw for a call that was sent into one of ours. */
export function etcdError(error: ServiceError, { endpoint, action, timeoutMs }: EtcdCall): EtcdError {
  const said =
    error.code === status.DEADLINE_EXCEEDED ? `no answer within ${timeoutMs / 1000} s` : error.details || error.message
  return new EtcdError(failureOf(error), `etcd at ${endpoint}: ${action}: ${said}`, error)
}

/** Of a call that was sent: it may have been done all the same. */
const LOST: readonly status[] = [
  status.UNAVAILABLE,
  status.DEADLINE_EXCEEDED,
  status.CANCELLED,
  status.INTERNAL,
  status.UNKNOWN,
]

/** The words are those of etcd's api/v3rpc/rpctypes/error.go; statuses alone do not tell them apart. */
function failureOf({ code, details }: ServiceError): EtcdFailure {
  if (/database space exceeded/.test(details)) return 'noSpace'
  if (/has been compacted/.test(details)) return 'compacted'
  if (/request is too large|too many operations|message larger than max/.test(details)) return 'tooLarge'
  if (/invalid auth token|auth store is old|user name is empty|authentication (failed|is not enabled)/.test(details))
    return 'noLogin'
  if (code === status.UNAUTHENTICATED) return 'noLogin'
  if (code === status.PERMISSION_DENIED) return 'denied'
  // Refused before it was proposed to anybody.
  if (code === status.UNAVAILABLE && /no leader/.test(details)) return 'unreachable'
  if (code === status.RESOURCE_EXHAUSTED && /too many requests/.test(details)) return 'unreachable'
  return LOST.includes(code) ? 'unknown' : 'failed'
}

export function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && typeof (error as Partial<ServiceError>).code === 'number' && 'details' in error
}
