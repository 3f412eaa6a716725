import t from 'tap'
import { FakeNft } from '../../../../kernel/fake/fake-nft.ts'
import { traceNft, type TracePacket } from '../../../../kernel/fake/fake-nft-tracer.ts'
import type { NftBaseChain, NftStatement } from '../../../../kernel/nft/nft-transaction.ts'

const table = 'sealane_node'
const chain = (name: string, base?: NftBaseChain): NftStatement => ({
  verb: 'add-chain',
  table,
  chain: name,
  ...(base === undefined ? {} : { base }),
})
const rule = (name: string, text: string): NftStatement => ({ verb: 'add-rule', table, chain: name, rule: text })
const slot = (name: string, value: string): NftStatement[] => [
  chain(name),
  {
    verb: 'add-map',
    table,
    map: name,
    type: { kind: 'map', key: 'ipv4_addr . inet_proto . inet_service', value: 'ipv4_addr . inet_service' },
  },
  { verb: 'add-elements', table, map: name, elements: [{ key: '245.0.0.7 . tcp . 80', value }] },
  rule(name, `dnat ip to ip daddr . meta l4proto . th dport map @${name}`),
]

async function node(): Promise<FakeNft> {
  const nft = new FakeNft()
  await nft.run([
    { verb: 'add-table', table },
    ...slot('slot-0', '10.42.1.5 . 8080'),
    ...slot('slot-1', '244.1.0.9 . 8080'),
    chain('pick-2'),
    rule('pick-2', 'numgen random mod 2 vmap { 0 : goto slot-0, 1 : goto slot-1 }'),
    chain('refuse'),
    rule('refuse', 'meta l4proto tcp reject with tcp reset'),
    rule('refuse', 'reject'),
    {
      verb: 'add-map',
      table,
      map: 'services',
      type: { kind: 'map', key: 'ipv4_addr . inet_proto . inet_service', value: 'verdict' },
    },
    { verb: 'add-elements', table, map: 'services', elements: [{ key: '245.0.0.7 . tcp . 80', value: 'goto pick-2' }] },
    { verb: 'add-map', table, map: 'remote', type: { kind: 'set', key: 'ipv4_addr', flags: ['interval'] } },
    { verb: 'add-elements', table, map: 'remote', elements: [{ key: '244.0.0.0/15' }] },
    chain('translate-in', { type: 'filter', hook: 'prerouting', priority: -300 }),
    rule('translate-in', 'iifname "sealane*" ip daddr 244.0.0.0/16 ip daddr set ip daddr & 0.0.255.255 | 10.42.0.0'),
    rule('translate-in', 'iifname { "sealane0", "sealane1" } ip daddr != { 10.42.7.0/24 } notrack'),
    chain('balance', { type: 'nat', hook: 'prerouting', priority: -101 }),
    rule('balance', 'ip daddr 245.0.0.0/16 counter ip daddr . meta l4proto . th dport vmap @services'),
    chain('guard', { type: 'filter', hook: 'forward', priority: 0 }),
    rule('guard', 'ct state established,related accept'),
    rule('guard', 'ip daddr 245.0.0.0/16 goto refuse'),
    rule('guard', 'ip daddr 10.42.9.0/24 tcp flags & (syn | ack) == syn counter reject with tcp reset'),
    rule('guard', 'ip daddr 10.42.9.0/24 reject with icmp type admin-prohibited'),
    rule('guard', 'ip daddr @remote tcp flags syn tcp option maxseg size set rt mtu'),
    rule('guard', 'iifname "sealane0" oifname "sealane1" counter drop'),
    chain('keep', { type: 'nat', hook: 'postrouting', priority: 99 }),
    rule('keep', 'ip saddr 10.42.0.0/16 ip daddr @remote snat to ip saddr'),
  ])
  return nft
}

const syn: TracePacket = { saddr: '10.42.7.3', daddr: '245.0.0.7', l4proto: 'tcp', sport: 40_000, dport: 80, syn: true }

