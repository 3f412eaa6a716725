/**
 * What an operator has said outlasts replicas of earlier releases on the same store (design rule 13). Such a replica
 * keeps what it does not know of a member's row, but writes all Cluster records from what it does know, once a minute,
 * and the settings when it starts. Two releases would then drain and undrain a member in turn, or lose the default of the
 * clusterset. A replica of this release writes back at once what was left out. Each looks only at what an earlier release
 * leaves out, so replicas that know more have nothing to answer.
 */
import type { AccessDefault } from '../../model/access/access.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { reasonOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { isDrainUndone, mendDrain } from '../addresses/addresses.ts'
import {
  type Change,
  type ChangesFrom,
  type LogView,
  type RecordLog,
  SETTINGS_KEY,
  type SettingsRow,
  groupOf,
} from '../store/store.ts'

/** Shortest time between two writes about one member. Rows and records that two releases write in turn stay cheap. */
const AGAIN_MS = 1000

export interface OperatorWordsDeps {
  readonly log: RecordLog
  readonly clock: Pick<Clock, 'monotonic'>
  readonly logger: Logger
}

/** Settings that no release removes once they are set. */
type KeptSettings = Pick<SettingsRow, 'accessDefault' | 'offers'>

export class OperatorWords {
  readonly #deps: OperatorWordsDeps
  readonly #mendedMs = new Map<string, number>()
  /** What members hear: it stays as it was while the store has none. */
  #settings: KeptSettings
  /** What is written back. It was read with all writes before it. */
  #known: KeptSettings

  constructor(deps: OperatorWordsDeps) {
    this.#deps = deps
    this.#settings = settingsIn(deps.log)
    this.#known = this.#settings
  }

  /** The default of the clusterset, as it was last set. Undefined if it never was while this process ran. */
  get accessDefault(): AccessDefault | undefined {
    return this.#settings.accessDefault
  }

  /** Takes what was written, by any replica. */
  take(changes: readonly Change[], from: ChangesFrom = 'commit'): void {
    if (changes.some(({ scope }) => scope === 'settings')) this.#takeSettings(from)
    const members = changes.flatMap(({ scope, key }) => (scope === 'member' || isOfCluster(scope, key) ? [key] : []))
    if (members.length > 0) this.#takeMembers([...new Set(members.map(groupOf))])
  }

  #takeSettings(from: ChangesFrom): void {
    const { log } = this.#deps
    const known = this.#known
    const stored = settingsIn(log)
    this.#settings = { ...this.#settings, ...stored }
    // An operator may have said something else among the writes that were missed. A replica that has seen them writes
    // that back.
    this.#known = from === 'listing' ? stored : { ...known, ...stored }
    if (from === 'listing' || !lacks(stored, known)) return
    this.#write('the settings', () =>
      log.transact((tx) => {
        const row = tx.get('settings', SETTINGS_KEY)
        if (row !== undefined && lacks(row, known)) tx.put('settings', SETTINGS_KEY, { ...row, ...known, ...kept(row) })
      }),
    )
  }

  #takeMembers(ids: readonly string[]): void {
    const { log, clock } = this.#deps
    const nowMs = clock.monotonic()
    const undone = ids.filter((id) => {
      if (log.get('member', id) === undefined) this.#mendedMs.delete(id)
      return isDrainUndone(log, id) && nowMs - (this.#mendedMs.get(id) ?? -Infinity) >= AGAIN_MS
    })
    if (undone.length === 0) return
    for (const id of undone) this.#mendedMs.set(id, nowMs)
    this.#write('the drain of members', () =>
      log.transact((tx) => {
        for (const id of undone) if (isDrainUndone(tx, id)) mendDrain(tx, id)
      }),
    )
  }

  #write(what: string, write: () => Promise<void>): void {
    const { logger } = this.#deps
    logger.debug('a replica of an earlier release has left out what an operator said; it is written back', { what })
    write().catch((error: unknown) => {
      const reason = reasonOf(error) ?? 'RoundFailed'
      logger.warn('cannot write back what an operator said', { reason, what, why: String(error) })
    })
  }
}

function settingsIn(view: LogView): KeptSettings {
  return kept(view.get('settings', SETTINGS_KEY))
}

function kept(row: KeptSettings | undefined): KeptSettings {
  const { accessDefault, offers } = row ?? {}
  return { ...(accessDefault === undefined ? {} : { accessDefault }), ...(offers === undefined ? {} : { offers }) }
}

function lacks(row: KeptSettings, known: KeptSettings): boolean {
  return (Object.keys(known) as (keyof KeptSettings)[]).some((name) => row[name] === undefined)
}

function isOfCluster(scope: Change['scope'], key: string): boolean {
  return scope === 'record' && key.startsWith(`${groupOf(key)}/Cluster/`)
}
