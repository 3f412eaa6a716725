import fc from 'fast-check'
import t from 'tap'
import {
  GatewayNodeError,
  gatewayLabel,
  gatewayProblem,
  withGatewayLabels,
  laneCandidates,
  standbys,
} from '../../../model/lanes/gateway-node.ts'
import { firstPortProblem, overlayPortProblem } from '../../../model/lanes/public-address.ts'
import type { Node } from '../../../model/objects.ts'
import { nodeObject } from '../../support/objects/node-objects.ts'

function node(labels?: Record<string, string>, annotations?: Record<string, string>): Node {
  return nodeObject('n1', { metadata: { ...(labels && { labels }), ...(annotations && { annotations }) } })
}

t.test('what a Node says', async (t) => {
  t.equal(gatewayLabel(node()), undefined)
  t.equal(gatewayLabel(node({ 'kubernetes.io/hostname': 'n1' })), undefined)
  t.strictSame(gatewayLabel(node({ 'sealane.io/gateway': '0' })), { lane: 0 })
  for (const open of ['true', '']) t.strictSame(gatewayLabel(node({ 'sealane.io/gateway': open })), { lane: 'any' })
  t.strictSame(gatewayLabel(node({ 'sealane.io/gateway': '7' }, { 'sealane.io/public-address': '192.0.2.9' })), {
    lane: 7,
    publicAddress: '192.0.2.9',
  })
})

t.test('what it may not say', async (t) => {
  for (const [label, address, message] of [
    ['yes', '', 'Node n1: label sealane.io/gateway "yes": expected true, or the number of a lane, 0 to 7'],
    ['8', '', 'Node n1: label sealane.io/gateway "8": expected true, or the number of a lane, 0 to 7'],
    ['256', '', 'Node n1: label sealane.io/gateway "256": expected true, or the number of a lane, 0 to 7'],
    ['-1', '', 'Node n1: label sealane.io/gateway "-1": expected true, or the number of a lane, 0 to 7'],
    ['0', '127.0.0.1', 'Node n1: annotation sealane.io/public-address "127.0.0.1": it is loopback'],
    ...[
      'gw',
      'gw_1.example.org',
      'gw.example.org:51820',
      '127.1',
      'gw.example.0x7f',
      'gw\n.example.org',
      '..',
      'ä.org',
    ].map(
      (address) =>
        [
          '0',
          address,
          `Node n1: annotation sealane.io/public-address ${JSON.stringify(address)}: expected an IPv4 address or a DNS name such as gw.example.org`,
        ] as const,
    ),
    [
      '0',
      '2001:db8::1',
      'Node n1: annotation sealane.io/public-address "2001:db8::1": lanes are called by IPv4: expected an IPv4 address or a DNS name such as gw.example.org',
    ],
  ] as const) {
    const annotations = address === '' ? undefined : { 'sealane.io/public-address': address }
    t.throws(
      () => gatewayLabel(node({ 'sealane.io/gateway': label }, annotations)),
      new GatewayNodeError('n1', message.slice(9)),
    )
  }
})

t.test('a name and ports', async (t) => {
  const label = (annotations: Record<string, string>) =>
    gatewayLabel(node({ 'sealane.io/gateway': 'true' }, annotations))
  for (const name of [
    'gw.example.org',
    'GW.Example.org',
    'gw.example.org.',
    '4.gw.example.org',
    'xn--bcher-kva.example',
  ]) {
    t.strictSame(label({ 'sealane.io/public-address': name }), { lane: 'any', publicAddress: name })
  }
  t.strictSame(
    label({
      'sealane.io/public-address': 'gw.example.org',
      'sealane.io/public-port': '60000',
      'sealane.io/listen-port': '51820',
    }),
    { lane: 'any', publicAddress: 'gw.example.org', publicPort: 60000, listenPort: 51820 },
  )
  const first = 'expected the first of 8 ports, a whole number from 1 to 65528'
  for (const text of ['', '0', '65529', '70000', '51820-51827', '1e3', ' 51820', '-1', '51820\n']) {
    for (const key of ['sealane.io/public-port', 'sealane.io/listen-port']) {
      t.throws(() => label({ [key]: text }), {
        message: `Node n1: annotation ${key} ${JSON.stringify(text)}: ${first}`,
      })
    }
  }
  for (const [port, what] of [
    ['4491', '4498, for probes between nodes'],
    ['4499', '4499, for probes inside lanes'],
    ['4810', '4810, for the overlay between nodes'],
  ] as const) {
    t.throws(() => label({ 'sealane.io/listen-port': port }), { message: new RegExp(`contain ${what}$`) })
    t.strictSame(
      label({ 'sealane.io/public-port': port }),
      { lane: 'any', publicPort: Number(port) },
      'outside it is free',
    )
  }
  for (const port of ['4490', '4500', '4802', '4811', '65528', '1']) t.ok(label({ 'sealane.io/listen-port': port }))
  const gateway = node({ 'sealane.io/gateway': 'true' }, { 'sealane.io/listen-port': '51820' })
  t.match(gatewayProblem(gateway, 51_827)?.message, /51820 to 51827 contain 51827, for the overlay between nodes$/)
  t.equal(gatewayProblem(gateway, 51_828), undefined)
})

