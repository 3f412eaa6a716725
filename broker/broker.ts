/** The broker without the wire and the process: BrokerApi on a log and a certificate authority. */
import type { ClusterId, MemberStatus, NotImported } from '../model/model.ts'
import type {
  BrokerApi,
  JoinLook,
  JoinRequest,
  JoinResponse,
  Peer,
  PublishReply,
  PublishSession,
  RenewResponse,
  WatchMessage,
  WatchRequest,
} from '../protocol/protocol.ts'
import { canonicalJson } from '../protocol/codec/codec.ts'
import { fingerprint } from '../protocol/identity/identity.ts'
import type { Clock } from '../reconcile/reconcile.ts'
import { reasonOf } from '../runtime/runtime.ts'
import type { Logger } from '../runtime/logging/logging.ts'
import { type Audit, NO_AUDIT, accepted, memberActor, memberSource } from './audit/audit.ts'
import {
  type CertificateAuthority,
  CertificateUse,
  authoritiesMessage,
  isOfMembership,
  normalSerial,
  requireMember,
  useCertificate,
  useToRenew,
} from './identity/identity.ts'
import {
  AcceptedRanges,
  ContactNotes,
  HeardMembers,
  Joining,
  MemberCounts,
  MemberWarnings,
  OperatorWords,
  type Replicas,
  ReturningMembers,
  beginSettling,
  countWaiting,
  departMember,
  keepEarlierSpace,
  noteFollows,
  noteIssued,
  pruneDeparted,
  pruneRestore,
  pruneTokens,
  reviewAddresses,
} from './members/members.ts'
import { clusterRecordKey } from './addresses/addresses.ts'
import type { BrokerLimits, BrokerMetrics } from './config/config.ts'
import {
  type Change,
  type ChangesFrom,
  type RecordLog,
  SETTINGS_KEY,
  groupOf,
  isLive,
  statedRelays,
} from './store/store.ts'
import { ChangeRateLimiter, MemberPublishSession, WatchHub, WriteRateLimiter } from './sessions/sessions.ts'
import {
  StatusRateLimiter,
  type WriteContext,
  type WriteRules,
  countQuotas,
  pruneStamps,
  topologyInForce,
  writeStatusRecord,
} from './records/records.ts'

export interface BrokerDeps {
  readonly log: RecordLog
  readonly authority: CertificateAuthority
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: BrokerMetrics
  /** Absent: nothing is audited. */
  readonly audit?: Audit
  /** See nearAddresses(). */
  readonly near?: () => Promise<readonly string[]>
  /** Absent: this broker is the only one. */
  readonly replicas?: Replicas
}

export interface BrokerInit {
  readonly clusterset: string
  readonly globalRange: string
  readonly clustersetIpRange: string
  readonly allowedNamespaces: readonly string[]
  readonly sourcesKept: boolean
  readonly approve: boolean
  readonly limits: BrokerLimits
  /** See BrokerConfig. */
  readonly renewalGraceMs: number
  /**
   * host:port at which members reach this broker and its replicas. Absent: the broker does not report them to members.
   */
  readonly advertise?: readonly string[]
}

export class Broker implements BrokerApi {
  readonly #deps: BrokerDeps & { readonly audit: Audit }
  readonly #init: Pick<BrokerInit, 'renewalGraceMs'>
  readonly #rules: WriteRules
  readonly #hub: WatchHub
  /** The brokers that ignore the topology, as they were logged last. */
  #withoutTopology = ''
  readonly #use: CertificateUse
  readonly #returning: ReturningMembers
  readonly #sessions = new Map<ClusterId, MemberPublishSession>()
  readonly #statuses: StatusRateLimiter
  readonly #limiters = new Map<
    ClusterId,
    { readonly writeLimiter: WriteRateLimiter; readonly changeLimiter: ChangeRateLimiter }
  >()
  readonly #joining: Joining
  readonly #ranges: AcceptedRanges
  readonly #stopCommits: () => void
  readonly #warnings: MemberWarnings
  readonly #words: OperatorWords
  readonly #heard: HeardMembers
  readonly #counts: MemberCounts
  readonly #notes: ContactNotes

