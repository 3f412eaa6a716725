/** From what a command names to the place that it means. */
import { resolve } from 'node:path'
import type { Clock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import { UserError } from '../../runtime/user-error.ts'
import { clustersetDir, clustersetUrl } from '../clustersets/clusterset-place.ts'
import type { EtcdStoreConfig } from '../config.ts'
import { parseEtcdUrl } from '../log/etcd/etcd-url.ts'
import { EtcdPlace } from './etcd-place.ts'
import { SqlitePlace } from './sqlite-place.ts'
import type { StorePlace } from './store-place.ts'

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
