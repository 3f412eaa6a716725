/**
 * One clusterset at the broker's port: its authorities, its BrokerApi, and grpc-js servers that know no other. Several
 * of them have nothing in common but the port: which one a connection gets is said by the name that it asks for
 * (identity/certificates.ts), and what it may do there by what it shows to that one alone.
 */
import type { KeyObject } from 'node:crypto'
import { type SecureContext, type TLSSocket, createSecureContext } from 'node:tls'
import { Server, ServerCredentials, type ServerInterceptingCall, type ServerInterceptor } from '@grpc/grpc-js'
import { type BrokerApi, MAX_JOIN_BYTES, MAX_MESSAGE_BYTES, MAX_REQUEST_BYTES } from '../protocol.ts'
import { certificateToPem, fingerprint, keyToPem, serverNameOf } from '../identity/identity.ts'
import { type BrokerServiceDeps, type FailedCall, brokerService } from './broker-service.ts'
import type { Host } from './connections.ts'
import { type PeerTrust, peerTrust } from './peer-check.ts'
import { RAW_SERVICE, methodPath } from './raw-service.ts'
import { passFrames } from './watch-output.ts'

// What one connection may open and reset: each stream costs the one thread that serves all.

interface StreamLimits {
  /** Streams that may be opened at once, and one more in each of `refillMs`. */
  readonly burst: number
  readonly refillMs: number
}

interface Opened {
  left: number
  atMs: number
}

const MAX_PEERS = 8192
const WATCH_PATH = methodPath('watch')

/** Calls `drop` for a peer that opens more. */
function streamLimiter(
  { burst, refillMs }: StreamLimits,
  now: () => number,
  drop: (peer: string) => void,
): ServerInterceptor {
  const peers = new Map<string, Opened>()
  return (method, call) => {
    if (method.path === WATCH_PATH) passFrames(call)
    const peer = call.getPeer()
    const before = peers.get(peer) ?? { left: burst, atMs: now() }
    const left = Math.min(burst, before.left + (now() - before.atMs) / refillMs) - 1
    // In the order of their last stream: those that are gone go first.
    peers.delete(peer)
    peers.set(peer, { left, atMs: now() })
    const oldest = peers.size > MAX_PEERS ? peers.keys().next().value : undefined
    if (oldest !== undefined) peers.delete(oldest)
    if (left < 0) drop(peer)
    // Without a responder the wrapper would only hand on each message: the call itself does as well.
    return call as unknown as ServerInterceptingCall
  }
}

/**
 * HTTP/2 lets a peer open a stream and reset it at once, without end and without ever having two open. Node ends the
 * connection of one that does; grpc-js has no option for how often.
 */
function limitResets(server: Server, { burst, refillMs }: StreamLimits): void {
  const options = (server as unknown as { commonServerOptions?: Record<string, unknown> }).commonServerOptions
  if (options === undefined) throw new Error('grpc-js has no commonServerOptions any more: see limitResets()')
  options['streamResetBurst'] = burst
  options['streamResetRate'] = Math.max(1, Math.round(1000 / refillMs))
}

// A grpc-js server without a port of its own: connections are handed to it. Members and strangers have each their own.

/** What is opened on one connection: a member comes back with two streams at a time, seconds apart. */
const MEMBER_STREAMS: StreamLimits = { burst: 50, refillMs: 200 }
/** A stranger joins, and perhaps asks once more. */
const STRANGER_STREAMS: StreamLimits = { burst: 4, refillMs: 10_000 }

interface PartLimits {
  /** As ServerLimits has them. */
  readonly maxStreamsPerConnection: number
  readonly keepaliveMs: number
  readonly keepaliveTimeoutMs: number
  readonly idleMs: number
}

type GrpcOptions = NonNullable<ConstructorParameters<typeof Server>[0]>

type GrpcPart = ReturnType<typeof grpcPart>

function membersPart(deps: BrokerServiceDeps, limits: PartLimits): GrpcPart {
  return grpcPart(deps, memberOptions(limits), MEMBER_STREAMS)
}

function strangersPart(deps: BrokerServiceDeps, limits: PartLimits): GrpcPart {
  return grpcPart(deps, strangerOptions(limits), STRANGER_STREAMS)
}

function grpcPart(deps: BrokerServiceDeps, options: GrpcOptions, streams: StreamLimits) {
  const limiter = streamLimiter(streams, () => deps.clock.monotonic(), deps.drop)
  const grpc = new Server({ ...options, interceptors: [limiter] })
  limitResets(grpc, streams)
  grpc.addService(RAW_SERVICE, brokerService(deps))
  return { grpc, injector: grpc.createConnectionInjector(ServerCredentials.createInsecure()) }
}

function memberOptions(limits: PartLimits): GrpcOptions {
  return {
    'grpc.max_receive_message_length': MAX_REQUEST_BYTES,
    'grpc.max_send_message_length': MAX_MESSAGE_BYTES,
    'grpc.max_concurrent_streams': limits.maxStreamsPerConnection,
    'grpc.keepalive_time_ms': limits.keepaliveMs,
    'grpc.keepalive_timeout_ms': limits.keepaliveTimeoutMs,
    'grpc.max_connection_idle_ms': limits.idleMs,
    'grpc.enable_channelz': 0,
  }
}

