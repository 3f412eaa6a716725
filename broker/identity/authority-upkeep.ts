/**
 * The regular work of a running broker on its authorities, also done after each decision: it serves by the signing
 * authority, advances a rotation once nothing waits for it, and warns of authorities that expire. All state is read
 * from the store, so any replica can do it, and a restarted broker continues.
 */
import { messageOf, reasonOf } from '../../runtime/runtime.ts'
import { reasonField } from '../../protocol/transport/transport.ts'
import { readCertificate } from '../../protocol/identity/identity.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { type AuditInit, type AuthorityRow, type RecordLog, timeText } from '../store/store.ts'
import { keepEvent } from '../audit/audit.ts'
import type { BrokerMetrics } from '../config/config.ts'
import type { CertificateAuthority } from './certificate-authority.ts'
import { factsOf } from './authority-keys.ts'
import { signingAuthority } from './plan-rotation.ts'
import { type Advance, advance, dueAdvance, waitingNow } from './rotation.ts'

/** Remaining lifetime below which an authority should be rotated. */
export const EXPIRES_SOON_MS = 180 * 24 * 3_600_000
/** Interval at which a continuing problem is logged again. */
const SAY_AGAIN_MS = 24 * 3_600_000
/** Wait before a key that could not be used is tried again. */
const TRY_AGAIN_MS = 5000

export interface AuthorityUpkeepDeps {
  readonly authority: CertificateAuthority
  readonly log: RecordLog
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: Pick<
    BrokerMetrics,
    'authorityCreated' | 'authorityExpiry' | 'authorityUsable' | 'authorityWaiting' | 'certificateExpiry'
  >
  /** Called when the port must serve and trust what CertificateAuthority.tls() returns now. */
  readonly onTls: () => void
}

export class AuthorityUpkeep {
  readonly #deps: AuthorityUpkeepDeps
  /** When each message was logged, on the monotonic clock. */
  readonly #said = new Map<string, number>()
  /** Time of the next attempt, on the monotonic clock. */
  #tryAtMs = 0

  constructor(deps: AuthorityUpkeepDeps) {
    this.#deps = deps
  }

  /**
   * The caller runs it about every ten seconds, every second during a rotation, and after each decision. Throws
   * StateError if the store or a file cannot be used.
   */
  async round(): Promise<void> {
    const { authority, log, clock, onTls } = this.#deps
    await this.#try(() => authority.refresh())
    const due = dueAdvance(log, clock.now())
    if (due !== undefined) await this.#try(() => this.#advance(due))
    // Which authorities are trusted applies even if the key of the signing authority cannot be used now.
    if (authority.hasChanged()) onTls()
    this.#measure()
  }

  async #advance(due: Advance): Promise<void> {
    const { authority, log, clock, logger } = this.#deps
    const { next } = authority.row
    if (next === undefined) return
    if (due === 'switched') await authority.prepare(next)
    const details = { authority: next.fingerprint }
    const act = due === 'switched' ? 'authority.switch' : 'authority.drop'
    const event: AuditInit = { act, result: 'ok', who: { kind: 'broker' }, subject: next.fingerprint, details }
    const done = await log.transact((tx) => {
      const row = advance(tx, due, clock.now())
      if (row !== undefined) keepEvent(tx, event, clock.now())
      return row
    })
    if (done === undefined) return
    logger.info(
      due === 'switched' ? 'the new certificate authority is in use' : 'the withdrawn certificate authority is removed',
      details,
    )
    await authority.refresh()
  }

  /**
   * Failures of a signer and missing keys are logged, and the work is tried again after a while. The rest of the round
   * continues.
   */
  async #try(work: () => Promise<void>): Promise<void> {
    const { clock, logger, metrics } = this.#deps
    if (clock.monotonic() < this.#tryAtMs) return
    try {
      await work()
      metrics.authorityUsable.set(1)
    } catch (error) {
      const reason = reasonField(error).reason ?? reasonOf(error)
      if (reason === undefined) throw error
      this.#tryAtMs = clock.monotonic() + TRY_AGAIN_MS
      const why = messageOf(error)
      metrics.authorityUsable.set(0)
      if (this.#isDue(`${reason} ${why}`)) logger.error('cannot use the certificate authority', { reason, why })
    }
  }

  #measure(): void {
    const { authority, log, clock, metrics } = this.#deps
    const { row } = authority
    const nowMs = clock.now()
    for (const [role, one] of [['current', row.current] as const, ['next', row.next] as const]) {
      const facts = one === undefined ? undefined : factsOf(one)
      metrics.authorityCreated.set(seconds(facts?.notBeforeMs), { role })
      metrics.authorityExpiry.set(seconds(facts?.notAfterMs), { role })
    }
    metrics.certificateExpiry.set(seconds(readCertificate(authority.tls().certificate).notAfterMs))
    const { members, tokens } = row.next === undefined ? { members: [], tokens: [] } : waitingNow(log, row, nowMs)
    metrics.authorityWaiting.set(members.length, { what: 'members' })
    metrics.authorityWaiting.set(tokens.length, { what: 'tokens' })
    this.#warnOfEnd(row, nowMs)
  }

  #warnOfEnd(row: AuthorityRow, nowMs: number): void {
    const { logger } = this.#deps
    const signing = signingAuthority(row)
    const { notAfterMs } = factsOf(signing)
    if (notAfterMs - nowMs > EXPIRES_SOON_MS || !this.#isDue(`end ${signing.fingerprint}`)) return
    logger.warn('the certificate authority expires soon', {
      reason: 'AuthorityExpires',
      authority: signing.fingerprint,
      until: timeText(notAfterMs),
      advice: 'sealane broker ca rotate',
    })
  }

  #isDue(what: string): boolean {
    const nowMs = this.#deps.clock.monotonic()
    for (const [known, atMs] of this.#said) if (nowMs - atMs >= SAY_AGAIN_MS) this.#said.delete(known)
    if (this.#said.has(what)) return false
    this.#said.set(what, nowMs)
    return true
  }
}

/** 0 if there is no such authority. */
function seconds(ms: number | undefined): number {
  return ms === undefined ? 0 : Math.floor(ms / 1000)
}
