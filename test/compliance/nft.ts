/** What every Nft driver does. Runs on the fake and, in a namespace, on the nft command. */
import type { Test } from 'tap'
import { KernelError, type KernelErrorCode } from '../../kernel/errors.ts'
import type { NftElement, NftStatement } from '../../kernel/nft-transaction.ts'
import type { Nft } from '../../kernel/nft.ts'

const table = 'sealane_test'
const SLOT_KEY = 'ipv4_addr . inet_proto . inet_service'
const services = {
  verb: 'add-map',
  table,
  map: 'services',
  type: { kind: 'map', key: SLOT_KEY, value: 'verdict' },
} as const
const slot = {
  verb: 'add-map',
  table,
  map: 'slot-0',
  type: { kind: 'map', key: SLOT_KEY, value: 'ipv4_addr . inet_service' },
} as const
const remote = {
  verb: 'add-map',
  table,
  map: 'remote',
  type: { kind: 'set', key: 'ipv4_addr', flags: ['interval'] },
} as const
const chain = (name: string): NftStatement => ({ verb: 'add-chain', table, chain: name })
const rule = (name: string, text: string): NftStatement => ({ verb: 'add-rule', table, chain: name, rule: text })
const add = (map: string, ...elements: NftElement[]): NftStatement => ({ verb: 'add-elements', table, map, elements })
const del = (map: string, ...elements: NftElement[]): NftStatement => ({
  verb: 'delete-elements',
  table,
  map,
  elements,
})
const web: NftElement = { key: '245.0.0.7 . tcp . 80', value: 'goto pick-2' }
const backend: NftElement = { key: '245.0.0.7 . tcp . 80', value: '10.1.2.3 . 8080' }
const dnat: NftStatement = {
  verb: 'add-rule',
  table,
  chain: 'pick-2',
  rule: 'dnat ip to ip daddr . meta l4proto . th dport map @slot-0',
  comment: 'slot 0',
}

/** A table with one base chain that looks into `services`, and one service. */
const base: readonly NftStatement[] = [
  { verb: 'add-table', table },
  chain('pick-2'),
  chain('spare'),
  services,
  slot,
  remote,
  { verb: 'add-chain', table, chain: 'pre', base: { type: 'nat', hook: 'prerouting', priority: -101 } },
  dnat,
  rule('pre', 'ip daddr 245.0.0.0/16 ip daddr . meta l4proto . th dport vmap @services'),
  add('services', web),
  add('slot-0', backend),
  add('remote', { key: '10.2.0.0/15' }, { key: '244.0.0.0/16' }),
]

interface Refusal {
  readonly say: string
  readonly run: readonly NftStatement[]
  readonly code: KernelErrorCode
}

const REFUSALS: readonly Refusal[] = [
  { say: 'chain in a missing table', run: [{ verb: 'add-chain', table: 'sealane_none', chain: 'a' }], code: 'ENOENT' },
  { say: 'rule in a missing chain', run: [rule('none', 'accept')], code: 'ENOENT' },
  { say: 'goto a missing chain', run: [rule('spare', 'goto none')], code: 'ENOENT' },
  { say: 'goto a base chain', run: [rule('spare', 'goto pre')], code: 'EOPNOTSUPP' },
  { say: 'rule that looks into a missing map', run: [rule('spare', 'ip daddr vmap @none')], code: 'ENOENT' },
  { say: 'deletion of a missing table', run: [{ verb: 'delete-table', table: 'sealane_none' }], code: 'ENOENT' },
  { say: 'deletion of a missing chain', run: [{ verb: 'delete-chain', table, chain: 'none' }], code: 'ENOENT' },
  { say: 'deletion of a chain in use', run: [{ verb: 'delete-chain', table, chain: 'pick-2' }], code: 'EBUSY' },
  {
    say: 'deletion of a map in use',
    run: [{ verb: 'delete-map', table, map: 'services', kind: 'map' }],
    code: 'EBUSY',
  },
  { say: 'deletion of a missing map', run: [{ verb: 'delete-map', table, map: 'none', kind: 'map' }], code: 'ENOENT' },
  { say: 'flush of a missing set', run: [{ verb: 'flush-map', table, map: 'none', kind: 'set' }], code: 'ENOENT' },
  { say: 'element in a missing map', run: [add('none', web)], code: 'ENOENT' },
  {
    say: 'verdict to a missing chain',
    run: [add('services', { key: '245.0.0.8 . tcp . 80', value: 'goto none' })],
    code: 'ENOENT',
  },
  { say: 'element with another value', run: [add('slot-0', { ...backend, value: '10.1.2.4 . 8080' })], code: 'EEXIST' },
  { say: 'overlapping interval', run: [add('remote', { key: '10.2.5.0/24' })], code: 'EEXIST' },
  { say: 'deletion of an absent element', run: [del('slot-0', { key: '245.0.0.9 . tcp . 80' })], code: 'ENOENT' },
  { say: 'deletion of an absent interval', run: [del('remote', { key: '10.9.0.0/16' })], code: 'ENOENT' },
  {
    say: 'element of another shape',
    run: [add('slot-0', { key: '245.0.0.9', value: '10.1.2.3 . 80' })],
    code: 'EINVAL',
  },
  {
    say: 'map that exists with another type',
    run: [{ ...services, type: { ...services.type, key: 'ipv4_addr' } }],
    code: 'EEXIST',
  },
  {
    say: 'base chain that exists with another priority',
    run: [{ verb: 'add-chain', table, chain: 'pre', base: { type: 'nat', hook: 'prerouting', priority: -102 } }],
    code: 'EOPNOTSUPP',
  },
  { say: 'name with a line end', run: [chain('a\nflush ruleset')], code: 'EINVAL' },
  { say: 'name that is a word of nft', run: [chain('fwd')], code: 'EINVAL' },
  { say: 'rule with a second statement', run: [rule('spare', 'accept; flush ruleset')], code: 'EINVAL' },
  {
    say: 'element with a bracket',
    run: [add('slot-0', { key: '1.2.3.4 . tcp . 1', value: '1.2.3.4 . 5 }' })],
    code: 'EINVAL',
  },
]

