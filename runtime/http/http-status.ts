/**
 * Serves /healthz, /readyz, /status, /metrics and /debug/plan of one process, over plain HTTP and read only. Callers
 * outside this machine's loopback get no plans and no reasons, since these contain addresses and peers. They get
 * metrics only if the configuration names the listen address. Callers that the status board turns away get no answer.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import type { Clock } from '../../reconcile/reconcile.ts'
import {
  type HostPort,
  type StatusBoard,
  UserError,
  formatHostPort,
  listenAt,
  sourceKey,
  messageOf,
  parseHostPort,
} from '../runtime.ts'
import type { Counter, Metrics } from '../metrics/metrics.ts'
import { createServer } from './node-http.ts'

export interface StatusServerInit {
  /** `host:port`, or `:port` for loopback; with port 0 the kernel chooses a port. */
  readonly listen: string
  readonly status: StatusBoard
  readonly metrics: Metrics
  readonly clock: Clock
  readonly limits?: Partial<StatusLimits>
  /** Source addresses with connection slots of their own, such as the node's; none if absent. */
  readonly near?: readonly string[]
  /**
   * Who gets metrics besides loopback. By default, every caller of a server with a specific listen address, and no
   * caller of one that listens on all addresses, as in pods for the kubelet's probes.
   */
  readonly metricsFor?: 'namedAddresses' | 'everywhere'
}

/** Limits for one client, in milliseconds. */
export interface StatusLimits {
  /** From the first octet of a request to the end of its headers. */
  readonly headersMs: number
  /** From a request until the client has received the last octet of the answer. */
  readonly answerMs: number
  /** For a connection without a request. */
  readonly idleMs: number
}

const LIMITS: StatusLimits = { headersMs: 5000, answerMs: 10_000, idleMs: 5000 }
const MAX_HEADER_BYTES = 8 * 1024
const MAX_CONNECTIONS = 64
/** A probe is one connection, and the kubelet opens few at once. */
const MAX_NEAR = 16

export interface StatusServer {
  /** The actual listen address. */
  readonly address: HostPort
  close(): Promise<void>
}

interface Reply {
  readonly code: number
  readonly text: string
  readonly type?: string
  /** Closes the connection, since the rest of the request is not read. */
  readonly hangUp?: boolean
}

const TEXT = 'text/plain; charset=utf-8'
/** Exposition format 0.0.4, as prom-client writes it. */
const METRICS = 'text/plain; version=0.0.4; charset=utf-8'
const JSON_TYPE = 'application/json'

/** Registers the metric that every process has. */
export function turnedAwayCounter(metrics: Metrics): Counter {
  return metrics.counter({
    name: 'sealane_status_turned_away_total',
    help: 'Connections from pods of other clusters to the status page, closed without an answer.',
  })
}

