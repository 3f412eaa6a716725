/**
 * One clusterset of a broker's process with all that it does not share: store, authority, audit trail and upkeep. The
 * port (protocol/transport/) is shared. It calls the clusterset, and the clusterset gives it the TLS material.
 */
import { randomUUID } from 'node:crypto'
import { lookup } from 'node:dns/promises'
import { isIP } from 'node:net'
import { hostname } from 'node:os'
import { join } from 'node:path'
import type { Prefix } from '../model/addresses/addresses.ts'
import { isSourceAmong, laneSourcesAt } from '../model/lanes/lanes.ts'
import type { ClusterSpec } from '../model/model.ts'
import { parseBrokerAddress } from '../protocol/protocol.ts'
import type { FailedCall, ServerTls } from '../protocol/transport/transport.ts'
import { Backoff, type Clock, DEFAULT_LOOP, ReconcileLoop, withDeadline } from '../reconcile/reconcile.ts'
import type { Logger } from '../runtime/logging/logging.ts'
import { interfaceNetworks, nearAddresses, removeTemporaries, sealaneVersion } from '../runtime/runtime.ts'
import { clusterSpec } from './addresses/addresses.ts'
import { type AuditSink, AuditTrail, auditFailedCall, runAudit } from './audit/audit.ts'
import { Broker } from './broker.ts'
import type { BrokerConfig, BrokerMetrics } from './config/config.ts'
import {
  AuthorityUpkeep,
  CertificateAuthority,
  CommandSigner,
  DEFAULT_SIGNER_TIMEOUT_MS,
  sharedKeys,
} from './identity/identity.ts'
import { MAX_TOKENS, NOTE_CONTACT_MS } from './members/members.ts'
import { RangeWarnings } from './records/records.ts'
import { StateMark, acceptOlder, checkDatabaseThere, checkMark, finishRestore } from './recovery/recovery.ts'
import {
  DATABASE_FILE,
  type EtcdStore,
  type GroupObserver,
  type OpenedLog,
  PACKED,
  type RecordLog,
  ReplicaSession,
  StateError,
  StoreHealth,
  StoreProblem,
  checkNotMoved,
  checkStoreRemembered,
  fixSettings,
  lockDirectory,
  makeStateDir,
  openLog,
  rememberStore,
} from './store/store.ts'

// A broker may start before the etcd of its store, or while that is unreachable. It waits for a while before it gives
// up.

/** After this time the broker ends and reports the reason, since the address may be wrong. */
export const AWAIT_STORE_MS = 60_000
const RETRY = { minMs: 250, maxMs: 5000 }

interface AwaitStoreDeps {
  readonly clock: Clock
  readonly logger: Logger
  /** Called with the reason of each failed try. */
  readonly onAway: (why: string) => void
}

/**
 * Returns the result of `open`. While that rejects with a StateError of code Unreachable, tries again for
 * AWAIT_STORE_MS. Rejects with any other error at once, and with the signal's reason if that comes first.
 */
export async function awaitStore<T>(
  open: () => Promise<T>,
  { clock, logger, onAway }: AwaitStoreDeps,
  signal: AbortSignal,
): Promise<T> {
  const end = clock.monotonic() + AWAIT_STORE_MS
  const backoff = new Backoff(clock, RETRY)
  let last: string | undefined
  for (;;) {
    try {
      return await open()
    } catch (error) {
      const isAway = error instanceof StateError && error.code === 'Unreachable'
      if (signal.aborted || !isAway || clock.monotonic() >= end) throw error
      onAway(error.message)
      if (error.message !== last)
        logger.warn('the store does not answer; retrying', { reason: error.reason, why: error.message })
      last = error.message
    }
    await clock.sleep(backoff.next(), signal)
  }
}

// Recognizes calls to this process that come through a lane, which is possible if it runs in a pod of a member. Pods of
// other members may not read its status page. docs/decisions/0040-status-pages.md

/** Lane callers of one clusterset. */
export class LaneCallers {
  readonly #log: RecordLog
  readonly #addresses: () => readonly string[]
  readonly #stop: () => void
  #sources: readonly Prefix[] | undefined

  /** `addresses` returns this process's own addresses. */
  constructor(log: RecordLog, addresses: () => readonly string[] = ownAddresses) {
    this.#log = log
    this.#addresses = addresses
    this.#stop = log.onCommit((changes) => {
      // The Cluster record of a member changes along with its own row or the row of another member.
      if (changes.some(({ scope }) => scope === 'member')) this.#sources = undefined
    })
  }

  /** Whether a caller with this source address came through a lane. */
  comeByLane(source: string): boolean {
    this.#sources ??= laneSourcesAt(this.#addresses(), this.#members())
    return isSourceAmong(this.#sources, source)
  }

  close(): void {
    this.#stop()
  }

  #members(): ClusterSpec[] {
    return this.#log.list('member').flatMap(({ key }) => clusterSpec(this.#log, key) ?? [])
  }
}