/** `make` gives a driver on an empty ruleset; `many` is how many elements the last story uses. */
export function nftCompliance(t: Test, make: () => Nft | Promise<Nft>, many = 30_000): void {
  const fresh = async (): Promise<Nft> => {
    const nft = await make()
    for (const name of await nft.tables('sealane_')) await nft.run([{ verb: 'delete-table', table: name }])
    return nft
  }
  t.test('tables come and go', (t) => tablesComeAndGo(t, fresh))
  t.test('elements', (t) => elementsStory(t, fresh))
  t.test('what is refused leaves no trace', (t) => refusals(t, fresh))
  t.test('doing it again', (t) => repetition(t, fresh))
  t.test('all or nothing', (t) => atomicity(t, fresh))
  t.test('taking apart in one transaction', (t) => takingApart(t, fresh))
  t.test('named counters', (t) => namedCounters(t, fresh))
  t.test(`${many} elements`, (t) => manyElements(t, fresh, many))
}

type Fresh = () => Promise<Nft>

async function tablesComeAndGo(t: Test, fresh: Fresh): Promise<void> {
  const nft = await fresh()
  t.same(await nft.tables('sealane_'), [])
  t.equal(await nft.listTable(table), undefined)
  await nft.run([
    { verb: 'add-table', table: 'sealane_b' },
    { verb: 'add-table', table: 'sealane_a' },
    { verb: 'add-table', table: 'other' },
  ])
  t.same(await nft.tables('sealane_'), ['sealane_a', 'sealane_b'])
  await nft.check([{ verb: 'delete-table', table: 'sealane_a' }])
  t.same(await nft.tables('sealane_'), ['sealane_a', 'sealane_b'], 'check() changes nothing')
  await nft.run([
    { verb: 'delete-table', table: 'sealane_a' },
    { verb: 'delete-table', table: 'other' },
  ])
  t.same(await nft.tables('sealane_'), ['sealane_b'])
  await nft.run([])
}

async function namedCounters(t: Test, fresh: Fresh): Promise<void> {
  const nft = await fresh()
  const counter = (name: string): NftStatement => ({ verb: 'add-counter', table, counter: name })
  await t.rejects(nft.counters(table), { code: 'ENOENT' })
  await nft.run([{ verb: 'add-table', table }, chain('a')])
  t.same([...(await nft.counters(table))], [])
  await t.rejects(nft.run([rule('a', 'counter name dropped-x drop')]), { code: 'ENOENT' })
  await nft.run([counter('dropped-x'), counter('dropped-y'), rule('a', 'counter name dropped-x drop')])
  await nft.run([counter('dropped-x')])
  t.same(
    [...(await nft.counters(table))].sort(),
    [
      ['dropped-x', 0],
      ['dropped-y', 0],
    ],
    'made again it is the same',
  )
  t.notMatch(await nft.listTable(table), 'packets', 'a listing does not change with the traffic')
  await t.rejects(nft.run([counter('no name')]), { code: 'EINVAL' })
}

