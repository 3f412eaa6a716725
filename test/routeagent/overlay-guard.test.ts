/**
 * Which packets may use the overlay and which may come out of it, as imagined packets traced through the planned table.
 */
import t from 'tap'
import { FakeNft } from '../../kernel/fake/fake-nft.ts'
import { type TracePacket, type TraceResult, traceNft } from '../../kernel/fake/fake-nft-tracer.ts'
import type { OpenPort } from '../../model/addresses/address-port.ts'
import { nodeChange, nodeNftWorld, planTable } from '../../routeagent/balance/plan-node-table.ts'
import type { KernelFacts } from '../../routeagent/world/node-world.ts'
import { overlayContext } from '../../routeagent/balance/plan-overlay-guard.ts'
import { NODES, WORKER_FACTS, WORKER_LINKS, cluster, dualStack, endpoint, routeWorld } from './support/site.ts'

const DUAL = {
  clusters: [
    dualStack(cluster('milano', 1, '244.0.0.0/16'), 'fd42:1::/48'),
    dualStack(cluster('paris', 2, '244.1.0.0/16'), 'fd42:2::/48'),
  ],
}

async function tableOf(family: 4 | 6, openPorts: readonly OpenPort[] = []): Promise<FakeNft> {
  const nft = new FakeNft({ family: family === 4 ? 'ip' : 'ip6' })
  await nft.run(planTable(nodeNftWorld(routeWorld(DUAL), family, openPorts), new Map()).statements)
  return nft
}

/** The answer to a packet that is refused. */
type Row = readonly [what: string, want: 'accept' | 'drop' | Answer, packet: Partial<TracePacket>]
type Answer = 'tcp reset' | 'port-unreachable'

function outcome(result: TraceResult): string {
  return result.answer ?? result.verdict
}

const OUTER = { iif: 'eth0', saddr: '192.168.7.1', daddr: '192.168.7.11', l4proto: 'udp', dport: 4810 } as const

t.test('the overlay port', async (t) => {
  const nft = await tableOf(4)
  const rows: readonly Row[] = [
    ['a node, by the underlay', 'accept', {}],
    ['a machine that is no node', 'drop', { saddr: '192.168.7.99' }],
    ['ourselves', 'drop', { saddr: '192.168.7.11' }],
    ['a pod in the name of a node', 'drop', { iif: 'cni0' }],
    ['a lane in the name of a node', 'drop', { iif: 'sealane0' }],
    ['out of the overlay itself', 'drop', { iif: 'sealane-vx' }],
    ['our address among the pods', 'drop', { daddr: '10.42.1.1' }],
    ['another port', 'accept', { saddr: '192.168.7.99', dport: 4811 }],
    ['TCP of that number', 'accept', { saddr: '192.168.7.99', l4proto: 'tcp' }],
  ]
  for (const [what, want, change] of rows) {
    t.equal(traceNft(nft, 'input', { ...OUTER, ...change }).verdict, want, what)
  }
  const forwarded = { ...OUTER, iif: 'cni0', oif: 'eth0', saddr: '10.42.1.5', daddr: '192.168.7.1' }
  t.equal(traceNft(nft, 'forward', forwarded).verdict, 'drop', 'a pod to the port of another node')
  t.equal(
    traceNft(nft, 'forward', { ...forwarded, daddr: '10.42.2.9' }).verdict,
    'accept',
    'a pod to such a port of a pod',
  )
  t.notOk(traceNft(nft, 'prerouting', forwarded).packet.notrack, 'which is tracked like any')
  t.ok(traceNft(nft, 'prerouting', OUTER).packet.notrack, 'the overlay is not')
})

t.test('a chosen port, and the present device with another one', async (t) => {
  const tableWith = async (links: KernelFacts['links']): Promise<FakeNft> => {
    const nft = new FakeNft({ family: 'ip' })
    const world = routeWorld({ ...DUAL, overlayPort: 4811, facts: { ...WORKER_FACTS, links } })
    await nft.run(planTable(nodeNftWorld(world, 4), new Map()).statements)
    return nft
  }
  const outcomeOf = (nft: FakeNft, change: Partial<TracePacket>): string =>
    traceNft(nft, 'input', { ...OUTER, ...change }).verdict
  const stranger = { saddr: '192.168.7.99' }
  const chosen = await tableWith(WORKER_LINKS)
  t.equal(outcomeOf(chosen, { dport: 4811 }), 'accept')
  t.equal(outcomeOf(chosen, { ...stranger, dport: 4811 }), 'drop')
  t.equal(outcomeOf(chosen, stranger), 'accept', 'the default port is no longer ours')
  t.ok(traceNft(chosen, 'prerouting', { ...OUTER, dport: 4811 }).packet.notrack)
  const device = {
    name: 'sealane-vx',
    index: 9,
    kind: 'vxlan',
    mtu: 1450,
    up: true,
    mac: '',
    vni: 7300,
    local: '',
  } as const
  const during = await tableWith([...WORKER_LINKS, { ...device, port: 4810 }])
  for (const dport of [4810, 4811]) {
    t.equal(outcomeOf(during, { ...stranger, dport }), 'drop', `${dport}, until the device is replaced`)
    t.equal(outcomeOf(during, { dport }), 'accept')
  }
  t.equal(String(await tableWith([...WORKER_LINKS, { ...device, port: 4811 }])), String(chosen))
})

