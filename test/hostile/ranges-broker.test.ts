/** What a member may state about its addresses, sent to a real broker by clients that check nothing themselves. */
import type { Test } from 'tap'
import type { ClusterFacts } from '../../protocol/gen/broker.ts'
import { LoopbackBroker } from '../cli/loopback-broker.ts'
import { attack } from './support/attack.ts'
import { outcomeOf } from './support/raw-channel.ts'
import { NO_FACTS } from './support/raw-join.ts'
import { RawMember } from './support/raw-member.ts'
import { endpointRecord } from './support/raw-records.ts'

/** The addresses that members get; the clients here call the broker on loopback. */
const ADVERTISED = ['203.0.113.2:7443', '[2001:db8::2]:7443']

interface Stage {
  readonly join: (cluster: string, facts: ClusterFacts, ...allowedCIDRs: string[]) => Promise<RawMember>
  /** Each member as `sealane cluster list` prints it: `mallory 203.0.113.0/28 244.0.0.0/28: note`. */
  readonly list: () => Promise<string[]>
}

async function stage(t: Test): Promise<Stage> {
  const broker = await LoopbackBroker.start(t, { advertise: ADVERTISED })
  return {
    join: async (cluster, facts, ...allowedCIDRs) =>
      RawMember.join(t, broker, cluster, { ...facts, token: await broker.token({ allowedCIDRs }) }),
    list: () =>
      broker.tokens(async (store) => {
        const members = await store.members()
        return members.map(({ id, podCIDRs, notCarried, globalCIDRs, notes }) => {
          const carried = podCIDRs.filter((cidr) => !notCarried.includes(cidr))
          const words = [id, carried.join(','), globalCIDRs.join(',')].filter(Boolean).join(' ')
          return [words, ...notes].join(': ')
        })
      }),
  }
}

function rawFacts(podCidrs: string[], change: Partial<ClusterFacts> = {}): ClusterFacts {
  return { ...NO_FACTS, podCidrs, ...change }
}

/** The broker's answer to a member that publishes a gateway with this address. */
async function gatewayAt(address: string, member: RawMember): Promise<string> {
  const { cluster } = member.identity
  const stream = await member.publish().open()
  const candidates = [{ kind: 'private', address, port: 4500 }]
  return stream.put(endpointRecord(cluster, 'gw', Buffer.alloc(32, cluster).toString('base64'), candidates))
}

await attack('range-public', async (t) => {
  const { join, list } = await stage(t)
  const PUBLIC = ['203.0.113.0/28', '8.8.8.0/24', '9.0.0.0/8', '2001:db8::/32', '2600::/16']
  for (const range of PUBLIC) {
    const pods = range.includes(':') ? ['10.42.0.0/16', range] : [range]
    const asPods = await outcomeOf(join('mallory', rawFacts(pods)))
    t.match(asPods, `podCIDRs[${pods.length - 1}]: "${range}" is public space`, range)
    t.match(asPods, `sealane token create --allow-cidr ${range}`, 'what to do')
    const asServices = await outcomeOf(join('mallory', rawFacts(['10.42.0.0/16'], { serviceCidrs: [range] })))
    t.match(asServices, `serviceCIDRs[0]: "${range}" is public space`, `${range} for Services`)
  }
  t.match(await outcomeOf(join('mallory', rawFacts(['203.0.112.0/23']), '203.0.113.0/24')), 'is public space')
  t.same(await list(), [])
})

await attack('range-holds-broker', async (t) => {
  const { join, list } = await stage(t)
  const range = '203.0.113.0/28'
  const { joined } = await join('mallory', rawFacts([range]), '203.0.113.0/24')
  t.same(joined.globalCidrs, ['244.0.0.0/28'], 'whom the token allows the range is translated')
  t.same(joined.notes, [`its pods have global addresses: ${range} holds 203.0.113.2, the broker`])
  t.same(await list(), [`mallory ${range} 244.0.0.0/28: ${joined.notes.join()}`])
})

