/**
 * The ranges that a cluster needs outside the lanes: how the agent finds them, how the mirror treats them, and which of
 * them the broker receives.
 */
import t from 'tap'
import { clusterProblem, takesNeeded } from '../../agent/import/check-record.ts'
import { type RequiredRangesWorld, planRequiredRanges } from '../../agent/cluster/plan-required-ranges.ts'
import { SharedFindings } from '../../agent/loop/shared-findings.ts'
import { agentMetrics } from '../../agent/loop/metrics.ts'
import { RequiredRangesLoop, surroundingsReader } from '../../agent/cluster/required-ranges-loop.ts'
import { MemoryApi } from '../../kubeapi/memory/memory-api.ts'
import { neededRanges, neededText } from '../../model/addresses/required-ranges.ts'
import type { ClusterSpec, EndpointSlice, Node, RouteAgent } from '../../model/objects.ts'
import type { ClusterFacts } from '../../protocol/broker-api.ts'
import type { MemberIdentity } from '../../protocol/membership/member-files.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { DEFAULT_LOOP } from '../../reconcile/loop.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'
import { clusterObject } from '../support/objects/cluster-objects.ts'
import { eventually } from '../support/eventually.ts'
import { internalIps, nodeObject, routeAgentObject } from '../support/objects/node-objects.ts'
import { sliceObject } from '../support/objects/service-objects.ts'

const NOTHING: RequiredRangesWorld = {
  own: { podCIDRs: ['10.42.0.0/16'], serviceCIDRs: ['10.43.0.0/16'] },
  nodes: [],
  routeAgents: [],
  apiServers: [],
  machine: { interfaces: [], nextHops: [], nameServers: [] },
  broker: [],
}

function node(name: string, ...addresses: string[]): Node {
  return nodeObject(name, { status: internalIps(...addresses) })
}

function routeAgent(name: string, ...underlay: string[]): RouteAgent {
  return routeAgentObject(name, { underlay })
}

function apiServer(...addresses: string[]): EndpointSlice {
  return sliceObject({ name: 'kubernetes', namespace: 'default' }, { ports: [], endpoints: [{ addresses }] })
}

function show(change: Partial<RequiredRangesWorld>): {
  readonly needed: string[]
  readonly reported: readonly string[]
} {
  const { needed, reported } = planRequiredRanges({ ...NOTHING, ...change })
  return { needed: needed.map(neededText), reported }
}

t.test('what is needed, and what of it the broker is told', async (t) => {
  const rows: [say: string, world: Partial<RequiredRangesWorld>, needed: string[], reported: string[]][] = [
    ['nothing', {}, [], []],
    [
      'the broker and the API server',
      { broker: ['203.0.113.2', '2001:db8::2'], apiServers: [apiServer('198.51.100.7', '198.51.100.8')] },
      [
        'holds 203.0.113.2, the broker',
        'holds 2001:db8::2, the broker',
        'holds 198.51.100.7, the API server',
        'holds 198.51.100.8, the API server',
      ],
      ['198.51.100.7/32', '198.51.100.8/32', '203.0.113.2/32', '2001:db8::2/128'],
    ],
    [
      'nodes, and the network that one of them tells',
      {
        nodes: [node('a', '192.168.1.10'), node('b', '192.168.1.11')],
        routeAgents: [routeAgent('a', '192.168.1.0/24')],
      },
      ['holds 192.168.1.10, a node of this cluster', 'holds 192.168.1.11, a node of this cluster'],
      ['192.168.1.0/24'],
    ],
    [
      'a node that claims networks it is not in, and more than it may',
      {
        nodes: [node('a', '192.168.1.10')],
        routeAgents: [
          routeAgent('a', '10.0.0.0/8', '0.0.0.0/0', '9.9.9.9/32', 'nonsense'),
          routeAgent('x', '172.16.0.0/12'),
        ],
      },
      ['holds 192.168.1.10, a node of this cluster'],
      ['9.9.9.9/32', '192.168.1.10/32'],
    ],
    [
      "in a pod: the pod's own network, next hop and name server are this cluster's own",
      {
        machine: { interfaces: ['10.42.3.9/24'], nextHops: ['10.42.3.1'], nameServers: ['10.43.0.10'] },
        nodes: [node('a', '192.168.1.10')],
      },
      [
        'holds 10.42.3.1, a default gateway of this node',
        'holds 10.43.0.10, a name server of this node',
        'overlaps 10.42.3.0/24, a network of this node',
        'holds 192.168.1.10, a node of this cluster',
      ],
      ['192.168.1.10/32'],
    ],
    [
      'where pods have addresses of the network of the nodes',
      { nodes: [node('a', '10.42.200.10')], routeAgents: [routeAgent('a', '10.42.200.0/24', '10.0.0.0/8')] },
      ['holds 10.42.200.10, a node of this cluster'],
      [],
    ],
  ]
  for (const [say, world, needed, reported] of rows) t.same(show(world), { needed, reported }, say)
  const many = Array.from({ length: 3000 }, (_, i) => node(`n${i}`, `172.${16 + (i >> 8)}.${i & 255}.7`))
  t.ok(
    planRequiredRanges({ ...NOTHING, nodes: many }).reported.length <= 64,
    'of thousands of nodes, wider networks are told',
  )
})

