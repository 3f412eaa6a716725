/**
 * What a member calls: the broker as seen from the other end of the wire. Drivers: transport/grpc-client.ts (TLS)
 * and in-memory.ts (no sockets). Failures are normalised here, once: BrokerUnreachableError, CertificateError,
 * RefusedError (broker-api.ts), ProtocolError. Nothing else is thrown, except the signal's own reason.
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

/** No answer, or the connection broke. Trying again later is right. */
export class BrokerUnreachableError extends Error {
  readonly retryable = true
  /** Of a broker that answers, and cannot do it now. */
  readonly reason: ReasonCode | undefined
  constructor(message: string, { reason, ...options }: { cause?: unknown; reason?: ReasonCode } = {}) {
    super(message, options)
    this.reason = reason
    this.name = 'BrokerUnreachableError'
  }
}

/** The broker is there, and has said when it has time. */
export class BrokerBusyError extends BrokerUnreachableError {
  readonly comeBackMs: number
  constructor(where: string, comeBackMs: number) {
    const text = `broker at ${where} has more handshakes to do than it can: it has time in ${comeBackMs / 1000} s`
    super(text, { reason: 'BrokerLate' })
    this.name = 'BrokerBusyError'
    this.comeBackMs = comeBackMs
  }
}

/** As the reason of a signal: nothing came on a stream in time. Its connection is then used no more. */
export class BrokerSilentError extends BrokerUnreachableError {
  constructor() {
    super('the broker does not answer')
  }
}

export type CertificateProblem =
  /** The far end's certificate was not issued by a CA that we trust. */
  | 'untrusted'
  /** It was issued for another clusterset. */
  | 'otherClusterset'
  | 'expired'
  /** The clock of one side is wrong, or the certificate is from the future. */
  | 'notYetValid'
  /** Trusted, but for another name or another use. */
  | 'wrongIdentity'
  /** A certificate was needed and none was shown. */
  | 'missing'
  /** The authority that issued it was removed: `sealane broker ca finish`. */
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

/** One of the two certificates is not accepted. Trying again does not help until somebody changes something. */
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

/** The other end does not keep to the protocol (a bug or a version far apart). */
export class ProtocolError extends Error {
  readonly retryable = true
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options)
    this.name = 'ProtocolError'
  }
}

export interface PublishStream {
  /** Resolves as soon as the transport takes more (back-pressure). Throws when the stream has ended. */
  send(message: PublishMessage): Promise<void>
  /** Ends without an error only after the broker or `close()` ended the stream in order. To be iterated once. */
  readonly replies: AsyncIterable<PublishReply>
  close(): void
}

export interface BrokerClient {
  join(request: JoinRequest, signal: AbortSignal): Promise<JoinResponse>
  /** What this join would bring; changes nothing. An older broker refuses the field `csr`. */
  lookAtJoin(request: Omit<JoinRequest, 'csr' | 'look'>, signal: AbortSignal): Promise<JoinLook>
  /** Takes back what waits for approval with this token and this key. An older broker refuses the field `csr`. */
  withdrawJoin(request: JoinRequest, signal: AbortSignal): Promise<void>
  /** `csr` is PKCS #10, DER. */
  renew(csr: Uint8Array, signal: AbortSignal): Promise<RenewResponse>
  /** Withdraws everything and ends the membership. */
  leave(signal: AbortSignal): Promise<void>
  publish(signal: AbortSignal): PublishStream
  watch(request: WatchRequest, signal: AbortSignal): AsyncIterable<WatchMessage>
  /** Calls and streams that are open fail with BrokerUnreachableError, and so does every call after it. */
  close(): void
}

/** The error of what is open when a client is closed, and of what is begun later. */
export function closedError(): BrokerUnreachableError {
  return new BrokerUnreachableError('the connection to the broker was closed')
}