t.test('a clusterset IP is balanced by what was drawn', async (t) => {
  const nft = await node()
  const got = [0, 1].map((drawn) => traceNft(nft, 'prerouting', syn, { draw: () => drawn }))
  t.match(got[0], { verdict: 'accept', packet: { daddr: '10.42.1.5', dport: 8080, originalDaddr: '245.0.0.7' } })
  t.match(got[1]?.packet, { daddr: '244.1.0.9', dport: 8080, saddr: '10.42.7.3' })
  t.same(
    got[0]?.path.map((line) => line.split(':')[0]),
    ['sealane_node balance', 'sealane_node pick-2', 'sealane_node slot-0'],
  )
})

t.test('an unknown port is refused where it would leave', async (t) => {
  const nft = await node()
  const before = traceNft(nft, 'prerouting', { ...syn, dport: 81 })
  t.match(before, { verdict: 'accept', packet: { daddr: '245.0.0.7' } })
  t.match(traceNft(nft, 'forward', before.packet), { verdict: 'reject', answer: 'tcp reset' })
  t.match(traceNft(nft, 'forward', { ...before.packet, l4proto: 'udp' }), {
    verdict: 'reject',
    answer: 'port-unreachable',
  })
  t.equal(traceNft(nft, 'forward', { ...syn, daddr: '10.0.0.1' }).answer, undefined)
})

t.test('a refusal answers by what the packet is', async (t) => {
  const nft = await node()
  const answer = (change: Partial<TracePacket>): string | undefined =>
    traceNft(nft, 'forward', { ...syn, daddr: '10.42.9.1', ...change }).answer
  t.equal(answer({}), 'tcp reset')
  t.equal(answer({ syn: false }), 'admin-prohibited', 'a later packet')
  t.equal(answer({ l4proto: 'udp' }), 'admin-prohibited')
  await nft.run([{ verb: 'flush-chain', table, chain: 'guard' }, rule('guard', 'counter reject with tcp reset')])
  t.equal(answer({ syn: false }), 'tcp reset')
  t.match(
    traceNft(nft, 'forward', { ...syn, l4proto: 'udp' }),
    { verdict: 'accept', path: [] },
    'which is for TCP alone',
  )
})

t.test('out of a lane: the own address, and no tracking where it only passes', async (t) => {
  const nft = await node()
  const inbound: TracePacket = { iif: 'sealane0', saddr: '244.1.0.9', daddr: '244.0.7.3', l4proto: 'tcp', dport: 80 }
  t.match(traceNft(nft, 'prerouting', inbound).packet, { daddr: '10.42.7.3' })
  t.equal(traceNft(nft, 'prerouting', inbound).packet.notrack, undefined)
  t.match(traceNft(nft, 'prerouting', { ...inbound, daddr: '244.0.8.3' }).packet, { daddr: '10.42.8.3', notrack: true })
  t.match(traceNft(nft, 'prerouting', { ...inbound, iif: 'eth0' }).packet, { daddr: '244.0.7.3' })
})

t.test('forwarding and source address', async (t) => {
  const nft = await node()
  t.equal(traceNft(nft, 'forward', { ...syn, iif: 'sealane0', oif: 'sealane1' }).verdict, 'reject')
  t.equal(traceNft(nft, 'forward', { ...syn, daddr: '10.9.9.9', iif: 'sealane0', oif: 'sealane1' }).verdict, 'drop')
  t.equal(
    traceNft(nft, 'forward', { ...syn, iif: 'sealane0', oif: 'sealane1', ctState: 'established' }).verdict,
    'accept',
  )
  const out = traceNft(nft, 'postrouting', { ...syn, daddr: '244.1.0.9' })
  t.equal(out.packet.saddr, '10.42.7.3')
  t.equal(out.path.length, 1, 'claimed by the identity translation')
  t.equal(
    traceNft(nft, 'postrouting', { ...syn, daddr: '244.1.0.9', ctState: 'established' }).path.length,
    0,
    'nat sees first packets only',
  )
})

