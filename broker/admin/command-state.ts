/** The state on which the commands of operators work: of a running broker, or opened while none runs. */
import { join } from 'node:path'
import { type Clock, withDeadline } from '../../reconcile/reconcile.ts'
import type { AdminCaller, Operator } from '../../protocol/admin/admin.ts'
import { RefusedError } from '../../protocol/protocol.ts'
import { isDnsLabel } from '../../model/model.ts'
import {
  type AuditActor,
  DATABASE_FILE,
  type EtcdStore,
  type OpenedLog,
  type RecordLog,
  SETTINGS_KEY,
  SILENT,
  type SettingsRow,
  StateError,
  absentState,
  checkNotMoved,
  clustersetDir,
  isThere,
  lockDirectory,
  openLog,
  readStoreConfig,
  unknownClusterset,
} from '../store/store.ts'

/** The open state of one clusterset. */
export interface AdminState {
  readonly log: RecordLog
  /** Undefined if the state is a database. */
  readonly etcd: EtcdStore | undefined
  readonly stateDir: string
}

export interface CommandInit {
  readonly state: AdminState
  readonly clock: Clock
  readonly who: AuditActor
  readonly signal: AbortSignal
}

/** `change` keeps a broker from running meanwhile, unless it is the running broker that makes the change. */
export type StateUse = 'read' | 'change'

/** The states of a broker's clustersets. */
export interface AdminStates {
  /**
   * Calls `work` with the state of a clusterset; undefined is the broker's own. Throws RefusedError for a clusterset that
   * the broker does not have, StateError for a state that cannot be used.
   */
  use<T>(clusterset: string | undefined, mode: StateUse, work: (state: AdminState) => Promise<T>): Promise<T>
  /** The state directory of a clusterset, which may be damaged or empty. Throws as use() does for an unknown clusterset. */
  directoryOf(clusterset: string | undefined): Promise<string>
  /** The open state of a clusterset if this process serves it. Throws as directoryOf() does. */
  served(clusterset: string | undefined): AdminState | undefined
}

/** Throws StateError if no broker has ever opened this state. */
export function settingsOf({ log, etcd, stateDir }: AdminState): SettingsRow {
  const settings = log.get('settings', SETTINGS_KEY)
  if (settings !== undefined) return settings
  throw absentState(etcd?.where ?? join(stateDir, DATABASE_FILE))
}

export function operatorActor({ uid, user, sudoUser }: Operator): AuditActor {
  return {
    kind: 'operator',
    ...(uid === undefined ? {} : { uid }),
    ...(user === undefined ? {} : { user }),
    ...(sudoUser === undefined ? {} : { sudoUser }),
  }
}

/**
 * Whoever opens the socket is the user of this process or root, so that what it says of itself is as true as the rest of
 * the state. A caller of the port is on another machine: its uid means nothing here, and the address marks its names as
 * what the caller claims.
 */
export function callerActor({ operator, address }: Pick<AdminCaller, 'operator' | 'address'>): AuditActor {
  if (address === undefined) return operatorActor(operator)
  const { user, sudoUser } = operator
  return {
    ...operatorActor({ ...(user === undefined ? {} : { user }), ...(sudoUser === undefined ? {} : { sudoUser }) }),
    address,
  }
}

/** Time limit to open a store over the network. */
const OPEN_MS = 30_000

/** Opens a state that no broker of this machine serves. Throws StateError if there is none, or if it was moved away. */
export async function openState(stateDir: string, clock: Clock): Promise<AdminState & Pick<OpenedLog, 'close'>> {
  const init = { stateDir, store: await readStoreConfig(stateDir), create: false }
  const opened = await withDeadline(clock, OPEN_MS, (late) => openLog({ clock, logger: SILENT }, init, late))
  const state = { log: opened.log, etcd: opened.etcd, stateDir, close: () => opened.close() }
  try {
    settingsOf(state)
    checkNotMoved(opened.log, opened.etcd?.where ?? join(stateDir, DATABASE_FILE))
    return state
  } catch (error) {
    await opened.close()
    throw error
  }
}

