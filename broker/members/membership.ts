/**
 * Membership in the clusterset: joining, changed facts, leaving, eviction. Each function decides and writes inside one
 * transaction. identity/certificate-use.ts decides which certificates may act for a member.
 */
import { MOST_MEMBERS } from '../../model/addresses/addresses.ts'
import { type ClusterId, type ClusterSpec, RESERVED_ID_PROBLEM, isReservedId } from '../../model/model.ts'
import { type ClusterFacts, type Peer, RefusedError, type Renumbered } from '../../protocol/protocol.ts'
import { canonicalJson } from '../../protocol/codec/codec.ts'
import { MEMBER_VALIDITY_MS } from '../../protocol/identity/identity.ts'
import {
  awaitedIndexes,
  clusterSpec,
  drainFields,
  ipv6NotCarried,
  isAskedAbout,
  membersOf,
  nextIndex,
  overlapsOf,
  rangesOf,
  removeClusterRecord,
  statesIpv6,
  widened,
  withRanges,
  writeClusterRecords,
} from '../addresses/addresses.ts'
import {
  type WriteContext,
  admitSpace,
  forgetPublicKeys,
  memberRecords,
  publicCIDRs,
  quote,
  refusedFacts,
  removeRecord,
  removeStatusRecord,
  statusOf,
} from '../records/records.ts'
import {
  type ChangedRanges,
  type HandedOut,
  type IssuedCertificate,
  type LogView,
  type MemberRow,
  type RecordLog,
  type Transaction,
  isLive,
  timeText,
} from '../store/store.ts'
import { contactOf, forgetContact } from './contact.ts'
import { refusingWithoutRoom, writeMember, writeNotes } from './member-addresses.ts'
import { awaitedMember } from './returning-members.ts'
import { checkSettled, isAwaiting } from './settling.ts'
import { labelsWith, labelsWithout } from './token-labels.ts'

/** Throws RefusedError for a reserved id, unless a live member already has it. */
export function checkNewId(view: LogView, id: ClusterId): void {
  if (!isReservedId(id) || isLive(view.get('member', id))) return
  throw new RefusedError('ClusterIdReserved', 'cluster', `cluster: ${quote(id)} ${RESERVED_ID_PROBLEM}`)
}

export interface JoinDecision {
  readonly cluster: ClusterId
  readonly facts: ClusterFacts
  /** Public ranges that the token allows the member to state, as CIDRs. */
  readonly allowedCIDRs: readonly string[]
  /** Labels that the token states. Undefined: those of its earlier token stay, if this is the same member. */
  readonly tokenLabels?: Readonly<Record<string, string>> | undefined
  readonly certificate: IssuedCertificate
  /** The certificate and the authorities that are sent with it. */
  readonly handedOut: HandedOut
  /** SHA-256 of the certificate's public key, hex. */
  readonly keyHash: string
  /** Whether the token was made for this cluster id, or the request repeats a granted one. */
  readonly entitled: boolean
  /** Whether the member has streams open now. */
  readonly connected: boolean
  readonly membersLimit: number
  /** How long after their end certificates can be renewed. The id belongs to their member until then. */
  readonly renewalGraceMs: number
  /** Whether an operator has accepted exactly these facts. */
  readonly accepted?: boolean
  /** Whether the token requires that an operator approves each join with it. */
  readonly approve?: boolean
}

export interface JoinOutcome {
  /** The spec of the member as other members get it. */
  readonly spec: ClusterSpec
  /** Members that were reached by their own addresses before and have global ones from now on. Sorted by id. */
  readonly renumbered: readonly Renumbered[]
}

