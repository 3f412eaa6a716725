/**
 * Joins that wait for an operator, as rows of the store: they outlive the processes of the broker and of the joining
 * cluster. A row binds its token to one key and ends with its token. The number of rows is limited. Each function runs
 * inside a transaction.
 *
 *   (none) ──ask──► waits ──accept──► accepted ──ask──► joined: (none)
 *     ▲               │ ▲                │ facts that differ from the accepted ones
 *     │               │ └────────────────┘
 *     ├──withdraw─────┤
 *     └──token ends───┴──refuse──► refused: the same key gets this answer until the token ends
 */
import { parseClusterId } from '../../model/model.ts'
import type { RefusalReason } from '../../model/reasons/reasons.ts'
import type { Answer, AnswerInit, WaitingSummary } from '../../protocol/admin/admin.ts'
import { type ClusterFacts, RefusedError } from '../../protocol/protocol.ts'
import { canonicalJson } from '../../protocol/codec/codec.ts'
import { hashOfFingerprint, keyFingerprint } from '../../protocol/identity/identity.ts'
import { changedFields, labelsText, rangesHash, rangesOf } from '../addresses/addresses.ts'
import { quote } from '../records/records.ts'
import {
  type AuditValue,
  type ChangedRanges,
  type LogView,
  type MemberRow,
  type Transaction,
  type WaitingRow,
  isLive,
  timeText,
} from '../store/store.ts'

/** Limit of rows of all tokens together, each of at most 64 KiB. */
export const MAX_WAITING = 128
/** Limit of rows of one token, so that the holder of a token of many uses cannot fill the list. */
export const MAX_WAITING_OF_TOKEN = 32
/** How long an accepted cluster has to learn the answer if its token ends in the meantime. */
export const ACCEPTED_MS = 15 * 60_000
/** Interval at which the time of the last request is stored. */
const NOTE_ASKED_MS = 60_000

export interface WaitingJoin {
  readonly cluster: string
  /** Id of the token. */
  readonly token: string
  readonly row: WaitingRow
}

export interface WaitingAsk {
  readonly cluster: string
  readonly token: { readonly id: string; readonly expiresAtMs: number }
  readonly keyHash: string
  readonly facts: ClusterFacts
  readonly address: string
  readonly renumbers: readonly string[]
  readonly nowMs: number
}

export type WaitingAnswer =
  /** `news`: the join was not in the list before, or was there with other facts. */
  | { readonly t: 'waits'; readonly row: WaitingRow; readonly news: boolean }
  | { readonly t: 'accepted'; readonly row: WaitingRow }
  | { readonly t: 'refused'; readonly row: WaitingRow }
  /** Another key waits with this token under this id. */
  | { readonly t: 'otherKey'; readonly row: WaitingRow }
  /** The list is full. */
  | { readonly t: 'full'; readonly limit: number; readonly of: 'all' | 'token' }

export function waitingKey(cluster: string, token: string): string {
  return `${cluster}/${token}`
}

/** Rows that are still valid, by cluster, then token. */
export function waitingJoins(view: LogView, nowMs: number, cluster?: string): WaitingJoin[] {
  return view.list('waiting', cluster).flatMap(({ key, value: row }) => {
    const slash = key.indexOf('/')
    const [cluster, token] = [key.slice(0, slash), key.slice(slash + 1)]
    return isOver(view, token, row, nowMs) ? [] : [{ cluster, token, row }]
  })
}

export function waitingJoin(view: LogView, cluster: string, token: string, nowMs: number): WaitingRow | undefined {
  const row = view.get('waiting', waitingKey(cluster, token))
  return row === undefined || isOver(view, token, row, nowMs) ? undefined : row
}

/** When the row ends. */
export function waitingUntilMs({ expiresAtMs, acceptedAtMs }: WaitingRow): number {
  return acceptedAtMs === undefined ? expiresAtMs : Math.max(expiresAtMs, acceptedAtMs + ACCEPTED_MS)
}

