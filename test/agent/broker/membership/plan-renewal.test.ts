import fc from 'fast-check'
import t from 'tap'
import { clockSuspicion, isPremature, renewalDueInMs } from '../../../../agent/link/plan-renewal.ts'
import type { CertificateFacts } from '../../../../protocol/identity/certificates.ts'

const HOUR = 3_600_000
const MINUTE = 60_000
const ISSUED = Date.UTC(2026, 0, 1)

/** A certificate with a life of one day, as the broker issues it. */
const FACTS: CertificateFacts = {
  serial: '1',
  notBeforeMs: ISSUED - 5 * MINUTE,
  notAfterMs: ISSUED + 24 * HOUR,
  renewAtMs: ISSUED + 16 * HOUR,
  isCa: false,
  dnsNames: [],
}

t.test('when it is renewed', (t) => {
  const rows: readonly (readonly [string, number, number | undefined, number, number])[] = [
    // Columns: case, this machine's clock after the issue, time of receipt (monotonic), time now (monotonic), due in.
    ['right clocks, at once', 0, 0, 0, 16 * HOUR],
    ['right clocks, later', 10 * HOUR, 0, 10 * HOUR, 6 * HOUR],
    ['right clocks, read from disk', 10 * HOUR, undefined, 7, 6 * HOUR],
    ['17 hours ahead', 17 * HOUR, 0, 0, -HOUR],
    ['10 hours behind: it must not end', -10 * HOUR, 0, 0, 16 * HOUR],
    ['10 hours behind, after 16', 6 * HOUR, 0, 16 * HOUR, 0],
    ['behind, read from disk', -10 * HOUR, undefined, 7, 0],
    ['behind by what it is backdated', -4 * MINUTE, undefined, 7, 16 * HOUR + 4 * MINUTE],
    ['a machine that slept', 20 * HOUR, 0, HOUR, -4 * HOUR],
  ]
  for (const [what, after, gotAtMs, monotonicMs, want] of rows) {
    t.equal(renewalDueInMs(FACTS, { nowMs: ISSUED + after, monotonicMs, gotAtMs }), want, what)
  }
  t.end()
})

t.test('which clocks are doubted', (t) => {
  const doubt = (atMs: number): string | undefined => clockSuspicion(FACTS, atMs, atMs)
  for (const minutes of [-5, 0, 5]) t.equal(doubt(ISSUED + minutes * MINUTE), undefined)
  t.equal(clockSuspicion(FACTS, ISSUED - 20 * MINUTE, ISSUED + 20 * MINUTE), undefined, 'an answer that took long')
  t.equal(
    doubt(ISSUED + 17 * HOUR),
    'check the clock: this machine says 2026-01-01T17:00:00.000Z, the broker says 2026-01-01T00:00:00.000Z: ' +
      'set the one that is wrong (they may differ by 5 minutes)',
  )
  t.match(doubt(ISSUED - 6 * MINUTE), /^check the clock: this machine says 2025-12-31T23:54:00/)
  t.end()
})

t.test('a certificate that begins in the future is not taken while there is time', (t) => {
  const rows: readonly (readonly [string, number, number, boolean])[] = [
    // Columns: case, hours of this machine's clock after the issue of the present certificate, start of the next
    // certificate after that clock, whether it is premature.
    ['right clocks', 16, -5 / 60, false],
    ['a broker that is behind', 16, -3, false],
    ['a broker that is ahead', 16, 3, true],
    ['by a minute beyond what is allowed', 16, 1 / 60, true],
    ['asked before it is due, for other authorities', 2, 3, true],
    ['still, an hour before the last sixth', 19, 3, true],
    ['in the last sixth', 20.1, 3, false],
    ['this machine is behind: the present one is of the future, too', -3, 3, false],
  ]
  for (const [what, hours, begins, want] of rows) {
    const nowMs = ISSUED + hours * HOUR
    const next = { ...FACTS, serial: '2', notBeforeMs: nowMs + begins * HOUR, notAfterMs: nowMs + 24 * HOUR }
    t.equal(isPremature(next, FACTS, { nowMs, monotonicMs: 7, gotAtMs: undefined }), want, what)
  }
  t.end()
})

t.test('whatever the clock says, one that this process got is renewed before it ends', (t) => {
  fc.assert(
    fc.property(fc.integer({ min: -100 * 24, max: 100 * 24 }), fc.nat(24 * 60), (skewHours, minutes) => {
      const elapsed = minutes * MINUTE
      const time = { nowMs: ISSUED + skewHours * HOUR + elapsed, monotonicMs: 1000 + elapsed, gotAtMs: 1000 }
      return elapsed + renewalDueInMs(FACTS, time) <= 16 * HOUR
    }),
  )
  t.end()
})
