/** Who may speak for a member: the membership as it is now, and the certificate that the peer shows. */
import { type Peer, RefusedError } from '../../protocol/broker-api.ts'
import { quote } from '../admission/admission-checks.ts'
import type { LogView, Transaction } from '../log/record-log.ts'
import { acceptedAuthorities } from '../authority/plan-rotation.ts'
import { AUTHORITY_KEY, type MemberRow, isLive, timeText } from '../state/state.ts'
import {
  type CertificatePeer,
  type CertificateValidity,
  certificateValidity,
  confirmedRow,
  isLaterThanKnown,
  mayBeUsed,
  normalSerial,
} from './succession.ts'
import { denied } from './refused.ts'

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
  refuseAuthority(view, peer)
  refuseCertificate(certificateValidity(row, peer, nowMs), peer)
  return row
}

/**
 * As requireMember(), where the peer asks for something now: a certificate that is used for the first time takes its
 * place.
 */
export function useCertificate(tx: Transaction, peer: Peer, nowMs: number): MemberRow {
  const row = requireMember(tx, peer, nowMs)
  const validity = certificateValidity(row, peer, nowMs)
  const used = validity.t === 'firstUse' || validity.t === 'inUse' ? (validity.row ?? row) : row
  const next = confirmedRow(used, peer) ?? used
  if (next !== row) tx.put('member', peer.cluster, next)
  return next
}

/** As useCertificate(), for a renewal: one that has been replaced has nothing to renew. */
export function useToRenew(tx: Transaction, peer: Peer, nowMs: number): MemberRow {
  const row = useCertificate(tx, peer, nowMs)
  const validity = certificateValidity(row, peer, nowMs)
  if (validity.t !== 'overlap') return row
  const at = timeText(validity.replacedAtMs)
  throw denied(
    'CertificateReplaced',
    `certificate ${normalSerial(peer.serial)} of cluster ${quote(peer.cluster)} was replaced at ${at}: renew the newer one`,
  )
}

/**
 * Whether the certificate that this peer showed belongs to the membership as it is now, and may be used. What an
 * evicted or succeeded member has left open is not its successor's.
 */
export function isOfMembership(view: LogView, peer: CertificatePeer & Pick<Peer, 'cluster'>, nowMs: number): boolean {
  const row = view.get('member', peer.cluster)
  return isLive(row) && isAccepted(view, peer) && mayBeUsed(certificateValidity(row, peer, nowMs))
}

/**
 * Whether the CA has given this peer a certificate that these rows do not know of and cannot have forgotten: then they
 * are older than it, or of another time.
 */
export function isUnknownHere(view: LogView, peer: Peer, nowMs: number): boolean {
  const row = view.get('member', peer.cluster)
  if (row === undefined) return true
  return certificateValidity(row, peer, nowMs).t === 'foreign' && isLaterThanKnown(row, peer)
}

/** The port looks at each new connection; this is for those that were open when an authority was removed. */
function isAccepted(view: LogView, { authority }: Pick<CertificatePeer, 'authority'>): boolean {
  const row = authority === undefined ? undefined : view.get('authority', AUTHORITY_KEY)
  return row === undefined || acceptedAuthorities(row).some(({ fingerprint }) => fingerprint === authority)
}

function refuseAuthority(view: LogView, peer: Peer): void {
  if (isAccepted(view, peer)) return
  const text =
    `certificate ${normalSerial(peer.serial)} of cluster ${quote(peer.cluster)} was issued by an authority that was ` +
    'removed: join again with a new token'
  throw new RefusedError('CertificateAuthorityRemoved', 'certificate', text)
}

function refuseCertificate(validity: CertificateValidity, peer: Peer): void {
  const name = quote(peer.cluster)
  const certificate = `certificate ${normalSerial(peer.serial)} of cluster ${name}`
  switch (validity.t) {
    case 'inUse':
    case 'firstUse':
    case 'overlap':
      return
    case 'expired': {
      const text = `${certificate} expired at ${timeText(validity.expiresAtMs)}: join again with a new token`
      throw new RefusedError('CertificateExpired', 'certificate', text)
    }
    case 'forked': {
      const at = timeText(validity.atMs)
      throw denied(
        'IdentityForked',
        `cluster ${name} is used with two certificates that were renewed from one, so somebody has a copy of its ` +
          `identity: none of its certificates is taken since ${at}; "sealane cluster rekey ${peer.cluster}" on the ` +
          'broker makes it a new identity',
      )
    }
    case 'rekeyed': {
      const at = timeText(validity.atMs)
      throw denied(
        'MemberRekeyed',
        `cluster ${name} gets a new identity since ${at}: join again with the token that was made for it`,
      )
    }
    case 'superseded': {
      const at = validity.replacedAtMs === undefined ? '' : ` at ${timeText(validity.replacedAtMs)}`
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
