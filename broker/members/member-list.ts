/** Members as an operator sees them: the list, their contact, eviction and rekeying. */
import { DEFAULT_MEMBER_QUOTA, type QuotaField, parseClusterId } from '../../model/model.ts'
import type { DrainInit, EvictInit, Eviction, MemberState, MemberSummary } from '../../protocol/admin/admin.ts'
import { RefusedError } from '../../protocol/protocol.ts'
import { type WriteContext, quotaAndUse, quote, statusOf } from '../records/records.ts'
import {
  clashText,
  clusterSpec,
  drainFields,
  globalCIDRs,
  ipv6NotCarried,
  membersOf,
  serviceClashes,
  writeClusterRecords,
} from '../addresses/addresses.ts'
import { contactOf, isInContact } from './contact.ts'
import { type LogView, type MemberRow, type Transaction, isLive, timeText } from '../store/store.ts'
import { departMember } from './membership.ts'
import type { RefusalReason } from '../../model/reasons/reasons.ts'

/** Ids that a refusal names. */
const MAX_NAMED = 20

/** Sorted by id. Includes members that have left or were evicted, as long as they are stored. */
export function memberSummaries(view: LogView, nowMs: number): MemberSummary[] {
  const members = view.list('member')
  const clashes = serviceClashes(members.map(({ key, value }) => [key, value]))
  return members.map(({ key, value }) => {
    const own = clashes.filter(({ cluster }) => cluster === key).map(clashText)
    const { joinedAtMs, facts, translated, blocks, rekeyedAtMs, misuse, forkedAtMs } = value
    const { lastSeenMs } = contactOf(view, key, value)
    const identity = {
      ...(rekeyedAtMs === undefined ? {} : { rekeyedAtMs }),
      ...(misuse === undefined ? {} : { misuse }),
      ...(forkedAtMs === undefined ? {} : { forkedAtMs }),
      ...(own.length === 0 ? {} : { clashes: own }),
    }
    const { limit, used } = quotaAndUse(view, key, DEFAULT_MEMBER_QUOTA)
    const quota = { limit, used, own: Object.keys(value.quota ?? {}) as QuotaField[] }
    // A departed member has no Cluster record.
    const podCIDRs = clusterSpec(view, key)?.podCIDRs ?? facts.podCIDRs
    const addresses = {
      podCIDRs: facts.podCIDRs,
      notCarried: facts.podCIDRs.filter((cidr) => !podCIDRs.includes(cidr)),
      globalCIDRs: globalCIDRs({ podCIDRs, translated, blocks }),
      notes: isLive(value) ? (value.notes ?? []) : [],
      ...(Object.keys(facts.labels).length === 0 ? {} : { labels: facts.labels }),
    }
    const { records } = used
    const contact = { ...validity(view, key, value, nowMs), ...identity, joinedAtMs, lastSeenMs }
    const { report: reported, openConnections } = statusOf(view, key) ?? {}
    const report = {
      ...(openConnections === undefined ? {} : { openConnections }),
      ...(reported === undefined ? {} : { reported }),
    }
    const drain = isLive(value) ? drainFields(value) : {}
    return { id: key, ...contact, ...drain, records, quota, ...addresses, ...report }
  })
}

/**
 * Evicts a member. Throws RefusedError (FailedPrecondition) if there is no such member, or if it is in contact and
 * `force` is not set. Throws InvalidNameError if the id is invalid.
 */
export function evictMember(
  tx: Transaction,
  { cluster, force }: EvictInit,
  { rules, nowMs }: Omit<WriteContext, 'cluster'>,
): Eviction {
  const id = parseClusterId(cluster, 'cluster')
  const row = tx.get('member', id)
  if (row?.departure === 'evicted' && row.departedAtMs !== undefined) {
    return { id, evictedAtMs: row.departedAtMs, repeated: true }
  }
  if (!isLive(row))
    throw refuse('MemberUnknown', `cluster ${quote(id)} is not a member${howItLeft(row)}; ${membersText(tx)}`)
  const { state, sinceMs } = validity(tx, id, row, nowMs)
  if (state === 'in contact' && !force) {
    throw refuse(
      'MemberInContact',
      `cluster ${quote(id)} has been in contact with this broker since ${timeText(sinceMs)}: ` +
        'run "sealane leave" there, or evict it anyway with --force',
    )
  }
  departMember(tx, 'evicted', { cluster: id, rules, nowMs })
  return { id, evictedAtMs: nowMs, repeated: false }
}

