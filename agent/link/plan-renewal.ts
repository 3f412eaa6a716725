/** Plans when a certificate is renewed, and detects wrong clocks from it. Pure. */
import { BACKDATE_MS, type CertificateFacts } from '../../protocol/identity/identity.ts'

export interface RenewalTime {
  /** The time of this machine's clock, which may be wrong. */
  readonly nowMs: number
  readonly monotonicMs: number
  /** When this process got the certificate, by the monotonic clock. Undefined if it was loaded at the start. */
  readonly gotAtMs: number | undefined
}

/** The largest accepted clock difference. The broker refuses a join beyond it. */
const MAX_SKEW_MS = 5 * 60_000

/**
 * Milliseconds until the renewal is due; 0 or less means now. It is due after two thirds of the lifetime by the wall
 * clock or the monotonic clock, whichever is first, so that a clock that is behind does not let the certificate expire.
 * If a loaded certificate starts in the future, the clock is wrong and the renewal is due now.
 */
export function renewalDueInMs(facts: CertificateFacts, { nowMs, monotonicMs, gotAtMs }: RenewalTime): number {
  const byClock = facts.renewAtMs - nowMs
  if (gotAtMs === undefined) return nowMs < facts.notBeforeMs ? 0 : byClock
  return Math.min(byClock, gotAtMs + facts.renewAtMs - issuedAtMs(facts) - monotonicMs)
}

/**
 * The message to log if the certificate's issue time is outside the time between request and answer, which shows that
 * the clocks differ. Undefined if they do not.
 */
export function clockSuspicion(facts: CertificateFacts, askedMs: number, nowMs: number): string | undefined {
  const brokerMs = issuedAtMs(facts)
  if (brokerMs >= askedMs - MAX_SKEW_MS && brokerMs <= nowMs + MAX_SKEW_MS) return undefined
  return (
    `check the clock: this machine says ${timeText(nowMs)}, the broker says ${timeText(brokerMs)}: ` +
    'set the one that is wrong (they may differ by 5 minutes)'
  )
}

/**
 * A premature certificate is accepted once 1/LAST_PART of the lifetime has passed since the present one was due for
 * renewal.
 */
const LAST_PART = 6

/**
 * Whether to reject the next certificate because it starts in the future. A replica of the broker then has a clock that
 * is ahead, and the other replicas would refuse the certificate until it starts. It is accepted if the present
 * certificate also starts in the future, since this machine's clock is then behind, and if the present certificate
 * nears its end.
 */
export function isPremature(next: CertificateFacts, present: CertificateFacts, time: RenewalTime): boolean {
  if (next.notBeforeMs <= time.nowMs || present.notBeforeMs > time.nowMs) return false
  return renewalDueInMs(present, time) > -(present.notAfterMs - present.notBeforeMs) / LAST_PART
}

function issuedAtMs({ notBeforeMs }: CertificateFacts): number {
  return notBeforeMs + BACKDATE_MS
}

function timeText(ms: number): string {
  return new Date(ms).toISOString()
}
