/**
 * After a restore: members say what they hold of the time that is lost. Until they have, or for ten minutes, nobody gets
 * a number that one of them may hold. Runs inside transactions.
 *
 *   restored ──served──► settling ──all have said, or 10 min──► settled
 */
import { RefusedError } from '../../protocol/broker-api.ts'
import type { Clock } from '../../reconcile/clock.ts'
import type { LogView, RecordLog, Transaction } from '../log/record-log.ts'
import { RESTORE_KEY, type RestoreRow, timeText } from '../state/state.ts'
import { MEMBER_VALIDITY_MS } from '../../protocol/identity/certificate-terms.ts'

/** Members call again within seconds; a cluster that is switched off must not keep others from joining. */
const SETTLE_MS = 10 * 60_000

/** The latest restore, while certificates of the time that is lost may be good; undefined: there is none. */
export function recentRestore(view: LogView, nowMs: number): RestoreRow | undefined {
  const row = view.get('restore', RESTORE_KEY)
  return row !== undefined && nowMs < Math.max(row.atMs, row.untilMs ?? 0) + MEMBER_VALIDITY_MS ? row : undefined
}

/** To be called before members are answered. */
export function beginSettling(tx: Transaction, nowMs: number): void {
  const row = tx.get('restore', RESTORE_KEY)
  if (row !== undefined && row.untilMs === undefined)
    tx.put('restore', RESTORE_KEY, { ...row, untilMs: nowMs + SETTLE_MS })
}

/** Whether a member that joined since may still come back, and with it what hangs on it. */
export function isAwaiting(view: LogView): boolean {
  return view.get('restore', RESTORE_KEY) !== undefined && view.count('awaited') > 0
}

/** To be called now and then: once no certificate of the time that is lost is good any more, nobody is asked. */
export function pruneRestore(tx: Transaction, nowMs: number): void {
  if (tx.get('restore', RESTORE_KEY) !== undefined && recentRestore(tx, nowMs) === undefined)
    tx.remove('restore', RESTORE_KEY)
}

/** Whether this member is to be asked what it holds. */
export function asksHeld(view: LogView, cluster: string, nowMs: number): boolean {
  return recentRestore(view, nowMs)?.waiting.includes(cluster) === true
}

/** What the answer to its declaration says of it. */
export function askHeld(
  { log, clock }: { readonly log: RecordLog; readonly clock: Pick<Clock, 'now'> },
  cluster: string,
): { readonly asksHeld?: string } {
  return asksHeld(log, cluster, clock.now()) ? { asksHeld: log.epoch } : {}
}

/** The member has said all that it holds, or is of a release that says nothing. */
export function noteAnswered(tx: Transaction, cluster: string): void {
  const row = tx.get('restore', RESTORE_KEY)
  if (row?.waiting.includes(cluster) === true)
    tx.put('restore', RESTORE_KEY, { ...row, waiting: row.waiting.filter((one) => one !== cluster) })
}

/** A member that was awaited has come: it may hold what others do not. */
export function noteReturned(tx: Transaction, cluster: string): void {
  const row = tx.get('restore', RESTORE_KEY)
  if (row !== undefined && !row.waiting.includes(cluster))
    tx.put('restore', RESTORE_KEY, { ...row, waiting: [...row.waiting, cluster] })
}

/** What was given away since is known, as far as anybody says. */
export function isSettled(row: RestoreRow | undefined, nowMs: number): boolean {
  return row?.untilMs === undefined || row.waiting.length === 0 || nowMs >= row.untilMs
}

/** Throws RefusedError while a new number could be one that is in use. */
export function checkSettled(view: LogView, nowMs: number): void {
  const row = view.get('restore', RESTORE_KEY)
  if (row?.untilMs === undefined || isSettled(row, nowMs)) return
  const some = row.waiting.slice(0, 5).join(', ')
  const more = row.waiting.length > 5 ? ` and ${row.waiting.length - 5} more` : ''
  throw new RefusedError(
    'RestoreSettling',
    'cluster',
    `cluster: the broker was restored from a backup of ${timeText(row.takenAtMs)}, and ${some}${more} have not said yet ` +
      `what was given away since: try again when they are in contact, or after ${timeText(row.untilMs)}`,
  )
}
