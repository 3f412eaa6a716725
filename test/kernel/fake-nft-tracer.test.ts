import t from 'tap'
import { FakeNft } from '../../kernel/fake-nft.ts'
import { traceNft, type TracePacket } from '../../kernel/fake-nft-tracer.ts'
import type { NftBaseChain, NftStatement } from '../../kernel/nft-transaction.ts'

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
  t.match(traceNft(nft, 'forward', before.packet), { verdict: 'reject' })
  t.match(traceNft(nft, 'forward', { ...before.packet, l4proto: 'udp' }), { verdict: 'reject' })
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