t.test('who takes what is needed', async (t) => {
  const needed = neededRanges(['203.0.113.2', '192.168.1.0/24', '2001:db8::2'], 'it')
  const spec = (podCIDRs: string[], globalCIDRs: string[] = []): ClusterSpec => ({
    ...{ id: 'x', index: 3, podCIDRs, serviceCIDRs: [], globalCIDRs, labels: {} },
  })
  const dual = { podCIDRs: ['10.42.0.0/16', 'fd00::/48'], serviceCIDRs: [], globalCIDRs: [] }
  const rows: [ClusterSpec, string | undefined][] = [
    [spec(['10.9.0.0/16']), undefined],
    [
      spec(['203.0.113.0/28']),
      '203.0.113.0/28 holds 203.0.113.2, it: this cluster must reach that address directly, not through lanes',
    ],
    [spec(['203.0.113.0/28'], ['244.1.0.0/28']), undefined],
    [
      spec(['192.168.0.0/16']),
      '192.168.0.0/16 overlaps 192.168.1.0/24, it: this cluster must reach that address directly, not through lanes',
    ],
    [
      spec(['192.168.1.128/28']),
      '192.168.1.128/28 overlaps 192.168.1.0/24, it: this cluster must reach that address directly, not through lanes',
    ],
    [
      spec(['2001:db8::/48']),
      '2001:db8::/48 holds 2001:db8::2, it: this cluster must reach that address directly, not through lanes',
    ],
  ]
  for (const [one, problem] of rows) {
    const found = problem === undefined ? undefined : { reason: 'OverlapsNeeded', message: problem }
    t.strictSame(clusterProblem(one, dual, needed), found)
    t.strictSame(takesNeeded(one, dual, needed), found)
  }
  t.equal(takesNeeded(spec(['nonsense']), dual, needed), undefined, 'what cannot be read is judged elsewhere')
  const four = { podCIDRs: ['10.42.0.0/16'], serviceCIDRs: [], globalCIDRs: [] }
  t.equal(clusterProblem(spec(['2001:db8::/48']), four, needed), undefined, 'where no pod has IPv6 it leads nowhere')
  t.equal(takesNeeded(spec(['2001:db8::/48']), four, needed), undefined)
})

t.test('where the broker is called', async (t) => {
  let answer: string[] | undefined = ['203.0.113.2']
  const brokerAddresses = ['broker.example:7443', '[2001:db8::2]:7443', '192.0.2.9:1']
  const identity = { read: () => Promise.resolve({ brokerAddresses } as unknown as MemberIdentity) }
  const read = surroundingsReader(identity, () =>
    answer === undefined ? Promise.reject(new Error('no answer')) : Promise.resolve(answer),
  )
  t.same((await read()).broker, ['192.0.2.9', '2001:db8::2', '203.0.113.2'])
  answer = undefined
  t.same((await read()).broker, ['192.0.2.9', '2001:db8::2', '203.0.113.2'], 'no answer now: it leads there still')
  const broken = surroundingsReader({ read: () => Promise.reject(new Error('damaged')) })
  t.same((await broken()).broker, [])
})

