/**
 * The hub of a plain site: serves the objects and Leases of the site to those of its nodes that do not see its folder.
 * A node proves its name by its certificate, reads everything and writes what accessProblem() lets it write. Nothing
 * here decides who is a node: `identify` and `enrol` do.
 */
import { randomBytes } from 'node:crypto'
import {
  type Http2SecureServer,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
  createSecureServer,
} from 'node:http2'
import type { AddressInfo } from 'node:net'
import type { TLSSocket } from 'node:tls'
import { type Kind, type KubeObject, MEMBERSHIP_NAME } from '../../model/model.ts'
import { type Clock, TokenBucket, withDeadline } from '../../reconcile/reconcile.ts'
import { messageOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { type ClusterApi, ClusterApiError, type LeaseStore, type ObjectCache, type StoredLease } from '../kubeapi.ts'
import { type HeldLease, holderOf } from '../lease/lease.ts'
import { WatchedKind } from './hub-watch.ts'
import { type AccessFacts, type NodeChange, accessProblem } from './plan-access.ts'
import {
  type EnrolRequest,
  type HubAnswer,
  type HubRequest,
  MAX_LINE,
  MAX_REQUEST,
  type PeerAnswer,
  type PeerRequest,
  REFUSAL_STATUS,
  isKind,
  parseEnrolRequest,
  parseHubRequest,
  parsePeerRequest,
} from './wire.ts'

/** PEM texts. */
export interface HubTls {
  readonly key: string
  readonly cert: string
  /** The authority of the site: certificates of nodes are from it. */
  readonly ca: string
}

/** `isHub`: the certificate is that of a hub of the site, which is also a node. */
export type Identified = { readonly node: string; readonly isHub?: boolean } | { readonly refused: string }

/** What changed, for the hub to wait until enough hubs have it. `enrolled`: a node that has used its invitation. */
export type Changed =
  | { readonly kind: Kind; readonly name: string; readonly namespace?: string | undefined }
  | { readonly lease: string }
  | { readonly enrolled: string }

export interface HubDeps extends HubBaseDeps, ActingDeps {}

/** What a hub needs also while another one acts. */
export interface HubBaseDeps {
  readonly clock: Clock
  readonly logger: Logger
  /** Takes the certificate (DER) of a caller, which the authority has issued. Called for each request. */
  readonly identify: (certificate: Uint8Array) => Identified
  /** Answers another hub of the site. Absent where there is one hub. */
  readonly peer?: (request: PeerRequest) => Promise<PeerAnswer>
}

/** What the acting hub serves. */
export interface ActingDeps {
  readonly api: ClusterApi
  readonly leases: LeaseStore
  /** Default: 0. */
  readonly term?: number
  /**
   * Resolves once a change outlives this hub. Throws ClusterApiError Unavailable if this hub does not act (any more).
   * Also called before a change, without one. Default: resolves.
   */
  readonly confirm?: (changed: Changed | undefined, signal: AbortSignal) => Promise<void>
  /** Gives a certificate in PEM for an invitation. Throws ClusterApiError Forbidden and Invalid. */
  readonly enrol: (request: EnrolRequest) => Promise<string>
  /** Gives a node that has a certificate another one for the same key, in PEM. Throws ClusterApiError. */
  readonly renew: (node: string, csr: string, certificate: Uint8Array) => Promise<string>
  /** The text of the site file. */
  readonly readSite: () => Promise<string>
  /** Why a node may not make a change. Default: accessProblem(). */
  readonly refuse?: (change: NodeChange, facts: AccessFacts) => string | undefined
}

export interface HubInit {
  readonly host: string
  readonly port: number
  readonly tls: HubTls
}

/** A node has a process for each component at most, and CLI commands beside them. */
const MAX_SESSIONS_OF_NODE = 16
/** Connections without a certificate, which only enrol, and how long one may last. */
const MAX_STRANGERS = 16
const STRANGER_MS = 10_000
const MAX_CONNECTIONS = 512
/** One watch for each kind, and requests. */
const MAX_STREAMS = 64
const REQUEST_MS = 10_000
const HANDSHAKE_MS = 5000
/** A silent peer is disconnected after one to two of these. It is also how soon a revoked node is. */
const LOOK_MS = 15_000
/** A gateway writes once a second at most, and a few more in a change. */
const RATE = { burst: 200, perSecond: 50 }
const ENROL_RATE = { burst: 10, perSecond: 1 }

interface Session {
  readonly session: ServerHttp2Session
  readonly certificate: Uint8Array | undefined
  readonly address: string
  readonly close: () => void
}

interface Caller {
  readonly node: string
  readonly isHub: boolean
  readonly certificate: Uint8Array
}

interface NodeState {
  sessions: number
  readonly requests: TokenBucket
}

/** For the status page. */
export interface HubState {
  readonly nodes: readonly string[]
  /** Requests and connections that were refused since the start. */
  readonly refused: number
}

/** One time that a hub acts. */
class Office {
  readonly deps: ActingDeps
  readonly kinds = new Map<Kind, WatchedKind>()
  readonly leases = new Map<string, { readonly version: string; readonly changedMs: number }>()
  readonly stop = new AbortController()
  readonly #clock: Clock
  readonly #epoch = randomBytes(8).toString('hex')
  readonly #forget: () => void

  constructor(clock: Clock, deps: ActingDeps) {
    this.#clock = clock
    this.deps = deps
    this.#forget = deps.api.cache('Lease').onChange((change) => {
      if (change?.type === 'set') this.changedMs(change.object)
    })
  }

  /** When this hub first saw the present content of a Lease. */
  changedMs(lease: StoredLease): number {
    const { name } = lease.metadata
    const version = JSON.stringify(lease.spec ?? {})
    const known = this.leases.get(name)
    if (known?.version === version) return known.changedMs
    const changedMs = this.#clock.monotonic()
    this.leases.set(name, { version, changedMs })
    return changedMs
  }

  kind(name: Kind): WatchedKind {
    const known = this.kinds.get(name)
    if (known !== undefined) return known
    const cache = this.deps.api.cache(name) as ObjectCache<KubeObject>
    const kind = new WatchedKind({ clock: this.#clock, epoch: this.#epoch }, cache)
    this.kinds.set(name, kind)
    return kind
  }

  async confirm(changed: Changed | undefined, signal: AbortSignal): Promise<void> {
    await this.deps.confirm?.(changed, signal)
  }

  close(): void {
    this.stop.abort(new ClusterApiError('Unavailable', 'the hub is stopping'))
    this.#forget()
    for (const kind of this.kinds.values()) kind.close()
  }
}

export class Hub {
  readonly #deps: HubBaseDeps
  readonly #server: Http2SecureServer
  readonly #sessions = new Map<ServerHttp2Session, Session>()
  readonly #nodes = new Map<string, NodeState>()
  readonly #enrolments: TokenBucket
  #office: Office | undefined
  #strangers = 0
  #refused = 0

  constructor(deps: HubBaseDeps, tls: HubTls) {
    this.#deps = deps
    this.#enrolments = new TokenBucket(deps.clock)
    this.#server = createSecureServer({
      ...tls,
      // An invitation is used without a certificate. #caller() refuses every other request without one.
      requestCert: true,
      rejectUnauthorized: false,
      minVersion: 'TLSv1.3',
      handshakeTimeout: HANDSHAKE_MS,
      unknownProtocolTimeout: HANDSHAKE_MS,
      maxSessionMemory: 10,
      maxSessionInvalidFrames: 10,
      maxSessionRejectedStreams: 10,
      settings: { enablePush: false, maxConcurrentStreams: MAX_STREAMS, maxHeaderListSize: 4096 },
    })
    this.#server.maxConnections = MAX_CONNECTIONS
    this.#server.on('session', (session) => this.#opened(session))
    this.#server.on('stream', (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => {
      stream.on('error', () => undefined)
      void this.#serve(stream, String(headers[':method']), String(headers[':path']))
    })
    // A peer that breaks off its handshake is no trouble of the hub.
    for (const event of ['tlsClientError', 'sessionError', 'clientError']) this.#server.on(event, () => undefined)
  }

  /** Serves these objects from now on. */
  act(deps: ActingDeps): void {
    this.rest()
    this.#office = new Office(this.#deps.clock, deps)
  }

  /** Serves no objects from now on: nodes are disconnected, so that they find the hub that acts. */
  rest(): void {
    if (this.#office === undefined) return
    this.#office.close()
    this.#office = undefined
    for (const { session } of this.#sessions.values()) session.destroy()
  }

  /** Gives the address that it listens at. Throws the system's error. */
  async listen({
    host,
    port,
  }: Pick<HubInit, 'host' | 'port'>): Promise<{ readonly host: string; readonly port: number }> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject)
      this.#server.listen({ host, port }, () => {
        this.#server.off('error', reject)
        this.#server.on('error', (error) =>
          this.#deps.logger.warn('the hub has an error', { reason: 'RoundFailed', why: messageOf(error) }),
        )
        resolve()
      })
    })
    const { address, port: opened } = this.#server.address() as AddressInfo
    return { host: address, port: opened }
  }

  /** Uses another certificate for connections from now on. */
  renewTls(tls: HubTls): void {
    this.#server.setSecureContext({ ...tls, minVersion: 'TLSv1.3' })
  }

  state(): HubState {
    const nodes = [...this.#nodes].flatMap(([node, { sessions }]) => (sessions > 0 ? [node] : []))
    return { nodes: nodes.sort(), refused: this.#refused }
  }

  async close(): Promise<void> {
    this.rest()
    for (const { session } of this.#sessions.values()) session.destroy()
    await new Promise<void>((resolve) => this.#server.close(() => resolve()))
  }

  #opened(session: ServerHttp2Session): void {
    session.on('error', () => undefined)
    const socket = session.socket as TLSSocket
    const address = socket.remoteAddress ?? 'unknown'
    const certificate = socket.authorized ? socket.getPeerX509Certificate()?.raw : undefined
    const caller = certificate === undefined ? undefined : this.#deps.identify(certificate)
    const node = caller !== undefined && 'node' in caller ? this.#nodeState(caller.node) : undefined
    const isFull = node === undefined ? this.#strangers >= MAX_STRANGERS : node.sessions >= MAX_SESSIONS_OF_NODE
    if (isFull) {
      this.#refused += 1
      session.destroy()
      return
    }
    if (node === undefined) this.#strangers += 1
    else node.sessions += 1
    const cancel = node === undefined ? this.#endSoon(session) : this.#lookAfter(session, certificate)
    this.#sessions.set(session, { session, certificate, address, close: cancel })
    session.on('close', () => {
      cancel()
      this.#sessions.delete(session)
      if (node === undefined) this.#strangers -= 1
      else node.sessions -= 1
    })
  }

  #nodeState(node: string): NodeState {
    const known = this.#nodes.get(node)
    if (known !== undefined) return known
    // Only invited nodes have a certificate, so their number is the operator's choice.
    const state = { sessions: 0, requests: new TokenBucket(this.#deps.clock) }
    this.#nodes.set(node, state)
    return state
  }

  #endSoon(session: ServerHttp2Session): () => void {
    return this.#deps.clock.setTimer(STRANGER_MS, () => session.destroy())
  }

  /** Disconnects a node that does not answer, or that has been revoked or whose certificate has ended. */
  #lookAfter(session: ServerHttp2Session, certificate: Uint8Array | undefined): () => void {
    let isWaiting = false
    let cancel: () => void
    const look = (): void => {
      // A destroyed session emits "close" a moment later, and its ping() throws.
      if (session.destroyed) return
      if (isWaiting || certificate === undefined || 'refused' in this.#deps.identify(certificate)) {
        session.destroy()
        return
      }
      isWaiting = true
      session.ping((error: Error | null) => {
        if (error === null) isWaiting = false
      })
      cancel = this.#deps.clock.setTimer(LOOK_MS, look)
    }
    cancel = this.#deps.clock.setTimer(LOOK_MS, look)
    return () => cancel()
  }

  async #serve(stream: ServerHttp2Stream, method: string, path: string): Promise<void> {
    try {
      const watched = /^\/v1\/watch\/([A-Za-z]+)$/.exec(path)?.[1]
      if (method === 'GET' && watched !== undefined) {
        await this.#watch(stream, watched)
        return
      }
      if (method === 'GET' && path === '/v1/acting') {
        this.#answer(stream, { value: this.#acting().deps.term ?? 0 })
        return
      }
      if (method !== 'POST' || !['/v1/ask', '/v1/enrol', '/v1/hub'].includes(path))
        throw new ClusterApiError('NotFound', 'the hub has nothing at this path')
      if (path === '/v1/hub') {
        this.#answer(stream, { value: await this.#peer(stream) })
        return
      }
      const office = this.#acting()
      if (path === '/v1/enrol') {
        this.#answer(stream, await this.#enrol(stream, office))
        return
      }
      const caller = this.#caller(stream)
      const request = parseHubRequest(await this.#body(stream))
      const answer = await withDeadline(this.#deps.clock, REQUEST_MS, (late) =>
        this.#ask(office, caller, request, AbortSignal.any([office.stop.signal, late])),
      )
      this.#answer(stream, answer)
      return
    } catch (error) {
      this.#refuse(stream, error)
    }
  }

  #acting(): Office {
    if (this.#office !== undefined) return this.#office
    throw new ClusterApiError('Unavailable', 'this hub does not act: another one does, or will')
  }

  async #peer(stream: ServerHttp2Stream): Promise<PeerAnswer> {
    const { node, isHub } = this.#caller(stream, false)
    const { peer } = this.#deps
    if (!isHub || peer === undefined)
      throw new ClusterApiError('Forbidden', `node ${node} has no certificate of a hub of this site`)
    return peer(parsePeerRequest(await this.#body(stream, MAX_LINE)))
  }

  #caller(stream: ServerHttp2Stream, isLimited = true): Caller {
    const certificate = this.#sessionOf(stream)?.certificate
    if (certificate === undefined) {
      throw new ClusterApiError(
        'Unauthorized',
        'the hub knows nodes by a certificate of this site; the caller has none',
      )
    }
    const found = this.#deps.identify(certificate)
    if ('refused' in found) throw new ClusterApiError('Unauthorized', found.refused)
    if (isLimited && this.#nodeState(found.node).requests.take(1, RATE, RATE.burst * 2) > 0)
      throw new ClusterApiError('Unavailable', `node ${found.node} sends too many requests`)
    return { node: found.node, isHub: found.isHub === true, certificate }
  }

  #sessionOf(stream: ServerHttp2Stream): Session | undefined {
    return stream.session === undefined ? undefined : this.#sessions.get(stream.session as ServerHttp2Session)
  }

  /** The node gets its certificate once the hubs that would act next know it. The same key may ask again. */
  async #enrol(stream: ServerHttp2Stream, office: Office): Promise<HubAnswer> {
    if (this.#enrolments.take(1, ENROL_RATE, ENROL_RATE.burst * 2) > 0)
      throw new ClusterApiError('Unavailable', 'too many nodes enrol at once')
    const request = parseEnrolRequest(await this.#body(stream))
    const value = await withDeadline(this.#deps.clock, REQUEST_MS, async (late) => {
      const signal = AbortSignal.any([office.stop.signal, late])
      await office.confirm(undefined, signal)
      const certificate = await office.deps.enrol(request)
      await office.confirm({ enrolled: request.node }, signal)
      return certificate
    })
    this.#deps.logger.info('a node has got its certificate', {
      node: request.node,
      address: this.#sessionOf(stream)?.address,
    })
    return { value }
  }

  async #watch(stream: ServerHttp2Stream, name: string): Promise<void> {
    this.#caller(stream)
    if (!isKind(name)) throw new ClusterApiError('NotFound', `the hub has no kind ${name.slice(0, 100)}`)
    const office = this.#acting()
    const kind = office.kind(name)
    const gone = new AbortController()
    stream.on('close', () => gone.abort(new ClusterApiError('Unavailable', 'the reader has gone')))
    await kind.cache.whenSynced(AbortSignal.any([gone.signal, office.stop.signal]))
    stream.respond({ ':status': 200, 'content-type': 'application/x-ndjson' })
    kind.serve(stream)
  }

  async #ask(
    office: Office,
    { node, certificate }: Caller,
    request: HubRequest,
    signal: AbortSignal,
  ): Promise<HubAnswer> {
    const { api, leases, renew, readSite } = office.deps
    switch (request.verb) {
      case 'readSite':
        return { value: await readSite() }
      case 'renew':
        return { value: await renew(node, request.csr, certificate) }
      case 'read':
        return { value: await api.read(request.kind, request.name, request.namespace, signal) }
      case 'readLease':
        return { value: await leases.read(request.name, signal) }
      case 'writeLease': {
        await this.#check(office, node, request, signal, await this.#lease(office, request.lease, signal))
        const value = await leases.write(request.lease, signal)
        await office.confirm({ lease: request.lease.metadata.name }, signal)
        return { value }
      }
      case 'apply':
      case 'applyStatus': {
        const { kind, metadata } = request.object
        await this.#check(office, node, request, signal)
        const changed = { kind, name: metadata.name, namespace: metadata.namespace }
        return this.#written(office, changed, () => api[request.verb](request.object, signal), signal)
      }
      case 'remove': {
        const { kind, name, namespace } = request
        await this.#check(office, node, { verb: 'remove', kind, name }, signal)
        const changed = { kind, name, namespace }
        return this.#written(office, changed, () => api.remove(kind, name, namespace, signal), signal)
      }
    }
  }

  /** The revision is that of a cache that shows the write. */
  async #written(
    office: Office,
    changed: Extract<Changed, { kind: Kind }>,
    write: () => Promise<void>,
    signal: AbortSignal,
  ): Promise<HubAnswer> {
    const kind = office.kind(changed.kind)
    await kind.cache.whenSynced(signal)
    await write()
    await office.confirm(changed, signal)
    return { seen: kind.seen }
  }

  /** Whether this hub acts now, and the node may make the change. */
  async #check(
    office: Office,
    node: string,
    change: NodeChange,
    signal: AbortSignal,
    lease?: AccessFacts['lease'],
  ): Promise<void> {
    const { api, refuse = accessProblem } = office.deps
    const memberships = api.cache('Membership')
    await memberships.whenSynced(signal)
    const cluster = memberships.get(MEMBERSHIP_NAME)?.spec.clusterId
    const problem = refuse(change, { node, cluster, lease, nowMs: this.#deps.clock.monotonic() })
    if (problem !== undefined) throw new ClusterApiError('Forbidden', problem)
    await office.confirm(undefined, signal)
  }

  async #lease(office: Office, next: StoredLease, signal: AbortSignal): Promise<AccessFacts['lease']> {
    const stored = await office.deps.leases.read(next.metadata.name, signal)
    if (stored === undefined) return undefined
    const durationMs = (stored.spec?.leaseDurationSeconds ?? 0) * 1000
    const held: HeldLease = { holder: holderOf(stored), changedMs: office.changedMs(stored), durationMs }
    return { ...held, stored }
  }

  async #body(stream: ServerHttp2Stream, limit = MAX_REQUEST): Promise<string> {
    const cancel = this.#deps.clock.setTimer(REQUEST_MS, () => stream.destroy())
    const parts: Buffer[] = []
    let octets = 0
    try {
      // Not destroyed on an early end: the refusal goes out on the same stream.
      for await (const part of stream.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
        octets += part.length
        if (octets > limit) throw new ClusterApiError('Invalid', `request to the hub: expected at most ${limit} octets`)
        parts.push(part)
      }
    } finally {
      cancel()
    }
    return Buffer.concat(parts).toString('utf8')
  }

  #answer(stream: ServerHttp2Stream, answer: HubAnswer): void {
    if (stream.destroyed) return
    stream.respond({ ':status': 200, 'content-type': 'application/json' })
    stream.end(JSON.stringify(answer))
  }

  #refuse(stream: ServerHttp2Stream, error: unknown): void {
    const isOurs = error instanceof ClusterApiError
    const code = isOurs ? error.code : 'Unavailable'
    if (code === 'Unauthorized' || code === 'Forbidden' || code === 'Invalid') this.#note(stream, code, error)
    if (!isOurs && !stream.destroyed)
      this.#deps.logger.warn('the hub cannot answer a request', { reason: 'RoundFailed', why: messageOf(error) })
    if (stream.destroyed || stream.headersSent) {
      stream.destroy()
      return
    }
    const message = isOurs ? error.message : 'the hub cannot answer'
    stream.respond({ ':status': REFUSAL_STATUS[code], 'content-type': 'application/json' })
    stream.end(JSON.stringify({ code, message }), () => stream.close())
  }

  /** One line for the first refusals only: a stranger must not fill the log. */
  #note(stream: ServerHttp2Stream, code: string, error: unknown): void {
    this.#refused += 1
    if (this.#refused > MAX_NOTED && this.#refused % MAX_NOTED !== 0) return
    const { address } = this.#sessionOf(stream) ?? {}
    const fields = { reason: 'HubRefused', code, address, refusals: this.#refused } as const
    this.#deps.logger.warn(`the hub refuses a request: ${messageOf(error)}`, fields)
  }
}

const MAX_NOTED = 100

/** Opens a hub and listens; it acts if it is given objects. Throws the system's error if the address cannot be used. */
export async function openHub(
  deps: HubBaseDeps & Partial<ActingDeps>,
  init: HubInit,
): Promise<{ readonly hub: Hub; readonly port: number }> {
  const hub = new Hub(deps, init.tls)
  if (acts(deps)) hub.act(deps)
  const { port } = await hub.listen(init)
  return { hub, port }
}

function acts(deps: HubBaseDeps & Partial<ActingDeps>): deps is HubDeps {
  return deps.api !== undefined
}
