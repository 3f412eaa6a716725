/**
 * One clusterset at the broker's port, with its own authorities, BrokerApi and grpc-js servers. Clustersets share only
 * the port. The server name of the TLS handshake selects the clusterset (identity/certificates.ts), and only that
 * clusterset checks the client certificate.
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

// Limits how many streams a connection may open and reset, because each stream takes time of the broker's only thread.

interface StreamLimits {
  /** Streams that may be opened at once. One more is granted per `refillMs`. */
  readonly burst: number
  readonly refillMs: number
}

interface Opened {
  left: number
  atMs: number
}

const MAX_PEERS = 8192
const WATCH_PATH = methodPath('watch')

/** Returns an interceptor that calls `drop` for a peer that exceeds the limits. */
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
    // The map is in the order of the last stream, so peers that have gone are removed first.
    peers.delete(peer)
    peers.set(peer, { left, atMs: now() })
    const oldest = peers.size > MAX_PEERS ? peers.keys().next().value : undefined
    if (oldest !== undefined) peers.delete(oldest)
    if (left < 0) drop(peer)
    // Without a responder the wrapper would only pass on each message, so the call itself is returned.
    return call as unknown as ServerInterceptingCall
  }
}

/**
 * A peer can open HTTP/2 streams and reset them at once, without ever having two open. Node ends the connection of such
 * a peer, and grpc-js has no option for the limit.
 */
function limitResets(server: Server, { burst, refillMs }: StreamLimits): void {
  const options = (server as unknown as { commonServerOptions?: Record<string, unknown> }).commonServerOptions
  if (options === undefined) throw new Error('grpc-js has no commonServerOptions any more: see limitResets()')
  options['streamResetBurst'] = burst
  options['streamResetRate'] = Math.max(1, Math.round(1000 / refillMs))
}

// A grpc-js server without its own port: connections are injected. Members and strangers have separate servers.

/** Limit for members: a returning member opens two streams at a time, seconds apart. */
const MEMBER_STREAMS: StreamLimits = { burst: 50, refillMs: 200 }
/** Limit for strangers: a stranger joins, and may try once more. */
const STRANGER_STREAMS: StreamLimits = { burst: 4, refillMs: 10_000 }

interface PartLimits {
  /** See ServerLimits. */
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
    // In megabytes.
    'grpc-node.max_session_memory': 1,
  }
}

export interface HostedInit {
  /** Name of the clusterset, or '' for the default one, which clients get that ask for none. */
  readonly name: string
  readonly api: BrokerApi
  readonly tls: ServerTls
  /** Called for each call that is refused or fails. */
  readonly onFailed?: (call: FailedCall) => void
}

/** What the port provides to every clusterset. */
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
  /** The TLS context of this clusterset: the certificate to present and the authorities to check clients against. */
  get context(): SecureContext {
    return this.#context
  }

  readonly isWelcome: Host['isWelcome'] = (peer) => this.#init.api.isWelcome?.(peer) ?? true

  /** Returns whether the server name stands for a current or removed authority of this clusterset. */
  isCalled(serverName: string): boolean {
    return this.#names.has(serverName)
  }

  /** Applies to new connections. Open connections stay as they are. */
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

  /** Ends every stream with "the broker is stopping", waits `graceMs` for calls, and then closes all connections. */
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

/** Options of a TLS context that presents the certificate of the broker. */
export function secureOptions(tls: ServerTls): { readonly cert: string; readonly key: string; readonly ca: string[] } {
  const ca = tls.ca.map(certificateToPem)
  return { cert: certificateToPem(tls.certificate) + (ca[0] ?? ''), key: keyToPem(tls.key), ca }
}

/**
 * Includes removed authorities: a member that was away for long then learns that its authority was removed, instead of
 * reaching another clusterset.
 */
function namesOf({ ca, removed = [] }: ServerTls): ReadonlySet<string> {
  return new Set([...ca, ...removed].map((der) => serverNameOf(fingerprint(der))))
}

/** TLS material with which the port serves one clusterset and recognizes its members. */
export interface ServerTls {
  /**
   * Certificates of the broker and of the trusted CAs, in DER. The first CA is sent along, because join tokens pin it.
   */
  readonly certificate: Uint8Array
  readonly key: KeyObject
  readonly ca: readonly Uint8Array[]
  /**
   * Removed CA certificates in DER. A client with a certificate of one of them is told that its authority was removed.
   */
  readonly removed?: readonly Uint8Array[]
  readonly clusterset: string
}
