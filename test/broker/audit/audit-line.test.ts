/** The format of the audit log, on which other programs rely, stays valid whatever input strangers send. */
import fc from 'fast-check'
import t from 'tap'
import {
  AUDIT_ACTS,
  type AuditActor,
  type AuditEvent,
  type AuditValue,
  auditEvent,
} from '../../../broker/store/audit-event.ts'
import { MAX_LINE_BYTES, auditLine } from '../../../broker/audit/audit-line.ts'
import type { ReasonCode } from '../../../model/reasons/reasons.ts'

const AT = Date.parse('2026-01-31T12:00:00.007Z')
const ID = '019c1400-0000-7000-8000-000000000001'

interface Line {
  readonly v: number
  readonly time: string
  readonly id: string
  readonly result: string
  readonly reason?: string
  readonly who: Record<string, AuditValue>
  readonly what: { readonly act: string; readonly subject?: string; readonly details?: Record<string, AuditValue> }
  readonly ms?: number
  readonly cut?: true
}

const read = (line: string): Line => JSON.parse(line) as Line

const rows: readonly { readonly say: string; readonly event: Partial<AuditEvent>; readonly want: string }[] = [
  {
    say: 'a join',
    event: {
      act: 'join',
      result: 'ok',
      who: { kind: 'joining', cluster: 'paris', fingerprint: 'ab12', token: '4f0c2a9b11', address: '192.0.2.7' },
      subject: 'paris',
      details: { podCIDRs: ['10.42.0.0/16'], repeated: false },
      tookMs: 12.4,
    },
    want:
      '{"v":1,"time":"2026-01-31T12:00:00.007Z","id":"019c1400-0000-7000-8000-000000000001","result":"ok",' +
      '"who":{"kind":"joining","cluster":"paris","fingerprint":"ab12","token":"4f0c2a9b11","address":"192.0.2.7"},' +
      '"what":{"act":"join","subject":"paris","details":{"podCIDRs":["10.42.0.0/16"],"repeated":false}},"ms":12}\n',
  },
  {
    say: 'a refusal',
    event: {
      act: 'join',
      result: 'refused',
      reason: 'TokenUsed',
      who: { kind: 'joining', cluster: 'roma', token: '4f0c2a9b11', address: '192.0.2.8' },
      subject: 'roma',
      details: {},
    },
    want:
      '{"v":1,"time":"2026-01-31T12:00:00.007Z","id":"019c1400-0000-7000-8000-000000000001","result":"refused",' +
      '"reason":"TokenUsed","who":{"kind":"joining","cluster":"roma","token":"4f0c2a9b11","address":"192.0.2.8"},' +
      '"what":{"act":"join","subject":"roma"}}\n',
  },
  {
    say: 'newlines, quotes, escapes of terminals, marks of direction and separators are text',
    event: {
      who: { kind: 'joining', cluster: 'a\n{"v":1}\r"\u001b[2J\u007f\u009b\u202e\u2028é😀' },
    },
    want:
      '{"v":1,"time":"2026-01-31T12:00:00.007Z","id":"019c1400-0000-7000-8000-000000000001","result":"ok",' +
      '"who":{"kind":"joining","cluster":"a\\n{\\"v\\":1}\\r\\"\\u001b[2J\\u007f\\u009b\\u202e\\u2028\\u00e9\\ud83d\\ude00"},' +
      '"what":{"act":"leave"}}\n',
  },
  {
    say: 'a name of a megabyte is cut, and the line says so',
    event: { who: { kind: 'joining', cluster: 'x'.repeat(1_000_000) } },
    want:
      '{"v":1,"time":"2026-01-31T12:00:00.007Z","id":"019c1400-0000-7000-8000-000000000001","result":"ok",' +
      `"who":{"kind":"joining","cluster":"${'x'.repeat(256)}"},"what":{"act":"leave"},"cut":true}\n`,
  },
]

for (const { say, event, want } of rows) {
  t.test(say, async (t) => {
    const line = auditLine({ id: ID, atMs: AT, act: 'leave', result: 'ok', who: { kind: 'broker' }, ...event })
    t.equal(line, want)
  })
}

t.test('an id says when, and no two are the same', async (t) => {
  const init = { act: 'leave', result: 'ok', who: { kind: 'broker' } } as const
  const ids = Array.from({ length: 100 }, () => auditEvent(init, AT).id)
  t.equal(new Set(ids).size, 100)
  for (const id of ids) {
    t.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
    t.equal(parseInt(id.replace('-', '').slice(0, 12), 16), AT)
  }
  t.same(ids, [...ids].sort(), 'they sort by when they were made')
  t.ok(auditEvent(init, AT).id < auditEvent(init, AT + 1).id, 'and by time')
})

const text = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 400 }),
  fc.string({ maxLength: 40 }),
  fc.constantFrom('\n', '\r\n{"v":1}', '\u2028', '\ud800', '__proto__', '\u0000', 'x'.repeat(5000), '"'.repeat(3000)),
)
const value: fc.Arbitrary<AuditValue> = fc.oneof(text, fc.double(), fc.boolean(), fc.array(text, { maxLength: 40 }))
const who: fc.Arbitrary<AuditActor> = fc.record(
  {
    kind: fc.constantFrom('member', 'joining', 'stranger', 'operator', 'broker'),
    cluster: text,
    fingerprint: text,
    token: text,
    address: text,
    uid: fc.integer(),
    user: text,
    sudoUser: text,
  },
  { requiredKeys: ['kind'] },
)
const event: fc.Arbitrary<AuditEvent> = fc.record(
  {
    id: fc.uuid({ version: 7 }),
    atMs: fc.oneof(fc.integer({ min: 0, max: 4_102_444_800_000 }), fc.double()),
    act: fc.constantFrom(...AUDIT_ACTS),
    result: fc.constantFrom('ok', 'refused', 'failed'),
    reason: fc.constantFrom<ReasonCode>('TokenUsed', 'InvalidValue'),
    who,
    subject: text,
    details: fc.dictionary(text, value, { maxKeys: 40 }),
    tookMs: fc.double(),
  },
  { requiredKeys: ['id', 'atMs', 'act', 'result', 'who'] },
)

t.test('whatever an event has in it: one line, bounded, of plain ASCII, that reads back as what it was', async () => {
  fc.assert(
    fc.property(event, (one) => {
      const line = auditLine(one)
      const seen = read(line)
      const parts = { ...seen.who, subject: seen.what.subject }
      const meant = { ...one.who, subject: one.subject } as Record<string, unknown>
      const isPrefix = Object.entries(parts).every(([key, got]) =>
        typeof got === 'string' ? String(meant[key]).startsWith(got) : got === meant[key],
      )
      const isWhole = seen.cut === true || JSON.stringify(seen.who) === JSON.stringify(one.who)
      return (
        /^[\x20-\x7e]+\n$/.test(line) &&
        line.length <= MAX_LINE_BYTES &&
        seen.id === one.id &&
        seen.what.act === one.act &&
        seen.result === one.result &&
        seen.reason === one.reason &&
        /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/.test(seen.time) &&
        isPrefix &&
        isWhole
      )
    }),
    { numRuns: 1500 },
  )
})
