/** Clusters with nodes that are no machines of their own, and with machines that go away: the plan of a join. */
import t from 'tap'
import { planJoin } from '../../../../cli/cluster/plan-join.ts'
import { advice } from '../../../../cli/discovery/advice/advice.ts'
import { describeAdvice } from '../../../../cli/discovery/describe.ts'
import { discover } from '../../../../cli/discovery/discover.ts'
import { DEFAULT_VALUES } from '../../../../install/values/install-values.ts'
import { parseClusterId } from '../../../../model/ids.ts'

interface Given {
  readonly name: string
  readonly labels?: Readonly<Record<string, string>>
  readonly taints?: readonly object[]
  readonly external?: string
  readonly os?: string
  readonly kubelet?: string
}

let serial = 0

function node({ name, labels = {}, taints = [], external, os = 'linux', kubelet = 'v1.33.5' }: Given): object {
  serial += 1
  const external4 = external === undefined ? [] : [{ type: 'ExternalIP', address: external }]
  return {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name, labels: { 'kubernetes.io/os': os, 'kubernetes.io/arch': 'amd64', ...labels } },
    spec: { taints },
    status: {
      addresses: [{ type: 'InternalIP', address: `10.20.1.${serial}` }, ...external4],
      conditions: [{ type: 'Ready', status: 'True' }],
      images: [],
      nodeInfo: { kernelVersion: '6.1.150', kubeletVersion: kubelet },
    },
  }
}

function joined(...given: Given[]) {
  const version = { gitVersion: 'v1.33.5-eks-113cf36', major: '1', minor: '33' }
  const found = discover({ version, objects: given.map(node), crds: [], serviceProbes: [], unread: [] })
  const plan = planJoin(found, { labels: {}, gateways: [], clusterId: parseClusterId('c1') }, DEFAULT_VALUES)
  return { found, plan, chosen: plan.gateways.map(({ node: name }) => name).join(' ') }
}

const zone = (name: string) => ({ 'topology.kubernetes.io/zone': `eu-west-1${name}` })

t.test('EKS with node groups and Fargate', async (t) => {
  const { found, plan, chosen } = joined(
    { name: 'ip-10-20-1-11.ec2.internal', labels: { 'eks.amazonaws.com/compute-type': 'ec2' } },
    { name: 'ip-10-20-2-12.ec2.internal', labels: { 'eks.amazonaws.com/compute-type': 'ec2' } },
    {
      name: 'fargate-ip-10-20-3-13.ec2.internal',
      labels: { 'eks.amazonaws.com/compute-type': 'fargate' },
      taints: [{ key: 'eks.amazonaws.com/compute-type', value: 'fargate', effect: 'NoSchedule' }],
    },
  )
  t.equal(chosen, 'ip-10-20-1-11.ec2.internal ip-10-20-2-12.ec2.internal')
  t.match(found.gateways.unfit, [{ node: 'fargate-ip-10-20-3-13.ec2.internal', why: 'no machine of its own' }])
  for (const kind of ['DaemonSet', 'Deployment']) {
    for (const object of plan.objects.filter((one) => one.kind === kind)) {
      const text = JSON.stringify(object['spec'])
      t.match(text, /"key":"eks\.amazonaws\.com\/compute-type","operator":"NotIn","values":\["fargate"\]/, kind)
      t.match(text, /"key":"kubernetes\.io\/os","operator":"In","values":\["linux"\]/, kind)
    }
  }
  t.match(describeAdvice(advice(found)).join('\n'), /EKS Fargate: Pods on Fargate have no node for a routeagent/)
})

t.test('virtual nodes of others, and Windows: left out, and told', async (t) => {
  const { found, plan, chosen } = joined(
    { name: 'w1' },
    { name: 'liqo-c2', labels: { 'liqo.io/type': 'virtual-node' } },
    { name: 'virtual-node-aci-linux', kubelet: 'v1.25.0-vk-azure-aci-1.6.2' },
    { name: 'win1', os: 'windows' },
    { name: 'edge1', labels: { 'node-role.kubernetes.io/edge': '' }, kubelet: 'v1.32.6-kubeedge-v1.21.0' },
    {
      name: 'aks-ingress',
      labels: {
        'node-role.kubernetes.io/edge': '',
        'node-role.kubernetes.io/agent': '',
        'kubernetes.azure.com/cluster': 'mc',
      },
    },
  )
  t.equal(chosen, 'aks-ingress w1')
  const labels = (name: string) => plan.nodes.find((one) => one.node === name)?.labels
  t.strictSame(labels('virtual-node-aci-linux'), { 'sealane.io/virtual-node': 'join' })
  t.strictSame(labels('edge1'), { 'sealane.io/virtual-node': 'join' })
  t.strictSame([labels('liqo-c2'), labels('win1')], [undefined, undefined], 'the affinity leaves them out')
  const report = describeAdvice(advice(found)).join('\n')
  t.match(report, /Virtual nodes: Pods on virtual nodes have no routeagent/)
  t.match(report, /Virtual nodes without a label: .* kubectl label node NODE sealane\.io\/virtual-node=true/)
  t.match(report, /Windows: Windows nodes are left out/)
})

