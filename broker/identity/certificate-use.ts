/** Whether a peer may act as a member: checks the current membership and the certificate that the peer shows. */
import { type Peer, RefusedError } from '../../protocol/protocol.ts'
import { formatDuration } from '../../runtime/runtime.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { type Audit, copySource, memberActor } from '../audit/audit.ts'
import type { BrokerMetrics } from '../config/config.ts'
import { denied, quote } from '../records/records.ts'
import {
  AUTHORITY_KEY,
  type LogView,
  type MemberRow,
  type RecordLog,
  type Transaction,
  isLive,
  timeText,
} from '../store/store.ts'
import { acceptedAuthorities } from './plan-rotation.ts'
import {
  type CertificatePeer,
  type CertificateValidity,
  certificateValidity,
  confirmedRow,
  isLaterThanKnown,
  mayBeUsed,
  normalSerial,
} from './succession.ts'

/**
 * The row of the peer. Throws RefusedError (PermissionDenied, Unauthenticated) unless the peer is a member now and
 * shows a usable certificate of its current membership. `graceMs`: see certificateValidity().
 */
export function requireMember(view: LogView, peer: Peer, nowMs: number, graceMs = 0): MemberRow {
  const row = view.get('member', peer.cluster)
  const name = quote(peer.cluster)
  if (row === undefined)
    throw denied('NotAMember', `cluster ${name} is not a member of this clusterset: join with a token`)
  if (row.departedAtMs !== undefined) {
    const at = timeText(row.departedAtMs)
    if (row.departure !== 'evicted')
      throw denied('MemberLeft', `cluster ${name} left at ${at}: join again with a new token`)
    throw denied('MemberEvicted', `cluster ${name} was evicted at ${at}: join again with a new token`)
  }
  refuseAuthority(view, peer)
  refuseCertificate(certificateValidity(row, peer, nowMs, graceMs), peer, graceMs)
  return row
}

/**
 * As requireMember(), for a request of the peer: stores the first use of a certificate, which then replaces the one
 * before it.
 */
export function useCertificate(tx: Transaction, peer: Peer, nowMs: number, graceMs = 0): MemberRow {
  const row = requireMember(tx, peer, nowMs, graceMs)
  const validity = certificateValidity(row, peer, nowMs, graceMs)
  const used = validity.t === 'firstUse' || validity.t === 'inUse' ? (validity.row ?? row) : row
  const next = confirmedRow(used, peer) ?? used
  if (next !== row) tx.put('member', peer.cluster, next)
  return next
}

/**
 * As useCertificate(), for a renewal, which a certificate may still request for `graceMs` after its end. Throws
 * RefusedError for a certificate that has been replaced.
 */
export function useToRenew(tx: Transaction, peer: Peer, nowMs: number, graceMs: number): MemberRow {
  const row = useCertificate(tx, peer, nowMs, graceMs)
  const validity = certificateValidity(row, peer, nowMs, graceMs)
  if (validity.t !== 'overlap') return row
  const at = timeText(validity.replacedAtMs)
  throw denied(
    'CertificateReplaced',
    `certificate ${normalSerial(peer.serial)} of cluster ${quote(peer.cluster)} was replaced at ${at}: renew the newer certificate instead`,
  )
}

/**
 * Whether the certificate of this peer belongs to the current membership and may be used. Streams that an evicted or
 * succeeded member left open do not belong to its successor.
 */
export function isOfMembership(view: LogView, peer: CertificatePeer & Pick<Peer, 'cluster'>, nowMs: number): boolean {
  const row = view.get('member', peer.cluster)
  return isLive(row) && isAccepted(view, peer) && mayBeUsed(certificateValidity(row, peer, nowMs))
}

/**
 * Whether the CA has issued to this peer a certificate that the rows lack and cannot have forgotten. If so, the rows
 * are older than the certificate, or of another time.
 */
export function isUnknownHere(view: LogView, peer: Peer, nowMs: number): boolean {
  const row = view.get('member', peer.cluster)
  if (row === undefined) return true
  return certificateValidity(row, peer, nowMs).t === 'foreign' && isLaterThanKnown(row, peer)
}

/** The port checks each new connection. This check is for connections that were open when an authority was removed. */
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

function refuseCertificate(validity: CertificateValidity, peer: Peer, graceMs: number): void {
  const name = quote(peer.cluster)
  const certificate = `certificate ${normalSerial(peer.serial)} of cluster ${name}`
  switch (validity.t) {
    case 'inUse':
    case 'firstUse':
    case 'overlap':
      return
    case 'expired': {
      const grace = graceMs === 0 ? '' : `, and the broker renews it for ${formatDuration(graceMs)} after that`
      const text = `${certificate} expired at ${timeText(validity.expiresAtMs)}${grace}: join again with a new token`
      throw new RefusedError('CertificateExpired', 'certificate', text)
    }
    case 'forked': {
      const at = timeText(validity.atMs)
      throw denied(
        'IdentityForked',
        `cluster ${name} uses two certificates that were renewed from the same one, so a copy of its identity ` +
          `is in use: the broker has refused both since ${at}; to replace the identity, run "sealane cluster rekey ${peer.cluster}" on the ` +
          'broker',
      )
    }
    case 'rekeyed': {
      const at = timeText(validity.atMs)
      throw denied(
        'MemberRekeyed',
        `the identity of cluster ${name} was revoked at ${at} to replace it: join again with the token that was created for it`,
      )
    }
    case 'superseded': {
      const at = validity.replacedAtMs === undefined ? '' : ` at ${timeText(validity.replacedAtMs)}`
      throw denied(
        'CertificateCopied',
        `${certificate} was replaced by a renewed one${at}, so this is a copy: if the cluster itself is refused, ` +
          `its key was stolen; to replace the identity, run "sealane cluster rekey ${peer.cluster}" on the broker`,
      )
    }
    case 'foreign':
      throw denied(
        'CertificateForeign',
        `${certificate} was replaced: another site has joined as ${name}, or this one has joined again`,
      )
  }
}