/** Resolves once the server listens. Throws UserError if the port is in use or the address is not on this machine. */
export async function serveStatus(init: StatusServerInit): Promise<StatusServer> {
  const text = init.listen.startsWith(':') ? `127.0.0.1${init.listen}` : init.listen
  const wanted = parseHostPort(text, 'status address', true)
  const limits = { ...LIMITS, ...init.limits }
  const options = {
    headersTimeout: limits.headersMs,
    requestTimeout: limits.answerMs,
    keepAliveTimeout: limits.idleMs,
    connectionsCheckingInterval: Math.min(1000, limits.headersMs),
    maxHeaderSize: MAX_HEADER_BYTES,
  }
  const server = createServer(options, (request, response) => {
    // Socket timeouts restart with every octet that the client receives.
    const done = new AbortController()
    response.once('close', () => done.abort())
    const hangUp = (): void => void response.destroy()
    void init.clock.sleep(limits.answerMs, done.signal).then(hangUp, () => undefined)
    void answer(init, request, response)
  })
  const turnedAway = turnedAwayCounter(init.metrics)
  limitConnections(server, {
    ...{ most: MAX_CONNECTIONS, mostNear: MAX_NEAR, near: init.near ?? [] },
    turnsAway: (source) => {
      const isTurnedAway = init.status.turnsAway(source)
      if (isTurnedAway) turnedAway.inc()
      return isTurnedAway
    },
  })
  await listenAt(server, wanted).catch((error: unknown) => {
    throw listenError(error as NodeJS.ErrnoException, wanted)
  })
  // A connection that cannot be accepted ends neither the page nor the process.
  server.on('error', () => undefined)
  const bound = server.address() as AddressInfo
  return {
    address: { host: bound.address, port: bound.port },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

function listenError(error: NodeJS.ErrnoException, wanted: HostPort): Error {
  const place = formatHostPort(wanted)
  switch (error.code) {
    case 'EADDRINUSE':
      return new UserError(`status address ${place}: another process uses the port`, {
        hint: `find it with: ss -ltnp 'sport = :${wanted.port}'`,
        cause: error,
      })
    case 'EADDRNOTAVAIL':
      return new UserError(`status address ${place}: this machine has no such address`, { cause: error })
    case 'EACCES':
      return new UserError(`status address ${place}: ports below 1024 need root`, { cause: error })
    case undefined:
    default:
      return new UserError(`status address ${place}: ${error.message}`, { cause: error })
  }
}

async function answer(init: StatusServerInit, request: IncomingMessage, response: ServerResponse): Promise<void> {
  let reply: Reply
  try {
    reply = await replyTo(init, request)
  } catch (error) {
    const reason = messageOf(error)
    reply = { code: 500, text: isFromHere(request) ? `${reason}\n` : 'failed\n' }
  }
  const hangUp = reply.hangUp === true ? { connection: 'close' } : {}
  response.writeHead(reply.code, { 'content-type': reply.type ?? TEXT, 'cache-control': 'no-store', ...hangUp })
  response.end(request.method === 'HEAD' ? undefined : reply.text)
}

async function replyTo(init: StatusServerInit, request: IncomingMessage): Promise<Reply> {
  const { status, metrics } = init
  if (request.method !== 'GET' && request.method !== 'HEAD') return { code: 405, text: 'only GET\n', hangUp: true }
  const url = parseTarget(request.url ?? '/')
  const here = isFromHere(request)
  switch (url?.pathname) {
    case '/healthz':
      return { code: 200, text: 'ok\n' }
    case '/readyz': {
      const reasons = status.notReady()
      if (reasons.length === 0) return { code: 200, text: 'ready\n' }
      return { code: 503, text: here ? `${reasons.join('\n')}\n` : 'not ready\n' }
    }
    case '/status':
      return {
        code: 200,
        text: `${JSON.stringify({ ...status.reports(), now: timeText(init.clock) })}\n`,
        type: JSON_TYPE,
      }
    case '/metrics':
      if (!here && !givesMetrics(init))
        return {
          code: 403,
          text: 'metrics are available on loopback only: name an address in --status-listen to open them\n',
        }
      return { code: 200, text: await metrics.text(), type: METRICS }
    case '/debug/plan':
      if (!here) return { code: 403, text: 'plans contain addresses and peers and are available on loopback only\n' }
      return planReply(status.plans(), url.searchParams.get('name'))
    case undefined:
    default: {
      const detail = url === undefined ? undefined : status.detailOf(url.pathname.replace(/^\/debug\//, ''))
      if (detail !== undefined && url?.pathname.startsWith('/debug/') === true) {
        if (!here) return { code: 403, text: 'this page contains addresses and is available on loopback only\n' }
        return { code: 200, text: `${JSON.stringify(detail())}\n`, type: JSON_TYPE }
      }
      return {
        code: 404,
        text: here ? 'try /healthz, /readyz, /status, /metrics or /debug/plan\n' : 'try /readyz or /status\n',
      }
    }
  }
}

/** The time of this machine's clock: the caller's clock may differ. */
function timeText(clock: Clock): string {
  const now = new Date(clock.now())
  return Number.isNaN(now.getTime()) ? '' : now.toISOString()
}

function givesMetrics({ listen, metricsFor = 'namedAddresses' }: StatusServerInit): boolean {
  return metricsFor === 'everywhere' || !/^(0\.0\.0\.0|\[(::|0(:0){7})\]):/.test(listen)
}

/** Checks both ends: kube-proxy lets a node's neighbours send packets to its loopback (route_localnet). */
function isFromHere({ socket }: IncomingMessage): boolean {
  return isLoopback(socket.localAddress) && isLoopback(socket.remoteAddress)
}

function isLoopback(address = ''): boolean {
  const bare = address.startsWith('::ffff:') ? address.slice('::ffff:'.length) : address
  return bare === '::1' || bare.startsWith('127.')
}

function parseTarget(target: string): URL | undefined {
  return URL.canParse(target, 'http://status') ? new URL(target, 'http://status') : undefined
}

/** Returns all plans under headings, or a single one, so that it can be piped into nft, ip or wg. */
function planReply(plans: ReadonlyMap<string, string>, name: string | null): Reply {
  if (name !== null) {
    const plan = plans.get(name)
    if (plan !== undefined) return { code: 200, text: endLine(plan) }
    return { code: 404, text: `no plan ${JSON.stringify(name)}; plans are: ${[...plans.keys()].sort().join(', ')}\n` }
  }
  return { code: 200, text: [...plans].map(([key, plan]) => `# ${key}\n${endLine(plan)}`).join('\n') }
}

function endLine(text: string): string {
  return text === '' || text.endsWith('\n') ? text : `${text}\n`
}

// Limits the connections of a server. A new connection always gets a slot. If all are taken, it replaces one without a
// complete request: the oldest of the source with the most such connections. So no client can block others by holding
// connections, even from many addresses: an honest client sends its request at once and is answered within
// milliseconds. Near sources have slots of their own, whatever the others hold. A source that is turned away is cut off
// before it gets a slot.

interface Held {
  readonly socket: Socket
  readonly source: string
  /** The number of requests that are being answered. */
  answering: number
}

interface ConnectionSlots {
  /** Slots for all sources that are not near. */
  readonly most: number
  readonly mostNear: number
  /** Near addresses, such as that of the node whose kubelet probes. */
  readonly near: readonly string[]
  /** Whether an address that is not near gets no slot at all. Called once for each connection. */
  readonly turnsAway: (address: string) => boolean
}

/** Limits the server's connections from now on. */
function limitConnections(server: Pick<Server, 'on'>, { most, mostNear, near, turnsAway }: ConnectionSlots): void {
  /** In the order of arrival. */
  const [others, own] = [new Map<Socket, Held>(), new Map<Socket, Held>()]
  const isNear = new Set(near)
  server.on('connection', (socket: Socket) => {
    const address = (socket.remoteAddress ?? '').replace(/^::ffff:/, '')
    const isOwn = isNear.has(address)
    if (!isOwn && turnsAway(address)) {
      // A reset leaves no state here, whereas a closed connection would stay for a minute.
      socket.resetAndDestroy()
      return
    }
    const [held, limit] = isOwn ? [own, mostNear] : [others, most]
    if (held.size >= limit) evict(held)
    held.set(socket, { socket, source: sourceKey(address), answering: 0 })
    socket.once('close', () => held.delete(socket))
  })
  server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
    const one = own.get(socket) ?? others.get(socket)
    if (one === undefined) return
    one.answering += 1
    response.once('close', () => (one.answering -= 1))
  })
}

function evict(held: Map<Socket, Held>): void {
  const all = [...held.values()]
  const idle = all.filter(({ answering }) => answering === 0)
  const from = idle.length > 0 ? idle : all
  const counts = new Map<string, number>()
  for (const { source } of from) counts.set(source, (counts.get(source) ?? 0) + 1)
  const largest = Math.max(...counts.values())
  const victim = from.find(({ source }) => counts.get(source) === largest)
  if (victim === undefined) return
  held.delete(victim.socket)
  victim.socket.destroy()
}