function strangerOptions(limits: PartLimits): GrpcOptions {
  return {
    ...memberOptions(limits),
    'grpc.max_receive_message_length': MAX_JOIN_BYTES,
    'grpc.max_concurrent_streams': 2,
    // Megabytes.
    'grpc-node.max_session_memory': 1,
  }
}

export interface HostedInit {
  /** Of the clusterset; '' for the one that is served to whoever asks for none. */
  readonly name: string
  readonly api: BrokerApi
  readonly tls: ServerTls
  /** Called for each call that is refused, or fails. */
  readonly onFailed?: (call: FailedCall) => void
}

/** What the port does for all of them. */
export type HostingDeps = Omit<BrokerServiceDeps, 'api' | 'stopping' | 'onFailed'>

export interface HostingLimits extends PartLimits {
  readonly graceMs: number
}

export class Hosted implements Host {
  readonly name: string
  readonly #init: HostedInit
  readonly #deps: HostingDeps
  readonly #limits: HostingLimits
  readonly #stopping = new AbortController()
  readonly #members: GrpcPart
  readonly #strangers: GrpcPart
  readonly #sockets = new Set<TLSSocket>()
  #trust: PeerTrust
  #context: SecureContext
  #names: ReadonlySet<string>
  #onEmpty: (() => void) | undefined
  #closed: Promise<void> | undefined

  constructor(init: HostedInit, deps: HostingDeps, limits: HostingLimits) {
    this.name = init.name
    this.#init = init
    this.#deps = deps
    this.#limits = limits
    const { api, onFailed = () => undefined } = init
    const service = { ...deps, api, onFailed, stopping: this.#stopping.signal }
    this.#members = membersPart(service, limits)
    this.#strangers = strangersPart(service, limits)
    this.#trust = peerTrust(init.tls)
    this.#context = createSecureContext(secureOptions(init.tls))
    this.#names = namesOf(init.tls)
  }

  get trust(): PeerTrust {
    return this.#trust
  }
  /** What a connection that asks for this clusterset is shown, and checked against. */
  get context(): SecureContext {
    return this.#context
  }

  readonly isWelcome: Host['isWelcome'] = (peer) => this.#init.api.isWelcome?.(peer) ?? true

  /** Whether who asks for this name trusts an authority that is, or was, one of this clusterset. */
  isCalled(serverName: string): boolean {
    return this.#names.has(serverName)
  }

  /** For new connections; open ones stay as they are. */
  setTls(tls: ServerTls): void {
    this.#context = createSecureContext(secureOptions(tls))
    this.#trust = peerTrust(tls)
    this.#names = namesOf(tls)
  }

  take(socket: TLSSocket, as: 'member' | 'stranger'): void {
    if (this.#stopping.signal.aborted) return void socket.destroy()
    this.#sockets.add(socket)
    socket.once('close', () => {
      this.#sockets.delete(socket)
      if (this.#sockets.size === 0) this.#onEmpty?.()
    })
    const part = as === 'member' ? this.#members : this.#strangers
    part.injector.injectConnection(socket)
  }

  /** Ends every stream with "the broker is stopping", waits `graceMs` for calls, and then for nobody. */
  close(): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  async #close(): Promise<void> {
    const { clock } = this.#deps
    const { graceMs } = this.#limits
    const parts = [this.#members, this.#strangers]
    this.#stopping.abort()
    for (const { injector } of parts) injector.drain(graceMs)
    const cancel = clock.setTimer(graceMs, () => this.#sockets.forEach((socket) => socket.destroy()))
    if (this.#sockets.size > 0) await new Promise<void>((resolve) => (this.#onEmpty = resolve))
    cancel()
    for (const { injector, grpc } of parts) {
      injector.destroy()
      grpc.forceShutdown()
    }
  }
}

/** Of the context that the port shows a certificate from. */
export function secureOptions(tls: ServerTls): { readonly cert: string; readonly key: string; readonly ca: string[] } {
  const ca = tls.ca.map(certificateToPem)
  return { cert: certificateToPem(tls.certificate) + (ca[0] ?? ''), key: keyToPem(tls.key), ca }
}

/** Also of authorities that are removed: who was away for long is to hear that, and not that it calls a stranger. */
function namesOf({ ca, removed = [] }: ServerTls): ReadonlySet<string> {
  return new Set([...ca, ...removed].map((der) => serverNameOf(fingerprint(der))))
}

/** By what the broker's port serves one clusterset, and whom it takes for a member of it. */
export interface ServerTls {
  /** The broker's certificate and CA certificates, DER. The first CA is sent along: join tokens pin it. */
  readonly certificate: Uint8Array
  readonly key: KeyObject
  readonly ca: readonly Uint8Array[]
  /** CA certificates of before, DER: who shows a certificate of one of them is told so. */
  readonly removed?: readonly Uint8Array[]
  readonly clusterset: string
}
