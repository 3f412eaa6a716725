/** The broker's process: it opens the state, serves until the signal, and closes in reverse order. */
import { join } from 'node:path'
import { type AdminServer, adminSocket, serveAdmin } from '../protocol/admin/admin.ts'
import { DEFAULT_CONNECTION_LIMITS, serveBroker } from '../protocol/transport/transport.ts'
import type { ComponentDeps } from '../runtime/runtime.ts'
import type { SharedPort } from '../runtime/shared-port/shared-port.ts'
import {
  type AdminStates,
  ServedStates,
  type TopologySink,
  administration,
  callerActor,
  topologySink,
} from './admin/admin.ts'
import { SharedSink, openAuditSink } from './audit/audit.ts'
import { OtherClustersets } from './other-clustersets.ts'
import { ServedClusterset } from './served-clusterset.ts'
import { type BrokerConfig, brokerMetrics, checkBrokerConfig, parseAdminListen, parseListen } from './config/config.ts'
import { DATABASE_FILE } from './store/store.ts'

/** Two agents, each with a second connection while it reconnects. */
const CONNECTIONS_OF_MEMBER = 4

export interface BrokerDeps extends ComponentDeps {
  /** Called when the port is open, with the address: a configuration may ask for port 0. */
  readonly onListening?: (address: { readonly host: string; readonly port: number }) => void
  /**
   * Follows the object in the broker's cluster that states the topology, until the signal. It never rejects. Called if
   * the configuration says so.
   */
  readonly followTopology?: (sink: TopologySink, signal: AbortSignal) => Promise<void>
  /** Calls back when log files were rotated (SIGHUP), until the returned function is called. */
  readonly onLogsMoved?: (callback: () => void) => () => void
  /** Another server on the broker's port. Absent: there is none. */
  readonly shared?: SharedPort
  /** Called before onListening() with what reads the authorities of all clustersets that are served, in DER. */
  readonly onAuthorities?: (read: () => readonly Uint8Array[]) => void
}

/** What of the broker is there while it starts and runs. */
interface Own {
  opening: string
  admin?: AdminServer
  /** Its state is open. */
  open?: ServedClusterset
  others?: OtherClustersets
  /** Its port is open as well. */
  served?: ServedClusterset
}

/**
 * Resolves after the signal. Throws StateError, ListenError or a configuration error if it cannot start. Each names the
 * file, the port or the field.
 */
export async function runBroker(deps: BrokerDeps, config: BrokerConfig, signal: AbortSignal): Promise<void> {
  const { clock, status } = deps
  const logger = deps.logger.child({ component: 'broker' })
  const { clusterset, stateDir, limits } = checkBrokerConfig(config)
  const metrics = brokerMetrics(deps.metrics)
  const own: Own = {
    opening: `opening the store ${config.store?.url ?? join(stateDir, DATABASE_FILE)}`,
  }
  status.readiness('state', () => (own.served === undefined ? own.opening : own.served.health.reason))
  const onStoreAway = (why: string): void => void (own.opening = why)

  await using stack = new AsyncDisposableStack()
  const sink = openAuditSink(config.audit)
  const shared = sink === undefined ? undefined : new SharedSink(sink)
  const states: AdminStates = new ServedStates({
    ...{ stateDir, clock },
    own: () => own.open ?? own.opening,
    others: () => own.others?.served() ?? [],
  })
  const adminDeps = { states, stateDir, store: config.store, clock, signal }
  const onLocked = async (): Promise<() => Promise<void>> => {
    own.admin = await serveAdmin({
      adminFor: (caller) => administration(adminDeps, { clusterset: caller.clusterset, who: callerActor(caller) }),
      socket: adminSocket(stateDir),
      loopback: config.adminListen === undefined ? undefined : parseAdminListen(config.adminListen),
      clock,
      logger,
    })
    // Another broker may put its own socket there as soon as the lock is free.
    return closeAdmin
  }
  const closeAdmin = async (): Promise<void> => {
    const { admin } = own
    delete own.admin
    await admin?.close()
  }
  const firstDeps = { clock, logger, metrics, sink: shared, onStoreAway, onLocked }
  const first = await ServedClusterset.open(firstDeps, { config, create: true }, signal)
  stack.defer(() => first.close())
  own.open = first
  stack.defer(closeAdmin)
  stack.defer(deps.onLogsMoved?.(() => first.audit.reopen()) ?? (() => undefined))
  const others = new OtherClustersets({ clock, logger, metrics, sink: shared }, { config, log: first.log })
  own.others = others
  stack.defer(() => others.close())
  status.turnAway((source) => [first, ...others.served()].some((one) => one.callers.comeByLane(source)))

  deps.onAuthorities?.(() => [first, ...others.served()].flatMap(({ authority }) => authority.tls().ca))

  const server = await serveBroker({
    api: first.broker,
    tls: first.authority.tls(),
    listen: parseListen(config.listen),
    clock,
    logger,
    metrics: deps.metrics,
    limits: {
      ...{ connectionAgeMs: config.connectionAgeMs ?? 0, drainMs: config.drainMs ?? 0 },
      maxConnections: Math.max(
        DEFAULT_CONNECTION_LIMITS.maxConnections,
        CONNECTIONS_OF_MEMBER * limits.membersPerClusterset,
      ),
    },
    onFailed: first.onFailed,
    shared: deps.shared,
  })
  stack.defer(() => server.close())
  first.health.started()
  own.served = first
  const { epoch, revision } = first.log
  logger.info('listening', { ...server.address, clusterset, epoch, revision })
  deps.onListening?.(server.address)

  const stop = new AbortController()
  const until = AbortSignal.any([signal, stop.signal])
  const serving = others.run(server, until)
  const init = { state: first, clock, who: { kind: 'broker' }, signal: until } as const
  const topology = topologySink(init, () => first.isWriter())
  const following = config.followsTopology === true ? deps.followTopology?.(topology, until) : undefined
  try {
    await first.run(server, signal)
  } finally {
    stop.abort(new Error('the broker is stopping'))
    await Promise.all([serving, following])
  }
  logger.info('stopping')
}
