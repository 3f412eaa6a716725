/**
 * Acts whose lines are not written yet, as rows of the store. A process that changes the store adds the line in the
 * same transaction. So there is no act without a line, even if a process beside the broker causes it or the broker is
 * killed. Only the broker writes lines, and it removes the rows afterwards.
 */
import { type AuditInit, type AuditRow, type LogView, type Transaction, auditEvent } from '../store/store.ts'

/**
 * Limit of rows that wait while no broker runs or the audit log cannot be written. Keys are reused, since a store keeps
 * a record of each removed key.
 */
export const MAX_WAITING = 1000

/** Stores the event for the broker. If there is no room, it replaces the oldest event, which is lost. */
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

/** Usually the first slot after the taken ones is free, and found at once. */
function freePlace(tx: Transaction): string | undefined {
  const taken = tx.count('audit')
  if (taken >= MAX_WAITING) return undefined
  for (let i = 0; i < MAX_WAITING; i += 1) {
    const key = placeKey((taken + i) % MAX_WAITING)
    if (tx.get('audit', key) === undefined) return key
  }
  return undefined
}

interface Order {
  rows: readonly { readonly key: string; readonly id: string }[]
  next: number
}

/**
 * Rows of each full store in the order of time, as of the last listing. Newer rows are younger than all of them, so the
 * first one that is still in its slot is the oldest, even if other processes write to the store. Sorting a thousand
 * rows for each act would delay the callers. Rows whose replacements were rolled back stay until the next listing.
 */
const orders = new WeakMap<object, Order>()

function oldestPlace(tx: Transaction): { readonly key: string; readonly row: AuditRow } | undefined {
  const known = orders.get(tx.store)
  const found = known === undefined ? undefined : knownOldest(tx, known)
  if (found !== undefined) return found
  const order = { rows: waitingEvents(tx).map(({ key, row }) => ({ key, id: row.event.id })), next: 0 }
  orders.set(tx.store, order)
  return knownOldest(tx, order)
}

function knownOldest(tx: Transaction, order: Order): { readonly key: string; readonly row: AuditRow } | undefined {
  for (; order.next < order.rows.length; order.next += 1) {
    const { key, id } = order.rows[order.next] ?? { key: '', id: '' }
    const row = tx.get('audit', key)
    if (row?.event.id === id) return { key, row }
  }
  return undefined
}

/** Replaces the waiting rows of this store by those of another store. */
export function replaceRows(tx: Transaction, rows: readonly AuditRow[]): void {
  for (const { key } of tx.list('audit')) tx.remove('audit', key)
  for (const [place, row] of rows.slice(0, MAX_WAITING).entries()) tx.put('audit', placeKey(place), row)
}

/** Sorted by the time of the event. */
export function waitingEvents(view: LogView): { readonly key: string; readonly row: AuditRow }[] {
  const rows = view.list('audit').map(({ key, value }) => ({ key, row: value }))
  return rows.sort((a, b) => (a.row.event.id < b.row.event.id ? -1 : 1))
}

/** Removes written events, unless their slots hold other events by now. */
export function removeEvents(tx: Transaction, events: readonly { readonly key: string; readonly id: string }[]): void {
  for (const { key, id } of events) if (tx.get('audit', key)?.event.id === id) tx.remove('audit', key)
}

function placeKey(place: number): string {
  return String(place).padStart(4, '0')
}
