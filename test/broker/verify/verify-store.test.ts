/** `broker verify` finds every planted fault, and finds nothing in a store as brokers leave it. */
import fc from 'fast-check'
import t from 'tap'
import { openMemoryLog } from '../../../broker/store/memory-log.ts'
import { type StoreContent, type StoredRow, contentOfLog } from '../../../broker/store/record-log.ts'
import { AUTHORITY_KEY } from '../../../broker/store/rows.ts'
import type { AuthorityTexts } from '../../../broker/recovery/check-members.ts'
import { verifyStore } from '../../../broker/recovery/verify-store.ts'
import { RICH_STEPS, brokerSteps, makeState } from '../support/broker-states.ts'

const NOW = { nowMs: Date.UTC(2026, 5, 1) }

async function richContent(): Promise<StoreContent & { readonly rows: readonly StoredRow[] }> {
  const log = openMemoryLog()
  await makeState(log, RICH_STEPS)
  const content = contentOfLog(log)
  return { ...content, rows: [...content.rows] }
}

t.test('nothing in a store as brokers leave it', async (t) => {
  await fc.assert(
    fc.asyncProperty(brokerSteps, async (steps) => {
      const log = openMemoryLog()
      await makeState(log, steps)
      const { findings } = verifyStore(contentOfLog(log), NOW)
      return findings.length === 0 || Promise.reject(new Error(JSON.stringify(findings)))
    }),
    { numRuns: 200 },
  )
  t.pass()
  const rich = verifyStore(await richContent(), NOW)
  t.match(rich, { clusterset: 'demo', members: 3, found: 0, findings: [] })
  t.ok(rich.records > 10)
})

interface Fault {
  readonly say: string
  readonly reason: string
  /** Rows to change, by scope and a part of the key. Only the first match is changed. */
  readonly row: readonly [scope: string, key: string]
  /** Returns another text, a whole row, or undefined for a row that is removed. */
  readonly change: (value: Record<string, unknown>, row: StoredRow) => object | string | undefined
}

