/** One connection to one member of etcd. Pings check it, and closing it ends all calls on it. */
import { isIP } from 'node:net'
import { checkServerIdentity } from 'node:tls'
import {
  type ChannelCredentials,
  Client,
  type Metadata,
  type ServiceError,
  connectivityState,
  credentials,
  status,
} from '@grpc/grpc-js'
import { cancelSoon, limitHandshake } from '../../../../protocol/transport/transport.ts'
import { type Clock, orAborted } from '../../../../reconcile/reconcile.ts'
import { type HostPort, formatHostPort } from '../../../../runtime/runtime.ts'

// Failures of etcd and of the connection to it, by what a caller can do about them.

/**
 * unreachable: no member answered, and nothing was done. unknown: the call was sent and got no answer, so it may have
 * been done. noLogin: etcd does not know the client. denied: etcd knows the client and refuses the call. noSpace: etcd
 * accepts no writes until it has space. compacted: the revision is compacted. tooLarge: etcd accepts no request of that
 * size.
 */
type EtcdFailure = 'unreachable' | 'unknown' | 'noLogin' | 'denied' | 'noSpace' | 'compacted' | 'tooLarge' | 'failed'

export class EtcdError extends Error {
  readonly failure: EtcdFailure
  constructor(failure: EtcdFailure, message: string, cause?: unknown) {
    super(message, cause === undefined ? {} : { cause })
    this.name = 'EtcdError'
    this.failure = failure
  }

  /** The root cause is that no answer arrived in time. */
  get isLate(): boolean {
    const { cause } = this
    return cause instanceof EtcdError ? cause.isLate : isServiceError(cause) && cause.code === status.DEADLINE_EXCEEDED
  }
}

/** One call, for messages: the texts follow "etcd at HOST:PORT". */
interface EtcdCall {
  /** host:port */
  readonly endpoint: string
  /** "list", "write of 3 rows" */
  readonly action: string
  readonly timeoutMs: number
}

/** Turns an error of grpc-js for a call that was sent into an EtcdError. */
function etcdError(error: ServiceError, { endpoint, action, timeoutMs }: EtcdCall): EtcdError {
  const said =
    error.code === status.DEADLINE_EXCEEDED ? `no answer within ${timeoutMs / 1000} s` : error.details || error.message
  return new EtcdError(failureOf(error), `etcd at ${endpoint}: ${action}: ${said}`, error)
}

/** Statuses after which a call that was sent may still have been done. */
const LOST: readonly status[] = [
  status.UNAVAILABLE,
  status.DEADLINE_EXCEEDED,
  status.CANCELLED,
  status.INTERNAL,
  status.UNKNOWN,
]

/** The texts come from etcd's api/v3rpc/rpctypes/error.go. Status codes alone do not distinguish these failures. */
function failureOf({ code, details }: ServiceError): EtcdFailure {
  if (/database space exceeded/.test(details)) return 'noSpace'
  if (/has been compacted/.test(details)) return 'compacted'
  if (/request is too large|too many operations|message larger than max/.test(details)) return 'tooLarge'
  if (/invalid auth token|auth store is old|user name is empty|authentication (failed|is not enabled)/.test(details))
    return 'noLogin'
  if (code === status.UNAUTHENTICATED) return 'noLogin'
  if (code === status.PERMISSION_DENIED) return 'denied'
  // etcd refused the call before it proposed it to its members.
  if (code === status.UNAVAILABLE && /no leader/.test(details)) return 'unreachable'
  if (code === status.RESOURCE_EXHAUSTED && /too many requests/.test(details)) return 'unreachable'
  return LOST.includes(code) ? 'unknown' : 'failed'
}

function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && typeof (error as Partial<ServiceError>).code === 'number' && 'details' in error
}

export interface EtcdTls {
  /** PEM. Default: the authorities that the system trusts. */
  readonly ca?: string
  /** PEM. Absent: the client shows no certificate. */
  readonly certificate?: string
  readonly key?: string
}

export interface EtcdLimits {
  readonly connectTimeoutMs: number
  readonly callTimeoutMs: number
  /** etcd closes connections that ping more often than every 5 s. */
  readonly keepaliveMs: number
  readonly keepaliveTimeoutMs: number
}

export const ETCD_LIMITS: EtcdLimits = {
  connectTimeoutMs: 3000,
  callTimeoutMs: 5000,
  keepaliveMs: 8000,
  keepaliveTimeoutMs: 4000,
}

