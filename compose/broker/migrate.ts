/** Moves a broker's store. Separate from the broker, which would load a server. */
import { operatorActor } from '../../broker/admin/admin.ts'
import type { EtcdStoreConfig } from '../../broker/config/config.ts'
import {
  type Migrated,
  type StorePlace,
  cancelMigration,
  listedClusterset,
  migrateStore,
  openPlace,
} from '../../broker/recovery/recovery.ts'
import { localOperator } from '../../protocol/admin/admin.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'

export type { Migrated } from '../../broker/recovery/recovery.ts'

export interface MoveInit {
  /** The values of the flags; see openPlace(). */
  readonly from: string
  readonly to: string
  readonly state: string
  readonly login: Omit<EtcdStoreConfig, 'url'>
  readonly force: boolean
  /** The clusterset to move, if the broker has several. If absent, the broker's own. */
  readonly clusterset?: string | undefined
}

/** Throws StateError, RefusedError for an unknown clusterset, and UserError for an invalid place. */
export async function moveStore(given: MoveInit, signal: AbortSignal): Promise<Migrated> {
  const init = await checked(given, signal)
  const { from, to, force } = init
  const places = { from: placeOf(from, '--from', init, signal), to: placeOf(to, '--to', init, signal) }
  return migrateStore({ clock: new SystemClock(), who: operatorActor(localOperator()), signal }, { ...places, force })
}

/** Cancels a move. Without `to`, the target is not contacted. Throws the errors of moveStore(). */
export async function cancelMove(
  given: Omit<MoveInit, 'to'> & { readonly to?: string },
  signal: AbortSignal,
): Promise<void> {
  const init = await checked(given, signal)
  const { from, to, force } = init
  const places = {
    from: placeOf(from, '--from', init, signal),
    to: to === undefined ? undefined : placeOf(to, '--to', init, signal),
  }
  await cancelMigration({ clock: new SystemClock(), who: operatorActor(localOperator()), signal }, { ...places, force })
}

/** Gives `init` with the clusterset's name as the broker lists it. Throws RefusedError for an unknown clusterset. */
async function checked<T extends Omit<MoveInit, 'to'>>(init: T, signal: AbortSignal): Promise<T> {
  const { from, clusterset } = init
  if (clusterset === undefined) return init
  const own = placeOf(from, '--from', { ...init, clusterset: undefined }, signal)
  return { ...init, clusterset: await listedClusterset(own, clusterset) }
}

function placeOf(
  text: string,
  flag: string,
  { state, login, clusterset }: Pick<MoveInit, 'state' | 'login' | 'clusterset'>,
  signal: AbortSignal,
): StorePlace {
  return openPlace(text, { flag, stateDir: state, login, clusterset, clock: new SystemClock(), signal })
}