const FAULTS: readonly Fault[] = [
  { say: 'no JSON', reason: 'StoreRowInvalid', row: ['member', 'paris'], change: () => '{"index":' },
  { say: 'JSON of another form', reason: 'StoreRowInvalid', row: ['token', ''], change: () => '[]' },
  { say: 'a field of another type', reason: 'StoreRowInvalid', row: ['stamp', ''], change: (v) => ({ ...v, uid: 7 }) },
  ...(
    [
      ['member', 'quota', { records: 'many' }],
      ['member', 'misuse', { atMs: 1, serial: 7, address: '' }],
      ['token', 'approve', 'yes'],
      ['settings', 'quota', { streams: -1 }],
    ] as const
  ).map(([scope, field, value]) => ({
    say: `${scope}.${field} of another type`,
    reason: 'StoreRowInvalid',
    row: [scope, ''] as const,
    change: (v: Record<string, unknown>) => ({ ...v, [field]: value }),
  })),
  { say: 'too large', reason: 'StoreRowInvalid', row: ['address', ''], change: () => `"${'x'.repeat(5_000_000)}"` },
  {
    say: "a number that is another member's",
    reason: 'StoreIndexTwice',
    row: ['member', 'paris'],
    change: (v) => ({ ...v, index: 1 }),
  },
  {
    say: 'a number that cannot be',
    reason: 'StoreRowInvalid',
    row: ['member', 'roma'],
    change: (v) => ({ ...v, index: 0 }),
  },
  {
    say: "a block that is another member's",
    reason: 'StoreAddressTwice',
    row: ['member', 'paris'],
    change: (v) => ({ ...v, blocks: { '10.42.0.0/16': '244.0.0.0/16' } }),
  },
  {
    say: 'a block outside of the range',
    reason: 'StoreRowInvalid',
    row: ['member', 'paris'],
    change: (v) => ({ ...v, blocks: { '10.42.0.0/16': '9.9.0.0/16' } }),
  },
  {
    say: 'a block of another size',
    reason: 'StoreRowInvalid',
    row: ['member', 'roma'],
    change: (v) => ({ ...v, blocks: { '10.9.0.0/16': '244.99.0.0/24' } }),
  },
  {
    say: 'facts that are no addresses',
    reason: 'StoreRowInvalid',
    row: ['member', 'oslo'],
    change: (v) => ({ ...v, facts: { ...(v['facts'] as object), podCIDRs: ['10.52.0.0'] } }),
  },
  {
    say: "a certificate that is another member's",
    reason: 'StoreRowInvalid',
    row: ['member', 'oslo'],
    change: (v) => ({ ...v, certificates: [{ serial: '1767225600000', expiresAtMs: 1 }] }),
  },
  {
    say: 'half a departure',
    reason: 'StoreRowInvalid',
    row: ['member', 'roma'],
    change: ({ departure: _, ...v }) => v,
  },
  {
    say: 'a member without its record',
    reason: 'StoreReferenceBroken',
    row: ['record', 'oslo/Cluster/'],
    change: () => undefined,
  },
  {
    say: 'a Cluster record with another number',
    reason: 'StoreReferenceBroken',
    row: ['record', 'oslo/Cluster/'],
    change: (v) => {
      const body = v['body'] as { readonly spec: object }
      return { ...v, body: { ...body, spec: { ...body.spec, index: 9 } } }
    },
  },
  {
    say: 'records without their member',
    reason: 'StoreReferenceBroken',
    row: ['member', 'milano'],
    change: () => undefined,
  },
  {
    say: 'another content than its hash',
    reason: 'StoreHashDiffers',
    row: ['record', 'milano/EndpointSlice'],
    change: (v) => ({ ...v, body: { ...(v['body'] as object), service: 'other' } }),
  },
  {
    say: 'another size than noted',
    reason: 'StoreHashDiffers',
    row: ['record', 'milano/EndpointSlice'],
    change: (v) => ({ ...v, bytes: 3 }),
  },
  {
    say: 'a body that cannot be sent',
    reason: 'StoreRowInvalid',
    row: ['record', 'milano/ServiceExport'],
    change: (v) => ({ ...v, body: { kind: 'ServiceExport' } }),
  },
  {
    say: 'a key of another kind',
    reason: 'StoreRowInvalid',
    row: ['record', 'milano/ServiceExport'],
    change: (_v, row) => ({ ...row, key: 'milano/EndpointSlice/shop/web0' }),
  },
  {
    say: "an address that is another service's",
    reason: 'StoreAddressTwice',
    row: ['serviceIp', 'shop/web1'],
    change: (v) => ({ ...v, ip: firstIp }),
  },
  {
    say: 'an address outside of the range',
    reason: 'StoreRowInvalid',
    row: ['serviceIp', 'shop/web1'],
    change: (v) => ({ ...v, ip: '1.2.3.4' }),
  },
  {
    say: 'exporters that export nothing',
    reason: 'StoreReferenceBroken',
    row: ['serviceIp', 'shop/web1'],
    change: (v) => ({ ...v, exporters: ['oslo', 'paris'] }),
  },
  {
    say: 'exporters out of order',
    reason: 'StoreRowInvalid',
    row: ['serviceIp', 'shop/web0'],
    change: (v) => ({ ...v, exporters: ['paris', 'milano'] }),
  },
  {
    say: 'neither used nor released',
    reason: 'StoreRowInvalid',
    row: ['serviceIp', 'shop/web2'],
    change: ({ releasedAtMs: _, ...v }) => v,
  },
  {
    say: 'an export without an address',
    reason: 'StoreReferenceBroken',
    row: ['serviceIp', 'shop/web1'],
    change: () => undefined,
  },
  {
    say: 'an address of nobody',
    reason: 'StoreReferenceBroken',
    row: ['address', ''],
    change: (v) => ({ ...v, service: 'shop/none' }),
  },
  {
    say: 'a service without its address',
    reason: 'StoreReferenceBroken',
    row: ['address', ''],
    change: () => undefined,
  },
  {
    say: 'no ClusterSetIP record',
    reason: 'StoreReferenceBroken',
    row: ['record', '/ClusterSetIP/shop/web0'],
    change: () => undefined,
  },
  {
    say: 'an export without its age',
    reason: 'StoreReferenceBroken',
    row: ['stamp', 'paris/shop/web1'],
    change: () => undefined,
  },
  {
    say: 'an age of what is not there',
    reason: 'StoreReferenceBroken',
    row: ['record', 'paris/ServiceExport/shop/web1'],
    change: () => undefined,
  },
  {
    say: 'a public key of nobody',
    reason: 'StoreReferenceBroken',
    row: ['publicKey', ''],
    change: (v) => ({ ...v, cluster: 'nobody' }),
  },
  {
    say: 'a public key that is not noted',
    reason: 'StoreReferenceBroken',
    row: ['record', 'paris/Endpoint'],
    change: (v) => withKey(v),
  },
  {
    say: 'a former key in use',
    reason: 'StoreReferenceBroken',
    row: ['formerKeys', ''],
    change: () => ({ keys: [Buffer.alloc(32, 2).toString('base64')] }),
  },
  {
    say: 'no hash of a token',
    reason: 'StoreRowInvalid',
    row: ['token', ''],
    change: (v) => ({ ...v, hash: 'short' }),
  },
  {
    say: 'two tokens of one secret',
    reason: 'StoreRowInvalid',
    row: ['token', 't001'],
    change: (v) => ({ ...v, hash: '2'.padStart(64, '0') }),
  },
  {
    say: 'settings that cannot be',
    reason: 'StoreRowInvalid',
    row: ['settings', ''],
    change: (v) => ({ ...v, globalRange: 'all' }),
  },
  { say: 'no settings', reason: 'StoreRowInvalid', row: ['settings', ''], change: () => undefined },
  {
    say: 'a place outside of the outbox',
    reason: 'StoreOutboxInvalid',
    row: ['audit', ''],
    change: (_v, row) => ({ ...row, key: '9999' }),
  },
  {
    say: 'an act that does not exist',
    reason: 'StoreOutboxInvalid',
    row: ['audit', ''],
    change: (v) => ({ event: { ...(v['event'] as object), act: 'dance' } }),
  },
  {
    say: 'a line that comes twice',
    reason: 'StoreOutboxInvalid',
    row: ['audit', '0001'],
    change: (v) => ({ event: { ...(v['event'] as object), id: first } }),
  },
  {
    say: 'a revision of the future',
    reason: 'StoreRevisionDisorder',
    row: ['member', 'oslo'],
    change: (_v, row) => ({ ...row, revision: 1e9 }),
  },
  {
    say: 'no revision',
    reason: 'StoreRevisionDisorder',
    row: ['member', 'oslo'],
    change: (_v, row) => ({ ...row, revision: 0 }),
  },
  {
    say: 'a revision of another row',
    reason: 'StoreRevisionDisorder',
    row: ['member', 'oslo'],
    change: (_v, row) => ({ ...row, revision: 1 }),
  },
  {
    say: 'a scope that nobody knows',
    reason: 'StoreRowInvalid',
    row: ['stamp', ''],
    change: (_v, row) => ({ ...row, scope: 'stamps' }),
  },
]

