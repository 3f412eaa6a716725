/** Moves a broker's store, apart from the broker itself, which brings a server along. */
import { localOperator } from '../../broker/audit/operator.ts'
import { type Migrated, cancelMigration, migrateStore } from '../../broker/migrate/migration.ts'
import { openPlace } from '../../broker/migrate/open-place.ts'
import { SystemClock } from '../../reconcile/clock.ts'

export type { Migrated } from '../../broker/migrate/migration.ts'

export interface MoveInit {
  /** As the flags have it: see openPlace(). */
  readonly from: string
  readonly to: string
  readonly state: string
  readonly force: boolean
}

/** Throws StateError, and UserError for a place that cannot be meant. */
export async function moveStore({ from, to, state, force }: MoveInit, signal: AbortSignal): Promise<Migrated> {
  const places = {
    from: openPlace(from, { flag: '--from', stateDir: state }),
    to: openPlace(to, { flag: '--to', stateDir: state }),
  }
  return migrateStore({ clock: new SystemClock(), who: localOperator(), signal }, { ...places, force })
}

/** Without `to` the target is not asked. Throws as moveStore() does. */
export async function cancelMove(
  { from, to, state, force }: Omit<MoveInit, 'to'> & { readonly to?: string },
  signal: AbortSignal,
): Promise<void> {
  const places = {
    from: openPlace(from, { flag: '--from', stateDir: state }),
    to: to === undefined ? undefined : openPlace(to, { flag: '--to', stateDir: state }),
  }
  await cancelMigration({ clock: new SystemClock(), who: localOperator(), signal }, { ...places, force })
}
