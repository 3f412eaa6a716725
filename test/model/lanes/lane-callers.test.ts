/** The source addresses of calls through a lane, for a part of a member and for a broker that may run inside one. */
import t from 'tap'
import { isSourceAmong, laneSources, laneSourcesAt } from '../../../model/lanes/lane-callers.ts'
import type { Cluster, Node } from '../../../model/objects.ts'
import { clusterObject } from '../../support/objects/cluster-objects.ts'

const OWN = clusterObject({ id: 'west', index: 1, podCIDRs: ['10.42.0.0/16', 'fd42:1::/48'] })
/** The pods of this cluster overlap with ours, so they call from global addresses. */
const OVERLAPPING = clusterObject({
  id: 'east',
  index: 2,
  podCIDRs: ['10.42.0.0/16', 'fd42:2::/48'],
  globalCIDRs: ['244.1.0.0/16', 'fd42:2::/48'],
})
const PLAIN = clusterObject({ id: 'north', index: 3, podCIDRs: ['10.50.0.0/16'] })

function node(name: string, address: string): Node {
  const status = { addresses: [{ type: 'InternalIP', address }] }
  return { apiVersion: 'v1', kind: 'Node', metadata: { name }, spec: {}, status }
}

function among(clusters: readonly Cluster[], nodes: readonly Node[] = []): (source: string) => boolean {
  const sources = laneSources({ own: clusters.find(({ metadata }) => metadata.name === 'west'), clusters, nodes })
  return (source) => isSourceAmong(sources, source)
}

t.test('pods of other clusters under the addresses that they come with, and lane addresses', (t) => {
  const byLane = among([OWN, OVERLAPPING, PLAIN])
  for (const source of ['244.1.7.7', 'fd42:2::7', '10.50.3.3', '246.0.2.0', '::ffff:10.50.3.3', 'fd42:2::7%eth0'])
    t.ok(byLane(source), source)
  for (const source of [
    '10.42.3.3',
    'fd42:1::7',
    '192.168.7.11',
    '127.0.0.1',
    '::1',
    '203.0.113.9',
    'fe80::1%eth0',
    '',
  ])
    t.notOk(byLane(source), source)
  t.end()
})

t.test('nothing that a member claims shuts out our nodes and pods, or anybody before there are lanes', (t) => {
  const greedy = clusterObject({ id: 'east', index: 2, podCIDRs: ['192.168.0.0/16'] })
  const within = clusterObject({ id: 'east', index: 2, podCIDRs: ['10.42.9.0/24'] })
  for (const [clusters, source] of [
    [[OWN, greedy], '192.168.7.11'],
    [[OWN, within], '10.42.9.9'],
    [[greedy], '192.168.8.8'],
  ] as const)
    t.notOk(among(clusters, [node('n1', '192.168.7.11')])(source), source)
  t.throws(
    () => among([clusterObject({ id: 'west', podCIDRs: ['10.42'] })]),
    /10\.42/,
    'our own object is not to be read',
  )
  t.end()
})

t.test('a broker that runs among the pods of a member, and one that does not', (t) => {
  const specs = [OVERLAPPING, PLAIN].map(({ spec }) => spec)
  const west = { ...OWN.spec, globalCIDRs: ['244.2.0.0/16', 'fd42:1::/48'] }
  const inWest = laneSourcesAt(['127.0.0.1', 'fe80::5%eth0', '10.42.0.9', 'fd42:1::9'], [west, ...specs])
  for (const source of ['244.1.7.7', '10.50.3.3', '246.0.3.1']) t.ok(isSourceAmong(inWest, source), source)
  for (const source of ['10.42.3.3', 'fd42:1::7', '192.168.7.11']) t.notOk(isSourceAmong(inWest, source), source)
  const inNorth = laneSourcesAt(['10.50.0.9'], [west, ...specs])
  for (const source of ['244.2.7.7', 'fd42:1::7']) t.ok(isSourceAmong(inNorth, source), source)
  t.notOk(isSourceAmong(inNorth, '10.50.3.3'))
  t.same(laneSourcesAt(['198.51.100.7'], [west, ...specs]), [], 'no lane leads there')
  const broken = { podCIDRs: ['10.42'], globalCIDRs: ['244'] }
  t.same(laneSourcesAt(['10.50.0.9'], [broken, west, ...specs]), inNorth, 'what is no range is passed over')
  t.end()
})
