/**
 * Keeps the broker's copy of this cluster's records equal to the records that this cluster wants published.
 *
 *   closed ──run──► connecting ──inSync──────────────► live
 *     ▲               ▲   │ └──sendDigest─► declaring ──need──► live
 *     │             delay └────failure──┬──────┴────────────────┘
 *     └──stop── (any) └──── waiting ◄───┘
 *
 * - closed: the session is not running.
 * - waiting: setDesired() was not called yet (an empty set is never assumed), or the last attempt failed and the next
 *   one follows after a delay.
 * - connecting: the session has declared the hash of the set and has no answer yet.
 * - declaring: the broker has a different set. The session sends the hash of each record, and the broker replies with
 *   the keys that it needs.
 * - live: the session sends changes as they occur, with at most `window` unacknowledged.
 */
import type { MemberRecord, MemberStatus, QuotaReport } from '../../model/model.ts'
import type { ReasonCode, RefusalReason } from '../../model/reasons/reasons.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { errorOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { Metrics } from '../../runtime/metrics/metrics.ts'
import {
  type BrokerClient,
  BrokerSilentError,
  BrokerUnreachableError,
  type ClusterFacts,
  ProtocolError,
  type PublishMessage,
  type PublishReply,
  type PublishStream,
  RefusedError,
} from '../protocol.ts'
import { type GivesHeld, answerHeld } from './held-records.ts'
import {
  type Change,
  type Declaration,
  FactsLedger,
  PublishLedger,
  type RecordState,
  refusedOrPending,
} from './publish-ledger.ts'
import { type PublishMetrics, QuotaNotes, publishMetrics } from './session-metrics.ts'
import { type StreamEnd, Watchdog, keepConnected, orAborted } from './session-timing.ts'

export type PublishSessionState =
  | { readonly t: 'closed' }
  | { readonly t: 'waiting'; readonly error?: Error }
  | { readonly t: 'connecting' }
  | { readonly t: 'declaring' }
  | { readonly t: 'live' }

type StatusMessage = Extract<PublishMessage, { t: 'status' }>

export interface PublishSessionDeps {
  /** Id of this cluster, for messages to users. */
  readonly cluster?: string
  /** Returns the client for the next attempt. Called for each attempt, so that a renewed certificate takes effect. */
  readonly connect: () => BrokerClient
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics?: Metrics
  /** Number of known members, all of which reconnect after an outage of the broker. Absent if there are few. */
  readonly members?: () => number
  /** Called once per refusal. The same content is not sent again. Must not throw. */
  readonly onRefused?: (refused: RefusedRecord) => void
  /** Called after recordState() may have changed for these keys, or for any key if undefined. Must not throw. */
  readonly onChange?: (keys: readonly string[] | undefined) => void
  readonly onState?: (state: PublishSessionState) => void
  /** Returns the records of earlier epochs for a restored broker that asks. If absent, the session sends none. */
  readonly held?: GivesHeld
}

export interface PublishSessionInit {
  readonly retryMinMs: number
  readonly retryMaxMs: number
  /** Longest wait for any answer. */
  readonly answerTimeoutMs: number
  /** Limit of changes that are sent and not yet acknowledged. */
  readonly window: number
  /** Records in one digest message. */
  readonly digestPart: number
}

export const DEFAULT_PUBLISH_SESSION: PublishSessionInit = {
  retryMinMs: 100,
  retryMaxMs: 5000,
  answerTimeoutMs: 30_000,
  window: 256,
  digestPart: 2000,
}

export class PublishSession {
  readonly #deps: PublishSessionDeps
  readonly #init: PublishSessionInit
  readonly #metrics: PublishMetrics
  readonly #ledger = new PublishLedger()
  readonly #quota: QuotaNotes
  readonly #facts = new FactsLedger<ClusterFacts>()
  readonly #status = new FactsLedger<MemberStatus>()
  /** The broker of the current stream accepts status messages. */
  #takesStatus = false
  #keepsToOffers: boolean | undefined
  readonly #watchers = new Set<() => void>()
  #state: PublishSessionState = { t: 'closed' }
  #known = false
  #answered = false
  #sequence = 0
  /** Wakes the sender of the current stream. */
  #wake: () => void = () => undefined