function ownAddresses(): string[] {
  return interfaceNetworks().flatMap((text) => text.split('/')[0] ?? [])
}

// Addresses of the names under which members reach this broker.

/** Limit for one name. */
const MAX_ADDRESSES = 8

type LookUp = (host: string) => Promise<readonly string[]>

/** Uses this machine's resolver. Rejects if it has no answer. */
const lookUp: LookUp = async (host) => (await lookup(host, { all: true })).map(({ address }) => address)

/** Remembers the last answer for each name: members that resolved the name earlier may still use those addresses. */
export class BrokerHosts {
  readonly #names: readonly string[]
  readonly #lookUp: LookUp
  readonly #known = new Map<string, readonly string[]>()

  /** Takes hosts. Those that are IP addresses need no lookup. */
  constructor(hosts: readonly string[], ask: LookUp = lookUp) {
    this.#names = [...new Set(hosts)].filter((host) => isIP(host) === 0)
    this.#lookUp = ask
  }

  /** Addresses of all names, sorted. Undefined if there is no name, or if no lookup has ever succeeded. */
  async addresses(): Promise<readonly string[] | undefined> {
    await Promise.all(
      this.#names.map(async (name) => {
        const found = await this.#lookUp(name).catch(() => undefined)
        if (found !== undefined) this.#known.set(name, found.slice(0, MAX_ADDRESSES))
      }),
    )
    return this.#known.size === 0 ? undefined : [...new Set([...this.#known.values()].flat())].sort()
  }
}

/** Within about this time a change by the CLI, such as an eviction, reaches the members. */
export const REFRESH_MS = 1000
/** A command of an operator that runs while no broker does holds the lock for moments. */
const LOCK_MS = 2000
/** Interval for reading and checking keys and certificates while no rotation is in progress. */
const AUTHORITIES_MS = 10_000

export interface ServedDeps {
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: BrokerMetrics
  /** Sink of the audit log. Undefined if there is none. */
  readonly sink: AuditSink | undefined
  /**
   * Called with the reason why the store cannot be opened yet, while the broker tries again. Absent: the broker tries
   * once.
   */
  readonly onStoreAway?: (why: string) => void
  /**
   * Called when this process holds the lock of the state directory, before it opens the state. What it resolves with is
   * called before the lock is released.
   */
  readonly onLocked?: () => Promise<() => Promise<void>>
}

export interface ServedInit {
  /** Must be valid: see checkBrokerConfig(). */
  readonly config: BrokerConfig
  /** False: the store must exist. */
  readonly create: boolean
  /** Name of the clusterset in audit lines. Undefined for the broker's own. */
  readonly auditedAs?: string
}

/** Settings that a clusterset makes on its port. */
export interface ServedPort {
  setTls(tls: ServerTls): void
  /** See BrokerServer.setCutOff(). */
  setCutOff(isCutOff: boolean): void
}

export class ServedClusterset {
  readonly broker: Broker
  readonly log: RecordLog
  /** Undefined if the state is a database. */
  readonly etcd: EtcdStore | undefined
  readonly stateDir: string
  readonly authority: CertificateAuthority
  readonly audit: AuditTrail
  readonly health: StoreHealth
  readonly callers: LaneCallers
  readonly #deps: ServedDeps
  readonly #config: BrokerConfig
  readonly #moved: AbortSignal
  readonly #replicas: ReplicaSession | undefined
  readonly #problem: StoreProblem
  readonly #stack: AsyncDisposableStack

  private constructor(
    parts: Pick<ServedClusterset, 'broker' | 'log' | 'etcd' | 'authority' | 'audit'> & {
      readonly moved: AbortSignal
      readonly replicas: ReplicaSession | undefined
      readonly problem: StoreProblem
    },
    { deps, config, stack }: { deps: ServedDeps; config: BrokerConfig; stack: AsyncDisposableStack },
  ) {
    this.broker = parts.broker
    this.log = parts.log
    this.etcd = parts.etcd
    this.stateDir = config.stateDir
    this.authority = parts.authority
    this.audit = parts.audit
    this.#moved = parts.moved
    this.#replicas = parts.replicas
    this.#problem = parts.problem
    this.health = new StoreHealth(deps)
    this.callers = new LaneCallers(parts.log)
    stack.defer(() => this.callers.close())
    this.#deps = deps
    this.#config = config
    this.#stack = stack
  }

