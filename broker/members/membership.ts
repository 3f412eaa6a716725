/**
 * Who belongs to the clusterset: joining, renewing, changing facts, leaving, eviction. Each function decides and
 * writes inside one transaction.
 */
import { type ClusterId, RESERVED_ID_PROBLEM, isReservedId } from '../../model/ids.ts'
import type { ClusterSpec } from '../../model/objects.ts'
import { type ClusterFacts, type Peer, RefusedError, type Renumbered } from '../../protocol/broker-api.ts'
import { canonicalJson } from '../../protocol/codec/content-hash.ts'
import { MEMBER_VALIDITY_MS } from '../../protocol/identity/certificate-terms.ts'
import { quote } from '../admission/admission-checks.ts'
import { admitRecord } from '../admission/admission.ts'
import { allClaims, neededByAll, orderClaims } from '../addresses/address-claims.ts'
import { describeAddresses } from '../addresses/address-notes.ts'
import { admitSpace, publicCIDRs } from '../admission/admission-facts.ts'
import { NoRoomError, nextIndex, planAddresses, withoutRoom } from '../addresses/allocation.ts'
import { clusterSpec, removeClusterRecord, statesIpv6, writeClusterRecords } from '../records/cluster-records.ts'
import type { LogView, RecordLog, Transaction } from '../log/record-log.ts'
import { forgetPublicKeys } from './public-keys.ts'
import { type WriteContext, admissionContext, memberRecords, removeRecord } from '../records/record-writes.ts'
import { type IssuedCertificate, type MemberRow, isLive } from '../state/state.ts'
import { globalAddresses, renumberedSince } from '../addresses/renumbered.ts'
import { removeStatusRecord } from '../records/status-records.ts'
import {
  type CertificatePeer,
  type CertificateStanding,
  certificateStanding,
  isLaterThanKnown,
  mayBeUsed,
  normalSerial,
} from './succession.ts'
import { denied, refusedFacts } from './refused.ts'
import { timeText } from '../tokens/tokens.ts'

/**
 * The row of the peer. Throws RefusedError (PermissionDenied, Unauthenticated) unless the peer is a member now and
 * shows a certificate of its present membership that may be used.
 */
export function requireMember(view: LogView, peer: Peer, nowMs: number): MemberRow {
  const row = view.get('member', peer.cluster)
  const name = quote(peer.cluster)
  if (row === undefined)
    throw denied('NotAMember', `cluster ${name} is not a member of this clusterset: join with a token`)
  if (row.departedAtMs !== undefined) {
    const at = timeText(row.departedAtMs)
    if (row.departure !== 'evicted')
      throw denied('MemberLeft', `cluster ${name} left at ${at}: join again with a new token`)
    throw denied('MemberEvicted', `cluster ${name} was evicted at ${at}: it can join again, with a new token`)
  }
  refuseCertificate(certificateStanding(row, peer, nowMs), peer)
  return row
}

/** As requireMember(), where the peer asks for something now: a certificate that is used for the first time takes its place. */
export function useCertificate(tx: Transaction, peer: Peer, nowMs: number): MemberRow {
  const row = requireMember(tx, peer, nowMs)
  const standing = certificateStanding(row, peer, nowMs)
  if (standing.t !== 'firstUse') return row
  tx.put('member', peer.cluster, standing.row)
  return standing.row
}

/** As useCertificate(), for a renewal: one that has been replaced has nothing to renew. */
export function useToRenew(tx: Transaction, peer: Peer, nowMs: number): MemberRow {
  const row = useCertificate(tx, peer, nowMs)
  const standing = certificateStanding(row, peer, nowMs)
  if (standing.t !== 'overlap') return row
  const at = timeText(standing.replacedAtMs)
  throw denied(
    'CertificateReplaced',
    `certificate ${normalSerial(peer.serial)} of cluster ${quote(peer.cluster)} was replaced at ${at}: renew the newer one`,
  )
}

/**
 * Whether the certificate that this peer showed belongs to the membership as it is now, and may be used. What an evicted
 * or succeeded member has left open is not its successor's.
 */
