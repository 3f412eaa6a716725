/**
 * Tracks open connections from the first packet on, and the peer behind each. Every stage has a limited number of
 * slots. When a stage is full, the key with the most slots loses its oldest one (FairPool), so strangers cannot
 * displace members, and no member can displace the others. Until the certificate is known the key is the source
 * (sourceKey()). It never excludes a client, because many clusters may share one.
 *
 *   silent ──first bytes──► ready ──its turn──► shaking ──► stranger │ member
 *      └──for the relay──► shared ──its turn──► handed over (SharedPort)
 */
import type { Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import { type Clock, TokenBucket, type TokenRate } from '../../reconcile/reconcile.ts'
import type { Owner, SharedPort } from '../../runtime/shared-port/shared-port.ts'
import { sourceKey } from '../../runtime/runtime.ts'
import { CertificateError, type Peer } from '../protocol.ts'
import { HandshakeTurns, TICK_MS, comeBackAlert } from './handshake-rate-limiter.ts'
import { type PeerTrust, type PeerValidation, peerOf, validatePeer } from './peer-check.ts'
import type { ServerMetrics } from './server-metrics.ts'

/**
 * A bounded set of items, grouped by key. When it is full, the key with the most items loses its oldest one. A flood
 * therefore displaces its own items, and a new key always gets a slot.
 */
interface FairPoolInit {
  readonly total: number
  /** Defaults to no limit per key. */
  readonly perKey?: number
}

export class FairPool<T> {
  readonly #init: FairPoolInit
  /** Keys in the order in which take() serves them, each with its items from oldest to newest. */
  readonly #byKey = new Map<string, Set<T>>()
  #size = 0

  constructor(init: FairPoolInit) {
    this.#init = init
  }

  get size(): number {
    return this.#size
  }

  count(key: string): number {
    return this.#byKey.get(key)?.size ?? 0
  }

  /** Adds an item. Returns the item that was removed to make room, or undefined. */
  add(key: string, item: T): T | undefined {
    const items = this.#byKey.get(key) ?? new Set<T>()
    if (items.has(item)) return undefined
    this.#byKey.set(key, items.add(item))
    this.#size += 1
    if (items.size > (this.#init.perKey ?? Infinity)) return this.#takeOldest(key)
    return this.#size > this.#init.total ? this.#takeOldest(this.#largest()) : undefined
  }

  delete(key: string, item: T): boolean {
    const items = this.#byKey.get(key)
    if (items?.delete(item) !== true) return false
    this.#size -= 1
    if (items.size === 0) this.#byKey.delete(key)
    return true
  }

  /** Removes and returns the oldest item of the next key, in round-robin order. */
  take(): T | undefined {
    const key = this.#byKey.keys().next()
    if (key.done === true) return undefined
    const item = this.#takeOldest(key.value)
    const rest = this.#byKey.get(key.value)
    this.#byKey.delete(key.value)
    if (rest !== undefined) this.#byKey.set(key.value, rest)
    return item
  }

  /** Removes and returns the oldest item of the key with the most items. */
  shed(): T | undefined {
    return this.#takeOldest(this.#largest())
  }

  #takeOldest(key: string): T | undefined {
    const oldest = this.#byKey.get(key)?.values().next()
    if (oldest === undefined || oldest.done === true) return undefined
    this.delete(key, oldest.value)
    return oldest.value
  }

  #largest(): string {
    let largest = ''
    let most = 0
    for (const [key, items] of this.#byKey) {
      if (items.size <= most) continue
      largest = key
      most = items.size
    }
    return largest
  }
}

export interface ConnectionLimits {
  /** Open connections of all members, and of one member. */
  readonly maxConnections: number
  readonly maxConnectionsPerMember: number
  /** Connections without a member's certificate. They may only join, within `strangerMs`. */
  readonly maxStrangers: number
  readonly strangerMs: number
  /** Connections on which no data has arrived yet. */
  readonly maxWaiting: number
  /** Connections that wait for their handshake. Any further one is told when to come back. */
  readonly maxReady: number
  readonly maxHandshakes: number
  /**
   * Most handshakes that begin per second. A handshake takes 1 ms of the broker's only thread, and the calls that the
   * member then makes take 3 ms (handshake-rate-limiter.ts).
   */
  readonly handshakesPerSecond: number
  readonly handshakeTimeoutMs: number
  /** Connections that wait to be handed over to the relay on the same port. */
  readonly maxShared: number
}

export const DEFAULT_CONNECTION_LIMITS: ConnectionLimits = {
  maxConnections: 4096,
  maxConnectionsPerMember: 6,
  maxStrangers: 64,
  strangerMs: 15_000,
  maxWaiting: 2048,
  maxReady: 400,
  maxHandshakes: 1024,
  handshakesPerSecond: 200,
  handshakeTimeoutMs: 10_000,
  maxShared: 256,
}

/** Time that a rejected peer has to read the reason. */
const REFUSED_MS = 1000

/**
 * How many connections go to the relay: its handshakes take time of the same thread, and members come first. After a
 * stop, the relay calls its gateways back at this rate, or 128 in a second for the most that it takes (relay/main.ts):
 * `maxShared` has room for the rest.
 */
const SHARED_RATE: TokenRate = { perSecond: 100, burst: 20 }

type Stage = 'silent' | 'ready' | 'shaking' | 'stranger' | 'member' | 'shared'

interface Connection {
  readonly socket: Socket
  /** sourceKey() */
  readonly source: string
  stage: Stage
  /** The owner of the slot: a source or a member. */
  key: string
  validation: PeerValidation | undefined
  cancelTimer: () => void
  /** What has arrived before it is known for whom it is. */
  first: Buffer
  /** In how many pieces. */
  pieces: number
}

export interface ConnectionsInit {
  readonly clock: Clock
  readonly metrics: ServerMetrics
  readonly limits: ConnectionLimits
  /** Called to start the handshake of a connection on which data has arrived. */
  readonly startHandshake: (socket: Socket) => void
  /** Another server on the same port. Absent: there is none. */
  readonly shared?: SharedPort | undefined
}

/** The clusterset that a connection is for, among those that the port serves. */
export interface Host {
  /** Prefix of the member ids, so that each clusterset has its own slots. */
  readonly name: string
  readonly trust: PeerTrust
  /**
   * False for a member whose calls are all refused. Its connection takes a stranger's slot, and none of the member that
   * now has its id.
   */
  readonly isWelcome: (peer: Peer) => boolean
}

export class Connections {
  readonly #init: ConnectionsInit
  readonly #byPeer = new Map<string, Connection>()
  readonly #pools: Readonly<Record<Stage, FairPool<Connection>>>
  readonly #turns: HandshakeTurns
  #cancelTick: (() => void) | undefined
  readonly #sharedRate: TokenBucket
  #cancelShared: (() => void) | undefined
  #onEmpty: (() => void) | undefined

  constructor(init: ConnectionsInit) {
    const { limits, clock } = init
    this.#init = init
    this.#turns = new HandshakeTurns(clock, limits.handshakesPerSecond)
    this.#sharedRate = new TokenBucket(clock)
    this.#pools = {
      silent: new FairPool({ total: limits.maxWaiting }),
      ready: new FairPool({ total: limits.maxReady }),
      shaking: new FairPool({ total: limits.maxHandshakes }),
      stranger: new FairPool({ total: limits.maxStrangers }),
      member: new FairPool({ total: limits.maxConnections, perKey: limits.maxConnectionsPerMember }),
      shared: new FairPool({ total: limits.maxShared }),
    }
  }

  /** Accepts a new connection and leaves it paused until data arrives. */
  accept(socket: Socket): void {
    const peer = peerText(socket)
    const source = sourceKey(socket.remoteAddress)
    const connection: Connection = {
      socket,
      source,
      stage: 'silent',
      key: source,
      validation: undefined,
      cancelTimer: () => undefined,
      first: Buffer.alloc(0),
      pieces: 0,
    }
    this.#byPeer.set(peer, connection)
    this.#expire(connection, this.#init.limits.handshakeTimeoutMs)
    socket.on('error', () => undefined)
    socket.once('close', () => this.#closed(peer, connection))
    this.#place(connection, 'silent', source)
    const onReadable = (): void => {
      if (connection.stage !== 'silent') return
      // A readable socket without data has ended.
      if (socket.readableLength === 0) return void socket.destroy()
      const owner = this.#ownerOf(connection)
      if (owner === 'partial') return void socket.once('readable', onReadable)
      if (owner === 'second') {
        // A handshake with the broker would fail. When the relay takes none any more, its clients come back elsewhere.
        if (this.#init.shared?.isServed !== true) {
          this.#drop(connection, 'shared')
          return
        }
        this.#place(connection, 'shared', source)
        this.#handOver()
        return
      }
      this.#place(connection, 'ready', source)
      this.#giveTurns()
      const shed = this.#pools.ready.size > this.#turns.mostWaiting ? this.#pools.ready.shed() : undefined
      if (shed !== undefined) this.#drop(shed, 'ready')
    }
    socket.once('readable', onReadable)
    this.#count()
  }

  /** Looks at what has arrived, and leaves it in the socket once the owner is known. */
  #ownerOf(connection: Connection): Owner {
    const { shared } = this.#init
    const { socket } = connection
    if (shared === undefined) return 'first'
    const chunk = socket.read() as Buffer | null
    if (chunk !== null) {
      connection.first = Buffer.concat([connection.first, chunk])
      connection.pieces += 1
    }
    const owner = shared.ownerOf(connection.first, connection.pieces)
    if (owner === 'partial') return owner
    socket.unshift(connection.first)
    connection.first = Buffer.alloc(0)
    return owner
  }

  /** Hands over those that wait for the other server, one source after the other, at a rate of their own. */
  #handOver(): void {
    const { clock, shared } = this.#init
    const waiting = this.#pools.shared
    while (waiting.size > 0 && this.#sharedRate.canTake(1, SHARED_RATE)) {
      const next = waiting.take()
      if (next === undefined) return
      this.#sharedRate.take(1, SHARED_RATE)
      next.cancelTimer()
      this.#forget(peerText(next.socket), next)
      shared?.handOver(next.socket)
    }
    if (waiting.size === 0) return
    this.#cancelShared ??= clock.setTimer(TICK_MS, () => {
      this.#cancelShared = undefined
      this.#handOver()
    })
  }

  /** Assigns the slot of a connection after its handshake. */
  validate(socket: TLSSocket, host: Host): 'member' | 'stranger' {
    const peer = peerText(socket)
    const connection = this.#byPeer.get(peer)
    const validation = validatePeer(socket, host.trust)
    if (connection === undefined) return 'stranger'
    connection.validation = validation
    connection.cancelTimer()
    if (validation.t === 'member' && host.isWelcome(peerOf(validation, peer))) {
      this.#place(connection, 'member', `${host.name}/${validation.cluster}`)
      return 'member'
    }
    this.#place(connection, 'stranger', connection.source)
    this.#expire(connection, this.#init.limits.strangerMs)
    return 'stranger'
  }

  /** Looks up a connection by the peer text of grpc-js. Address and port identify an open connection. */
  verdictOf(peer: string): PeerValidation {
    const validation = this.#byPeer.get(peer)?.validation
    return validation ?? { t: 'stranger', error: new CertificateError('missing', 'the connection has closed') }
  }

  drop(peer: string): void {
    this.#byPeer.get(peer)?.socket.destroy()
  }

  destroyAll(): void {
    for (const { socket } of this.#byPeer.values()) socket.destroy()
  }

  /** Closes connections that carry no calls. Called when the broker stops. */
  destroyWaiting(): void {
    for (const { socket, stage } of this.#byPeer.values()) {
      if (stage !== 'member' && stage !== 'stranger') socket.destroy()
    }
  }

  async allClosed(): Promise<void> {
    if (this.#byPeer.size === 0) return
    await new Promise<void>((resolve) => (this.#onEmpty = resolve))
  }

  #place(connection: Connection, stage: Stage, key: string): void {
    this.#pools[connection.stage].delete(connection.key, connection)
    connection.stage = stage
    connection.key = key
    const out = this.#pools[stage].add(key, connection)
    if (out !== undefined) this.#drop(out, stage)
  }

  #drop(connection: Connection, stage: Stage): void {
    this.#init.metrics.dropped(stage)
    if (stage === 'ready') this.#sendAway(connection)
    else connection.socket.destroy()
  }

  /** Rejects a connection before any cost arises, and tells the client when to come back. */
  #sendAway(connection: Connection): void {
    connection.cancelTimer()
    connection.socket.end(comeBackAlert(this.#turns.comeBackMs(this.#pools.ready.size)))
    // Unread data would make the kernel reset the connection and discard the alert.
    connection.socket.resume()
    connection.cancelTimer = this.#init.clock.setTimer(REFUSED_MS, () => connection.socket.destroy())
  }

  #closed(peer: string, connection: Connection): void {
    connection.cancelTimer()
    this.#pools[connection.stage].delete(connection.key, connection)
    this.#forget(peer, connection)
  }

  #forget(peer: string, connection: Connection): void {
    if (this.#byPeer.get(peer) === connection) this.#byPeer.delete(peer)
    this.#count()
    if (this.#byPeer.size === 0) this.#onEmpty?.()
  }

  #expire(connection: Connection, ms: number): void {
    connection.cancelTimer = this.#init.clock.setTimer(ms, () => {
      this.#init.metrics.dropped(connection.stage)
      connection.socket.destroy()
    })
  }

  #giveTurns(): void {
    const { clock, startHandshake } = this.#init
    for (let left = this.#turns.take(this.#pools.ready.size); left > 0; left -= 1) {
      const next = this.#pools.ready.take()
      if (next === undefined) return
      this.#place(next, 'shaking', next.source)
      startHandshake(next.socket)
    }
    if (this.#pools.ready.size === 0) return
    this.#cancelTick ??= clock.setTimer(TICK_MS, () => {
      this.#cancelTick = undefined
      this.#giveTurns()
    })
  }

  #count(): void {
    this.#init.metrics.connections(this.#byPeer.size)
  }
}

/** Formats a peer as grpc-js does. */
export function peerText({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress}:${remotePort}`
}