/** The state directory of a clusterset that the broker with this state lists. Throws RefusedError. */
export function clustersetStateDir({ log, stateDir }: AdminState, clusterset: string | undefined): string {
  if (clusterset === undefined) return stateDir
  if (!isDnsLabel(clusterset)) {
    const text = `clusterset ${JSON.stringify(clusterset.slice(0, 100))}: expected an RFC 1123 label: 1 to 63 of a-z, 0-9 and -`
    throw new RefusedError('InvalidValue', 'clusterset', text)
  }
  if (clusterset === log.get('settings', SETTINGS_KEY)?.clusterset) return stateDir
  if (log.get('clusterset', clusterset) === undefined) throw unknownClusterset(log, clusterset)
  return clustersetDir(stateDir, clusterset)
}

/**
 * The states below a state directory while no broker of this machine serves it. For a change of a database it holds the
 * lock of the broker, so that no broker runs or starts meanwhile; replicas on an etcd may run elsewhere.
 */
export class OfflineStates implements AdminStates {
  readonly #stateDir: string
  readonly #clock: Clock

  constructor(stateDir: string, clock: Clock) {
    this.#stateDir = stateDir
    this.#clock = clock
  }

  async use<T>(clusterset: string | undefined, mode: StateUse, work: (state: AdminState) => Promise<T>): Promise<T> {
    const unlock = mode === 'change' ? await this.#lock() : () => undefined
    try {
      const own = await openState(this.#stateDir, this.#clock)
      try {
        const stateDir = clustersetStateDir(own, clusterset)
        return stateDir === this.#stateDir ? await work(own) : await this.#useOther(stateDir, work)
      } finally {
        await own.close()
      }
    } finally {
      unlock()
    }
  }

  served(): undefined {
    return undefined
  }

  /** Before the state is opened: a broker that starts in between may replace the database by a backup. */
  async #lock(): Promise<() => void> {
    if ((await readStoreConfig(this.#stateDir)) !== undefined) return () => undefined
    const database = join(this.#stateDir, DATABASE_FILE)
    if (!(await isThere(database))) throw absentState(database)
    return lockDirectory(this.#stateDir)
  }

  async directoryOf(clusterset: string | undefined): Promise<string> {
    if (clusterset === undefined) return this.#stateDir
    const own = await openState(this.#stateDir, this.#clock)
    try {
      return clustersetStateDir(own, clusterset)
    } finally {
      await own.close()
    }
  }

  async #useOther<T>(stateDir: string, work: (state: AdminState) => Promise<T>): Promise<T> {
    const other = await openState(stateDir, this.#clock)
    try {
      return await work(other)
    } finally {
      await other.close()
    }
  }
}

// The states of a running broker.

export interface ServedStatesInit {
  readonly stateDir: string
  readonly clock: Clock
  /** The broker's own clusterset, or why it is not open yet. */
  readonly own: () => AdminState | string
  /** The other clustersets that are served. */
  readonly others: () => readonly AdminState[]
}

export class ServedStates implements AdminStates {
  readonly #init: ServedStatesInit

  constructor(init: ServedStatesInit) {
    this.#init = init
  }

  async use<T>(clusterset: string | undefined, _mode: StateUse, work: (state: AdminState) => Promise<T>): Promise<T> {
    const own = this.#own()
    const stateDir = clustersetStateDir(own, clusterset)
    const served = this.#servedAt(stateDir)
    if (served !== undefined) return work(served)
    // It was removed, or it cannot be served. Only this process may open it.
    const opened = await openState(stateDir, this.#init.clock)
    try {
      return await work(opened)
    } finally {
      await opened.close()
    }
  }

  directoryOf(clusterset: string | undefined): Promise<string> {
    const { stateDir } = this.#init
    return Promise.resolve(clusterset === undefined ? stateDir : clustersetStateDir(this.#own(), clusterset))
  }

  served(clusterset: string | undefined): AdminState | undefined {
    const own = this.#init.own()
    return typeof own === 'string' ? undefined : this.#servedAt(clustersetStateDir(own, clusterset))
  }

  #servedAt(stateDir: string): AdminState | undefined {
    return [this.#own(), ...this.#init.others()].find((one) => one.stateDir === stateDir)
  }

  #own(): AdminState {
    const own = this.#init.own()
    if (typeof own !== 'string') return own
    throw new StateError(
      'Unreachable',
      join(this.#init.stateDir, DATABASE_FILE),
      `the broker is still starting: ${own}`,
    )
  }
}