t.test('what it does not know it does not guess', async (t) => {
  const nft = await node()
  await nft.run([rule('guard', 'meta mark 5 drop')])
  t.throws(
    () => traceNft(nft, 'forward', { ...syn, daddr: '10.0.0.1' }),
    /the tracer does not know "meta" in: meta mark 5 drop/,
  )
})

/** The same node for IPv6: nothing is translated, and the ICMPv6 messages that IPv6 needs are allowed. */
async function node6(): Promise<FakeNft> {
  const nft = new FakeNft({ family: 'ip6' })
  const key = 'ipv6_addr . inet_proto . inet_service'
  const services = 'fd53:ea1a:4e00::f500:0/112'
  const element = (value: string) => ({ key: 'fd53:ea1a:4e00::f500:7 . tcp . 80', value })
  await nft.run([
    { verb: 'add-table', table },
    chain('pick-1'),
    { verb: 'add-map', table, map: 'slot-0', type: { kind: 'map', key, value: 'ipv6_addr . inet_service' } },
    { verb: 'add-elements', table, map: 'slot-0', elements: [element('fd42:1::5 . 8080')] },
    rule('pick-1', 'dnat ip6 to ip6 daddr . meta l4proto . th dport map @slot-0'),
    { verb: 'add-map', table, map: 'services', type: { kind: 'map', key, value: 'verdict' } },
    { verb: 'add-elements', table, map: 'services', elements: [element('goto pick-1')] },
    { verb: 'add-map', table, map: 'remote', type: { kind: 'set', key: 'ipv6_addr', flags: ['interval'] } },
    { verb: 'add-elements', table, map: 'remote', elements: [{ key: 'fd42:1::/48' }, { key: 'fd43::1-fd43::9' }] },
    chain('balance', { type: 'nat', hook: 'prerouting', priority: -101 }),
    rule('balance', `ip6 daddr ${services} ip6 daddr . meta l4proto . th dport vmap @services`),
    rule('balance', 'ip6 daddr fd42:9::9 meta l4proto tcp dnat ip6 to [fd42:9::1]:8443'),
    rule('balance', 'ip6 daddr fd42:9::9 dnat to fd42:9::2'),
    chain('guard', { type: 'filter', hook: 'forward', priority: 0 }),
    rule('guard', 'icmpv6 type { packet-too-big, 1 } accept'),
    rule('guard', 'meta l4proto ipv6-icmp drop'),
    rule('guard', `ct original ip6 daddr ${services} accept`),
    rule('guard', 'ip6 saddr != @remote reject with icmpv6 type addr-unreachable'),
    chain('keep', { type: 'nat', hook: 'postrouting', priority: 99 }),
    rule('keep', 'ip6 saddr @remote snat ip6 to ip6 saddr'),
  ])
  return nft
}

t.test('IPv6: connections are given their backend', async (t) => {
  const nft = await node6()
  const at = (daddr: string, l4proto: TracePacket['l4proto'] = 'tcp'): TracePacket =>
    traceNft(nft, 'prerouting', { saddr: 'fd42:2::1', daddr, l4proto, dport: 80 }).packet
  t.match(at('fd53:ea1a:4e00::f500:7'), {
    daddr: 'fd42:1::5',
    dport: 8080,
    originalDaddr: 'fd53:ea1a:4e00::f500:7',
  })
  t.match(at('fd53:ea1a:4e00::f500:8'), { daddr: 'fd53:ea1a:4e00::f500:8', dport: 80 })
  t.match(at('fd42:9::9'), { daddr: 'fd42:9::1', dport: 8443 })
  t.match(at('fd42:9::9', 'udp'), { daddr: 'fd42:9::2', dport: 80 })
  const ipv4: TracePacket = { saddr: '10.0.0.1', daddr: '245.0.0.7', l4proto: 'tcp', dport: 80 }
  t.same(traceNft(nft, 'prerouting', ipv4), { packet: ipv4, verdict: 'accept', path: [] }, 'IPv4 is not its matter')
})

