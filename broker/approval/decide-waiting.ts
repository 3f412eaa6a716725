/**
 * What an operator sees of joins, and of ranges of members, that wait, and what he answers. Answers run inside a
 * transaction.
 */
import { parseClusterId } from '../../model/ids.ts'
import type { RefusalReason } from '../../model/reasons/reasons.ts'
import { type ClusterFacts, RefusedError } from '../../protocol/broker-api.ts'
import { hashOfFingerprint, keyFingerprint } from '../../protocol/identity/keys.ts'
import { quote } from '../admission/admission-checks.ts'
import type { AuditValue } from '../audit/audit-event.ts'
import type { LogView, Transaction } from '../log/record-log.ts'
import { type MemberRow, isLive, timeText } from '../state/state.ts'
import type { ChangedRanges, WaitingRow } from './approval-rows.ts'
import { rangesHash } from './changed-ranges.ts'
import { type WaitingJoin, waitingJoins, waitingKey, waitingUntilMs } from './waiting-joins.ts'

/** Fingerprints named in a refusal. */
const MAX_NAMED = 8

export interface WaitingSummary extends Pick<ClusterFacts, 'podCIDRs' | 'serviceCIDRs' | 'labels' | 'version'> {
  readonly id: string
  /** `ranges`: a member states other ranges than those that were accepted. */
  readonly what: 'join' | 'ranges'
  /** `accepted`, `refused`: the cluster has not asked since. */
  readonly state: 'waiting' | 'accepted' | 'refused'
  /** Of its key; of `ranges`: of the ranges themselves. */
  readonly fingerprint: string
  /** Id of the token that it brought; empty where none was needed. */
  readonly token: string
  /** Where it asked from last, as the broker saw it; empty of a member. */
  readonly address: string
  readonly sinceMs: number
  /** Noted once a minute. */
  readonly lastAskedMs: number
  /** Absent: without end. */
  readonly untilMs?: number
  /** What its machines need outside the lanes. */
  readonly neededCIDRs: readonly string[]
  /** Members that get global addresses if it joins, as of when it asked first. */
  readonly renumbers: readonly string[]
  /** A member has this id now: it would take its place. */
  readonly isMember: boolean
}

export interface AnswerInit {
  /** As said by a person. */
  readonly cluster: string
  /** The key that is meant, as `SHA256:…`; absent: the only one that waits under this id. */
  readonly fingerprint?: string
}

/** `repeated`: it was answered so before, and nothing was done. */
export interface Answer {
  readonly id: string
  readonly fingerprint: string
  readonly token: string
  readonly repeated: boolean
}

/** By id, then by who came first. */
export function waitingSummaries(view: LogView, nowMs: number): WaitingSummary[] {
  const joins = waitingJoins(view, nowMs).map((one) => summary(view, one))
  const ranges = view.list('member').flatMap(({ key, value }) => rangesSummary(key, value))
  return [...joins, ...ranges].sort((a, b) => (a.id < b.id ? -1 : a.id > b.id ? 1 : a.sinceMs - b.sinceMs))
}

/**
 * Lets a cluster in the next time it asks. Throws RefusedError (FailedPrecondition) where nobody waits under the id,
 * where several do and no fingerprint is named, where it is another key, and for a token that is good for nothing any
 * more; InvalidNameError when the id is none. Ranges of a member count once its broker has seen the answer.
 */
export function acceptWaiting(tx: Transaction, init: AnswerInit, nowMs: number): Answer {
  const id = parseClusterId(init.cluster, 'cluster')
  const hash = parseFingerprint(init.fingerprint)
  const member = tx.get('member', id)
  const ranges = rangesMeant(tx, { id, hash, nowMs })
  if (ranges !== undefined) return answerRanges(tx, ranges, { acceptedAtMs: nowMs })
  if (isLive(member) && hash === rangesHash(member.facts))
    return { id, fingerprint: keyFingerprint(hash), token: '', repeated: true }
  // It was accepted, and has joined since.
  if (waitingJoins(tx, nowMs, id).length === 0 && isLive(member)) {
    const { joinKeyHash = '' } = member
    if (hash === undefined || hash === joinKeyHash)
      return { id, fingerprint: keyFingerprint(joinKeyHash), token: '', repeated: true }
    throw refuse('FingerprintDiffers', `cluster ${quote(id)} is a member with the key ${keyFingerprint(joinKeyHash)}`)
  }
  const found = oneWaiting(tx, id, hash, nowMs)
  const { token, row } = found
  if (row.refusedAtMs !== undefined) {
    const text = `cluster ${quote(id)} was refused at ${timeText(row.refusedAtMs)}: it has to come with a new token`
    throw refuse('JoinRefusedByOperator', text)
  }
  if (row.acceptedAtMs !== undefined) return answered(found, true)
  const made = tx.get('token', token)
  if (made === undefined || made.revokedAtMs !== undefined) {
    const text = `cluster ${quote(id)} waits with token ${token}, which was revoked: it has to come with a new one`
    throw refuse('TokenRevoked', text)
  }
  tx.put('waiting', waitingKey(id, token), { ...row, acceptedAtMs: nowMs })
  return answered(found, false)
}

