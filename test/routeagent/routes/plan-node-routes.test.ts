/** Plans as commands, and their results for unusual worlds. */
import t from 'tap'
import type { Endpoint, Gateway, RouteAgent } from '../../../model/objects.ts'
import { describeRouteAgentPlan, describeRoutes } from '../../../routeagent/main.ts'
import type { NodeRouteWorld } from '../../../routeagent/world/node-world.ts'
import { planNodeRoutes } from '../../../routeagent/routes/plan-node-routes.ts'
import { equalsGolden } from '../../support/golden.ts'
import {
  NODES,
  WORKER_FACTS,
  cluster,
  endpoint,
  gateway,
  node,
  routeAgent,
  routeWorld,
  serviceImport,
  slice,
} from '../support/site.ts'

const onGateway = (change: Partial<NodeRouteWorld> = {}): NodeRouteWorld =>
  routeWorld({
    node: 'gw-a',
    facts: {
      ...WORKER_FACTS,
      addresses: [
        { device: 'eth0', address: '192.168.7.1/24' },
        { device: 'cni0', address: '10.42.0.1/24' },
      ],
      mainRoutes: [{ destination: '10.42.0.0/24', type: 'unicast', device: 'cni0' }],
    },
    ...change,
  })

t.test('a worker, two gateways, services', async (t) => {
  const imports = [
    serviceImport('web', '245.0.0.7'),
    serviceImport('empty', '245.0.0.8'),
    serviceImport('mine', '245.0.0.9', { internalTrafficPolicy: 'Local' }),
    serviceImport('not-mine', '245.0.0.10', { internalTrafficPolicy: 'Local' }),
    serviceImport('close', '245.0.0.11', { trafficDistribution: 'PreferSameZone' }),
  ]
  const slices = [
    slice('web', 'milano', ['10.42.1.5', '10.42.0.6']),
    slice('web', 'paris', ['244.1.0.5']),
    slice('mine', 'milano', ['10.42.1.9 on worker', '10.42.0.9 on gw-a']),
    slice('not-mine', 'milano', ['10.42.0.10 on gw-a']),
    slice('not-mine', 'paris', ['244.1.0.10 on worker']),
    slice('close', 'milano', ['10.42.1.11 in b', '10.42.0.11 in a']),
    slice('close', 'paris', ['244.1.0.11 in b for a', '244.1.0.12 in b']),
  ]
  equalsGolden(t, describeRouteAgentPlan({ ...routeWorld(), imports, slices }), 'routeagent/worker.txt')
})

t.test(
  'a gateway node: out of its lane to the other nodes, and by the other gateway where its own lane is down',
  async (t) => {
    const gateways = [
      gateway('gw-a', { paris: 'up', tokyo: 'down' }),
      gateway('gw-b', { paris: ['down', 'up'], tokyo: ['down', 'up'] }),
    ]
    equalsGolden(
      t,
      describeRouteAgentPlan({ ...onGateway({ gateways }), imports: [], slices: [] }),
      'routeagent/gateway.txt',
    )
  },
)

t.test('a flat clusterset on a bridge that hides answers', async (t) => {
  const clusters = [cluster('milano', 1), cluster('paris', 2, undefined, '10.44.0.0/16')]
  const facts = { ...WORKER_FACTS, bridgeNetfilter: undefined }
  equalsGolden(
    t,
    describeRouteAgentPlan({ ...routeWorld({ clusters, facts }), imports: [], slices: [] }),
    'routeagent/flat.txt',
  )
})

t.test('the MTU towards a cluster: of the narrowest device and link that lead there', async (t) => {
  const sized = (name: string, sizes: Readonly<Record<string, number | undefined>>): Gateway => {
    const made = gateway(name, { paris: 'up', tokyo: 'up' })
    const connections = made.status!.connections.map((one) => {
      const mtu = sizes[one.cluster]
      return { ...one, ...(mtu === undefined ? {} : { mtu }) }
    })
    return { ...made, status: { ...made.status!, connections } }
  }
  const mtus = (...gateways: Gateway[]): Record<string, number | undefined> => {
    const endpoints = [endpoint('milano', 'gw-a'), endpoint('milano', 'gw-b', 1)]
    const lanes = gateways.map((one, lane) => withLane(one, lane))
    const plan = planNodeRoutes(routeWorld({ endpoints, gateways: lanes }))
    if (!plan.ok) throw new Error(plan.message)
    return Object.fromEntries(plan.paths.map(({ cluster: id, mtu }) => [id, mtu]))
  }
  t.strictSame(mtus(sized('gw-a', {})), { paris: 1440, tokyo: 1440 }, 'an earlier release says nothing of links')
  t.strictSame(mtus(sized('gw-a', { paris: 1232, tokyo: 1440 })), { paris: 1232, tokyo: 1440 }, 'each by itself')
  t.strictSame(mtus(sized('gw-a', { paris: 9000 })), { paris: 1440, tokyo: 1440 }, 'never more than the device')
  const both = [sized('gw-a', { paris: 1400 }), sized('gw-b', { paris: 1232 })]
  t.strictSame(mtus(...both), { paris: 1232, tokyo: 1440 }, 'flows may take either')
})