async function elementsStory(t: Test, fresh: Fresh): Promise<void> {
  const nft = await fresh()
  await nft.run(base)
  t.same(await nft.elements(table, 'services'), [web])
  t.same(await nft.elements(table, 'slot-0'), [backend])
  t.same(await nft.elements(table, 'remote'), [{ key: '10.2.0.0/15' }, { key: '244.0.0.0/16' }])
  const dns: NftElement = { key: '245.0.0.10 . udp . 53', value: '10.1.2.9 . 53' }
  await nft.run([add('slot-0', dns)])
  t.same(await nft.elements(table, 'slot-0'), [dns, backend], 'sorted by key')
  await nft.run([del('slot-0', backend), add('slot-0', { ...backend, value: '10.1.2.4 . 8080' })])
  t.same(
    await nft.elements(table, 'slot-0'),
    [dns, { ...backend, value: '10.1.2.4 . 8080' }],
    'a value is changed by taking and giving',
  )
  await nft.run([{ verb: 'flush-map', table, map: 'slot-0', kind: 'map' }, add('slot-0')])
  t.same(await nft.elements(table, 'slot-0'), [])
  await nft.run([{ verb: 'flush-map', table, map: 'remote', kind: 'set' }])
  t.same(await nft.elements(table, 'remote'), [])
  await t.rejects(nft.elements(table, 'none'), { code: 'ENOENT' })
  await t.rejects(nft.elements('sealane_none', 'none'), { code: 'ENOENT' })
  await nft.run([
    { verb: 'add-map', table, map: 'lane-devices', type: { kind: 'set', key: 'ifname' } },
    add('lane-devices', { key: '"sealane0"' }),
  ])
  t.same(await nft.elements(table, 'lane-devices'), [{ key: '"sealane0"' }])
}

async function refusals(t: Test, fresh: Fresh): Promise<void> {
  const nft = await fresh()
  await nft.run(base)
  const before = await nft.listTable(table)
  for (const row of REFUSALS) {
    const error = await nft.run(row.run).then(
      () => undefined,
      (reason: unknown) => reason,
    )
    t.type(error, KernelError, row.say)
    t.equal((error as KernelError | undefined)?.code, row.code, `${row.say}: ${row.code}`)
    t.match((error as KernelError | undefined)?.operation, /^nft/)
    await t.rejects(nft.check(row.run), { code: row.code }, `${row.say}: check() says so too`)
  }
  t.equal(await nft.listTable(table), before)
}

async function repetition(t: Test, fresh: Fresh): Promise<void> {
  const nft = await fresh()
  await nft.run(base)
  const before = await nft.listTable(table)
  await nft.run(base.filter((statement) => statement.verb !== 'add-rule'))
  t.equal(await nft.listTable(table), before, 'adding what is there is no change')
  await nft.run([{ verb: 'flush-table', table }])
  t.match(await nft.listTable(table), /chain pre/, 'flush keeps chains')
  t.same(await nft.elements(table, 'services'), [web], 'and elements')
  t.notMatch(await nft.listTable(table), /vmap @services/)
}

async function atomicity(t: Test, fresh: Fresh): Promise<void> {
  const nft = await fresh()
  await nft.run(base)
  const before = await nft.listTable(table)
  await t.rejects(
    nft.run([
      add('remote', { key: '10.8.0.0/16' }),
      { verb: 'flush-map', table, map: 'slot-0', kind: 'map' },
      { verb: 'flush-chain', table, chain: 'pre' },
      { verb: 'delete-map', table, map: 'services', kind: 'map' },
      rule('spare', 'drop'),
      rule('none', 'drop'),
    ]),
    { code: 'ENOENT' },
  )
  t.equal(await nft.listTable(table), before)
}

async function takingApart(t: Test, fresh: Fresh): Promise<void> {
  const nft = await fresh()
  await nft.run(base)
  await nft.run([del('services', web), { verb: 'delete-chain', table, chain: 'pick-2' }])
  t.notMatch(await nft.listTable(table), /pick-2/)
  await nft.run([
    { verb: 'delete-chain', table, chain: 'pre' },
    { verb: 'delete-map', table, map: 'services', kind: 'map' },
  ])
  await nft.run([{ verb: 'add-table', table }, { verb: 'delete-table', table }, ...base])
  t.same(await nft.elements(table, 'services'), [web], 'a whole table is replaced in one transaction')
}

async function manyElements(t: Test, fresh: Fresh, many: number): Promise<void> {
  const nft = await fresh()
  const elements = Array.from({ length: many }, (_, i): NftElement => ({
    key: `245.0.${i >> 8}.${i & 255} . tcp . 80`,
    value: `10.42.${i >> 8}.${i & 255} . 8080`,
  }))
  await nft.run([{ verb: 'add-table', table }, slot, add('slot-0', ...elements)])
  const listed = await nft.elements(table, 'slot-0')
  t.equal(listed.length, many)
  t.same(listed[0], elements[0])
  const error = await nft
    .run([
      add(
        'slot-0',
        { key: '1.2.3.4 . tcp . 1', value: '1.2.3.4 . 1' },
        { ...elements[many - 10]!, value: '9.9.9.9 . 9' },
      ),
    ])
    .then(
      () => undefined,
      (reason: unknown) => reason,
    )
  t.match(error, { code: 'EEXIST' })
  t.ok((error as KernelError).message.length < 1000, 'the message quotes the refused part only')
}
