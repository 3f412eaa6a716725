/**
 * The Cluster record of each member: its facts and allocated addresses, as the other members get them. The records are
 * updated from the facts of all members whenever one of them joins, leaves or changes.
 */
import { type ClusterId, type ClusterSpec, recordKeyText } from '../../model/model.ts'
import { ipv4Among } from '../../model/addresses/addresses.ts'
import { RECORD_FORMS } from '../../model/grammar/grammar.ts'
import { canonicalJson } from '../../protocol/codec/codec.ts'
import { globalCIDRs } from './allocation.ts'
import type { Members } from './address-claims.ts'
import { type LogView, type MemberRow, type RecordRow, type Transaction, isLive } from '../store/store.ts'

export function clusterRecordKey(cluster: string): string {
  return recordKeyText({ cluster: cluster as ClusterId, kind: 'Cluster', namespace: '', name: cluster })
}

/** The spec of the member as other members get it. Undefined if it is not a member. */
export function clusterSpec(view: LogView, cluster: string): ClusterSpec | undefined {
  return specAt(view, clusterRecordKey(cluster))
}

function specAt(view: LogView, key: string): ClusterSpec | undefined {
  const body = view.get('record', key)?.body
  return body?.kind === 'Cluster' ? body.spec : undefined
}

export interface ChangedClusters {
  /** Clusters that lost a pod CIDR. */
  readonly shrunk: readonly ClusterId[]
  /** Clusters that were reached by their own addresses before and have global ones from now on. */
  readonly renumbered: readonly ClusterId[]
}

/** Writes the records of these members that differ. `notCarried`: ids of the members whose IPv6 is left out. */
export function writeClusterRecords(
  tx: Transaction,
  members: Members,
  notCarried: ReadonlyMap<string, unknown>,
): ChangedClusters {
  const [shrunk, renumbered]: [ClusterId[], ClusterId[]] = [[], []]
  for (const [id, row] of members) {
    if (!isLive(row)) continue
    const cluster = id as ClusterId
    const yields = notCarried.has(id)
    const known = written.get(row)
    const key = known?.key ?? clusterRecordKey(id)
    const before = specAt(tx, key)
    if (before !== undefined && known?.spec === before && known.yields === yields) continue
    const spec = specOf(id, row, yields)
    writeRecord(tx, key, { spec, joinedAtMs: row.joinedAtMs })
    const now = specAt(tx, key)
    if (now !== undefined) written.set(row, { key, spec: now, yields })
    if (!(before?.podCIDRs ?? []).every((cidr) => spec.podCIDRs.includes(cidr))) shrunk.push(cluster)
    if ((before?.globalCIDRs ?? []).length === 0 && spec.globalCIDRs.length > 0) renumbered.push(cluster)
  }
  return { shrunk, renumbered }
}

/**
 * By a member's row: the record with its content. If one of a thousand members changes, the other records need no
 * comparison.
 */
const written = new WeakMap<MemberRow, { readonly key: string; readonly spec: ClusterSpec; readonly yields: boolean }>()

export function removeClusterRecord(tx: Transaction, cluster: string): void {
  tx.remove('record', clusterRecordKey(cluster))
}

function specOf(id: string, row: MemberRow, yields: boolean): ClusterSpec {
  const { facts, index, translated, blocks } = row
  const carried = yields ? ipv4Among : (texts: readonly string[]) => texts
  const podCIDRs = carried(facts.podCIDRs)
  const serviceCIDRs = carried(facts.serviceCIDRs)
  const given = globalCIDRs({ podCIDRs, translated, blocks })
  const { labels, properties } = facts
  return {
    ...{ id, index, podCIDRs, serviceCIDRs, globalCIDRs: given, labels },
    ...(properties === undefined ? {} : { properties }),
    ...drainFields(row),
  }
}

type DrainFields = Pick<MemberRow, 'drained' | 'drainedNow'>

/**
 * What a row says of the drain of a member, for a row, a record or a summary of it. A replica of an earlier release ends
 * a drain without removing drainedNow from the row, so alone it says nothing.
 */
export function drainFields({ drained, drainedNow }: DrainFields): DrainFields {
  if (drained !== true) return {}
  return { drained, ...(drainedNow === true ? { drainedNow } : {}) }
}

/** The row without what a drain that is over has left in it, or the same one. */
export function withoutOldDrain(row: MemberRow): MemberRow {
  if (row.drained === true || row.drainedNow === undefined) return row
  const { drainedNow: _, ...rest } = row
  return rest
}

/**
 * A replica of an earlier release writes all Cluster records once a minute, and leaves out what it does not know of the
 * rows. So the row says what the record says of the drain, whoever wrote the record last. Returns the record to give to
 * members, which is the same one unless it lacks that. Pure.
 */
export function asTheRowSays(view: LogView, key: string, record: RecordRow): RecordRow {
  const { body } = record
  if (body.kind !== 'Cluster') return record
  const row = view.get('member', body.spec.id)
  if (!isLive(row) || key !== clusterRecordKey(body.spec.id) || isSameDrain(row, body.spec)) return record
  const { drained: _before, drainedNow: _how, ...spec } = body.spec
  return { ...record, body: { kind: 'Cluster', spec: { ...spec, ...drainFields(row) } } }
}

/** Whether a replica of an earlier release has left something of a drain behind, in the row or in the record. */
export function isDrainUndone(view: LogView, cluster: string): boolean {
  const row = view.get('member', cluster)
  if (!isLive(row)) return false
  const spec = clusterSpec(view, cluster)
  return withoutOldDrain(row) !== row || (spec !== undefined && !isSameDrain(row, spec))
}

/** Writes the row and the record of this member as the row says, if they differ. Other fields stay. */
export function mendDrain(tx: Transaction, cluster: string): void {
  const row = tx.get('member', cluster)
  if (!isLive(row)) return
  const mended = withoutOldDrain(row)
  if (mended !== row) tx.put('member', cluster, mended)
  const key = clusterRecordKey(cluster)
  const record = tx.get('record', key)
  if (record === undefined) return
  const said = asTheRowSays(tx, key, record)
  if (said !== record) tx.put('record', key, said)
}

function isSameDrain(row: MemberRow, { drained = false, drainedNow = false }: ClusterSpec): boolean {
  const said = drainFields(row)
  return drained === (said.drained === true) && drainedNow === (said.drainedNow === true)
}

/** What a later release may have written into the record. Its replicas read it, so a write here keeps it. */
function ofLaterReleases(spec: ClusterSpec | undefined): object {
  return Object.fromEntries(Object.entries(spec ?? {}).filter(([name]) => !Object.hasOwn(FIELDS, name)))
}

const FIELDS = RECORD_FORMS.Cluster.fields.spec.fields

function writeRecord(
  tx: Transaction,
  key: string,
  { spec, joinedAtMs }: { readonly spec: ClusterSpec; readonly joinedAtMs: number },
): void {
  const old = tx.get('record', key)
  const body = { kind: 'Cluster', spec: { ...ofLaterReleases(specAt(tx, key)), ...spec } } as const
  if (old !== undefined && canonicalJson(old.body) === canonicalJson(body)) return
  tx.put('record', key, { createdAtMs: old?.createdAtMs ?? joinedAtMs, body })
}
