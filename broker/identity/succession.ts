/**
 * Which certificate of a member may be used. One is in use. A certificate that was renewed from it replaces it at its
 * first use, and not before: if the response to a renewal is lost, the one in use stays valid. A replaced certificate
 * may be used for a short overlap. Then it is refused, and a caller that shows it has a copy of it. Pure.
 *
 *   in use ──renewal──► issued, not used ──first use──► in use
 *                                                         │ the one before
 *                                                         ▼
 *                                                 overlap (5 min) ──► superseded: refused, reported as a copy
 *
 * A certificate that was issued and never used is not stored: each certificate names the one that it renews
 * (Peer.renews). So no number of renewals invalidates the certificate in use.
 *
 * Two agents of one cluster may renew the same certificate at once, and both use the result. Each then finds the one
 * that is stored, well before the overlap ends. If both certificates are still used afterwards, two parties that do not
 * share a store hold the identity: one of them is a thief, and the certificates do not show which. The broker prefers
 * neither: it accepts no certificate of the member (`forked`) until the member gets a new identity. A single late use
 * is only refused and reported: an agent that was suspended for minutes reads its store then.
 *
 * The same applies if a thief renews first and the owner shows the replaced certificate. The certificates alone do not
 * distinguish that from an old copy, which must not end anything. So the broker stores which processes have used a
 * certificate (Peer.process). If the process that renewed it is the only one, a late use is a copy. If there was another
 * one, the late caller may be that one, or the same agent after a restart.
 */
import type { Peer } from '../../protocol/protocol.ts'
import { MEMBER_VALIDITY_MS } from '../../protocol/identity/identity.ts'
import type { IssuedCertificate, MemberRow, SupersededCertificate } from '../store/store.ts'

/** Two agents of one cluster that both act as leader see each other's renewal in their store within less than this. */
export const OVERLAP_MS = 5 * 60_000
/** An agent that is refused has read its store again within this time. */
const LATE_MS = 60_000
/**
 * Limit of replaced certificates that are kept, so that those that were renewed from them are recognized. Doubtful ones
 * have the same limit again.
 */
const MAX_SUPERSEDED = 16
/**
 * Limit of certificates that agents of one cluster renew from the same one at the same time. More do not occur, and
 * would push each other off the list.
 */
const MAX_AT_ONCE = 4
/** Processes that are stored per certificate. The first ones count: a later thief cannot displace them. */
export const MAX_PROCESSES = 8

export type CertificatePeer = Pick<Peer, 'serial' | 'issuedAtMs' | 'renews' | 'expiresAtMs' | 'authority' | 'process'>

export type CertificateValidity =
  /** `row`: stores a process that has not used it before. */
  | { readonly t: 'inUse'; readonly row?: MemberRow }
  /** It may be used, and the member's row is to be replaced by this one. */
  | { readonly t: 'firstUse'; readonly row: MemberRow }
  /** It was replaced a moment ago: it may be used, but not renewed. */
  | { readonly t: 'overlap'; readonly replacedAtMs: number }
  | { readonly t: 'expired'; readonly expiresAtMs: number }
  /**
   * It belongs to this membership and was replaced; the time is undefined if unknown. `row`, if present, stores the
   * late use.
   */
  | { readonly t: 'superseded'; readonly replacedAtMs: number | undefined; readonly row?: MemberRow }
  /** Two parties hold this identity. `row` stores that. Absent if it is stored already. */
  | { readonly t: 'forked'; readonly atMs: number; readonly row?: MemberRow }
  /** An operator has requested a new identity. */
  | { readonly t: 'rekeyed'; readonly atMs: number }
  /** It belongs to no current membership. */
  | { readonly t: 'foreign' }

