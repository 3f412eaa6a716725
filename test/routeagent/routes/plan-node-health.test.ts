/** What a node reports about its gateways, by its probes. */
import t from 'tap'
import { MAX_SILENT_NODES } from '../../../model/values/limits.ts'
import type { ProbedNodeState } from '../../../routeagent/probes/gateway-probes.ts'
import { planNodeHealth } from '../../../routeagent/routes/plan-node-health.ts'

type State = ProbedNodeState['state']

/** Words such as `gw-a:silent`; each node whose name begins with gw- is a gateway node. */
function nodeStates(text: string): Map<string, ProbedNodeState> {
  return new Map(
    text.split(' ').map((word) => {
      const [node = '', state] = word.split(':')
      return [node, { state: state as State, isGateway: node.startsWith('gw-') }]
    }),
  )
}

const PATHS = [
  { cluster: 'paris', gateways: ['gw-a', 'gw-b'], mtu: 1420 },
  { cluster: 'tokyo', gateways: ['gw-a'], mtu: 1420 },
]

const ROWS: readonly (readonly [say: string, nodeStates: string, before: string, ways: string, finding: string])[] = [
  ['all answer', 'gw-a:answers gw-b:answers', '', 'paris gw-a gw-b, tokyo gw-a', 'True NodesAnswer'],
  ['a gateway that leads elsewhere too', 'gw-a:silent gw-b:answers', '', 'paris gw-b, tokyo', 'False NodesCutOff'],
  ['one of several', 'gw-a:answers gw-b:silent', '', 'paris gw-a, tokyo gw-a', 'False GatewayNodeSilent'],
  ['all are silent', 'gw-a:silent gw-b:silent', '', 'paris, tokyo', 'False NodesCutOff'],
  ['never heard', 'gw-a:unheard gw-b:answers', '', 'paris gw-a gw-b, tokyo gw-a', 'Unknown GatewayNodeUnheard'],
  ['nobody knows yet', 'gw-a:asked gw-b:asked', '', 'paris gw-a gw-b, tokyo gw-a', ''],
  ['a new process', 'gw-a:asked gw-b:unheard', 'gw-a gw-b', 'paris, tokyo', 'False NodesCutOff'],
  [
    'a new process that heard one',
    'gw-a:answers gw-b:asked',
    'gw-a gw-b',
    'paris gw-a, tokyo gw-a',
    'False GatewayNodeSilent',
  ],
  ['a node that is gone', 'gw-b:answers', 'gw-a', 'paris gw-a gw-b, tokyo gw-a', 'True NodesAnswer'],
  ['a worker', 'gw-b:answers w:silent', '', 'paris gw-a gw-b, tokyo gw-a', 'False WorkerNodeSilent'],
]

for (const [say, nodes, before, ways, finding] of ROWS) {
  t.test(say, async (t) => {
    const health = planNodeHealth({ paths: PATHS, nodeStates: nodeStates(nodes), silentBefore: before.split(' ') })
    t.equal(health.clusters.map(({ cluster, gateways }) => [cluster, ...gateways].join(' ')).join(', '), ways)
    t.equal(health.finding === undefined ? '' : `${health.finding.status} ${health.finding.reason}`, finding)
  })
}

t.test('nothing is probed', async (t) => {
  const health = planNodeHealth({ paths: PATHS, nodeStates: new Map(), silentBefore: ['gw-a'] })
  t.same([health.clusters, health.silentNodes, health.finding], [PATHS, [], undefined])
})

t.test('a status takes so many names and no more', async (t) => {
  const names = Array.from({ length: MAX_SILENT_NODES + 20 }, (_, i) => `gw-${i}:silent`)
  const { silentNodes, finding } = planNodeHealth({
    paths: PATHS,
    nodeStates: nodeStates(names.join(' ')),
    silentBefore: [],
  })
  t.equal(silentNodes.length, MAX_SILENT_NODES)
  t.ok((finding?.message.length ?? 0) < 300)
})
