/**
 * Writes member rows with the addresses that the address plan gives to a member and to those that it overlaps, and the
 * Cluster records.
 */
import type { ClusterId } from '../../model/model.ts'
import { RefusedError } from '../../protocol/protocol.ts'
import { type WriteContext, admissionContext, admitRecord, memberRecords, removeRecord } from '../records/records.ts'
import {
  type AddressFindings,
  type Members,
  NoRoomError,
  addressOverlaps,
  allClaims,
  describeAddresses,
  ipv6NotCarried,
  membersOf,
  neededByAll,
  orderClaims,
  planAddresses,
  withoutOldDrain,
  withoutRoom,
  writeClusterRecords,
} from '../addresses/addresses.ts'
import type { MemberRow, Transaction } from '../store/store.ts'

/**
 * Computes the addresses of all members again, after a change of the ranges that all members require or of the
 * addresses of gateways. Refuses no member. A member for which there is no room keeps its addresses: the member whose
 * required ranges overlap those pods refuses them itself. Returns the members that had no global addresses before and
 * have some now.
 */
export function reviewAddresses(tx: Transaction, context: Omit<WriteContext, 'cluster'>): readonly ClusterId[] {
  const members = membersOf(tx)
  return planMembers(tx, members, { before: members, context, spared: () => new Set(members.keys()) })
}

/**
 * Stores the row with the addresses that the plan adds to it and to the members that it overlaps, and the Cluster
 * records. Returns the other members that had no global addresses before and have some now. Throws RefusedError before
 * anything is written.
 */
export function writeMember(tx: Transaction, row: MemberRow, context: WriteContext): readonly ClusterId[] {
  const before = membersOf(tx)
  const claimed = orderClaims(before, before.get(context.cluster), row.facts)
  const members = new Map(before).set(context.cluster, { ...row, claimed })
  const spared = (): ReadonlySet<string> =>
    withoutRoom(allClaims(tx, before), allClaims(tx, members), { changed: context.cluster, needed: neededByAll(tx) })
  const renumbered = refusingWithoutRoom(() => planMembers(tx, members, { before, context, spared }))
  withdrawForeignAddresses(tx, context)
  return renumbered.filter((one) => one !== context.cluster)
}

/**
 * Other members that would get global addresses, or lose their IPv6, because of this row. Sorted. Writes nothing.
 * Throws RefusedError if the row cannot be granted.
 */
export function hitBy(tx: Transaction, row: MemberRow, { cluster, rules }: WriteContext): readonly string[] {
  const before = membersOf(tx)
  const claimed = orderClaims(before, before.get(cluster), row.facts)
  const after = new Map(before).set(cluster, { ...row, claimed })
  const [claims, needed] = [allClaims(tx, after), neededByAll(tx)]
  const spared = (): ReadonlySet<string> => withoutRoom(allClaims(tx, before), claims, { changed: cluster, needed })
  const plan = refusingWithoutRoom(() => planAddresses(claims, rules.globalRange, needed, spared))
  const renumbered = [...plan].flatMap(([id, { translated }]) =>
    translated && before.get(id)?.translated === false ? [id] : [],
  )
  const known = ipv6NotCarried(tx, before)
  const dropped = [...ipv6NotCarried(tx, after).keys()].filter((id) => !known.has(id))
  return [...new Set([...renumbered, ...dropped])].filter((id) => id !== cluster).sort()
}

interface PlanInit {
  /** The rows as stored. */
  readonly before: Members
  readonly context: Omit<WriteContext, 'cluster'>
  /** Members that may stay without room. See planAddresses(). */
  readonly spared: () => ReadonlySet<string>
}

/**
 * Stores those of the rows that differ, and the Cluster records. Returns the members that had no global addresses
 * before and have some now. Throws NoRoomError before anything is written.
 */
function planMembers(tx: Transaction, members: Members, { before, context, spared }: PlanInit): readonly ClusterId[] {
  const claims = allClaims(tx, members).sort((a, b) => (a.id < b.id ? -1 : 1))
  const needed = neededByAll(tx)
  const overlapping = addressOverlaps(claims, needed)
  const plan = planAddresses(claims, context.rules.globalRange, needed, spared, overlapping)
  const now = new Map(members)
  for (const [id, stored] of members) {
    const added = plan.get(id)
    const member = withoutOldDrain(stored)
    if (member === before.get(id) && added === undefined) continue
    const row = { ...member, ...added }
    now.set(id, row)
    tx.put('member', id, row)
  }
  const notCarried = ipv6NotCarried(tx, now)
  const { shrunk, renumbered } = writeClusterRecords(tx, now, notCarried)
  writeNotes(tx, now, { overlapping, notCarried })
  for (const cluster of shrunk) withdrawForeignAddresses(tx, { ...context, cluster })
  return renumbered
}

/** Stores the notes of each member about its addresses. `members` are the rows as stored. */
export function writeNotes(tx: Transaction, members: Members, findings: AddressFindings): void {
  for (const [id, notes] of describeAddresses(members, findings)) {
    const row = members.get(id)
    if (row === undefined || areSame(row.notes ?? [], notes)) continue
    tx.put('member', id, { ...row, notes })
  }
}

function areSame(one: readonly string[], other: readonly string[]): boolean {
  return one.length === other.length && one.every((text, i) => text === other[i])
}

/**
 * Withdraws EndpointSlices whose addresses are outside the pod CIDRs, which may have shrunk: the addresses may belong
 * to another member.
 */
function withdrawForeignAddresses(tx: Transaction, context: WriteContext): void {
  const admission = admissionContext(tx, context)
  for (const { key, row: record } of memberRecords(tx, context.cluster)) {
    if (record.body.kind !== 'EndpointSlice') continue
    const { namespace, name } = key
    if (admitRecord({ namespace, name, body: record.body }, admission) !== undefined) removeRecord(tx, key, context)
  }
}

/** Converts NoRoomError. Throws RefusedError if there is no room. */
export function refusingWithoutRoom<T>(work: () => T): T {
  try {
    return work()
  } catch (error) {
    if (error instanceof NoRoomError)
      throw new RefusedError('GlobalRangeExhausted', error.field, `${error.field}: ${error.message}`)
    throw error
  }
}
