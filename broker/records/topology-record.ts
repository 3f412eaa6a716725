/**
 * The Topology record: which members link with which. Operators alone write it, by commands or by an object in the
 * broker's cluster, with a number that counts its changes: a change that is based on an older one is refused. The log's
 * revision of the record says since when it counts.
 */
import { isDeepStrictEqual } from 'node:util'
import { type Topology, type TopologyBody, recordKeyText } from '../../model/model.ts'
import { FULL_TOPOLOGY } from '../../model/lanes/lanes.ts'
import { RefusedError } from '../../protocol/protocol.ts'
import { type LogView, SETTINGS_KEY, type Transaction } from '../store/store.ts'

export const TOPOLOGY_KEY = recordKeyText({ cluster: '', kind: 'Topology', namespace: '', name: 'topology' })

/** Undefined if no operator has set one: all members link. */
export function topologyRecord(view: LogView): (TopologyBody & { readonly setAtMs: number }) | undefined {
  const row = view.get('record', TOPOLOGY_KEY)
  return row?.body.kind === 'Topology' ? { ...row.body, setAtMs: row.createdAtMs } : undefined
}

/** The topology that counts, and the number of its last change; 0 if there was none. */
export function topologyInForce(view: LogView): Pick<TopologyBody, 'number' | 'topology'> {
  return topologyRecord(view) ?? { number: 0, topology: FULL_TOPOLOGY }
}

/** The object that has set the topology, so that commands do not. Undefined if there is none. */
export function topologyOwner(view: LogView): string | undefined {
  return view.get('settings', SETTINGS_KEY)?.topologyFrom?.object
}

/**
 * Ends the claim of the object, and leaves the topology as it is. Returns which object that was; undefined if there was
 * none.
 */
export function releaseTopology(tx: Transaction): string | undefined {
  const settings = tx.get('settings', SETTINGS_KEY)
  const object = settings?.topologyFrom?.object
  if (settings === undefined || object === undefined) return undefined
  tx.put('settings', SETTINGS_KEY, { ...settings, topologyFrom: {} })
  return object
}

export interface SetTopologyInit {
  /** As readTopology() gives it. */
  readonly topology: Topology
  /** The number of the topology that the operator looked at. Undefined: whatever counts now. */
  readonly basedOn?: number | undefined
  /** The object that states it, which commands do not override from then on. Undefined: a command does. */
  readonly object?: string | undefined
}

/**
 * `changed` is false if the same topology counts already. Throws RefusedError (TopologyChanged) if it is based on another
 * topology than the one that counts, (TopologyOwned) for a command while an object sets the topology, and
 * (TopologyNotFollowed) for an object while the brokers follow none.
 */
export function setTopology(
  tx: Transaction,
  { topology, basedOn, object }: SetTopologyInit,
  nowMs: number,
): { readonly changed: boolean; readonly number: number } {
  if (object === undefined) refuseOwned(tx)
  else claim(tx, object)
  const { number, topology: before } = topologyInForce(tx)
  if (isDeepStrictEqual(before, topology)) return { changed: false, number }
  if (basedOn !== undefined && basedOn !== number) {
    const text = `basedOn ${basedOn}: expected ${number}, because the topology was changed in the meantime`
    throw new RefusedError('TopologyChanged', 'basedOn', text)
  }
  const body: TopologyBody = { kind: 'Topology', number: number + 1, topology }
  tx.put('record', TOPOLOGY_KEY, { createdAtMs: nowMs, body })
  return { changed: true, number: body.number }
}

function refuseOwned(tx: Transaction): void {
  const owner = topologyOwner(tx)
  if (owner === undefined) return
  const text = `topology: ${owner} in the cluster of the broker sets it: expected a change of that object, or none such`
  throw new RefusedError('TopologyOwned', 'topology', text)
}

/** Throws RefusedError (TopologyNotFollowed) if the brokers follow no object. */
export function checkFollowed(view: LogView, object: string): void {
  if (view.get('settings', SETTINGS_KEY)?.topologyFrom !== undefined) return
  const text = `${object}: expected a broker that follows objects, but the one that started last does not`
  throw new RefusedError('TopologyNotFollowed', 'topology', text)
}

function claim(tx: Transaction, object: string): void {
  checkFollowed(tx, object)
  const settings = tx.get('settings', SETTINGS_KEY)
  if (settings === undefined || settings.topologyFrom?.object === object) return
  tx.put('settings', SETTINGS_KEY, { ...settings, topologyFrom: { object } })
}
