/**
 * The ranges that a member may state, the members that are translated because of them, and the state after an upgrade.
 * Attacks on ranges are in test/hostile/ranges-*.
 */
import fc from 'fast-check'
import t from 'tap'
import { orderClaims } from '../../broker/addresses/address-claims.ts'
import { BrokerHosts } from '../../broker/served-clusterset.ts'
import { clusterSpec } from '../../broker/addresses/cluster-records.ts'
import type { MemberRow } from '../../broker/store/rows.ts'
import type { MemberRecord } from '../../model/records.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { type Harness, Publisher, facts, join_, startBroker } from './support/harness.ts'

const PUBLIC = '203.0.113.0/28'

async function tokenFor(harness: Harness, ...allowedCIDRs: string[]): Promise<string> {
  return (await harness.tokens.create({ allowedCIDRs })).text
}

/** Changes the rows of a cluster to the form that the last release wrote. */
async function forget(harness: Harness, cluster: string): Promise<void> {
  await harness.log.transact((tx) => {
    const { allowedCIDRs: _a, keptCIDRs: _k, claimed: _c, notes: _n, ...row } = tx.get('member', cluster) as MemberRow
    tx.put('member', cluster, { ...row, translated: false, blocks: {} })
    const key = `${cluster}/Cluster//${cluster}`
    const record = tx.get('record', key)
    if (record?.body.kind === 'Cluster')
      tx.put('record', key, { ...record, body: { kind: 'Cluster', spec: { ...record.body.spec, globalCIDRs: [] } } })
  })
}

function gateway(cluster: string, address: string): MemberRecord {
  const publicKey = Buffer.alloc(32, cluster).toString('base64')
  const candidates = [{ kind: 'public', address, port: 4500 }] as const
  const spec = { cluster, node: 'gw', lane: 0, publicKey, candidates, capabilities: ['wireguard'] }
  return { namespace: '', name: `${cluster}.gw-lane0`, body: { kind: 'Endpoint', spec } }
}

t.test('a token says what may be stated, and is told with the list', async (t) => {
  const harness = await startBroker(t)
  await t.rejects(join_(harness, 'paris', { facts: facts([PUBLIC]) }), {
    code: 'InvalidArgument',
    field: 'podCIDRs[0]',
    message:
      'podCIDRs[0]: "203.0.113.0/28" is public space: expected addresses inside 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, ' +
      '100.64.0.0/10, 198.18.0.0/15; a token can allow more: "sealane token create --allow-cidr 203.0.113.0/28"',
  })
  const token = await tokenFor(harness, '203.0.113.0/24', '2001:db8::/32')
  t.same((await harness.tokens.list()).map((one) => one.allowedCIDRs.length).sort(), [0, 2])
  const { response, peer } = await join_(harness, 'paris', { token, facts: facts([PUBLIC, '2001:db8::/48']) })
  t.same([response.podCIDRs, response.globalCIDRs, response.notes], [[PUBLIC, '2001:db8::/48'], [], []])
  const publisher = new Publisher(harness, peer)
  await publisher.publish([])
  await publisher.facts(facts(['203.0.113.0/24']))
  await publisher.facts(facts(['203.0.112.0/24']))
  await publisher.acknowledged()
  t.match(publisher.refusals(), [/^podCIDRs\[0\]: "203\.0\.112\.0\/24" is public space: .*, or what its token names/])
  t.same(clusterSpec(harness.log, 'paris')?.podCIDRs, ['203.0.113.0/24'])
  publisher.end()
  await harness.broker.leave(peer)
  await t.rejects(
    join_(harness, 'paris', { facts: facts([PUBLIC]) }),
    { message: /is public space/ },
    'each token by itself',
  )
})

t.test('a token that allows nonsense is not made', async (t) => {
  const { tokens } = await startBroker(t)
  const rows: [string[], string | RegExp][] = [
    [['203.0.113.0'], 'allowedCIDRs "203.0.113.0": expected a CIDR such as 10.42.0.0/16'],
    [['203.0.113.1/24'], /no host bits set/],
    [Array.from({ length: 33 }, (_, i) => `203.0.${i}.0/24`), 'allowedCIDRs has 33 entries: expected at most 32'],
  ]
  for (const [allowedCIDRs, message] of rows)
    await t.rejects(tokens.create({ allowedCIDRs }), { code: 'InvalidArgument', field: 'allowedCIDRs', message })
  t.same(await tokens.list(), [])
})

