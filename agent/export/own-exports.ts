/**
 * What this cluster exports, according to its own API. The broker's records of it only say since when. Pure but for the
 * memory of which records were found to be right.
 */
import { isDeepStrictEqual } from 'node:util'
import type { ServiceKey } from '../../model/ids.ts'
import type { OwnExport } from './plan-exports.ts'
import type { Dropped, ExportRecord, ServiceFacts } from '../import/clusterset-view.ts'

export interface OwnExports {
  /** Id of this cluster. */
  readonly own: string
  /** False until the own exports have been read: then the broker's word is all there is. */
  readonly ownKnown: boolean
  /** Undefined when the service is not exported here, or not as it has to be. */
  readonly ownExport: (key: ServiceKey) => OwnExport | undefined
}

/** The broker's record with this cluster's own body, so that what is planned from it stays the same object. */
const WITH_OWN_BODY = new WeakMap<ExportRecord, ExportRecord>()

/** The facts of one service with this cluster's own part put right, and what was left out for it. */
export function withOwnExport(
  key: ServiceKey,
  facts: ServiceFacts,
  { own, ownKnown, ownExport }: OwnExports,
): { readonly facts: ServiceFacts; readonly dropped: readonly Dropped[] } {
  const isOwn = (record: { readonly key: { readonly cluster: string } }): boolean => record.key.cluster === own
  if (!ownKnown || !(facts.exports.some(isOwn) || facts.slices.some(isOwn))) return { facts, dropped: [] }
  const body = ownExport(key)?.body
  if (body !== undefined) {
    const exports = facts.exports.map((record) => (isOwn(record) ? withBody(record, body) : record))
    return { facts: { ...facts, exports }, dropped: [] }
  }
  const others = {
    exports: facts.exports.filter((one) => !isOwn(one)),
    slices: facts.slices.filter((one) => !isOwn(one)),
  }
  // It may have been withdrawn a moment ago, and the broker may not know it yet.
  const why = { reason: 'NotExported', message: 'this cluster does not export it', settles: true } as const
  return { facts: { ...facts, ...others }, dropped: [{ what: `${own}/ServiceExport/${key}`, ...why }] }
}

function withBody(record: ExportRecord, body: ExportRecord['body']): ExportRecord {
  if (record.body === body || isDeepStrictEqual(record.body, body)) return record
  const known = WITH_OWN_BODY.get(record)
  if (known?.body === body) return known
  const own = { ...record, body }
  WITH_OWN_BODY.set(record, own)
  return own
}