export function isOfMembership(view: LogView, peer: CertificatePeer & Pick<Peer, 'cluster'>, nowMs: number): boolean {
  const row = view.get('member', peer.cluster)
  return isLive(row) && mayBeUsed(certificateStanding(row, peer, nowMs))
}

function refuseCertificate(standing: CertificateStanding, peer: Peer): void {
  const name = quote(peer.cluster)
  const certificate = `certificate ${normalSerial(peer.serial)} of cluster ${name}`
  switch (standing.t) {
    case 'inUse':
    case 'firstUse':
    case 'overlap':
      return
    case 'expired': {
      const text = `${certificate} expired at ${timeText(standing.expiresAtMs)}: join again with a new token`
      throw new RefusedError('CertificateExpired', 'certificate', text)
    }
    case 'rekeyed': {
      const at = timeText(standing.atMs)
      throw denied(
        'MemberRekeyed',
        `cluster ${name} gets a new identity since ${at}: join again with the token that was made for it`,
      )
    }
    case 'superseded': {
      const at = standing.replacedAtMs === undefined ? '' : ` at ${timeText(standing.replacedAtMs)}`
      throw denied(
        'CertificateCopied',
        `${certificate} was replaced${at} by one renewed from it, and this is a copy: if the cluster itself is refused, ` +
          `somebody else has its key: "sealane cluster rekey ${peer.cluster}" on the broker makes it a new identity`,
      )
    }
    case 'foreign':
      throw denied(
        'CertificateForeign',
        `${certificate} has been replaced: another site has joined as ${name}, or this one has joined again`,
      )
  }
}

/** Throws RefusedError for an id that is reserved, unless a member has it from before. */
export function checkNewId(view: LogView, id: ClusterId): void {
  if (!isReservedId(id) || isLive(view.get('member', id))) return
  throw new RefusedError('ClusterIdReserved', 'cluster', `cluster: ${quote(id)} ${RESERVED_ID_PROBLEM}`)
}

/**
 * Whether the CA has given this peer a certificate that these rows do not know of and cannot have forgotten: then they
 * are older than it, or of another time.
 */
export function isUnknownHere(view: LogView, peer: Peer, nowMs: number): boolean {
  const row = view.get('member', peer.cluster)
  if (row === undefined) return true
  return certificateStanding(row, peer, nowMs).t === 'foreign' && isLaterThanKnown(row, peer)
}

export interface JoinDecision {
  readonly cluster: ClusterId
  readonly facts: ClusterFacts
  /** Public space that the token lets it state, as CIDRs. */
  readonly allowedCIDRs: readonly string[]
  readonly certificate: IssuedCertificate
  /** SHA-256 of the certificate's public key, hex. */
  readonly keyHash: string
  /** The token was made for this very cluster id, or this request repeats one that was granted. */
  readonly entitled: boolean
  /** The member has streams open at this moment. */
  readonly connected: boolean
  readonly membersLimit: number
}

export interface JoinOutcome {
  /** What the others know the member as. */
  readonly spec: ClusterSpec
  /** Members that were reached by their own addresses until now, and have global ones from now on. Sorted by id. */
  readonly renumbered: readonly Renumbered[]
}

/** Writes the membership. Throws RefusedError. */
export function joinMember(tx: Transaction, join: JoinDecision, context: WriteContext): JoinOutcome {
  const { cluster, facts, certificate, keyHash, allowedCIDRs } = join
  refuseSpace(facts, allowedCIDRs)
  const old = tx.get('member', cluster)
  if (isLive(old)) checkTakeover(cluster, old, join, context.nowMs)
  else checkMembers(tx, join.membersLimit)
  const row: MemberRow = {
    index: old?.index ?? newIndex(tx),
    facts,
    allowedCIDRs,
    translated: old?.translated ?? false,
    blocks: old?.blocks ?? {},
    joinedAtMs: context.nowMs,
    joinKeyHash: keyHash,
    lastSeenMs: context.nowMs,
    certificates: [certificate],
    complete: isLive(old) && old.complete,
  }
  const before = globalAddresses(tx)
  writeMember(tx, row, context)
  const spec = clusterSpec(tx, cluster)
  if (spec === undefined) throw new Error(`no Cluster record of member ${cluster}`)
  return { spec, renumbered: renumberedSince(before, tx, cluster) }
}