/** Uses of a token that are held by other bearers, which wait or were refused. */
export function usesHeld(
  view: LogView,
  token: string,
  { cluster, keyHash, nowMs }: { readonly cluster: string; readonly keyHash?: string; readonly nowMs: number },
): readonly WaitingJoin[] {
  return waitingJoins(view, nowMs).filter(
    (one) => one.token === token && !(one.cluster === cluster && one.row.keyHash === keyHash),
  )
}

/** Whether an operator has accepted this bearer. Without a key: any bearer with this id and token. */
export function isAccepted(
  view: LogView,
  token: string,
  { cluster, keyHash, nowMs }: { readonly cluster: string; readonly keyHash?: string; readonly nowMs: number },
): boolean {
  const row = waitingJoin(view, cluster, token, nowMs)
  return row?.acceptedAtMs !== undefined && (keyHash === undefined || row.keyHash === keyHash)
}

/** Whether the join was accepted with this key and these facts. */
export function isAcceptedAs(row: WaitingRow, keyHash: string, facts: ClusterFacts): boolean {
  return row.acceptedAtMs !== undefined && row.keyHash === keyHash && isSame(row.facts, facts)
}

/**
 * Puts the join on the list or finds it there. An answer applies to the facts that were shown: other facts wait again.
 */
export function askForApproval(tx: Transaction, ask: WaitingAsk): WaitingAnswer {
  const { cluster, token, keyHash, facts, address, renumbers, nowMs } = ask
  const known = waitingJoin(tx, cluster, token.id, nowMs)
  if (known !== undefined && known.keyHash !== keyHash) return { t: 'otherKey', row: known }
  if (known?.refusedAtMs !== undefined) return { t: 'refused', row: known }
  const same = known !== undefined && isSame(known.facts, facts)
  if (known?.acceptedAtMs !== undefined && same) return { t: 'accepted', row: known }
  if (known === undefined) {
    const all = waitingJoins(tx, nowMs)
    if (all.length >= MAX_WAITING) return { t: 'full', limit: MAX_WAITING, of: 'all' }
    if (all.filter((one) => one.token === token.id).length >= MAX_WAITING_OF_TOKEN)
      return { t: 'full', limit: MAX_WAITING_OF_TOKEN, of: 'token' }
  }
  const isNoted = known !== undefined && same && known.address === address && nowMs - known.lastAskedMs < NOTE_ASKED_MS
  if (isNoted) return { t: 'waits', row: known, news: false }
  const { expiresAtMs } = token
  const sinceMs = same ? known.sinceMs : nowMs
  const shown = same ? known.renumbers : renumbers
  const row = { keyHash, facts, address, sinceMs, lastAskedMs: nowMs, expiresAtMs, renumbers: shown }
  tx.put('waiting', waitingKey(cluster, token.id), row)
  return { t: 'waits', row, news: !same }
}

/** Withdraws the join that waits with this token and key, and returns it. A refused one stays refused. */
export function withdrawJoin(tx: Transaction, token: string, keyHash: string, nowMs: number): WaitingJoin | undefined {
  const found = waitingJoins(tx, nowMs).find((one) => one.token === token && one.row.keyHash === keyHash)
  if (found === undefined || found.row.refusedAtMs !== undefined) return undefined
  tx.remove('waiting', waitingKey(found.cluster, found.token))
  return found
}

interface EndedJoin extends WaitingJoin {
  readonly reason: 'TokenExpired' | 'TokenRevoked' | 'TokenUnknown'
}

/** Removes rows that have ended, and returns those that no operator has refused. */
export function pruneWaiting(tx: Transaction, nowMs: number): EndedJoin[] {
  const over = tx.list('waiting').flatMap(({ key, value: row }): EndedJoin[] => {
    const slash = key.indexOf('/')
    const [cluster, token] = [key.slice(0, slash), key.slice(slash + 1)]
    const made = tx.get('token', token)
    if (made === undefined) return [{ cluster, token, row, reason: 'TokenUnknown' }]
    if (!isOver(tx, token, row, nowMs)) return []
    return [{ cluster, token, row, reason: made.revokedAtMs === undefined ? 'TokenExpired' : 'TokenRevoked' }]
  })
  for (const { cluster, token } of over) tx.remove('waiting', waitingKey(cluster, token))
  return over.filter(({ row }) => row.refusedAtMs === undefined)
}

