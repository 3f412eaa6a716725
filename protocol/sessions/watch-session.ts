/**
 * Keeps a replica up to date, through every outage of the broker.
 *
 *   closed ──run──► connecting ──reset──► syncing ──synced──► live
 *     ▲                 ▲   │                │                  │
 *     │               delay └────failure─────┴──────────────────┤
 *     └──stop── (any)   └──────────── waiting ◄─────────────────┘
 *
 * - closed: not running.
 * - waiting: the last attempt failed; the next comes after a delay.
 * - connecting: asked the broker, no message yet.
 * - syncing: messages come, the copy is not yet whole.
 * - live: the copy is the broker's, as of its last message. Who asks for other namespaces stays live while a new stream
 *   on the same connection takes over from where the old one was.
 */
import { isDeepStrictEqual } from 'node:util'
import type { Interest } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
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
import { ReconnectPace } from './session-timing.ts'

/**
 * How far the broker's clock is ahead of the one here, by what the broker says of it at intervals. What waited on the
 * way makes the broker look behind, so of the last few the one that came quickest counts.
 */
const LAST = 3
/** One alone may have waited for anything. */
const LEAST = 2
/** Of the wall clock against the monotonic one: no machine drifts so far between two words of the broker. */
const STEP_MS = 1000

/** Two that say the same are right against one before them that differs by more: a clock was set. */
const SET_MS = 10_000
/** What is older says nothing of now. */
const OLD_MS = 60_000

interface Heard {
  readonly atMs: number
  readonly aheadMs: number
  /** Of the wall clock here over the monotonic one. */
  readonly shiftMs: number
}

export class BrokerClock {
  #heard: readonly Heard[] = []

  /** Another stream begins, to another replica perhaps, and either clock may have been set meanwhile. */
  forget(): void {
    this.#heard = []
  }

  /** The first two are milliseconds since 1970. What was heard before a clock was set does not count. */
  says(brokerMs: number, nowMs: number, monotonicMs: number): void {
    const heard = { atMs: monotonicMs, aheadMs: brokerMs - nowMs, shiftMs: nowMs - monotonicMs }
    const still = this.#heard.filter(({ shiftMs }) => Math.abs(shiftMs - heard.shiftMs) <= STEP_MS)
    const last = still.at(-1)
    const agrees = last !== undefined && Math.abs(last.aheadMs - heard.aheadMs) <= STEP_MS
    const before = agrees ? still.filter(({ aheadMs }) => Math.abs(aheadMs - heard.aheadMs) <= SET_MS) : still
    this.#heard = [...before, heard].slice(-LAST)
  }

  /** Milliseconds; negative where it is behind. Undefined: the broker has not said it twice of late, or never says it. */
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
  /** The client to use for the next attempt: asked each time, so that a renewed certificate takes effect. */
  readonly connect: () => BrokerClient
  readonly replica: Replica
  /** Where the replica is kept across restarts. */
  readonly store?: ReplicaStore
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics?: Metrics
  /** After the replica has changed: records, `synced`, or which owners are complete. Must not throw. */
  readonly onChange: (changes: readonly ReplicaChange[]) => void
  readonly onState?: (state: WatchState) => void
  /** The broker has said which members have no connection to it. Must not throw. */
  readonly onContact?: (silent: readonly SilentMember[]) => void
  /**
   * The broker has said which authorities count. Absent: this member does not follow them by the watch, and the broker
   * knows. Must not throw.
   */
  readonly onAuthorities?: (authorities: Authorities) => void
  /** Namespaces in which somebody exports something are others than before. Must not throw. */
  readonly onExported?: () => void
  /** Nothing is asked for before setInterest() has said what. */
  readonly waitsForInterest?: boolean
}

export interface WatchSessionInit {
  readonly retryMinMs: number
  readonly retryMaxMs: number
  /** Longest wait for each message until the copy is whole. */
  readonly answerTimeoutMs: number
  /** Changes are written to the store at most this often. */
  readonly saveEveryMs: number
}