/** Writes the membership. Throws RefusedError. */
export function joinMember(tx: Transaction, join: JoinDecision, context: WriteContext): JoinOutcome {
  const { cluster, certificate, handedOut, keyHash, allowedCIDRs } = join
  const old = tx.get('member', cluster)
  const tokenLabels = join.tokenLabels ?? keptTokenLabels(old, join)
  const stated = { ...join.facts, labels: labelsWith(join.facts.labels, tokenLabels) }
  const facts = withTokenLabels(acceptedFacts({ ...join, facts: stated }, old, context), tokenLabels)
  refuseSpace(facts, allowedCIDRs)
  if (isLive(old)) checkTakeover(tx, old, join, context.nowMs)
  else checkMembers(tx, join.membersLimit)
  const given = old ?? awaitedMember(tx, context)
  if (given === undefined) checkSettled(tx, context.nowMs)
  tx.remove('awaited', cluster)
  const same = isSameBearer(old, keyHash) ? old : undefined
  const row: MemberRow = {
    index: given?.index ?? newIndex(tx),
    facts,
    allowedCIDRs,
    ...(tokenLabels === undefined ? {} : { tokenLabels }),
    translated: given?.translated ?? false,
    blocks: given?.blocks ?? {},
    joinedAtMs: context.nowMs,
    joinKeyHash: keyHash,
    lastSeenMs: context.nowMs,
    certificates: [...certificatesOf(same), certificate],
    handedOut,
    complete: isLive(old) && old.complete,
    ...(same?.superseded === undefined ? {} : { superseded: same.superseded }),
    ...(same?.forkedAtMs === undefined ? {} : { forkedAtMs: same.forkedAtMs }),
    ...(old?.quota === undefined ? {} : { quota: old.quota }),
    ...(old === undefined ? {} : drainFields(old)),
    // Ranges that wait, and the answer of the operator, outlast a join that no operator approved.
    ...(isLive(old) && old.changed !== undefined && join.accepted !== true ? { changed: old.changed } : {}),
    ...(join.approve === true || (isLive(old) && old.approve === true) ? { approve: true } : {}),
  }
  forgetContact(tx, cluster)
  const renumbered = writeMember(tx, row, context)
  const spec = clusterSpec(tx, cluster)
  if (spec === undefined) throw new Error(`no Cluster record of member ${cluster}`)
  return { spec, renumbered: describeRenumbered(tx, renumbered) }
}

/**
 * The labels of the earlier token, if the join is of the member that they were stated for. With a token for any
 * cluster, another one may take the id of a member whose certificates have ended, and nothing is vouched for it.
 */
function keptTokenLabels(old: MemberRow | undefined, { entitled, keyHash }: JoinDecision): MemberRow['tokenLabels'] {
  return isLive(old) && (entitled || isSameBearer(old, keyHash)) ? old.tokenLabels : undefined
}

/**
 * The facts that take effect. A live member that joins again without a new approval keeps the ranges and labels that
 * were accepted. Others that it states wait for approval once it publishes. What its join does not state, and an agent
 * does, stays as it was last stated.
 */
function acceptedFacts(
  { facts: stated, accepted }: JoinDecision,
  old: MemberRow | undefined,
  { rules }: WriteContext,
): ClusterFacts {
  if (!isLive(old)) return stated
  // A join does not read these. The agent states them once it has read its cluster.
  const { neededCIDRs = old.facts.neededCIDRs, properties = old.facts.properties } = stated
  const facts = {
    ...stated,
    ...(neededCIDRs === undefined ? {} : { neededCIDRs }),
    ...(properties === undefined ? {} : { properties }),
  }
  if (accepted === true || !isAskedAbout(old, rules)) return facts
  // Labels of tokens are not the member's word. joinMember() adds those that count now.
  const labels = labelsWithout(old.facts.labels, old.tokenLabels)
  return { ...(widened(facts, old.facts).length === 0 ? facts : withRanges(facts, rangesOf(old.facts))), labels }
}

function withTokenLabels(facts: ClusterFacts, tokenLabels: MemberRow['tokenLabels']): ClusterFacts {
  return { ...facts, labels: labelsWith(facts.labels, tokenLabels) }
}

/** Limit of certificates per key: repetitions of a request that may be in progress at once. */
const MAX_REPEATED = 8

/**
 * Whether the request comes from the holder of the current membership's key. If the response to a request is late, the
 * member repeats the request, possibly to another replica, and the first one may be written after the second. The
 * member may have got the certificate of either, so both are kept until one is used.
 */
function isSameBearer(old: MemberRow | undefined, keyHash: string): boolean {
  return isLive(old) && old.rekeyedAtMs === undefined && old.joinKeyHash === keyHash
}

/** Keeps the certificate in use, whatever was issued after it. */
function certificatesOf(same: MemberRow | undefined): readonly IssuedCertificate[] {
  const [inUse, ...later] = same?.certificates ?? []
  return inUse === undefined ? [] : [inUse, ...later.slice(-(MAX_REPEATED - 2))]
}

/** Returns the outcome of a join without writing it: the transaction is rolled back. */
export async function lookAtJoin(log: RecordLog, look: (tx: Transaction) => JoinOutcome): Promise<JoinOutcome> {
  try {
    await log.transact((tx) => {
      throw new OnlyLooked(look(tx))
    })
  } catch (error) {
    if (error instanceof OnlyLooked) return error.outcome
    throw error
  }
  throw new Error('the preview of a join was not rolled back')
}

