/**
 * Who imports what, as far as the broker knows: the exports in its log, and what members report that they do not import.
 * Reads only. A thousand members have many records, so the event loop gets a turn after each member.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { LinkEnd } from '../../model/lanes/lanes.ts'
import { statusOf } from '../records/records.ts'
import { type LogView, type RecordRow, isLive, parseRecordKey } from '../store/store.ts'

/** The members that are neither evicted nor have left, by id, as a topology looks at them. */
export function linkEnds(view: LogView): readonly LinkEnd[] {
  const members = view.list('member').flatMap(({ key, value }): LinkEnd[] => {
    return isLive(value) ? [{ id: key, labels: value.facts.labels }] : []
  })
  return members.sort((a, b) => (a.id < b.id ? -1 : 1))
}

/** One export, as its record in the log states it. */
export interface Export {
  readonly namespace: string
  readonly name: string
  readonly row: RecordRow
}

/** All exports of a member. */
export function exportsBy(view: LogView, cluster: string): readonly Export[] {
  if (view.recordCount(cluster, 'ServiceExport') === 0) return []
  return view.list('record', cluster).flatMap(({ key, value }): Export[] => {
    const { kind, namespace, name } = parseRecordKey(key)
    return kind === 'ServiceExport' ? [{ namespace, name, row: value }] : []
  })
}

/** Who reports that it does not import: by `exporter/namespace/name`, of which each may be empty for all. */
export type Reporters = ReadonlyMap<string, ReadonlySet<string>>

/** Rejects with the signal's reason. */
export async function readReporters(
  view: LogView,
  members: readonly string[],
  signal: AbortSignal,
): Promise<Reporters> {
  const reporters = new Map<string, Set<string>>()
  for (const id of members) {
    for (const { cluster, namespace, name } of statusOf(view, id)?.notImported ?? []) {
      const place = `${cluster}/${namespace}/${name}`
      reporters.set(place, (reporters.get(place) ?? new Set<string>()).add(id))
    }
    await nextTurn(undefined, { signal })
  }
  return reporters
}

/**
 * What a member does not report as not imported is imported, if it is offered to it. About exporters with which it does
 * not link yet a member has reported nothing: then what it may import counts.
 */
export function importersOf({ namespace, name, row }: Export, exporter: string, reporters: Reporters) {
  const places = [exporter, ''].flatMap((by) => [`${by}/${namespace}/${name}`, `${by}/${namespace}/`, `${by}//`])
  const against = places.flatMap((place) => reporters.get(place) ?? [])
  const offered = row.readers === undefined ? undefined : new Set(row.readers)
  return (id: string): boolean => offered?.has(id) !== false && !against.some((ids) => ids.has(id))
}