/** The same without an effect, for whoever wants to know before: what is written is thrown away. */
export async function lookAtJoin(log: RecordLog, look: (tx: Transaction) => JoinOutcome): Promise<JoinOutcome> {
  try {
    await log.transact((tx) => {
      throw new OnlyLooked(look(tx))
    })
  } catch (error) {
    if (error instanceof OnlyLooked) return error.outcome
    throw error
  }
  throw new Error('what a look at a join wrote has stayed')
}

/** Nothing is kept of a transaction that throws. */
class OnlyLooked extends Error {
  readonly outcome: JoinOutcome
  constructor(outcome: JoinOutcome) {
    super('only looked')
    this.outcome = outcome
  }
}

/** Takes new facts of a member: addresses may be added, and its records are judged anew. Throws RefusedError. */
export function changeFacts(tx: Transaction, facts: ClusterFacts, context: WriteContext): void {
  const row = tx.get('member', context.cluster)
  if (!isLive(row) || canonicalJson(row.facts) === canonicalJson(facts)) return
  refuseSpace(facts, allowedOf(row))
  writeMember(tx, { ...row, facts }, context)
}

/**
 * Looks at everybody's addresses anew: what all need has changed, or where a gateway is called. Refuses nobody. Where there
 * is no room for one, that one stays as it was: whoever needs what its pods hold refuses these pods itself.
 */
export function reviewAddresses(tx: Transaction, context: Omit<WriteContext, 'cluster'>): void {
  const members = new Map(tx.list('member').map(({ key, value }) => [key, value]))
  planMembers(tx, members, { context, spared: () => new Set(members.keys()) })
}

/** Public space that members of an earlier release state: it stays theirs. Gives what is kept so for the first time. */
export function keepEarlierSpace(tx: Transaction): { readonly cluster: string; readonly cidrs: readonly string[] }[] {
  return tx.list('member').flatMap(({ key, value }) => {
    if (!isLive(value) || value.allowedCIDRs !== undefined) return []
    const cidrs = allowedOf(value)
    tx.put('member', key, { ...value, allowedCIDRs: cidrs, ...(cidrs.length === 0 ? {} : { keptCIDRs: cidrs }) })
    return cidrs.length === 0 ? [] : [{ cluster: key, cidrs }]
  })
}

/** A row of an earlier release names none: what it took without asking. */
function allowedOf({ allowedCIDRs, facts }: MemberRow): readonly string[] {
  return allowedCIDRs ?? publicCIDRs(facts, []).map(({ text }) => text)
}

function refuseSpace(facts: ClusterFacts, allowed: readonly string[]): void {
  const refused = admitSpace(facts, allowed)
  if (refused === undefined) return
  throw refusedFacts(refused)
}

/** Notes that a certificate was issued: until it ends, its id is nobody else's. */
export function noteIssued(
  tx: Transaction,
  cluster: ClusterId,
  { expiresAtMs }: Pick<IssuedCertificate, 'expiresAtMs'>,
  nowMs: number,
): void {
  const row = tx.get('member', cluster)
  if (!isLive(row)) return
  const issuedUntilMs = Math.max(row.issuedUntilMs ?? 0, expiresAtMs)
  tx.put('member', cluster, { ...row, issuedUntilMs, lastSeenMs: nowMs })
}

