import fc from 'fast-check'
import t from 'tap'
import {
  GatewayNodeError,
  gatewayLabel,
  gatewayProblem,
  laneCandidates,
  standbys,
} from '../../../model/lanes/gateway-node.ts'
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
    [
      '0',
      'gw.example.org',
      'Node n1: annotation sealane.io/public-address "gw.example.org": expected an IPv4 or IPv6 address',
    ],
  ] as const) {
    const annotations = address === '' ? undefined : { 'sealane.io/public-address': address }
    t.throws(
      () => gatewayLabel(node({ 'sealane.io/gateway': label }, annotations)),
      new GatewayNodeError('n1', message.slice(9)),
    )
  }
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
})