  constructor(deps: PublishSessionDeps, init: Partial<PublishSessionInit> = {}) {
    this.#deps = deps
    this.#init = { ...DEFAULT_PUBLISH_SESSION, ...init }
    this.#metrics = publishMetrics(deps.metrics, deps.clock)
    this.#quota = new QuotaNotes(deps)
  }

  state(): PublishSessionState {
    return this.#state
  }

  /** See AcknowledgeDelay.answeredMs. */
  readonly answeredMs = (): number | undefined => this.#metrics.answeredMs()

  /** True after the broker has answered a declaration. From then on recordState() returns what the broker has. */
  get answered(): boolean {
    return this.#answered
  }

  /**
   * Whether the broker gives records only to members to which they are offered. False: it is of an earlier release, and
   * records with an offer are refused here (OffersNotSupported). Undefined before its first answer. `onChange` is called
   * after each answer.
   */
  get keepsToOffers(): boolean | undefined {
    return this.#keepsToOffers
  }

  recordState(key: string): RecordState {
    return this.#answered ? this.#ledger.state(key) : refusedOrPending(this.#ledger.state(key))
  }

  /**
   * Sets the whole set to publish, by memberKeyText(memberKey(record)). The session declares nothing before the first
   * call. A record that is the same object as before counts as unchanged.
   */
  setDesired(records: ReadonlyMap<string, MemberRecord>): void {
    const refusals = this.#ledger.setWanted(records)
    this.#known = true
    this.#metrics.records(records.size, this.#ledger.settled)
    for (const { key, refusal } of refusals) this.#refused({ key, ...refusal })
    this.#poke()
  }

  /** Sets the facts, which are sent to the broker once after each start and after each change. */
  setFacts(facts: ClusterFacts): void {
    this.#facts.set(facts)
    this.#poke()
  }

  /** Sets the status, which is sent once on each stream and after each change, if the broker accepts it. */
  setStatus(status: MemberStatus): void {
    this.#status.set(status)
    this.#poke()
  }

  /** Why the broker refuses the facts of this cluster. Undefined if no refusal is known. */
  factsRefused(): ReasonCode | undefined {
    return this.#facts.refused
  }

  /** Sends refused records, facts and status again. */
  retryRefused(): void {
    this.#ledger.forgetRefusals()
    this.#facts.forgetReported()
    this.#status.forgetReported()
    this.#poke()
  }

