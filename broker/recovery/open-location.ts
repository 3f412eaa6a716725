/** From what a command names to the place that it means. */
import { resolve } from 'node:path'
import type { Clock } from '../../reconcile/reconcile.ts'
import { UserError } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { clustersetDir, clustersetUrl, ownName, unknownClusterset } from '../admin/admin.ts'
import type { EtcdStoreConfig } from '../config/config.ts'
import { absentState, parseEtcdUrl } from '../store/store.ts'
import { EtcdPlace } from './etcd-location.ts'
import { SqlitePlace } from './sqlite-location.ts'
import type { StorePlace } from './store-location.ts'

const SQLITE = 'sqlite'

export interface OpenPlaceInit {
  /** For messages. */
  readonly flag: string
  readonly stateDir: string
  /** What etcd is to be shown. */
  readonly login: Omit<EtcdStoreConfig, 'url'>
  readonly clock: Clock
  readonly signal: AbortSignal
  /** The place is that of this clusterset of the broker whose place is named; absent: of the broker's own. */
  readonly clusterset?: string | undefined
}

/** What goes wrong ends the command, which says it. */
const nothing = (): void => undefined
const SILENT: Logger = { debug: nothing, info: nothing, warn: nothing, error: nothing, child: () => SILENT }

/**
 * `sqlite` is the state directory, `sqlite:DIRECTORY` another one, and `etcd://…` a prefix of an etcd. Throws UserError
 * for what is none of these.
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

// Whether a broker has the clusterset that is to be moved: its own store has the list, also after it was moved itself.

/**
 * Undefined: it is the broker's own. Throws RefusedError where the broker has none of this name, so that a name that is
 * not meant makes no folder and no store, and StateError where there is no broker's store or it is being served.
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
