/** The outcome of each result, and the table, the JUnit file and the screen of the benchmark. */
import { join } from 'node:path'
import t from 'tap'
import { type Benchmark, benchmarkText, plot } from '../../../cli/status/verify/benchmark.ts'
import {
  type CheckRow,
  type Outcome,
  answerOutcome,
  bulkOutcome,
  datagramOutcome,
  failureOutcome,
  healthOf,
  nameOutcome,
  refusalOutcome,
  rowOf,
  searchOutcome,
  sourceOutcome,
  srvOutcome,
  steadyOutcome,
  throughputOutcome,
} from '../../../cli/status/verify/check-outcome.ts'
import { FAILURES, failedCall } from '../../../cli/status/verify/probe-wire.ts'
import { verifyJunit, verifyReport, verifyText } from '../../../cli/status/verify/verify-report.ts'
import { equalsGolden } from '../../support/golden.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { runCli } from '../run-cli.ts'

const hello = (member: string) => ({ ok: true, value: { member, pod: 'p', from: '10.42.0.9', ms: 1.234 } }) as const

t.test('what each result comes to', async (t) => {
  const refused = failedCall('refused', 'connect ECONNREFUSED')
  const name = 'web.shop.svc.clusterset.local.example.org'
  const rows: readonly (readonly [outcome: Outcome, text: string])[] = [
    [answerOutcome(hello('c2'), 'c2'), '1.23 ms'],
    [answerOutcome(hello('c3'), 'c2'), 'VerifyForeignAnswer: c3 answered'],
    [answerOutcome(refused, 'c2'), 'VerifyNotAnswered: connect ECONNREFUSED'],
    [refusalOutcome(hello('c2')), 'VerifyAnswered: answered'],
    [refusalOutcome(refused), 'no answer (refused)'],
    [refusalOutcome(failedCall('timeout', '')), 'no answer (timeout)'],
    [refusalOutcome(failedCall('other', 'no pod')), 'VerifyPodFailed: no pod'],
    [nameOutcome(['245.0.0.5', 'fd01::5'], ['245.0.0.5'], 4), '245.0.0.5'],
    [nameOutcome(['245.0.0.6'], ['245.0.0.5'], 4), 'VerifyNameUnresolved: 245.0.0.6'],
    [nameOutcome(['245.0.0.5'], ['245.0.0.5'], 6), 'VerifyNameUnresolved: no address'],
    [srvOutcome({ srv: [{ name: 'x', port: 7203 }] }, 7203), '1 of port 7203'],
    [srvOutcome({ srv: [] }, 7203), 'VerifyNameUnresolved: no record'],
    [searchOutcome({ before: [], ndots: 1 }), 'ndots:1: the name is asked for at once'],
    [
      searchOutcome({ before: [{ name, addresses: 0 }], ndots: 5 }),
      'ndots:5: 2 queries before the right one; a dot at the end avoids them',
    ],
    [searchOutcome({ before: [{ name, addresses: 1 }], ndots: 5 }), `VerifySearchAnswers: ${name} has an address`],
    [bulkOutcome({ ms: 12, bytes: 9, isSame: true }), '9 octets there and back in 12 ms'],
    [
      bulkOutcome({ ms: 12, bytes: 9, isSame: false }),
      'VerifyDamaged: 9 octets there and back in 12 ms, changed on the way',
    ],
    [
      datagramOutcome({ passed: [32_000, 1392, 1200] }, 4),
      'largest 32000 octets; unfragmented 1392, which is an MTU of 1420 or a little more',
    ],
    [datagramOutcome({ passed: [] }, 6), 'VerifyDamaged: none passed'],
    [sourceOutcome('10.42.0.9', ['10.42.0.9']), 'seen as 10.42.0.9'],
    [sourceOutcome('192.0.2.1', ['10.42.0.9']), 'VerifySourceChanged: seen as 192.0.2.1, not as 10.42.0.9'],
    [throughputOutcome({ ms: 1000, bytes: 125_000_000 }, undefined), '1.00 Gbit/s'],
    [throughputOutcome({ ms: 1000, bytes: 125_000 }, 5e6), 'VerifySlow: 1.00 Mbit/s, less than 5.00 Mbit/s'],
    [steadyOutcome({ sent: 100, lost: 0, longestMs: 1500 }), '0 of 100 calls lost, the longest took 1.5 s'],
    [
      steadyOutcome({ sent: 100, lost: 2, longestMs: 9 }),
      'VerifyCallsLost: 2 of 100 calls lost, the longest took 9.00 ms',
    ],
  ]
  for (const [{ measured, reason }, text] of rows)
    t.equal(reason === undefined ? measured : `${reason}: ${measured}`, text)
  for (const failure of FAILURES) t.not(failureOutcome(failedCall(failure, '')).reason, undefined, failure)
})

const row = (check: CheckRow['check'], outcome: Outcome, rest: Partial<Parameters<typeof rowOf>[0]> = {}): CheckRow =>
  rowOf({ check, isSkipped: false, ...rest }, 'c1 → c2', outcome, 12.4)

const ROWS: readonly CheckRow[] = [
  row('import', { measured: '245.0.0.5 after 1.2 s' }),
  row('tcp', { measured: '1.20 ms' }, { family: 4 }),
  row('udp', { measured: 'a <b> & "c"\u001b[2J', reason: 'VerifyNotAnswered' }, { family: 4 }),
  row('failover', { measured: '--failover drains a gateway', reason: 'VerifySkipped' }, { isSkipped: true }),
  rowOf({ check: 'import', isSkipped: true }, 'c2 → c1', { measured: 'exposes nothing', reason: 'VerifySkipped' }, 0),
]

t.test('table, JUnit and exit codes', async (t) => {
  const report = verifyReport(ROWS, { run: 'r', namespace: 'n', members: ['c1', 'c2'] })
  t.match(report, { health: 'down', passed: 2, failed: 1, skipped: 2 })
  equalsGolden(t, verifyText(report), 'verify/table.txt')
  equalsGolden(t, verifyJunit(report), 'verify/junit.xml')
  t.equal(healthOf(ROWS.filter(({ result }) => result !== 'fail')), 'healthy', 'what is left out is no failure')
  t.equal(healthOf(ROWS.filter(({ result }) => result === 'skip')), 'unknown', 'nothing was shown')
  t.equal(healthOf([row('import', { measured: '' })]), 'unknown', 'an import is no call')
  t.equal(healthOf([row('throughput', { measured: '', reason: 'VerifySlow' })]), 'degraded')
})

t.test('the screen of the benchmark', async (t) => {
  const all: readonly Benchmark[] = [
    {
      way: 'c1 → c2',
      oneStream: 900e6,
      eightStreams: 2.4e9,
      latency: { p50: 0.8, p99: 2.5, p999: 11, count: 650, asked: 2000 },
      loss: { share: 0.001, jitterMs: 0.12 },
      failed: [],
    },
    { way: 'inside c1', oneStream: 9e9, failed: ['loss and jitter: no answer within 5000 ms'] },
  ]
  equalsGolden(t, benchmarkText(all), 'verify/benchmark.txt')
  t.equal(plot([{ label: 'a', value: 0, shown: '-' }]), 'a  -\n')
})

t.test('a JUnit file that cannot be written is an error before the run', async (t) => {
  const file = join(temporaryFolder(t), 'missing', 'verify.xml')
  const { code, stderr } = await runCli(['verify', '--context', 'c1', '--to-context', 'c2', '--junit', file])
  t.equal(code, 3)
  t.match(stderr, /--junit ".*verify.xml" cannot be written: ENOENT/)
})
