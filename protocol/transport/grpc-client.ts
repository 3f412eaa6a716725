/** The TLS implementation of BrokerClient, with failover between addresses, and the first contact with a join token. */
import { once } from 'node:events'
import { isIP } from 'node:net'
import {
  Client,
  type ClientDuplexStream,
  type ClientOptions,
  Metadata,
  connectivityState,
  credentials,
  status,
} from '@grpc/grpc-js'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { type Proxy, type ProxyChoice, proxyChoice } from '../../runtime/proxy/proxy.ts'
import {
  AddressBook,
  type BrokerAddress,
  BrokerBusyError,
  type BrokerClient,
  BrokerSilentError,
  BrokerUnreachableError,
  type JoinLook,
  type JoinRequest,
  type JoinResponse,
  MAX_MESSAGE_BYTES,
  ProtocolError,
  type PublishMessage,
  type PublishReply,
  type PublishStream,
  type RenewResponse,
  type WatchMessage,
  type WatchRequest,
  type WatchSkill,
  closedError,
  formatBrokerAddress,
  parseBrokerAddress,
} from '../protocol.ts'
import { CodecError, decodePublishReply, encodePublishMessage } from '../codec/codec.ts'
import * as codec from '../codec/codec.ts'
import {
  type Identity,
  type JoinToken,
  PROCESS_HEADER,
  SERVER_NAME,
  certificateToPem,
  checkBrokerName,
  fingerprint,
  keyToPem,
  serverNameOf,
} from '../identity/identity.ts'
import { comeBackMs } from './handshake-rate-limiter.ts'
import { limitHandshake } from './limit-handshake.ts'
import { fetchPinnedCa, probeServer } from './probe-server.ts'
import { asBuffer, cancelSoon, identity, methodPath } from './raw-service.ts'
import { isGrpcFailure, statusToError } from './status-codes.ts'

type Explain = (error: unknown, answered: boolean) => Promise<Error>

/** The member's side of a Publish call. */
class GrpcPublishStream implements PublishStream {
  readonly replies: AsyncIterable<PublishReply>
  readonly #call: ClientDuplexStream<Buffer, Buffer>
  readonly #explain: Explain
  readonly #ended = new AbortController()
  #answered = false
  #failure: Promise<Error> | undefined

  constructor(call: ClientDuplexStream<Buffer, Buffer>, signal: AbortSignal, explain: Explain) {
    this.#call = call
    this.#explain = explain
    const onAbort = (): void => cancelSoon(call)
    if (signal.aborted) onAbort()
    signal.addEventListener('abort', onAbort, { once: true })
    const onEnd = (error?: unknown): void => {
      signal.removeEventListener('abort', onAbort)
      if (error !== undefined) void this.#failed(error)
      this.#ended.abort()
    }
    call.on('error', onEnd)
    call.on('end', () => onEnd())
    this.replies = this.#readReplies()
  }

