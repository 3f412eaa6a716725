/** Maps the name of a store in a command to its place. */
import { resolve } from 'node:path'
import type { Clock } from '../../reconcile/reconcile.ts'
import { UserError } from '../../runtime/runtime.ts'
import type { EtcdStoreConfig } from '../config/config.ts'
import {
  SILENT,
  absentState,
  clustersetDir,
  clustersetUrl,
  ownName,
  parseEtcdUrl,
  unknownClusterset,
} from '../store/store.ts'
import { EtcdPlace } from './etcd-location.ts'
import { SqlitePlace } from './sqlite-location.ts'
import type { StorePlace } from './store-location.ts'

const SQLITE = 'sqlite'

export interface OpenPlaceInit {
  /** The flag that messages name. */
  readonly flag: string
  readonly stateDir: string
  /** Credentials for etcd. */
  readonly login: Omit<EtcdStoreConfig, 'url'>
  readonly clock: Clock
  readonly signal: AbortSignal
  /** Open the store of this clusterset of the named broker. Absent: the store of the broker's own clusterset. */
  readonly clusterset?: string | undefined
}

/**
 * `sqlite` is the state directory, `sqlite:DIRECTORY` is another one, and `etcd://…` is a prefix of an etcd. Throws
 * UserError for any other text.
 */
export function openPlace(text: string, init: OpenPlaceInit): StorePlace {
  const { flag, stateDir, login, clock, signal, clusterset } = init
  const sqlite = (directory: string): StorePlace => {
    const own = resolve(directory)
    return new SqlitePlace(clusterset === undefined ? own : clustersetDir(own, clusterset))
  }
  if (text === SQLITE) return sqlite(stateDir)
  if (text.startsWith(`${SQLITE}:`) && text.length > SQLITE.length + 1) return sqlite(text.slice(SQLITE.length + 1))
  if (text.startsWith('etcd://')) {
    parseEtcdUrl(text, flag)
    const url = clusterset === undefined ? text : clustersetUrl(text, flag, clusterset)
    return new EtcdPlace({ clock, logger: SILENT, signal }, { ...login, url })
  }
  const expected = `expected ${SQLITE} (the directory of --state), ${SQLITE}:DIRECTORY or etcd://…`
  throw new UserError(`${flag} ${JSON.stringify(text)}: ${expected}`, { exitCode: 2 })
}

// Checks that a broker has the clusterset to be migrated. The broker's own store has the list, even after it was
// migrated itself.

/**
 * Returns undefined if it is the broker's own clusterset. Throws RefusedError if the broker has none of this name, so
 * that a mistyped name creates no folder and no store. Throws StateError if there is no store of the broker, or if a
 * broker serves it.
 */
export async function listedClusterset(own: StorePlace, name: string): Promise<string | undefined> {
  await using stack = new AsyncDisposableStack()
  stack.defer(await own.lock())
  const log = await own.open()
  if (log === undefined) throw absentState(own.name)
  stack.defer(() => log.close())
  if (name === ownName(log)) return undefined
  if (log.get('clusterset', name) === undefined) throw unknownClusterset(log, name)
  return name
}
