/**
 * The MemberStatus record of each member: what it reports about itself, under its own id. The broker writes it, so that
 * it is no part of the set that the member declares, and nobody can name another member.
 */
import { isDeepStrictEqual } from 'node:util'
import type { ClusterId } from '../../model/ids.ts'
import type { MemberStatus } from '../../model/member-status.ts'
import { recordKeyText } from '../../model/records.ts'
import type { LogView, Transaction } from '../log/record-log.ts'

/** Writes it where it differs. */
export function writeStatusRecord(tx: Transaction, cluster: ClusterId, status: MemberStatus, nowMs: number): void {
  const key = statusRecordKey(cluster)
  const body = { kind: 'MemberStatus' as const, ...status }
  const old = tx.get('record', key)
  if (isDeepStrictEqual(old?.body, body)) return
  tx.put('record', key, { createdAtMs: old?.createdAtMs ?? nowMs, body })
}

export function removeStatusRecord(tx: Transaction, cluster: ClusterId): void {
  if (hasStatusRecord(tx, cluster)) tx.remove('record', statusRecordKey(cluster))
}

export function hasStatusRecord(view: LogView, cluster: ClusterId): boolean {
  return view.get('record', statusRecordKey(cluster)) !== undefined
}

/** What the member reported last; undefined where it reports nothing. */
export function statusOf(view: LogView, cluster: string): MemberStatus | undefined {
  const body = view.get('record', statusRecordKey(cluster))?.body
  return body?.kind === 'MemberStatus' ? body : undefined
}

function statusRecordKey(cluster: string): string {
  return recordKeyText({ cluster: cluster as ClusterId, kind: 'MemberStatus', namespace: '', name: cluster })
}
