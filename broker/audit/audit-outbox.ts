/**
 * Acts whose lines are not written yet, as rows of the store. Who changes the store puts the line into the same
 * transaction: there is no act without a line, also by a process beside the broker or when the broker is killed. The
 * broker alone writes lines, and takes the rows away afterwards.
 */
import { type AuditInit, type AuditRow, type LogView, type Transaction, auditEvent } from '../store/store.ts'

/**
 * Rows that can wait, while no broker runs or its audit log cannot be written. Keys are used again, since a store
 * remembers each key that was removed.
 */
export const MAX_WAITING = 1000

/** Puts the event where the broker finds it. When there is no room it takes the place of the oldest, which is lost. */
export function keepEvent(tx: Transaction, init: AuditInit, nowMs: number): void {
  const event = auditEvent(init, nowMs)
  const free = freePlace(tx)
  if (free !== undefined) {
    tx.put('audit', free, { event })
    return
  }
  const oldest = oldestPlace(tx)
  if (oldest !== undefined) tx.put('audit', oldest.key, { event, lost: (oldest.row.lost ?? 0) + 1 })
}

/** Mostly the first one after those that are taken, and found at once. */
function freePlace(tx: Transaction): string | undefined {
  const taken = tx.count('audit')
  if (taken >= MAX_WAITING) return undefined
  for (let i = 0; i < MAX_WAITING; i += 1) {
    const key = placeKey((taken + i) % MAX_WAITING)
    if (tx.get('audit', key) === undefined) return key
  }
  return undefined
}

/**
 * Rows of a full store in the order of time, when they were listed last. What came since is younger than all of them,
 * so the first that still is in its place is the oldest, also in a store that others write: to sort a thousand rows for
 * each act would hold up those whose acts they are. Rows whose successors were thrown away stay until the next listing.
 */
const order: { rows: readonly { readonly key: string; readonly id: string }[]; next: number } = { rows: [], next: 0 }

function oldestPlace(tx: Transaction): { readonly key: string; readonly row: AuditRow } | undefined {
  const found = knownOldest(tx)
  if (found !== undefined) return found
  order.rows = waitingEvents(tx).map(({ key, row }) => ({ key, id: row.event.id }))
  order.next = 0
  return knownOldest(tx)
}

function knownOldest(tx: Transaction): { readonly key: string; readonly row: AuditRow } | undefined {
  for (; order.next < order.rows.length; order.next += 1) {
    const { key, id } = order.rows[order.next] ?? { key: '', id: '' }
    const row = tx.get('audit', key)
    if (row?.event.id === id) return { key, row }
  }
  return undefined
}

/** Puts what waits in another store in the place of what waits in this one. */
export function replaceRows(tx: Transaction, rows: readonly AuditRow[]): void {
  for (const { key } of tx.list('audit')) tx.remove('audit', key)
  for (const [place, row] of rows.slice(0, MAX_WAITING).entries()) tx.put('audit', placeKey(place), row)
}

/** By the time of the event. */
export function waitingEvents(view: LogView): { readonly key: string; readonly row: AuditRow }[] {
  const rows = view.list('audit').map(({ key, value }) => ({ key, row: value }))
  return rows.sort((a, b) => (a.row.event.id < b.row.event.id ? -1 : 1))
}

/** Takes away what was written, unless its place holds another event by now. */
export function removeEvents(tx: Transaction, events: readonly { readonly key: string; readonly id: string }[]): void {
  for (const { key, id } of events) if (tx.get('audit', key)?.event.id === id) tx.remove('audit', key)
}

function placeKey(place: number): string {
  return String(place).padStart(4, '0')
}
