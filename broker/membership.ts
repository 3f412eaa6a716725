/**
 * Who belongs to the clusterset: joining, renewing, changing facts, leaving, eviction. Each function decides and
 * writes inside one transaction.
 */
import type { ClusterId } from '../model/ids.ts'
import type { ClusterSpec } from '../model/objects.ts'
import { type ClusterFacts, type Peer, RefusedError } from '../protocol/broker-api.ts'
import { canonicalJson } from '../protocol/content-hash.ts'
import { quote } from './admission-checks.ts'
import { admitRecord } from './admission.ts'
import { NoRoomError, nextIndex, planAddresses } from './allocation.ts'
import { clusterSpec, removeClusterRecord, statesIpv6, writeClusterRecords } from './cluster-records.ts'
import type { LogView, Transaction } from './log/record-log.ts'
import { type WriteContext, admissionContext, memberRecords, removeRecord } from './record-writes.ts'
import { type IssuedCertificate, type MemberRow, isLive } from './state.ts'
import { removeStatusRecord } from './status-records.ts'
import { timeText } from './tokens.ts'

/** A member may hold this many valid certificates at a time: those of renewals whose answer was lost count too. */
const MAX_CERTIFICATES = 8

/**
 * The row of the peer. Throws RefusedError (PermissionDenied, Unauthenticated) unless the peer is a member now and
 * shows a certificate of its present membership.
 */
export function requireMember(view: LogView, peer: Peer, nowMs: number): MemberRow {
  const row = view.get('member', peer.cluster)
  const name = quote(peer.cluster)
  if (row === undefined) throw denied(`cluster ${name} is not a member of this clusterset: join with a token`)
  if (row.departedAtMs !== undefined) {
    const at = timeText(row.departedAtMs)
    if (row.departure !== 'evicted') throw denied(`cluster ${name} left at ${at}: join again with a new token`)
    throw denied(`cluster ${name} was evicted at ${at}: it can join again, with a new token`)
  }
  const serial = normalSerial(peer.serial)
  const certificate = row.certificates.find((one) => one.serial === serial)
  if (certificate === undefined) {
    if (isOfLostTime(row, peer)) return row
    throw denied(
      `certificate ${serial} of cluster ${name} has been replaced: another site has joined as ${name}, or this one has joined again`,
    )
  }
  if (certificate.expiresAtMs <= nowMs) {
    throw new RefusedError(
      'Unauthenticated',
      'certificate',
      `certificate ${serial} of cluster ${name} expired at ${timeText(certificate.expiresAtMs)}: join again with a new token`,
    )
  }
  return row
}

/**
 * Whether the certificate that this peer showed belongs to the membership as it is now, ended or not. What an evicted
 * or succeeded member has left open is not its successor's.
 */
export function isOfMembership(view: LogView, peer: Pick<Peer, 'cluster' | 'serial' | 'issuedAtMs'>): boolean {
  const row = view.get('member', peer.cluster)
  if (!isLive(row)) return false
  return row.certificates.some((one) => one.serial === normalSerial(peer.serial)) || isOfLostTime(row, peer)
}

/**
 * A certificate that our CA gave to this member between a backup and its restore: the broker that gave it listed it, in
 * rows that are lost. Members renew their certificates each day; without this a backup of yesterday would know nobody.
 */
function isOfLostTime({ restored }: MemberRow, { issuedAtMs }: Pick<Peer, 'issuedAtMs'>): boolean {
  if (restored === undefined || issuedAtMs === undefined) return false
  // Certificates are dated in whole seconds.
  const fromMs = Math.floor(restored.takenAtMs / 1000) * 1000
  return issuedAtMs >= fromMs && issuedAtMs <= restored.atMs
}

/**
 * Whether the CA has given this peer a certificate that these rows do not know of and cannot have forgotten: then they
 * are older than it, or of another time.
 */
