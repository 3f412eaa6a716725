/** The table of gateways, from Gateway objects and Nodes. */
import t from 'tap'
import { gatewayRows, noGatewayNote } from '../../../cli/status/gateway-rows.ts'
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
      'b 1 draining 1/1 1/1 0.25 the node is cordoned; all up',
      'c 2 silent 1/1 1/1 0 last heard 40s ago',
      'd  standing by 0/0 0/0  may serve lane 0, which a serves',
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

t.test('what is known of the NAT, by codes, and nothing from earlier releases', async (t) => {
  const at = '2026-01-01T00:05:00Z'
  const of = (...types: readonly (readonly [string, string])[]): readonly string[] | undefined => {
    const made = gateway('a', 0, [])
    const more = types.map(([type, reason]) => {
      return { type, status: 'True', reason, message: type, lastTransitionTime: at } as const
    })
    const conditions = [...(made.status?.conditions ?? []), ...more] as NonNullable<Gateway['status']>['conditions']
    return gatewayRows([{ ...made, status: { ...made.status!, conditions } } as Gateway], [], NOW)[0]?.natReasons
  }
  t.equal(of(), undefined)
  t.strictSame(of(['NatHairpins', 'NatHairpinWorks'], ['BehindNat', 'UdpRateLimited']), [
    'UdpRateLimited',
    'NatHairpinWorks',
  ])
})

t.test('states, and since when', async (t) => {
  const [drainedAt, at] = ['2026-01-01T00:05:00Z', '2026-01-01T00:00:00Z']
  const withDrained = (status: 'True' | 'False', message: string): Gateway => {
    const made = gateway('a', 0, [])
    const conditions = made.status?.conditions ?? []
    const drained = { type: 'Drained', status, reason: 'StillCarries', message, lastTransitionTime: drainedAt } as const
    return { ...made, status: { ...made.status!, conditions: [...conditions, drained] } }
  }
  const six: Node = {
    ...node('a', 'true'),
    status: { addresses: [{ type: 'InternalIP', address: 'fd00::1' }] },
  }
  const wrong = 'InvalidValue: Node a: label sealane.io/gateway "8": expected true, or the number of a lane, 0 to 7'
  const bare = 'GatewayWithoutIPv4: Node a: InternalIP fd00::1: a gateway needs an IPv4 address among its nodes'
  const rows: [say: string, gateways: Gateway[], node: Node | undefined, state: string, since: string, text: string][] =
    [
      ['it serves', [gateway('a', 0, [])], node('a', 'true'), 'serving', at, 'all up'],
      ['a Node that is gone', [gateway('a', 0, [])], undefined, 'serving', at, 'all up'],
      [
        'draining',
        [withDrained('False', 'traffic')],
        node('a', '0', true),
        'draining',
        drainedAt,
        'the node is cordoned; traffic',
      ],
      [
        'drained',
        [withDrained('True', 'none')],
        node('a', '0', true),
        'drained',
        drainedAt,
        'the node is cordoned; none',
      ],
      ['its process ends', [withDrained('True', 'none')], node('a', '0'), 'drained', drainedAt, 'none'],
      ['silent', [gateway('a', 0, [], 40)], node('a', '0'), 'silent', '2026-01-01T00:09:20.000Z', 'last heard 40s ago'],
      ['waits', [], node('a', 'true'), 'standing by', '', 'may serve any lane'],
      ['waits for nobody', [], node('a', '3'), 'standing by', '', 'may serve lane 3'],
      ['waits, and goes', [], node('a', '3', true), 'draining', '', 'the node is cordoned'],
      ['lane 8', [], node('a', '8'), 'refused', '', wrong],
      ['lane 8 while it serves', [gateway('a', 0, [])], node('a', '8'), 'serving', at, `all up; ${wrong}`],
      ['no IPv4', [], six, 'refused', '', bare],
    ]
  for (const [say, gateways, own, state, since, text] of rows) {
    const [row] = gatewayRows(gateways, own === undefined ? [] : [own], NOW)
    t.strictSame([row?.state, row?.since ?? '', row?.message], [state, since, text], say)
    t.equal(noGatewayNote(gatewayRows(gateways, own === undefined ? [] : [own], NOW)), undefined, say)
  }
  t.match(noGatewayNote(gatewayRows([], [node('w')], NOW)), /^NoGateway: no node of this cluster is a gateway/)
})
