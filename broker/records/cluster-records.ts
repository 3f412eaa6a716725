/**
 * The Cluster record of each member: what it states about itself and the addresses it was given, as the others get to
 * see it. Made anew from the facts of all members whenever one of them comes, goes or changes.
 */
import type { ClusterId } from '../../model/ids.ts'
import { ipv4Among, ipv6Among } from '../../model/addresses/ip.ts'
import type { ClusterSpec } from '../../model/objects.ts'
import { recordKeyText } from '../../model/records.ts'
import type { ClusterFacts } from '../../protocol/broker-api.ts'
import { canonicalJson } from '../../protocol/codec/content-hash.ts'
import { globalCIDRs } from '../addresses/allocation.ts'
import { ipv6NotCarried } from '../addresses/address-claims.ts'
import type { LogView, Transaction } from '../log/record-log.ts'
import { type MemberRow, isLive } from '../state/state.ts'

export function clusterRecordKey(cluster: string): string {
  return recordKeyText({ cluster: cluster as ClusterId, kind: 'Cluster', namespace: '', name: cluster })
}

/** What the others know the member as; undefined when it is none. */
export function clusterSpec(view: LogView, cluster: string): ClusterSpec | undefined {
  const body = view.get('record', clusterRecordKey(cluster))?.body
  return body?.kind === 'Cluster' ? body.spec : undefined
}

/** Writes the records that differ, and gives the members that lost a pod CIDR by it. */
export function writeClusterRecords(tx: Transaction): ClusterId[] {
  const live = tx.list('member').filter(({ value }) => isLive(value))
  const clashes = ipv6NotCarried(tx)
  return live.flatMap(({ key, value }): ClusterId[] => {
    const yields = clashes.has(key)
    const before = clusterSpec(tx, key)
    const known = written.get(value)
    if (before !== undefined && known?.spec === before && known.yields === yields) return []
    const spec = specOf(key, value, yields)
    writeRecord(tx, spec, value.joinedAtMs)
    const now = clusterSpec(tx, key)
    if (now !== undefined) written.set(value, { spec: now, yields })
    return (before?.podCIDRs ?? []).every((cidr) => spec.podCIDRs.includes(cidr)) ? [] : [key as ClusterId]
  })
}

/** By a member's row: the record that says what is in it. When one of a thousand comes, those of the others stand. */
const written = new WeakMap<MemberRow, { readonly spec: ClusterSpec; readonly yields: boolean }>()

export function removeClusterRecord(tx: Transaction, cluster: string): void {
  tx.remove('record', clusterRecordKey(cluster))
}

/** Whether these facts have a say in whose IPv6 is carried. */
export function statesIpv6({ podCIDRs, serviceCIDRs, neededCIDRs = [] }: ClusterFacts): boolean {
  return ipv6Among([...podCIDRs, ...serviceCIDRs, ...neededCIDRs]).length > 0
}

function specOf(id: string, { facts, index, translated, blocks }: MemberRow, yields: boolean): ClusterSpec {
  const carried = yields ? ipv4Among : (texts: readonly string[]) => texts
  const podCIDRs = carried(facts.podCIDRs)
  const serviceCIDRs = carried(facts.serviceCIDRs)
  const given = globalCIDRs({ podCIDRs, translated, blocks })
  return { id, index, podCIDRs, serviceCIDRs, globalCIDRs: given, labels: facts.labels }
}

function writeRecord(tx: Transaction, spec: ClusterSpec, joinedAtMs: number): void {
  const body = { kind: 'Cluster', spec } as const
  const key = clusterRecordKey(spec.id)
  const old = tx.get('record', key)
  if (old !== undefined && canonicalJson(old.body) === canonicalJson(body)) return
  tx.put('record', key, { createdAtMs: old?.createdAtMs ?? joinedAtMs, body })
}
