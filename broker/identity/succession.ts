/**
 * Which certificate of a member may be used. One is in use; one that was renewed from it takes its place when it is
 * used for the first time, and not before: where the answer to a renewal was lost, the one in use goes on. What was
 * replaced goes on for a short overlap, then it is refused, and a caller that shows it has a copy of it. Pure.
 *
 *   in use ──renewal──► issued, not used ──first use──► in use
 *                                                         │ the one before
 *                                                         ▼
 *                                                 overlap (5 min) ──► superseded: refused, reported as a copy
 *
 * What was issued and never used is written down nowhere: a certificate names the one it renews (Peer.renews). So no
 * number of renewals takes anything from anybody.
 *
 * Two agents of one cluster may renew the same certificate at once, and both use what they got. Each then finds the one
 * that is stored, well before the overlap ends. Where both are still used afterwards, two hold the identity that do not
 * share a store: one of them is a thief, and the certificates do not say which. Neither is preferred: no certificate of
 * the member is taken any more (`forked`) until it gets a new identity. One late use is only refused and reported: an
 * agent that was suspended for minutes looks into its store then.
 *
 * The same is so where a thief renews first, and the owner comes back with what was replaced. The certificates alone
 * would not tell that from an old copy, which must end nothing. So the broker remembers which processes have used a
 * certificate (Peer.process). If the only one of them is the process that went over to the next certificate, what is
 * shown late is a copy. If there was another one, the late caller may be that one, or the same agent after a restart.
 */
import type { Peer } from '../../protocol/protocol.ts'
import { MEMBER_VALIDITY_MS } from '../../protocol/identity/identity.ts'
import type { IssuedCertificate, MemberRow, SupersededCertificate } from '../store/store.ts'

/** Two agents of one cluster that both think they lead see each other's renewal in the store sooner than this. */
export const OVERLAP_MS = 5 * 60_000
/** An agent that is refused has looked into its store by then. */
const LATE_MS = 60_000
/** Remembered, so that what was renewed from them is known too; and as many again of those in doubt. */
const MAX_SUPERSEDED = 16
/** Agents of one cluster that renew at the same moment: more are none, and would push each other off the list. */
const MAX_AT_ONCE = 4
/** Of one certificate. The first ones count: a thief who comes later can push none of them off the list. */
export const MAX_PROCESSES = 8

export type CertificatePeer = Pick<Peer, 'serial' | 'issuedAtMs' | 'renews' | 'expiresAtMs' | 'authority' | 'process'>

export type CertificateValidity =
  /** `row`: a process that has not used it yet. */
  | { readonly t: 'inUse'; readonly row?: MemberRow }
  /** It may be used, and from then on the member's row is this one. */
  | { readonly t: 'firstUse'; readonly row: MemberRow }
  /** It was replaced a moment ago: it may be used, but not renewed. */
  | { readonly t: 'overlap'; readonly replacedAtMs: number }
  | { readonly t: 'expired'; readonly expiresAtMs: number }
  /** It belongs to this membership, and was replaced; undefined: not known when. `row` has it written down, as of forked. */
  | { readonly t: 'superseded'; readonly replacedAtMs: number | undefined; readonly row?: MemberRow }
  /** Two hold this identity. `row` has it written down; absent: it is known. */
  | { readonly t: 'forked'; readonly atMs: number; readonly row?: MemberRow }
  /** An operator has asked for a new identity. */
  | { readonly t: 'rekeyed'; readonly atMs: number }
  /** It belongs to no membership that lasts. */
  | { readonly t: 'foreign' }

