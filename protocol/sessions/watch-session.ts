/**
 * Keeps a replica up to date through outages of the broker.
 *
 *   closed ──run──► connecting ──reset──► syncing ──synced──► live
 *     ▲                 ▲   │                │                  │
 *     │               delay └────failure─────┴──────────────────┤
 *     └──stop── (any)   └──────────── waiting ◄─────────────────┘
 *
 * - closed: the session is not running.
 * - waiting: the last attempt failed, and the next one follows after a delay.
 * - connecting: the request was sent, and no message has arrived yet.
 * - syncing: messages arrive, but the replica is not complete yet.
 * - live: the replica equals the broker's state as of its last message. When the interest changes, the session stays
 *   live while a new stream on the same connection continues from the position of the old one.
 */
import { isDeepStrictEqual } from 'node:util'
import type { AccessDefault } from '../../model/access/access.ts'
import type { Interest } from '../../model/model.ts'
import { type Clock, SerialQueue } from '../../reconcile/reconcile.ts'
import { errorOf, messageOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { Metrics } from '../../runtime/metrics/metrics.ts'
import {
  type Authorities,
  type BrokerClient,
  BrokerSilentError,
  BrokerUnreachableError,
  type SilentMember,
  type WatchMessage,
} from '../protocol.ts'
import { type Replica, type ReplicaChange, ReplicaError, type ReplicaStore } from '../replica/replica.ts'
import { type WatchMetrics, watchMetrics } from './session-metrics.ts'
import { type StreamEnd, keepConnected } from './session-timing.ts'

/**
 * Estimates how far the broker's clock is ahead of this machine's clock, from the times that the broker sends. A
 * delayed message makes the broker's clock seem slow, so the largest of the last few values counts.
 */
const LAST = 3
/** Number of values needed, because a single one may have been delayed. */
const LEAST = 2
/**
 * A difference between wall clock and monotonic clock that changes by more than this shows that the wall clock was set.
 * No machine drifts this far between two messages of the broker.
 */
const STEP_MS = 1000

/**
 * If two values agree and an earlier one differs by more than this, a clock was set, and the earlier value is dropped.
 */
const SET_MS = 10_000
/** Values that are older than this are ignored. */
const OLD_MS = 60_000

interface Heard {
  readonly atMs: number
  readonly aheadMs: number
  /** Wall clock of this machine minus its monotonic clock. */
  readonly shiftMs: number
}

export class BrokerClock {
  #heard: readonly Heard[] = []

  /** Called for a new stream: it may lead to another replica, and either clock may have been set. */
  forget(): void {
    this.#heard = []
  }

  /**
   * Takes a time that the broker sent. `brokerMs` and `nowMs` are milliseconds since 1970. Values from before a clock
   * was set are dropped.
   */
  says(brokerMs: number, nowMs: number, monotonicMs: number): void {
    const heard = { atMs: monotonicMs, aheadMs: brokerMs - nowMs, shiftMs: nowMs - monotonicMs }
    const still = this.#heard.filter(({ shiftMs }) => Math.abs(shiftMs - heard.shiftMs) <= STEP_MS)
    const last = still.at(-1)
    const agrees = last !== undefined && Math.abs(last.aheadMs - heard.aheadMs) <= STEP_MS
    const before = agrees ? still.filter(({ aheadMs }) => Math.abs(aheadMs - heard.aheadMs) <= SET_MS) : still
    this.#heard = [...before, heard].slice(-LAST)
  }

  /**
   * Returns the estimate in milliseconds, which is negative if the broker's clock is behind. Undefined if the broker
   * has sent its time less than twice recently.
   */
  aheadMs(monotonicMs: number): number | undefined {
    const late = this.#heard.filter(({ atMs }) => monotonicMs - atMs <= OLD_MS)
    return late.length < LEAST ? undefined : Math.max(...late.map(({ aheadMs }) => aheadMs))
  }
}

export type WatchState =
  | { readonly t: 'closed' }
  | { readonly t: 'waiting'; readonly error: Error }
  | { readonly t: 'connecting' }
  | { readonly t: 'syncing' }
  | { readonly t: 'live' }

export interface WatchSessionDeps {
  /** Returns the client for the next attempt. Called for each attempt, so that a renewed certificate takes effect. */
  readonly connect: () => BrokerClient
  readonly replica: Replica
  /** Stores the replica across restarts. */
  readonly store?: ReplicaStore
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics?: Metrics
  /** Called after a change of the records, of `synced`, or of the complete owners. Must not throw. */
  readonly onChange: (changes: readonly ReplicaChange[]) => void
  readonly onState?: (state: WatchState) => void
  /** Called when the broker has reported which members are not connected to it. Must not throw. */
  readonly onContact?: (silent: readonly SilentMember[]) => void
  /**
   * Called when the broker has reported the trusted authorities. If absent, the request tells the broker that this
   * member does not take them from the watch. Must not throw.
   */
  readonly onAuthorities?: (authorities: Authorities) => void
  /** Called when the broker has reported another default of the clusterset: accessDefault(). Must not throw. */
  readonly onAccessDefault?: () => void
  /** Called when the broker has reported other relays on port 443: relays(). Must not throw. */
  readonly onRelays?: () => void
  /** Called when the set of namespaces with exports has changed. Must not throw. */
  readonly onExported?: () => void
  /** If true, the session does not start before setInterest() was called. */
  readonly waitsForInterest?: boolean
}

export interface WatchSessionInit {
  readonly retryMinMs: number
  readonly retryMaxMs: number
  /** Longest wait for each message until the replica is complete. */
  readonly answerTimeoutMs: number
  /** Shortest interval between two writes to the store. */
  readonly saveEveryMs: number
}

export const DEFAULT_WATCH_SESSION: WatchSessionInit = {
  retryMinMs: 100,
  retryMaxMs: 5000,
  answerTimeoutMs: 15_000,
  saveEveryMs: 1000,
}

export class WatchSession {
  readonly #deps: WatchSessionDeps
  readonly #init: WatchSessionInit
  readonly #metrics: WatchMetrics
  readonly #brokerClock = new BrokerClock()
  #state: WatchState = { t: 'closed' }
  #accessDefault: AccessDefault | 'none' | undefined
  #relays: readonly string[] | undefined
  #cancelSave: (() => void) | undefined
  readonly #saves = new SerialQueue()
  /** Undefined to request all namespaces. */
  #interest: Interest | undefined
  #isInterestKnown: boolean
  #onInterest: () => void = () => undefined

  constructor(deps: WatchSessionDeps, init: Partial<WatchSessionInit> = {}) {
    this.#deps = deps
    this.#init = { ...DEFAULT_WATCH_SESSION, ...init }
    this.#metrics = watchMetrics(deps.metrics)
    this.#isInterestKnown = deps.waitsForInterest !== true
  }

  state(): WatchState {
    return this.#state
  }

  /**
   * Whether services without a policy are offered to all members, as the broker reported last. `none` if it has
   * answered without one: no operator has set it, or its release is an earlier one. Undefined before its first answer.
   */
  accessDefault(): AccessDefault | 'none' | undefined {
    return this.#accessDefault
  }

  /** The relays on port 443 that the broker reported last. Undefined if it has never reported any. */
  relays(): readonly string[] | undefined {
    return this.#relays
  }

  /** See BrokerClock.aheadMs(). */
  brokerAheadMs(): number | undefined {
    return this.#brokerClock.aheadMs(this.#deps.clock.monotonic())
  }

  /**
   * Sets the namespaces whose records are of use here; undefined for all. Records of namespaces that are no longer
   * requested are dropped immediately. New ones arrive after one round trip.
   */
  setInterest(interest: Interest | undefined): void {
    const isNew = !this.#isInterestKnown || !isDeepStrictEqual(interest, this.#interest)
    if (!isNew) return
    const changes = this.#deps.replica.setInterest(interest)
    this.#interest = interest
    this.#isInterestKnown = true
    this.#metrics.interest(interest?.size)
    this.#onInterest()
    if (changes.length === 0) return
    this.#metrics.records(this.#deps.replica.records.size)
    this.#saveSoon()
    this.#deps.onChange(changes)
  }

  /** Runs until the signal aborts, and then saves the replica. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger, replica } = this.#deps
    const retry = { minMs: this.#init.retryMinMs, maxMs: this.#init.retryMaxMs }
    if (!this.#isInterestKnown) await this.#interestKnown(signal)
    const once = (onLive: () => void): Promise<StreamEnd> => this.#once(signal, onLive)
    const onFailed = (error: Error): void => {
      this.#setState({ t: 'waiting', error })
      this.#metrics.disconnected()
      logger.info('the watch was interrupted; retrying', { why: error.message })
    }
    await keepConnected({ clock, retry, members: () => replica.complete.size, once, onFailed }, signal)
    this.#setState({ t: 'closed' })
    await this.#saveNow()
  }

  async #interestKnown(signal: AbortSignal): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#onInterest = resolve
      signal.addEventListener('abort', () => resolve(), { once: true })
      if (signal.aborted) resolve()
    })
  }

  /** Runs one stream, from the request to its end. */
  async #once(signal: AbortSignal, onLive: () => void): Promise<StreamEnd> {
    const { clock, replica } = this.#deps
    const stop = new AbortController()
    const expectAnswer = (): (() => void) =>
      clock.setTimer(this.#init.answerTimeoutMs, () => stop.abort(new BrokerSilentError()))
    let cancelTimer = expectAnswer()
    // A live session stays live while a new stream takes over.
    if (this.#state.t !== 'live') {
      this.#setState({ t: 'connecting' })
      this.#brokerClock.forget()
    }
    let isWhole = false
    const replaced = new Error('the requested namespaces have changed')
    this.#onInterest = () => stop.abort(replaced)
    try {
      const follows = this.#deps.onAuthorities === undefined ? {} : { followsAuthorities: true as const }
      const request = { ...replica.begin(), ...follows }
      const stream = this.#deps.connect().watch(request, AbortSignal.any([signal, stop.signal]))
      for await (const message of stream) {
        cancelTimer()
        this.#take(message)
        if (stop.signal.aborted) break
        if (message.t === 'synced') {
          isWhole = true
          onLive()
        }
        // Silence is normal once the replica is complete. From then on the pings of the transport monitor the
        // connection.
        if (!isWhole) cancelTimer = expectAnswer()
      }
      stop.signal.throwIfAborted()
      return { t: 'failed', error: new BrokerUnreachableError('the broker ended the watch') }
    } catch (error) {
      if (error instanceof ReplicaError) replica.forgetPosition()
      return stop.signal.reason === replaced ? { t: 'replaced' } : { t: 'failed', error: errorOf(error) }
    } finally {
      cancelTimer()
      this.#onInterest = () => undefined
      stop.abort(new Error('the stream has ended'))
      replica.begin()
    }
  }

  #take(message: WatchMessage): void {
    const { replica, logger, onChange, clock } = this.#deps
    if (message.t === 'contact') {
      if (message.nowMs !== undefined) this.#brokerClock.says(message.nowMs, clock.now(), clock.monotonic())
      if (this.#state.t === 'live') this.#deps.onContact?.(message.silent)
      return
    }
    if (message.t === 'authorities') {
      this.#deps.onAuthorities?.(message)
      return
    }
    if (message.t === 'access' || message.t === 'reset') this.#takeAccess(message.accessDefault ?? 'none')
    if (message.t === 'relays' || message.t === 'reset') this.#takeRelays(message.relays)
    if (message.t === 'access' || message.t === 'relays') return
    const changes = replica.apply(message, (error) => {
      this.#metrics.invalid()
      logger.error('a record from the broker is malformed; it is left out', {
        reason: 'InvalidValue',
        field: error.field,
        why: error.message,
      })
    })
    if (message.t === 'batch' || message.t === 'added') this.#metrics.received(message.events)
    if (message.t === 'reset') {
      this.#metrics.reset(message.resumed)
      if (this.#state.t !== 'live' || !message.resumed) this.#setState({ t: 'syncing' })
    }
    if (message.t === 'exportedNamespaces') this.#deps.onExported?.()
    if (message.t === 'synced') this.#setState({ t: 'live' })
    this.#metrics.records(replica.records.size)
    if (message.t !== 'reset') this.#saveSoon()
    if (changes.length > 0 || message.t === 'synced' || message.t === 'ownersChanged') onChange(changes)
  }

  #takeAccess(accessDefault: AccessDefault | 'none'): void {
    if (accessDefault === this.#accessDefault) return
    this.#accessDefault = accessDefault
    this.#deps.onAccessDefault?.()
  }

  /** A broker that states none may be of an earlier release, and takes nothing back. */
  #takeRelays(relays: readonly string[] | undefined): void {
    if (relays === undefined || relays.join() === this.#relays?.join()) return
    this.#relays = relays
    this.#deps.onRelays?.()
  }

  #setState(state: WatchState): void {
    this.#state = state
    this.#metrics.live(state.t === 'live')
    this.#deps.onState?.(state)
  }

  #saveSoon(): void {
    if (this.#deps.store === undefined || this.#cancelSave !== undefined) return
    this.#cancelSave = this.#deps.clock.setTimer(this.#init.saveEveryMs, () => void this.#saveNow())
  }

  /** Writes never overlap. A failure is logged, and the next change triggers another attempt. */
  async #saveNow(): Promise<void> {
    this.#cancelSave?.()
    this.#cancelSave = undefined
    const { store, replica, logger } = this.#deps
    if (store === undefined) return
    await this.#saves
      .run(() => store.save(replica))
      .catch((error: unknown) => {
        logger.error('cannot save the replica; retrying', { reason: 'StateFolderUnusable', why: messageOf(error) })
      })
  }
}