t.test('no questions to routers', async (t) => {
  const saying = (text: string) => node({ 'sealane.io/gateway': 'true' }, { 'sealane.io/port-mapping': text })
  t.strictSame(gatewayLabel(saying('false')), { lane: 'any', portMapping: false })
  const message = 'Node n1: annotation sealane.io/port-mapping "off": expected false, or no such annotation'
  t.throws(() => gatewayLabel(saying('off')), { message })
  const stated = withGatewayLabels(node({}), [{ node: 'n1', portMapping: false }]).metadata.annotations
  t.equal(stated?.['sealane.io/port-mapping'], 'false')
  const none = withGatewayLabels(saying('false'), [{ node: 'n1' }]).metadata.annotations
  t.equal(none?.['sealane.io/port-mapping'], undefined)
})

t.test('an offer to relay', async (t) => {
  const offering = (annotations: Record<string, string>) =>
    node({ 'sealane.io/gateway': 'true' }, { 'sealane.io/relay': 'true', ...annotations })
  t.strictSame(gatewayLabel(offering({})), { lane: 'any', relay: true })
  for (const text of ['', 'false', 'TRUE', 'yes']) {
    const message = `Node n1: annotation sealane.io/relay ${JSON.stringify(text)}: expected true, or no such annotation`
    t.throws(() => gatewayLabel(offering({ 'sealane.io/relay': text })), { message })
  }
  const taken = (port: string) => gatewayProblem(offering({ 'sealane.io/listen-port': port }))?.message
  t.match(taken('4593'), /ports 4600 to 4799 are for relayed packets, and 4593 to 4600 are for lanes$/)
  t.match(taken('4799'), /and 4799 to 4806 are for lanes$/)
  for (const port of ['4592', '4800']) t.equal(taken(port), undefined)
  const outside = (annotations: Record<string, string>) =>
    gatewayProblem(offering({ 'sealane.io/public-address': '203.0.113.9', ...annotations }))?.message
  t.match(outside({ 'sealane.io/public-port': '51820' }), /outside too: expected 4500 as the public port, or none/)
  t.equal(outside({ 'sealane.io/public-port': '4500' }), undefined)
  t.equal(outside({ 'sealane.io/public-port': '6000', 'sealane.io/listen-port': '6000' }), undefined)
  t.match(gatewayProblem(offering({}), 4700)?.message, /and 4700 is for the overlay between nodes$/)
  const row = { node: 'n1', relay: true } as const
  t.match(withGatewayLabels(node({}), [row]).metadata.annotations, { 'sealane.io/relay': 'true' })
  t.equal(withGatewayLabels(offering({}), [{ node: 'n1' }]).metadata.annotations?.['sealane.io/relay'], undefined)
})

t.test('no usable port of the overlay is one of the ports of a gateway', async () => {
  const port = fc.integer({ min: -1, max: 0x1_0000 })
  fc.assert(
    fc.property(fc.oneof(port, fc.integer({ min: 4480, max: 4520 })), port, (overlay, first) => {
      if (overlayPortProblem(overlay) !== undefined || firstPortProblem(first, 'listen', overlay) !== undefined) return
      const lanes = Array.from({ length: 8 }, (_, lane) => first + lane)
      const all = [overlay, 4498, 4499, ...lanes]
      if (new Set(all).size !== all.length || Math.min(...all) < 1 || Math.max(...all) > 0xffff)
        throw new Error(all.join())
    }),
  )
})

t.test('any text is a lane or a clear error', async () => {
  fc.assert(
    fc.property(fc.string(), fc.string(), (label, address) => {
      try {
        gatewayLabel(node({ 'sealane.io/gateway': label }, { 'sealane.io/public-address': address }))
      } catch (error) {
        if (!(error instanceof GatewayNodeError)) throw error
      }
    }),
  )
})

t.test('a Node without an IPv4 InternalIP is no gateway, and nobody waits for it', async (t) => {
  const at = (name: string, label: string, ...addresses: string[]): Node =>
    nodeObject(name, {
      metadata: { labels: { 'sealane.io/gateway': label } },
      status: { addresses: addresses.map((address) => ({ type: 'InternalIP', address })) },
    })
  const rows: [addresses: string[], problem: string | undefined][] = [
    [['192.0.2.1'], undefined],
    [['fd00::1', '192.0.2.1'], undefined],
    [[], undefined],
    [['fd00::1'], 'GatewayWithoutIPv4 Node n: InternalIP fd00::1: a gateway needs an IPv4 address among its nodes'],
  ]
  for (const [addresses, problem] of rows) {
    const found = gatewayProblem(at('n', 'true', ...addresses))
    t.equal(found && `${found.reason} ${found.message}`, problem, addresses.join(' '))
  }
  t.equal(gatewayProblem(nodeObject('n')), undefined, 'a Node without the label')
  const nodes = [
    at('a', 'true', 'fd00::1'),
    at('b', 'true', '192.0.2.2'),
    at('c', '0', 'fd00::3'),
    at('d', '0', '10.0.0.4'),
  ]
  t.strictSame(standbys(nodes, new Set()), ['b'])
  t.strictSame(laneCandidates(nodes, 0), ['d'])
  const spot = at('a', 'true', '192.0.2.1')
  const labels = { ...spot.metadata.labels, 'karpenter.sh/capacity-type': 'spot' }
  const metadata = { ...spot.metadata, labels, annotations: { 'sealane.io/public-address': '198.51.100.1' } }
  const order = standbys([{ ...spot, metadata }, ...nodes, at('e', 'true', '192.0.2.5')], new Set())
  t.strictSame(order, ['b', 'e', 'a'], 'a spot machine is last, also with a public address')
})