  async send(message: PublishMessage): Promise<void> {
    await this.#throwIfEnded()
    if (this.#call.write(asBuffer(encodePublishMessage(message)))) return
    await once(this.#call, 'drain', { signal: this.#ended.signal }).catch(() => undefined)
    await this.#throwIfEnded()
  }

  close(): void {
    this.#ended.abort()
    this.#call.end()
    cancelSoon(this.#call)
  }

  async *#readReplies(): AsyncGenerator<PublishReply> {
    try {
      for await (const bytes of this.#call as AsyncIterable<Buffer>) {
        this.#answered = true
        const reply = decodePublishReply(bytes)
        if (reply !== undefined) yield reply
      }
    } catch (error) {
      if (error instanceof CodecError) throw new ProtocolError(`the broker sent an invalid message: ${error.message}`)
      throw await this.#failed(error)
    }
  }

  /** Determines the cause only once, so that reader and writer get the same error. */
  #failed(error: unknown): Promise<Error> {
    this.#failure ??= this.#explain(error, this.#answered)
    return this.#failure
  }

  async #throwIfEnded(): Promise<void> {
    if (!this.#ended.signal.aborted) return
    throw (await this.#failure) ?? new BrokerUnreachableError('the stream to the broker has ended')
  }
}

export interface ClientLimits {
  /** Timeout of Join, Renew and Leave. */
  readonly callTimeoutMs: number
  readonly probeTimeoutMs: number
  /**
   * Timeout from the first packet to the end of the TLS handshake. It is much shorter than the timeout of TCP: after a
   * broker has moved, the packets of an earlier connection attempt go to its old location for minutes. It still leaves
   * time for a broker that has just started and must accept a thousand members.
   */
  readonly connectTimeoutMs: number
  /** The client gives up a broker that answers no ping within keepaliveMs + keepaliveTimeoutMs. */
  readonly keepaliveMs: number
  readonly keepaliveTimeoutMs: number
}

/** decodeWatchMessage() decompresses `packed`, and Replica handles `ownersChanged`. */
const WATCH_SKILLS: readonly WatchSkill[] = ['zstd', 'owners']

export const DEFAULT_CLIENT_LIMITS: ClientLimits = {
  callTimeoutMs: 15_000,
  probeTimeoutMs: 5000,
  connectTimeoutMs: 8000,
  keepaliveMs: 10_000,
  keepaliveTimeoutMs: 5000,
}

export interface ConnectBrokerInit {
  /** Addresses as `host:port`. The first one to call is chosen at random. */
  readonly addresses: readonly string[]
  /** Replaces `addresses`. A member keeps one book for all its clients, because the book learns further addresses. */
  readonly book?: AddressBook
  readonly clusterset: string
  /** CA certificates in DER. */
  readonly ca: readonly Uint8Array[]
  /** Certificate and key of this cluster. Absent only for Join. */
  readonly identity?: Identity
  /** Mark of the calling process, from newProcessMark(). Absent if the process sends none. */
  readonly processMark?: string
  readonly clock: Clock
  readonly logger: Logger
  readonly limits?: Partial<ClientLimits>
  /** Default: that of this process. It decides whether a proxy leads to the broker (HTTPS_PROXY, NO_PROXY). */
  readonly env?: ProxyEnv
}

type ProxyEnv = Readonly<Record<string, string | undefined>>

/**
 * Returns a client, which connects on the first call. Throws BrokerAddressError, and UserError for a proxy in the
 * environment that cannot be parsed.
 */
export function connectBroker(init: ConnectBrokerInit): BrokerClient {
  return new GrpcBrokerClient(init)
}

export interface ConnectForJoinInit {
  readonly token: JoinToken
  /** As in ConnectBrokerInit. */
  readonly env?: ProxyEnv
  readonly clock: Clock
  readonly logger: Logger
  readonly limits?: Partial<ClientLimits>
}

/**
 * Returns a client that may only join. It trusts the CA certificate of the first address whose certificate chain
 * contains a CA that the token pins. Throws the CertificateError or BrokerUnreachableError of the last address.
 */
export async function connectForJoin(init: ConnectForJoinInit, signal: AbortSignal): Promise<BrokerClient> {
  const { token, clock, logger } = init
  const env = init.env === undefined ? {} : { env: init.env }
  const limits = { ...DEFAULT_CLIENT_LIMITS, ...init.limits }
  let failure: unknown
  for (const text of fromAnywhere(token.addresses, clock)) {
    const address = parseBrokerAddress(text)
    const probe = { address, ca: [], clusterset: token.clusterset, clock, timeoutMs: limits.probeTimeoutMs, ...env }
    try {
      const ca = await fetchPinnedCa(probe, [token.caPin, ...token.otherPins], signal)
      const book = new AddressBook({ own: token.addresses, first: text, clock })
      return connectBroker({
        addresses: [],
        book,
        clusterset: token.clusterset,
        ca: [ca],
        clock,
        logger,
        limits,
        ...env,
      })
    } catch (error) {
      if (signal.aborted) throw error
      failure = error
    }
  }
  throw failure
}

/** Returns all texts, rotated by a random offset. */
function fromAnywhere(texts: readonly string[], clock: Clock): readonly string[] {
  const start = Math.floor(clock.random() * texts.length)
  return [...texts.slice(start), ...texts.slice(0, start)]
}

/** A connection that several calls share. The first call establishes it. */
interface Attempt {
  readonly address: BrokerAddress
  readonly channel: Client
  hasWorked: boolean
  /** Set if this client gave up the connection. */
  failure?: BrokerUnreachableError
}

class GrpcBrokerClient implements BrokerClient {
  readonly #init: ConnectBrokerInit
  readonly #limits: ClientLimits
  readonly #book: AddressBook
  readonly #proxyTo: ProxyChoice
  #attempt: Attempt | undefined
  readonly #closed = new AbortController()

  constructor(init: ConnectBrokerInit) {
    this.#init = init
    this.#limits = { ...DEFAULT_CLIENT_LIMITS, ...init.limits }
    this.#book = init.book ?? new AddressBook({ own: init.addresses, clock: init.clock })
    this.#proxyTo = proxyChoice(init.env ?? process.env)
  }

  async join(request: JoinRequest, signal: AbortSignal): Promise<JoinResponse> {
    return decoded(codec.decodeJoinResponse, await this.#call('join', codec.encodeJoinRequest(request), signal))
  }

  async lookAtJoin(request: Omit<JoinRequest, 'csr' | 'look'>, signal: AbortSignal): Promise<JoinLook> {
    const asked = codec.encodeJoinRequest({ ...request, csr: new Uint8Array(), look: true })
    return decoded(codec.decodeJoinLook, await this.#call('join', asked, signal))
  }

  async withdrawJoin(request: JoinRequest, signal: AbortSignal): Promise<void> {
    await this.#call('join', codec.encodeJoinRequest({ ...request, withdraw: true }), signal)
  }

  async renew(csr: Uint8Array, signal: AbortSignal): Promise<RenewResponse> {
    return decoded(codec.decodeRenewResponse, await this.#call('renew', codec.encodeRenewRequest(csr), signal))
  }

  async leave(signal: AbortSignal): Promise<void> {
    await this.#call('leave', new Uint8Array(), signal)
  }

  publish(signal: AbortSignal): PublishStream {
    const attempt = this.#open()
    const ended = this.#orClosed(signal)
    const call = attempt.channel.makeBidiStreamRequest(methodPath('publish'), identity, identity, this.#metadata())
    return new GrpcPublishStream(call, ended, (error, answered) => this.#explain(error, attempt, answered, ended))
  }

  async *watch(request: WatchRequest, signal: AbortSignal): AsyncGenerator<WatchMessage> {
    signal.throwIfAborted()
    const bytes = asBuffer(codec.encodeWatchRequest({ takes: WATCH_SKILLS, ...request }))
    const attempt = this.#open()
    const ended = this.#orClosed(signal)
    const path = methodPath('watch')
    const call = attempt.channel.makeServerStreamRequest(path, identity, identity, bytes, this.#metadata())
    // The loop below receives errors. This listener prevents a crash by an error after the loop has ended.
    call.on('error', () => undefined)
    const onAbort = (): void => cancelSoon(call)
    ended.addEventListener('abort', onAbort, { once: true })
    let answered = false
    try {
      for await (const message of call as AsyncIterable<Buffer>) {
        answered = true
        const known = decoded(codec.decodeWatchMessage, message)
        if (known?.t === 'reset' && known.addresses !== undefined) this.#book.learn(known.addresses)
        if (known !== undefined) yield known
      }
    } catch (error) {
      throw await this.#explain(error, attempt, answered, ended)
    } finally {
      ended.removeEventListener('abort', onAbort)
      cancelSoon(call)
    }
  }

  close(): void {
    // Closing only the channel would leave open streams running.
    this.#closed.abort(closedError())
    this.#drop()
  }

  /** Tries every address once, as long as the failure is BrokerUnreachableError. */
  async #call(method: 'join' | 'renew' | 'leave', bytes: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    const ended = this.#orClosed(signal)
    ended.throwIfAborted()
    for (let tries = 1; ; tries++) {
      const attempt = this.#open()
      try {
        return await this.#unary(attempt.channel, method, asBuffer(bytes), ended)
      } catch (error) {
        const failure = await this.#explain(error, attempt, false, ended)
        if (!(failure instanceof BrokerUnreachableError) || tries >= this.#book.size) throw failure
        ended.throwIfAborted()
        this.#init.logger.debug('trying the next address of the broker', { why: failure.message })
      }
    }
  }

  #unary(channel: Client, method: 'join' | 'renew' | 'leave', bytes: Buffer, signal: AbortSignal): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      const deadline = this.#init.clock.now() + this.#limits.callTimeoutMs
      const call = channel.makeUnaryRequest(
        methodPath(method),
        identity,
        identity,
        bytes,
        this.#metadata(),
        { deadline },
        (error, response) => {
          signal.removeEventListener('abort', onAbort)
          if (error !== null) reject(error)
          else resolve(response ?? Buffer.alloc(0))
        },
      )
      const onAbort = (): void => cancelSoon(call)
      signal.addEventListener('abort', onAbort, { once: true })
    })
  }

  #metadata(): Metadata {
    const metadata = new Metadata()
    if (this.#init.processMark !== undefined) metadata.set(PROCESS_HEADER, this.#init.processMark)
    return metadata
  }

  #orClosed(signal: AbortSignal): AbortSignal {
    return AbortSignal.any([signal, this.#closed.signal])
  }

  #open(): Attempt {
    this.#closed.signal.throwIfAborted()
    if (this.#attempt === undefined) {
      const address = this.#book.next()
      const proxy = this.#proxyTo(address)
      const through = proxy === undefined ? undefined : { proxy, to: address }
      const target = targetOf(proxy ?? address)
      const channel = new Client(target, this.#credentials(through), clientOptions(this.#limits, this.#init.ca))
      this.#attempt = { address, channel, hasWorked: false }
      this.#expectConnection(this.#attempt)
    }
    return this.#attempt
  }

  /** Gives up an attempt that does not connect in time, which fails its calls, and one whose connection has ended. */
  #expectConnection(attempt: Attempt): void {
    const { connectTimeoutMs } = this.#limits
    attempt.channel.waitForReady(this.#init.clock.now() + connectTimeoutMs, (error) => {
      if (this.#attempt !== attempt) return
      if (error === undefined) {
        attempt.hasWorked = true
        this.#book.worked(attempt.address)
        this.#onConnectionOver(attempt)
        return
      }
      const where = formatBrokerAddress(attempt.address)
      attempt.failure = new BrokerUnreachableError(`broker at ${where}: no connection within ${connectTimeoutMs} ms`)
      this.#next(attempt)
    })
  }

  /**
   * Gives up the channel when its connection ends, because the channel would reconnect by itself, and wait without
   * limit for a peer that is silent after the TLS handshake. Open streams continue until they end.
   */
  #onConnectionOver(attempt: Attempt): void {
    const onChange = (): void => this.#next(attempt)
    const channel = attempt.channel.getChannel()
    channel.watchConnectivityState(connectivityState.READY, Number.POSITIVE_INFINITY, onChange)
  }

  #credentials(
    through: { readonly proxy: Proxy; readonly to: BrokerAddress } | undefined,
  ): ReturnType<typeof credentials.createSsl> {
    const { ca, clock, identity: own } = this.#init
    const roots = Buffer.from(ca.map(certificateToPem).join(''))
    const shown =
      own === undefined ? [] : [Buffer.from(keyToPem(own.key)), Buffer.from(certificateToPem(own.certificate))]
    const [key = null, certificate = null] = shown
    const checkServerIdentity = (_name: string, shown: Parameters<typeof checkBrokerName>[0]) => checkBrokerName(shown)
    const ssl = credentials.createSsl(roots, key, certificate, { checkServerIdentity })
    return limitHandshake(ssl, { clock, timeoutMs: this.#limits.connectTimeoutMs, through })
  }

  /**
   * Converts an error of grpc-js into one of the errors of broker-client.ts. If no broker answered, a probe of the same
   * address finds the cause. The channel is then dropped, because its own back-off would delay the next call, and the
   * next call uses the next address.
   */
  async #explain(error: unknown, attempt: Attempt, answered: boolean, signal: AbortSignal): Promise<Error> {
    if (signal.aborted) {
      const reason: unknown = signal.reason
      if (reason instanceof BrokerSilentError) this.#next(attempt, true)
      return reason instanceof Error ? reason : new Error('aborted')
    }
    if (attempt.failure !== undefined) return attempt.failure
    if (!isGrpcFailure(error)) return error instanceof Error ? error : new ProtocolError(String(error))
    const { address } = attempt
    const where = formatBrokerAddress(address)
    const failure = statusToError(error, where)
    // Another replica may be able to serve the call, for example if only this one has lost its store.
    if (error.code === status.INTERNAL) this.#next(attempt, true)
    if (!(failure instanceof BrokerUnreachableError)) return failure
    this.#next(attempt)
    const busyMs = comeBackMs(error.details)
    if (busyMs !== undefined) return new BrokerBusyError(where, busyMs)
    if (answered || error.code !== status.UNAVAILABLE) return failure
    const { clusterset, ca, clock } = this.#init
    try {
      const env = this.#init.env === undefined ? {} : { env: this.#init.env }
      const timeoutMs = this.#limits.probeTimeoutMs
      await probeServer({ address, clusterset, ca, clock, timeoutMs, ...env }, signal)
    } catch (cause) {
      return cause instanceof Error ? cause : failure
    }
    return failure
  }

  /** Has an effect only once if several calls fail with the same connection. */
  #next(attempt: Attempt, isUseless = false): void {
    if (this.#attempt !== attempt) return
    this.#drop()
    if (attempt.hasWorked && !isUseless) this.#book.ended(attempt.address)
    else this.#book.failed(attempt.address)
  }

  #drop(): void {
    const attempt = this.#attempt
    this.#attempt = undefined
    attempt?.channel.close()
  }
}

function targetOf(address: BrokerAddress): string {
  const scheme = { 0: 'dns', 4: 'ipv4', 6: 'ipv6' }[isIP(address.host)] ?? 'dns'
  return `${scheme}:${formatBrokerAddress(address)}`
}

function decoded<T>(decode: (bytes: Uint8Array) => T, bytes: Uint8Array): T {
  try {
    return decode(bytes)
  } catch (error) {
    if (error instanceof CodecError) throw new ProtocolError(`the broker sent an invalid message: ${error.message}`)
    throw error
  }
}

function clientOptions(limits: ClientLimits, [ca]: readonly Uint8Array[]): ClientOptions {
  return {
    // The name is the same for all addresses of the broker.
    'grpc.ssl_target_name_override': serverNameOf(ca === undefined ? undefined : fingerprint(ca)),
    'grpc.default_authority': SERVER_NAME,
    'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
    'grpc.max_send_message_length': MAX_MESSAGE_BYTES,
    'grpc.keepalive_time_ms': limits.keepaliveMs,
    'grpc.keepalive_timeout_ms': limits.keepaliveTimeoutMs,
    'grpc.keepalive_permit_without_calls': 1,
    // limitHandshake() goes through the proxy.
    'grpc.enable_http_proxy': 0,
    'grpc.enable_retries': 0,
    'grpc.use_local_subchannel_pool': 1,
    'grpc.service_config_disable_resolution': 1,
    'grpc.enable_channelz': 0,
  }
}