/** Thrown to roll the transaction back. */
class OnlyLooked extends Error {
  readonly outcome: JoinOutcome
  constructor(outcome: JoinOutcome) {
    super('preview of a join')
    this.outcome = outcome
  }
}

/**
 * Takes new facts of a member: addresses may be added, and its records are validated again. `ranges` are stored as
 * waiting. Returns whether the facts have changed, and the other members that have global addresses from now on. Throws
 * RefusedError.
 */
export function changeFacts(
  tx: Transaction,
  stated: ClusterFacts,
  context: WriteContext,
  ranges?: ChangedRanges,
): { readonly changed: boolean; readonly renumbered: readonly ClusterId[] } {
  const row = tx.get('member', context.cluster)
  if (!isLive(row)) return { changed: false, renumbered: [] }
  const facts = withTokenLabels(stated, row.tokenLabels)
  const { changed: before, ...rest } = row
  const changed = canonicalJson(row.facts) !== canonicalJson(facts)
  if (!changed && before === ranges) return { changed: false, renumbered: [] }
  if (ranges !== undefined) refuseSpace(withRanges(facts, ranges), allowedOf(row))
  refuseSpace(facts, allowedOf(row))
  const waits = ranges === undefined ? {} : { changed: ranges }
  return { changed, renumbered: writeMember(tx, { ...rest, ...waits, facts }, context) }
}

/**
 * Members of an earlier release keep the public ranges that they state. Returns the ranges that are stored as allowed
 * for the first time.
 */
export function keepEarlierSpace(tx: Transaction): { readonly cluster: string; readonly cidrs: readonly string[] }[] {
  return tx.list('member').flatMap(({ key, value }) => {
    if (!isLive(value) || value.allowedCIDRs !== undefined) return []
    const cidrs = allowedOf(value)
    tx.put('member', key, { ...value, allowedCIDRs: cidrs, ...(cidrs.length === 0 ? {} : { keptCIDRs: cidrs }) })
    return cidrs.length === 0 ? [] : [{ cluster: key, cidrs }]
  })
}

/** A row of an earlier release does not name allowed ranges: the public ranges that it states count as allowed. */
function allowedOf({ allowedCIDRs, facts }: MemberRow): readonly string[] {
  return allowedCIDRs ?? publicCIDRs(facts, []).map(({ text }) => text)
}

function refuseSpace(facts: ClusterFacts, allowed: readonly string[]): void {
  const refused = admitSpace(facts, allowed)
  if (refused === undefined) return
  throw refusedFacts(refused)
}

/** Stores that a certificate was issued and what was sent with it: until it ends, no other cluster can take the id. */
export function noteIssued(tx: Transaction, cluster: ClusterId, handedOut: HandedOut, nowMs: number): void {
  const row = tx.get('member', cluster)
  if (!isLive(row)) return
  const issuedUntilMs = Math.max(row.issuedUntilMs ?? 0, handedOut.expiresAtMs)
  tx.put('member', cluster, { ...row, handedOut, issuedUntilMs, lastSeenMs: nowMs })
}

/** Ends a membership and withdraws all its records. Index and blocks are kept in case the member returns. */
export function departMember(tx: Transaction, how: 'left' | 'evicted', context: WriteContext): void {
  const row = tx.get('member', context.cluster)
  if (!isLive(row)) return
  for (const { key } of memberRecords(tx, context.cluster)) removeRecord(tx, key, context)
  removeClusterRecord(tx, context.cluster)
  removeStatusRecord(tx, context.cluster)
  const { connectedSinceMs: _over, rekeyedAtMs: _asked, changed: _waiting, tokenLabels: _vouched, ...rest } = row
  tx.put('member', context.cluster, {
    ...rest,
    lastSeenMs: contactOf(tx, context.cluster, row).lastSeenMs,
    certificates: [],
    complete: false,
    departedAtMs: context.nowMs,
    departure: how,
  })
  forgetContact(tx, context.cluster)
  // An evicted member may return with its gateways, so their public keys are kept.
  if (how === 'left') forgetPublicKeys(tx, new Set([context.cluster]))
  // IPv6 of another member may have been left out because of this member's.
  const members = membersOf(tx)
  const notCarried = ipv6NotCarried(tx, members)
  if (statesIpv6(row.facts)) writeClusterRecords(tx, members, notCarried)
  writeNotes(tx, members, { overlapping: overlapsOf(tx, members), notCarried })
}

/** How long a departed member is kept, for its return and for watchers that have yet to learn of its departure. */
const KEEP_DEPARTED_MS = 90 * 24 * 3_600_000