t.test(
  'a machine that looks like a virtual node is not labelled, and loses the label of an earlier join',
  async (t) => {
    const label = 'sealane.io/virtual-node'
    const roles = { 'node-role.kubernetes.io/edge': '', 'node-role.kubernetes.io/agent': '' }
    const edge = [{ key: 'virtual-kubelet.io/provider', value: 'x', effect: 'NoSchedule' }]
    const { plan, chosen } = joined(
      { name: 'admiralty-1' },
      { name: 'edge-1', labels: roles, kubelet: 'v1.33.5+rke2r1' },
      { name: 'admiralty-2', kubelet: '' },
      { name: 'edge-2', labels: { ...roles, [label]: 'join' } },
      { name: 'edge-3', labels: { ...roles, [label]: 'true' } },
      { name: 'v1', labels: { [label]: 'join' }, taints: edge },
    )
    t.equal(chosen, 'admiralty-1 edge-1')
    const stated = { 'sealane.io/machine': 'true' }
    const two: Given[] = ['eklet-1', 'eklet-2'].map((name) => ({ name, labels: stated, kubelet: 'v1.33.5-acme.7' }))
    t.equal(joined(...two).chosen, 'eklet-1 eklet-2', 'a label states that they are machines')
    const labels = plan.nodes.filter(({ labels: all }) => Object.hasOwn(all, label))
    t.strictSame(labels, [{ node: 'edge-2', labels: { [label]: null }, annotations: {} }])
  },
)

t.test(
  'a virtual node that only its name or its roles show: no label is promised, and it is said what to do',
  async (t) => {
    const roles = { 'node-role.kubernetes.io/edge': '', 'node-role.kubernetes.io/agent': '' }
    const report = (...given: Given[]): string =>
      describeAdvice(advice(joined({ name: 'w1' }, ...given).found)).join('\n')
    const label = { 'sealane.io/virtual-node': 'join' }
    const doubtful: Given[] = [
      { name: 'virtual-node-aci-linux', kubelet: '' },
      { name: 'fargate-ip-10-20-3-13.ec2.internal', kubelet: 'v1.33.5-eks-113cf36' },
      { name: 'edge-1', labels: roles, kubelet: '' },
      { name: 'edge-2', labels: { ...roles, ...label }, kubelet: '' },
    ]
    for (const given of doubtful) {
      const text = report(given)
      t.match(text, /Virtual nodes by name: .*join does not label them/, given.name)
      t.match(text, /machines: kubectl label node NODE sealane\.io\/machine=true; if .*sealane\.io\/machine=false/)
      for (const value of ['true', 'false']) {
        const stated = { ...given, labels: { ...given.labels, 'sealane.io/machine': value } }
        t.notMatch(report(stated), /Virtual nodes by name/, `${given.name}: stated ${value}`)
      }
      t.notMatch(text, /Virtual nodes(:| without a label:)|EKS Fargate:/, given.name)
    }
    const sure = report({ name: 'admiralty-1', labels: { 'sealane.io/virtual-node': 'true' }, kubelet: '' })
    t.match(sure, /Virtual nodes: Pods on virtual nodes/)
    t.notMatch(sure, /Virtual nodes by name/)
  },
)

t.test('spot machines come last, one gateway in each zone, and the agent may replace what join chose', async (t) => {
  const { plan, chosen } = joined(
    { name: 'a-spot-1', labels: { 'eks.amazonaws.com/capacityType': 'SPOT', ...zone('a') } },
    { name: 'a-spot-2', labels: { 'karpenter.sh/capacity-type': 'spot', ...zone('b') } },
    { name: 'z-ondemand-1', labels: { 'eks.amazonaws.com/capacityType': 'ON_DEMAND', ...zone('a') } },
    { name: 'z-ondemand-2', labels: { 'eks.amazonaws.com/capacityType': 'ON_DEMAND', ...zone('a') } },
    { name: 'z-ondemand-3', labels: { 'eks.amazonaws.com/capacityType': 'ON_DEMAND', ...zone('b') } },
  )
  t.equal(chosen, 'z-ondemand-1 z-ondemand-3')
  t.strictSame(plan.notes, [])
  t.strictSame(plan.nodes[0], {
    node: 'z-ondemand-1',
    labels: { 'sealane.io/gateway': 'true' },
    annotations: { 'sealane.io/gateway-chosen-by': 'join' },
  })
})

t.test('spot where there is nothing else, with a note', async (t) => {
  const spot = { 'cloud.google.com/gke-spot': 'true' }
  const { plan, chosen } = joined({ name: 's1', labels: spot }, { name: 's2', labels: spot })
  t.equal(chosen, 's1 s2')
  t.strictSame(
    plan.notes,
    ['s1', 's2'].map(
      (name) =>
        `gateway ${name} may be taken away at short notice (label cloud.google.com/gke-spot=true): no node that stays is left to be one`,
    ),
  )
  const mixed = joined({ name: 'a-spot', labels: spot }, { name: 'w1' })
  t.equal(mixed.chosen, 'w1 a-spot')
  t.equal(mixed.plan.notes.length, 1)
})

t.test('a spot machine with a public address is named, and not taken', async (t) => {
  const { plan, chosen } = joined(
    { name: 'a-spot', labels: { 'karpenter.sh/capacity-type': 'spot' }, external: '198.51.100.7' },
    { name: 'w1' },
    { name: 'w2' },
  )
  t.equal(chosen, 'w1 w2')
  t.strictSame(plan.notes, [
    'node a-spot has a public address, but may be taken away at short notice (label karpenter.sh/capacity-type=spot): ' +
      'if no other cluster can be called, kubectl label node a-spot sealane.io/gateway=true',
  ])
})

t.test('machines that are being removed are not taken', async (t) => {
  const { found, chosen } = joined(
    { name: 'a', taints: [{ key: 'karpenter.sh/disrupted', effect: 'NoSchedule' }] },
    { name: 'b', taints: [{ key: 'DeletionCandidateOfClusterAutoscaler', effect: 'PreferNoSchedule' }] },
    { name: 'c' },
    { name: 'd' },
  )
  t.equal(chosen, 'c d', 'a candidate of the autoscaler comes after those that stay')
  t.match(found.gateways.unfit, [{ node: 'a', why: 'being removed', isAway: true }])
})