/** Commands, rotations and restores revoke tokens. */
function isOver(view: LogView, token: string, row: WaitingRow, nowMs: number): boolean {
  return waitingUntilMs(row) <= nowMs || view.get('token', token)?.revokedAtMs !== undefined
}

/** The version is not compared: the release may change during the wait. */
function isSame({ version: _before, ...a }: ClusterFacts, { version: _now, ...b }: ClusterFacts): boolean {
  return canonicalJson(a) === canonicalJson(b)
}

// The view of an operator on waiting joins and ranges, and the answers to them. Answers run inside a transaction.

/** Members to renumber that a waiting join or change of ranges names. */
export const MAX_RENUMBERS = 16

/** Fingerprints that a refusal names. */
const MAX_NAMED = 8

/** Sorted by id, then by the time of the first request. */
export function waitingSummaries(view: LogView, nowMs: number): WaitingSummary[] {
  const joins = waitingJoins(view, nowMs).map((one) => summary(view, one))
  const ranges = view.list('member').flatMap(({ key, value }) => rangesSummary(key, value))
  return [...joins, ...ranges].sort((a, b) => (a.id < b.id ? -1 : a.id > b.id ? 1 : a.sinceMs - b.sinceMs))
}

/** Number of joins and ranges that no operator has answered yet. */
export function countWaiting(view: LogView, nowMs: number): number {
  const joins = waitingJoins(view, nowMs).map(({ row }) => row)
  const ranges = view.list('member').flatMap(({ value }) => (isLive(value) ? (value.changed ?? []) : []))
  return [...joins, ...ranges].filter((row) => stateOf(row) === 'waiting').length
}

/**
 * Lets the cluster join the next time it asks. Throws RefusedError (FailedPrecondition) if no join waits under the id,
 * if several do and no fingerprint is given, if the fingerprint is of another key, and if the token was revoked. Throws
 * InvalidNameError if the id is invalid. Ranges and labels of a member take effect once its broker has seen the answer.
 */
export function acceptWaiting(tx: Transaction, init: AnswerInit, nowMs: number): Answer {
  const id = parseClusterId(init.cluster, 'cluster')
  const hash = parseFingerprint(init.fingerprint)
  const member = tx.get('member', id)
  const ranges = rangesMeant(tx, { id, hash, nowMs })
  if (ranges !== undefined) return answerRanges(tx, ranges, { acceptedAtMs: nowMs })
  if (isLive(member) && hash !== undefined && hashesInForce(member).includes(hash))
    return { id, fingerprint: keyFingerprint(hash), token: '', repeated: true }
  // The join was accepted before, and the cluster has joined since.
  if (waitingJoins(tx, nowMs, id).length === 0 && isLive(member)) {
    const { joinKeyHash = '' } = member
    if (hash === undefined || hash === joinKeyHash)
      return { id, fingerprint: keyFingerprint(joinKeyHash), token: '', repeated: true }
    throw refuse(
      'FingerprintDiffers',
      `cluster ${quote(id)} is already a member, with the key ${keyFingerprint(joinKeyHash)}`,
    )
  }
  const found = oneWaiting(tx, id, hash, nowMs)
  const { token, row } = found
  if (row.refusedAtMs !== undefined) {
    const text = `cluster ${quote(id)} was refused at ${timeText(row.refusedAtMs)}: it must join with a new token`
    throw refuse('JoinRefusedByOperator', text)
  }
  if (row.acceptedAtMs !== undefined) return answered(found, true)
  if (tx.get('token', token) === undefined) {
    const text = `cluster ${quote(id)} waits with token ${token}, which does not exist: it must join with a new token`
    throw refuse('TokenUnknown', text)
  }
  tx.put('waiting', waitingKey(id, token), { ...row, acceptedAtMs: nowMs })
  return answered(found, false)
}

