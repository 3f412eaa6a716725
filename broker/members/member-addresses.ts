/** Writes members with the addresses that the plan gives them and those they overlap, and the Cluster records. */
import { RefusedError } from '../../protocol/broker-api.ts'
import { admitRecord } from '../admission/admission.ts'
import { allClaims, neededByAll, orderClaims } from '../addresses/address-claims.ts'
import { describeAddresses } from '../addresses/address-notes.ts'
import { NoRoomError, addressOverlaps, planAddresses, withoutRoom } from '../addresses/allocation.ts'
import { writeClusterRecords } from '../records/cluster-records.ts'
import type { Transaction } from '../log/record-log.ts'
import { type WriteContext, admissionContext, memberRecords, removeRecord } from '../records/record-writes.ts'
import type { MemberRow } from '../state/state.ts'

/**
 * Computes everybody's addresses anew: what all need has changed, or where a gateway is called. Refuses nobody. A
 * member for which there is no room stays as it was: the member that needs what its pods hold refuses these pods
 * itself.
 */
export function reviewAddresses(tx: Transaction, context: Omit<WriteContext, 'cluster'>): void {
  const members = new Map(tx.list('member').map(({ key, value }) => [key, value]))
  planMembers(tx, members, { context, spared: () => new Set(members.keys()) })
}

/**
 * Stores the row with what the address plan adds, to it and to those it overlaps, and the Cluster records.
 * Throws RefusedError before anything is written.
 */
export function writeMember(tx: Transaction, row: MemberRow, context: WriteContext): void {
  const before = new Map(tx.list('member').map(({ key, value }) => [key, value]))
  const claimed = orderClaims(before, before.get(context.cluster), row.facts)
  const members = new Map(before).set(context.cluster, { ...row, claimed })
  const spared = (): ReadonlySet<string> =>
    withoutRoom(allClaims(tx, before), allClaims(tx, members), { changed: context.cluster, needed: neededByAll(tx) })
  refusingWithoutRoom(() => planMembers(tx, members, { context, spared }))
  withdrawForeignAddresses(tx, context)
}

interface PlanInit {
  readonly context: Omit<WriteContext, 'cluster'>
  /** Who may stay without room: see planAddresses(). */
  readonly spared: () => ReadonlySet<string>
}

/** Stores these rows, as far as they differ, and the Cluster records. Throws NoRoomError before anything is written. */
function planMembers(tx: Transaction, members: ReadonlyMap<string, MemberRow>, { context, spared }: PlanInit): void {
  const claims = allClaims(tx, members).sort((a, b) => (a.id < b.id ? -1 : 1))
  const needed = neededByAll(tx)
  const overlapping = addressOverlaps(claims, needed)
  const plan = planAddresses(claims, context.rules.globalRange, needed, spared, overlapping)
  for (const [id, member] of members) {
    const added = plan.get(id)
    if (member !== tx.get('member', id) || added !== undefined) tx.put('member', id, { ...member, ...added })
  }
  const shrunk = writeClusterRecords(tx)
  writeNotes(tx, overlapping)
  for (const cluster of shrunk) withdrawForeignAddresses(tx, { ...context, cluster })
}

/** What each member learns about its addresses. `overlapping`: as addressOverlaps() gives it, for who has asked already. */
export function writeNotes(tx: Transaction, overlapping?: ReadonlyMap<string, string>): void {
  for (const [id, notes] of describeAddresses(tx, overlapping)) {
    const row = tx.get('member', id)
    if (row === undefined || areSame(row.notes ?? [], notes)) continue
    tx.put('member', id, { ...row, notes })
  }
}

function areSame(one: readonly string[], other: readonly string[]): boolean {
  return one.length === other.length && one.every((text, i) => text === other[i])
}

/** The pod CIDRs may have shrunk: what was admitted under the old ones must not stay for another's addresses. */
function withdrawForeignAddresses(tx: Transaction, context: WriteContext): void {
  const admission = admissionContext(tx, context)
  for (const { key, row: record } of memberRecords(tx, context.cluster)) {
    if (record.body.kind !== 'EndpointSlice') continue
    const { namespace, name } = key
    if (admitRecord({ namespace, name, body: record.body }, admission) !== undefined) removeRecord(tx, key, context)
  }
}

/** Where there is no room, it is refused. Throws RefusedError. */
export function refusingWithoutRoom<T>(work: () => T): T {
  try {
    return work()
  } catch (error) {
    if (error instanceof NoRoomError)
      throw new RefusedError('GlobalRangeExhausted', error.field, `${error.field}: ${error.message}`)
    throw error
  }
}