await attack('range-holds-broker-ipv6', async (t) => {
  const { join, list } = await stage(t)
  const { joined } = await join('mallory', rawFacts(['10.42.0.0/16', '2001:db8::/48']), '2001:db8::/32')
  t.same(joined.podCidrs, ['10.42.0.0/16'], 'nobody is told of it')
  t.same(joined.notes, ['its IPv6 is not carried: 2001:db8::/48 holds 2001:db8::2, the broker'])
  t.match((await list()).join(), joined.notes.join())
})

await attack('range-too-large-to-translate', async (t) => {
  const broker = await LoopbackBroker.start(t, { advertise: ['10.9.0.2:7443'], globalRange: '244.0.0.0/12' })
  const said = await outcomeOf(RawMember.join(t, broker, 'mallory', { podCidrs: ['10.0.0.0/8'] }))
  t.equal(
    said,
    'RESOURCE_EXHAUSTED podCIDRs: pod CIDR 10.0.0.0/8 has to be translated (10.0.0.0/8 holds 10.9.0.2, the broker) and is larger than the global range 244.0.0.0/12',
  )
  t.same(await broker.tokens((store) => store.members()), [])
})

await attack('range-holds-gateway', async (t) => {
  const { join, list } = await stage(t)
  const milano = await join('milano', rawFacts(['10.42.0.0/16']))
  t.equal(await gatewayAt('198.51.100.7', milano), 'ok')
  const { joined } = await join('mallory', rawFacts(['198.51.100.0/28', '172.16.0.0/16']), '198.51.100.0/24')
  t.same(joined.globalCidrs.length, 2)
  t.match(joined.notes.join(), '198.51.100.0/28 holds 198.51.100.7, a gateway of cluster milano')
  // The other order: the range was stated first, and the gateway cannot move.
  const paris = await join('paris', rawFacts(['10.44.0.0/16']))
  await join('carol', rawFacts(['172.20.0.0/16']))
  t.match(await list(), ['carol 172.20.0.0/16'])
  t.equal(await gatewayAt('172.20.3.4', paris), 'ok')
  t.match((await list())[0], /^carol 172.20.0.0\/16 244\S+: its pods .* holds 172.20.3.4, a gateway of cluster paris$/)
})

await attack('range-holds-nodes', async (t) => {
  const { join, list } = await stage(t)
  await join('milano', rawFacts(['10.42.0.0/16'], { neededCidrs: ['192.168.1.0/24'] }))
  const { joined } = await join('calico', rawFacts(['192.168.0.0/16']))
  t.same(joined.globalCidrs, ['244.0.0.0/16'], 'the pods are told by other addresses')
  t.same(joined.notes, [
    'its pods have global addresses: 192.168.0.0/16 overlaps 192.168.1.0/24, in use by machines of cluster milano',
  ])
  t.same((await list())[1], 'milano 10.42.0.0/16', 'and milano by its own')
})

await attack('range-holds-router', async (t) => {
  const { join, list } = await stage(t)
  const needed = ['192.168.1.0/24', '192.0.2.1/32', 'fd00:1::/64']
  await join('milano', rawFacts(['10.42.0.0/16'], { neededCidrs: needed }))
  const { joined } = await join('mallory', rawFacts(['192.168.1.0/28', 'fd00:1::/80']))
  t.same([joined.podCidrs, joined.globalCidrs], [['192.168.1.0/28'], ['244.0.0.0/28']])
  t.match(joined.notes[0], '192.168.1.0/28 overlaps 192.168.1.0/24, in use by machines of cluster milano')
  t.match(joined.notes[1], 'fd00:1::/80 overlaps fd00:1::/64, in use by machines of cluster milano')
  const router = await join('trent', rawFacts(['192.0.2.0/28']), '192.0.2.0/24')
  t.match(router.joined.notes, [/holds 192\.0\.2\.1, in use by machines of cluster milano/])
  t.equal((await list()).filter((line) => line.startsWith('milano 10.42.0.0/16')).length, 1)
})

