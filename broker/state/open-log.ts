/** Opens the log that a broker is configured with: the database in its state directory, or a prefix of an etcd. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Clock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import { messageOf } from '../../runtime/thrown.ts'
import type { EtcdStoreConfig } from '../config.ts'
import { EtcdClient, type EtcdLogin } from '../log/etcd/client/etcd-client.ts'
import { openEtcdLog } from '../log/etcd/etcd-log.ts'
import { EtcdStore } from '../log/etcd/etcd-store.ts'
import { parseEtcdUrl } from '../log/etcd/etcd-url.ts'
import { type RecordLog, StateError } from '../log/record-log.ts'
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
  readonly onGroup?: (changes: number) => void
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
  const { stateDir, store: config, clusterset, create, onGroup } = init
  const more = onGroup === undefined ? {} : { onGroup }
  if (config === undefined) {
    const log = openSqliteLog({ file: join(stateDir, DATABASE_FILE), create, ...more })
    return { log, etcd: undefined, close: () => log.close() }
  }
  const etcd = await connectEtcd(deps, config)
  try {
    const of = clusterset === undefined ? {} : { clusterset }
    const log = await openEtcdLog({ store: etcd, ...deps, create, ...of, ...more }, signal)
    return { log, etcd, close: () => log.close().finally(() => etcd.client.close()) }
  } catch (error) {
    etcd.client.close()
    throw error
  }
}

/** Reads the files that the configuration names; connects with the first call. Throws StateError or UserError. */
export async function connectEtcd({ clock, logger }: OpenLogDeps, config: EtcdStoreConfig): Promise<EtcdStore> {
  const { endpoints, prefix, user } = parseEtcdUrl(config.url, '--store')
  const { caFile, certificateFile, keyFile, passwordFile } = config
  checkPairs(config, user)
  const [ca, certificate, key, password] = await Promise.all(
    [caFile, certificateFile, keyFile, passwordFile].map((file) => readGiven(file)),
  )
  const login: EtcdLogin | undefined =
    user === undefined || password === undefined ? undefined : { user, password: password.replace(/\r?\n$/, '') }
  const tls = {
    ...(ca === undefined ? {} : { ca }),
    ...(certificate === undefined ? {} : { certificate }),
    ...(key === undefined ? {} : { key }),
  }
  return new EtcdStore(new EtcdClient({ endpoints, tls, login, clock, logger }), prefix)
}

function checkPairs({ url, certificateFile, keyFile, passwordFile }: EtcdStoreConfig, user: string | undefined): void {
  const wrong = (text: string): StateError => new StateError('Denied', url, text)
  if ((certificateFile === undefined) !== (keyFile === undefined))
    throw wrong('--etcd-cert and --etcd-key: expected both, or none')
  if (user !== undefined && passwordFile === undefined)
    throw wrong(`--store names user ${JSON.stringify(user)}: expected the file with its password, --etcd-password-file`)
  if (user === undefined && passwordFile !== undefined)
    throw wrong('--etcd-password-file: expected a user in --store, as in etcd://USER@HOST:PORT/PREFIX')
}

async function readGiven(file: string | undefined): Promise<string | undefined> {
  if (file === undefined) return undefined
  try {
    return await readFile(file, 'utf8')
  } catch (error) {
    throw new StateError('Denied', file, `${file} cannot be read (${messageOf(error)})`, error)
  }
}
