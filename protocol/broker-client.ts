/**
 * The broker as a member calls it. transport/grpc-client.ts implements it over TLS, transport/in-memory.ts without
 * sockets. Methods throw only BrokerUnreachableError, CertificateError, RefusedError (broker-api.ts), ProtocolError, or
 * the reason of the signal.
 */
import type {
  JoinLook,
  JoinRequest,
  JoinResponse,
  PublishMessage,
  PublishReply,
  RenewResponse,
  WatchMessage,
  WatchRequest,
} from './broker-api.ts'
import type { ReasonCode } from '../model/reasons/reasons.ts'

/** The broker did not answer, or the connection broke. The caller may retry later. */
export class BrokerUnreachableError extends Error {
  readonly retryable = true
  /** Set if a broker answered but cannot serve the call now. */
  readonly reason: ReasonCode | undefined
  /** Whether a TCP connection to the broker came about, directly or through a proxy. False also if that is not known. */
  readonly isConnected: boolean
  constructor(
    message: string,
    { reason, isConnected = false, ...options }: { cause?: unknown; reason?: ReasonCode; isConnected?: boolean } = {},
  ) {
    super(message, options)
    this.reason = reason
    this.isConnected = isConnected
    this.name = 'BrokerUnreachableError'
  }
}

/** The broker is overloaded and has said when to retry. */
export class BrokerBusyError extends BrokerUnreachableError {
  readonly comeBackMs: number
  constructor(where: string, comeBackMs: number) {
    const text = `broker at ${where} is overloaded with handshakes: retry in ${comeBackMs / 1000} s`
    super(text, { reason: 'BrokerLate', isConnected: true })
    this.name = 'BrokerBusyError'
    this.comeBackMs = comeBackMs
  }
}

/** Reason of a signal that ends a stream on which nothing arrived in time. The client then drops the connection. */
export class BrokerSilentError extends BrokerUnreachableError {
  constructor() {
    super('the broker does not answer')
  }
}

export type CertificateProblem =
  /** The peer's certificate was not issued by a trusted CA. */
  | 'untrusted'
  /** The certificate was issued for another clusterset. */
  | 'otherClusterset'
  | 'expired'
  /** The clock of one side is wrong, or the certificate starts in the future. */
  | 'notYetValid'
  /** The certificate is trusted, but for another name or another use. */
  | 'wrongIdentity'
  /** A certificate was required and none was sent. */
  | 'missing'
  /** The authority that issued the certificate was removed with `sealane broker ca finish`. */
  | 'authorityRemoved'

const CERTIFICATE_REASONS = {
  untrusted: 'CertificateUntrusted',
  otherClusterset: 'CertificateOtherClusterset',
  expired: 'CertificateExpired',
  notYetValid: 'CertificateNotYetValid',
  wrongIdentity: 'CertificateWrongIdentity',
  missing: 'CertificateMissing',
  authorityRemoved: 'CertificateAuthorityRemoved',
} as const satisfies Record<CertificateProblem, ReasonCode>

/** One of the two certificates was rejected. A retry cannot succeed until an operator changes something. */
export class CertificateError extends Error {
  readonly retryable = false
  readonly problem: CertificateProblem
  readonly reason: ReasonCode
  constructor(problem: CertificateProblem, message: string, options?: { cause?: unknown }) {
    super(message, options)
    this.name = 'CertificateError'
    this.problem = problem
    this.reason = CERTIFICATE_REASONS[problem]
  }
}

/** The peer violates the protocol, because of a bug or because the releases are too far apart. */
export class ProtocolError extends Error {
  readonly retryable = true
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options)
    this.name = 'ProtocolError'
  }
}

export interface PublishStream {
  /** Resolves when the transport accepts more (back-pressure). Throws if the stream has ended. */
  send(message: PublishMessage): Promise<void>
  /** Ends without an error only if the broker or close() ended the stream. Can be iterated once. */
  readonly replies: AsyncIterable<PublishReply>
  close(): void
}

export interface BrokerClient {
  join(request: JoinRequest, signal: AbortSignal): Promise<JoinResponse>
  /** Previews a join and changes nothing. An older broker refuses the field `csr`. */
  lookAtJoin(request: Omit<JoinRequest, 'csr' | 'look'>, signal: AbortSignal): Promise<JoinLook>
  /** Withdraws the pending approval for this token and key. An older broker refuses the field `csr`. */
  withdrawJoin(request: JoinRequest, signal: AbortSignal): Promise<void>
  /** `csr` is PKCS #10 in DER. */
  renew(csr: Uint8Array, signal: AbortSignal): Promise<RenewResponse>
  /** Withdraws all records and ends the membership. */
  leave(signal: AbortSignal): Promise<void>
  publish(signal: AbortSignal): PublishStream
  watch(request: WatchRequest, signal: AbortSignal): AsyncIterable<WatchMessage>
  /** Open calls and streams, and all later calls, fail with BrokerUnreachableError. */
  close(): void
}

/** Error of open and later calls of a closed client. */
export function closedError(): BrokerUnreachableError {
  return new BrokerUnreachableError('the connection to the broker was closed')
}