function withLane({ status, ...rest }: Gateway, lane: number): Gateway {
  if (status === undefined) return { ...rest }
  const lanes = status.lanes.map((one) => ({ ...one, lane }))
  return { ...rest, status: { ...status, lanes, connections: status.connections.map((one) => ({ ...one, lane })) } }
}

const via = (w: NodeRouteWorld): Record<string, string> => {
  const plan = planNodeRoutes(w)
  if (!plan.ok) return { plan: plan.message }
  return Object.fromEntries(
    plan.routes
      .filter((r) => r.type === 'unicast' && /^244/.test(r.destination))
      .map((r) => [
        r.destination,
        r.nextHops.map((h) => `${h.via}${h.weight === undefined ? '' : `*${h.weight}`}`).join(' '),
      ]),
  )
}

t.test('which gateways lead to a cluster', async (t) => {
  const rows: { say: string; change: Partial<NodeRouteWorld>; want: Record<string, string> }[] = [
    {
      say: 'lanes up count as weight',
      change: {},
      want: { '244.1.0.0/16': '192.168.7.1*1 192.168.7.2*2', '244.2.0.0/16': '192.168.7.1' },
    },
    {
      say: 'nobody has reported: all that serve a lane are used',
      change: { gateways: [gateway('gw-a')] },
      want: { '244.1.0.0/16': '192.168.7.1 192.168.7.2', '244.2.0.0/16': '192.168.7.1 192.168.7.2' },
    },
    {
      say: 'one reports down, the other not yet: the other stands in',
      change: { gateways: [gateway('gw-a', { paris: 'down', tokyo: 'up' })] },
      want: { '244.1.0.0/16': '192.168.7.2', '244.2.0.0/16': '192.168.7.1' },
    },
    {
      say: 'all report down: nothing but unreachable',
      change: { gateways: [gateway('gw-a', { paris: 'down' }), gateway('gw-b', { tokyo: 'connecting' })] },
      want: {},
    },
    {
      say: 'a gateway node that cannot be used is left out',
      change: { nodes: [NODES[0], node('gw-b'), NODES[2]] },
      want: { '244.1.0.0/16': '192.168.7.1', '244.2.0.0/16': '192.168.7.1' },
    },
  ]
  for (const { say, change, want } of rows) t.strictSame(via(routeWorld(change)), want, say)
})

t.test('what comes out of a device of the lane, by the numbers that the others have', (t) => {
  const rules = (...others: Endpoint[]): string[] => {
    const plan = planNodeRoutes(onGateway({ endpoints: [endpoint('milano', 'gw-a'), ...others] }))
    return plan.ok ? plan.rules.flatMap(({ table, inputDevice = '' }) => (table === 7310 ? [inputDevice] : [])) : []
  }
  const laneOf = (one: Endpoint, lane: number): Endpoint => ({ ...one, spec: { ...one.spec, lane } })
  t.strictSame(rules(), ['sealane0', 'sealane0-rx'])
  const [paris, tokyo] = [laneOf(endpoint('paris', 'gw'), 2), laneOf(endpoint('tokyo', 'gw'), 1)]
  t.strictSame(rules(paris, tokyo), ['sealane1', 'sealane1-rx', 'sealane2', 'sealane2-rx'])
  t.strictSame(rules(laneOf(endpoint('paris', 'gw'), 200)), ['sealane0', 'sealane0-rx'], 'no lane')
  t.end()
})