t.test(
  'without an address of its own, a node takes nothing at the port, and what it drops is tracked like any',
  async (t) => {
    const nft = new FakeNft({ family: 'ip' })
    const world = nodeNftWorld(routeWorld({ ...DUAL, facts: { ...WORKER_FACTS, addresses: [] } }), 4)
    t.equal(world.overlay, undefined)
    await nft.run(planTable(world, new Map()).statements)
    t.equal(traceNft(nft, 'input', OUTER).verdict, 'drop')
    const forwarded = { ...OUTER, iif: 'cni0', oif: 'eth0', saddr: '10.42.1.5', daddr: '192.168.7.1' }
    t.equal(traceNft(nft, 'forward', forwarded).verdict, 'drop', 'a pod to the port of another node')
    for (const packet of [OUTER, forwarded]) t.notOk(traceNft(nft, 'prerouting', packet).packet.notrack)
    const own = { oif: 'eth0', saddr: '192.168.7.11', daddr: '192.168.7.1', l4proto: 'udp', dport: 4810 } as const
    t.ok(traceNft(nft, 'output', own).packet.notrack, 'what it sends is the overlay')
  },
)

for (const [family, own, far, bridge, node, icmp] of [
  [4, '10.42.1.5', '244.1.0.9', '10.42.1.1', '192.168.7.50', 'icmp'],
  [6, 'fd42:1::5', 'fd42:2::9', 'fd42:1::1', 'fd00::50', 'icmpv6'],
] as const) {
  t.test(`out of the overlay, IPv${family}`, async (t) => {
    const nft = await tableOf(family)
    const base = { iif: 'sealane-vx', oif: 'cni0', saddr: far, daddr: own, l4proto: 'tcp', dport: 80 } as const
    const forward: readonly Row[] = [
      ['another cluster to a pod', 'accept', {}],
      ['a pod to another cluster', 'accept', { saddr: own, daddr: far, oif: 'sealane0' }],
      ['the node network to a pod', 'drop', { saddr: node }],
      ['a pod to a pod', 'drop', { saddr: own }],
      ['another cluster to the node network', 'drop', { daddr: node, oif: 'eth0' }],
      ['another cluster to another cluster', 'drop', { daddr: far, oif: 'eth0' }],
      ['into the overlay again', 'drop', { saddr: own, daddr: far, oif: 'sealane-vx' }],
      ['a NodePort', 'tcp reset', { originalDaddr: bridge, originalDport: 30080, syn: true }],
      ['a later packet', 'port-unreachable', { originalDaddr: bridge, originalDport: 30080 }],
      ['UDP', 'port-unreachable', { originalDaddr: bridge, originalDport: 30080, l4proto: 'udp' }],
      ['an answer to a balanced call', 'accept', { originalDaddr: '245.0.0.7', ctDirection: 'reply' }],
    ]
    for (const [what, want, change] of forward) {
      t.equal(outcome(traceNft(nft, 'forward', { ...base, ...change })), want, what)
    }
    const { oif: _, ...local } = { ...base, daddr: bridge, dport: 10250 }
    const [echo, tooBig, redirect] = family === 4 ? [8, 3, 5] : [128, 2, 137]
    const input: readonly Row[] = [
      ['TCP', 'tcp reset', { syn: true }],
      ['TCP that nobody began here', 'port-unreachable', {}],
      ['UDP', 'port-unreachable', { l4proto: 'udp' }],
      ['an answer', 'accept', { ctState: 'established' }],
      ['echo', 'accept', { l4proto: icmp, icmpType: echo }],
      ['does not fit', 'accept', { l4proto: icmp, icmpType: tooBig }],
      ['a redirect', 'port-unreachable', { l4proto: icmp, icmpType: redirect }],
      ['echo from nobody', 'drop', { l4proto: icmp, icmpType: echo, saddr: node }],
      ['echo for the node network', 'drop', { l4proto: icmp, icmpType: echo, daddr: node }],
      ['from a pod of this node', 'accept', { iif: 'cni0', saddr: own }],
    ]
    for (const [what, want, change] of input) {
      t.equal(outcome(traceNft(nft, 'input', { ...local, ...change })), want, what)
    }
    const open = await tableOf(family, [{ protocol: 'tcp', port: 10250 }])
    t.equal(traceNft(open, 'input', local).verdict, 'accept', 'a port that is named')
    t.equal(traceNft(open, 'input', { ...local, l4proto: 'udp' }).verdict, 'reject', 'by its protocol')
    const nodePort = { ...base, originalDaddr: bridge, originalDport: 10250 }
    t.equal(traceNft(open, 'forward', nodePort).verdict, 'accept', 'a NodePort that is named')
    const here = await tableOf(family, [{ protocol: 'udp', port: 53, address: bridge }])
    t.equal(traceNft(here, 'input', { ...local, l4proto: 'udp', dport: 53 }).verdict, 'accept', 'at its address')
    const elsewhere = { ...local, l4proto: 'udp', dport: 53, daddr: own } as const
    t.equal(traceNft(here, 'input', elsewhere).verdict, 'reject', 'and no other')
  })
}