  /**
   * Opens the state without serving calls. Throws StateError or a configuration error, which names the file or the
   * field.
   */
  static async open(deps: ServedDeps, init: ServedInit, signal: AbortSignal): Promise<ServedClusterset> {
    const { clock, logger, metrics, sink } = deps
    const { config, create, auditedAs: named } = init
    const { stateDir, clusterset, advertise } = config
    await makeStateDir(stateDir)
    await using stack = new AsyncDisposableStack()
    stack.defer(lockDirectory(stateDir, LOCK_MS))
    await removeTemporaries(stateDir, clock.now())
    stack.defer((await deps.onLocked?.()) ?? (() => undefined))
    const problem = new StoreProblem(deps)
    const opened = await openState(deps, { config, create, observer: problem }, signal)
    stack.defer(() => opened.close())
    const { log, etcd } = opened
    const moved = movedAway(log, etcd?.where ?? join(stateDir, DATABASE_FILE))
    stack.defer(moved.stop)
    const onOlder = (atMs: number): Promise<unknown> => acceptOlder(log, atMs, clock.now())
    const acceptance = { acceptedAtMs: config.acceptEmptyAtMs, nowMs: clock.now(), store: etcd?.where, onOlder }
    const accepted = await checkMark(stateDir, log, acceptance)
    if (accepted !== undefined)
      logger.warn('the state is older than the state that members have; it was accepted by --accept-empty', {
        reason: 'StateStale',
        accepted,
      })
    const hosts = advertise.map((one) => parseBrokerAddress(one).host)
    const keys = {
      ...authorityKeys(config, metrics),
      ...(etcd === undefined ? {} : { shared: sharedKeys(etcd, signal) }),
    }
    const authority = await CertificateAuthority.open(
      { clock, log },
      { stateDir, clusterset, hosts, memberMs: config.memberCertificateMs, ...keys },
    )
    for (const { address, why } of await fixSettings(log, config))
      logger.warn('a relay that was added is not stated to members', { reason: 'InvalidValue', address, why })
    if (config.store !== undefined) await rememberStore(stateDir, config.store)
    const mark = new StateMark({ stateDir, log, clock, logger })
    stack.defer(() => mark.close())
    const onFirst = (): void => audit.takeOver()
    let onOffers = (): void => undefined
    const calls = { onFirst, onOffers: () => onOffers() }
    const replicas =
      etcd === undefined
        ? undefined
        : new ReplicaSession({ store: etcd, id: randomUUID(), clock, logger, says: ownFacts(), ...calls })
    const isWriter = (): boolean => replicas?.isFirst() ?? true
    const audit = new AuditTrail({ log, clock, logger, metrics, sink, isWriter, clusterset: named })
    if (replicas !== undefined) stack.defer(runSession(replicas))
    stack.defer(runAudit(audit, config))
    const shared = replicas === undefined ? {} : { replicas }
    const broker = new Broker({ log, authority, clock, logger, metrics, near: nearAddresses, audit, ...shared }, config)
    stack.defer(() => broker.close())
    // This comes before any member is served: earlier releases did not validate what a member may hold.
    await broker.reviewAddresses()
    if (replicas !== undefined) await othersKnown(replicas, clock)
    onOffers = () => broker.reviewOffers()
    const parts = { broker, log, etcd, authority, audit, moved: moved.signal, replicas, problem }
    return new ServedClusterset(parts, { deps, config, stack: stack.move() })
  }

  /** Whether this process does the work that only one of several replicas should do. */
  isWriter(): boolean {
    return this.#replicas?.isFirst() ?? true
  }

  /** The port calls it for each failed call. */
  readonly onFailed = (call: FailedCall): void => auditFailedCall(this.audit, call)

