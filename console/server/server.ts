/**
 * The HTTP server of the console: the files of the page, one snapshot, and a stream of what changes. It reads only, and
 * answers only pages of its own origin.
 */
import { randomBytes } from 'node:crypto'
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { extname, join, resolve } from 'node:path'
import type { Clock } from '../../reconcile/reconcile.ts'
import { createServer, createServerOverTls } from '../../runtime/http/http.ts'
import { type HostPort, UserError, formatHostPort, listenAt, messageOf, sourceKey } from '../../runtime/runtime.ts'
import { parseFrom, parseTo } from '../../explain/path/path.ts'
import {
  type AskedPath,
  type ConsoleState,
  type PathAnswer,
  type WrongAnswer,
  failedPath,
  wrongPath,
} from '../state/state.ts'
import { type Admission, LOGIN_PATH, admit, admitReader, cookieName, isLoopback, isSameSecret } from './admission.ts'
import { EventStreams, type StreamLimits } from './event-streams.ts'
import { type Forward, Forwarder } from './forwarder.ts'
import { ANSWER_HEADER, type Readers } from './readers.ts'

export type { Forward, ForwardedAnswer } from './forwarder.ts'
export { ANSWER_HEADER, Readers, TOKEN_HEADER } from './readers.ts'

export interface ConsoleServerInit {
  /** With port 0 the kernel chooses a port. */
  readonly listen: HostPort
  readonly page: PageFiles
  readonly clock: Clock
  /** Asked from every caller. Without it only loopback is allowed. */
  readonly token?: string | undefined
  readonly tls?: { readonly cert: Buffer; readonly key: Buffer } | undefined
  readonly limits?: Partial<ConsoleLimits>
  /** Explains one call, by facts that are read for it. Undefined: the path is not there. */
  readonly explain?: ((question: AskedPath, signal: AbortSignal) => Promise<PathAnswer>) | undefined
  /** This console runs in a cluster, behind the API server's proxy: it answers these readers and no browser. */
  readonly readers?: Readers | undefined
  /** Where the answers come from, if not from here. */
  readonly forward?: Forward | undefined
}

export interface ConsoleLimits extends StreamLimits {
  readonly connections: number
  /** From a request until the client has received the last octet of an answer that ends. */
  readonly answerMs: number
  /** Between two attempts to log in, of all clients together. */
  readonly loginMs: number
  /** Until the facts of an explanation are read; later the answer is 504. */
  readonly explainMs: number
  /** Between two explanations, of all clients together. Only one is made at a time. */
  readonly explainEveryMs: number
  /** How long a reader follows by one token; then it has to show one again. */
  readonly readerMs: number
}

/**
 * A change waits for `everyMs` at most, and then for the page, which parses, draws its rows and is painted: some 60 ms.
 * Together they are to take at most 250 ms.
 */
const LIMITS: ConsoleLimits = {
  ...{ clients: 32, everyMs: 170, beatMs: 5000, unreadMs: 10_000 },
  ...{ connections: 128, answerMs: 10_000, loginMs: 1000, explainMs: 30_000, explainEveryMs: 500, readerMs: 600_000 },
}
const MAX_HEADER_BYTES = 8 * 1024
const MAX_LOGIN_BYTES = 4096
/** A page that is loaded, or that lost its stream, is open again after a moment. */
const READ_MS = 60_000
const TEXT = 'text/plain; charset=utf-8'
const JSON_TYPE = { 'content-type': 'application/json' }
const EXPLAIN_PATH = '/api/explain'
const EVENTS_PATH = '/api/events'

/** No other host, no script but ours, no frame of another page. */
const HEADERS = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  // With no-referrer, browsers send `Origin: null` with the form that has the token.
  'referrer-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'cache-control': 'no-store',
} as const

export interface ConsoleServer {
  /** `http://127.0.0.1:9480/` */
  readonly url: string
  /** How many pages are open. */
  readonly pages: number
  /** Whether a page is open, or a request was answered within the last minute. */
  readonly isRead: boolean
  publish(state: ConsoleState): void
  close(): Promise<void>
}

/**
 * Resolves once the server listens. Throws UserError for another address than loopback without a token, and if the
 * address cannot be used.
 */
