/** Compromised parts of ours, as `sealane diagnose` shows them to an operator. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { diagnosisText } from '../../cli/status/diagnosis.ts'
import { readReport } from '../../explain/facts/fact.ts'
import { diagnoseMember } from '../../explain/diagnose-member.ts'
import { HEALTHY_BROKER, factSet, healthyObjects, healthyReports } from '../support/objects/member-facts.ts'
import { attack } from './support/attack.ts'

t.setTimeout(120_000)

const TIMES = { since: '2026-11-25T11:00:00Z', last: '2026-11-25T11:59:59Z' }
/** What is true of another part, whatever the compromised one reports. */
const TRUE = { ...HEALTHY_BROKER, answeredMs: 900 }

/** The text that is printed when one part sends this report beside healthy parts. */
function seenWith(part: string, report: object): string {
  const said = { version: '0.1.0', ready: true, ...report }
  const lie = readReport(said, { name: 'mallory', source: 'pod mallory', at: new Date(), part })
  const facts = factSet(healthyObjects({ services: 3 }), [...healthyReports(TRUE), lie])
  return diagnosisText(diagnoseMember(facts), undefined, true)
}

function holds(part: string, report: object, say: string): void {
  const text = seenWith(part, report)
  assert.ok(text.length < 40_000, `${say}: ${text.length} characters`)
  assert.doesNotMatch(text.replaceAll('\n', ''), /\p{Cc}/u, say)
  // Only the agent reports about the broker, so that report counts as its own.
  const isAgents = part === 'agent' && 'broker' in report
  if (!isAgents) assert.match(text, /StoreSlow/, `${say}: what is true of the others`)
}

const EVIL = '\u001b[2J\u0000\r\nhealthy\u009b'
const refusal = (more: object = {}) => ({ code: 'AdmissionRefuses', what: 'patch pods', places: 1, ...TIMES, ...more })

/** From the name of a false report to its fields. */
const LIES: Readonly<Record<string, object>> = {
  'control characters': { version: EVIL, refused: [refusal({ what: EVIL, by: EVIL, since: EVIL, last: EVIL })] },
  'a hundred refusals': {
    refused: Array.from({ length: 100 }, (_, i) => refusal({ what: `patch ${'x'.repeat(9000)}${i}` })),
  },
  'ten thousand refusals': { refused: Array.from({ length: 10_000 }, () => refusal()) },
  'megabytes of one': { refused: [refusal({ by: 'x'.repeat(4 << 20) })] },
  'codes that are none': {
    refused: [refusal({ code: EVIL }), refusal({ code: '__proto__' }), refusal({ code: 'toString' })],
  },
  'a clock of another age': { broker: { ...HEALTHY_BROKER, aheadMs: Number.MAX_SAFE_INTEGER, since: TIMES.last } },
  'a clock that is none': { broker: { ...HEALTHY_BROKER, aheadMs: 1e300, since: TIMES.last } },
  'numbers that are none': { refused: [refusal({ places: -1 })], files: { used: 1e300, limit: -1 } },
  'no report at all': { part: EVIL.repeat(100), ready: 'yes' },
}

/** An arbitrary report: any value below the names of the fields that are read. */
const anyReport = fc.record(
  {
    ...Object.fromEntries(
      ['part', 'name', 'version', 'ready', 'startedAt', 'now', 'files', 'notImported', 'imports', 'joinRefused'].map(
        (field) => [field, fc.jsonValue()],
      ),
    ),
    broker: fc.record({ ...Object.fromEntries(Object.keys(HEALTHY_BROKER).map((field) => [field, fc.jsonValue()])) }),
    refused: fc.array(
      fc.record({ code: fc.string(), what: fc.string(), by: fc.string(), places: fc.nat(), since: fc.string() }),
    ),
  },
  { requiredKeys: [] },
)

await attack('part-lies-on-its-page', async (t) => {
  for (const [name, lie] of Object.entries(LIES)) {
    for (const part of ['agent', 'gateway', 'dns']) holds(part, lie, `${part}: ${name}`)
    t.pass(name)
  }
  t.match(
    seenWith('gateway', LIES['ten thousand refusals'] ?? {}),
    /NotReadable, a fact\n.*report\.refused: .*\(pod mallory\)/,
  )
  const old = LIES['a clock of another age'] ?? {}
  t.match(seenWith('agent', old), /BrokerClockDiffers, .*\n.*\(pod mallory\)/, 'whose word it is')
  for (const part of ['gateway', 'dns']) t.notMatch(seenWith(part, { ...old, part: 'agent' }), /BrokerClockDiffers/)
  fc.assert(
    fc.property(fc.constantFrom('agent', 'gateway', 'routeagent', 'dns'), anyReport, (part, lie) =>
      holds(part, lie, 'anything'),
    ),
    { numRuns: 100 },
  )
})
