/** Of records: each is whole, is what its hash says, and belongs to a member. */
import { isDeepStrictEqual } from 'node:util'
import { type MemberRecord, type StoredRecord, recordKeyText } from '../../model/records.ts'
import { CodecError } from '../../protocol/codec/codec-checks.ts'
import { contentHash } from '../../protocol/codec/content-hash.ts'
import { decodeStoredRecord, encodeStoredRecord } from '../../protocol/codec/records-codec.ts'
import { messageOf } from '../../runtime/thrown.ts'
import { type RecordRow, isLive, storedRecord } from '../state/state.ts'
import type { CheckContext } from './findings.ts'

/** Takes rows whose form is right. Gives the keys of records that are not fit to be looked at further. */
export function checkRecords(context: CheckContext): ReadonlySet<string> {
  const broken = new Set<string>()
  for (const { key, value } of context.view.list('record')) {
    const wrong = undecodable(key, value)
    if (wrong !== undefined) {
      broken.add(key)
      context.findings.add('StoreRowInvalid', `record ${key}`, wrong)
      continue
    }
    checkOwner(context, key, value)
    checkContent(context, key, value)
  }
  return broken
}

/** What cannot be sent and read again as it is. */
function undecodable(key: string, row: RecordRow): string | undefined {
  const stored = storedRecord(key, 1, row)
  if (recordKeyText(stored.key) !== key || stored.key.kind !== row.body.kind)
    return `a key of four parts was expected, with the kind of its body, ${row.body.kind}`
  try {
    const decoded: StoredRecord = decodeStoredRecord(encodeStoredRecord(stored))
    return isDeepStrictEqual(decoded.key, stored.key) ? undefined : 'it reads back as another record'
  } catch (error) {
    // Whoever wrote it may have left out a field that the codec relies on.
    return error instanceof CodecError ? error.message : `it cannot be encoded: ${messageOf(error)}`
  }
}

function checkOwner({ view, findings }: CheckContext, text: string, { body }: RecordRow): void {
  const { cluster, namespace, name } = storedRecord(text, 1, { createdAtMs: 0, body }).key
  const subject = `record ${text}`
  if (body.kind === 'ClusterSetIP') {
    if (cluster !== '') findings.add('StoreRowInvalid', subject, "its cluster was expected to be the broker's, ''")
    return
  }
  if (!isLive(view.get('member', cluster)))
    findings.add('StoreReferenceBroken', subject, `cluster "${cluster}" is no member`)
  if ((body.kind === 'Cluster' || body.kind === 'MemberStatus') && (name !== cluster || namespace !== ''))
    findings.add('StoreRowInvalid', subject, 'it is under another name than that of its cluster')
}

/** Of what members publish: the broker compares digests with the hash, and a wrong one would never be corrected. */
function checkContent({ findings }: CheckContext, text: string, { body, hash, bytes }: RecordRow): void {
  if (body.kind === 'Cluster' || body.kind === 'MemberStatus' || body.kind === 'ClusterSetIP') return
  const { namespace, name } = storedRecord(text, 1, { createdAtMs: 0, body }).key
  const record: MemberRecord = { namespace, name, body }
  const subject = `record ${text}`
  if (hash !== Buffer.from(contentHash(record)).toString('hex'))
    findings.add('StoreHashDiffers', subject, 'its content is not what its hash says')
  if (bytes !== undefined && bytes !== Buffer.byteLength(JSON.stringify(body)))
    findings.add('StoreHashDiffers', subject, `its content has not ${bytes} bytes`)
}
