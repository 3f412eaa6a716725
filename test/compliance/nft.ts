/** The suite for every Nft driver. It runs on the fake and, in a network namespace, on the nft command. */
import type { Test } from 'tap'
import { KernelError, type KernelErrorCode } from '../../kernel/errors.ts'
import type { Nft, NftElement, NftFamily, NftStatement } from '../../kernel/nft/nft-transaction.ts'
import { add, castOf, chain, del, rule, table, WORDS, type Cast } from './nft-cast.ts'

interface Refusal {
  readonly say: string
  readonly run: readonly NftStatement[]
  readonly code: KernelErrorCode
}

function refusalsOf({ family, words, services, web, backend }: Cast): readonly Refusal[] {
  const foreign = family === 'ip' ? 'ip6' : 'ip'
  const other = WORDS[foreign]
  return [
    {
      say: 'chain in a missing table',
      run: [{ verb: 'add-chain', table: 'sealane_none', chain: 'a' }],
      code: 'ENOENT',
    },
    { say: 'rule in a missing chain', run: [rule('none', 'accept')], code: 'ENOENT' },
    { say: 'goto a missing chain', run: [rule('spare', 'goto none')], code: 'ENOENT' },
    { say: 'goto a base chain', run: [rule('spare', 'goto pre')], code: 'EOPNOTSUPP' },
    { say: 'rule that looks into a missing map', run: [rule('spare', `${family} daddr vmap @none`)], code: 'ENOENT' },
    { say: 'deletion of a missing table', run: [{ verb: 'delete-table', table: 'sealane_none' }], code: 'ENOENT' },
    { say: 'deletion of a missing chain', run: [{ verb: 'delete-chain', table, chain: 'none' }], code: 'ENOENT' },
    { say: 'deletion of a chain in use', run: [{ verb: 'delete-chain', table, chain: 'pick-2' }], code: 'EBUSY' },
    {
      say: 'deletion of a map in use',
      run: [{ verb: 'delete-map', table, map: 'services', kind: 'map' }],
      code: 'EBUSY',
    },
    {
      say: 'deletion of a missing map',
      run: [{ verb: 'delete-map', table, map: 'none', kind: 'map' }],
      code: 'ENOENT',
    },
    { say: 'flush of a missing set', run: [{ verb: 'flush-map', table, map: 'none', kind: 'set' }], code: 'ENOENT' },
    { say: 'element in a missing map', run: [add('none', web)], code: 'ENOENT' },
    {
      say: 'verdict to a missing chain',
      run: [add('services', { key: `${words.service(8)} . tcp . 80`, value: 'goto none' })],
      code: 'ENOENT',
    },
    {
      say: 'element with another value',
      run: [add('slot-0', { ...backend, value: `${words.pod(4)} . 8080` })],
      code: 'EEXIST',
    },
    { say: 'overlapping interval', run: [add('remote', { key: words.insideRemote })], code: 'EEXIST' },
    {
      say: 'deletion of an absent element',
      run: [del('slot-0', { key: `${words.service(9)} . tcp . 80` })],
      code: 'ENOENT',
    },
    { say: 'deletion of an absent interval', run: [del('remote', { key: words.elsewhere[1] })], code: 'ENOENT' },
    {
      say: 'element of another shape',
      run: [add('slot-0', { key: words.service(9), value: `${words.pod(3)} . 80` })],
      code: 'EINVAL',
    },
    {
      say: 'map that exists with another type',
      run: [{ ...services, type: { ...services.type, key: words.addressType } }],
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
      run: [add('slot-0', { key: `${words.service(4)} . tcp . 1`, value: `${words.pod(4)} . 5 }` })],
      code: 'EINVAL',
    },
    { say: 'element of another family', run: [add('remote', { key: other.remote[1] })], code: 'EINVAL' },
    {
      say: 'value of another family',
      run: [add('slot-0', { key: `${words.service(9)} . tcp . 80`, value: `${other.pod(3)} . 80` })],
      code: 'EINVAL',
    },
    { say: 'match of another family', run: [rule('spare', `${foreign} daddr ${other.pod(3)} drop`)], code: 'EINVAL' },
    { say: 'dnat of another family', run: [rule('pre', `dnat ${foreign} to ${other.pod(3)}`)], code: 'EINVAL' },
    {
      say: 'refusal in the words of another family',
      run: [rule('spare', `reject with ${foreign === 'ip' ? 'icmp host-unreachable' : 'icmpv6 no-route'}`)],
      code: 'EINVAL',
    },
    {
      say: 'TCP reset for another protocol',
      run: [rule('spare', 'meta l4proto udp reject with tcp reset')],
      code: 'EINVAL',
    },
    {
      say: 'TCP reset for another protocol, told by a port',
      run: [rule('spare', 'udp dport 53 reject with tcp reset')],
      code: 'EINVAL',
    },
    {
      say: 'TCP reset for several protocols',
      run: [rule('spare', 'meta l4proto { tcp, udp } reject with tcp reset')],
      code: 'EINVAL',
    },
    { say: 'refusal with an answer that is none', run: [rule('spare', 'reject with tcp fin')], code: 'EINVAL' },
    { say: 'colon that begins a value', run: [add('remote', { key: `${words.pod(1)} : accept` })], code: 'EINVAL' },
  ]
}

