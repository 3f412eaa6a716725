/** Opens the state of a broker for a command beside it, wherever it is. */
import { join } from 'node:path'
import type { Clock } from '../../reconcile/clock.ts'
import { withDeadline } from '../../reconcile/until-aborted.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import { checkNotMoved } from '../migrate/check-place.ts'
import { absentState } from '../log/record-log.ts'
import { DATABASE_FILE } from './database-file.ts'
import { type OpenedLog, openLog } from './open-log.ts'
import { SETTINGS_KEY, type SettingsRow } from './state.ts'
import { readStoreConfig } from './store-config.ts'

/** How long a command tries to open a store over the network. */
const OPEN_MS = 30_000
const nothing = (): void => undefined
/** Of a command: what goes wrong ends it, and it says it. */
export const SILENT: Logger = { debug: nothing, info: nothing, warn: nothing, error: nothing, child: () => SILENT }

export interface OpenedState extends OpenedLog {
  readonly settings: SettingsRow
}

/** Throws StateError when there is no broker state yet, it was moved elsewhere, or it cannot be used. */
export async function openBeside(stateDir: string, clock: Clock): Promise<OpenedState> {
  const init = { stateDir, store: await readStoreConfig(stateDir), create: false }
  const opened = await withDeadline(clock, OPEN_MS, (late) => openLog({ clock, logger: SILENT }, init, late))
  const { log, etcd } = opened
  const name = etcd?.where ?? join(stateDir, DATABASE_FILE)
  try {
    const settings = log.get('settings', SETTINGS_KEY)
    if (settings === undefined) throw absentState(name)
    checkNotMoved(log, name)
    return { ...opened, settings, close: () => opened.close() }
  } catch (error) {
    await opened.close()
    throw error
  }
}