t.test('an upgrade keeps public space that an earlier release took, and says so once', async (t) => {
  const harness = await startBroker(t, { config: { advertise: ['198.51.100.2:7443'] } })
  const token = await tokenFor(harness, '0.0.0.0/0')
  const paris = await join_(harness, 'paris', { token, facts: facts([PUBLIC, '10.44.0.0/16']) })
  await join_(harness, 'tokyo', {
    token: await tokenFor(harness, '198.51.100.0/24'),
    facts: facts(['198.51.100.0/24']),
  })
  await join_(harness, 'milano')
  for (const cluster of ['paris', 'tokyo', 'milano']) await forget(harness, cluster)
  await harness.broker.reviewAddresses()
  await harness.broker.reviewAddresses()
  const warned = harness.logger.messages('warn').filter((message) => message.includes('no token allowed'))
  t.equal(warned.length, 2, 'one for each, once')
  t.same(
    (await harness.tokens.members()).map(({ id, state, globalCIDRs, notes }) => [id, state, globalCIDRs, notes]),
    [
      ['milano', 'silent', [], []],
      [
        'paris',
        'silent',
        [],
        [`${PUBLIC} is public space that no token allowed; it stays because an earlier release accepted it`],
      ],
      [
        'tokyo',
        'silent',
        ['244.0.0.0/24'],
        [
          'its pods have global addresses: 198.51.100.0/24 holds 198.51.100.2, the broker',
          '198.51.100.0/24 is public space that no token allowed; it stays because an earlier release accepted it',
        ],
      ],
    ],
    'who takes the broker is translated; the other stays as it is',
  )
  const publisher = new Publisher(harness, paris.peer)
  await publisher.publish([])
  await publisher.facts(facts([PUBLIC, '10.44.0.0/16'], { version: '0.2.0' }))
  await publisher.facts(facts([PUBLIC, '203.0.113.128/28']))
  await publisher.acknowledged()
  t.match(publisher.refusals(), [/^podCIDRs\[1\]: "203\.0\.113\.128\/28" is public space/], 'but it does not grow')
  publisher.end()
})

t.test('facts of a member of the last release, told again after the upgrade, are none that change', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'paris', { token: await tokenFor(harness, PUBLIC), facts: facts([PUBLIC]) })
  await forget(harness, 'paris')
  const publisher = new Publisher(harness, peer)
  await publisher.publish([])
  await publisher.facts(facts([PUBLIC], { version: '0.2.0' }))
  await publisher.acknowledged()
  t.same(publisher.refusals(), [], 'also where nobody has looked at the rows yet')
  publisher.end()
})

t.test('a gateway that is told inside pods of another has that one translated', async (t) => {
  const harness = await startBroker(t)
  await join_(harness, 'calico', { facts: facts(['192.168.0.0/16']) })
  const paris = await join_(harness, 'paris', { facts: facts(['10.44.0.0/16']) })
  const publisher = new Publisher(harness, paris.peer)
  await publisher.publish([gateway('paris', '192.168.1.10')])
  t.same(clusterSpec(harness.log, 'calico')?.globalCIDRs, ['244.0.0.0/16'])
  t.same((await harness.tokens.members())[0]?.notes, [
    'its pods have global addresses: 192.168.0.0/16 holds 192.168.1.10, a gateway of cluster paris',
  ])
  await harness.broker.leave(paris.peer)
  t.same((await harness.tokens.members())[0]?.notes, [], 'it stays translated, and there is nothing to say of it')
  t.same(clusterSpec(harness.log, 'calico')?.globalCIDRs, ['244.0.0.0/16'])
  publisher.end()
})

t.test('where there is no block for it, the gateway is taken and nobody is thrown out', async (t) => {
  const harness = await startBroker(t, { config: { globalRange: '244.0.0.0/17' } })
  await join_(harness, 'calico', { facts: facts(['192.168.0.0/16']) })
  const paris = await join_(harness, 'paris', { facts: facts(['10.44.0.0/16']) })
  const publisher = new Publisher(harness, paris.peer)
  await publisher.publish([gateway('paris', '192.168.1.10')])
  t.same(publisher.refusals(), [])
  t.same(clusterSpec(harness.log, 'calico')?.globalCIDRs, [])
  publisher.end()
})

