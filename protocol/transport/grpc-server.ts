/**
 * The broker's port for all callers. It terminates TLS, requests a client certificate without requiring one (Join has
 * none yet), and passes the connection to grpc-js. peer-check.ts identifies the peer, and connections.ts limits the
 * connections. Members and strangers have separate grpc-js servers, because a stranger may only send a Join. One port
 * can serve several clustersets (hosted-clusterset.ts).
 */
import { type AddressInfo, type Server as NetServer, createServer as createNetServer } from 'node:net'
import { type TLSSocket, createServer } from 'node:tls'
import type { Clock } from '../../reconcile/reconcile.ts'
import { formatHostPort, listenAt } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { Metrics } from '../../runtime/metrics/metrics.ts'
import type { SharedPort } from '../../runtime/shared-port/shared-port.ts'
import type { BrokerApi } from '../protocol.ts'
import type { BrokerServiceDeps, FailedCall } from './broker-service.ts'
import { type ConnectionLimits, Connections, DEFAULT_CONNECTION_LIMITS, peerText } from './connections.ts'
import { Hosted, type HostedInit, type HostingDeps, type ServerTls, secureOptions } from './hosted-clusterset.ts'
import { ConnectionLife } from './connection-life.ts'
import { serverMetrics } from './server-metrics.ts'

export type { ServerTls } from './hosted-clusterset.ts'