/** Refuses a cluster, including one that was accepted and has not joined yet. Throws as acceptWaiting(). */
export function refuseWaiting(tx: Transaction, init: AnswerInit, nowMs: number): Answer {
  const id = parseClusterId(init.cluster, 'cluster')
  const hash = parseFingerprint(init.fingerprint)
  const ranges = rangesMeant(tx, { id, hash, nowMs })
  if (ranges !== undefined) return answerRanges(tx, ranges, { refusedAtMs: nowMs })
  const found = oneWaiting(tx, id, hash, nowMs)
  const { acceptedAtMs: _taken, ...row } = found.row
  if (row.refusedAtMs !== undefined) return answered(found, true)
  tx.put('waiting', waitingKey(id, found.token), { ...row, refusedAtMs: nowMs })
  return answered(found, false)
}

/** For the audit log: the facts that were decided about. */
export function waitingDetails({ token, row }: WaitingJoin): Readonly<Record<string, AuditValue>> {
  const { podCIDRs, serviceCIDRs, version } = row.facts
  return { fingerprint: keyFingerprint(row.keyHash), token, address: row.address, podCIDRs, serviceCIDRs, version }
}

/** Hashes of ranges, with and without labels, that may have waited and are in force now. */
function hashesInForce({ facts }: MemberRow): readonly string[] {
  const { podCIDRs, serviceCIDRs, labels } = facts
  const ranges = rangesOf(facts)
  return [ranges, { ...ranges, labels }, { podCIDRs, serviceCIDRs, labels }].map(rangesHash)
}

interface WaitingRanges {
  readonly id: string
  readonly row: MemberRow & { readonly changed: ChangedRanges }
}

/** The waiting ranges of a member that the operator means. Undefined if a join is meant. Throws RefusedError. */
function rangesMeant(
  view: LogView,
  { id, hash, nowMs }: { readonly id: string; readonly hash: string | undefined; readonly nowMs: number },
): WaitingRanges | undefined {
  const row = view.get('member', id)
  if (!isLive(row) || row.changed === undefined) return undefined
  const found = { id, row: { ...row, changed: row.changed } }
  const known = rangesHash(row.changed)
  if (hash === known) return found
  const joins = waitingJoins(view, nowMs, id)
  if (joins.some(({ row: { keyHash } }) => hash === keyHash)) return undefined
  const fields = changedFields(row.changed, row.facts)
  const text = `cluster ${quote(id)} waits for approval of new ${fields}, with the fingerprint ${keyFingerprint(known)}`
  if (hash !== undefined) throw refuse('FingerprintDiffers', `${text}; list all with "sealane cluster waiting"`)
  if (joins.length === 0) return found
  throw refuse(
    'WaitingAmbiguous',
    `${text}, and another cluster with this id waits to join: choose one with --fingerprint`,
  )
}

function answerRanges(
  tx: Transaction,
  { id, row }: WaitingRanges,
  given: Pick<ChangedRanges, 'acceptedAtMs' | 'refusedAtMs'>,
): Answer {
  const { acceptedAtMs, refusedAtMs, ...changed } = row.changed
  const isRepeated = given.acceptedAtMs === undefined ? refusedAtMs !== undefined : acceptedAtMs !== undefined
  if (!isRepeated) tx.put('member', id, { ...row, changed: { ...changed, ...given } })
  return { id, fingerprint: keyFingerprint(rangesHash(changed)), token: '', repeated: isRepeated }
}

/** For the audit log: the ranges that were decided about, and those in effect until then. */
export function rangesDetails(view: LogView, id: string): Readonly<Record<string, AuditValue>> | undefined {
  const row = view.get('member', id)
  if (!isLive(row) || row.changed === undefined) return undefined
  const { podCIDRs, serviceCIDRs, neededCIDRs = [], renumbers, labels } = row.changed
  const fingerprint = keyFingerprint(rangesHash(row.changed))
  const more = labels === undefined ? {} : { labels: labelsText(labels) }
  return { fingerprint, podCIDRs, serviceCIDRs, neededCIDRs, renumbers, before: row.facts.podCIDRs, ...more }
}

function rangesSummary(id: string, row: MemberRow): readonly WaitingSummary[] {
  if (!isLive(row) || row.changed === undefined) return []
  const { podCIDRs, serviceCIDRs, neededCIDRs = [], renumbers, sinceMs, acceptedAtMs, refusedAtMs } = row.changed
  return [
    {
      id,
      what: 'ranges',
      state: stateOf({ acceptedAtMs, refusedAtMs }),
      fingerprint: keyFingerprint(rangesHash(row.changed)),
      token: '',
      address: '',
      sinceMs,
      lastAskedMs: sinceMs,
      podCIDRs,
      serviceCIDRs,
      labels: row.changed.labels ?? row.facts.labels,
      version: row.facts.version,
      neededCIDRs,
      renumbers,
      isMember: true,
    },
  ]
}