const MAX_DEPARTED = 5000

/** The latest first. */
function departures(view: LogView): readonly { readonly key: string; readonly atMs: number }[] {
  const departed = view.list('member').flatMap(({ key, value }) => {
    return value.departedAtMs === undefined ? [] : [{ key, atMs: value.departedAtMs }]
  })
  return departed.sort((a, b) => b.atMs - a.atMs)
}

export function pruneDeparted(tx: Transaction, nowMs: number): void {
  const forgotten = departures(tx).filter(({ atMs }, i) => i >= MAX_DEPARTED || atMs < nowMs - KEEP_DEPARTED_MS)
  for (const { key } of forgotten) tx.remove('member', key)
  for (const { key, value } of tx.list('awaited'))
    if (value.sinceMs < nowMs - KEEP_DEPARTED_MS) tx.remove('awaited', key)
  forgetPublicKeys(tx, new Set(forgotten.map(({ key }) => key)))
}

/** Notes that all records of the member are stored. */
export function markComplete(tx: Transaction, { cluster }: Pick<Peer, 'cluster'>): void {
  const row = tx.get('member', cluster)
  if (row !== undefined && !row.complete) tx.put('member', cluster, { ...row, complete: true })
}

/** Owners whose missing records are really gone, for the `synced` message. No more than members take. */
export function completeness(view: LogView): { readonly complete: string[]; readonly departed: string[] } {
  const live = view.list('member').filter(({ value }) => isLive(value))
  const complete = live.filter(({ value }) => value.complete).map(({ key }) => key)
  // The broker's own records derive from those of the members, including awaited ones.
  if (live.every(({ value }) => value.complete) && !isAwaiting(view)) complete.unshift('')
  // pruneDeparted() forgets the others soon.
  const departed = departures(view).slice(0, MAX_DEPARTED)
  return { complete, departed: departed.map(({ key }) => key) }
}

function checkTakeover(view: LogView, old: MemberRow, join: JoinDecision, nowMs: number): void {
  const { cluster } = join
  // Certificates that were issued between a backup and its restore are in no row and may still be in use. See
  // isOfLostTime() in succession.ts.
  const lostUntilMs = old.restored === undefined ? 0 : old.restored.atMs + MEMBER_VALIDITY_MS
  const untilMs = Math.max(lostUntilMs, old.issuedUntilMs ?? 0, ...old.certificates.map((one) => one.expiresAtMs))
  const ended = untilMs + join.renewalGraceMs <= nowMs
  const expired = ended && old.rekeyedAtMs === undefined
  if (join.entitled || (expired && !join.connected)) return
  const name = quote(cluster)
  const { lastSeenMs } = contactOf(view, cluster, old)
  throw new RefusedError(
    'ClusterIdTaken',
    'cluster',
    `cluster: ${name} is already a member (joined ${timeText(old.joinedAtMs)}, last seen ${timeText(lastSeenMs)}): ` +
      `choose another cluster id; or, if this is the same cluster, run "sealane leave" there first ` +
      `or join with a token for this id: "sealane token create --cluster-id ${cluster}"`,
  )
}

function checkMembers(tx: Transaction, limit: number): void {
  const live = tx.list('member').filter(({ value }) => isLive(value)).length
  if (live < limit) return
  throw new RefusedError(
    'MemberLimit',
    'cluster',
    `cluster: the clusterset has reached its limit of ${live} members: ` +
      `evict members that no longer exist, or start the broker with a higher --max-members (up to ${MOST_MEMBERS})`,
  )
}

function newIndex(tx: Transaction): number {
  const taken = tx.list('member').map(({ value }) => value.index)
  return refusingWithoutRoom(() => nextIndex([...taken, ...awaitedIndexes(tx)]))
}

// Members that get global addresses by a join, and how many of their connections that breaks.

/** The global addresses of these members as they are now. Sorted by id. */
function describeRenumbered(view: LogView, clusters: readonly ClusterId[]): readonly Renumbered[] {
  return clusters
    .map((cluster) => {
      const globalCIDRs = clusterSpec(view, cluster)?.globalCIDRs ?? []
      return { cluster, globalCIDRs, ...reportedConnections(view, cluster) }
    })
    .sort((a, b) => (a.cluster < b.cluster ? -1 : 1))
}

/** As the member last reported. Empty for a member that does not report. */
function reportedConnections(view: LogView, cluster: string): Pick<Renumbered, 'openConnections'> {
  const openConnections = statusOf(view, cluster)?.openConnections
  return openConnections === undefined ? {} : { openConnections }
}
