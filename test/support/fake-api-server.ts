/**
 * An API server for tests, over real sockets: enough of list, watch, server-side apply, status and errors to tell a
 * correct client from one that is not, and every fault that a real one may have. It speaks HTTP/2 and HTTP/1.1 over
 * TLS, or HTTP/1.1 without.
 */
import { createServer } from 'node:http'
import { type Http2ServerRequest, type Http2ServerResponse, createSecureServer } from 'node:http2'
import type { AddressInfo, Socket } from 'node:net'
import { join } from 'node:path'
import type { Test } from 'tap'
import { KIND_PLACES } from '../../kubeapi/kube/kinds.ts'
import { type CertificateRequest, type ClusterCa, makeClusterCa } from '../kube/support/cluster-certificates.ts'
import { type Credentials, writeKubeconfig } from '../kube/support/kubeconfig-file.ts'
import { temporaryFolder } from './temporary-folder.ts'
import { type FakeEvent, FakeObjects, type FakeApiPath, FakeRefusal, absent } from './fake-objects.ts'

type Json = Record<string, unknown>
type Request = Pick<Http2ServerRequest, 'method' | 'url' | 'headers' | 'rawHeaders' | 'on' | 'socket'>
type Response = Pick<Http2ServerResponse, 'writeHead' | 'write' | 'end' | 'on'>

/**
 * Answers instead of the server; undefined lets the server answer. `unheard` means that the request takes effect and
 * its answer is lost. `stall` is an error whose body begins and never ends.
 */
export type Fault = (request: {
  readonly method: string
  readonly path: string
  readonly query: URLSearchParams
}) =>
  | { status: number; headers?: Record<string, string>; body?: unknown }
  | 'hang'
  | 'cut'
  | 'stall'
  | 'unheard'
  | undefined

export interface FakeApiServerInit {
  /** The default is h2. */
  readonly speak?: 'h2' | 'http1' | 'plain'
}

const KINDS = new Map(
  Object.entries(KIND_PLACES).map(([kind, { apiVersion, plural }]) => [`${apiVersion}/${plural}`, kind]),
)
KINDS.set('v1/secrets', 'Secret')
KINDS.set('apps/v1/deployments', 'Deployment')
KINDS.set('apps/v1/daemonsets', 'DaemonSet')
KINDS.set('networking.k8s.io/v1/networkpolicies', 'NetworkPolicy')
KINDS.set('v1/configmaps', 'ConfigMap')
KINDS.set('events.k8s.io/v1/events', 'Event')
KINDS.set('v1/events', 'Event')

const AUTHORIZATION = 'authorization.k8s.io/v1'
const REVIEW = { name: 'selfsubjectaccessreviews', kind: 'SelfSubjectAccessReview', namespaced: false }

/** What a user wants to do, as a SelfSubjectAccessReview asks. */
export interface FakeAccess {
  /** The name in the client certificate; '' for a client with a token. */
  readonly user: string
  readonly verb: string
  readonly group: string
  readonly resource: string
}

/** The token in kubeconfigs. */
export const TOKEN = 'let-me-in'

const UNHEARD = { writeHead() {}, write: () => true, end() {}, on() {} } as unknown as Response

export class FakeApiServer {
  readonly objects = new FakeObjects()
  /** The requests, as `GET /api/v1/services?limit=500`, oldest first. */
  readonly requests: string[] = []
  /** Requests that hang now: their clients still wait. */
  hanging = 0
  /** The impersonation headers of the last request, as `impersonate-group: dev`. */
  impersonation: string[] = []
  /** Each apiVersion/plural that is not installed. */
  readonly missing = new Set<string>()
  fault: Fault | undefined
  /** Whether watches send nothing by themselves. */
  muted = false
  /** The tokens that are accepted; if it is empty, all are. */
  readonly tokens = new Set<string>()
  /** Answers SelfSubjectAccessReviews. Undefined: the API group of such reviews is not served. */
  allows: ((access: FakeAccess) => boolean) | undefined
  url = ''
  kubeconfig = ''
  readonly #init: FakeApiServerInit
  #ca: ClusterCa | undefined
  #folder = ''
  readonly #sockets = new Set<Socket>()
  readonly #watches = new Set<{ readonly resource: string; readonly response: Response }>()

