/** Whether a broker has the clusterset that is to be moved: its own store has the list, also after it was moved itself. */
import { ownName, unknownClusterset } from '../clustersets/clusterset-rows.ts'
import { absentState } from '../log/record-log.ts'
import type { StorePlace } from './store-place.ts'

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
