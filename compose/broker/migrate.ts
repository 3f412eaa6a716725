/** Moves a broker's store, apart from the broker itself, which brings a server along. */
import { localOperator } from '../../broker/audit/audit.ts'
import type { EtcdStoreConfig } from '../../broker/config/config.ts'
import {
  type Migrated,
  type StorePlace,
  cancelMigration,
  listedClusterset,
  migrateStore,
  openPlace,
} from '../../broker/recovery/recovery.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'

export type { Migrated } from '../../broker/recovery/recovery.ts'

export interface MoveInit {
  /** As the flags have it: see openPlace(). */
  readonly from: string
  readonly to: string
  readonly state: string
  readonly login: Omit<EtcdStoreConfig, 'url'>
  readonly force: boolean
  /** Of several at one broker: which one; absent: the broker's own. */
  readonly clusterset?: string | undefined
}

/** Throws StateError, RefusedError for a clusterset that is not there, and UserError for a place that cannot be meant. */
export async function moveStore(given: MoveInit, signal: AbortSignal): Promise<Migrated> {
  const init = await checked(given, signal)
  const { from, to, force } = init
  const places = { from: placeOf(from, '--from', init, signal), to: placeOf(to, '--to', init, signal) }
  return migrateStore({ clock: new SystemClock(), who: localOperator(), signal }, { ...places, force })
}

/** Without `to` the target is not asked. Throws as moveStore() does. */
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
  await cancelMigration({ clock: new SystemClock(), who: localOperator(), signal }, { ...places, force })
}

/** The same, and its clusterset is one that the broker has. */
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
