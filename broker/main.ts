/** The broker's process: open the state, serve until the signal, close in reverse. */
import { randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { parseBrokerAddress } from '../protocol/broker-address.ts'
import { DEFAULT_CONNECTION_LIMITS } from '../protocol/transport/connections.ts'
import { serveBroker } from '../protocol/transport/grpc-server.ts'
import { DEFAULT_LOOP, ReconcileLoop } from '../reconcile/loop.ts'
import type { ComponentDeps } from '../runtime/component.ts'
import { nearAddresses } from '../runtime/machine-network.ts'
import { sealaneVersion } from '../runtime/version.ts'
import { auditFailedCall } from './audit/audit-callers.ts'
import { AuditTrail } from './audit/audit-trail.ts'
import { openAuditSink, runAudit } from './audit/run-audit.ts'
import { Broker } from './broker.ts'
import { makeStateDir } from './authority/authority-files.ts'
import { AuthorityUpkeep } from './authority/authority-upkeep.ts'
import { CertificateAuthority } from './authority/certificate-authority.ts'
import { CommandSigner, DEFAULT_SIGNER_TIMEOUT_MS } from './authority/command-signer.ts'
import { type BrokerConfig, checkBrokerConfig, parseListen } from './config.ts'
import type { RecordLog } from './log/record-log.ts'
import { PACKED } from './log/packed-row.ts'
import { StoreHealth } from './log/store-health.ts'
import { lockDirectory } from './log/sqlite/sqlite-file.ts'
import { ReplicaSession } from './log/etcd/replica-session.ts'
import { BrokerHosts } from './look-up-hosts.ts'
import { NOTE_CONTACT_MS } from './contact/contact-rows.ts'
import { type BrokerMetrics, brokerMetrics } from './metrics.ts'
import { checkNotMoved } from './migrate/check-place.ts'
import { DATABASE_FILE } from './state/database-file.ts'
import { openLog } from './state/open-log.ts'
import { RangeWarnings } from './quota/range-use.ts'
import { acceptOlder } from './restored/accept-older.ts'
import { finishRestore } from './state/restore.ts'
import { sharedKeys } from './state/shared-authority.ts'
import { checkStoreRemembered, rememberStore } from './state/store-config.ts'
import { fixSettings } from './state/settings.ts'
import { StateMark, checkDatabaseThere, checkMark } from './state/state-mark.ts'
import { MAX_TOKENS } from './tokens/tokens.ts'

/** How soon a change by the CLI (an eviction) reaches the members. */
const REFRESH_MS = 1000
/** Two agents, and each of them once more while it comes back. */
const CONNECTIONS_OF_MEMBER = 4

export interface BrokerDeps extends ComponentDeps {
  /** Called when the port is open: the way to learn it where the configuration says 0. */
  readonly onListening?: (address: { readonly host: string; readonly port: number }) => void
  /** Calls back when somebody says that log files were moved (SIGHUP), until the function given back is called. */
  readonly onLogsMoved?: (callback: () => void) => () => void
}

/**
 * Resolves after the signal. Throws StateError, ListenError or a configuration error when it cannot start; each
 * names the file, the port or the field.
 */
export async function runBroker(deps: BrokerDeps, config: BrokerConfig, signal: AbortSignal): Promise<void> {
  const { clock, status } = deps
  const logger = deps.logger.child({ component: 'broker' })
  const { stateDir, clusterset, advertise } = checkBrokerConfig(config)
  const metrics = brokerMetrics(deps.metrics)
  const health = new StoreHealth({ clock, logger })
  health.reason = `being opened: ${config.store?.url ?? join(stateDir, DATABASE_FILE)}`
  status.readiness('state', () => health.reason)

  await makeStateDir(stateDir)
  await using stack = new AsyncDisposableStack()
  stack.defer(lockDirectory(stateDir))
  await checkStoreRemembered(stateDir, config.store)
  const restored = config.store === undefined ? await finishRestore(clock, stateDir, { kind: 'broker' }) : undefined
  if (restored !== undefined) {
    const { takenAtMs, members, before } = restored
    logger.warn('restored from a backup', {
      reason: 'StateRestored',
      takenAt: new Date(takenAtMs).toISOString(),
      members: members.length,
      before,
    })
  }
  if (config.store === undefined) await checkDatabaseThere(stateDir, config.acceptEmptyAtMs)
  const onGroup = (changes: number): void => metrics.commits.observe(changes)
  const opened = await openLog(
    { clock, logger },
    { stateDir, store: config.store, clusterset, create: true, onGroup, packing: PACKED },
    signal,
  )
  stack.defer(() => opened.close())
  const { log, etcd } = opened
  health.reason = 'the certificate authority is being opened'
  const moved = movedAway(log, etcd?.where ?? join(stateDir, DATABASE_FILE))
  stack.defer(moved.stop)
  const onOlder = (atMs: number): Promise<unknown> => acceptOlder(log, atMs, clock.now())
  const acceptance = { acceptedAtMs: config.acceptEmptyAtMs, nowMs: clock.now(), store: etcd?.where, onOlder }
  const accepted = await checkMark(stateDir, log, acceptance)
  if (accepted !== undefined)
    logger.warn('the state is older than what was given away, and accepted', { reason: 'StateStale', accepted })
  const hosts = advertise.map((one) => parseBrokerAddress(one).host)
  const keys = {
    ...authorityKeys(config, metrics),
    ...(etcd === undefined ? {} : { shared: sharedKeys(etcd, signal) }),
  }
  const authority = await CertificateAuthority.open(
    { clock, log },
    { stateDir, clusterset, hosts, memberMs: config.memberCertificateMs, ...keys },
  )
  await fixSettings(log, config)
  if (config.store !== undefined) await rememberStore(stateDir, config.store)
  const mark = new StateMark({ stateDir, log, clock, logger })
  stack.defer(() => mark.close())
  const onFirst = (): void => audit.takeOver()
  const replicas =
    etcd === undefined
      ? undefined
      : new ReplicaSession({ store: etcd, id: randomUUID(), clock, logger, says: ownName(), onFirst })
  const isWriter = (): boolean => replicas?.isFirst() ?? true
  const audit = new AuditTrail({ log, clock, logger, metrics, sink: openAuditSink(config.audit), isWriter })
  if (replicas !== undefined) stack.defer(runSession(replicas))
  stack.defer(runAudit(audit, config))
  stack.defer(deps.onLogsMoved?.(() => audit.reopen()) ?? (() => undefined))
  const shared = replicas === undefined ? {} : { replicas }
  const broker = new Broker({ log, authority, clock, logger, metrics, near: nearAddresses, audit, ...shared }, config)
  stack.defer(() => broker.close())
  // Before any member is answered: what a member may hold was not validated in earlier releases.
  await broker.reviewAddresses()
  const names = new BrokerHosts(hosts)

  const { membersPerClusterset: members } = config.limits
  const server = await serveBroker({
    api: broker,
    tls: authority.tls(),
    listen: parseListen(config.listen),
    clock,
    logger,
    metrics: deps.metrics,
    limits: {
      ...{ connectionAgeMs: config.connectionAgeMs ?? 0, drainMs: config.drainMs ?? 0 },
      maxConnections: Math.max(DEFAULT_CONNECTION_LIMITS.maxConnections, CONNECTIONS_OF_MEMBER * members),
    },
    onFailed: (call) => auditFailedCall(audit, call),
  })
  stack.defer(() => server.close())
  health.started()
  logger.info('listening', { ...server.address, clusterset, epoch: log.epoch, revision: log.revision })
  deps.onListening?.(server.address)

  const kind = etcd === undefined ? 'sqlite' : 'etcd'
  const onError = (error: unknown): void =>
    logger.error('broker upkeep failed', { reason: 'RoundFailed', why: String(error) })
  const refresh = new ReconcileLoop({ clock, onError }, { ...DEFAULT_LOOP, resyncMs: REFRESH_MS }, () =>
    health
      .check(log, (isCutOff) => server.setCutOff(isCutOff))
      .finally(() => metrics.storeUsable.set(health.reason === undefined ? 1 : 0, { kind })),
  )
  const tidy = new ReconcileLoop({ clock, onError }, { ...DEFAULT_LOOP, resyncMs: NOTE_CONTACT_MS }, async () => {
    await broker.tidy()
    const resolved = await names.addresses()
    if (resolved !== undefined) await broker.reviewAddresses(resolved)
  })
  const upkeep = new AuthorityUpkeep({
    ...{ authority, log, clock, logger, metrics },
    onTls: () => server.setTls(authority.tls()),
  })
  const authorities = new ReconcileLoop({ clock, onError }, { ...DEFAULT_LOOP, resyncMs: REFRESH_MS }, () =>
    upkeep.round(),
  )
  stack.defer(log.onCommit((changes) => changes.some(({ scope }) => scope === 'authority') && authorities.poke()))
  const ranges = new RangeWarnings({ log, logger, metrics }, { ...config, members, tokens: MAX_TOKENS })
  const contact = new ReconcileLoop({ clock, onError }, { ...DEFAULT_LOOP, resyncMs: config.contactMs }, () => {
    metrics.connectedHere.set(broker.reportContact())
    metrics.replicas.set(replicas?.replicas.length ?? 1)
    ranges.report()
    return Promise.resolve()
  })
  const ended = AbortSignal.any([signal, moved.signal])
  await Promise.all([refresh, tidy, contact, authorities].map((loop) => loop.run(ended)))
  moved.signal.throwIfAborted()
  logger.info('stopping')
}

/** For the table of replicas. */
function ownName(): { readonly host: string; readonly version: string } {
  return { host: hostname(), version: sealaneVersion() }
}

/** Gives what ends it. */
function runSession(session: ReplicaSession): () => Promise<void> {
  const stop = new AbortController()
  const running = session.run(stop.signal)
  return async () => {
    stop.abort(new Error('the broker stops'))
    await running
  }
}

/** Aborts when a move of the store begins elsewhere. Throws StateError where one has begun before. */
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

/** Where keys of authorities are beside those of the state directory. */
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