/** `make` returns a driver of `family` on an empty ruleset. `many` is the number of elements in the last test. */
export function nftCompliance(
  t: Test,
  make: () => Nft | Promise<Nft>,
  { many = 30_000, family = 'ip' }: { readonly many?: number; readonly family?: NftFamily } = {},
): void {
  const cast = castOf(family)
  const fresh = async (): Promise<Nft> => {
    const nft = await make()
    for (const name of await nft.tables('sealane_')) await nft.run([{ verb: 'delete-table', table: name }])
    return nft
  }
  t.test('tables come and go', (t) => tablesComeAndGo(t, fresh))
  t.test('elements', (t) => elementsStory(t, fresh, cast))
  t.test('what is refused leaves no trace', (t) => refusals(t, fresh, cast))
  t.test('doing it again', (t) => repetition(t, fresh, cast))
  t.test('all or nothing', (t) => atomicity(t, fresh, cast))
  t.test('taking apart in one transaction', (t) => takingApart(t, fresh, cast))
  t.test('named counters', (t) => namedCounters(t, fresh))
  t.test('TCP is refused by a reset', (t) => resets(t, fresh, cast))
  t.test(`${many} elements`, (t) => manyElements(t, fresh, cast, many))
  if (family === 'ip6') t.test('IPv6 addresses', (t) => ipv6Story(t, fresh, cast))
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
  await t.rejects(nft.counts('sealane_none', ['calls']), { code: 'ENOENT' })
  const key = { kind: 'set', key: 'inet_service', flags: ['dynamic', 'timeout'], size: 16 } as const
  await nft.run([
    { verb: 'add-map', table, map: 'calls', type: key },
    rule('a', 'update @calls { tcp dport timeout 15m counter }'),
    { verb: 'add-map', table, map: 'plain', type: { kind: 'set', key: 'inet_service' } },
    add('plain', { key: '80' }),
  ])
  const { sets } = await nft.counts(table, ['calls', 'plain'])
  await t.rejects(nft.counts(table, ['none']), { code: 'ENOENT' })
  t.same(
    [...sets].sort(),
    [
      ['calls', []],
      ['plain', []],
    ],
    'elements without a counter are none',
  )
  t.notMatch(await nft.listTable(table), 'packets', 'a listing does not change with the traffic')
  const structure = await nft.structure(table)
  t.match(structure, /chain a \{[^]*update @calls/)
  t.notMatch(structure, 'elements', 'elements are no part of the structure')
  await nft.run([add('plain', { key: '443' })])
  t.equal(await nft.structure(table), structure)
  await nft.run([rule('a', 'update @calls { tcp sport timeout 15m counter }')])
  t.not(await nft.structure(table), structure)
  t.equal(await nft.structure('sealane_none'), undefined)
  await t.rejects(nft.run([counter('no name')]), { code: 'EINVAL' })
}

async function resets(t: Test, fresh: Fresh, { family, words, base }: Cast): Promise<void> {
  const nft = await fresh()
  await nft.run(base)
  const before = await nft.listTable(table)
  const unserved = `${family} daddr . meta l4proto . th dport`
  const set = { kind: 'set', key: `${words.addressType} . inet_proto . inet_service` } as const
  await nft.run([
    { verb: 'add-counter', table, counter: 'refused' },
    { verb: 'add-map', table, map: 'unserved', type: set },
    rule(
      'spare',
      'iifname { "sealane0", "sealane1" } tcp flags & (syn | ack) == syn counter name refused reject with tcp reset',
    ),
    rule('spare', 'counter name refused reject'),
    rule('pick-2', `meta l4proto tcp ${unserved} @unserved reject with tcp reset`),
    rule('pick-2', `${unserved} @unserved reject with tcp reset`),
  ])
  const after = (await nft.listTable(table)) ?? ''
  t.equal(after.match(/ reject with tcp reset$/gm)?.length, 3)
  t.match(after, /tcp flags .*syn.* counter name "?refused"? reject with tcp reset$/m)
  t.equal(await nft.listTable(table), after, 'and is listed so each time')
  await nft.run([{ verb: 'delete-table', table }, ...base])
  t.equal(await nft.listTable(table), before)
}

async function elementsStory(t: Test, fresh: Fresh, { family, words, web, backend, base }: Cast): Promise<void> {
  const nft = await fresh()
  await nft.run(base)
  t.same(await nft.elements(table, 'services'), [web])
  t.same(await nft.elements(table, 'slot-0'), [backend])
  t.same(
    await nft.elements(table, 'remote'),
    words.remote.map((key) => ({ key })),
  )
  t.equal(nft.family, family)
  const dns: NftElement = { key: `${words.service(6)} . udp . 53`, value: `${words.pod(9)} . 53` }
  await nft.run([add('slot-0', dns)])
  t.same(await nft.elements(table, 'slot-0'), [dns, backend], 'sorted by key')
  await nft.run([del('slot-0', backend), add('slot-0', { ...backend, value: `${words.pod(4)} . 8080` })])
  t.same(
    await nft.elements(table, 'slot-0'),
    [dns, { ...backend, value: `${words.pod(4)} . 8080` }],
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

async function refusals(t: Test, fresh: Fresh, cast: Cast): Promise<void> {
  const nft = await fresh()
  await nft.run(cast.base)
  const before = await nft.listTable(table)
  for (const row of refusalsOf(cast)) {
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

async function repetition(t: Test, fresh: Fresh, { web, base }: Cast): Promise<void> {
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

async function atomicity(t: Test, fresh: Fresh, { words, base }: Cast): Promise<void> {
  const nft = await fresh()
  await nft.run(base)
  const before = await nft.listTable(table)
  await t.rejects(
    nft.run([
      add('remote', { key: words.elsewhere[0] }),
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

async function takingApart(t: Test, fresh: Fresh, { web, base }: Cast): Promise<void> {
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

async function manyElements(t: Test, fresh: Fresh, { words, slot }: Cast, many: number): Promise<void> {
  const nft = await fresh()
  const elements = Array.from({ length: many }, (_, i): NftElement => ({
    key: `${words.service(i)} . tcp . 80`,
    value: `${words.pod(i)} . 8080`,
  }))
  await nft.run([{ verb: 'add-table', table }, slot, add('slot-0', ...elements)])
  const listed = await nft.elements(table, 'slot-0')
  t.equal(listed.length, many)
  const keys = new Set(listed.map(({ key }) => key))
  t.ok(elements.every(({ key }) => keys.has(key)))
  const error = await nft
    .run([
      add(
        'slot-0',
        { key: `${words.service(0)} . udp . 1`, value: `${words.pod(0)} . 1` },
        { ...elements[many - 10]!, value: `${words.pod(9)} . 9` },
      ),
    ])
    .then(
      () => undefined,
      (reason: unknown) => reason,
    )
  t.match(error, { code: 'EEXIST' })
  t.ok((error as KernelError).message.length < 1000, 'the message quotes the refused part only')
  // The nft tool reads all elements again for each later command, in either family, so the test deletes the table.
  await nft.run([{ verb: 'delete-table', table }])
}

/** Addresses in the form of nft's listings, which plans use as well (RFC 5952). */
const LISTED = [
  '1:0:1:1:1:1:1:1',
  '2001:db8:0:1:1:1:1:1',
  '2001:db8::1:0:0:1',
  '2001:db8:1::',
  'fd01:0:0:1::',
  'fd01:0:0:1::1',
  'fd53:ea1a:4e00::f5ff:ffff',
  'fe80::5ea1:c000:202',
  'ff02::1',
]

async function ipv6Story(t: Test, fresh: Fresh, { base }: Cast): Promise<void> {
  const nft = await fresh()
  await nft.run(base)
  await nft.run([
    { verb: 'add-map', table, map: 'hosts', type: { kind: 'set', key: 'ipv6_addr' } },
    add('hosts', ...LISTED.map((key) => ({ key }))),
  ])
  t.same(
    await nft.elements(table, 'hosts'),
    LISTED.toSorted().map((key) => ({ key })),
  )
  await nft.run([del('hosts', { key: '2001:DB8:0001:0:0:0:0:0' })])
  t.notOk((await nft.elements(table, 'hosts')).some(({ key }) => key === '2001:db8:1::'))
  await nft.run([{ verb: 'flush-map', table, map: 'remote', kind: 'set' }])
  await nft.run([add('remote', { key: 'FD0A::1-fd0a:0::9' }, { key: 'fd0b:0::/64' }, { key: 'fd0c::5/128' })])
  t.same(await nft.elements(table, 'remote'), [{ key: 'fd0a::1-fd0a::9' }, { key: 'fd0b::/64' }, { key: 'fd0c::5' }])
  await t.rejects(nft.run([add('remote', { key: 'fd0a::8/125' })]), { code: 'EEXIST' })
  await t.rejects(nft.run([add('remote', { key: 'fd0b:0:0:0:1::1' })]), { code: 'EEXIST' })
  await nft.run([
    { verb: 'add-chain', table, chain: 'post', base: { type: 'nat', hook: 'postrouting', priority: 99 } },
    rule('pre', 'ip6 daddr fd00::1 meta l4proto tcp dnat ip6 to [fd00::2]:80'),
    rule('post', 'ip6 saddr @remote snat ip6 to ip6 saddr'),
    rule('spare', 'icmpv6 type { destination-unreachable, packet-too-big, time-exceeded, parameter-problem } accept'),
    rule('spare', 'meta l4proto ipv6-icmp icmpv6 type echo-request accept'),
    rule('spare', 'ct original ip6 daddr fd53:ea1a:4e00::f500:0/112 reject with icmpv6 type addr-unreachable'),
    rule('spare', 'ip6 daddr != { fd00::/64, fd01::/64 } tcp flags syn tcp option maxseg size set rt mtu'),
  ])
  t.match(await nft.listTable(table), /^table ip6 sealane_test \{[^]*dnat (?:ip6 )?to \[fd00::2\]:80/)
}