  constructor(given: BrokerDeps, init: BrokerInit) {
    const deps = { audit: NO_AUDIT, ...given }
    this.#deps = deps
    this.#init = init
    this.#heard = new HeardMembers(deps.clock)
    const { globalRange, clustersetIpRange, allowedNamespaces, approve } = init
    this.#rules = { globalRange, clustersetIpRange, allowedNamespaces, quota: init.limits.quota, approve }
    this.#use = new CertificateUse(deps)
    this.#returning = new ReturningMembers(deps, this.#rules)
    this.#warnings = new MemberWarnings(deps)
    this.#words = new OperatorWords(deps)
    this.#ranges = new AcceptedRanges(deps, this.#rules)
    const isConnected = (cluster: ClusterId): boolean => this.#isConnected(cluster)
    this.#joining = new Joining({ ...deps, isConnected }, { ...init, rules: this.#rules })
    this.#statuses = new StatusRateLimiter(deps.clock, (peer, status) => this.#writeStatus(peer, status))
    this.#hub = new WatchHub(deps, { quota: this.#rules.quota, addresses: init.advertise ?? [] })
    this.#counts = new MemberCounts(deps.metrics)
    this.#notes = new ContactNotes(deps, {
      isHere: (cluster) => this.#isConnectedHere(cluster),
      isElsewhere: (cluster) => deps.replicas?.isConnectedElsewhere(cluster) === true,
    })
    this.#stopCommits = deps.log.onCommit((changes, from) => this.#onCommit(changes, from))
    this.#onAuthorities()
    this.#onSettings()
    this.#counts.recount(deps.log)
    this.#countRecords()
    this.#countWaiting()
    this.#warnings.reportReservedIds()
  }

  async join(request: JoinRequest, peerAddress: string): Promise<JoinResponse> {
    const response = await this.#joining.join(request, peerAddress)
    this.#heard.note(request.cluster)
    return response
  }

  lookAtJoin(request: JoinRequest, peerAddress: string): Promise<JoinLook> {
    return this.#joining.lookAtJoin(request, peerAddress)
  }

  withdrawJoin(request: JoinRequest, peerAddress: string): Promise<void> {
    return this.#joining.withdraw(request, peerAddress)
  }

  async renew(peer: Peer, csr: Uint8Array): Promise<RenewResponse> {
    const { log, authority, clock, audit } = this.#deps
    const startedMs = clock.monotonic()
    const { renewalGraceMs: graceMs } = this.#init
    this.#shown(peer, graceMs)
    await log.transact((tx) => useToRenew(tx, peer, clock.now(), graceMs))
    const issued = await authority.issue(peer.cluster, csr, normalSerial(peer.serial))
    const { certificate, expiresAtMs } = issued
    const isAudited = audit.allows(accepted(memberSource(peer.cluster)))
    const caBundle = await log.transact((tx) => {
      useToRenew(tx, peer, clock.now(), graceMs)
      const { handedOut, caBundle } = authority.handOut(tx, issued)
      noteIssued(tx, peer.cluster, handedOut, clock.now())
      if (!isAudited) return caBundle
      const details = { certificate: fingerprint(certificate), expires: new Date(expiresAtMs).toISOString() }
      const tookMs = clock.monotonic() - startedMs
      const { cluster: subject } = peer
      audit.keep(tx, { act: 'renew', result: 'ok', who: memberActor(peer), subject, details, tookMs })
      return caBundle
    })
    return { certificate, caBundle }
  }

  async leave(peer: Peer): Promise<void> {
    const { log, clock, logger, audit } = this.#deps
    const startedMs = clock.monotonic()
    this.#use.note(peer)
    await log.transact((tx) => {
      const row = tx.get('member', peer.cluster)
      // The answer to an earlier leave was lost, and there is nothing left to do.
      if (row?.departure === 'left' && row.departedAtMs !== undefined) return
      useCertificate(tx, peer, clock.now())
      departMember(tx, 'left', this.#context(peer.cluster))
      const tookMs = clock.monotonic() - startedMs
      audit.keep(tx, { act: 'leave', result: 'ok', who: memberActor(peer), subject: peer.cluster, tookMs })
    })
    logger.info('cluster left', { cluster: peer.cluster })
  }

  openPublish(peer: Peer, reply: (message: PublishReply) => void, end: (reason: Error) => void): PublishSession {
    this.#shown(peer)
    requireMember(this.#deps.log, peer, this.#deps.clock.now())
    const before = this.#sessions.get(peer.cluster)
    const { clock } = this.#deps
    const limiters = this.#limiters.get(peer.cluster) ?? {
      writeLimiter: new WriteRateLimiter(clock),
      changeLimiter: new ChangeRateLimiter(clock),
    }
    this.#limiters.set(peer.cluster, limiters)
    const isPublic = (service: NotImported): boolean => this.#hub.isPublic(service)
    const deps = { ...this.#deps, statuses: this.#statuses, isPublic, ...limiters }
    const session: MemberPublishSession = new MemberPublishSession(deps, {
      peer,
      rules: this.#rules,
      reply,
      end,
      keepsToOffers: () => this.#keepsToOffers(),
      isCurrent: (): boolean => this.#sessions.get(peer.cluster) === session,
      onEnd: () => {
        if (this.#sessions.get(peer.cluster) !== session) return
        this.#sessions.delete(peer.cluster)
        this.#seen(peer.cluster)
      },
    })
    this.#sessions.set(peer.cluster, session)
    before?.endReplaced()
    this.#seen(peer.cluster)
    return session
  }

  watch(
    peer: Peer,
    request: WatchRequest,
    signal: AbortSignal,
    end?: (reason: Error) => void,
  ): AsyncIterable<WatchMessage> {
    this.#shown(peer)
    this.#noteFollows(peer, request.followsAuthorities === true)
    return this.#hub.watch(peer, request, signal, end)
  }

  /** A member has shown its certificate with a call. */
  #shown(peer: Peer, graceMs = 0): void {
    this.#returning.note(peer)
    if (!this.#returning.isExpected(peer)) this.#warnings.reportUnknown(peer)
    this.#use.note(peer, graceMs)
  }

  isWelcome(peer: Peer): boolean {
    const { log, clock, logger } = this.#deps
    const isMember = isOfMembership(log, peer, clock.now())
    // The cluster may have just joined at another broker. The refresh finds it before its next call.
    if (!isMember && log.isShared === true)
      log.refresh().catch((error: unknown) => logger.debug('cannot look up the membership', { why: String(error) }))
    return isMember
  }

  /** Call it from time to time. It removes expired rows and notes which members are connected. */
  async tidy(): Promise<void> {
    const { log, clock } = this.#deps
    const members = log.list('member').map(({ key }) => key)
    this.#joining.forget()
    this.#counts.recount(log)
    this.#warnings.reportNotesAgain()
    this.#warnings.reportClashes()
    this.#ranges.take(members as ClusterId[])
    await log.transact((tx) => {
      pruneTokens(tx, clock.now())
      this.#joining.approval.prune(tx)
      pruneStamps(tx, clock.now())
      pruneDeparted(tx, clock.now())
      pruneRestore(tx, clock.now())
      for (const { key } of tx.list('stream')) if (tx.get('member', key) === undefined) tx.remove('stream', key)
    })
    await this.#notes.noteAll(members)
  }

  /**
   * Call it at the start, and after each lookup of the names of this broker: no member's pods may have the addresses
   * found. Also logs public space that members keep from an earlier release without a token for it.
   */
  async reviewAddresses(resolved?: readonly string[]): Promise<void> {
    const { log, clock, logger } = this.#deps
    const kept = await log.transact((tx) => {
      beginSettling(tx, clock.now())
      const kept = keepEarlierSpace(tx)
      const settings = tx.get('settings', SETTINGS_KEY)
      const changed = resolved !== undefined && canonicalJson(settings?.resolved ?? []) !== canonicalJson(resolved)
      if (settings !== undefined && changed) tx.put('settings', SETTINGS_KEY, { ...settings, resolved })
      reviewAddresses(tx, { rules: this.#rules, nowMs: clock.now() })
      return kept
    })
    for (const { cluster, cidrs } of kept) {
      logger.warn(
        'a member states public space that no token allowed; it stays because an earlier release accepted it',
        {
          reason: 'PublicSpaceNotAllowed',
          cluster,
          cidrs: cidrs.join(', '),
        },
      )
    }
    this.#warnings.reportNotes()
  }

  /**
   * Call it every few seconds. It reports to all watchers which members are silent. Returns the number of members with
   * a stream open here.
   */
  reportContact(): number {
    const members = this.#deps.log.list('member').filter(({ value }) => isLive(value))
    const live = new Set(members.map(({ key }) => key as ClusterId))
    const here = [...live].filter((cluster) => this.#isConnectedHere(cluster))
    this.#deps.replicas?.report(here)
    const silent = this.#heard.silent([...live], (cluster) => this.#isConnected(cluster))
    // The overlap of a certificate may have ended.
    this.#endDeparted()
    this.#hub.endDeparted()
    for (const cluster of this.#limiters.keys()) if (!live.has(cluster)) this.#limiters.delete(cluster)
    this.#hub.reportContact(silent)
    this.#reviewTopology()
    countQuotas(this.#deps, this.#rules.quota)
    // A token may have ended, or a member stated other ranges.
    this.#countWaiting()
    for (const session of this.#sessions.values()) session.reportQuota()
    // Repeats writes that failed when the stream began.
    for (const { peer } of this.#sessions.values()) this.#use.note(peer)
    return here.length
  }

  close(): void {
    this.#hub.close()
    this.#notes.close()
    this.#stopCommits()
    this.#statuses.close()
  }

  #writeStatus(peer: Peer, status: MemberStatus): void {
    const { log, clock, logger } = this.#deps
    const { cluster } = peer
    log
      .transact((tx) => {
        if (isOfMembership(tx, peer, clock.now())) writeStatusRecord(tx, cluster, status, clock.now())
      })
      .catch((error: unknown) => {
        const reason = reasonOf(error) ?? 'RoundFailed'
        logger.warn('cannot store the status of a member', { reason, cluster, why: String(error) })
      })
  }

  #isConnected(cluster: ClusterId): boolean {
    return this.#isConnectedHere(cluster) || this.#deps.replicas?.isConnectedElsewhere(cluster) === true
  }

  #isConnectedHere(cluster: ClusterId): boolean {
    return this.#sessions.has(cluster) || this.#hub.openWatches(cluster) > 0
  }

  #endDeparted(): void {
    for (const cluster of [...this.#sessions.keys()]) this.#endIfDeparted(cluster)
  }

  /**
   * Ends the Publish stream of a member that is gone. The stream may be idle for long, and must not count as contact of
   * a cluster that joins later under the same id.
   */
  #endIfDeparted(cluster: ClusterId): void {
    if (this.#sessions.get(cluster)?.endIfGone() === true) this.#sessions.delete(cluster)
  }

  /** Reports quotas to the members whose limits or usage may have changed. */
  #reportQuotas(changes: readonly Change[]): void {
    const concerned = new Set<string>()
    for (const { scope, key } of changes) {
      if (scope === 'settings') for (const cluster of this.#sessions.keys()) concerned.add(cluster)
      else if (scope === 'record' || scope === 'member') concerned.add(groupOf(key))
    }
    for (const cluster of concerned) this.#sessions.get(cluster as ClusterId)?.reportQuota()
  }

  /** Ends open streams whose certificates were issued by a removed authority. */
  #onAuthorities(): void {
    this.#endDeparted()
    this.#hub.reportAuthorities(authoritiesMessage(this.#deps.log))
  }

  #onSettings(): void {
    this.#hub.reportAccess(this.#words.accessDefault)
    this.#hub.reportRelays(statedRelays(this.#deps.log.get('settings', SETTINGS_KEY)))
  }

  #noteFollows({ cluster }: Peer, follows: boolean): void {
    const { log, logger } = this.#deps
    const row = log.get('member', cluster)
    if (!isLive(row) || (row.followsAuthorities === true) === follows) return
    log
      .transact((tx) => noteFollows(tx, cluster, follows))
      .catch((error: unknown) =>
        logger.debug('cannot store the requested namespaces of a member', { cluster, why: String(error) }),
      )
  }

  #recordChanged(key: string): void {
    const cluster = key.slice(0, key.indexOf('/')) as ClusterId
    if (key === clusterRecordKey(cluster)) this.#sessions.get(cluster)?.endIfRegained()
  }

  #seen(cluster: ClusterId): void {
    this.#heard.note(cluster)
    this.#notes.seen(cluster)
  }

  /** Replicas of an earlier release have come or gone: members publish what is offered to some only without them. */
  reviewOffers(): void {
    const keepsToOffers = this.#keepsToOffers()
    if (!keepsToOffers)
      this.#deps.logger.warn('a broker of an earlier release serves this store: restricted exports are withheld', {
        reason: 'OffersNotSupported',
      })
    for (const session of this.#sessions.values()) session.endIfOffersDiffer(keepsToOffers)
  }

  /** A broker that was started since the topology was set sends its members everything. Logged when that changes. */
  #reviewTopology(): void {
    const { log, logger, replicas } = this.#deps
    const isFull = topologyInForce(log).topology.mode === 'full'
    const brokers = isFull ? '' : (replicas?.withoutTopology() ?? []).join()
    if (brokers === this.#withoutTopology) return
    this.#withoutTopology = brokers
    if (brokers === '') return
    const reason = 'TopologyNotSupported'
    logger.error('brokers of an earlier release ignore the topology: stop or upgrade them', { reason, brokers })
  }

  #keepsToOffers(): boolean {
    return this.#deps.replicas?.keepToOffers() ?? true
  }

  #context(cluster: ClusterId): WriteContext {
    return { cluster, rules: this.#rules, nowMs: this.#deps.clock.now() }
  }

  #onCommit(changes: readonly Change[], from: ChangesFrom): void {
    this.#words.take(changes, from)
    const members = changes.flatMap(({ scope, key }) => (scope === 'member' ? [key as ClusterId] : []))
    for (const cluster of members) this.#endIfDeparted(cluster)
    this.#ranges.take(members)
    this.#hub.endDeparted(members)
    const records = changes.filter(({ scope }) => scope === 'record')
    for (const { scope, key } of changes) {
      if (scope === 'record') this.#recordChanged(key)
      if (scope === 'stream') this.#sessions.get(key as ClusterId)?.endIfOvertaken()
    }
    this.#reportQuotas(changes)
    if (changes.some(({ scope }) => scope === 'authority')) this.#onAuthorities()
    if (changes.some(({ scope }) => scope === 'settings')) this.#onSettings()
    if (changes.some(({ scope }) => scope === 'waiting')) this.#countWaiting()
    if (records.length > 0 || members.length > 0) this.#hub.wake(records.length > 0, members)
    if (members.length > 0) {
      this.#warnings.reportNotes(members)
      this.#counts.take(this.#deps.log, members)
    }
    this.#countRecords()
  }

  #countWaiting(): void {
    const { log, clock, metrics } = this.#deps
    metrics.waiting.set(countWaiting(log, clock.now()))
  }

  #countRecords(): void {
    const { log, metrics } = this.#deps
    metrics.records.set(log.count('record'))
    metrics.revision.set(log.revision)
  }
}