t.test('names of the broker are looked up, and the last answer counts', async (t) => {
  let answer: string[] | undefined = ['203.0.113.2', '2001:db8::2']
  const asked: string[] = []
  const hosts = new BrokerHosts(['broker.example', '192.0.2.1', 'broker.example', '2001:db8::1'], (host) => {
    asked.push(host)
    return answer === undefined ? Promise.reject(new Error('no answer')) : Promise.resolve(answer)
  })
  t.same(await hosts.addresses(), ['2001:db8::2', '203.0.113.2'])
  t.same(asked, ['broker.example'])
  answer = undefined
  t.same(await hosts.addresses(), ['2001:db8::2', '203.0.113.2'])
  t.equal(await new BrokerHosts(['192.0.2.1']).addresses(), undefined)
  const harness = await startBroker(t, { config: { advertise: ['broker.example:7443'] }, clock: new FakeClock() })
  await join_(harness, 'paris', { token: await tokenFor(harness, PUBLIC), facts: facts([PUBLIC]) })
  await harness.broker.reviewAddresses(['203.0.113.2'])
  t.same(clusterSpec(harness.log, 'paris')?.globalCIDRs, ['244.0.0.0/28'])
})

t.test('a claim keeps its place for as long as it is stated, and a new one comes after all others', async () => {
  const cidrs = fc.uniqueArray(fc.constantFrom('10.1.0.0/16', '10.2.0.0/16', '10.3.0.0/16', 'fd00::/48'), {
    minLength: 1,
  })
  const row = (podCIDRs: string[], claimed: Readonly<Record<string, number>>, gone = false): MemberRow => ({
    ...{ index: 1, facts: facts(podCIDRs), claimed, translated: false, blocks: {}, joinedAtMs: 0, lastSeenMs: 0 },
    ...{ certificates: [], complete: true, ...(gone ? { departedAtMs: 1, departure: 'left' as const } : {}) },
  })
  fc.assert(
    fc.property(cidrs, cidrs, fc.boolean(), (before, after, gone) => {
      const first = orderClaims(new Map(), undefined, facts(before))
      const old = row(before, first, gone)
      const members = new Map([
        ['a', old],
        ['b', row([], { '10.9.0.0/16': 40 })],
      ])
      const now = orderClaims(members, old, facts(after))
      return after.every((cidr) => (before.includes(cidr) && !gone ? now[cidr] === first[cidr] : (now[cidr] ?? 0) > 40))
    }),
  )
})

t.test('pods for which there is no room take no room from others, whoever put a gateway inside them', async (t) => {
  const harness = await startBroker(t, { config: { globalRange: '244.0.0.0/16' } })
  const apart = (cidr: string) => ({ facts: facts([cidr], { serviceCIDRs: [] }) })
  await join_(harness, 'wide', apart('10.0.0.0/8'))
  const { peer } = await join_(harness, 'milano', apart('172.16.0.0/16'))
  const publisher = new Publisher(harness, peer)
  await publisher.publish([gateway('milano', '10.1.2.3')])
  t.same(publisher.refusals(), [])
  const [, wide] = await harness.tokens.members()
  t.same(wide?.notes, [
    'its pods need global addresses, but the global range has no free block for them: ' +
      '10.0.0.0/8 holds 10.1.2.3, a gateway of cluster milano',
  ])

  await join_(harness, 'late', apart('172.17.0.0/20'))
  await join_(harness, 'same', apart('172.17.0.0/24'))
  t.same(clusterSpec(harness.log, 'late')?.globalCIDRs.length, 1, 'who has room gets it')
  await publisher.facts(facts(['172.16.0.0/16'], { serviceCIDRs: [], labels: { site: 'north' } }))
  await publisher.acknowledged()
  t.same(publisher.refusals(), [], 'nor are facts of others refused')
  await t.rejects(join_(harness, 'over', apart('10.9.0.0/24')), {
    field: 'podCIDRs',
    message: /10\.0\.0\.0\/8 has to be translated .* larger than the global range/,
  })
  publisher.end()
})

t.test(
  'a member that changes what it needs again and again does not fill the log with notes about others',
  async (t) => {
    const harness = await startBroker(t)
    await join_(harness, 'milano', { facts: facts(['10.42.0.0/16']) })
    const { peer } = await join_(harness, 'paris', { facts: facts(['10.50.0.0/16'], { serviceCIDRs: [] }) })
    const publisher = new Publisher(harness, peer)
    await publisher.publish([])
    for (let n = 0; n < 150; n += 1) {
      await publisher.facts(facts(['10.50.0.0/16'], { serviceCIDRs: [], neededCIDRs: [`10.42.7.${n}/32`] }))
      await publisher.acknowledged()
    }
    const reported = (): number =>
      harness.logger.messages('info').filter((one) => /note on the addresses/.test(one)).length
    t.equal(reported(), 100)
    await harness.broker.tidy()
    t.equal(reported(), 101, 'what still holds is told later')
    publisher.end()
  },
)
