/** What a Node is: a machine, a virtual node of some product, or a node with another system; and its affinity. */
import fc from 'fast-check'
import t from 'tap'
import { type NodeRequirement, isMachine, machineTerms, machineText, nodeMachine } from '../../model/node-machine.ts'

type Labels = Readonly<Record<string, string>>

interface Given {
  readonly name?: string
  readonly labels?: Labels
  readonly annotations?: Labels
  readonly taints?: readonly string[]
  readonly providerID?: string
  readonly nodeInfo?: Labels
}

/** Taints as `key` or `key=value`. */
function node({ name = 'n1', labels = {}, annotations = {}, taints = [], providerID, nodeInfo = {} }: Given) {
  return {
    metadata: { name, labels: { 'kubernetes.io/os': 'linux', ...labels }, annotations },
    spec: {
      ...(providerID === undefined ? {} : { providerID }),
      taints: taints.map((taint) => {
        const [key = '', value] = taint.split('=')
        return { key, effect: 'NoSchedule', ...(value === undefined ? {} : { value }) }
      }),
    },
    status: { nodeInfo },
  }
}

const ROLES: Labels = { 'node-role.kubernetes.io/edge': '', 'node-role.kubernetes.io/agent': '' }

/** Each sign alone, and whether a node affinity can see it. */
const VIRTUAL: readonly (readonly [product: string, isLabelled: boolean, given: Given])[] = [
  ['EKS Fargate', true, { labels: { 'eks.amazonaws.com/compute-type': 'fargate' } }],
  ['EKS Fargate', false, { taints: ['eks.amazonaws.com/compute-type=fargate'] }],
  ['EKS Fargate', false, { name: 'fargate-ip-10-20-3-13.ec2.internal' }],
  ['EKS Fargate', false, { providerID: 'aws:///eu-west-1a/b5a2/fargate-ip-10-20-3-13' }],
  ['Azure Container Instances', true, { labels: { virtualization: 'virtualnode2' } }],
  ['Azure Container Instances', false, { taints: ['azure.com/aci'] }],
  ['Azure Container Instances', false, { taints: ['virtual-kubelet.io/provider=azure'] }],
  ['Azure Container Instances', false, { name: 'virtual-node-aci-linux' }],
  ['Azure Container Instances', false, { nodeInfo: { kubeletVersion: 'v1.25.0-vk-azure-aci-1.6.2' } }],
  ['Azure Container Instances', true, { name: 'virtual-node-aci-linux', labels: { type: 'virtual-kubelet' } }],
  ['Liqo', true, { labels: { 'liqo.io/type': 'virtual-node' } }],
  ['Liqo', false, { taints: ['virtual-node.liqo.io/not-allowed=true'] }],
  ['Admiralty', true, { labels: { 'virtual-kubelet.io/provider': 'admiralty' } }],
  ['Admiralty', true, { labels: { 'kubernetes.io/role': 'cluster', type: 'virtual-kubelet' } }],
  ['Admiralty', false, { taints: ['virtual-kubelet.io/provider=admiralty'] }],
  ['Admiralty', false, { name: 'admiralty-default-c2-1a2b3c' }],
  ['interLink', true, { labels: { 'virtual-node.interlink/type': 'virtual-kubelet' } }],
  ['interLink', false, { taints: ['virtual-node.interlink/no-schedule=true'] }],
  ['Tencent super node', true, { labels: { 'node.kubernetes.io/instance-type': 'eklet' } }],
  ['Tencent super node', false, { taints: ['eks.tke.cloud.tencent.com/eklet'] }],
  ['Tencent super node', false, { name: 'eklet-subnet-1a2b' }],
  ['Volcengine VCI', false, { taints: ['vci.vke.volcengine.com/node-type=vci'] }],
  ['Volcengine VCI', true, { labels: { 'vci.vke.volcengine.com/node-type': 'vci' } }],
  [
    'OKE virtual node',
    false,
    { annotations: { 'oci.oraclecloud.com/virtual-node-pool-id': 'ocid1.virtualnodepool.x' } },
  ],
  ['OKE virtual node', false, { providerID: 'ocid1.virtualnode.oc1.eu-frankfurt-1.aaaa' }],
  ['KWOK', true, { labels: { type: 'kwok' } }],
  ['KWOK', false, { annotations: { 'kwok.x-k8s.io/node': 'fake' } }],
  ['KWOK', false, { taints: ['kwok.x-k8s.io/node=fake'] }],
  ['KubeEdge', false, { nodeInfo: { kubeletVersion: 'v1.28.6-kubeedge-v1.17.0' } }],
  ['KubeEdge', false, { labels: ROLES }],
  ['KubeEdge', false, { labels: { 'node-role.kubernetes.io/agent': '' }, taints: ['node-role.kubernetes.io/edge'] }],
  ['KubeEdge', false, { labels: ROLES, nodeInfo: { kubeletVersion: 'v1.28.6-edge' } }],
  ['marked as a virtual node', true, { labels: { 'sealane.io/virtual-node': '' } }],
  ['marked as a virtual node', true, { labels: { 'sealane.io/machine': 'false' } }],
  ['Tencent super node', true, { name: 'eklet-1', labels: { 'sealane.io/machine': 'false' } }],
  ['Virtual Kubelet', true, { labels: { type: 'virtual-kubelet' } }],
  ['Virtual Kubelet', true, { labels: { 'virtual-kubelet.io/provider': 'mock' } }],
  ['Virtual Kubelet', false, { taints: ['virtual-kubelet.io/provider'] }],
  ['Virtual Kubelet', false, { nodeInfo: { kubeletVersion: 'v1.15.2-vk-v1.6.0' } }],
  ['Virtual Kubelet', false, { nodeInfo: { architecture: 'virtual-kubelet' } }],
]

