/**
 * A Publish stream. First the broker compares the member's set by hashes and requests only the difference. Then the
 * member sends changes as they happen. The broker writes them in groups and acknowledges a group once it is durable.
 *
 *   new ──declare──► digest ──last part──► filling ──all needed received──► open
 *    └─────────────────same set───────────────────────────────────────────►┘
 */
import { randomUUID } from 'node:crypto'
import { type MemberStatus, type NotImported, type QuotaReport, isQuotaReason } from '../../model/model.ts'
import {
  type ClusterFacts,
  type MemberKey,
  type Peer,
  type PublishMessage,
  type PublishReply,
  type PublishSession,
  RefusedError,
} from '../../protocol/protocol.ts'
import { memberKeyText, setHash } from '../../protocol/codec/codec.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { errorOf } from '../../runtime/runtime.ts'
import type { Logger, ProblemFields } from '../../runtime/logging/logging.ts'
import { SeenRanges, clusterSpec } from '../addresses/addresses.ts'
import type { Audit } from '../audit/audit.ts'
import type { BrokerMetrics } from '../config/config.ts'
import { isOfMembership, requireMember } from '../identity/identity.ts'
import { askHeld, markComplete, noteAnswered } from '../members/members.ts'
import {
  type Refusal,
  type StatusRateLimiter,
  type WriteContext,
  type WriteRules,
  memberRecords,
  quotaAndUse,
  quotaOf,
  removeStatusRecord,
} from '../records/records.ts'
import type { LogView, RecordLog, Transaction } from '../store/store.ts'
import {
  CarriedAddresses,
  type ChangeContext,
  type ChangeGroup,
  type MemberChange,
  WaitingChanges,
  applyChange,
  compareSets,
  keyOf,
} from './member-changes.ts'
import { PublishAudit } from './publish-audit.ts'
import { ChangeRateLimiter, QuotaNews } from './quota-pressure.ts'
import { type WriteRateLimiter, receiveHeld, transactRateLimited, writePatiently } from './rate-limited-writes.ts'

const MAX_LOGGED_REFUSALS = 100
/**
 * Limit of records in a declared set. It bounds memory and is far beyond any default quota. A member over its quota
 * stays connected, since it must be able to change its records.
 */
const MAX_DECLARED = 100_000

export class MemberPublishSession implements PublishSession {
  readonly #deps: PublishSessionDeps
  readonly #init: PublishSessionInit
  readonly #ended = new AbortController()
  /** Id of this stream, for several brokers that share the store. */
  readonly #id = randomUUID()
  #isClaimed = false
  /** What this stream has stated. */
  #keepsToOffers: boolean | undefined
  #phase: 'new' | 'digest' | 'filling' | 'open' = 'new'
  /** The parts of the digest that have been received. */
  #digest = new Map<string, { readonly key: MemberKey; readonly hash: string }>()
  /** Keys of records that the member still has to send. */
  #needed = new Set<string>()
  #refusals = 0
  readonly #waiting = new WaitingChanges()
  readonly #audit: PublishAudit
  #writing: Promise<void> | undefined
  #failure: Error | undefined
  readonly #carried: CarriedAddresses
  readonly #ranges: SeenRanges
  /** Absent for a member of an earlier release, which does not support quotas. */
  #news: QuotaNews | undefined

  constructor(deps: PublishSessionDeps, init: PublishSessionInit) {
    this.#deps = deps
    this.#init = init
    this.#audit = new PublishAudit(deps.audit, init.peer)
    this.#ranges = new SeenRanges(deps.log.get('member', init.peer.cluster))
    this.#carried = new CarriedAddresses(clusterSpec(deps.log, init.peer.cluster)?.podCIDRs ?? [])
  }

  async onMessage(message: PublishMessage, bytes = 0): Promise<void> {
    this.#check()
    switch (message.t) {
      case 'declare':
        await this.#settled()
        return this.#onDeclare(message, bytes)
      case 'digest':
        return this.#onDigest(message, bytes)
      case 'held':
        return this.#onHeld(message, bytes)
      case 'put':
      case 'remove':
      case 'facts':
      case 'status':
        return this.#onChange(message, bytes)
    }
  }

