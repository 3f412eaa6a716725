/**
 * Implements BrokerLink with protocol/: identity and replica from disk, two sessions, one client, certificate renewal.
 */
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { AccessDefault } from '../../model/access/access.ts'
import { nameHash } from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import { AddressBook, type BrokerClient, BrokerUnreachableError, type SilentMember } from '../../protocol/protocol.ts'
import { CodecError } from '../../protocol/codec/codec.ts'
import { fingerprint } from '../../protocol/identity/identity.ts'
import { IdentityFileError, type MemberIdentity } from '../../protocol/membership/membership.ts'
import { Replica, type ReplicaChange, type ReplicaStore, replicaFile } from '../../protocol/replica/replica.ts'
import { HeldRecords, PublishSession, WatchSession, type WatchState } from '../../protocol/sessions/sessions.ts'
import { connectBroker } from '../../protocol/transport/transport.ts'
import { type Clock, Listeners } from '../../reconcile/reconcile.ts'
import { reasonOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { Metrics } from '../../runtime/metrics/metrics.ts'
import type { AgentConfig, AgentMetrics } from '../loop/loop.ts'
import type {
  AccessWord,
  BrokerLink,
  ContactView,
  LinkState,
  Publisher,
  ReplicaView,
  StatedAccess,
  StatedRelays,
} from './broker-link.ts'
import { CertificateRenewal, isAboutMember } from './certificate-renewal.ts'

// Records since when the connection to the broker is live or not, and when the broker last sent a message.

export class LinkLife {
  readonly #clock: Pick<Clock, 'now'>
  #isLive = false
  #sinceMs: number
  #heardMs: number | undefined

  constructor(clock: Pick<Clock, 'now'>) {
    this.#clock = clock
    this.#sinceMs = clock.now()
  }

  /** Takes whether both sessions are live. */
  onState(isLive: boolean): void {
    if (isLive === this.#isLive) return
    this.#isLive = isLive
    this.#sinceMs = this.#clock.now()
  }

  heard(): void {
    this.#heardMs = this.#clock.now()
  }

  /** Both times as RFC 3339. */
  times(): { readonly since: string; readonly heardAt?: string } {
    const heardAt = this.#heardMs === undefined ? {} : { heardAt: timeText(this.#heardMs) }
    return { since: timeText(this.#sinceMs), ...heardAt }
  }
}

/** RFC 3339 in whole seconds. Gives 1970 for a time that a Date cannot represent. */
export function timeText(ms: number): string {
  const date = new Date(ms)
  return Number.isNaN(date.getTime()) ? '1970-01-01T00:00:00Z' : date.toISOString().replace(/\.\d+Z$/, 'Z')
}

export interface LinkDeps {
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: Metrics
  readonly agentMetrics: AgentMetrics
  /** Called with the reason why the broker does not accept this cluster as a member, or with undefined if it does. */
  readonly onRefused: (why: string | undefined, reason?: ReasonCode) => void
  /** Identifies this process to the broker (newProcessMark()). If absent, the broker cannot recognize it. */
  readonly processMark?: string
  /** Whether records are requested only after setInterest(). If absent, all records are requested. */
  readonly followsInterest?: boolean
}

/** Refused records are sent again after this time, since an operator may have changed the broker's rules. */
const RETRY_REFUSED_MS = 5 * 60_000

/**
 * Throws IdentityFileError if this site has not joined or its identity cannot be read. A damaged replica file is logged
 * and replaced: the broker has all records, and the local API keeps what it holds.
 */
export async function openBrokerLink(deps: LinkDeps, config: AgentConfig): Promise<BrokerLink> {
  const identity = await config.identity.read()
  if (identity === undefined) {
    throw new IdentityFileError(config.identity.place, 'it has no identity: join with "sealane join"')
  }
  const file = join(config.replicaDirectory, replicaName(identity))
  const store = replicaFile(file)
  return new ProtocolLink(deps, config, { identity, file, store, replica: await loadReplica(store, deps.logger) })
}

/** A member of another clusterset, or with another id, must never read the records of this one. */
function replicaName({ cluster, clusterset, caBundle, firstAuthority }: MemberIdentity): string {
  const first = firstAuthority === undefined ? caBundle.slice(0, 1).map(fingerprint) : [firstAuthority]
  return `replica-${nameHash(cluster, clusterset, ...first)}`
}

async function loadReplica(store: ReplicaStore, logger: Logger): Promise<Replica> {
  try {
    return await store.load()
  } catch (error) {
    if (!(error instanceof CodecError)) throw error
    logger.error('the saved replica is damaged; the agent fetches a new one from the broker', {
      reason: 'StateFileDamaged',
      why: error.message,
    })
    return new Replica()
  }
}

interface LinkInit {
  readonly identity: MemberIdentity
  /** Path of the saved replica. */
  readonly file: string
  readonly store: ReplicaStore
  readonly replica: Replica
}

class ProtocolLink implements BrokerLink {
  readonly publisher: Publisher
  readonly replica: ReplicaView
  readonly contact: ContactView
  readonly access: StatedAccess
  readonly relays: StatedRelays
  readonly #deps: LinkDeps
  readonly #publish: PublishSession
  readonly #watch: WatchSession
  readonly #renewal: CertificateRenewal
  readonly #file: string
  readonly #life: LinkLife
  #book: AddressBook
  #client: BrokerClient

  constructor(deps: LinkDeps, config: AgentConfig, { identity, file, store, replica }: LinkInit) {
    const { clock, logger, metrics } = deps
    const published = new Listeners<[readonly string[] | undefined]>()
    const watched = new Listeners<[readonly ReplicaChange[]]>()
    const exported = new Listeners()
    const stated = new Listeners()
    const relayed = new Listeners()
    const word = new HeardAccess()
    const connect = (): BrokerClient => this.#client
    const held = new HeldRecords(clock, replica)
    this.#deps = deps
    this.#file = file
    this.#life = new LinkLife(clock)
    this.#book = this.#bookOf(identity)
    this.#client = this.#open(identity)
    const onChange = (keys: readonly string[] | undefined): void => {
      published.call(keys)
      if (word.take(this.#watch.accessDefault(), this.#publish.keepsToOffers)) stated.call()
    }
    const onAsked = (epoch: string, ended: AbortSignal) => held.records(epoch, ended)
    const { cluster } = identity
    const members = (): number => replica.complete.size
    const common = { cluster, connect, clock, logger, metrics }
    this.#publish = new PublishSession({
      ...common,
      members,
      held: onAsked,
      onChange,
      onState: () => this.#onState(),
    })
    const contact = new LatestContact(clock)
    this.#watch = new WatchSession({
      connect,
      replica,
      store,
      clock,
      logger,
      metrics,
      onChange: (changes) => watched.call(changes),
      onExported: () => exported.call(),
      onAccessDefault: () => {
        if (word.take(this.#watch.accessDefault(), this.#publish.keepsToOffers)) stated.call()
      },
      onRelays: () => relayed.call(),
      waitsForInterest: deps.followsInterest === true,
      onContact: (silent) => {
        contact.set(silent)
        this.#life.heard()
        deps.agentMetrics.brokerHeard.set(clock.now() / 1000)
      },
      onAuthorities: (authorities) => this.#renewal.takeAuthorities(authorities),
      onState: (state) => {
        if (state.t !== 'live') contact.forget()
        held.onWatch()
        this.#onState()
        this.#reportRefused(state)
      },
    })
    this.contact = contact
    this.relays = { get: () => this.#watch.relays(), onChange: (listener) => relayed.add(listener) }
    this.access = { get: () => word.latest, onChange: (listener) => stated.add(listener) }
    this.#renewal = new CertificateRenewal(
      {
        ...deps,
        client: connect,
        learned: () => this.#book.proven,
        onRenewed: (renewed) => this.#replaceClient(renewed),
      },
      { store: config.identity, identity },
    )
    this.publisher = publisherOf(this.#publish, published)
    this.replica = replicaViewOf(replica, watched, exported)
  }

  setInterest(namespaces: ReadonlySet<string> | undefined): void {
    this.#watch.setInterest(namespaces)
  }

  problem(): string | undefined {
    const states = [this.#publish.state(), this.#watch.state()]
    const failed = states.find((state) => state.t === 'waiting' && state.error !== undefined)
    if (failed?.t === 'waiting' && failed.error !== undefined) return failed.error.message
    return this.#renewal.problem() ?? (states.every(({ t }) => t === 'live') ? undefined : 'not connected yet')
  }

  state(): LinkState {
    const [publish, watch] = [this.#publish.state(), this.#watch.state()]
    const failed = [publish, watch].find((state) => state.t === 'waiting' && state.error !== undefined)
    const answeredMs = this.#publish.answeredMs()
    const factsRefused = this.#publish.factsRefused()
    const aheadMs = this.#watch.brokerAheadMs()
    const reason = failed?.t === 'waiting' ? noConnectionReason(failed.error) : undefined
    return {
      publish: publish.t,
      watch: watch.t,
      ...this.#life.times(),
      ...(reason === undefined ? {} : { reason }),
      ...(factsRefused === undefined ? {} : { factsRefused }),
      addresses: this.#book.size,
      failing: this.#book.failing,
      certificateEnds: timeText(this.#renewal.endsMs),
      ...(answeredMs === undefined ? {} : { answeredMs: Math.round(answeredMs) }),
      ...(aheadMs === undefined ? {} : { aheadMs: Math.round(aheadMs) }),
    }
  }

  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([this.#publish.run(signal), this.#watch.run(signal), this.#retryRefused(signal)])
    this.#client.close()
  }

  async keepIdentity(signal: AbortSignal): Promise<void> {
    await this.#renewal.run(signal)
    // A last renewal may have opened the client again.
    this.#client.close()
  }

  async forget(): Promise<void> {
    await rm(this.#file, { force: true })
  }

  async #retryRefused(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const slept = await this.#deps.clock.sleep(RETRY_REFUSED_MS, signal).then(
        () => true,
        () => false,
      )
      if (slept) this.#publish.retryRefused()
    }
  }

  #onState(): void {
    this.#life.onState([this.#publish, this.#watch].every((session) => session.state().t === 'live'))
  }

  #reportRefused(state: WatchState): void {
    const error = state.t === 'waiting' && isAboutMember(state.error) ? state.error : undefined
    if (state.t !== 'live' && error === undefined) return
    this.#renewal.takeRefusal(error !== undefined)
    const denied = this.#renewal.denied()
    // It can still be renewed, unless the broker has refused that too.
    if (error?.reason === 'CertificateExpired' && denied === undefined) return
    this.#deps.onRefused(error === undefined ? undefined : (denied ?? error.message), error?.reason)
  }

  /**
   * Closing the old client breaks the sessions' streams. They resume with the new client after their shortest pause.
   */
  #replaceClient(identity: MemberIdentity): void {
    const old = this.#client
    // Another token may name another broker. For the same broker, the results of past attempts are kept.
    if (!this.#book.has(identity.brokerAddresses)) this.#book = this.#bookOf(identity)
    this.#client = this.#open(identity)
    old.close()
  }

  #bookOf({ brokerAddresses, learnedAddresses = [] }: MemberIdentity): AddressBook {
    return new AddressBook({ own: brokerAddresses, proven: learnedAddresses, clock: this.#deps.clock })
  }

  #open({ brokerAddresses, clusterset, caBundle, certificate, key }: MemberIdentity): BrokerClient {
    const { clock, logger, processMark } = this.#deps
    return connectBroker({
      addresses: brokerAddresses,
      book: this.#book,
      clusterset,
      ca: caBundle,
      identity: { certificate, key },
      ...(processMark === undefined ? {} : { processMark }),
      clock,
      logger,
    })
  }
}

/** Undefined if the cause has no reason code. */
function noConnectionReason(error: Error | undefined): ReasonCode | undefined {
  return reasonOf(error) ?? (error instanceof BrokerUnreachableError ? 'BrokerSilent' : undefined)
}

/**
 * What brokers have stated about access. A replica of a release before access policies states no default because it knows
 * none, and another one may say `deny` in a moment. That all replicas know it is said by keepsToOffers, which came with
 * it.
 */
export class HeardAccess {
  #latest: AccessWord | undefined

  get latest(): AccessWord | undefined {
    return this.#latest
  }

  /** Takes what the sessions say. Returns whether the latest word is another one. */
  take(word: AccessDefault | 'none' | undefined, keepsToOffers: boolean | undefined): boolean {
    const before = this.#latest
    if (word === 'allow' || word === 'deny') this.#latest = word
    else if (word === 'none' && before !== 'allow' && before !== 'deny')
      this.#latest = keepsToOffers === true ? 'none' : (before ?? 'unknown')
    return this.#latest !== before
  }
}

function publisherOf(session: PublishSession, listeners: Listeners<[readonly string[] | undefined]>): Publisher {
  return {
    get answered() {
      return session.answered
    },
    setDesired: (records) => session.setDesired(records),
    setFacts: (facts) => session.setFacts(facts),
    setStatus: (status) => session.setStatus(status),
    state: (key) => session.recordState(key),
    onChange: (listener) => listeners.add(listener),
  }
}

function replicaViewOf(
  replica: Replica,
  listeners: Listeners<[readonly ReplicaChange[]]>,
  onExported: Listeners,
): ReplicaView {
  return {
    get synced() {
      return replica.synced
    },
    get confirmed() {
      return replica.confirmed
    },
    get complete() {
      return replica.complete
    },
    get departed() {
      return replica.departed
    },
    get exported() {
      return replica.exported
    },
    holds: (namespace) => replica.holds(namespace),
    records: () => replica.records.values(),
    onChange: (listener) => listeners.add(listener),
    onExported: (listener) => onExported.add(listener),
  }
}

/** The broker reports every few seconds. After this time without a report, the last one is outdated. */
const CONTACT_STALE_MS = 60_000

class LatestContact implements ContactView {
  readonly #clock: Clock
  readonly #listeners = new Listeners()
  #latest: { readonly at: number; readonly silent: ReadonlyMap<string, number> } | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  set(silent: readonly SilentMember[]): void {
    const known = new Map(silent.map(({ cluster, forMs }) => [cluster, forMs]))
    this.#latest = { at: this.#clock.monotonic(), silent: known }
    this.#listeners.call()
  }

  forget(): void {
    this.#latest = undefined
  }

  silent(): ReadonlyMap<string, number> | undefined {
    const latest = this.#latest
    return latest === undefined || this.#clock.monotonic() - latest.at > CONTACT_STALE_MS ? undefined : latest.silent
  }

  onChange(listener: () => void): () => void {
    return this.#listeners.add(listener)
  }
}