const MACHINES: readonly Given[] = [
  {},
  { labels: { 'eks.amazonaws.com/compute-type': 'ec2' } },
  { labels: { 'eks.amazonaws.com/compute-type': 'auto' }, providerID: 'aws:///eu-west-1a/i-0123' },
  { labels: { type: 'database', 'kubernetes.io/role': 'node' } },
  { labels: { 'node-role.kubernetes.io/edge': '' } },
  {
    labels: {
      'node-role.kubernetes.io/edge': '',
      'node-role.kubernetes.io/agent': '',
      'kubernetes.azure.com/agentpool': 'ingress',
    },
  },
  { labels: { 'node-role.kubernetes.io/agent': '' } },
  { taints: ['node-role.kubernetes.io/edge'] },
  { labels: { 'openyurt.io/is-edge-worker': 'true', 'superedge.io/edge-node': 'enable' } },
  { labels: { 'liqo.io/type': 'gateway' } },
  ...['v1.33.5', 'v1.33.5+k3s1', 'v1.33.5+rke2r1', 'v1.33.5-gke.1080000', 'v1.33.5-eks-113cf36'].map(
    (kubeletVersion): Given => ({ labels: ROLES, nodeInfo: { kubeletVersion } }),
  ),
  { name: 'admiralty-1', nodeInfo: { kubeletVersion: 'v1.33.5+rke2r1' } },
  { name: 'eklet-1', nodeInfo: { kubeletVersion: 'v1.33.5' } },
  { name: 'fargate', nodeInfo: { kubeletVersion: 'v1.33.5-eks-113cf36', osImage: 'Bottlerocket OS 1.40' } },
  { taints: ['dedicated=virtual-kubelet'], nodeInfo: { kubeletVersion: 'v1.31.2+k3s1', architecture: 'arm64' } },
]

t.test('virtual nodes, by each sign alone', async (t) => {
  for (const [product, isLabelled, given] of VIRTUAL) {
    const found = nodeMachine(node(given))
    t.match(found, { is: 'virtual', product, isLabelled }, JSON.stringify(given))
    t.notOk(isMachine(node(given)))
    const only = found.is === 'virtual' && found.onlyBy !== undefined ? `, by its ${found.onlyBy} alone` : ''
    t.equal(machineText(found), `a virtual node (${product}${only})`)
  }
  t.match(nodeMachine(node({ labels: { type: 'virtual-kubelet' } })), { sign: 'label type=virtual-kubelet' })
})