export function isUnknownHere(view: LogView, peer: Peer): boolean {
  const row = view.get('member', peer.cluster)
  if (row === undefined) return true
  if (peer.issuedAtMs === undefined || isOfMembership(view, peer)) return false
  // Who gives a certificate notes that the member was seen; certificates are dated in whole seconds.
  return peer.issuedAtMs > Math.max(row.lastSeenMs, row.departedAtMs ?? 0) + 1000
}

/** Serial numbers come from several libraries: upper or lower case, with or without leading zeros. */
export function normalSerial(hex: string): string {
  return hex.toLowerCase().replace(/^0+(?=.)/, '')
}

export interface JoinDecision {
  readonly cluster: ClusterId
  readonly facts: ClusterFacts
  readonly certificate: IssuedCertificate
  /** SHA-256 of the certificate's public key, hex. */
  readonly keyHash: string
  /** The token was made for this very cluster id, or this request repeats one that was granted. */
  readonly entitled: boolean
  /** The member has streams open at this moment. */
  readonly connected: boolean
  readonly membersLimit: number
}

/** Writes the membership and gives what the others know the member as. Throws RefusedError. */
export function joinMember(tx: Transaction, join: JoinDecision, context: WriteContext): ClusterSpec {
  const { cluster, facts, certificate, keyHash } = join
  const old = tx.get('member', cluster)
  if (isLive(old)) checkTakeover(cluster, old, join, context.nowMs)
  else checkMembers(tx, join.membersLimit)
  const row: MemberRow = {
    index: old?.index ?? newIndex(tx),
    facts,
    translated: old?.translated ?? false,
    blocks: old?.blocks ?? {},
    joinedAtMs: context.nowMs,
    joinKeyHash: keyHash,
    lastSeenMs: context.nowMs,
    certificates: [certificate],
    complete: isLive(old) && old.complete,
  }
  writeMember(tx, row, context)
  const spec = clusterSpec(tx, cluster)
  if (spec === undefined) throw new Error(`no Cluster record of member ${cluster}`)
  return spec
}

/** Takes new facts of a member: addresses may be added, and its records are judged anew. Throws RefusedError. */
export function changeFacts(tx: Transaction, facts: ClusterFacts, context: WriteContext): void {
  const row = tx.get('member', context.cluster)
  if (!isLive(row) || canonicalJson(row.facts) === canonicalJson(facts)) return
  writeMember(tx, { ...row, facts }, context)
}

/** Adds a certificate to those that the member may show. */
export function addCertificate(
  tx: Transaction,
  cluster: ClusterId,
  certificate: IssuedCertificate,
  nowMs: number,
): void {
  const row = tx.get('member', cluster)
  if (!isLive(row)) return
  const valid = row.certificates.filter((one) => one.expiresAtMs > nowMs)
  tx.put('member', cluster, {
    ...row,
    certificates: [...valid, certificate].slice(-MAX_CERTIFICATES),
    lastSeenMs: nowMs,
  })
}

/** Ends a membership and withdraws all its records. Index and blocks are kept for its return. */
export function departMember(tx: Transaction, how: 'left' | 'evicted', context: WriteContext): void {
  const row = tx.get('member', context.cluster)
  if (!isLive(row)) return
  for (const { key } of memberRecords(tx, context.cluster)) removeRecord(tx, key, context)
  removeClusterRecord(tx, context.cluster)
  removeStatusRecord(tx, context.cluster)
  const { connectedSinceMs: _over, ...rest } = row
  tx.put('member', context.cluster, {
    ...rest,
    certificates: [],
    complete: false,
    departedAtMs: context.nowMs,
    departure: how,
  })
  // Somebody's IPv6 may have stood back for its own.
  if (statesIpv6(row.facts)) writeClusterRecords(tx)
}

/** Who has left is remembered for its return, and told to watchers, but not without end. */
const KEEP_DEPARTED_MS = 90 * 24 * 3_600_000
const MAX_DEPARTED = 5000