t.test('a lane that a later gateway claims', async (t) => {
  const at = (name: string, creationTimestamp: string): Endpoint => {
    const made = endpoint('milano', name)
    return { ...made, metadata: { ...made.metadata, creationTimestamp } }
  }
  const [old, later] = [at('gw-a', '2026-11-20T10:00:00Z'), at('gw-b', '2026-11-20T11:00:00Z')]
  const clusters = [cluster('milano', 1, '244.0.0.0/16'), cluster('paris', 2, '244.1.0.0/16')]
  const [a, b] = ['192.168.7.1', '192.168.7.2']
  const rows: [say: string, newcomer: Gateway, endpoints: Endpoint[], want: string][] = [
    ['the newcomer is up', gateway('gw-b', { paris: 'up' }), [old, later], b],
    ['it is down', gateway('gw-b', { paris: 'down' }), [old, later], a],
    ['it has not reported', gateway('gw-b'), [old, later], a],
    ['the Endpoint of the first is gone, the newcomer is up', gateway('gw-b', { paris: 'up' }), [later], b],
    ['the Endpoint of the first is gone, the newcomer is down', gateway('gw-b', { paris: 'down' }), [later], a],
  ]
  for (const [say, newcomer, endpoints, want] of rows) {
    const gateways = [gateway('gw-a', { paris: 'up' }), newcomer]
    t.strictSame(via(routeWorld({ clusters, gateways, endpoints })), { '244.1.0.0/16': want }, say)
  }
})

t.test('a node that claims the pods of another does not get them, and is named', async (t) => {
  const routeAgents = [routeAgent('gw-b', '10.42.2.0/24', '10.42.1.9/32', '10.42.1.64/26', '10.42.0.7/32')]
  const plan = (reported: readonly RouteAgent[]): { routes: string[]; problems: string[] } => {
    const made = planNodeRoutes(onGateway({ routeAgents: reported }))
    if (!made.ok) return { routes: [made.message], problems: [] }
    const pods = made.routes.filter(({ table, destination }) => table === 7310 && destination.startsWith('10.42'))
    return {
      routes: pods.map(({ destination, type, nextHops }) => `${destination} ${nextHops[0]?.via ?? type}`).sort(),
      problems: made.problems.map(({ subject, message }) => `${subject}: ${message}`),
    }
  }
  t.strictSame(plan([...routeAgents, routeAgent('worker', '10.42.1.0/24')]), {
    routes: ['10.42.1.0/24 192.168.7.11', '10.42.2.0/24 192.168.7.2'],
    problems: ['Node gw-b: claims pod ranges of node worker, which keeps them: 10.42.1.9/32 and 1 more'],
  })
  t.strictSame(
    plan(routeAgents),
    {
      routes: ['10.42.1.0/24 192.168.7.11', '10.42.1.64/26 throw', '10.42.1.9/32 throw', '10.42.2.0/24 192.168.7.2'],
      problems: [
        'Pod range 10.42.1.9/32: claimed by nodes gw-b and worker',
        'Pod range 10.42.1.64/26: claimed by nodes gw-b and worker',
      ],
    },
    'the worker has told nothing yet: the main table decides',
  )
})

t.test('pods of ours are ours, also with addresses that are said to be of others', async (t) => {
  const rows: [say: string, pods: string[], reported: string[], routes: string[], problems: string[]][] = [
    [
      'a pod of ours in the range of another',
      ['10.42.0.0/24', '10.42.1.9/32'],
      ['10.42.1.0/24'],
      ['10.42.1.0/24 192.168.7.11', '10.42.1.9/32 throw', '10.42.2.0/24 192.168.7.2'],
      ['Node gw-a: claims pod ranges of node worker, which keeps them: 10.42.1.9/32'],
    ],
    [
      'before our first pod another claims a block of our Node: the main table decides',
      [],
      ['10.42.0.64/26', '10.42.1.0/24'],
      ['10.42.1.0/24 192.168.7.11', '10.42.2.0/24 192.168.7.2'],
      [],
    ],
  ]
  for (const [say, pods, reported, routes, problems] of rows) {
    const { facts } = onGateway()
    const mainRoutes = pods.map((destination) => ({ destination, type: 'unicast' as const, device: 'cni0' }))
    const made = planNodeRoutes(
      onGateway({ facts: { ...facts, mainRoutes }, routeAgents: [routeAgent('worker', ...reported)] }),
    )
    if (!made.ok) throw new Error(made.message)
    const found = made.routes.filter(({ table, destination }) => table === 7310 && destination.startsWith('10.42'))
    t.strictSame(
      found.map(({ destination, type, nextHops }) => `${destination} ${nextHops[0]?.via ?? type}`).sort(),
      routes,
      say,
    )
    t.strictSame(
      made.problems.map(({ subject, message }) => `${subject}: ${message}`),
      problems,
      say,
    )
  }
})