export async function serveConsolePage(init: ConsoleServerInit): Promise<ConsoleServer> {
  const { listen, page, clock, token, tls, explain, readers } = init
  if (!isLoopback(listen.host) && token === undefined && readers === undefined) {
    throw new UserError(`--listen ${formatHostPort(listen)}: other machines can reach this address`, {
      hint: 'name a file with a token: --token-file FILE; or listen on loopback',
    })
  }
  const limits = { ...LIMITS, ...init.limits }
  const streams = new EventStreams(clock, limits)
  const forwarder = init.forward === undefined ? undefined : new Forwarder(init.forward, limits)
  const scheme = tls === undefined ? 'http' : 'https'
  const session = randomBytes(32).toString('base64url')
  let port = listen.port
  let state: ConsoleState | undefined
  let loginAt = -Infinity
  let answeredAt = -Infinity
  let explainedAt = -Infinity
  let isExplaining = false

  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { method = '', url = '', headers } = request
    const path = url.split('?', 1)[0] ?? ''
    for (const [name, value] of Object.entries(HEADERS)) response.setHeader(name, value)
    if (readers !== undefined) response.setHeader(ANSWER_HEADER, '1')
    const asked = { method, path, headers }
    const admission =
      readers === undefined
        ? admit(asked, { scheme, host: listen.host, port, token, session })
        : admitReader(asked, await readers.read(asked, request.socket.remoteAddress ?? ''))
    // Its end was not heard of during a review.
    if (response.destroyed) return
    if (admission.t === 'answer') answeredAt = clock.monotonic()
    if (admission.t === 'answer' && path === EVENTS_PATH && forwarder === undefined) {
      if (streams.add(response)) {
        if (readers !== undefined) endLater(response)
        return
      }
      reply(response, 503, `${limits.clients} pages are open already: close one\n`, { 'retry-after': '10' })
      return
    }
    // Socket timeouts restart with every octet that the client receives.
    const done = new AbortController()
    response.once('close', () => done.abort())
    const isForwarded = admission.t === 'answer' && forwarder !== undefined
    const isQuestion = admission.t === 'answer' && path === EXPLAIN_PATH && (explain !== undefined || isForwarded)
    const late = new AbortController()
    const limit = async (): Promise<void> => {
      if (isQuestion) {
        await clock.sleep(limits.explainMs, done.signal)
        const why = `no answer within ${limits.explainMs / 1000} s`
        if (!response.headersSent) reply(response, 504, JSON.stringify(failedPath(why)), JSON_TYPE)
        late.abort(new Error(why))
      }
      await clock.sleep(limits.answerMs, done.signal)
      response.destroy()
    }
    if (!isForwarded || path !== EVENTS_PATH) void limit().catch(() => undefined)
    if (isForwarded) await forwarder.answer(url, response, AbortSignal.any([done.signal, late.signal]))
    else if (admission.t === 'refused') refuse(response, admission)
    else if (admission.t === 'login') await login(request, response)
    else if (isQuestion && explain !== undefined)
      await answerPath(url, response, explain, AbortSignal.any([done.signal, late.signal]))
    else answerFile(response, path)
  }

  /** The page opens the stream again, with a token of then. */
  const endLater = (response: ServerResponse): void => {
    const done = new AbortController()
    response.once('close', () => done.abort())
    const end = (): void => streams.end(response)
    void clock.sleep(limits.readerMs, done.signal).then(end, () => undefined)
  }

  const answerFile = (response: ServerResponse, path: string): void => {
    if (path === '/api/state') {
      if (state === undefined) reply(response, 503, 'no facts yet\n', { 'retry-after': '1' })
      else reply(response, 200, JSON.stringify(state), JSON_TYPE)
      return
    }
    const file = page.get(path)
    if (file === undefined) reply(response, 404, 'try /, /api/state, /api/events or /api/explain?from=FROM&to=TO\n')
    else reply(response, 200, file.body, { 'content-type': file.type })
  }

  /** One at a time: each reads facts from the API server or the site. */
  const answerPath = async (
    url: string,
    response: ServerResponse,
    explainOne: NonNullable<ConsoleServerInit['explain']>,
    signal: AbortSignal,
  ): Promise<void> => {
    const question = questionOf(url)
    if ('t' in question) {
      reply(response, 400, JSON.stringify(question), JSON_TYPE)
      return
    }
    if (isExplaining || clock.monotonic() - explainedAt < limits.explainEveryMs) {
      reply(response, 429, 'another path is being explained: try again in a moment\n', { 'retry-after': '1' })
      return
    }
    isExplaining = true
    try {
      const found = await explainOne(question, signal)
      if (!response.headersSent) reply(response, 200, JSON.stringify(found), JSON_TYPE)
    } catch (error) {
      // It took too long, which was said already.
      if (response.headersSent) return
      // The client has gone, or the server closes.
      if (signal.aborted) response.destroy()
      else reply(response, 502, JSON.stringify(failedPath(messageOf(error))), JSON_TYPE)
    } finally {
      isExplaining = false
      explainedAt = clock.monotonic()
    }
  }

  const login = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = await bodyOf(request)
    const now = clock.monotonic()
    if (now - loginAt < limits.loginMs) {
      reply(response, 429, 'too many attempts: try again in a moment\n', { 'retry-after': '1' })
      return
    }
    loginAt = now
    const given = new URLSearchParams(body).get('token') ?? ''
    if (token === undefined || !isSameSecret(given, token)) {
      refuse(response, { t: 'refused', code: 401, text: 'this is not the token of --token-file', asks: true })
      return
    }
    const secure = tls === undefined ? '' : '; Secure'
    const cookie = `${cookieName(port)}=${session}; Path=/; HttpOnly; SameSite=Strict${secure}`
    reply(response, 303, '', { location: './', 'set-cookie': cookie })
  }

  const listener = (request: IncomingMessage, response: ServerResponse): void => {
    answer(request, response).catch(() => response.destroy())
  }
  const options = {
    headersTimeout: limits.answerMs,
    requestTimeout: limits.answerMs,
    keepAliveTimeout: 5000,
    connectionsCheckingInterval: 1000,
    maxHeaderSize: MAX_HEADER_BYTES,
  }
  const server =
    tls === undefined
      ? createServer(options, listener)
      : tlsServer({ ...options, handshakeTimeout: limits.answerMs, ...tls }, listener)
  limitConnections(server, limits.connections)
  await listening(server, listen)
  const bound = server.address() as AddressInfo
  port = bound.port
  return {
    url: `${scheme}://${formatHostPort({ host: listen.host, port })}/`,
    get pages() {
      return streams.size
    },
    get isRead() {
      return streams.size > 0 || clock.monotonic() - answeredAt < READ_MS
    },
    publish: (next) => {
      state = next
      streams.publish(next)
    },
    close: () =>
      new Promise((resolve) => {
        streams.close()
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

/** No end of a call is longer: a name of DNS has at most 253 characters. */
const MAX_END = 320

/** Takes the ends as `sealane explain` takes them, or says what is wrong with them. */
function questionOf(url: string): AskedPath | WrongAnswer {
  const asked = new URLSearchParams(url.slice(url.indexOf('?') + 1))
  const [from, to] = [asked.get('from') ?? '', asked.get('to') ?? '']
  try {
    const [fromContext, toContext] = [asked.get('fromContext') ?? undefined, asked.get('toContext') ?? undefined]
    for (const text of [from, to, fromContext ?? '', toContext ?? '']) {
      if (text.length > MAX_END) throw new Error(`expected at most ${MAX_END} characters`)
    }
    return { from: parseFrom(from), to: parseTo(to), fromContext, toContext }
  } catch (error) {
    return wrongPath(messageOf(error), 'see: sealane explain --help')
  }
}

/** Throws UserError for a certificate or key that cannot be used. */
function tlsServer(...[options, listener]: Parameters<typeof createServerOverTls>): Server {
  try {
    return createServerOverTls(options, listener)
  } catch (cause) {
    throw new UserError(`--tls-cert and --tls-key: ${messageOf(cause)}`, {
      hint: 'expected a certificate and its private key, both as PEM',
      cause,
    })
  }
}

/** An address in use keeps its code, so that a caller can choose another port. */
export class AddressInUseError extends UserError {}

async function listening(server: Server, wanted: HostPort): Promise<void> {
  try {
    await listenAt(server, wanted)
  } catch (error) {
    const cause = error as NodeJS.ErrnoException
    const place = `--listen ${formatHostPort(wanted)}`
    if (cause.code !== 'EADDRINUSE') throw new UserError(`${place}: ${cause.message}`, { cause })
    const hint = 'use another port, or port 0 for any'
    throw new AddressInUseError(`${place}: another process uses the port`, { hint, cause })
  }
  // A connection that cannot be accepted ends neither the page nor the process.
  server.on('error', () => undefined)
}

interface Connection {
  readonly socket: Socket
  /** sourceKey() */
  readonly source: string
  /** Requests that are being answered. */
  requests: number
}

/**
 * Where there are too many, the oldest without a request closes, of the source that has the most of them; without one,
 * the newest closes. A caller that only holds connections does not keep others away.
 */
function limitConnections(server: Server, most: number): void {
  // A TLS connection and the socket below it share the far end.
  const connections = new Map<string, Connection>()
  const keyOf = ({ remoteAddress = '', remotePort = 0 }: Socket): string => `${remoteAddress} ${remotePort}`
  server.on('connection', (socket: Socket) => {
    const key = keyOf(socket)
    if (connections.size >= most) {
      const surplus = surplusOf([...connections.values()])
      if (surplus === undefined) {
        socket.destroy()
        return
      }
      connections.delete(keyOf(surplus.socket))
      surplus.socket.destroy()
    }
    const mine = { socket, source: sourceKey(socket.remoteAddress), requests: 0 }
    connections.set(key, mine)
    socket.once('close', () => {
      if (connections.get(key) === mine) connections.delete(key)
    })
  })
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    const connection = connections.get(keyOf(request.socket))
    if (connection === undefined) return
    connection.requests += 1
    response.once('close', () => (connection.requests -= 1))
  })
}

function surplusOf(connections: readonly Connection[]): Connection | undefined {
  const idle = connections.filter(({ requests }) => requests === 0)
  const counts = new Map<string, number>()
  for (const { source } of idle) counts.set(source, (counts.get(source) ?? 0) + 1)
  const most = Math.max(...counts.values())
  return idle.find(({ source }) => counts.get(source) === most)
}

type Headers = Readonly<Record<string, string>>

function reply(response: ServerResponse, code: number, body: string | Buffer, headers: Headers = {}): void {
  response.writeHead(code, { 'content-type': TEXT, ...headers })
  response.end(body)
}

function refuse(response: ServerResponse, { code, text, asks }: Extract<Admission, { t: 'refused' }>): void {
  // The rest of the request is not read.
  const close = { connection: 'close' }
  if (asks !== true) reply(response, code, `${text}\n`, close)
  else reply(response, code, loginPage(text), { ...close, 'content-type': 'text/html; charset=utf-8' })
}

/** `text` is one of our own. */
function loginPage(text: string): string {
  return `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Sealane: log in</title>
<main><h1>Sealane console</h1><p role="alert">${text}</p>
<form method="post" action=".${LOGIN_PATH}"><label>Token
<input name="token" type="password" autocomplete="current-password" required autofocus></label>
<button>Log in</button></form></main></html>
`
}

/** Rejects for a body that is too long. */
async function bodyOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length
    if (size > MAX_LOGIN_BYTES) throw new Error('the body is too long')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString()
}

// The files of the built page, in memory: what is not in this list is not served.

export interface PageFile {
  readonly type: string
  readonly body: Buffer
}

/** By path: `/` and `/assets/page-x1y2.js`. */
export type PageFiles = ReadonlyMap<string, PageFile>

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
}

/** In dist/, all files are one folder below it; a checkout that runs its sources has it at its root. */
const FOLDERS = ['../console-page', '../../dist/console-page']

/** Throws UserError if the page was not built. */
export function readPageFiles(folders: readonly string[] = FOLDERS): PageFiles {
  const folder = folders
    .map((name) => resolve(import.meta.dirname, name))
    .find((path) => existsSync(join(path, 'index.html')))
  if (folder === undefined) {
    throw new UserError('the page of the console is not built', { hint: 'build it: npm run build' })
  }
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' })
  return new Map(
    names.flatMap((name): readonly (readonly [string, PageFile])[] => {
      const type = TYPES[extname(name)]
      if (type === undefined) return []
      const path = name === 'index.html' ? '/' : `/${name.replaceAll('\\', '/')}`
      return [[path, { type, body: readFileSync(join(folder, name)) }]]
    }),
  )
}
