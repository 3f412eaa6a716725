/** Which nodes are proposed as gateways, and in which order. */
import t from 'tap'
import { gatewayNodes } from '../../../cli/discovery/gateway-candidates.ts'
import { type ClusterSnapshot, openSnapshot } from '../../../cli/discovery/snapshot.ts'
import { nodeObject } from '../../support/objects/node-objects.ts'

interface Given {
  readonly name: string
  readonly labels?: Record<string, string>
  readonly annotations?: Record<string, string>
  readonly external?: string
  readonly internal?: string
  readonly ready?: string
  readonly cordoned?: boolean
}

function node({
  name,
  labels,
  annotations,
  external,
  internal = '10.0.0.1',
  ready = 'True',
  cordoned,
}: Given): unknown {
  return {
    ...nodeObject(name, {
      metadata: { labels: { 'kubernetes.io/os': 'linux', ...labels }, ...(annotations && { annotations }) },
    }),
    spec: { unschedulable: cordoned },
    status: {
      addresses: [
        { type: 'InternalIP', address: internal },
        ...(external === undefined ? [] : [{ type: 'ExternalIP', address: external }]),
      ],
      conditions: [{ type: 'Ready', status: ready }],
    },
  }
}

function validated(...given: Given[]): ReturnType<typeof gatewayNodes> {
  const snapshot: ClusterSnapshot = { version: {}, objects: given.map(node), crds: [], serviceProbes: [], unread: [] }
  return gatewayNodes(openSnapshot(snapshot))
}

const CONTROL_PLANE = { 'node-role.kubernetes.io/control-plane': '' }
const zone = (name: string): Record<string, string> => ({ 'topology.kubernetes.io/zone': name })

t.test('the label comes first, then a public address, then nodes that are no control plane', async (t) => {
  const { candidates } = validated(
    { name: 'a-control', labels: CONTROL_PLANE },
    { name: 'b-worker' },
    { name: 'c-public', external: '198.51.100.7' },
    { name: 'd-annotated', annotations: { 'sealane.io/public-address': '198.51.100.9' } },
    { name: 'e-labelled', labels: { ...CONTROL_PLANE, 'sealane.io/gateway': '1' } },
  )
  t.same(
    candidates.map((one) => `${one.node}: ${one.reasons.join(', ')}`),
    [
      'e-labelled: labelled sealane.io/gateway=1, control plane',
      'c-public: public address 198.51.100.7, not a control plane node',
      'd-annotated: public address 198.51.100.9, not a control plane node',
      'b-worker: not a control plane node',
      'a-control: control plane',
    ],
  )
  t.equal(candidates[0]?.lane, 1)
  t.same(
    candidates.map((one) => one.annotated),
    [false, false, true, false, false],
  )
})

t.test('equals are spread over the zones', async (t) => {
  const { candidates } = validated(
    { name: 'a1', labels: zone('a') },
    { name: 'a2', labels: zone('a') },
    { name: 'a3', labels: zone('a') },
    { name: 'b1', labels: zone('b') },
    { name: 'c1', labels: zone('c') },
  )
  t.same(
    candidates.map((one) => one.node),
    ['a1', 'b1', 'c1', 'a2', 'a3'],
  )
})

t.test('nodes that cannot be gateways', async (t) => {
  const { candidates, unfit } = validated(
    { name: 'away', ready: 'Unknown' },
    { name: 'cordoned', cordoned: true },
    { name: 'fargate', labels: { 'eks.amazonaws.com/compute-type': 'fargate' } },
    { name: 'six', internal: 'fd00::1' },
    { name: 'windows', labels: { 'kubernetes.io/os': 'windows' } },
  )
  t.same(candidates, [])
  t.same(
    unfit.map(({ node, why, isAway }) => `${node}: ${why}${isAway ? ' now' : ''}`),
    [
      'away: not Ready now',
      'cordoned: cordoned now',
      'fargate: no machine of its own',
      'six: no IPv4 InternalIP',
      'windows: not Linux',
    ],
  )
})

t.test('a node that cannot be one keeps the lane that its label says', async (t) => {
  const labelled = (lane: string): Record<string, string> => ({ 'sealane.io/gateway': lane })
  const { candidates, unfit } = validated(
    { name: 'away', ready: 'Unknown', labels: labelled('0') },
    { name: 'bare', cordoned: true },
    { name: 'cordoned', cordoned: true, labels: labelled('3') },
    { name: 'wrong', cordoned: true, labels: labelled('x') },
  )
  t.same(candidates, [])
  t.same(
    unfit.map(({ node, lane }) => [node, lane]),
    [
      ['away', 0],
      ['bare', undefined],
      ['cordoned', 3],
      ['wrong', undefined],
    ],
  )
})