t.test('what is wrong is said, and disturbs nobody else', async (t) => {
  const rows: { change: Partial<NodeRouteWorld>; want: string }[] = [
    { change: { nodes: [] }, want: '# NodeNotUsable: Node worker does not exist\n' },
    { change: { nodes: [node('worker')] }, want: '# NodeNotUsable: Node worker: status.addresses has no InternalIP\n' },
    {
      change: { nodes: [node('worker', '10.0.0.300')] },
      want: '# NodeNotUsable: Node worker: InternalIP "10.0.0.300": expected an IPv4 or IPv6 address such as 10.42.0.7\n',
    },
    {
      change: { nodes: [node('worker', '127.0.0.1')] },
      want: '# NodeNotUsable: Node worker: InternalIP 127.0.0.1 is a loopback address\n',
    },
    {
      change: { nodes: [node('worker', '192.168.7.99')] },
      want: '# UnderlayDeviceMissing: Node worker: no device of this machine has its InternalIP 192.168.7.99\n',
    },
  ]
  for (const { change, want } of rows) t.equal(describeRoutes(planNodeRoutes(routeWorld(change))), want)

  const others = [
    ...NODES,
    node('x1'),
    node('x2', '192.168.7.1', '10.42.9.0/24'),
    node('x3', '192.168.7.13'),
    node('x4', '192.168.7.14', '10.42.0.1/24'),
  ]
  const plan = planNodeRoutes(
    routeWorld({
      nodes: others,
      clusters: [...routeWorld().clusters, cluster('bad', 4, '244.0.0.1/16'), cluster('twin', 5, '244.1.0.0/16')],
    }),
  )
  if (!plan.ok) throw new Error(plan.message)
  t.strictSame(
    plan.problems.map((p) => `${p.subject}: ${p.message}`),
    [
      'Node x1: status.addresses has no InternalIP',
      'Node x2: InternalIP 192.168.7.1 already belongs to node gw-a',
      'Node x4: spec.podCIDR "10.42.0.1/24": expected no host bits set, as in 10.42.0.0/24',
      'Cluster bad: prefix "244.0.0.1/16": expected no host bits set, as in 244.0.0.0/16',
      'Cluster twin: 244.1.0.0/16 overlaps 244.1.0.0/16 of cluster paris',
    ],
  )
  t.strictSame(
    plan.neighbours.map((n) => n.address),
    ['192.168.7.1', '192.168.7.2', '192.168.7.13'],
  )
})

t.test('without an address in its pod network the node still routes, with no source to offer', async (t) => {
  const addresses = WORKER_FACTS.addresses.filter((a) => a.device === 'eth0')
  const plan = planNodeRoutes(routeWorld({ facts: { ...WORKER_FACTS, addresses } }))
  t.ok(plan.ok && plan.routes.every((r) => r.source === undefined))
})

t.test('a cluster whose pods would hide our own nodes leads nowhere: no route, no exemption, no backend', (t) => {
  const trap = (podCIDR: string) => cluster('oslo', 4, undefined, podCIDR)
  const rows: [podCIDR: string, problem: string][] = [
    ['192.168.7.0/24', 'OverlapsNeeded: 192.168.7.0/24 holds 192.168.7.1, which this node needs outside the tunnels'],
    [
      '192.168.7.11/32',
      'OverlapsNeeded: 192.168.7.11/32 holds 192.168.7.11, which this node needs outside the tunnels',
    ],
    ['10.42.9.0/24', 'OverlapsOwnRange: 10.42.9.0/24 overlaps 10.42.0.0/16, a pod CIDR of this cluster'],
    ['10.43.9.0/24', 'OverlapsOwnRange: 10.43.9.0/24 overlaps 10.43.0.0/16, a service CIDR of this cluster'],
  ]
  for (const [podCIDR, problem] of rows) {
    const addresses = [podCIDR.replace(/\d+\/\d+$/, '77')]
    const given = {
      ...routeWorld({ clusters: [...routeWorld().clusters, trap(podCIDR)], gateways: [] }),
      imports: [serviceImport('web', '245.0.0.7')],
      slices: [slice('web', 'oslo', addresses), slice('web', 'paris', ['244.1.0.5'])],
    }
    const text = describeRouteAgentPlan(given)
    t.match(text, `# left out: Cluster oslo: ${problem}\n`)
    t.notMatch(text.replace(/^#.*$/gm, ''), addresses[0], `${podCIDR}: nobody is sent there`)
    t.notMatch(text.replace(/^#.*$/gm, ''), podCIDR, `${podCIDR}: not routed, not exempt from NAT`)
    t.match(text, '244.1.0.5', 'paris serves on')
  }
  t.end()
})
