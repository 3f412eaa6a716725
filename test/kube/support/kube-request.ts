/** A tiny client of the Kubernetes API for tests, so that what they look at does not pass through the product. */
import { Agent, request } from 'node:https'
import { type Connection, readKubeconfig } from './kubeconfig-file.ts'

/** An object as it is in JSON. */
export type Json = Record<string, unknown>

/** An object of any kind, with the parts that every object has. */
export interface KubeObject extends Json {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: {
    readonly name: string
    readonly namespace?: string
    readonly uid?: string
    readonly resourceVersion?: string
    readonly labels?: Readonly<Record<string, string>>
    readonly annotations?: Readonly<Record<string, string>>
    readonly [field: string]: unknown
  }
}

/** An answer outside 200 to 299. */
export class KubeRequestError extends Error {
  readonly status: number
  /** Status.reason, such as NotFound or Forbidden; '' without one. */
  readonly reason: string
  constructor(what: string, status: number, body: string) {
    const said = statusOf(body)
    super(`${what}: ${status} ${said.reason} ${said.message}`.trim())
    this.name = 'KubeRequestError'
    this.status = status
    this.reason = said.reason
  }
}

export interface KubeRequest {
  /** Any request: gives the status code and the body's text, whatever the code is. */
  raw(method: string, path: string, options?: RawOptions): Promise<{ readonly status: number; readonly text: string }>
  get<T = KubeObject>(path: string): Promise<T>
  /** undefined when there is none. */
  find<T = KubeObject>(path: string): Promise<T | undefined>
  /** The items of a list. */
  list<T = KubeObject>(path: string): Promise<readonly T[]>
  post<T = KubeObject>(path: string, body: object): Promise<T>
  put<T = KubeObject>(path: string, body: object): Promise<T>
  /** Server-side apply, forced, as field manager `test`. */
  apply<T = KubeObject>(path: string, body: object): Promise<T>
  /** JSON merge patch. */
  merge<T = KubeObject>(path: string, body: object): Promise<T>
  /** Deletes; that there was none is fine. */
  delete(path: string): Promise<void>
  /** Closes the kept connections. */
  close(): void
}

export interface RawOptions {
  readonly body?: object
  readonly contentType?: string
  /** Default application/json. */
  readonly accept?: string
  /** Default 30,000. */
  readonly timeoutMs?: number
}

const APPLY = 'application/apply-patch+yaml'
const MERGE = 'application/merge-patch+json'

/** A client for a kubeconfig file (of writeKubeconfig) or a connection. Paths begin with /api or /apis. */
export function kubeRequest(target: string | Connection): KubeRequest {
  const connection = typeof target === 'string' ? readKubeconfig(target) : target
  const { credentials } = connection
  const agent = new Agent({
    keepAlive: true,
    // An idle connection must not keep a test's process alive.
    timeout: 60_000,
    ca: connection.ca,
    ...('token' in credentials ? {} : { cert: credentials.certificate, key: credentials.key }),
  })
  const headers = 'token' in credentials ? { authorization: `Bearer ${credentials.token}` } : {}

  const raw: KubeRequest['raw'] = (method, path, options = {}) =>
    send(new URL(path, connection.url), { method, agent, headers }, options)

  async function json<T>(method: string, path: string, body?: object, contentType?: string): Promise<T> {
    const options = { ...(body === undefined ? {} : { body }), ...(contentType === undefined ? {} : { contentType }) }
    const { status, text } = await raw(method, path, options)
    if (status < 200 || status > 299) throw new KubeRequestError(`${method} ${path}`, status, text)
    return JSON.parse(text) as T
  }

  return {
    raw,
    get: (path) => json('GET', path),
    find: (path) => json<never>('GET', path).catch(absent),
    list: async <T>(path: string) => (await json<{ items: readonly T[] }>('GET', path)).items,
    post: (path, body) => json('POST', path, body),
    put: (path, body) => json('PUT', path, body),
    apply: (path, body) => json('PATCH', withQuery(path, 'fieldManager=test&force=true'), body, APPLY),
    merge: (path, body) => json('PATCH', path, body, MERGE),
    delete: async (path) => {
      await json('DELETE', path).catch(absent)
    },
    close: () => agent.destroy(),
  }
}

interface Sending {
  readonly method: string
  readonly agent: Agent
  readonly headers: Record<string, string>
}

function send(url: URL, init: Sending, options: RawOptions): Promise<{ status: number; text: string }> {
  const { body, accept = 'application/json', contentType = 'application/json', timeoutMs = 30_000 } = options
  const headers = { accept, ...init.headers, ...(body ? { 'content-type': contentType } : {}) }
  return new Promise((resolve, reject) => {
    const sent = request(url, { ...init, headers, signal: AbortSignal.timeout(timeoutMs) }, (answer) => {
      const chunks: Buffer[] = []
      answer.on('data', (chunk: Buffer) => chunks.push(chunk))
      answer.on('error', reject)
      answer.on('end', () => resolve({ status: answer.statusCode ?? 0, text: Buffer.concat(chunks).toString() }))
    })
    sent.on('error', (error) => reject(new Error(`${init.method} ${url.pathname}: ${error.message}`, { cause: error })))
    sent.end(body === undefined ? undefined : JSON.stringify(body))
  })
}

function withQuery(path: string, query: string): string {
  return `${path}${path.includes('?') ? '&' : '?'}${query}`
}

function absent(error: unknown): undefined {
  if (error instanceof KubeRequestError && error.status === 404) return undefined
  throw error
}

function statusOf(body: string): { reason: string; message: string } {
  try {
    const { reason = '', message = '' } = JSON.parse(body) as { reason?: string; message?: string }
    return { reason, message }
  } catch {
    return { reason: '', message: body.slice(0, 300) }
  }
}