/** Says no to a cluster, also to one that was accepted and has not joined yet. Throws as acceptWaiting(). */
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

/** For the audit log: what was decided about. */
export function waitingDetails({ token, row }: WaitingJoin): Readonly<Record<string, AuditValue>> {
  const { podCIDRs, serviceCIDRs, version } = row.facts
  return { fingerprint: keyFingerprint(row.keyHash), token, address: row.address, podCIDRs, serviceCIDRs, version }
}

interface WaitingRanges {
  readonly id: string
  readonly row: MemberRow & { readonly changed: ChangedRanges }
}

/** The ranges of a member that the operator means; undefined: he means a join. Throws RefusedError. */
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
  const text = `cluster ${quote(id)} waits with other ranges, ${keyFingerprint(known)}`
  if (hash !== undefined) throw refuse('FingerprintDiffers', `${text}: see "sealane cluster waiting"`)
  if (joins.length === 0) return found
  throw refuse('WaitingAmbiguous', `${text}, and to join: name one of them with --fingerprint`)
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

/** For the audit log: what was decided about, and what counted until then. */
export function rangesDetails(view: LogView, id: string): Readonly<Record<string, AuditValue>> | undefined {
  const row = view.get('member', id)
  if (!isLive(row) || row.changed === undefined) return undefined
  const { podCIDRs, serviceCIDRs, neededCIDRs = [], renumbers } = row.changed
  const fingerprint = keyFingerprint(rangesHash(row.changed))
  return { fingerprint, podCIDRs, serviceCIDRs, neededCIDRs, renumbers, before: row.facts.podCIDRs }
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
      labels: row.facts.labels,
      version: row.facts.version,
      neededCIDRs,
      renumbers,
      isMember: true,
    },
  ]
}

function stateOf(row: {
  readonly acceptedAtMs: number | undefined
  readonly refusedAtMs: number | undefined
}): WaitingSummary['state'] {
  return row.refusedAtMs !== undefined ? 'refused' : row.acceptedAtMs !== undefined ? 'accepted' : 'waiting'
}

function answered({ cluster, token, row }: WaitingJoin, repeated: boolean): Answer {
  return { id: cluster, fingerprint: keyFingerprint(row.keyHash), token, repeated }
}

function oneWaiting(view: LogView, id: string, hash: string | undefined, nowMs: number): WaitingJoin {
  const all = waitingJoins(view, nowMs, id)
  if (all.length === 0) {
    const others = [...new Set(waitingJoins(view, nowMs).map(({ cluster }) => cluster))]
    const named = others.length === 0 ? 'nobody waits' : `those that wait are ${others.slice(0, 20).join(', ')}`
    throw refuse('WaitingUnknown', `cluster ${quote(id)} does not wait for approval; ${named}`)
  }
  const named = hash === undefined ? all : all.filter(({ row }) => row.keyHash === hash)
  const [one, ...more] = named
  const keys = all.slice(0, MAX_NAMED).map(({ row }) => `${keyFingerprint(row.keyHash)} (${whence(row)})`)
  if (one === undefined) {
    throw refuse('FingerprintDiffers', `cluster ${quote(id)} waits with another key than that: ${keys.join(', ')}`)
  }
  if (more.length === 0) return one
  throw refuse(
    'WaitingAmbiguous',
    `${named.length} clusters wait as ${quote(id)}, with the keys ${keys.join(', ')}: ` +
      'ask the one that you expect for its fingerprint, and name it with --fingerprint',
  )
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