/** Limit for one page of rows. etcd itself does not limit the size of its answers. */
const MAX_ANSWER_BYTES = 256 * 1024 * 1024

/** The form that ts-proto generates. */
export interface Method<Q, A> {
  readonly path: string
  readonly requestSerialize: (value: Q) => Buffer
  readonly responseDeserialize: (bytes: Buffer) => A
}

export interface EtcdConnectionInit {
  readonly endpoint: HostPort
  readonly tls: EtcdTls
  readonly clock: Clock
  readonly limits: EtcdLimits
}

export class EtcdConnection {
  readonly endpoint: string
  readonly #clock: Clock
  readonly #limits: EtcdLimits
  readonly #client: Client
  readonly #lost = new AbortController()

  constructor({ endpoint, tls, clock, limits }: EtcdConnectionInit) {
    this.endpoint = formatHostPort(endpoint)
    this.#clock = clock
    this.#limits = limits
    const family = isIP(endpoint.host)
    const scheme = family === 4 ? 'ipv4' : family === 6 ? 'ipv6' : 'dns'
    this.#client = new Client(`${scheme}:${this.endpoint}`, secured(endpoint.host, tls, clock, limits), {
      'grpc.keepalive_time_ms': limits.keepaliveMs,
      'grpc.keepalive_timeout_ms': limits.keepaliveTimeoutMs,
      'grpc.keepalive_permit_without_calls': 1,
      'grpc.max_receive_message_length': MAX_ANSWER_BYTES,
      'grpc.max_send_message_length': MAX_ANSWER_BYTES,
      'grpc.enable_http_proxy': 0,
      'grpc.enable_retries': 0,
      // A separate socket: the next connection to the same member must not wait for the back-off of this one.
      'grpc.use_local_subchannel_pool': 1,
      // SNI carries no IP addresses. checkServerIdentity() in secured() checks the certificate against the address.
      ...(family === 0 ? {} : { 'grpc.ssl_target_name_override': 'etcd', 'grpc.default_authority': this.endpoint }),
    })
  }

  /** Aborted when the connection is closed, which ends all calls on it. */
  get lost(): AbortSignal {
    return this.#lost.signal
  }

  close(): void {
    if (this.#lost.signal.aborted) return
    this.#lost.abort(new EtcdError('unknown', `etcd at ${this.endpoint}: the connection was given up`))
    this.#client.close()
  }

  /**
   * Resolves once the connection can be used. Throws EtcdError (unreachable or noLogin) with the cause, or the signal's
   * reason.
   */
  async ready(signal: AbortSignal): Promise<void> {
    const { connectTimeoutMs } = this.#limits
    const channel = this.#client.getChannel()
    const endMs = this.#clock.now() + connectTimeoutMs
    for (;;) {
      signal.throwIfAborted()
      this.#lost.signal.throwIfAborted()
      const state = channel.getConnectivityState(true)
      if (state === connectivityState.READY) return
      if (state === connectivityState.TRANSIENT_FAILURE || state === connectivityState.SHUTDOWN || this.#isOver(endMs))
        throw this.#unreachable(await orAborted(this.#whyNot(), signal))
      // watchConnectivityState() gives an error at `endMs`, which the loop checks above.
      const changed = new Promise<void>((resolve) => channel.watchConnectivityState(state, endMs, () => resolve()))
      await orAborted(changed, signal)
    }
  }

  unary<Q, A>(method: Method<Q, A>, request: Q, metadata: Metadata, action: string, signal: AbortSignal): Promise<A> {
    const { callTimeoutMs } = this.#limits
    const ended = AbortSignal.any([signal, this.#lost.signal])
    return new Promise((resolve, reject) => {
      const { path, requestSerialize, responseDeserialize } = method
      const deadline = this.#clock.now() + callTimeoutMs
      const onAbort = (): void => {
        cancelSoon(call)
        reject(ended.reason as Error)
      }
      const call = this.#client.makeUnaryRequest(
        path,
        requestSerialize,
        responseDeserialize,
        request,
        metadata,
        { deadline },
        (error, answer) => {
          ended.removeEventListener('abort', onAbort)
          if (error !== null) reject(this.#explain(error, action))
          else if (answer === undefined) reject(new EtcdError('unknown', `etcd at ${this.endpoint}: ${action}: empty`))
          else resolve(answer)
        },
      )
      if (ended.aborted) onAbort()
      else ended.addEventListener('abort', onAbort, { once: true })
    })
  }

  /**
   * Sends one message on a stream and yields the answers. The first answer must arrive within callTimeoutMs. The signal
   * ends every wait, even if grpc-js does not notice it.
   */
  async *stream<Q, A>(
    { path, requestSerialize, responseDeserialize }: Method<Q, A>,
    request: Q,
    metadata: Metadata,
    action: string,
    signal: AbortSignal,
  ): AsyncGenerator<A, void, undefined> {
    const { callTimeoutMs } = this.#limits
    const silent = new AbortController()
    const ended = AbortSignal.any([signal, this.#lost.signal, silent.signal])
    ended.throwIfAborted()
    const call = this.#client.makeBidiStreamRequest(path, requestSerialize, responseDeserialize, metadata)
    // An error after the reader has left must not end the process.
    call.on('error', () => undefined)
    const text = `etcd at ${this.endpoint}: ${action}: no answer within ${callTimeoutMs / 1000} s`
    let cancelTimer = this.#clock.setTimer(callTimeoutMs, () => silent.abort(new EtcdError('unreachable', text)))
    try {
      call.write(request)
      const answers = (call as AsyncIterable<A>)[Symbol.asyncIterator]()
      for (;;) {
        const next = await orAborted(answers.next(), ended)
        cancelTimer()
        cancelTimer = () => undefined
        if (next.done === true) return
        yield next.value
      }
    } catch (error) {
      throw ended.aborted ? (ended.reason as Error) : this.#explain(error, action)
    } finally {
      cancelTimer()
      cancelSoon(call)
    }
  }

  #isOver(endMs: number): boolean {
    return this.#clock.now() >= endMs
  }

  /** grpc-js reports only to a call why there is no connection. */
  #whyNot(): Promise<string> {
    return new Promise((resolve) => {
      const nothing = (): Buffer => Buffer.alloc(0)
      const deadline = this.#clock.now() + 500
      const path = '/etcdserverpb.Maintenance/Status'
      this.#client.makeUnaryRequest(path, nothing, nothing, undefined, { deadline }, (error) => {
        const { connectTimeoutMs } = this.#limits
        const isSilent = error === null || /deadline/i.test(error.details)
        resolve(isSilent ? `no connection within ${connectTimeoutMs / 1000} s` : connectionText(error.details))
      })
    })
  }

  #unreachable(why: string): EtcdError {
    // The member does not accept the client's certificate. Another member would refuse it as well.
    const failure = /alert (bad certificate|unknown ca|certificate)/.test(why) ? 'noLogin' : 'unreachable'
    return new EtcdError(failure, `etcd at ${this.endpoint}: ${why}`)
  }

  #explain(error: unknown, action: string): Error {
    if (!isServiceError(error)) return error instanceof Error ? error : new Error(String(error))
    const { callTimeoutMs: timeoutMs } = this.#limits
    return etcdError(error, { endpoint: this.endpoint, action, timeoutMs })
  }
}

/** Shortens grpc-js texts such as "No connection established. Last error: connect ECONNREFUSED ...". */
function connectionText(details: string): string {
  return (
    details
      .replace(/^No connection established\.\s*/, 'no connection: ')
      .replace(/Last error: (Error: )?/, '')
      .replace(/\.?\s*Resolution note:\s*$/, '')
      // Texts of OpenSSL span two lines.
      .replace(/\s*\(\d{4}-\d\d-\d\dT[^)]*\)$/, '')
      .replace(/[0-9A-F]+:error:[0-9A-F]+:SSL routines:[^:]*:([^:]*):[^\n]*\n?/, '$1')
  )
}

function secured(host: string, tls: EtcdTls, clock: Clock, limits: EtcdLimits): ChannelCredentials {
  const buffer = (pem: string | undefined): Buffer | null => (pem === undefined ? null : Buffer.from(pem))
  const { ca, key, certificate } = tls
  const secure = credentials.createSsl(buffer(ca), buffer(key), buffer(certificate), {
    checkServerIdentity: (_name, shown) => checkServerIdentity(host, shown),
  })
  return limitHandshake(secure, { clock, timeoutMs: limits.connectTimeoutMs })
}