export const DEFAULT_WATCH_SESSION: WatchSessionInit = {
  retryMinMs: 100,
  retryMaxMs: 5000,
  answerTimeoutMs: 15_000,
  saveEveryMs: 1000,
}

/** As the reason of the end of a stream: the next one asks for other namespaces. */
class InterestChanged extends Error {}

export class WatchSession {
  readonly #deps: WatchSessionDeps
  readonly #init: WatchSessionInit
  readonly #metrics: WatchMetrics
  readonly #brokerClock = new BrokerClock()
  #state: WatchState = { t: 'closed' }
  #cancelSave: (() => void) | undefined
  #saving: Promise<void> = Promise.resolve()
  /** Undefined: everything is asked for. */
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

  /** BrokerClock.aheadMs */
  brokerAheadMs(): number | undefined {
    return this.#brokerClock.aheadMs(this.#deps.clock.monotonic())
  }

  /**
   * Namespaces whose records are of use here; undefined: all. What is asked for no more is dropped at once, what is new
   * comes after one round trip.
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

  /** Until the signal; then the replica has been saved. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger, replica } = this.#deps
    const init = { minMs: this.#init.retryMinMs, maxMs: this.#init.retryMaxMs }
    const pace = new ReconnectPace(clock, init, () => replica.complete.size)
    const stopped = (): boolean => signal.aborted
    if (!this.#isInterestKnown) await this.#interestKnown(signal)
    while (!stopped()) {
      const error = await this.#once(signal, () => pace.live())
      if (stopped()) break
      if (error instanceof InterestChanged) continue
      this.#setState({ t: 'waiting', error })
      this.#metrics.disconnected()
      logger.info('watch interrupted', { why: error.message })
      await clock.sleep(pace.nextMs(error), signal).catch(() => undefined)
    }
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

  /** One stream, from its request to its end. Gives the reason of the end. */
  async #once(signal: AbortSignal, onLive: () => void): Promise<Error> {
    const { clock, replica } = this.#deps
    const stop = new AbortController()
    const expectAnswer = (): (() => void) =>
      clock.setTimer(this.#init.answerTimeoutMs, () => stop.abort(new BrokerSilentError()))
    let cancelTimer = expectAnswer()
    // A stream that takes over from one that was live.
    if (this.#state.t !== 'live') {
      this.#setState({ t: 'connecting' })
      this.#brokerClock.forget()
    }
    let isWhole = false
    this.#onInterest = () => stop.abort(new InterestChanged('other namespaces are asked for'))
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
        // Once whole, silence is normal: the transport's own pings watch over the connection.
        if (!isWhole) cancelTimer = expectAnswer()
      }
      stop.signal.throwIfAborted()
      return new BrokerUnreachableError('the broker ended the watch')
    } catch (error) {
      if (error instanceof ReplicaError) replica.forgetPosition()
      return errorOf(error)
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
    const changes = replica.apply(message, (error) => {
      this.#metrics.invalid()
      logger.error('record from the broker skipped', { reason: 'InvalidValue', field: error.field, why: error.message })
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

  #setState(state: WatchState): void {
    this.#state = state
    this.#metrics.live(state.t === 'live')
    this.#deps.onState?.(state)
  }

  #saveSoon(): void {
    if (this.#deps.store === undefined || this.#cancelSave !== undefined) return
    this.#cancelSave = this.#deps.clock.setTimer(this.#init.saveEveryMs, () => void this.#saveNow())
  }

  /** Writes never overlap. A failure is logged and tried again with the next change. */
  async #saveNow(): Promise<void> {
    this.#cancelSave?.()
    this.#cancelSave = undefined
    const { store, replica, logger } = this.#deps
    if (store === undefined) return
    this.#saving = this.#saving
      .then(() => store.save(replica))
      .catch((error: unknown) => {
        logger.error('replica not saved', { reason: 'StateFolderUnusable', why: messageOf(error) })
      })
    await this.#saving
  }
}