t.test('IPv6: prefixes, ranges and types of ICMPv6', async (t) => {
  const nft = await node6()
  const verdict = (saddr: string, rest: Partial<TracePacket> = {}): string =>
    traceNft(nft, 'forward', { saddr, daddr: 'fd42:2::1', l4proto: 'tcp', ...rest }).verdict
  t.equal(verdict('fd42:1:0:5::9'), 'accept')
  t.equal(verdict('fd43::9'), 'accept', 'the end of a range')
  for (const saddr of ['fd42:2::9', 'fd43::a', 'fd43::', '::1']) t.equal(verdict(saddr), 'reject', saddr)
  t.equal(verdict('fd42:2::9', { originalDaddr: 'fd53:ea1a:4e00::f500:7' }), 'accept')
  const icmp = (icmpType: number): string => verdict('2001:db8::1', { l4proto: 'icmpv6', icmpType })
  t.same([1, 2, 3, 128].map(icmp), ['accept', 'accept', 'drop', 'drop'])
  t.same(traceNft(nft, 'postrouting', { saddr: 'fd42:1::9', daddr: 'fd42:2::1', l4proto: 'udp' }).path, [
    'sealane_node keep: ip6 saddr @remote snat ip6 to ip6 saddr',
  ])
})

t.test('a map of numbers, and one that rules add to', async (t) => {
  const nft = new FakeNft()
  const port = 'ipv4_addr . inet_proto . inet_service'
  const drawn = 'ip daddr . meta l4proto . th dport . jhash ip saddr mod 2 seed 0x1 offset 7'
  const client = 'ip saddr . ct original ip daddr'
  const type = { kind: 'map', key: `${port} . integer`, value: 'ipv4_addr' } as const
  const dynamic = {
    kind: 'map',
    key: 'ipv4_addr . ipv4_addr',
    value: 'ipv4_addr',
    size: 1,
    flags: ['dynamic'],
  } as const
  const key = '245.0.0.7 . tcp . 80'
  await nft.run([
    { verb: 'add-table', table },
    { verb: 'add-map', table, map: 'choices', type },
    { verb: 'add-map', table, map: 'affinity', type: dynamic },
    {
      verb: 'add-elements',
      table,
      map: 'choices',
      elements: [7, 8].map((number) => ({ key: `${key} . ${number}`, value: `244.1.0.${number}` })),
    },
    chain('balance', { type: 'nat', hook: 'prerouting', priority: -101 }),
    rule('balance', 'ip saddr 10.42.7.9 delete @affinity { ip saddr . ip daddr : ip daddr }'),
    rule('balance', 'ip daddr set ip saddr . ip daddr map @affinity accept'),
    rule('balance', `ip daddr set ${drawn} map @choices`),
    rule('balance', `update @affinity { ${client} timeout 60s : ip daddr } accept`),
    rule('balance', 'ip daddr set ct original ip daddr'),
  ])
  const to = (draw: number, saddr = syn.saddr): string =>
    traceNft(nft, 'prerouting', { ...syn, saddr }, { draw: () => draw }).packet.daddr
  t.equal(to(1), '244.1.0.8', 'drawn from 7')
  t.equal(to(0), '244.1.0.8', 'and remembered')
  t.equal(to(0, '10.42.7.4'), '245.0.0.7', 'a full map ends the rule')
  t.equal(nft.table(table)?.maps.get('affinity')?.elements.size, 1)
  t.same(await nft.elements(table, 'affinity'), [{ key: '10.42.7.3 . 245.0.0.7', value: '244.1.0.8' }])
})
