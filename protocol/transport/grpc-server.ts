/**
 * The broker's port. One port for everybody: TLS is terminated here, with a client certificate asked for but not
 * demanded (Join has none yet), and the connection is then handed to grpc-js. peer-check.ts says who it is, and
 * connections.ts how many may come. Members and strangers have each their own grpc-js server: what a stranger may send
 * is a Join, and no more. The port may serve several clustersets (hosting/).
 */
import { type AddressInfo, type Server as NetServer, createServer as createNetServer } from 'node:net'
import { type TLSSocket, createServer } from 'node:tls'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { Metrics } from '../../runtime/metrics/metrics.ts'
import type { BrokerApi } from '../protocol.ts'
import type { BrokerServiceDeps, FailedCall } from './broker-service.ts'
import { type ConnectionLimits, Connections, DEFAULT_CONNECTION_LIMITS, peerText } from './connections.ts'
import { Hosted, type HostedInit, type HostingDeps, type ServerTls, secureOptions } from './hosted-clusterset.ts'
import { ConnectionLife } from './connection-life.ts'
import { serverMetrics } from './server-metrics.ts'

export type { ServerTls } from './hosted-clusterset.ts'

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
  /** Serves another clusterset at the same port, whose name must be its own, until its `close`. */
  host(other: HostedInit): HostedClusterset
  /** Sends members away, ends every stream with "the broker is stopping" and closes the port. */
  close(): Promise<void>
}

export interface HostedClusterset {
  /** For new connections; open ones stay as they are. */
  setTls(tls: ServerTls): void
  /** Ends every stream of it with "the broker is stopping"; the port goes on. */
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
  const { clock, logger } = init
  const metrics = serverMetrics(init.metrics)
  const connections: Connections = new Connections({
    clock,
    metrics,
    limits,
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
  /** Who asks for none of the others gets the first one, as from a broker that has no others. */
  const hostedAs = (name: string): Hosted => [...others].find((one) => one.isCalled(name)) ?? first

  const tls = createServer({
    ...secureOptions(init.tls),
    requestCert: true,
    // Checked in peer-check.ts, so that Join works without a certificate and a refusal can say why.
    rejectUnauthorized: false,
    minVersion: 'TLSv1.3',
    // Not ALPNProtocols: of those each socket has a copy of its own, which holds 64 KiB of a pool of buffers.
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
    // Node reports a handshake that takes too long, and leaves the connection open.
    socket.destroy()
  })
  tls.on('secureConnection', (socket: TLSSocket) => {
    socket.on('error', (error) => logger.debug('connection broke', { why: error.message }))
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
      await closed
    },
  }
}

/** As the caller has it now, also where it goes on with a TLS session of before. */
function serverNameAsked(socket: TLSSocket): string {
  const name: unknown = Reflect.get(socket, 'servername')
  return typeof name === 'string' ? name : ''
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