/** Interval of log lines per cluster: the holder of a copy may try without end. All uses are counted. */
const REPORT_EVERY_MS = 60_000

const SAID = {
  CertificateCopied: 'a certificate was used after it had been replaced: a copy of this identity exists',
  IdentityForked: 'two processes use this identity with different certificates: the broker accepts neither',
} as const

interface CertificateUseDeps {
  readonly log: RecordLog
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: Pick<BrokerMetrics, 'superseded'>
  readonly audit: Pick<Audit, 'report' | 'allows'>
}

/**
 * Handles the use of certificates: at its first use, a certificate replaces the one before it. Use of a replaced
 * certificate is reported in the log, by a metric, and in `sealane cluster list`.
 */
export class CertificateUse {
  readonly #deps: CertificateUseDeps
  /** When a use was last logged for each member, on the monotonic clock. */
  readonly #reported = new Map<string, number>()

  constructor(deps: CertificateUseDeps) {
    this.#deps = deps
  }

  /**
   * The caller runs it for each request of a peer. requireMember() decides whether the request is granted. `graceMs`:
   * see certificateValidity().
   */
  note(peer: Peer, graceMs = 0): void {
    const { log, clock, logger } = this.#deps
    const row = log.get('member', peer.cluster)
    if (!isLive(row)) return
    const validity = certificateValidity(row, peer, clock.now(), graceMs)
    if (validity.t === 'superseded') this.#report(peer, 'CertificateCopied')
    if (validity.t === 'forked') this.#report(peer, 'IdentityForked')
    const isChange = 'row' in validity || confirmedRow(row, peer) !== undefined
    const isNews = mayBeUsed(validity) && isChange
    if (!isNews) return
    const failed = (error: unknown): void => {
      // If the write fails, the next use writes it.
      logger.debug('cannot store the first use of a certificate', { cluster: peer.cluster, why: String(error) })
    }
    log.transact((tx) => void useCertificate(tx, peer, clock.now(), graceMs)).catch(failed)
  }

  #report(peer: Peer, reason: keyof typeof SAID): void {
    const { clock, logger, metrics, log } = this.#deps
    metrics.superseded.inc()
    const { cluster, address } = peer
    const misuse = { atMs: clock.now(), serial: normalSerial(peer.serial), address }
    const isSaid = this.#isNews(cluster, reason)
    if (isSaid) {
      logger.error(SAID[reason], {
        audit: 'certificate-stolen',
        reason,
        cluster,
        serial: misuse.serial,
        address,
        advice: `sealane cluster rekey ${cluster}`,
      })
      this.#audit(peer, misuse.serial, reason)
    }
    // The change of the row is stored even if nothing is logged: a caller that keeps showing another copy must not
    // prevent that.
    const changedRow = (tx: Pick<LogView, 'get'>): MemberRow | undefined => {
      const row = tx.get('member', cluster)
      // For a fork, the row keeps naming the certificate that was shown first: both parties keep sending requests.
      if (!isLive(row) || row.forkedAtMs !== undefined) return undefined
      const validity = certificateValidity(row, peer, clock.now())
      const written = validity.t === 'forked' || validity.t === 'superseded' ? validity.row : undefined
      return written ?? (isSaid ? row : undefined)
    }
    if (changedRow(log) === undefined) return
    const noted = log.transact((tx) => {
      const row = changedRow(tx)
      if (row !== undefined) tx.put('member', cluster, { ...row, misuse })
    })
    noted.catch((error: unknown) =>
      logger.debug('cannot store the misuse of a certificate', { cluster, why: String(error) }),
    )
  }

  /** Limits reports to one a minute per cluster, plus one when the identity becomes forked. */
  #isNews(cluster: string, reason: keyof typeof SAID): boolean {
    const { clock, log } = this.#deps
    const now = clock.monotonic()
    const reported = this.#reported.get(cluster)
    const isFork = log.get('member', cluster)?.forkedAtMs === undefined && reason === 'IdentityForked'
    if (!isFork && reported !== undefined && now - reported < REPORT_EVERY_MS) return false
    for (const [one, at] of this.#reported) if (now - at >= REPORT_EVERY_MS) this.#reported.delete(one)
    this.#reported.set(cluster, now)
    return true
  }

  #audit(peer: Peer, serial: string, reason: keyof typeof SAID): void {
    const { audit } = this.#deps
    const { cluster } = peer
    if (!audit.allows(copySource(cluster))) return
    audit.report({
      act: 'certificate.copied',
      result: 'refused',
      reason,
      who: memberActor(peer),
      subject: cluster,
      details: { serial },
    })
  }
}