  constructor(init: FakeApiServerInit) {
    this.#init = init
  }

  /** How many connections are open. */
  get connections(): number {
    return this.#sockets.size
  }

  watching(plural: string): number {
    return [...this.#watches].filter(({ resource }) => resource.endsWith(`/${plural}`)).length
  }

  async start(t: Pick<Test, 'teardown'>): Promise<void> {
    const folder = temporaryFolder(t)
    const ca = await makeClusterCa('fake')
    const { certificate, key } = await ca.issue({ name: 'fake', hosts: ['127.0.0.1', 'localhost'] })
    const plain = this.#init.speak === 'plain'
    const handle = (request: Request, response: Response): void => void this.#handle(request, response)
    const server = plain
      ? createServer(handle as never)
      : createSecureServer(
          {
            cert: certificate,
            key,
            // A certificate is accepted or refused by HTTP and not by TLS, as a real server does it.
            ca: ca.certificate,
            requestCert: true,
            rejectUnauthorized: false,
            allowHTTP1: true,
            ...(this.#init.speak === 'http1' ? { ALPNProtocols: ['http/1.1'] } : {}),
          },
          handle as never,
        )
    server.on('connection', (socket: Socket) => {
      this.#sockets.add(socket)
      socket.on('error', () => undefined)
      socket.once('close', () => this.#sockets.delete(socket))
    })
    server.on('sessionError', () => undefined)
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    t.teardown(() => {
      this.cut()
      server.close()
    })
    const { port } = server.address() as AddressInfo
    this.url = `${plain ? 'http' : 'https'}://127.0.0.1:${port}`
    this.#ca = ca
    this.#folder = folder
    this.kubeconfig = this.kubeconfigAt(this.url)
  }

  /** A kubeconfig for the same server behind another address. */
  kubeconfigAt(url: string): string {
    const path = join(this.#folder, `kubeconfig-${new URL(url).port}`)
    return this.#kubeconfig(path, 'fake', url, { token: TOKEN })
  }

  /** A kubeconfig for a user with a client certificate of the cluster's authority. */
  async kubeconfigFor(request: Pick<CertificateRequest, 'name' | 'groups' | 'validMs'>): Promise<string> {
    if (this.#ca === undefined) throw new Error('the server is not started')
    const credentials = await this.#ca.issue(request)
    return this.#kubeconfig(join(this.#folder, `kubeconfig-${request.name}`), request.name, this.url, credentials)
  }

  #kubeconfig(path: string, user: string, url: string, credentials: Credentials): string {
    return writeKubeconfig(path, { cluster: 'fake', user, url, ca: this.#ca?.certificate ?? '', credentials })
  }

  /** Breaks every connection. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy()
  }

  /** Ends every watch in good order, as a server does when the time of the watch is over. */
  endWatches(): void {
    for (const { response } of [...this.#watches]) response.end()
  }

  /** Writes a line unchanged into every watch of a resource. */
  sendLine(plural: string, line: string): void {
    for (const { resource, response } of this.#watches) if (resource.endsWith(`/${plural}`)) response.write(`${line}\n`)
  }

  bookmark(plural: string, version = this.objects.version): void {
    const object = { metadata: { resourceVersion: String(version) } }
    this.sendLine(plural, JSON.stringify({ type: 'BOOKMARK', object }))
  }

  /** The path of a kind's object, for objects.put() and the like. */
  place(kind: keyof typeof KIND_PLACES, name: string, namespace?: string): FakeApiPath {
    const { apiVersion, plural } = KIND_PLACES[kind]
    return { resource: `${apiVersion}/${plural}`, apiVersion, kind, namespace, name }
  }

  async #handle(request: Request, response: Response): Promise<void> {
    const url = new URL(request.url, 'http://fake')
    this.requests.push(`${request.method} ${request.url}`)
    this.impersonation = impersonationIn(request.rawHeaders)
    const body = await readBody(request)
    const fault = this.fault?.({ method: request.method, path: url.pathname, query: url.searchParams })
    if (fault === 'hang') {
      this.hanging += 1
      response.on('close', () => (this.hanging -= 1))
      return
    }
    if (fault === 'cut') this.cut()
    else if (fault === 'stall') response.writeHead(503, { 'content-type': 'application/json' }).write('{')
    else if (fault === 'unheard') this.#answer(request, url, body, UNHEARD)
    else if (fault !== undefined) answer(response, fault.status, fault.body ?? {}, fault.headers)
    else this.#answer(request, url, body, response)
  }

  #answer(request: Request, url: URL, body: Json, response: Response): void {
    try {
      const token = (request.headers.authorization ?? '').replace('Bearer ', '')
      if (this.tokens.size > 0 && !this.tokens.has(token)) throw new FakeRefusal(401, 'Unauthorized', 'Unauthorized')
      const user = userOf(request)
      if (this.allows !== undefined && url.pathname.startsWith(`/apis/${AUTHORIZATION}`)) {
        this.#review(this.allows, { method: request.method, user, body }, response)
      } else if (request.headers['content-type'] === 'application/merge-patch+json') {
        answer(response, 200, this.objects.merge(this.#parse(url.pathname).place, body))
      } else this.#serve(request.method, url, body, response)
    } catch (error) {
      if (!(error instanceof FakeRefusal)) throw error
      const { status: code, reason, message, details } = error
      answer(response, code, { kind: 'Status', status: 'Failure', code, reason, message, details })
    }
  }

  #review(
    allows: (access: FakeAccess) => boolean,
    { method, user, body }: { readonly method: string; readonly user: string; readonly body: Json },
    response: Response,
  ): void {
    if (method !== 'POST') {
      answer(response, 200, { kind: 'APIResourceList', resources: [REVIEW] })
      return
    }
    const { resourceAttributes } = body['spec'] as { readonly resourceAttributes: Omit<FakeAccess, 'user'> }
    answer(response, 201, { ...body, status: { allowed: allows({ ...resourceAttributes, user }) } })
  }

  #serve(method: string, url: URL, body: Json, response: Response): void {
    const { place, subresource, discovery } = this.#parse(url.pathname)
    const query = url.searchParams
    const { name, resource, namespace } = place
    if (discovery !== undefined) answer(response, 200, this.#resources(discovery))
    else if (query.get('watch') === 'true') this.#watch(resource, namespace, query, response)
    else if (method === 'GET' && name === '') answer(response, 200, this.#list(resource, namespace, query))
    else if (method === 'GET') answer(response, 200, this.objects.get(place) ?? refuse(absent(place)))
    else if (method === 'DELETE') {
      const kept = this.objects.delete(place, (body['preconditions'] as { uid?: string } | undefined)?.uid)
      answer(response, 200, kept ?? { kind: 'Status', status: 'Success', metadata: {} })
    } else if (method === 'PATCH') {
      const init = { manager: query.get('fieldManager') ?? '', force: query.get('force') === 'true' }
      const { object, created } = this.objects.apply(place, body, { ...init, status: subresource === 'status' })
      answer(response, created ? 201 : 200, object)
    } else answer(response, 201, this.#written(method, place, body))
  }

  #written(method: string, place: FakeApiPath, body: Json): unknown {
    const metadata = body['metadata'] as { name: string; resourceVersion?: string }
    const named = { ...place, name: metadata.name }
    const present = this.objects.get(named)
    if (method === 'POST' && present !== undefined)
      throw new FakeRefusal(409, 'AlreadyExists', `${metadata.name} exists`)
    if (method === 'PUT' && metadata.resourceVersion !== present?.metadata.resourceVersion) {
      throw new FakeRefusal(409, 'Conflict', `${metadata.name}: the object has been modified`)
    }
    return this.objects.put(named, body)
  }

  #list(resource: string, namespace: string | undefined, query: URLSearchParams): unknown {
    const all = this.objects.list(resource, namespace)
    const limit = Number(query.get('limit') ?? all.length)
    const from = Number(query.get('continue') ?? 0)
    const items = all.slice(from, from + limit).map(({ apiVersion: _a, kind: _k, ...item }) => item)
    const more = from + limit < all.length ? String(from + limit) : ''
    return { kind: 'List', metadata: { resourceVersion: String(this.objects.version), continue: more }, items }
  }

  #watch(resource: string, namespace: string | undefined, query: URLSearchParams, response: Response): void {
    const from = Number(query.get('resourceVersion'))
    response.writeHead(200, { 'content-type': 'application/json' })
    // Headers are sent with the first bytes of the body, unless they are flushed.
    ;(response as unknown as { flushHeaders?: () => void }).flushHeaders?.()
    if (from < this.objects.compacted) {
      const object = { kind: 'Status', code: 410, reason: 'Expired', message: 'too old resource version' }
      response.write(`${JSON.stringify({ type: 'ERROR', object })}\n`)
      response.end()
      return
    }
    const send = ({ resource: of, type, object }: FakeEvent): void => {
      if (this.muted || of !== resource || (namespace !== undefined && object.metadata.namespace !== namespace)) return
      response.write(`${JSON.stringify({ type, object })}\n`)
    }
    for (const event of this.objects.eventsAfter(from)) send(event)
    const watch = { resource, response }
    this.#watches.add(watch)
    const stop = this.objects.onEvent(send)
    response.on('close', () => {
      stop()
      this.#watches.delete(watch)
    })
  }

  #parse(path: string): { place: FakeApiPath; subresource: string | undefined; discovery?: string } {
    const [, root = '', ...rest] = path.split('/')
    const apiVersion = root === 'api' ? rest.splice(0, 1).join('/') : rest.splice(0, 2).join('/')
    const namespaced = rest[0] === 'namespaces' && rest.length > 2
    const namespace = namespaced ? rest.splice(0, 2)[1] : undefined
    const [plural, name = '', subresource] = rest
    const resource = `${apiVersion}/${plural ?? ''}`
    const place = { resource, apiVersion, kind: KINDS.get(resource) ?? '', namespace, name }
    if (plural === undefined) return { place, subresource: undefined, discovery: apiVersion }
    if (place.kind === '' || this.missing.has(resource)) {
      throw new FakeRefusal(404, 'NotFound', 'the server could not find the requested resource')
    }
    return { place, subresource }
  }

  #resources(apiVersion: string): unknown {
    const served = [...KINDS].filter(
      ([resource]) => resource.startsWith(`${apiVersion}/`) && !this.missing.has(resource),
    )
    return {
      kind: 'APIResourceList',
      resources: served.map(([resource, kind]) => ({
        name: resource.split('/').at(-1),
        kind,
        namespaced:
          !/^(Namespace|Node|Cluster(Property|AccessPolicy|TrafficPolicy)?|Endpoint|Gateway|RouteAgent|Membership)$/.test(
            kind,
          ),
      })),
    }
  }
}

/** A server that runs until the test ends. */
export async function fakeApiServer(t: Pick<Test, 'teardown'>, init: FakeApiServerInit = {}): Promise<FakeApiServer> {
  const server = new FakeApiServer(init)
  await server.start(t)
  return server
}

/**
 * The user of the client certificate. Throws for a certificate that the cluster's authority did not sign, or that has
 * expired.
 */
function userOf({ socket }: Request): string {
  // Without TLS there is no client certificate.
  if (!('getPeerCertificate' in socket)) return ''
  const { subject } = socket.getPeerCertificate()
  // A client without a certificate has an empty one here.
  if ((subject as { readonly CN?: string } | undefined) === undefined) return ''
  if (!socket.authorized) throw new FakeRefusal(401, 'Unauthorized', 'Unauthorized')
  return String(subject.CN)
}

function refuse(refusal: FakeRefusal): never {
  throw refusal
}

function answer(response: Response, status: number, body: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers })
  response.end(typeof body === 'string' ? body : JSON.stringify(body))
}

async function readBody(request: Request): Promise<Json> {
  const chunks: Buffer[] = []
  await new Promise<void>((resolve) => {
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => resolve())
    request.on('aborted', () => resolve())
  })
  const text = Buffer.concat(chunks).toString()
  return text === '' ? {} : (JSON.parse(text) as Json)
}

/** Names and values alternate. */
export function impersonationIn(rawHeaders: readonly string[]): string[] {
  return rawHeaders.flatMap((name, i) => {
    const reported = i % 2 === 0 && name.toLowerCase().startsWith('impersonate-')
    return reported ? [`${name.toLowerCase()}: ${rawHeaders[i + 1] ?? ''}`] : []
  })
}
