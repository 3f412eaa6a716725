/** Opens the log that a broker is configured with: the database in its state directory, or a prefix of an etcd. */
import { join } from 'node:path'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { type BrokerConfig, BrokerConfigError, type EtcdStoreConfig } from '../config/config.ts'
import type { EtcdStore } from './etcd/etcd-store.ts'
import type { GroupObserver } from './grouped-log.ts'
import { type LogView, type RecordLog, type RowPacking, StateError } from './record-log.ts'
import { MIGRATION_KEY, SETTINGS_KEY, type SettingsRow, timeText } from './rows.ts'
import { type ShadowedRelay, shadowedRelays } from './stated-relays.ts'
import { openSqliteLog } from './sqlite/sqlite-log.ts'
import { DATABASE_FILE } from './state-directory.ts'

export interface OpenLogDeps {
  readonly clock: Clock
  readonly logger: Logger
}

export interface OpenLogInit {
  readonly stateDir: string
  /** Default: the database in the state directory. */
  readonly store?: EtcdStoreConfig | undefined
  /** Absent: any clusterset. */
  readonly clusterset?: string
  /** False: the store must exist. */
  readonly create: boolean
  readonly observer?: GroupObserver
  /** See GroupedLogInit.packing. */
  readonly packing?: RowPacking
}

export interface OpenedLog {
  readonly log: RecordLog
  /** The etcd that several replicas share. Undefined if this broker alone serves its store. */
  readonly etcd: EtcdStore | undefined
  /** Closes the log, then the connection to etcd. */
  close(): Promise<void>
}

/** Throws StateError, or UserError for an invalid URL. */
export async function openLog(deps: OpenLogDeps, init: OpenLogInit, signal: AbortSignal): Promise<OpenedLog> {
  const { stateDir, store: config, clusterset, create, observer, packing } = init
  const more = { ...(observer === undefined ? {} : { observer }), ...(packing === undefined ? {} : { packing }) }
  if (config === undefined) {
    const log = openSqliteLog({ file: join(stateDir, DATABASE_FILE), create, ...more })
    return { log, etcd: undefined, close: () => log.close() }
  }
  // Commands that read the database need no etcd client, so it is loaded on demand.
  const { connectEtcd, openEtcdLog } = await import('./etcd/connect-etcd.ts')
  const etcd = connectEtcd(deps, config)
  try {
    const of = clusterset === undefined ? {} : { clusterset }
    const log = await openEtcdLog({ store: etcd, ...deps, create, ...of, ...more }, signal)
    return { log, etcd, close: () => log.close().finally(() => etcd.client.close()) }
  } catch (error) {
    etcd.client.close()
    throw error
  }
}

const nothing = (): void => undefined
/** Logger of a command: an error ends the command, which prints it. */
export const SILENT: Logger = { debug: nothing, info: nothing, warn: nothing, error: nothing, child: () => SILENT }

// Settings that must stay as at the first start, because certificates and allocations depend on them.

const FIXED = ['clusterset', 'globalRange', 'clustersetIpRange'] as const

/**
 * Stores the settings. Advertised addresses and quotas may change. Returns the relays that were added and that members
 * do not get now, because of the flags. Throws BrokerConfigError if a fixed setting differs.
 */
export async function fixSettings(log: RecordLog, config: BrokerConfig): Promise<readonly ShadowedRelay[]> {
  const { clusterset, globalRange, clustersetIpRange, advertise, limits } = config
  const wanted: SettingsRow = { clusterset, globalRange, clustersetIpRange, advertise, quota: limits.quota }
  return await log.transact((tx) => {
    const stored = tx.get('settings', SETTINGS_KEY)
    // An operator may have changed it since, and a restart must not open what was closed.
    const accessDefault = stored?.accessDefault ?? config.defaultAccess
    // All else stays, also what a later release has written: its replicas may run beside this one.
    // Without a word on relays, a member keeps those that it has heard of. So an empty list is kept once there was one.
    const { relays = [] } = config
    const stating = relays.length === 0 && stored?.relays === undefined ? {} : { relays }
    // Replicas that follow no object end its claim, so that commands set the topology again.
    const { topologyFrom, relaysHere: _relaysHere, ...others }: Partial<SettingsRow> = stored ?? {}
    const kept: SettingsRow = {
      ...others,
      ...wanted,
      ...stating,
      ...(config.relaysHere === true && relays.length > 0 ? { relaysHere: true } : {}),
      ...(accessDefault === undefined ? {} : { accessDefault }),
      ...(config.followsTopology === true ? { topologyFrom: topologyFrom ?? {} } : {}),
    }
    const shadowed = shadowedRelays(kept)
    if (JSON.stringify(stored) === JSON.stringify(kept)) return shadowed
    for (const field of FIXED) {
      if (stored !== undefined && stored[field] !== wanted[field]) {
        throw new BrokerConfigError(
          field,
          wanted[field],
          `${JSON.stringify(stored[field])} as at the first start, because members rely on it`,
        )
      }
    }
    tx.put('settings', SETTINGS_KEY, kept)
    return shadowed
  })
}

// Whether a store may be served or changed. A store that is being moved, or was moved away, may not.

/** `name` identifies the store in messages. Throws StateError (Moved, HalfMoved). */
export function checkNotMoved(log: LogView, name: string): void {
  const row = log.get('migration', MIGRATION_KEY)
  if (row === undefined || row.t === 'arrived') return
  const { t, peer } = row
  const at = timeText(row.atMs)
  if (t === 'moved') {
    throw new StateError(
      'Moved',
      name,
      `${name} was moved to ${peer} at ${at}: start the broker with that store; "sealane broker migrate" moves the state back, and ` +
        '"sealane broker migrate --cancel" cancels the move as long as no broker has used the new store',
    )
  }
  const way = t === 'leaving' ? `from here to ${peer}` : `here from ${peer}`
  const text = `${name}: a move ${way} began at ${at} and is not complete: run the same "sealane broker migrate" again, or cancel it with --cancel`
  throw new StateError('HalfMoved', name, text)
}
