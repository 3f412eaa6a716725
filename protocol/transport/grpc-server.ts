/**
 * The broker's port. One port for everybody: TLS is terminated here, with a client certificate asked for but not
 * demanded (Join has none yet), and the connection is then handed to grpc-js. peer-check.ts says who it is, and
 * connections.ts how many may come. Members and strangers have each their own grpc-js server: what a stranger may send
 * is a Join, and no more.
 */
import { Server, ServerCredentials } from '@grpc/grpc-js'
import type { KeyObject } from 'node:crypto'
import { type AddressInfo, type Server as NetServer, createServer as createNetServer } from 'node:net'
import { type TLSSocket, type TlsOptions, createServer } from 'node:tls'
import type { Clock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import type { Metrics } from '../../runtime/metrics/metrics.ts'
import type { BrokerApi } from '../broker-api.ts'
import { keyToPem } from '../identity/keys.ts'
import { certificateToPem } from '../identity/pem.ts'
import { MAX_JOIN_BYTES, MAX_MESSAGE_BYTES, MAX_REQUEST_BYTES } from '../limits.ts'
import { peerTrust } from './peer-check.ts'
import { type BrokerServiceDeps, type FailedCall, brokerService } from './broker-service.ts'
import { type ConnectionLimits, Connections, DEFAULT_CONNECTION_LIMITS, peerText } from './connections.ts'
import { ConnectionLife } from './life/connection-life.ts'
import { type StreamLimits, limitResets, streamLimiter } from './limit-streams.ts'
import { RAW_SERVICE } from './raw-service.ts'
import { serverMetrics } from './server-metrics.ts'

export interface ServerTls {
  /** The broker's certificate and CA certificates, DER. The first CA is sent along: join tokens pin it. */
  readonly certificate: Uint8Array
  readonly key: KeyObject
  readonly ca: readonly Uint8Array[]
  /** CA certificates of before, DER: who shows a certificate of one of them is told so. */
  readonly removed?: readonly Uint8Array[]
  readonly clusterset: string
}

export interface ServerLimits extends ConnectionLimits {
  /** Open at once, of a member: its watches, what it publishes, and a call. */
  readonly maxStreamsPerConnection: number
  /** A peer that answers no ping for this long is dropped. */
  readonly keepaliveMs: number
  readonly keepaliveTimeoutMs: number
  readonly idleMs: number
  /** How long `close` waits for calls under way. */
  readonly graceMs: number
  /** After about this time a member is asked to connect anew, so that members spread over replicas; 0: never. */
  readonly connectionAgeMs: number
  /** `close` first sends members away, one by one, within this time; 0: all at once. */
  readonly drainMs: number
}

export const DEFAULT_SERVER_LIMITS: ServerLimits = {
  ...DEFAULT_CONNECTION_LIMITS,
  maxStreamsPerConnection: 10,
  keepaliveMs: 20_000,
  keepaliveTimeoutMs: 10_000,
  idleMs: 300_000,
  graceMs: 2000,
  connectionAgeMs: 0,
  drainMs: 0,
}

/** What is opened on one connection: a member comes back with two streams at a time, seconds apart. */
const MEMBER_STREAMS: StreamLimits = { burst: 50, refillMs: 200 }
/** A stranger joins, and perhaps asks once more. */
const STRANGER_STREAMS: StreamLimits = { burst: 4, refillMs: 10_000 }

export interface ServeBrokerInit {
  readonly api: BrokerApi
  readonly tls: ServerTls
  /** Port 0 takes a free one. */
  readonly listen: { readonly host: string; readonly port: number }
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics?: Metrics
  readonly limits?: Partial<ServerLimits>
  /** Called for each call that is refused, or fails. */
  readonly onFailed?: (call: FailedCall) => void
}

export interface BrokerServer {
  readonly address: { readonly host: string; readonly port: number }
  /** For new connections; open ones stay as they are. */
  setTls(tls: ServerTls): void
  /**
   * True: this broker knows only what was, and others may know more: members are sent away, and those that come all the
   * same stay for a minute or so. What they ask for meanwhile is answered.
   */
  setCutOff(isCutOff: boolean): void
  /** Sends members away, ends every stream with "the broker is stopping" and closes the port. */
  close(): Promise<void>
}

/** The port cannot be had. */
export class ListenError extends Error {
  constructor(host: string, port: number, cause: NodeJS.ErrnoException) {
    const reasons: Readonly<Record<string, string>> = {
      EADDRINUSE: 'another process listens there',
      EACCES: 'not permitted (ports below 1024 need root)',
      EADDRNOTAVAIL: 'this machine does not have that address',
    }
    super(`cannot listen on ${host}:${port}: ${reasons[cause.code ?? ''] ?? cause.message}`, { cause })
    this.name = 'ListenError'
  }
}

/** Serves until `close`. Throws ListenError. */
export async function serveBroker(init: ServeBrokerInit): Promise<BrokerServer> {
  const limits = { ...DEFAULT_SERVER_LIMITS, ...init.limits }
  const { api, clock, logger } = init
  const metrics = serverMetrics(init.metrics)
  const stopping = new AbortController()
  const connections: Connections = new Connections({
    clock,
    metrics,
    limits,
    trust: peerTrust(init.tls),
    isWelcome: (peer) => api.isWelcome?.(peer) ?? true,
    startHandshake: (socket) => void tls.emit('connection', socket),
  })
  const drop = (peer: string): void => connections.drop(peer)
  const life = new ConnectionLife({ clock, ageMs: limits.connectionAgeMs, drop })
  const deps: BrokerServiceDeps = {
    ...{ api, clock, logger, metrics, stopping: stopping.signal },
    verdictOf: (peer) => connections.verdictOf(peer),
    refusalLevel: refusalLevel(clock),
    onFailed: init.onFailed ?? (() => undefined),
    lifeOf: (peer) => life.signalOf(peer),
    drop,
  }
  const members = grpcPart(deps, memberOptions(limits), MEMBER_STREAMS)
  const strangers = grpcPart(deps, strangerOptions(limits), STRANGER_STREAMS)

  const tls = createServer({
    ...tlsOptions(init.tls),
    requestCert: true,
    // Checked in peer-check.ts, so that Join works without a certificate and a refusal can say why.
    rejectUnauthorized: false,
    minVersion: 'TLSv1.3',
    ALPNProtocols: ['h2'],
    handshakeTimeout: limits.handshakeTimeoutMs,
    noDelay: true,
  })
  tls.on('tlsClientError', (error: Error, socket: TLSSocket) => {
    logger.debug('TLS handshake failed', { why: error.message })
    // Node reports a handshake that takes too long, and leaves the connection open.
    socket.destroy()
  })
  tls.on('secureConnection', (socket: TLSSocket) => {
    socket.on('error', (error) => logger.debug('connection broke', { why: error.message }))
    if (socket.alpnProtocol !== 'h2') {
      socket.destroy()
      return
    }
    const isMember = connections.validate(socket) === 'member'
    if (isMember) begin(life, socket)
    const part = isMember ? members : strangers
    part.injector.injectConnection(socket)
  })
  const port = createNetServer({ noDelay: true }, (socket) => connections.accept(socket))
  await listen(port, init.listen)
  const { address, port: number } = port.address() as AddressInfo
  return {
    address: { host: address, port: number },
    setTls(next) {
      tls.setSecureContext(tlsOptions(next))
      connections.trust = peerTrust(next)
    },
    setCutOff: (isCutOff) => life.setCutOff(isCutOff),
    async close() {
      await life.drain(limits.drainMs)
      const closed = new Promise<void>((resolve) => port.close(() => resolve()))
      stopping.abort()
      connections.destroyWaiting()
      for (const { injector } of [members, strangers]) injector.drain(limits.graceMs)
      const cancel = clock.setTimer(limits.graceMs, () => connections.destroyAll())
      await connections.allClosed()
      cancel()
      for (const { injector, grpc } of [members, strangers]) {
        injector.destroy()
        grpc.forceShutdown()
      }
      await closed
    },
  }
}

function begin(life: ConnectionLife, socket: TLSSocket): void {
  const peer = peerText(socket)
  life.begin(peer)
  socket.once('close', () => life.forget(peer))
}

/** Refusals that are logged in a minute. */
const MAX_LOGGED_REFUSALS = 100

function refusalLevel(clock: Clock): BrokerServiceDeps['refusalLevel'] {
  let count = 0
  let sinceMs = clock.monotonic()
  return () => {
    if (clock.monotonic() - sinceMs >= 60_000) {
      count = 0
      sinceMs = clock.monotonic()
    }
    count += 1
    return count <= MAX_LOGGED_REFUSALS ? 'info' : 'debug'
  }
}

type GrpcOptions = NonNullable<ConstructorParameters<typeof Server>[0]>

/** A grpc-js server without a port of its own: connections are handed to it. */
function grpcPart(deps: BrokerServiceDeps, options: GrpcOptions, streams: StreamLimits) {
  const limiter = streamLimiter(streams, () => deps.clock.monotonic(), deps.drop)
  const grpc = new Server({ ...options, interceptors: [limiter] })
  limitResets(grpc, streams)
  grpc.addService(RAW_SERVICE, brokerService(deps))
  return { grpc, injector: grpc.createConnectionInjector(ServerCredentials.createInsecure()) }
}

function tlsOptions(tls: ServerTls): TlsOptions {
  const ca = tls.ca.map(certificateToPem)
  return { cert: certificateToPem(tls.certificate) + (ca[0] ?? ''), key: keyToPem(tls.key), ca }
}

function memberOptions(limits: ServerLimits): GrpcOptions {
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

function strangerOptions(limits: ServerLimits): GrpcOptions {
  return {
    ...memberOptions(limits),
    'grpc.max_receive_message_length': MAX_JOIN_BYTES,
    'grpc.max_concurrent_streams': 2,
    // Megabytes.
    'grpc-node.max_session_memory': 1,
  }
}

function listen(server: NetServer, { host, port }: ServeBrokerInit['listen']): Promise<void> {
  return new Promise((resolve, reject) => {
    const onError = (error: NodeJS.ErrnoException): void => reject(new ListenError(host, port, error))
    server.once('error', onError)
    server.listen(port, host, () => {
      server.off('error', onError)
      resolve()
    })
  })
}