/** The id of the line in the first place of the audit outbox, and the address of the first service. */
let first = ''
let firstIp = ''

function withKey(value: Record<string, unknown>): object {
  const body = value['body'] as { readonly spec: object }
  return { ...value, body: { ...body, spec: { ...body.spec, publicKey: Buffer.alloc(32, 200).toString('base64') } } }
}

t.test('every fault that was planted', async (t) => {
  const content = await richContent()
  const outbox = content.rows.find(({ scope, key }) => scope === 'audit' && key === '0000')
  first = (JSON.parse(outbox?.text ?? '{}') as { event: { id: string } }).event.id
  const service = content.rows.find(({ scope, key }) => scope === 'serviceIp' && key === 'shop/web0')
  firstIp = (JSON.parse(service?.text ?? '{}') as { ip: string }).ip
  for (const { say, reason, row, change } of FAULTS) {
    const at = content.rows.findIndex(({ scope, key }) => scope === row[0] && key.includes(row[1]))
    const there = content.rows[at]
    if (there === undefined) throw new Error(`${say}: no row ${row.join(' ')}`)
    const changed = change(JSON.parse(there.text ?? '{}') as Record<string, unknown>, there)
    const rows = [...content.rows]
    if (changed === undefined) rows.splice(at, 1)
    else if (typeof changed === 'object' && 'scope' in changed) rows[at] = changed as StoredRow
    else rows[at] = { ...there, text: typeof changed === 'string' ? changed : JSON.stringify(changed) }
    const { findings } = verifyStore({ ...content, rows }, NOW)
    t.ok(
      findings.some((one) => one.reason === reason),
      `${say}: ${JSON.stringify(findings.slice(0, 3))}`,
    )
  }
})