export interface ServerLimits extends ConnectionLimits {
  /** Concurrent streams of one connection: the watches and the publish stream of a member, and one call. */
  readonly maxStreamsPerConnection: number
  /**
   * The broker pings each connection every `keepaliveMs`, and closes it after `keepaliveTimeoutMs` without an answer.
   */
  readonly keepaliveMs: number
  readonly keepaliveTimeoutMs: number
  readonly idleMs: number
  /** Time that close() waits for running calls. */
  readonly graceMs: number
  /** Mean age after which a member must reconnect, so that members spread over the replicas; 0 for no limit. */
  readonly connectionAgeMs: number
  /** Time within which close() first sends members away, one by one; 0 to end all at once. */
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

export interface ServeBrokerInit {
  readonly api: BrokerApi
  readonly tls: ServerTls
  /** Port 0 selects a free port. */
  readonly listen: { readonly host: string; readonly port: number }
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics?: Metrics
  readonly limits?: Partial<ServerLimits>
  /** Another server on the same port, for clients that ask for HTTP/1.1. Absent: there is none. */
  readonly shared?: SharedPort | undefined
  /** Called for each call that is refused or fails. */
  readonly onFailed?: (call: FailedCall) => void
}

export interface BrokerServer {
  readonly address: { readonly host: string; readonly port: number }
  /** Applies to new connections. Open connections stay as they are. */
  setTls(tls: ServerTls): void
  /**
   * Set to true while the data of this broker may be older than that of other replicas. Members are sent away, and
   * those that connect anyway stay for about a minute. Their calls are answered.
   */
  setCutOff(isCutOff: boolean): void
  /** Serves another clusterset on the same port until it is closed. Its name must be unique. */
  host(other: HostedInit): HostedClusterset
  /** Sends members away, ends every stream with "the broker is stopping" and closes the port. */
  close(): Promise<void>
}

export interface HostedClusterset {
  /** Applies to new connections. Open connections stay as they are. */
  setTls(tls: ServerTls): void
  /** Ends every stream of the clusterset with "the broker is stopping". The port stays open. */
  close(): Promise<void>
}

/** The broker cannot listen on its port. */
export class ListenError extends Error {
  constructor(host: string, port: number, cause: NodeJS.ErrnoException) {
    const reasons: Readonly<Record<string, string>> = {
      EADDRINUSE: 'another process uses the address',
      EACCES: 'not permitted (ports below 1024 need root)',
      EADDRNOTAVAIL: 'this machine does not have that address',
    }
    const why = reasons[cause.code ?? ''] ?? cause.message
    super(`cannot listen on ${formatHostPort({ host, port })}: ${why}`, { cause })
    this.name = 'ListenError'
  }
}

/** Serves until close() is called. Throws ListenError. */
export async function serveBroker(init: ServeBrokerInit): Promise<BrokerServer> {
  const limits = { ...DEFAULT_SERVER_LIMITS, ...init.limits }
  const { clock, logger } = init
  const metrics = serverMetrics(init.metrics)
  const connections: Connections = new Connections({
    clock,
    metrics,
    limits,
    shared: init.shared,
    startHandshake: (socket) => void tls.emit('connection', socket),
  })
  const drop = (peer: string): void => connections.drop(peer)
  const life = new ConnectionLife({ clock, ageMs: limits.connectionAgeMs, drop })
  const deps: HostingDeps = {
    ...{ clock, logger, metrics, drop },
    verdictOf: (peer) => connections.verdictOf(peer),
    refusalLevel: refusalLevel(clock),
    lifeOf: (peer) => life.signalOf(peer),
  }
  const first = new Hosted({ ...init, name: '' }, deps, limits)
  const others = new Set<Hosted>()
  /** A client that asks for none of the others gets the first clusterset, as at a broker with a single one. */
  const hostedAs = (name: string): Hosted => [...others].find((one) => one.isCalled(name)) ?? first

  const tls = createServer({
    ...secureOptions(init.tls),
    requestCert: true,
    // peer-check.ts checks the certificate, so that Join works without one and a refusal can name the reason.
    rejectUnauthorized: false,
    minVersion: 'TLSv1.3',
    // With ALPNProtocols, every socket would keep a copy of the list that pins 64 KiB of a buffer pool.
    ALPNCallback: ({ protocols }) => (protocols.includes('h2') ? 'h2' : undefined),
    handshakeTimeout: limits.handshakeTimeoutMs,
    noDelay: true,
    SNICallback: (name, done) => {
      const hosted = hostedAs(name)
      done(null, hosted === first ? undefined : hosted.context)
    },
  })
  tls.on('tlsClientError', (error: Error, socket: TLSSocket) => {
    logger.debug('TLS handshake failed', { why: error.message })
    // Node reports a handshake timeout, but leaves the connection open.
    socket.destroy()
  })
  tls.on('secureConnection', (socket: TLSSocket) => {
    socket.on('error', (error) => logger.debug('the connection failed', { why: error.message }))
    if (socket.alpnProtocol !== 'h2') {
      socket.destroy()
      return
    }
    const hosted = hostedAs(serverNameAsked(socket))
    const found = connections.validate(socket, hosted)
    if (found === 'member') begin(life, socket)
    hosted.take(socket, found)
  })
  const port = createNetServer({ noDelay: true }, (socket) => connections.accept(socket))
  await listen(port, init.listen)
  const { address, port: number } = port.address() as AddressInfo
  return {
    address: { host: address, port: number },
    setTls(next) {
      tls.setSecureContext(secureOptions(next))
      first.setTls(next)
    },
    host(other) {
      const hosted = new Hosted(other, deps, limits)
      others.add(hosted)
      return {
        setTls: (next) => hosted.setTls(next),
        close: () => {
          others.delete(hosted)
          return hosted.close()
        },
      }
    },
    setCutOff: (isCutOff) => life.setCutOff(isCutOff),
    async close() {
      await life.drain(limits.drainMs)
      const closed = new Promise<void>((resolve) => port.close(() => resolve()))
      connections.destroyWaiting()
      const ended = [first, ...others].map((hosted) => hosted.close())
      const cancel = clock.setTimer(limits.graceMs, () => connections.destroyAll())
      await connections.allClosed()
      cancel()
      await Promise.all(ended)
      const cancelShared = clock.setTimer(limits.graceMs, () => init.shared?.destroyAll())
      await closed
      cancelShared()
    },
  }
}

/** Returns the server name of this connection, also after the resumption of a TLS session. */
function serverNameAsked(socket: TLSSocket): string {
  const name: unknown = Reflect.get(socket, 'servername')
  return typeof name === 'string' ? name : ''
}

function begin(life: ConnectionLife, socket: TLSSocket): void {
  const peer = peerText(socket)
  life.begin(peer)
  socket.once('close', () => life.forget(peer))
}

/** Refusals per minute that are logged at `info`. */
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

async function listen(server: NetServer, { host, port }: ServeBrokerInit['listen']): Promise<void> {
  try {
    await listenAt(server, { host, port })
  } catch (error) {
    throw new ListenError(host, port, error as NodeJS.ErrnoException)
  }
}