t.test('a name, roles or the label of a join alone are no sure sign', async (t) => {
  const isSure = (given: Given): unknown => {
    const found = nodeMachine(node(given))
    return found.is === 'virtual' && found.isSure
  }
  const mark = { 'sealane.io/virtual-node': 'join' }
  const onlyBy = (given: Given): unknown => {
    const found = nodeMachine(node(given))
    return found.is === 'virtual' ? found.onlyBy : 'machine'
  }
  const byUser = { 'sealane.io/virtual-node': 'true' }
  t.strictSame(
    [{}, mark, byUser, { type: 'virtual-kubelet' }].map((labels) => [
      onlyBy({ name: 'admiralty-1', labels }),
      onlyBy({ labels: { ...ROLES, ...labels } }),
    ]),
    [
      ['name', 'roles'],
      ['name', 'roles'],
      [undefined, undefined],
      [undefined, undefined],
    ],
    'the label of a user, or of the product, counts',
  )
  t.equal(onlyBy({ name: 'admiralty-1', taints: ['virtual-kubelet.io/provider=admiralty'] }), undefined)
  t.equal(machineText(nodeMachine(node({ name: 'eklet-1' }))), 'a virtual node (Tencent super node, by its name alone)')
  const unsure: Given[] = [{ name: 'admiralty-1' }, { labels: ROLES }, { labels: mark }]
  for (const given of [...unsure, { name: 'eklet-1', labels: { ...ROLES, ...mark } }])
    t.equal(isSure(given), false, JSON.stringify(given))
  const sure: Given[] = [
    { taints: ['virtual-kubelet.io/provider=admiralty'] },
    { labels: { type: 'virtual-kubelet' } },
    { providerID: 'kwok://n1' },
    { annotations: { 'kwok.x-k8s.io/node': 'fake' } },
    { nodeInfo: { kubeletVersion: 'v1.28.6-kubeedge-v1.17.0' } },
  ]
  for (const given of sure) t.equal(isSure({ ...given, name: 'eklet-1' }), true, JSON.stringify(given))
  t.equal(isSure({ labels: mark, taints: ['azure.com/aci'] }), true)
})

t.test('a label states what a node is, against all signs', async (t) => {
  const label = (value: string): Labels => ({ 'sealane.io/machine': value })
  for (const [, , given] of VIRTUAL) {
    const stated = node({ ...given, labels: { ...given.labels, ...label('true') } })
    t.strictSame(nodeMachine(stated), { is: 'machine' }, JSON.stringify(given))
    t.ok(isSelected(machineTerms(), stated.metadata.labels), 'a DaemonSet wants a pod there')
    for (const value of ['', 'yes', 'TRUE', '__proto__'])
      if (!Object.hasOwn(given.labels ?? {}, 'sealane.io/machine'))
        t.equal(nodeMachine(node({ ...given, labels: { ...given.labels, ...label(value) } })).is, 'virtual', value)
  }
  for (const given of MACHINES) {
    const stated = node({ ...given, labels: { ...given.labels, ...label('false') } })
    t.match(nodeMachine(stated), { is: 'virtual', isLabelled: true, isSure: false }, JSON.stringify(given))
    t.notOk(isSelected(machineTerms(), stated.metadata.labels))
  }
  const odd = { name: 'eklet-1', nodeInfo: { kubeletVersion: 'v1.33.5-acme.7' } }
  t.match(nodeMachine(node(odd)), { is: 'virtual', onlyBy: 'name' })
  const notOnlyByName = nodeMachine(node({ ...odd, labels: label('false') }))
  t.equal(machineText(notOnlyByName), 'a virtual node (Tencent super node)', 'the user has stated it')
  const windows = { 'kubernetes.io/os': 'windows', ...label('true') }
  t.match(nodeMachine(node({ labels: windows })), { is: 'other-system', system: 'windows' })
  t.notOk(isSelected(machineTerms(), windows), 'the label makes no Linux machine of another system')
})

