/**
 * /healthz, /readyz, /metrics and /debug/plan of one process. Plain HTTP, read only; on loopback unless told
 * otherwise, because plans name addresses and peers.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type HostPort, formatHostPort, parseHostPort } from './host-port.ts'
import type { Metrics } from './metrics.ts'
import { createServer } from './node-http.ts'
import type { StatusBoard } from './status-board.ts'
import { UserError } from './user-error.ts'

export interface StatusServerInit {
  /** `host:port`, or `:port` for loopback; port 0 lets the system pick. */
  readonly listen: string
  readonly status: StatusBoard
  readonly metrics: Metrics
}

export interface StatusServer {
  /** Where it really listens. */
  readonly address: HostPort
  close(): Promise<void>
}

interface Reply {
  readonly code: number
  readonly text: string
  readonly type?: string
}

const TEXT = 'text/plain; charset=utf-8'
/** Exposition format 0.0.4, as prom-client writes it. */
const METRICS = 'text/plain; version=0.0.4; charset=utf-8'

/** Resolves once it listens. Throws UserError where the port is taken or the address is not ours. */
export async function serveStatus(init: StatusServerInit): Promise<StatusServer> {
  const text = init.listen.startsWith(':') ? `127.0.0.1${init.listen}` : init.listen
  const wanted = parseHostPort(text, 'status address', true)
  const server = createServer((request, response) => void answer(init, request, response))
  server.requestTimeout = 10_000
  server.maxConnections = 64
  await listen(server, wanted)
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

function listen(server: Server, { host, port }: HostPort): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => reject(listenError(error, { host, port })))
    server.listen({ host, port, exclusive: true }, resolve)
  })
}

function listenError(error: NodeJS.ErrnoException, wanted: HostPort): Error {
  const place = formatHostPort(wanted)
  switch (error.code) {
    case 'EADDRINUSE':
      return new UserError(`status address ${place}: the port is taken by another process`, {
        hint: `see who has it with: ss -ltnp 'sport = :${wanted.port}'`,
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
    reply = { code: 500, text: `${error instanceof Error ? error.message : String(error)}\n` }
  }
  response.writeHead(reply.code, { 'content-type': reply.type ?? TEXT, 'cache-control': 'no-store' })
  response.end(request.method === 'HEAD' ? undefined : reply.text)
}

async function replyTo({ status, metrics }: StatusServerInit, request: IncomingMessage): Promise<Reply> {
  if (request.method !== 'GET' && request.method !== 'HEAD') return { code: 405, text: 'only GET\n' }
  const url = parseTarget(request.url ?? '/')
  switch (url?.pathname) {
    case '/healthz':
      return { code: 200, text: 'ok\n' }
    case '/readyz': {
      const reasons = status.notReady()
      return reasons.length === 0 ? { code: 200, text: 'ready\n' } : { code: 503, text: `${reasons.join('\n')}\n` }
    }
    case '/metrics':
      return { code: 200, text: await metrics.text(), type: METRICS }
    case '/debug/plan':
      return planReply(status.plans(), url.searchParams.get('name'))
    case undefined:
    default:
      return { code: 404, text: 'try /healthz, /readyz, /metrics or /debug/plan\n' }
  }
}

function parseTarget(target: string): URL | undefined {
  return URL.canParse(target, 'http://status') ? new URL(target, 'http://status') : undefined
}

/** All plans under headings, or one alone so that it can be piped into nft, ip or wg. */
function planReply(plans: ReadonlyMap<string, string>, name: string | null): Reply {
  if (name !== null) {
    const plan = plans.get(name)
    if (plan !== undefined) return { code: 200, text: endLine(plan) }
    return { code: 404, text: `no plan ${JSON.stringify(name)}; there is: ${[...plans.keys()].sort().join(', ')}\n` }
  }
  return { code: 200, text: [...plans].map(([key, plan]) => `# ${key}\n${endLine(plan)}`).join('\n') }
}

function endLine(text: string): string {
  return text === '' || text.endsWith('\n') ? text : `${text}\n`
}