t.test('a proxy that leads to the broker is called, too', async (t) => {
  const PROXY = 'http://ana:secret@proxy.example:3128'
  const rows: readonly (readonly [say: string, env: Record<string, string>, want: readonly string[]])[] = [
    ['none', {}, ['203.0.113.2']],
    ['a name', { HTTPS_PROXY: PROXY }, ['198.51.100.7', '203.0.113.2']],
    ['an address', { https_proxy: 'socks5://198.51.100.9' }, ['198.51.100.9', '203.0.113.2']],
    ['an IPv6 address', { HTTPS_PROXY: '[2001:db8::7]:3128' }, ['2001:db8::7', '203.0.113.2']],
    ['not for the broker', { HTTPS_PROXY: PROXY, NO_PROXY: '.example' }, ['203.0.113.2']],
    ['the broker has no address here', { HTTPS_PROXY: PROXY, lost: 'broker.example' }, ['198.51.100.7']],
    ['nor the proxy', { HTTPS_PROXY: PROXY, lost: 'proxy.example' }, ['203.0.113.2']],
  ]
  const known: Readonly<Record<string, string>> = { 'broker.example': '203.0.113.2', 'proxy.example': '198.51.100.7' }
  const identity = {
    read: () => Promise.resolve({ brokerAddresses: ['broker.example:7443'] } as unknown as MemberIdentity),
  }
  for (const [say, { lost, ...env }, want] of rows) {
    const ask = (host: string): Promise<readonly string[]> => {
      const address = host === lost ? undefined : known[host]
      return address === undefined ? Promise.reject(new Error('no answer')) : Promise.resolve([address])
    }
    t.strictSame((await surroundingsReader(identity, ask, env)()).broker, want, say)
  }
})

t.test('ClusterProperties that cannot be read stay as they were stated before', async (t) => {
  const region = { 'region.sealane.io': 'eu-south' }
  const zone = { 'zone.sealane.io': 'a' }
  const facts = { podCIDRs: ['10.42.0.0/16'], serviceCIDRs: [], labels: {}, version: '1' }
  /** Starts the loop alone; `known` is what the own Cluster object says. */
  const looping = async (known: Readonly<Record<string, string>> | undefined) => {
    const clock = new FakeClock()
    const held = new MemoryApi({ clock, hold: true })
    const api = new MemoryApi({ clock })
    const spec = { id: 'milano', index: 1, globalCIDRs: [], ...facts }
    await api.apply(clusterObject({ ...spec, ...(known === undefined ? {} : { properties: known }) }))
    held.put({
      apiVersion: 'about.k8s.io/v1beta1',
      kind: 'ClusterProperty',
      metadata: { name: 'zone.sealane.io' },
      spec: { value: 'a' },
    })
    const stated: ClusterFacts[] = []
    const deps = {
      ...{ clock, logger: new CapturingLogger(), metrics: agentMetrics(createMetrics('agent')) },
      api: { cache: (kind: 'Node') => (kind === ('ClusterProperty' as string) ? held : api).cache(kind) } as never,
      publisher: { setFacts: (one: ClusterFacts) => void stated.push(one) } as never,
      findings: new SharedFindings(),
      surroundings: () => Promise.resolve({ machine: NOTHING.machine, broker: [] }),
    }
    const stop = new AbortController()
    const running = new RequiredRangesLoop(deps, { own: 'milano', facts, loop: DEFAULT_LOOP }).run(stop.signal)
    t.teardown(() => {
      stop.abort()
      return running
    })
    return { clock, held, stated }
  }
  for (const known of [region, undefined]) {
    const { clock, held, stated } = await looping(known)
    await clock.advance(50_000)
    t.strictSame(stated, [], 'nothing is stated at once')
    await clock.advance(60_000)
    t.strictSame(stated, [{ ...facts, ...(known === undefined ? {} : { properties: known }) }])
    held.release()
    await eventually(async () => {
      await clock.advance(1000)
      return stated.length === 2
    })
    t.strictSame(stated[1], { ...facts, properties: zone }, 'what has been read is stated')
  }
})