export function certificateValidity(row: MemberRow, peer: CertificatePeer, nowMs: number): CertificateValidity {
  if (row.rekeyedAtMs !== undefined) return { t: 'rekeyed', atMs: row.rekeyedAtMs }
  if (row.forkedAtMs !== undefined) return { t: 'forked', atMs: row.forkedAtMs }
  const serial = normalSerial(peer.serial)
  const renews = peer.renews === undefined ? undefined : normalSerial(peer.renews)
  const at = row.certificates.findIndex((one) => one.serial === serial)
  const known = row.certificates[at]
  const expiresAtMs = known?.expiresAtMs ?? peer.expiresAtMs
  if (expiresAtMs !== undefined && expiresAtMs <= nowMs) return { t: 'expired', expiresAtMs }
  if (at === 0) return inUse(row, peer.process)
  const use = (first: IssuedCertificate, rest: readonly IssuedCertificate[], untilMs: number): CertificateValidity => ({
    t: 'firstUse',
    row: replace(row, [usedBy(first, peer.process), ...rest], { atMs: nowMs, untilMs, ...replacedBy(peer.process) }),
  })
  // A broker of an earlier release listed what it issued: the later ones were not used yet, as far as is known.
  if (known !== undefined) return use(known, row.certificates.slice(at + 1), nowMs + OVERLAP_MS)

  const shown = issued(peer, serial, renews, nowMs)
  const current = row.certificates[0]
  if (current !== undefined && renews === current.serial) return use(shown, [], nowMs + OVERLAP_MS)
  const superseded = row.superseded ?? []
  // Two were made of one, by two agents at once. The last that is used before the overlap ends is the one that stays.
  const parent = superseded.find((one) => one.serial === renews && one.untilMs > nowMs)
  const isFork = current !== undefined && current.renews !== serial
  if (parent !== undefined && isFork) {
    const times = { atMs: nowMs, untilMs: parent.untilMs, forked: true, ...replacedBy(peer.process) } as const
    const next = replace(row, [usedBy(shown, peer.process)], times)
    const atOnce = (next.superseded ?? []).filter(({ forked, untilMs }) => forked === true && untilMs > nowMs)
    return atOnce.length < MAX_AT_ONCE ? { t: 'firstUse', row: next } : fork(row, nowMs)
  }
  const own = superseded.find((one) => one.serial === serial)
  if (own !== undefined && own.untilMs > nowMs) return { t: 'overlap', replacedAtMs: own.atMs }
  if (own !== undefined && (own.forked === true || mayBeOwners(own, peer))) return usedLate(row, own, peer, nowMs)
  if (own === undefined && isOfLostTime(row, peer)) return use(shown, [], nowMs + OVERLAP_MS)
  const isOurs = own ?? superseded.find((one) => one.serial === renews)
  if (isOurs !== undefined || (isIssuedSince(row.joinedAtMs, peer) && !isLaterThanKnown(row, peer))) {
    return { t: 'superseded', replacedAtMs: isOurs?.atMs }
  }
  return { t: 'foreign' }
}

/** It may have been the owner's, and somebody else went on from it. */
function mayBeOwners(own: SupersededCertificate, { process }: CertificatePeer): boolean {
  return othersThan(own).length > 0 && (process === undefined || process !== own.replacedBy)
}

/**
 * Each agent of a cluster may be late once with it; a process that is late and goes on does not look into its store.
 * All are remembered, so that a thief cannot cover the owner's late use with one of his own; a cluster has no more.
 */
function usedLate(
  row: MemberRow,
  own: SupersededCertificate,
  { process }: CertificatePeer,
  nowMs: number,
): CertificateValidity {
  const { late = [] } = own
  const before = late.find((one) => one.process === process)
  const isFork = before === undefined ? late.length >= MAX_PROCESSES : nowMs - before.atMs >= LATE_MS
  if (isFork) return fork(row, nowMs)
  const refused = { t: 'superseded', replacedAtMs: own.atMs } as const
  if (before !== undefined) return refused
  const noted = { ...own, late: [...late, { atMs: nowMs, ...(process === undefined ? {} : { process }) }] }
  const superseded = (row.superseded ?? []).map((one) => (one === own ? noted : one))
  return { ...refused, row: { ...row, superseded } }
}

function inUse(row: MemberRow, process: string | undefined): CertificateValidity {
  const [current, ...rest] = row.certificates
  if (current === undefined) return { t: 'inUse' }
  const used = usedBy(current, process)
  return used === current ? { t: 'inUse' } : { t: 'inUse', row: { ...row, certificates: [used, ...rest] } }
}

/** The certificate itself where that says nothing new. */
function usedBy(certificate: IssuedCertificate, process: string | undefined): IssuedCertificate {
  const { processes = [] } = certificate
  if (process === undefined || processes.includes(process) || processes.length >= MAX_PROCESSES) return certificate
  return { ...certificate, processes: [...processes, process] }
}

function replacedBy(process: string | undefined): Pick<SupersededCertificate, 'replacedBy'> {
  return process === undefined ? {} : { replacedBy: process }
}

function fork(row: MemberRow, nowMs: number): CertificateValidity {
  return { t: 'forked', atMs: nowMs, row: { ...row, forkedAtMs: nowMs } }
}

