/**
 * What happens when a certificate is shown: at its first use it takes the place of the one before. One that has been
 * replaced is reported in the log, by a metric, and in `sealane cluster list`.
 */
import type { Peer } from '../../protocol/broker-api.ts'
import type { Clock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import { memberActor } from '../audit/audit-callers.ts'
import type { Audit } from '../audit/audit-trail.ts'
import { copySource } from '../audit/refusal-pace.ts'
import type { LogView, RecordLog } from '../log/record-log.ts'
import { useCertificate } from './membership-check.ts'
import type { BrokerMetrics } from '../metrics.ts'
import { type MemberRow, isLive } from '../state/state.ts'
import { certificateValidity, confirmedRow, mayBeUsed, normalSerial } from './succession.ts'

/** Of one cluster, logged this often at most: somebody with a copy may try without end. All are counted. */
const REPORT_EVERY_MS = 60_000

const SAID = {
  CertificateCopied: 'a certificate was used after it had been replaced: somebody has a copy of this identity',
  IdentityForked: 'two that hold this identity go on with certificates of their own: none of them is taken any more',
} as const

export interface CertificateUseDeps {
  readonly log: RecordLog
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: Pick<BrokerMetrics, 'superseded'>
  readonly audit: Pick<Audit, 'report' | 'allows'>
}

export class CertificateUse {
  readonly #deps: CertificateUseDeps
  /** By member: when it was logged last, monotonic. */
  readonly #reported = new Map<string, number>()

  constructor(deps: CertificateUseDeps) {
    this.#deps = deps
  }

  /** To be called where a peer asks for something. Whether it gets that is for requireMember() to say. */
  note(peer: Peer): void {
    const { log, clock, logger } = this.#deps
    const row = log.get('member', peer.cluster)
    if (!isLive(row)) return
    const validity = certificateValidity(row, peer, clock.now())
    if (validity.t === 'superseded') this.#report(peer, 'CertificateCopied')
    if (validity.t === 'forked') this.#report(peer, 'IdentityForked')
    const isChange = 'row' in validity || confirmedRow(row, peer) !== undefined
    const isNews = mayBeUsed(validity) && isChange
    if (!isNews) return
    const failed = (error: unknown): void => {
      // Where it was not written, the next use writes it.
      logger.debug('first use of a certificate not noted', { cluster: peer.cluster, why: String(error) })
    }
    log.transact((tx) => void useCertificate(tx, peer, clock.now())).catch(failed)
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
    // What a use changes is written down also where nothing more is said: who shows another copy without end must not
    // keep it from that.
    const changedRow = (tx: Pick<LogView, 'get'>): MemberRow | undefined => {
      const row = tx.get('member', cluster)
      // Of a fork, the one that was shown first is named: both go on asking.
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
    noted.catch((error: unknown) => logger.debug('misuse not noted', { cluster, why: String(error) }))
  }

  /** Of one cluster, once a minute; that it is forked, once more. */
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