t.test('of a store in which everything is wrong only so much is listed', async (t) => {
  const rows = Array.from({ length: 3000 }, (_, i) => ({ scope: 'x', key: String(i), revision: i + 1, text: '{}' }))
  const { findings, found } = verifyStore({ epoch: 'e', revision: 3000, compactedRevision: 4000, rows }, NOW)
  t.equal(found, 3001)
  t.equal(findings.length, 1000)
})

t.test('whatever stands in the rows, it is looked at', async (t) => {
  const content = await richContent()
  const scope = fc.constantFrom('member', 'record', 'serviceIp', 'address', 'publicKey', 'formerKeys', 'stamp', 'audit')
  const strange = fc.record({
    scope,
    key: fc.string({ maxLength: 20 }),
    revision: fc.integer(),
    text: fc.option(fc.json()),
  })
  // A correct row with one field replaced by a random value, at the top level or one level below.
  const exchanged = fc.tuple(fc.nat(), fc.nat(), fc.jsonValue()).map(([at, field, value]) => {
    const row = content.rows[at % content.rows.length] ?? { scope: '', key: '', revision: 1, text: '{}' }
    const whole = JSON.parse(row.text ?? '{}') as Record<string, unknown>
    const inner = Object.values(whole).find((one) => typeof one === 'object' && one !== null && field % 2 === 1)
    const object = (inner ?? whole) as Record<string, unknown>
    const names = Object.keys(object)
    object[names[field % Math.max(1, names.length)] ?? 'x'] = value
    return { ...row, text: JSON.stringify(whole) }
  })
  fc.assert(
    fc.property(fc.array(strange, { maxLength: 5 }), fc.array(exchanged, { maxLength: 5 }), (some, others) => {
      const keys = new Set(others.map(({ scope, key }) => `${scope} ${key}`))
      const rest = content.rows.filter(({ scope, key }) => !keys.has(`${scope} ${key}`))
      verifyStore({ ...content, rows: [...rest, ...others, ...some] }, NOW)
    }),
    { numRuns: 500 },
  )
  t.pass()
})

t.test('an authority whose files are with an operator is none that is lost', async (t) => {
  const log = openMemoryLog()
  await makeState(log, RICH_STEPS)
  const none = { certificate: undefined, key: undefined }
  const reasons = (authority: AuthorityTexts): readonly string[] =>
    verifyStore(contentOfLog(log), { ...NOW, authority }).findings.map(({ reason }) => reason)
  t.strictSame(reasons(none), ['StoreAuthorityInvalid'], 'as no broker of this release has served it')
  const current = { fingerprint: 'f'.repeat(64), certificate: 'MII=', sinceMs: 1 }
  await log.transact((tx) => tx.put('authority', AUTHORITY_KEY, { current, removed: [] }))
  t.strictSame(reasons(none), [])
  t.strictSame(reasons({ ...none, key: 'x' }), ['StoreAuthorityInvalid'], 'one of two is missing')
})