await attack('range-holds-name-server', async (t) => {
  const { join } = await stage(t)
  await join('milano', rawFacts(['10.42.0.0/16'], { neededCidrs: ['9.9.9.9/32', '2620:fe::fe/128'] }))
  const facts = rawFacts(['9.9.9.0/24', '2620:fe::/48'])
  const { joined } = await join('mallory', facts, '9.9.9.0/24', '2620:fe::/32')
  t.same([joined.podCidrs, joined.globalCidrs], [['9.9.9.0/24'], ['244.0.0.0/24']])
  t.match(joined.notes, [/holds 9\.9\.9\.9, in use by/, /holds 2620:fe::fe, in use by/])
})

await attack('range-grows-later', async (t) => {
  const { join, list } = await stage(t)
  const paris = await (await join('paris', rawFacts(['10.44.0.0/16']))).publish().open()
  await join('milano', rawFacts(['10.42.0.0/16', 'fd00:42::/48'], { neededCidrs: ['192.168.1.0/24'] }))
  const before = await list()
  const grown = await paris.facts(rawFacts(['10.44.0.0/16', '203.0.113.0/28']))
  t.match(grown, 'podCIDRs[1]: "203.0.113.0/28" is public space')
  t.same(await list(), before, 'all is as it was')
  // The number of paris is lower, but it stated this range later.
  t.equal(await paris.facts(rawFacts(['10.44.0.0/16', 'fd00:42::/56'])), 'ok')
  t.same(await list(), [
    'milano 10.42.0.0/16,fd00:42::/48',
    'paris 10.44.0.0/16: its IPv6 is not carried: fd00:42::/56 overlaps fd00:42::/48 of cluster milano',
  ])
  // The same range in other notations, and as a range that machines need, because machines may be added later.
  for (const text of ['fd00:0042::/48', 'fd00:42:0::/48'])
    for (const change of [{ pods: [text] }, { needed: [text] }]) {
      const facts = rawFacts(['10.44.0.0/16', ...(change.pods ?? [])], { neededCidrs: change.needed ?? [] })
      t.equal(await paris.facts(facts), 'ok')
      t.equal((await list())[0], 'milano 10.42.0.0/16,fd00:42::/48', text)
    }
  t.equal(await paris.facts(rawFacts(['192.168.0.0/16'])), 'ok')
  t.match((await list())[1], /^paris 192\.168\.0\.0\/16 244\.\S+: its pods have global addresses/)
})

await attack('range-needed-is-bounded', async (t) => {
  const { join, list } = await stage(t)
  await join('milano', rawFacts(['10.42.0.0/16']))
  const say = (neededCidrs: string[]) => outcomeOf(join('mallory', rawFacts(['10.44.0.0/16'], { neededCidrs })))
  t.match(await say(['0.0.0.0/0']), 'neededCIDRs[0]: "0.0.0.0/0" is too large: expected /8 or smaller')
  t.match(await say(['::/0']), 'neededCIDRs[0]: "::/0" is too large: expected /16 or smaller')
  t.match(await say(['10.0.0.1/8']), 'neededCIDRs[0]')
  t.match(await say(['127.0.0.0/8']), 'neededCIDRs[0]')
  t.match(await say(Array.from({ length: 65 }, (_, i) => `192.168.${i}.0/24`)), 'neededCIDRs')
  t.same(await list(), ['milano 10.42.0.0/16'])
  const mallory = await join('mallory', rawFacts(['10.44.0.0/16'], { neededCidrs: ['10.42.0.0/16', 'fd00::/16'] }))
  t.match((await list()).join(), 'milano 10.42.0.0/16 244.0.0.0/16', 'others are called by global addresses then')
  t.same(mallory.joined.globalCidrs, [])
})
