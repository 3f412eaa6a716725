/** Gateways as people see them, by what their objects and Nodes say. */
import t from 'tap'
import { gatewayRows } from '../../../cli/site/gateway-rows.ts'
import type { ConnectionState, Gateway, Node } from '../../../model/objects.ts'

const NOW = Date.parse('2026-01-01T00:10:00Z')

function gateway(name: string, lane: number, states: readonly [string, ConnectionState, number][], age = 2): Gateway {
  const rest = { lane, endpoint: 'e', message: '', usingNat: false, rxBytes: 0 }
  const ready = { type: 'Ready', status: 'True', reason: 'LanesUp', message: 'all up' } as const
  const status = {
    version: '1',
    lanes: [{ lane, device: 'sealane0', mtu: 1420, driver: 'wireguard-kernel' }],
    connections: states.map(([cluster, state, txBytes]) => ({ cluster, state, txBytes, ...rest })),
    conditions: [{ ...ready, lastTransitionTime: '2026-01-01T00:00:00Z' }],
    heartbeatTime: new Date(NOW - age * 1000).toISOString(),
  }
  return { apiVersion: 'sealane.io/v1alpha1', kind: 'Gateway', metadata: { name }, status }
}

function node(name: string, label?: string, unschedulable = false): Node {
  const labels = label === undefined ? {} : { 'sealane.io/gateway': label }
  return { apiVersion: 'v1', kind: 'Node', metadata: { name, labels }, spec: unschedulable ? { unschedulable } : {} }
}

t.test('three gateways, one that stands by, one that goes, one that is silent', async (t) => {
  const gateways = [
    gateway('c', 2, [['paris', 'up', 0]], 40),
    gateway('a', 0, [
      ['paris', 'up', 300],
      ['paris', 'down', 0],
      ['rome', 'down', 0],
    ]),
    gateway('b', 1, [['paris', 'up', 100]]),
  ]
  const nodes = [node('a', '0'), node('b', '1', true), node('c', '2'), node('d', '0'), node('e')]
  t.strictSame(
    gatewayRows(gateways, nodes, NOW).map((row) =>
      [
        row.node,
        row.lane,
        row.state,
        `${row.linksUp}/${row.links}`,
        `${row.clustersUp}/${row.clusters}`,
        row.share,
        row.message,
      ].join(' '),
    ),
    [
      'a 0 serving 1/3 1/2 0.75 all up',
      'b 1 leaving 1/1 1/1 0.25 the node is cordoned',
      'c 2 unknown 1/1 1/1 0 last heard 40s ago',
      'd  standing by 0/0 0/0  may serve lane 0',
    ],
  )
})

t.test('nothing has flowed, nobody has reported', async (t) => {
  t.strictSame(gatewayRows([], [], NOW), [])
  const [row] = gatewayRows([gateway('a', 0, [])], [], NOW)
  t.equal(row?.share, undefined)
  t.equal(row?.since, '2026-01-01T00:00:00Z')
  const bare: Gateway = { apiVersion: 'sealane.io/v1alpha1', kind: 'Gateway', metadata: { name: 'a' } }
  t.strictSame(gatewayRows([bare], [], NOW), [
    { node: 'a', state: 'serving', linksUp: 0, links: 0, clustersUp: 0, clusters: 0, message: '' },
  ])
})