function stateOf(row: {
  readonly acceptedAtMs?: number | undefined
  readonly refusedAtMs?: number | undefined
}): WaitingSummary['state'] {
  return row.refusedAtMs !== undefined ? 'refused' : row.acceptedAtMs !== undefined ? 'accepted' : 'waiting'
}

function answered({ cluster, token, row }: WaitingJoin, repeated: boolean): Answer {
  return { id: cluster, fingerprint: keyFingerprint(row.keyHash), token, repeated }
}

function oneWaiting(view: LogView, id: string, hash: string | undefined, nowMs: number): WaitingJoin {
  const all = waitingJoins(view, nowMs, id)
  if (all.length === 0) {
    const revoked = revokedTokenOf(view, id)
    if (revoked !== undefined) {
      const text = `cluster ${quote(id)} waits with token ${revoked}, which was revoked: it must join with a new token`
      throw refuse('TokenRevoked', text)
    }
    const others = [...new Set(waitingJoins(view, nowMs).map(({ cluster }) => cluster))]
    const named =
      others.length === 0 ? 'no cluster waits' : `the waiting clusters are ${others.slice(0, 20).join(', ')}`
    throw refuse('WaitingUnknown', `cluster ${quote(id)} does not wait for approval; ${named}`)
  }
  const named = hash === undefined ? all : all.filter(({ row }) => row.keyHash === hash)
  const [one, ...more] = named
  const keys = all.slice(0, MAX_NAMED).map(({ row }) => `${keyFingerprint(row.keyHash)} (${whence(row)})`)
  if (one === undefined) {
    throw refuse('FingerprintDiffers', `cluster ${quote(id)} waits with a different key: ${keys.join(', ')}`)
  }
  if (more.length === 0) return one
  throw refuse(
    'WaitingAmbiguous',
    `${named.length} clusters with the id ${quote(id)} wait, with the keys ${keys.join(', ')}: ` +
      'compare the fingerprint that "sealane join" printed on the expected cluster, and choose it with --fingerprint',
  )
}

/** The id of a revoked token with which a cluster of this id has asked to join. */
function revokedTokenOf(view: LogView, id: string): string | undefined {
  const tokens = view.list('waiting', id).map(({ key }) => key.slice(key.indexOf('/') + 1))
  return tokens.find((token) => view.get('token', token)?.revokedAtMs !== undefined)
}

function whence({ address, sinceMs }: WaitingRow): string {
  return `from ${address} since ${timeText(sinceMs)}`
}

function parseFingerprint(text: string | undefined): string | undefined {
  if (text === undefined) return undefined
  const hash = hashOfFingerprint(text)
  if (hash !== undefined) return hash
  throw new RefusedError(
    'InvalidValue',
    'fingerprint',
    `fingerprint ${quote(text)}: expected SHA256: and 43 characters of base64, as "sealane join" prints it`,
  )
}

function summary(view: LogView, { cluster, token, row }: WaitingJoin): WaitingSummary {
  const { podCIDRs, serviceCIDRs, labels, version, neededCIDRs = [] } = row.facts
  const { keyHash, address, sinceMs, lastAskedMs, renumbers, acceptedAtMs, refusedAtMs } = row
  return {
    id: cluster,
    what: 'join',
    state: stateOf({ acceptedAtMs, refusedAtMs }),
    fingerprint: keyFingerprint(keyHash),
    token,
    address,
    sinceMs,
    lastAskedMs,
    untilMs: waitingUntilMs(row),
    podCIDRs,
    serviceCIDRs,
    labels,
    version,
    neededCIDRs,
    renumbers,
    isMember: isLive(view.get('member', cluster)),
  }
}

function refuse(reason: RefusalReason, message: string): RefusedError {
  return new RefusedError(reason, 'cluster', message, 'FailedPrecondition')
}