  /** Resolves when the broker has stored or refused everything. Rejects with the signal's reason. */
  async whenSettled(signal: AbortSignal): Promise<void> {
    while (!this.#settled()) await this.#nextChange(signal)
  }

  /** Runs until the signal aborts. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#deps
    const retry = { minMs: this.#init.retryMinMs, maxMs: this.#init.retryMaxMs }
    this.#setState({ t: 'waiting' })
    const stopped = (): boolean => signal.aborted
    while (!this.#known && !stopped()) await this.#nextChange(signal).catch(() => undefined)
    const once = (onLive: () => void): Promise<StreamEnd> => this.#once(signal, onLive)
    const onFailed = (error: Error): void => {
      this.#setState({ t: 'waiting', error })
      this.#metrics.disconnected()
      if (error instanceof RefusedError && error.reason === 'RangesAccepted') this.retryRefused()
      logger.info('the publish stream was interrupted; retrying', { why: error.message })
    }
    await keepConnected({ clock, retry, members: () => this.#deps.members?.() ?? 0, once, onFailed }, signal)
    this.#setState({ t: 'closed' })
  }

  /** Runs one stream, from the declaration to its end. */
  async #once(signal: AbortSignal, onLive: () => void): Promise<StreamEnd> {
    const stop = new AbortController()
    const ended = AbortSignal.any([signal, stop.signal])
    const watchdog = new Watchdog(this.#deps.clock, this.#init.answerTimeoutMs, () =>
      stop.abort(new BrokerSilentError()),
    )
    this.#takesStatus = false
    this.#setState({ t: 'connecting' })
    let stream: PublishStream | undefined
    let sender: Promise<void> | undefined
    try {
      let declaration = this.#ledger.declare()
      stream = this.#deps.connect().publish(ended)
      watchdog.expect()
      const { setHash, count } = declaration
      await stream.send({ t: 'declare', setHash, count, tellsStatus: true, takesQuota: true, givesHeld: true })
      for await (const reply of stream.replies) {
        watchdog.answered()
        await answerHeld(reply, this.#deps.held, stream, ended)
        if (reply.t === 'inSync' || reply.t === 'sendDigest') {
          const isOther = this.#takeOffers(reply.keepsToOffers === true)
          // The digest leaves out what this broker must not have, so that it removes it.
          if (isOther && reply.t === 'sendDigest') declaration = this.#ledger.declare()
        }
        await this.#onReply(reply, declaration, stream, watchdog)
        if (this.#state.t === 'live' && sender === undefined) {
          onLive()
          sender = this.#sendChanges(stream, watchdog, ended).catch((error: unknown) => stop.abort(error))
        }
      }
      return { t: 'failed', error: new BrokerUnreachableError('the broker ended the stream') }
    } catch (error) {
      // If the session ended the stream, its own reason is more precise than the cancellation.
      const cause: unknown = stop.signal.aborted ? stop.signal.reason : error
      return { t: 'failed', error: errorOf(cause) }
    } finally {
      watchdog.stop()
      stop.abort(new BrokerUnreachableError('the stream has ended'))
      stream?.close()
      await sender
      this.#facts.forgetInFlight()
      this.#status.forgetInFlight()
      // The next broker may be another replica, or one that has lost its state.
      this.#status.forgetReported()
    }
  }

  async #onReply(
    reply: PublishReply,
    declaration: Declaration,
    stream: PublishStream,
    watchdog: Watchdog,
  ): Promise<void> {
    const state = this.#state.t
    switch (reply.t) {
      case 'inSync':
      case 'sendDigest':
        if (state !== 'connecting') throw new ProtocolError(`received "${reply.t}" in state ${state}`)
        this.#metrics.declared(reply.t)
        this.#takesStatus = reply.takesStatus === true
        if (reply.t === 'inSync') {
          this.#becomeLive(declaration, [])
          return
        }
        this.#setState({ t: 'declaring' })
        watchdog.expect()
        return this.#sendDigest(declaration, stream)
      case 'need':
        if (state === 'declaring') {
          this.#becomeLive(declaration, reply.keys)
          return
        }
        if (state !== 'live') throw new ProtocolError(`received "need" in state ${state}`)
        // The broker splits long lists of keys.
        this.#ledger.need(reply.keys)
        this.#poke()
        return
      case 'ack':
        this.#onAck(reply.sequence, watchdog)
        return
      case 'refused':
        this.#onRefusal(reply)
        return
      case 'quota':
        this.#onQuota(reply)
        return
    }
  }

  /** Returns whether the records to publish may be others than those that were declared. */
  #takeOffers(keeps: boolean): boolean {
    const before = this.#keepsToOffers ?? true
    this.#keepsToOffers = keeps
    for (const { key, refusal } of this.#ledger.setKeepsToOffers(keeps)) this.#refused({ key, ...refusal })
    return before !== keeps
  }