/**
 * Whether the certificate was issued after all that the row knows of: who issues one notes that the member was seen.
 * Then the row is older than the certificate. Certificates are dated in whole seconds.
 */
export function isLaterThanKnown(
  { lastSeenMs, departedAtMs = 0 }: MemberRow,
  { issuedAtMs }: Pick<CertificatePeer, 'issuedAtMs'>,
): boolean {
  return issuedAtMs !== undefined && issuedAtMs > Math.max(lastSeenMs, departedAtMs) + 1000
}

export function mayBeUsed({ t }: CertificateValidity): boolean {
  return t === 'inUse' || t === 'firstUse' || t === 'overlap'
}

/** Serial numbers come from several libraries: upper or lower case, with or without leading zeros. */
export function normalSerial(hex: string): string {
  return hex.toLowerCase().replace(/^0+(?=.)/, '')
}

/**
 * A certificate that our CA gave to this member between a backup and its restore: the broker that knew of it wrote that
 * into rows that are lost. Members renew their certificates each day; without this a backup of yesterday would know
 * nobody. The latest counts: what it replaced in that time comes back no more once it has been used.
 */
function isOfLostTime({ restored, certificates }: MemberRow, { issuedAtMs }: CertificatePeer): boolean {
  if (restored === undefined || issuedAtMs === undefined) return false
  // Certificates are dated in whole seconds.
  const fromMs = Math.floor(restored.takenAtMs / 1000) * 1000
  return issuedAtMs >= Math.max(fromMs, certificates[0]?.issuedAtMs ?? 0) && issuedAtMs <= restored.atMs
}

/** Later than the second of the join: in that second an earlier membership may have got it. */
function isIssuedSince(joinedAtMs: number, { issuedAtMs }: CertificatePeer): boolean {
  return issuedAtMs !== undefined && issuedAtMs > joinedAtMs
}

function issued(
  { issuedAtMs, expiresAtMs, authority }: CertificatePeer,
  serial: string,
  renews: string | undefined,
  nowMs: number,
): IssuedCertificate {
  return {
    serial,
    // Where it is not known, the transport decides alone.
    expiresAtMs: expiresAtMs ?? nowMs + MEMBER_VALIDITY_MS,
    ...(issuedAtMs === undefined ? {} : { issuedAtMs }),
    ...(renews === undefined ? {} : { renews }),
    ...(authority === undefined ? {} : { authority }),
  }
}

/**
 * The row of a member that shows this certificate, where its use says something new: that it has the authorities that
 * came with it. Undefined: nothing new.
 */
export function confirmedRow(row: MemberRow, { serial }: Pick<Peer, 'serial'>): MemberRow | undefined {
  const { handedOut, trusts } = row
  if (handedOut === undefined || handedOut.serial !== normalSerial(serial)) return undefined
  if (trusts?.join() === handedOut.bundle.join()) return undefined
  return { ...row, trusts: handedOut.bundle }
}

function replace(
  row: MemberRow,
  certificates: readonly IssuedCertificate[],
  times: Omit<SupersededCertificate, 'serial'>,
): MemberRow {
  const kept = new Set(certificates.map(({ serial }) => serial))
  const before = row.certificates.filter(({ serial }) => !kept.has(serial))
  const superseded = [
    ...(row.superseded ?? []).filter(({ serial }) => !kept.has(serial)),
    ...before.map(({ serial, processes }) => ({ serial, ...times, ...(processes === undefined ? {} : { processes }) })),
  ]
  return { ...row, certificates, superseded: remembered(superseded, times.atMs) }
}

/**
 * The latest, and the first of those that somebody else than their user went on from: however often a thief renews what
 * he got, the owner's is known when it is shown.
 */
function remembered(superseded: readonly SupersededCertificate[], nowMs: number): readonly SupersededCertificate[] {
  const isDoubtful = (one: SupersededCertificate): boolean =>
    othersThan(one).length > 0 && nowMs < one.atMs + MEMBER_VALIDITY_MS
  const kept = new Set([
    ...superseded.filter(isDoubtful).slice(0, MAX_SUPERSEDED),
    ...superseded.slice(-MAX_SUPERSEDED),
  ])
  return superseded.filter((one) => kept.has(one))
}

/** Who used it beside the process that went on from it. */
function othersThan({ processes = [], replacedBy }: SupersededCertificate): readonly string[] {
  return processes.filter((one) => one !== replacedBy)
}