  async onLast(): Promise<void> {
    await this.#settled()
  }

  onEnd(): void {
    this.#ended.abort(new Error('the stream has ended'))
    this.#init.onEnd()
  }

  /**
   * The caller runs it when a newer stream of the same member has begun, so that a client that sends nothing more
   * learns it too.
   */
  endReplaced(): void {
    this.#init.end(this.#replaced())
  }

  /** The caller runs it when the store reports that a stream of the member has begun, usually at another broker. */
  endIfOvertaken(): void {
    if (this.#isClaimed && this.#isOvertaken(this.#deps.log)) this.endReplaced()
  }

  /**
   * Ends the stream if the peer is no longer a member, and returns whether it did. Also ends a stream on which ranges
   * were stated that an operator has accepted since, so that the member publishes refused records again. The caller
   * runs it when memberships have changed.
   */
  endIfGone(): boolean {
    const { log, clock } = this.#deps
    const { peer, end } = this.#init
    if (isOfMembership(log, peer, clock.now())) {
      const text = 'podCIDRs: an operator accepted ranges of this cluster; the broker compares its records again'
      if (this.#ranges.accepted(log.get('member', peer.cluster)))
        end(new RefusedError('RangesAccepted', 'podCIDRs', text))
      return false
    }
    try {
      requireMember(log, peer, clock.now())
    } catch (error) {
      if (!(error instanceof RefusedError)) throw error
      end(error)
    }
    return true
  }

  /**
   * The caller runs it when the Cluster record of this member has changed. If a pod CIDR is carried again, the member
   * may not have noticed that it was not, and takes withdrawn records for stored. A new stream compares the sets again.
   */
  endIfRegained(): void {
    const again = this.#carried.regained(clusterSpec(this.#deps.log, this.#init.peer.cluster)?.podCIDRs ?? [])
    if (again.length === 0) return
    const text = `podCIDRs: ${again.join(', ')} of this cluster is carried again; the broker compares its records again`
    this.#init.end(new RefusedError('AddressesCarriedAgain', 'podCIDRs', text))
  }

  /** The caller runs it when brokers have come or gone. On a new stream the member takes back or sends what differs. */
  endIfOffersDiffer(keeps: boolean): void {
    if (this.#keepsToOffers === undefined || this.#keepsToOffers === keeps) return
    const text = 'offeredTo: brokers of an earlier release have come or gone; the broker compares records again'
    this.#init.end(new RefusedError('OffersReviewed', 'offeredTo', text))
  }

  /** The member of this stream. */
  get peer(): Peer {
    return this.#init.peer
  }

  /** Sends news of the quota. The caller runs it when the quota of the member or its use may have changed. */
  reportQuota(): void {
    if (this.#news === undefined || (this.#phase !== 'open' && this.#phase !== 'filling')) return
    const { log, changeLimiter } = this.#deps
    const now = this.#quota(log)
    changeLimiter.look(now.limit)
    const report = this.#news.next({ ...now, isSlowed: changeLimiter.isSlowed })
    if (report !== undefined) this.#init.reply({ t: 'quota', ...report })
  }

  #check(): void {
    this.#throwFailure()
    requireMember(this.#deps.log, this.#init.peer, this.#deps.clock.now())
    if (!this.#init.isCurrent()) throw this.#replaced()
  }

  #replaced(): RefusedError {
    const { cluster } = this.#init.peer
    return new RefusedError(
      'StreamReplaced',
      'stream',
      `stream: a newer publish stream of cluster "${cluster}" has taken over; if this repeats, two sites use one identity`,
    )
  }

  #isOvertaken(view: LogView): boolean {
    return view.get('stream', this.#init.peer.cluster)?.id !== this.#id
  }

  async #onDeclare(message: Extract<PublishMessage, { t: 'declare' }>, bytes: number): Promise<void> {
    const { setHash: hash, count, tellsStatus, givesHeld } = message
    const { cluster } = this.#init.peer
    // The transaction runs after the writes of an earlier stream.
    const same = await this.#compared(bytes, (tx) => {
      // The claim is written once: each write to a shared store makes concurrent writes of other brokers retry.
      if (this.#deps.log.isShared === true && this.#isOvertaken(tx)) tx.put('stream', cluster, { id: this.#id })
      const rows = memberRecords(tx, cluster)
      const stored = setHash(rows.map(({ row }) => Buffer.from(row.hash ?? '', 'hex')))
      const equal = rows.length === count && Buffer.compare(stored, hash) === 0
      if (equal) markComplete(tx, this.#init.peer)
      // An agent of an earlier release sends no status: the record of a later release would never be updated.
      if (tellsStatus !== true) removeStatusRecord(tx, cluster)
      if (givesHeld !== true) noteAnswered(tx, cluster)
      return equal
    })
    this.#isClaimed = this.#deps.log.isShared === true
    if (tellsStatus !== true) this.#deps.statuses.withdraw(cluster)
    this.#deps.metrics.resyncs.inc({ result: same ? 'same' : 'different' })
    this.#digest = new Map()
    this.#needed = new Set()
    this.#phase = same ? 'open' : 'digest'
    const asks = givesHeld === true ? askHeld(this.#deps, cluster) : {}
    this.#news = message.takesQuota === true ? new QuotaNews() : undefined
    const keeps = (this.#keepsToOffers = this.#init.keepsToOffers())
    const offers = keeps ? { keepsToOffers: true as const } : {}
    this.#init.reply({ t: same ? 'inSync' : 'sendDigest', takesStatus: true, ...offers, ...asks })
    this.reportQuota()
  }

  #onHeld(message: Extract<PublishMessage, { t: 'held' }>, bytes: number): Promise<void> {
    if (this.#phase === 'new') throw unexpected('held', 'the first message of a stream is declare')
    const transact = <T>(decide: (tx: Transaction) => T): Promise<T> => this.#transact(decide)
    return receiveHeld(message, bytes, { ...this.#deps, ...this.#init, transact, signal: this.#ended.signal })
  }

  async #onDigest(message: Extract<PublishMessage, { t: 'digest' }>, bytes: number): Promise<void> {
    if (this.#phase !== 'digest') throw unexpected('digest', 'it was not asked for')
    const digest = this.#digest
    for (const { key, hash } of message.entries) {
      digest.set(memberKeyText(key), { key, hash: Buffer.from(hash).toString('hex') })
    }
    const most = Math.max(MAX_DECLARED, 2 * this.#quota(this.#deps.log).limit.records)
    if (digest.size > most) throw new RefusedError('RecordLimit', 'digest', `digest: more than ${most} records`)
    if (!message.last) return
    this.#digest = new Map()
    const keys = await this.#compared(bytes, (tx) => {
      const needed = compareSets(tx, digest, this.#context())
      if (needed.length === 0) markComplete(tx, this.#init.peer)
      return needed
    })
    this.#needed = new Set(keys.map(memberKeyText))
    this.#phase = keys.length === 0 ? 'open' : 'filling'
    this.#init.reply({ t: 'need', keys })
    this.reportQuota()
  }

  /** The comparison reads every record of the member, which may request it repeatedly, so it is rate limited. */
  #compared<T>(bytes: number, compare: (tx: Transaction) => T): Promise<T> {
    const transact = <R>(decide: (tx: Transaction) => R): Promise<R> => this.#transact(decide)
    return transactRateLimited({ ...this.#deps, transact, signal: this.#ended.signal }, bytes, compare)
  }

  async #onChange(change: MemberChange, bytes: number): Promise<void> {
    if (this.#phase === 'new') throw unexpected(change.t, 'the first message of a stream is declare')
    if (this.#phase === 'digest') throw unexpected(change.t, 'the digest comes first')
    this.#waiting.add(change.t === 'status' ? { ...change, status: this.#publicPart(change.status) } : change, bytes)
    this.#writing ??= this.#write()
    if (this.#waiting.isFull) await this.#settled()
  }

  /** A status is sent to all members, and must not name what is offered to some of them only. */
  #publicPart(status: MemberStatus): MemberStatus {
    const notImported = status.notImported.filter((one) => this.#deps.isPublic(one))
    const left = status.notImported.length - notImported.length
    return left === 0 ? status : { ...status, notImported, leftOut: status.leftOut + left }
  }

  /**
   * Writes groups until no change waits. A failure ends the stream at once: the member may have nothing more to send.
   */
  async #write(): Promise<void> {
    try {
      while (!this.#waiting.isEmpty) {
        const most = ChangeRateLimiter.groupSize(this.#quota(this.#deps.log).limit)
        const pauseMs = await this.#writeGroup(this.#waiting.nextGroup(most))
        if (pauseMs > 0) await this.#deps.clock.sleep(pauseMs, this.#ended.signal)
      }
    } catch (error) {
      this.#failure = errorOf(error)
      this.#waiting.clear()
      this.#init.end(this.#failure)
    } finally {
      this.#writing = undefined
    }
  }

  /** Returns the pause before the next group in milliseconds. */
  async #writeGroup(group: ChangeGroup): Promise<number> {
    const { statuses, clock, writeLimiter } = this.#deps
    const { peer } = this.#init
    const { changes } = group
    const filled = this.#isFilledBy(changes)
    const writesStatus = statuses.isDue(peer.cluster)
    // Asked once, however often the store runs the transaction.
    let isAudited: boolean | undefined
    let tookMs = 0
    const full: Pick<QuotaReport, 'limit' | 'used'>[] = []
    const refusals = await this.#transact((tx) => {
      const begunMs = clock.monotonic()
      if (filled) markComplete(tx, peer)
      // Only the last facts of a group count: other members have not seen the earlier ones.
      let taken: ClusterFacts | undefined
      const renumbered = new Set<string>()
      const context: ChangeContext = {
        ...this.#context(),
        writesStatus,
        onFacts: (of) => {
          taken = of.taken ?? taken
          for (const one of of.renumbered) renumbered.add(one)
          if (of.waits !== undefined) this.#audit.waits(tx, of.waits)
        },
        onRenumbered: (record, clusters) => this.#audit.renumbered(tx, record, clusters),
      }
      full.length = 0
      const results = changes.map((change) => {
        const refused = applyChange(tx, change, context)
        if (isQuotaReason(refused?.reason)) full.push(this.#quota(tx))
        return refused
      })
      if (taken !== undefined) {
        isAudited ??= this.#audit.allowsFacts()
        // Renumbered members are logged however often the member changes its facts.
        if (isAudited || renumbered.size > 0) this.#audit.facts(tx, taken, [...renumbered])
      }
      tookMs = clock.monotonic() - begunMs
      return results
    })
    this.#waiting.done(group)
    const status = changes.filter((change, i) => change.t === 'status' && refusals[i] === undefined).at(-1)
    if (status?.t === 'status' && writesStatus) statuses.wrote(peer.cluster)
    else if (status?.t === 'status') statuses.hold(peer, status.status)
    this.#answer(changes, refusals)
    if (filled) this.#phase = 'open'
    this.#news?.refused(full)
    const pauseMs = Math.max(writeLimiter.used(tookMs, group.bytes), this.#limitChanges(changes.length))
    this.reportQuota()
    return pauseMs
  }

  /**
   * Returns the pause in milliseconds. That a member is slowed down is logged and counted once, until its rate has
   * dropped.
   */
  #limitChanges(count: number): number {
    const { changeLimiter, log, logger, metrics } = this.#deps
    const { cluster } = this.#init.peer
    const wasSlowed = changeLimiter.isSlowed
    const quota = quotaOf(log, cluster, this.#init.rules.quota)
    const pauseMs = changeLimiter.took(count, quota)
    if (changeLimiter.isSlowed && !wasSlowed) {
      metrics.quotaSlowed.inc()
      const why = `the cluster changes more than ${quota.changes} records a second`
      logger.warn('slowing down a member', { reason: 'QuotaChanges', cluster, why })
    }
    return pauseMs
  }

  async #settled(): Promise<void> {
    await this.#writing
    this.#throwFailure()
  }

  #throwFailure(): void {
    if (this.#failure !== undefined) throw this.#failure
  }

  #answer(group: readonly MemberChange[], refusals: readonly (Refusal | undefined)[]): void {
    for (const [i, change] of group.entries()) {
      const refused = refusals[i]
      if (refused === undefined) continue
      const key = keyOf(change)
      this.#deps.metrics.refused.inc({ kind: change.t === 'facts' || change.t === 'status' ? change.t : key.kind })
      const { field, reason, message: why } = refused
      if (isQuotaReason(reason)) this.#deps.metrics.quotaRefused.inc({ reason })
      this.#log('record refused', { cluster: this.#init.peer.cluster, ...key, field, reason, why })
      this.#audit.refused(change, refused)
      this.#init.reply({ t: 'refused', sequence: change.sequence, key, ...refused })
    }
    const last = group.at(-1)
    if (last !== undefined) this.#init.reply({ t: 'ack', sequence: last.sequence })
  }

  /** A member that keeps sending invalid records must not fill the log. */
  #log(message: string, fields: ProblemFields): void {
    this.#refusals += 1
    if (this.#refusals <= MAX_LOGGED_REFUSALS) this.#deps.logger.warn(message, fields)
    else this.#deps.logger.debug(message, fields)
  }

  /** Whether no record is needed after these. Refused ones count: the member does not send them again unchanged. */
  #isFilledBy(group: readonly MemberChange[]): boolean {
    if (this.#phase !== 'filling') return false
    for (const change of group) {
      if (change.t === 'put' || change.t === 'remove') this.#needed.delete(memberKeyText(keyOf(change)))
    }
    return this.#needed.size === 0
  }

  /**
   * As long as the store refuses writes, the member waits for its acknowledgement. The end of the stream ends the wait.
   */
  #transact<T>(decide: (tx: Transaction) => T): Promise<T> {
    const asMember = (tx: Transaction): T => {
      requireMember(tx, this.#init.peer, this.#deps.clock.now())
      if (!this.#init.isCurrent() || (this.#isClaimed && this.#isOvertaken(tx))) throw this.#replaced()
      return decide(tx)
    }
    return writePatiently(this.#deps, asMember, this.#ended.signal)
  }

  #quota(view: LogView): Pick<QuotaReport, 'limit' | 'used'> {
    return quotaAndUse(view, this.#init.peer.cluster, this.#init.rules.quota)
  }

  #context(): WriteContext {
    return { cluster: this.#init.peer.cluster, rules: this.#init.rules, nowMs: this.#deps.clock.now() }
  }
}

// Dependencies of a Publish stream at the broker.

interface PublishSessionDeps {
  readonly statuses: StatusRateLimiter
  /** See WatchHub.isPublic(). */
  readonly isPublic: (service: NotImported) => boolean
  /** These are shared by all streams of the member. */
  readonly writeLimiter: WriteRateLimiter
  readonly changeLimiter: ChangeRateLimiter
  readonly log: RecordLog
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: BrokerMetrics
  readonly audit: Audit
}

interface PublishSessionInit {
  readonly peer: Peer
  readonly rules: WriteRules
  readonly reply: (message: PublishReply) => void
  /** Whether all brokers of the store give records only to members to which they are offered. */
  readonly keepsToOffers: () => boolean
  /** False if a newer stream of the same cluster has taken over. Checked after the membership. */
  readonly isCurrent: () => boolean
  /** Ends the stream with the reason. */
  readonly end: (reason: Error) => void
  readonly onEnd: () => void
}

/** The refusal of a message that is not allowed at this point of a Publish stream. */
function unexpected(what: string, why: string): RefusedError {
  return new RefusedError('UnexpectedMessage', what, `${what}: ${why}`)
}
