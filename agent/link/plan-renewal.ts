/** When a certificate is to be renewed, and what it says of the clocks. Pure. */
import { BACKDATE_MS, type CertificateFacts } from '../../protocol/identity/identity.ts'

export interface RenewalTime {
  /** By the clock of this machine, which may be wrong. */
  readonly nowMs: number
  readonly monotonicMs: number
  /** When this process got the certificate, by the monotonic clock. */
  readonly gotAtMs: number | undefined
}

/** Clocks may differ by this much: the broker refuses a join beyond it as well. */
const MAX_SKEW_MS = 5 * 60_000

/**
 * Milliseconds until it is to be renewed; 0 or less: now. After two thirds of its life, by whichever clock says so
 * first: one that is behind must not let it end, and one of which a certificate comes from the future is asked nothing.
 */
export function renewalDueInMs(facts: CertificateFacts, { nowMs, monotonicMs, gotAtMs }: RenewalTime): number {
  const byClock = facts.renewAtMs - nowMs
  if (gotAtMs === undefined) return nowMs < facts.notBeforeMs ? 0 : byClock
  return Math.min(byClock, gotAtMs + facts.renewAtMs - issuedAtMs(facts) - monotonicMs)
}

/**
 * What to log where a certificate that was requested and came in this time shows that the clocks differ; undefined:
 * they do not.
 */
export function clockDoubt(facts: CertificateFacts, askedMs: number, nowMs: number): string | undefined {
  const brokerMs = issuedAtMs(facts)
  if (brokerMs >= askedMs - MAX_SKEW_MS && brokerMs <= nowMs + MAX_SKEW_MS) return undefined
  return (
    `check the clock: this machine says ${timeText(nowMs)}, the broker says ${timeText(brokerMs)}: ` +
    'set the one that is wrong (they may differ by 5 minutes)'
  )
}

/** This part of the life of the present one is left when a premature one is taken all the same. */
const LAST_PART = 6

/**
 * The next certificate begins in the future: a replica of the broker has a clock that is ahead, and the others would
 * refuse it until then. It is not taken while the present one has time, unless this machine is the one that is behind,
 * as the present one shows, or may be: towards its end any other is better.
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