  /** Runs periodic work until the signal. Throws StateError if the store is migrated elsewhere. */
  async run(port: ServedPort, signal: AbortSignal): Promise<void> {
    const { clock, logger, metrics } = this.#deps
    const { log, broker, authority } = this
    const { contactMs, advertise } = this.#config
    const names = new BrokerHosts(advertise.map((one) => parseBrokerAddress(one).host))
    const onError = (error: unknown): void =>
      logger.error('broker upkeep failed', { reason: 'RoundFailed', why: String(error) })
    const loop = (resyncMs: number, round: () => Promise<void>): ReconcileLoop =>
      new ReconcileLoop({ clock, onError }, { ...DEFAULT_LOOP, resyncMs }, round)
    const kind = this.#replicas === undefined ? 'sqlite' : 'etcd'
    const tidy = loop(NOTE_CONTACT_MS, async () => {
      await broker.tidy()
      const resolved = await names.addresses()
      if (resolved !== undefined) await broker.reviewAddresses(resolved)
    })
    const upkeep = new AuthorityUpkeep({
      ...{ authority, log, clock, logger, metrics },
      onTls: () => port.setTls(authority.tls()),
    })
    const authorities = loop(AUTHORITIES_MS, () => upkeep.round())
    const stop = log.onCommit((changes) => changes.some(({ scope }) => scope === 'authority') && authorities.poke())
    const refresh = loop(REFRESH_MS, () =>
      this.health
        .check(log, (isCutOff) => port.setCutOff(isCutOff))
        .then(
          () => {
            this.#problem.looked(undefined)
            // A rotation also advances with time, and with what members do.
            if (authority.row.next !== undefined) authorities.poke()
          },
          (error: unknown) => {
            this.#problem.looked(error)
            throw error
          },
        )
        .finally(() => metrics.storeUsable.set(this.health.reason === undefined ? 1 : 0, { kind })),
    )
    const { membersPerClusterset: members } = this.#config.limits
    const ranges = new RangeWarnings({ log, logger, metrics }, { ...this.#config, members, tokens: MAX_TOKENS })
    const contact = loop(contactMs, () => {
      metrics.connectedHere.set(broker.reportContact())
      metrics.replicas.set(this.#replicas?.replicas.length ?? 1)
      ranges.report()
      return Promise.resolve()
    })
    const ended = AbortSignal.any([signal, this.#moved])
    try {
      await Promise.all([refresh, tidy, contact, authorities].map((one) => one.run(ended)))
    } finally {
      stop()
    }
    this.#moved.throwIfAborted()
  }

  /** Closes everything in reverse order. */
  close(): Promise<void> {
    return this.#stack.disposeAsync()
  }
}

async function openState(
  { clock, logger, onStoreAway }: ServedDeps,
  { config, create, observer }: Pick<ServedInit, 'config' | 'create'> & { readonly observer: GroupObserver },
  signal: AbortSignal,
): Promise<OpenedLog> {
  const { stateDir, store, clusterset, acceptEmptyAtMs } = config
  await checkStoreRemembered(stateDir, store)
  const restored = store === undefined ? await finishRestore(clock, stateDir, { kind: 'broker' }) : undefined
  if (restored !== undefined) {
    const { takenAtMs, members, before } = restored
    logger.warn('restored from a backup', {
      reason: 'StateRestored',
      takenAt: new Date(takenAtMs).toISOString(),
      members: members.length,
      before,
    })
  }
  if (store === undefined) await checkDatabaseThere(stateDir, acceptEmptyAtMs)
  const init = { stateDir, store, clusterset, create, observer, packing: PACKED }
  const open = (): Promise<OpenedLog> => openLog({ clock, logger }, init, signal)
  return onStoreAway === undefined ? open() : awaitStore(open, { clock, logger, onAway: onStoreAway }, signal)
}

/** What the table of replicas shows for this process. */
function ownFacts() {
  const filters = { keepsToOffers: true, keepsToTopology: true, keepsToTransit: true } as const
  const settings = { keepsTokenLabels: true, keepsAddedRelays: true } as const
  return { host: hostname(), version: sealaneVersion(), ...filters, ...settings } as const
}

const OTHERS_MS = 5000

/** Members withdraw what is offered to some while a replica may be of an earlier release, so this is known first. */
async function othersKnown(replicas: ReplicaSession, clock: Clock): Promise<void> {
  await withDeadline(clock, OTHERS_MS, (late) => replicas.whenListed(late)).catch(() => undefined)
}

/** Returns a function that ends the session. */
function runSession(session: ReplicaSession): () => Promise<void> {
  const stop = new AbortController()
  const running = session.run(stop.signal)
  return async () => {
    stop.abort(new Error('the broker is stopping'))
    await running
  }
}

/** Returns a signal that aborts when a migration of the store begins. Throws StateError if one has begun before. */
function movedAway(log: RecordLog, name: string): { readonly signal: AbortSignal; readonly stop: () => void } {
  checkNotMoved(log, name)
  const moved = new AbortController()
  const stop = log.onCommit((changes) => {
    if (!changes.some(({ scope }) => scope === 'migration')) return
    try {
      checkNotMoved(log, name)
    } catch (error) {
      moved.abort(error)
    }
  })
  return { signal: moved.signal, stop }
}

/** Where keys of authorities are, besides the state directory. */
function authorityKeys(
  { authorityDir, signer }: BrokerConfig,
  metrics: BrokerMetrics,
): { readonly givenDir?: string; readonly signer?: CommandSigner } {
  const counts = { signed: (result: string) => metrics.signatures.inc({ result }) }
  const command = signer === undefined ? undefined : { ...signer, timeoutMs: DEFAULT_SIGNER_TIMEOUT_MS }
  return {
    ...(authorityDir === undefined ? {} : { givenDir: authorityDir }),
    ...(command === undefined ? {} : { signer: new CommandSigner(command, counts) }),
  }
}