t.test('what is handed on from gateway to gateway', async (t) => {
  const [a, b, worker] = ['0a:5e:c0:a8:07:01', '0a:5e:c0:a8:07:02', '0a:5e:c0:a8:07:0b']
  const rows: [node: string, gateways: string[], from: string, want: string][] = [
    ['worker', ['gw-a', 'gw-b'], a, 'drop'],
    ['gw-a', ['gw-a', 'gw-b'], worker, 'accept'],
    ['gw-a', ['gw-a', 'gw-b'], b, 'drop'],
    ['gw-b', ['gw-a', 'gw-b'], a, 'drop'],
    ['gw-a', ['gw-a'], worker, 'accept'],
  ]
  for (const family of [4, 6] as const) {
    for (const [name, gateways, etherSaddr, want] of rows) {
      const nft = new FakeNft({ family: family === 4 ? 'ip' : 'ip6' })
      const endpoints = gateways.map((gateway, lane) => endpoint('milano', gateway, lane))
      const world = routeWorld({ ...DUAL, node: name, endpoints })
      await nft.run(planTable(nodeNftWorld(world, family), new Map()).statements)
      const [saddr, daddr] = family === 4 ? ['10.42.1.5', '244.1.0.9'] : ['fd42:1::5', 'fd42:2::9']
      const packet = {
        iif: 'sealane-vx',
        oif: 'sealane-vx',
        etherSaddr,
        saddr,
        daddr,
        l4proto: 'tcp',
        dport: 80,
      } as const
      t.equal(
        traceNft(nft, 'forward', packet).verdict,
        want,
        `IPv${family}: from ${etherSaddr} at ${name} of ${gateways.join()}`,
      )
    }
  }
})

t.test('probes between nodes, over the overlay', async (t) => {
  const nft = await tableOf(4)
  const probe = {
    iif: 'sealane-vx',
    saddr: '192.168.7.1',
    daddr: '192.168.7.11',
    l4proto: 'udp',
    sport: 4498,
    dport: 4498,
  }
  const rows: readonly Row[] = [
    ['a probe', 'accept', {}],
    ['from a machine that is no node', 'drop', { saddr: '192.168.7.99' }],
    ['from a pod of another cluster', 'drop', { saddr: '244.1.0.9' }],
    ['from another port', 'drop', { sport: 5000 }],
    ['to another port', 'drop', { dport: 10250 }],
    ['to an address among the pods', 'drop', { daddr: '10.42.1.1' }],
    ['a knock', 'accept', { l4proto: 'tcp', sport: 40000, syn: true }],
    ['its answer', 'accept', { l4proto: 'tcp', dport: 40000 }],
    ['TCP to another port', 'drop', { l4proto: 'tcp', sport: 40000, dport: 10250, syn: true }],
  ]
  for (const [what, want, change] of rows) {
    const packet = { ...probe, ...change } as TracePacket
    t.equal(traceNft(nft, 'input', packet).verdict, want, what)
  }
})

t.test('by which devices the other nodes come in', async (t) => {
  const devices = (change: Partial<typeof WORKER_FACTS>): readonly string[] | undefined =>
    overlayContext(routeWorld({ facts: { ...WORKER_FACTS, ...change } }))?.devices
  t.strictSame(devices({}), ['eth0'])
  const lo = WORKER_FACTS.addresses.map((one) => (one.device === 'eth0' ? { ...one, device: 'lo' } : one))
  const links = [...WORKER_LINKS, { name: 'eth1', index: 9, kind: '', mtu: 1500, up: true, mac: '' }]
  const mainRoutes = [
    { destination: '0.0.0.0/0', type: 'unicast', device: 'eth1' },
    { destination: '192.168.7.2/32', type: 'unicast', device: 'eth0' },
    { destination: '10.42.1.0/24', type: 'unicast', device: 'cni0' },
  ] as const
  t.strictSame(devices({ addresses: lo, links, mainRoutes }), ['eth0', 'eth1', 'lo'], 'an InternalIP on loopback')
  t.equal(overlayContext(routeWorld({ node: 'nobody' })), undefined)
})

t.test('nodes come and go without the table being made anew', async (t) => {
  const before = nodeNftWorld(routeWorld(), 4)
  const after = nodeNftWorld(routeWorld({ nodes: [NODES[0], NODES[2]] }), 4)
  t.strictSame(nodeChange(before, after), [{ map: 'overlay-nodes', remove: ['192.168.7.2'], add: [] }])
  t.strictSame(nodeChange(before, before), [])
})
