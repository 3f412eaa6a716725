/**
 * Who is in contact, written down for processes that read the database beside the broker. It is in rows of its own:
 * whenever a member's row changes, the whole clusterset is looked at anew, and contact changes all the time.
 */
import type { LogView, Transaction } from '../log/record-log.ts'
import { type ContactRow, type MemberRow, isLive } from '../state/state.ts'

/** The broker notes this often who is in contact. */
export const NOTE_CONTACT_MS = 60_000
/** What it noted counts this long: a broker that was killed cannot take it back. */
const CONTACT_COUNTS_MS = 2.5 * NOTE_CONTACT_MS

/** Of a member that is live. What an earlier release noted is in the member's row. */
export function contactOf(view: LogView, cluster: string, row: MemberRow): ContactRow {
  const { lastSeenMs, connectedSinceMs } = row
  const noted = view.get('contact', cluster)
  if (noted !== undefined) return { ...noted, lastSeenMs: Math.max(noted.lastSeenMs, lastSeenMs) }
  return connectedSinceMs === undefined ? { lastSeenMs } : { lastSeenMs, connectedSinceMs }
}

/** Notes whether the member has a stream open now. */
export function noteContact(tx: Transaction, cluster: string, connected: boolean, nowMs: number): void {
  const row = tx.get('member', cluster)
  if (!isLive(row)) return
  const before = contactOf(tx, cluster, row)
  if (connected) {
    const since = isInContact(before, nowMs) ? before.connectedSinceMs : undefined
    tx.put('contact', cluster, { lastSeenMs: nowMs, connectedSinceMs: since ?? nowMs })
  } else if (before.connectedSinceMs !== undefined) tx.put('contact', cluster, { lastSeenMs: before.lastSeenMs })
}

/** As noteContact(), at the moment in which a stream begins or ends: the member was there. */
export function noteSeen(tx: Transaction, cluster: string, connected: boolean, nowMs: number): void {
  const row = tx.get('member', cluster)
  if (!isLive(row)) return
  const before = contactOf(tx, cluster, row)
  const since = connected ? ((isInContact(before, nowMs) ? before.connectedSinceMs : undefined) ?? nowMs) : undefined
  tx.put('contact', cluster, { lastSeenMs: nowMs, ...(since === undefined ? {} : { connectedSinceMs: since }) })
}

/** The member begins anew, or has gone. */
export function forgetContact(tx: Transaction, cluster: string): void {
  tx.remove('contact', cluster)
}

export function isInContact({ connectedSinceMs, lastSeenMs }: ContactRow, nowMs: number): boolean {
  return connectedSinceMs !== undefined && nowMs - lastSeenMs <= CONTACT_COUNTS_MS
}
