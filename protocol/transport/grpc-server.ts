/**
 * The broker's port. One port for everybody: TLS is terminated here, with a client certificate asked for but not
 * demanded (Join has none yet), and the connection is then handed to grpc-js. peer-check.ts says who it is.
 */
import { Server, ServerCredentials } from '@grpc/grpc-js'
import type { KeyObject } from 'node:crypto'
import type { AddressInfo, Socket } from 'node:net'
import { type TLSSocket, type TlsOptions, createServer } from 'node:tls'
import type { Clock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logger.ts'
import type { Metrics } from '../../runtime/metrics.ts'
import type { BrokerApi } from '../broker-api.ts'
import { CertificateError } from '../broker-client.ts'
import { keyToPem } from '../identity/keys.ts'
import { certificateToPem } from '../identity/pem.ts'
import { MAX_MESSAGE_BYTES } from '../limits.ts'
import { brokerService } from './broker-service.ts'
import { type PeerVerdict, judgePeer } from './peer-check.ts'
import { RAW_SERVICE } from './raw-service.ts'
import { type ServerMetrics, serverMetrics } from './server-metrics.ts'

export interface ServerTls {
  /** The broker's certificate and CA certificates, DER. The first CA is sent along: join tokens pin it. */
  readonly certificate: Uint8Array
  readonly key: KeyObject
  readonly ca: readonly Uint8Array[]
  readonly clusterset: string
}

export interface ServerLimits {
  readonly maxConnections: number
  readonly maxStreamsPerConnection: number
  readonly handshakeTimeoutMs: number
  /** A peer that answers no ping for this long is dropped. */
  readonly keepaliveMs: number
  readonly keepaliveTimeoutMs: number
  readonly idleMs: number
  /** How long `close` waits for calls under way. */
  readonly graceMs: number
}

export const DEFAULT_SERVER_LIMITS: ServerLimits = {
  maxConnections: 4096,
  maxStreamsPerConnection: 16,
  handshakeTimeoutMs: 10_000,
  keepaliveMs: 20_000,
  keepaliveTimeoutMs: 10_000,
  idleMs: 300_000,
  graceMs: 2000,
}

export interface ServeBrokerInit {
  readonly api: BrokerApi
  readonly tls: ServerTls
  /** Port 0 takes a free one. */
  readonly listen: { readonly host: string; readonly port: number }
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics?: Metrics
  readonly limits?: Partial<ServerLimits>
}

export interface BrokerServer {
  readonly address: { readonly host: string; readonly port: number }
  /** For new connections; open ones stay as they are. */
  setTls(tls: ServerTls): void
  /** Ends every stream with "the broker is stopping" and closes the port. */
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
  const metrics = serverMetrics(init.metrics)
  const connections = new Connections(init, metrics)
  const stopping = new AbortController()
  const grpc = new Server(grpcOptions(limits))
  const { api, clock, logger } = init
  const verdictOf = (peer: string): PeerVerdict => connections.verdictOf(peer)
  grpc.addService(RAW_SERVICE, brokerService({ api, clock, logger, metrics, stopping: stopping.signal, verdictOf }))
  const injector = grpc.createConnectionInjector(ServerCredentials.createInsecure())

  const tls = createServer({
    ...tlsOptions(init.tls),
    requestCert: true,
    // Judged in peer-check.ts, so that Join works without a certificate and a refusal can say why.
    rejectUnauthorized: false,
    minVersion: 'TLSv1.3',
    ALPNProtocols: ['h2'],
    handshakeTimeout: limits.handshakeTimeoutMs,
    noDelay: true,
  })
  tls.maxConnections = limits.maxConnections
  tls.on('connection', (socket: Socket) => connections.track(socket))
  tls.on('tlsClientError', (error: Error, socket: TLSSocket) => {
    logger.debug('TLS handshake failed', { reason: error.message })
    // Node reports a handshake that takes too long, and leaves the connection open.
    socket.destroy()
  })
  tls.on('secureConnection', (socket: TLSSocket) => {
    socket.on('error', (error) => logger.debug('connection broke', { reason: error.message }))
    if (socket.alpnProtocol !== 'h2') {
      socket.destroy()
      return
    }
    connections.judge(socket)
    injector.injectConnection(socket)
  })
  await listen(tls, init.listen)
  const { address, port } = tls.address() as AddressInfo
  return {
    address: { host: address, port },
    setTls(next) {
      tls.setSecureContext(tlsOptions(next))
      connections.clusterset = next.clusterset
    },
    async close() {
      const closed = new Promise<void>((resolve) => tls.close(() => resolve()))
      stopping.abort()
      injector.drain(limits.graceMs)
      const cancel = clock.setTimer(limits.graceMs, () => connections.destroyAll())
      await connections.allClosed()
      cancel()
      injector.destroy()
      grpc.forceShutdown()
      await closed
    },
  }
}

/** Open connections, and who is behind each. */
class Connections {
  clusterset: string
  readonly #metrics: ServerMetrics
  readonly #verdicts = new Map<string, PeerVerdict>()
  readonly #sockets = new Set<Socket>()
  #onEmpty: (() => void) | undefined

  constructor(init: ServeBrokerInit, metrics: ServerMetrics) {
    this.clusterset = init.tls.clusterset
    this.#metrics = metrics
  }

  track(socket: Socket): void {
    this.#sockets.add(socket)
    this.#metrics.connections(this.#sockets.size)
    socket.on('close', () => {
      this.#sockets.delete(socket)
      this.#metrics.connections(this.#sockets.size)
      if (this.#sockets.size === 0) this.#onEmpty?.()
    })
  }

  judge(socket: TLSSocket): void {
    const peer = `${socket.remoteAddress}:${socket.remotePort}`
    const verdict = judgePeer(socket, this.clusterset)
    this.#verdicts.set(peer, verdict)
    socket.on('close', () => {
      if (this.#verdicts.get(peer) === verdict) this.#verdicts.delete(peer)
    })
  }

  /** One address and port is one open connection, so the text that grpc-js gives names it. */
  verdictOf(peer: string): PeerVerdict {
    return (
      this.#verdicts.get(peer) ?? { t: 'stranger', error: new CertificateError('missing', 'the connection has closed') }
    )
  }

  destroyAll(): void {
    for (const socket of this.#sockets) socket.destroy()
  }

  async allClosed(): Promise<void> {
    if (this.#sockets.size === 0) return
    await new Promise<void>((resolve) => (this.#onEmpty = resolve))
  }
}

function tlsOptions(tls: ServerTls): TlsOptions {
  const ca = tls.ca.map(certificateToPem)
  return { cert: certificateToPem(tls.certificate) + (ca[0] ?? ''), key: keyToPem(tls.key), ca }
}

function grpcOptions(limits: ServerLimits): ConstructorParameters<typeof Server>[0] {
  return {
    'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
    'grpc.max_send_message_length': MAX_MESSAGE_BYTES,
    'grpc.max_concurrent_streams': limits.maxStreamsPerConnection,
    'grpc.keepalive_time_ms': limits.keepaliveMs,
    'grpc.keepalive_timeout_ms': limits.keepaliveTimeoutMs,
    'grpc.max_connection_idle_ms': limits.idleMs,
    'grpc.enable_channelz': 0,
  }
}

function listen(server: ReturnType<typeof createServer>, { host, port }: ServeBrokerInit['listen']): Promise<void> {
  return new Promise((resolve, reject) => {
    const onError = (error: NodeJS.ErrnoException): void => reject(new ListenError(host, port, error))
    server.once('error', onError)
    server.listen(port, host, () => {
      server.off('error', onError)
      resolve()
    })
  })
}
