/**
 * An operator has accepted a state that is older than what was given away (`--accept-empty`): a copy of the database, or
 * an etcd that was put back from a snapshot. Its revisions would be given out a second time, for other changes; members
 * that have seen them would take what they have for the latest. So revisions are of a new epoch from here on.
 */
import { randomUUID } from 'node:crypto'
import type { AuditActor } from '../audit/audit-event.ts'
import { keepEvent } from '../audit/audit-outbox.ts'
import type { LogView, RecordLog } from '../log/record-log.ts'
import { SETTINGS_KEY } from '../state/state.ts'
import { beginAnew } from './begin-anew.ts'

const BROKER: AuditActor = { kind: 'broker' }

/**
 * `acceptedAtMs`: when the operator said so. Brokers of one store do it once for all of them. Gives the members that are
 * asked; undefined: it was done, or there is nothing that could be older. Throws StateError.
 */
export async function acceptOlder(
  log: RecordLog,
  acceptedAtMs: number,
  nowMs: number,
): Promise<readonly string[] | undefined> {
  const timeline = randomUUID()
  return log.transact((tx) => {
    const settings = tx.get('settings', SETTINGS_KEY)
    if (settings === undefined || (settings.timeline?.acceptedAtMs ?? -Infinity) >= acceptedAtMs) return undefined
    const takenAtMs = latestTime(tx)
    const members = beginAnew(tx, takenAtMs, nowMs)
    tx.put('settings', SETTINGS_KEY, { ...settings, timeline: { id: timeline, acceptedAtMs } })
    const details = { step: 'accepted', takenAt: new Date(takenAtMs).toISOString(), members: members.length }
    keepEvent(tx, { act: 'broker.restore', result: 'ok', who: BROKER, details }, nowMs)
    return members
  })
}

/** The state is of this time or a later one. Contact is noted once a minute. */
function latestTime(view: LogView): number {
  const times = [
    ...view.list('contact').map(({ value }) => value.lastSeenMs),
    ...view.list('member').map(({ value }) => Math.max(value.lastSeenMs, value.joinedAtMs)),
    ...view.list('token').map(({ value }) => value.createdAtMs),
  ]
  return times.reduce((latest, one) => Math.max(latest, one), 0)
}
