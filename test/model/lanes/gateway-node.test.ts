import fc from 'fast-check'
import t from 'tap'
import { GatewayNodeError, gatewayLabel } from '../../../model/lanes/gateway-node.ts'
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
