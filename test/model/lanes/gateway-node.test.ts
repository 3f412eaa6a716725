import fc from 'fast-check'
import t from 'tap'
import { GatewayNodeError, gatewayLane } from '../../../model/lanes/gateway-node.ts'
import type { Node } from '../../../model/objects.ts'
import { nodeObject } from '../../support/objects/node-objects.ts'

function node(labels?: Record<string, string>, annotations?: Record<string, string>): Node {
  return nodeObject('n1', { metadata: { ...(labels && { labels }), ...(annotations && { annotations }) } })
}

t.test('what a Node says', async (t) => {
  t.equal(gatewayLane(node()), undefined)
  t.equal(gatewayLane(node({ 'kubernetes.io/hostname': 'n1' })), undefined)
  t.strictSame(gatewayLane(node({ 'sealane.io/gateway': '0' })), { lane: 0 })
  t.strictSame(gatewayLane(node({ 'sealane.io/gateway': '7' }, { 'sealane.io/public-address': '192.0.2.9' })), {
    lane: 7,
    publicAddress: '192.0.2.9',
  })
})

t.test('what it may not say', async (t) => {
  for (const [label, address, message] of [
    ['true', '', 'Node n1: label sealane.io/gateway "true": expected the number of a lane, 0 to 7'],
    ['256', '', 'Node n1: label sealane.io/gateway "256": expected the number of a lane, 0 to 7'],
    ['-1', '', 'Node n1: label sealane.io/gateway "-1": expected the number of a lane, 0 to 7'],
    ['0', '127.0.0.1', 'Node n1: annotation sealane.io/public-address "127.0.0.1": it is loopback'],
    [
      '0',
      'gw.example.org',
      'Node n1: annotation sealane.io/public-address "gw.example.org": expected an IPv4 or IPv6 address',
    ],
  ] as const) {
    const annotations = address === '' ? undefined : { 'sealane.io/public-address': address }
    t.throws(
      () => gatewayLane(node({ 'sealane.io/gateway': label }, annotations)),
      new GatewayNodeError('n1', message.slice(9)),
    )
  }
})

t.test('any text is a lane or a clear error', async () => {
  fc.assert(
    fc.property(fc.string(), fc.string(), (label, address) => {
      try {
        gatewayLane(node({ 'sealane.io/gateway': label }, { 'sealane.io/public-address': address }))
      } catch (error) {
        if (!(error instanceof GatewayNodeError)) throw error
      }
    }),
  )
})