export function pruneDeparted(tx: Transaction, nowMs: number): void {
  const departed = tx.list('member').flatMap(({ key, value }) => {
    return value.departedAtMs === undefined ? [] : [{ key, atMs: value.departedAtMs }]
  })
  departed.sort((a, b) => b.atMs - a.atMs)
  for (const [i, { key, atMs }] of departed.entries()) {
    if (i >= MAX_DEPARTED || atMs < nowMs - KEEP_DEPARTED_MS) tx.remove('member', key)
  }
}

/** Owners whose absent records are really gone, for the `synced` message. */
export function completeness(view: LogView): { readonly complete: string[]; readonly departed: string[] } {
  const members = view.list('member')
  const live = members.filter(({ value }) => isLive(value))
  const complete = live.filter(({ value }) => value.complete).map(({ key }) => key)
  // The broker's own records follow from those of the members.
  if (live.every(({ value }) => value.complete)) complete.unshift('')
  return { complete, departed: members.filter(({ value }) => !isLive(value)).map(({ key }) => key) }
}

function checkTakeover(cluster: ClusterId, old: MemberRow, join: JoinDecision, nowMs: number): void {
  const expired = old.certificates.every((one) => one.expiresAtMs <= nowMs)
  if (join.entitled || (expired && !join.connected)) return
  const name = quote(cluster)
  throw new RefusedError(
    'AlreadyExists',
    'cluster',
    `cluster: ${name} is a member already (joined ${timeText(old.joinedAtMs)}, last seen ${timeText(old.lastSeenMs)}): ` +
      `choose another cluster id; or, if this is the same cluster, run "sealane leave" there first ` +
      `or join with a token made for it: "sealane token create --cluster-id ${cluster}"`,
  )
}

function checkMembers(tx: Transaction, limit: number): void {
  const live = tx.list('member').filter(({ value }) => isLive(value)).length
  if (live < limit) return
  throw new RefusedError(
    'ResourceExhausted',
    'cluster',
    `cluster: the clusterset has ${live} members already, which is the limit`,
  )
}

function newIndex(tx: Transaction): number {
  return refusing(() => nextIndex(tx.list('member').map(({ value }) => value.index)))
}

/**
 * Stores the row with what the address plan adds, to it and to those it overlaps, and the Cluster records.
 * Throws RefusedError before anything is written.
 */
function writeMember(tx: Transaction, row: MemberRow, context: WriteContext): void {
  const members = new Map(tx.list('member').map(({ key, value }) => [key, value])).set(context.cluster, row)
  const claims = [...members].map(([id, member]) => ({
    id,
    podCIDRs: member.facts.podCIDRs,
    serviceCIDRs: member.facts.serviceCIDRs,
    translated: member.translated,
    blocks: member.blocks,
    departed: !isLive(member),
  }))
  const plan = refusing(() => planAddresses(claims, context.rules.globalRange))
  for (const [id, member] of members) {
    const added = plan.get(id)
    if (id === context.cluster || added !== undefined) tx.put('member', id, { ...member, ...added })
  }
  const shrunk = writeClusterRecords(tx)
  for (const cluster of new Set([context.cluster, ...shrunk])) withdrawForeignAddresses(tx, { ...context, cluster })
}

/** The pod CIDRs may have shrunk: what was admitted under the old ones must not stand for another's addresses. */
function withdrawForeignAddresses(tx: Transaction, context: WriteContext): void {
  const admission = admissionContext(tx, context)
  for (const { key, row: record } of memberRecords(tx, context.cluster)) {
    if (record.body.kind !== 'EndpointSlice') continue
    const { namespace, name } = key
    if (admitRecord({ namespace, name, body: record.body }, admission) !== undefined) removeRecord(tx, key, context)
  }
}

function refusing<T>(work: () => T): T {
  try {
    return work()
  } catch (error) {
    if (error instanceof NoRoomError)
      throw new RefusedError('ResourceExhausted', error.field, `${error.field}: ${error.message}`)
    throw error
  }
}

function denied(message: string): RefusedError {
  return new RefusedError('PermissionDenied', 'certificate', message)
}