/**
 * Says to all members that this one is drained, or is no longer. Returns false if it was so before. Throws RefusedError
 * (FailedPrecondition) if there is no such member, InvalidNameError if the id is invalid.
 */
export function drainMember(tx: Transaction, { cluster, drained, now = false }: DrainInit): boolean {
  const id = parseClusterId(cluster, 'cluster')
  const row = tx.get('member', id)
  if (!isLive(row))
    throw refuse('MemberUnknown', `cluster ${quote(id)} is not a member${howItLeft(row)}; ${membersText(tx)}`)
  const wanted = drainFields(drained ? { drained, ...(now ? { drainedNow: true } : {}) } : {})
  if (row.drained === wanted.drained && row.drainedNow === wanted.drainedNow) return false
  const { drained: _before, drainedNow: _how, ...rest } = row
  tx.put('member', id, { ...rest, ...wanted })
  const members = membersOf(tx)
  writeClusterRecords(tx, members, ipv6NotCarried(tx, members))
  return true
}

/**
 * Refuses every certificate of a member from now on, its own as well as copies, until it joins with a token made for
 * its id. Its records, index and addresses stay. Throws RefusedError (FailedPrecondition) if there is no such member,
 * InvalidNameError if the id is invalid.
 */
export function rekeyMember(tx: Transaction, cluster: string, nowMs: number): void {
  const id = parseClusterId(cluster, 'cluster')
  const row = tx.get('member', id)
  if (!isLive(row))
    throw refuse('MemberUnknown', `cluster ${quote(id)} is not a member${howItLeft(row)}; ${membersText(tx)}`)
  // Also removes the fields by which certificates of a backup or of the first join would still be accepted.
  const { restored: _lost, superseded: _before, joinKeyHash: _first, forkedAtMs: _two, ...rest } = row
  tx.put('member', id, { ...rest, certificates: [], rekeyedAtMs: nowMs })
}

/** Stores whether the member renews its certificate as soon as its watch reports another authority. */
export function noteFollows(tx: Transaction, cluster: string, follows: boolean): void {
  const row = tx.get('member', cluster)
  if (!isLive(row)) return
  const { followsAuthorities: _before, ...rest } = row
  tx.put('member', cluster, follows ? { ...rest, followsAuthorities: true } : rest)
}

function validity(
  view: LogView,
  cluster: string,
  row: MemberRow,
  nowMs: number,
): { readonly state: MemberState; readonly sinceMs: number } {
  if (row.departedAtMs !== undefined) return { state: row.departure ?? 'left', sinceMs: row.departedAtMs }
  const contact = contactOf(view, cluster, row)
  const { lastSeenMs, connectedSinceMs } = contact
  if (isInContact(contact, nowMs)) return { state: 'in contact', sinceMs: connectedSinceMs ?? lastSeenMs }
  return { state: 'silent', sinceMs: lastSeenMs }
}

function howItLeft(row: MemberRow | undefined): string {
  return row?.departedAtMs === undefined ? '' : `: it left at ${timeText(row.departedAtMs)}`
}

function membersText(view: LogView): string {
  const ids = view.list('member').flatMap(({ key, value }) => (isLive(value) ? [key] : []))
  if (ids.length === 0) return 'the clusterset has no members'
  const more = ids.length > MAX_NAMED ? ` and ${ids.length - MAX_NAMED} more` : ''
  return `the members are ${ids.slice(0, MAX_NAMED).join(', ')}${more}`
}

function refuse(reason: RefusalReason, message: string): RefusedError {
  return new RefusedError(reason, 'cluster', message)
}