/** `graceMs`: how long after its end the certificate still counts. Only a renewal has such a time. */
export function certificateValidity(
  row: MemberRow,
  peer: CertificatePeer,
  nowMs: number,
  graceMs = 0,
): CertificateValidity {
  if (row.rekeyedAtMs !== undefined) return { t: 'rekeyed', atMs: row.rekeyedAtMs }
  if (row.forkedAtMs !== undefined) return { t: 'forked', atMs: row.forkedAtMs }
  const serial = normalSerial(peer.serial)
  const renews = peer.renews === undefined ? undefined : normalSerial(peer.renews)
  const at = row.certificates.findIndex((one) => one.serial === serial)
  const known = row.certificates[at]
  const expiresAtMs = known?.expiresAtMs ?? peer.expiresAtMs
  if (expiresAtMs !== undefined && expiresAtMs + graceMs <= nowMs) return { t: 'expired', expiresAtMs }
  // In the grace time the holder of an old copy can be refused, but it cannot make the member forked.
  const isOver = expiresAtMs !== undefined && expiresAtMs <= nowMs
  if (at === 0) return inUse(row, peer.process)
  const use = (first: IssuedCertificate, rest: readonly IssuedCertificate[], untilMs: number): CertificateValidity => ({
    t: 'firstUse',
    row: replace(row, [usedBy(first, peer.process), ...rest], { atMs: nowMs, untilMs, ...replacedBy(peer.process) }),
  })
  // A broker of an earlier release listed the certificates that it issued. The later ones count as not used yet.
  if (known !== undefined) return use(known, row.certificates.slice(at + 1), nowMs + OVERLAP_MS)

  const shown = issued(peer, serial, renews, nowMs)
  const current = row.certificates[0]
  if (current !== undefined && renews === current.serial) return use(shown, [], nowMs + OVERLAP_MS)
  const superseded = row.superseded ?? []
  // Two agents renewed the same certificate at once. The last one that is used before the overlap ends stays in use.
  const parent = superseded.find((one) => one.serial === renews && one.untilMs > nowMs)
  const isFork = current !== undefined && current.renews !== serial
  if (parent !== undefined && isFork && !isOver) {
    const times = { atMs: nowMs, untilMs: parent.untilMs, forked: true, ...replacedBy(peer.process) } as const
    const next = replace(row, [usedBy(shown, peer.process)], times)
    const atOnce = (next.superseded ?? []).filter(({ forked, untilMs }) => forked === true && untilMs > nowMs)
    return atOnce.length < MAX_AT_ONCE ? { t: 'firstUse', row: next } : fork(row, nowMs)
  }
  const own = superseded.find((one) => one.serial === serial)
  if (own !== undefined && own.untilMs > nowMs) return { t: 'overlap', replacedAtMs: own.atMs }
  if (own !== undefined && !isOver && (own.forked === true || mayBeOwners(own, peer)))
    return usedLate(row, own, peer, nowMs)
  if (own === undefined && isOfLostTime(row, peer)) return use(shown, [], nowMs + OVERLAP_MS)
  const isOurs = own ?? superseded.find((one) => one.serial === renews)
  if (isOurs !== undefined || (isIssuedSince(row.joinedAtMs, peer) && !isLaterThanKnown(row, peer))) {
    return { t: 'superseded', replacedAtMs: isOurs?.atMs }
  }
  return { t: 'foreign' }
}

/** Whether the certificate may be the owner's, while another party renewed it. */
function mayBeOwners(own: SupersededCertificate, { process }: CertificatePeer): boolean {
  return othersThan(own).length > 0 && (process === undefined || process !== own.replacedBy)
}

/**
 * Each process of a cluster may use a replaced certificate late once. A process that goes on using it does not read its
 * store, so it shares none. All late processes are stored, so that a thief cannot hide the owner's late use behind one
 * of its own. More processes than the limit count as a fork, since a cluster does not have that many.
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

/** Returns the certificate itself if the use adds nothing. */
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
 * Whether the certificate was issued after everything that the row contains. The issuing broker stores that the member
 * was seen, so such a row is older than the certificate. Certificates are dated in whole seconds.
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

/** Serial numbers come from several libraries: in upper or lower case, with or without leading zeros. */
export function normalSerial(hex: string): string {
  return hex.toLowerCase().replace(/^0+(?=.)/, '')
}

/**
 * Whether our CA issued the certificate to this member between a backup and its restore: the rows that named it are
 * lost. Members renew their certificates daily, so without this a backup of yesterday would know no certificate in use.
 * Only certificates issued no earlier than the one in use are accepted: what it replaced in that time cannot return.
 */
function isOfLostTime({ restored, certificates }: MemberRow, { issuedAtMs }: CertificatePeer): boolean {
  if (restored === undefined || issuedAtMs === undefined) return false
  // Certificates are dated in whole seconds.
  const fromMs = Math.floor(restored.takenAtMs / 1000) * 1000
  return issuedAtMs >= Math.max(fromMs, certificates[0]?.issuedAtMs ?? 0) && issuedAtMs <= restored.atMs
}

/** In the second of the join itself, an earlier membership may have got the certificate. */
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
    // If it is unknown, only the transport checks it.
    expiresAtMs: expiresAtMs ?? nowMs + MEMBER_VALIDITY_MS,
    ...(issuedAtMs === undefined ? {} : { issuedAtMs }),
    ...(renews === undefined ? {} : { renews }),
    ...(authority === undefined ? {} : { authority }),
  }
}

/**
 * The row of a member that shows this certificate, if the use proves that the member has the authorities that were sent
 * with it. Undefined if the row would not change.
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
 * The latest ones, and the first ones that a party other than their user may have renewed: however often a thief renews
 * its certificate, the owner's is recognized when it is shown.
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

/** The processes that used it, other than the one that renewed it. */
function othersThan({ processes = [], replacedBy }: SupersededCertificate): readonly string[] {
  return processes.filter((one) => one !== replacedBy)
}
