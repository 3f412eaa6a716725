/**
 * A state that is of an earlier time than what members have seen: it was put back from a backup or a snapshot, or an
 * operator has accepted it as it is. Members are asked what they hold, before anything of it is taken as gone. Runs
 * inside a transaction.
 */
import { contactOf } from '../contact/contact-rows.ts'
import type { Transaction } from '../log/record-log.ts'
import { MIGRATION_KEY, RESTORE_KEY, isLive } from '../state/state.ts'

/** What such a state says of its own time and is no longer so. Gives the ids of members. */
export function beginAnew(tx: Transaction, takenAtMs: number, nowMs: number): readonly string[] {
  // Some were used since, and nobody here knows which.
  for (const { key, value } of tx.list('token')) {
    if (value.usesLeft > 0 && value.revokedAtMs === undefined) tx.put('token', key, { ...value, revokedAtMs: nowMs })
  }
  const members = tx.list('member').filter(({ value }) => isLive(value))
  for (const { key, value } of members) {
    const { connectedSinceMs: _over, ...row } = value
    tx.put('contact', key, { lastSeenMs: contactOf(tx, key, value).lastSeenMs })
    // What a member published since is not in here: it says what it has, before anything of it is taken as gone.
    tx.put('member', key, { ...row, complete: false, restored: { takenAtMs, atMs: nowMs } })
  }
  tx.put('restore', RESTORE_KEY, { takenAtMs, atMs: nowMs, waiting: members.map(({ key }) => key) })
  // It may be of a store that was on its way to another one then.
  tx.remove('migration', MIGRATION_KEY)
  return members.map(({ key }) => key)
}