t.test('machines', async (t) => {
  for (const given of MACHINES) t.strictSame(nodeMachine(node(given)), { is: 'machine' }, JSON.stringify(given))
  t.ok(isMachine({ metadata: { name: 'new' } }), 'a Node that is still being registered')
})

t.test('nodes with another system', async (t) => {
  const rows: [node: unknown, system: string][] = [
    [{ metadata: { name: 'w', labels: { 'kubernetes.io/os': 'windows' } } }, 'windows'],
    [{ metadata: { name: 'w', labels: { 'beta.kubernetes.io/os': 'windows' } } }, 'windows'],
    [{ metadata: { name: 'w' }, status: { nodeInfo: { operatingSystem: 'Windows' } } }, 'windows'],
    [{ metadata: { name: 'w' }, status: { nodeInfo: { osImage: 'Windows Server 2022 Datacenter' } } }, 'windows'],
    [{ metadata: { name: 'w' }, spec: { taints: [{ key: 'os', value: 'windows' }] } }, 'windows'],
    [{ metadata: { name: 'w', labels: { 'kubernetes.io/os': 'freebsd' } } }, 'freebsd'],
  ]
  for (const [one, system] of rows) {
    t.match(nodeMachine(one), { is: 'other-system', system })
    t.equal(machineText(nodeMachine(one)), `a node with ${system}`)
  }
})

function meets({ key, operator, values = [] }: NodeRequirement, labels: Labels): boolean {
  const value = Object.hasOwn(labels, key) ? labels[key] : undefined
  if (operator === 'Exists') return value !== undefined
  if (operator === 'DoesNotExist') return value === undefined
  if (operator === 'In') return value !== undefined && values.includes(value)
  return value === undefined || !values.includes(value)
}

/** As the scheduler and the DaemonSet controller read a required node affinity. */
function isSelected(terms: ReturnType<typeof machineTerms>, labels: Labels): boolean {
  return terms.some(({ matchExpressions }) => matchExpressions.every((one) => meets(one, labels)))
}

t.test('the affinity leaves out what the labels show, and nothing else', async (t) => {
  const terms = machineTerms()
  const own = (given: Given): Labels => node(given).metadata.labels
  for (const [, isLabelled, given] of VIRTUAL)
    t.equal(isSelected(terms, own(given)), !isLabelled, JSON.stringify(given))
  for (const given of MACHINES) t.ok(isSelected(terms, own(given)), JSON.stringify(given))
  t.notOk(isSelected(terms, { 'kubernetes.io/os': 'windows' }))
  const more = machineTerms([{ key: 'sealane.io/gateway', operator: 'Exists' }])
  t.notOk(isSelected(more, own({})))
  t.ok(isSelected(more, own({ labels: { 'sealane.io/gateway': 'true' } })))
  for (const { matchExpressions } of terms)
    for (const { operator, values } of matchExpressions)
      t.equal(values === undefined, /Exist/.test(operator), 'as the API server demands')
})

t.test('any labels: the affinity and the rule agree', async () => {
  const keys = terms().flatMap(({ matchExpressions }) => matchExpressions.map(({ key }) => key))
  const values = terms().flatMap(({ matchExpressions }) => matchExpressions.flatMap(({ values: all = [] }) => all))
  const labels = fc.dictionary(fc.constantFrom(...keys, 'a', '__proto__'), fc.constantFrom(...values, '', 'x'))
  fc.assert(
    fc.property(labels, (given) => {
      const all = { ...given, 'kubernetes.io/os': 'linux' }
      return isSelected(terms(), all) === isMachine({ metadata: { name: 'n', labels: all } })
    }),
  )
  function terms(): ReturnType<typeof machineTerms> {
    return machineTerms()
  }
})

t.test('objects of any form', async () => {
  fc.assert(
    fc.property(fc.anything(), fc.anything(), fc.anything(), (labels, taints, nodeInfo) => {
      const found = nodeMachine({ metadata: { name: 'n', labels }, spec: { taints }, status: { nodeInfo } })
      return ['machine', 'virtual', 'other-system'].includes(found.is) && nodeMachine(labels).is.length > 0
    }),
  )
})