/** Ends a membership and withdraws all its records. Index and blocks are kept for its return. */
export function departMember(tx: Transaction, how: 'left' | 'evicted', context: WriteContext): void {
  const row = tx.get('member', context.cluster)
  if (!isLive(row)) return
  for (const { key } of memberRecords(tx, context.cluster)) removeRecord(tx, key, context)
  removeClusterRecord(tx, context.cluster)
  removeStatusRecord(tx, context.cluster)
  const { connectedSinceMs: _over, rekeyedAtMs: _asked, ...rest } = row
  tx.put('member', context.cluster, {
    ...rest,
    certificates: [],
    complete: false,
    departedAtMs: context.nowMs,
    departure: how,
  })
  // Whoever is put out may come back with its gateways.
  if (how === 'left') forgetPublicKeys(tx, new Set([context.cluster]))
  // Somebody's IPv6 may have stood back for its own.
  if (statesIpv6(row.facts)) writeClusterRecords(tx)
  writeNotes(tx)
}

/** Who has left is remembered for its return, and told to watchers, but not without end. */
const KEEP_DEPARTED_MS = 90 * 24 * 3_600_000
const MAX_DEPARTED = 5000

export function pruneDeparted(tx: Transaction, nowMs: number): void {
  const departed = tx.list('member').flatMap(({ key, value }) => {
    return value.departedAtMs === undefined ? [] : [{ key, atMs: value.departedAtMs }]
  })
  departed.sort((a, b) => b.atMs - a.atMs)
  const forgotten = departed.filter(({ atMs }, i) => i >= MAX_DEPARTED || atMs < nowMs - KEEP_DEPARTED_MS)
  for (const { key } of forgotten) tx.remove('member', key)
  forgetPublicKeys(tx, new Set(forgotten.map(({ key }) => key)))
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
  // What was issued between a backup and its restore is in no row, and may be used: see isOfLostTime() in succession.ts.
  const lostUntilMs = old.restored === undefined ? 0 : old.restored.atMs + MEMBER_VALIDITY_MS
  const untilMs = Math.max(lostUntilMs, old.issuedUntilMs ?? 0, ...old.certificates.map((one) => one.expiresAtMs))
  const ended = untilMs <= nowMs
  const expired = ended && old.rekeyedAtMs === undefined
  if (join.entitled || (expired && !join.connected)) return
  const name = quote(cluster)
  throw new RefusedError(
    'ClusterIdTaken',
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
    'MemberLimit',
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
  const before = new Map(tx.list('member').map(({ key, value }) => [key, value]))
  const claimed = orderClaims(before, before.get(context.cluster), row.facts)
  const members = new Map(before).set(context.cluster, { ...row, claimed })
  const spared = (): ReadonlySet<string> =>
    withoutRoom(allClaims(tx, before), allClaims(tx, members), { changed: context.cluster, needed: neededByAll(tx) })
  refusing(() => planMembers(tx, members, { context, spared }))
  withdrawForeignAddresses(tx, context)
}

interface PlanInit {
  readonly context: Omit<WriteContext, 'cluster'>
  /** Who may stay without room: see planAddresses(). */
  readonly spared: () => ReadonlySet<string>
}

/** Stores these rows, as far as they differ, and the Cluster records. Throws NoRoomError before anything is written. */
function planMembers(tx: Transaction, members: ReadonlyMap<string, MemberRow>, { context, spared }: PlanInit): void {
  const claims = allClaims(tx, members)
  const plan = planAddresses(claims, context.rules.globalRange, neededByAll(tx), spared)
  for (const [id, member] of members) {
    const added = plan.get(id)
    if (member !== tx.get('member', id) || added !== undefined) tx.put('member', id, { ...member, ...added })
  }
  const shrunk = writeClusterRecords(tx)
  writeNotes(tx)
  for (const cluster of shrunk) withdrawForeignAddresses(tx, { ...context, cluster })
}

function writeNotes(tx: Transaction): void {
  for (const [id, notes] of describeAddresses(tx)) {
    const row = tx.get('member', id)
    if (row === undefined || canonicalJson(row.notes ?? []) === canonicalJson(notes)) continue
    tx.put('member', id, { ...row, notes })
  }
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
      throw new RefusedError('GlobalRangeExhausted', error.field, `${error.field}: ${error.message}`)
    throw error
  }
}
