/** Moves a broker's store, apart from the broker itself, which brings a server along. */
import { localOperator } from '../../broker/audit/operator.ts'
import type { EtcdStoreConfig } from '../../broker/config.ts'
import { type Migrated, cancelMigration, migrateStore } from '../../broker/migrate/migration.ts'
import { openPlace } from '../../broker/migrate/open-place.ts'
import type { StorePlace } from '../../broker/migrate/store-place.ts'
import { SystemClock } from '../../reconcile/clock.ts'

export type { Migrated } from '../../broker/migrate/migration.ts'

export interface MoveInit {
  /** As the flags have it: see openPlace(). */
  readonly from: string
  readonly to: string
  readonly state: string
  readonly login: Omit<EtcdStoreConfig, 'url'>
  readonly force: boolean
}

/** Throws StateError, and UserError for a place that cannot be meant. */
export async function moveStore(init: MoveInit, signal: AbortSignal): Promise<Migrated> {
  const { from, to, force } = init
  const places = { from: placeOf(from, '--from', init, signal), to: placeOf(to, '--to', init, signal) }
  return migrateStore({ clock: new SystemClock(), who: localOperator(), signal }, { ...places, force })
}

/** Without `to` the target is not asked. Throws as moveStore() does. */
export async function cancelMove(
  init: Omit<MoveInit, 'to'> & { readonly to?: string },
  signal: AbortSignal,
): Promise<void> {
  const { from, to, force } = init
  const places = {
    from: placeOf(from, '--from', init, signal),
    to: to === undefined ? undefined : placeOf(to, '--to', init, signal),
  }
  await cancelMigration({ clock: new SystemClock(), who: localOperator(), signal }, { ...places, force })
}

function placeOf(
  text: string,
  flag: string,
  { state, login }: Pick<MoveInit, 'state' | 'login'>,
  signal: AbortSignal,
): StorePlace {
  return openPlace(text, { flag, stateDir: state, login, clock: new SystemClock(), signal })
}
