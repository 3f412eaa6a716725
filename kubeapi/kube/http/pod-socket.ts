/** Opens a WebSocket to a subresource of a pod: login, handshake and its deadline, refusals. */
import type { IncomingMessage } from 'node:http'
import WebSocket from 'ws'
import { type Clock, abortReason, orAborted } from '../../../reconcile/reconcile.ts'
import {
  type RequestLine,
  KubeError,
  LoginError,
  errorFromAnswer,
  errorFromConnection,
  noAnswer,
} from '../kube-error.ts'
import { resourcePath } from '../kinds.ts'
import type { Credentials, ServerAccess } from '../server-access.ts'
import { proxiedAgent } from './proxied-agent.ts'

export interface PodSocketDeps {
  readonly clock: Clock
  readonly access: ServerAccess
}

export interface PodSocketRequest {
  /** For messages. */
  readonly asked: RequestLine
  readonly namespace: string
  readonly pod: string
  /** With its query: `exec?container=web`. */
  readonly subresource: string
  /** WebSocket subprotocols, the preferred one first. */
  readonly protocols: readonly string[]
}

/** Limit of the body of a refusal. */
const MAX_SAID_BYTES = 64 << 10
/** Limit until the server has accepted the connection, as for any other request. */
const HANDSHAKE_MS = 10_000

/**
 * Returns an open socket that is paused, so that no message is lost before the caller listens: resume() it then.
 *
 * Throws KubeError if the login fails, the server refuses the connection, cannot be reached or does not answer in time.
 * After status 401 the next call logs in again. Rejects with the signal's reason; the signal has no effect later.
 */
export async function openPodSocket(
  { clock, access }: PodSocketDeps,
  request: PodSocketRequest,
  signal: AbortSignal,
): Promise<WebSocket> {
  const { asked, protocols } = request
  const server = serverTitle(access)
  const late = new AbortController()
  const cancel = clock.setTimer(HANDSHAKE_MS, () => late.abort(noAnswer(asked, server, HANDSHAKE_MS)))
  try {
    const either = AbortSignal.any([signal, late.signal])
    either.throwIfAborted()
    const credentials = await login(access, either).catch((error: unknown) => {
      throw either.aborted ? abortReason(either) : errorFromConnection(asked, server, error)
    })
    const { headers, ...connection } = credentials
    const options = Object.fromEntries(Object.entries(connection).filter(([, value]) => value !== undefined))
    const { server: url, proxy } = access
    const agent = proxy === undefined ? {} : { agent: proxiedAgent({ clock, proxy, server: url, credentials }) }
    const socket = new WebSocket(socketUrl(url, request), [...protocols], { ...options, ...agent, headers })
    await opened(socket, { asked, server }, either)
    return socket
  } catch (error) {
    if (error instanceof KubeError && error.status === 401 && error.reason !== 'NoLogin') access.forget()
    throw error
  } finally {
    cancel()
  }
}

/** The API server in messages. */
export function serverTitle(access: ServerAccess): string {
  return access.server.href.replace(/\/$/, '')
}

async function login(access: ServerAccess, signal: AbortSignal): Promise<Credentials> {
  try {
    return await orAborted(access.credentials(signal), signal)
  } catch (error) {
    throw new LoginError(error)
  }
}

function socketUrl(server: URL, { namespace, pod, subresource }: PodSocketRequest): URL {
  const path = resourcePath({ apiVersion: 'v1', plural: 'pods' }, namespace, pod)
  const url = new URL(`${server.pathname.replace(/\/$/, '')}${path}/${subresource}`, server)
  url.protocol = server.protocol === 'http:' ? 'ws:' : 'wss:'
  return url
}

interface Attempt {
  readonly asked: RequestLine
  readonly server: string
}

/** Resolves when the socket is open, and pauses it. If this fails, the socket is terminated. */
function opened(socket: WebSocket, { asked, server }: Attempt, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const fail = (error: Error): void => {
      signal.removeEventListener('abort', onAbort)
      reject(error)
      socket.terminate()
    }
    const onAbort = (): void => fail(abortReason(signal))
    socket.on('open', () => {
      signal.removeEventListener('abort', onAbort)
      socket.pause()
      resolve()
    })
    socket.on('unexpected-response', (_request, response) => void refusal({ asked, server }, response).then(fail))
    // It stays, as a terminated socket emits an error too.
    socket.on('error', (error) => fail(errorFromConnection(asked, server, error)))
    signal.addEventListener('abort', onAbort, { once: true })
    if (signal.aborted) onAbort()
  })
}

/** The server answered but refused the connection. */
async function refusal({ asked, server }: Attempt, response: IncomingMessage): Promise<KubeError> {
  try {
    return errorFromAnswer(asked, response.statusCode ?? 0, await said(response))
  } catch (error) {
    return errorFromConnection(asked, server, error)
  }
}

/** Returns JSON or text; a body that is too long is truncated. */
async function said(response: IncomingMessage): Promise<unknown> {
  const parts: Buffer[] = []
  let bytes = 0
  for await (const part of response as AsyncIterable<Buffer>) {
    bytes += part.length
    parts.push(part)
    if (bytes > MAX_SAID_BYTES) break
  }
  const whole = Buffer.concat(parts).toString('utf8')
  try {
    return JSON.parse(whole) as unknown
  } catch {
    return whole
  }
}