  #becomeLive(declaration: Declaration, needed: Parameters<PublishLedger['begin']>[1]): void {
    this.#ledger.begin(declaration, needed)
    this.#answered = true
    this.#setState({ t: 'live' })
    this.#poke()
    this.#deps.onChange?.(undefined)
  }

  #onAck(sequence: number, watchdog: Watchdog): void {
    this.#metrics.acknowledged(sequence)
    this.#facts.acknowledge(sequence)
    this.#status.acknowledge(sequence)
    const changed = this.#ledger.acknowledge(sequence)
    if (this.#unanswered() > 0) watchdog.expect()
    this.#poke()
    if (changed.length > 0) this.#deps.onChange?.(changed)
  }

  #onRefusal(reply: PublishReply & { readonly t: 'refused' }): void {
    const { field, reason, message, kept } = reply
    if (this.#facts.isInFlight(reply.sequence) || this.#status.isInFlight(reply.sequence)) {
      this.#facts.refuse(reply.sequence, reason)
      this.#refused({ key: undefined, field, reason, message })
    } else {
      const key = this.#ledger.refuse(reply.sequence, { field, reason, message }, kept)
      if (key !== undefined) this.#refused({ key, field, reason, message })
    }
    this.#poke()
  }

  #onQuota(report: QuotaReport): void {
    const changed = this.#ledger.takeQuota(report, this.#deps.cluster ?? '')
    this.#quota.take(report, this.#ledger.waiting)
    this.#poke()
    if (changed.length > 0) this.#deps.onChange?.(changed)
  }

  #refused(refused: RefusedRecord): void {
    this.#metrics.refused()
    this.#quota.logRefused(refused, this.#ledger.waiting)
    this.#deps.onRefused?.(refused)
    this.#deps.onChange?.(refused.key === undefined ? undefined : [refused.key])
  }

  async #sendDigest(declaration: Declaration, stream: PublishStream): Promise<void> {
    const { entries } = declaration
    const { digestPart } = this.#init
    // At least one part is sent, because the last part carries `last`.
    for (let i = 0; i === 0 || i < entries.length; i += digestPart) {
      const end = i + digestPart
      await stream.send({ t: 'digest', entries: entries.slice(i, end), last: end >= entries.length })
    }
  }

  /** Sends changes while there are any and the window allows, and then waits to be woken. */
  async #sendChanges(stream: PublishStream, watchdog: Watchdog, signal: AbortSignal): Promise<void> {
    const ended = (): boolean => signal.aborted
    while (!ended()) {
      const woken = new Promise<void>((resolve) => (this.#wake = resolve))
      while (!ended() && this.#unanswered() < this.#init.window) {
        const idle = this.#unanswered() === 0
        if (!(await this.#sendOne(stream))) break
        if (idle) watchdog.expect()
      }
      this.#notify()
      await orAborted(woken, signal)
    }
  }

  /** Returns false if there is nothing to send. */
  async #sendOne(stream: PublishStream): Promise<boolean> {
    const sequence = this.#sequence + 1
    const facts = this.#facts.next(sequence)
    const message = facts === undefined ? this.#nextStatusOrRecord(sequence) : { t: 'facts' as const, sequence, facts }
    if (message === undefined) return false
    this.#sequence = sequence
    this.#metrics.sent(message.t, sequence)
    await stream.send(message)
    return true
  }

  /** Records come first, because a status is less urgent. */
  #nextStatusOrRecord(sequence: number): Change | StatusMessage | undefined {
    const change = this.#ledger.next(sequence)
    if (change !== undefined || !this.#takesStatus) return change
    const status = this.#status.next(sequence)
    return status === undefined ? undefined : { t: 'status', sequence, status }
  }

  #unanswered(): number {
    return this.#ledger.inFlight + this.#facts.inFlight + this.#status.inFlight
  }

  #settled(): boolean {
    const reported = this.#status.settled || !this.#takesStatus
    return this.#state.t === 'live' && this.#ledger.settled && this.#facts.settled && reported
  }

  #setState(state: PublishSessionState): void {
    this.#state = state
    this.#metrics.live(state.t === 'live', this.#ledger.settled)
    this.#deps.onState?.(state)
    this.#notify()
  }

  #poke(): void {
    this.#wake()
    this.#notify()
  }

  #notify(): void {
    const watchers = [...this.#watchers]
    this.#watchers.clear()
    for (const watcher of watchers) watcher()
  }

  async #nextChange(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    const changed = new Promise<void>((resolve) => this.#watchers.add(resolve))
    await orAborted(changed, signal)
    signal.throwIfAborted()
  }
}

/** A refusal of this cluster's record, facts or status. */
export interface RefusedRecord {
  /** memberKeyText() of the record. Undefined if the facts or the status were refused. */
  readonly key: string | undefined
  readonly field: string
  readonly reason: RefusalReason
  readonly message: string
}
