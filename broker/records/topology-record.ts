/**
 * The Topology record: which members link with which. Operators alone write it, with a number that counts its changes: a
 * change that is based on an older one is refused. The log's revision of the record says since when it counts.
 */
import { isDeepStrictEqual } from 'node:util'
import { type Topology, type TopologyBody, recordKeyText } from '../../model/model.ts'
import { FULL_TOPOLOGY } from '../../model/lanes/lanes.ts'
import { RefusedError } from '../../protocol/protocol.ts'
import type { LogView, Transaction } from '../store/store.ts'

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

export interface SetTopologyInit {
  /** As readTopology() gives it. */
  readonly topology: Topology
  /** The number of the topology that the operator looked at. Undefined: whatever counts now. */
  readonly basedOn?: number | undefined
}

/**
 * `changed` is false if the same topology counts already. Throws RefusedError (TopologyChanged) if it is based on another
 * topology than the one that counts.
 */
export function setTopology(
  tx: Transaction,
  { topology, basedOn }: SetTopologyInit,
  nowMs: number,
): { readonly changed: boolean; readonly number: number } {
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
