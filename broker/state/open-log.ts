/** Opens the log that a broker is configured with: the database in its state directory, or a prefix of an etcd. */
import { join } from 'node:path'
import type { Clock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import type { EtcdStoreConfig } from '../config.ts'
import type { EtcdStore } from '../log/etcd/etcd-store.ts'
import type { GroupObserver } from '../log/grouped-log.ts'
import type { RecordLog } from '../log/record-log.ts'
import type { RowPacking } from '../log/row-packing.ts'
import { openSqliteLog } from '../log/sqlite/sqlite-log.ts'
import { DATABASE_FILE } from './database-file.ts'

export interface OpenLogDeps {
  readonly clock: Clock
  readonly logger: Logger
}

export interface OpenLogInit {
  readonly stateDir: string
  /** Absent: the database in the state directory. */
  readonly store?: EtcdStoreConfig | undefined
  /** Absent: any. */
  readonly clusterset?: string
  /** False: the store must be there. */
  readonly create: boolean
  readonly observer?: GroupObserver
  /** GroupedLogInit.packing. */
  readonly packing?: RowPacking
}

export interface OpenedLog {
  readonly log: RecordLog
  /** The store of several replicas; undefined: nobody else serves it. */
  readonly etcd: EtcdStore | undefined
  /** Closes the log, and then the way to it. */
  close(): Promise<void>
}

/** Throws StateError, or UserError for a URL that is none. */
export async function openLog(deps: OpenLogDeps, init: OpenLogInit, signal: AbortSignal): Promise<OpenedLog> {
  const { stateDir, store: config, clusterset, create, observer, packing } = init
  const more = { ...(observer === undefined ? {} : { observer }), ...(packing === undefined ? {} : { packing }) }
  if (config === undefined) {
    const log = openSqliteLog({ file: join(stateDir, DATABASE_FILE), create, ...more })
    return { log, etcd: undefined, close: () => log.close() }
  }
  // Commands that read the database do without all that speaks with an etcd.
  const { connectEtcd, openEtcdLog } = await import('./connect-etcd.ts')
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
