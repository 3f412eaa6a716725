/** What pods really have is held against what configuration says: the question, its suggestion, and what is no pod. */
import fc from 'fast-check'
import t from 'tap'
import { answered } from '../../../../cli/cluster/join-questions.ts'
import { openQuestions, planJoin } from '../../../../cli/cluster/plan-join.ts'
import { advice } from '../../../../cli/discovery/advice/advice.ts'
import { discover } from '../../../../cli/discovery/discover.ts'
import type { ClusterSnapshot } from '../../../../cli/discovery/snapshot.ts'
import { smallestCover } from '../../../../cli/discovery/prefix-texts.ts'
import { DEFAULT_VALUES } from '../../../../install/values/install-values.ts'
import { parseClusterId } from '../../../../model/ids.ts'
import { networksAround } from '../../../../model/addresses/networks-around.ts'
import { containsAddress, overlaps, parseAddress, parsePrefix } from '../../../../model/values/ip.ts'
import { nodeObject } from '../../../support/objects/node-objects.ts'
import { fixture } from '../support/fixtures.ts'

type Raw = Record<string, unknown>

const EMPTY: ClusterSnapshot = { version: {}, objects: [], crds: [], serviceProbes: [], unread: [] }

function pod(name: string, ips: readonly string[], change: { spec?: Raw; status?: Raw; namespace?: string } = {}): Raw {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace: change.namespace ?? 'shop' },
    spec: { nodeName: 'n1', ...change.spec },
    status: { phase: 'Running', podIP: ips[0], podIPs: ips.map((ip) => ({ ip })), ...change.status },
  }
}

function object(apiVersion: string, kind: string, name: string, rest: Raw, namespace?: string): Raw {
  return { apiVersion, kind, metadata: { name, ...(namespace === undefined ? {} : { namespace }) }, ...rest }
}

function configMap(name: string, data: Raw, namespace = 'kube-system'): Raw {
  return object('v1', 'ConfigMap', name, { data }, namespace)
}

function daemonSet(name: string, container: string, namespace = 'kube-system'): Raw {
  return object(
    'apps/v1',
    'DaemonSet',
    name,
    { spec: { template: { spec: { containers: [{ name: container }] } } } },
    namespace,
  )
}

const KUBEADM = configMap('kubeadm-config', {
  ClusterConfiguration: 'networking: {podSubnet: 10.244.0.0/16, serviceSubnet: 10.96.0.0/12}',
})
const NODE: Raw = {
  ...nodeObject('n1', {}),
  spec: { podCIDRs: ['10.244.1.0/24'] },
  status: { addresses: [{ type: 'InternalIP', address: '192.168.10.11' }] },
}

function asked(...objects: readonly Raw[]) {
  const found = discover({ ...EMPTY, objects })
  return found.asks.find(({ field }) => field === 'podCIDRs')
}

t.test('the pools of Cilium multi-pool', async (t) => {
  const found = discover(fixture('cilium-multi-pool'))
  t.same(found.podCIDRs?.value, ['10.10.0.0/16', '10.20.0.0/16'])
  t.equal(found.podCIDRs?.confidence, 'certain')
  t.same(
    found.asks.map(({ field }) => field),
    [],
  )
  const snapshot = fixture('cilium-multi-pool')
  const hidden = snapshot.objects.filter((one) => (one as Raw)['kind'] !== 'CiliumPodIPPool')
  const [ask] = discover({ ...snapshot, objects: hidden }).asks
  t.equal(ask?.field, 'podCIDRs', 'the pools may not be read')
  t.match(ask?.why, /pod kube-system\/coredns-5d78c9869d-abcde has the address 10\.10\.0\.7, outside/)
  t.same(ask?.suggestion, ['10.10.0.0/16'])
  const pool = object('cilium.io/v2', 'CiliumPodIPPool', 'six', {
    spec: { ipv6: { cidrs: [{ cidr: 'fd00:7::/48' }] } },
  })
  t.ok(discover({ ...snapshot, objects: [...snapshot.objects, pool] }).podCIDRs?.value.includes('fd00:7::/48'))
})

t.test('EKS with custom networking: several networks, and no node is a pod', async (t) => {
  const found = discover(fixture('eks-custom-networking'))
  t.same(found.podCIDRs?.value, ['100.64.0.0/16'])
  const ask = found.asks.find(({ field }) => field === 'podCIDRs')
  t.same(ask?.suggestion, ['100.64.0.0/16'])
  t.notMatch(found.warnings.join(), /overlaps/)
  const snapshot = fixture('eks-custom-networking')
  const more = [...snapshot.objects, pod('web', ['100.65.7.9'])]
  t.same(discover({ ...snapshot, objects: more }).podCIDRs?.value, ['100.64.0.0/16', '100.65.0.0/16'])
  const none = snapshot.objects.filter((one) => (one as Raw)['kind'] !== 'Pod')
  t.equal(discover({ ...snapshot, objects: none }).podCIDRs, undefined, 'nothing is better than the nodes')
})

const SIBLINGS: Readonly<
  Record<string, readonly [objects: readonly Raw[], why: RegExp, suggestion: readonly string[]]>
> = {
  'a CNI that nobody has listed': [
    [KUBEADM, NODE, pod('a', ['172.20.3.4']), pod('b', ['172.20.9.9'])],
    /pod shop\/a has the address 172\.20\.3\.4, as have 1 more pod, outside the pod CIDRs found \(10\.244\.0\.0\/16/,
    ['172.20.0.0/16'],
  ],
  'one pod among many': [
    [KUBEADM, NODE, pod('a', ['10.244.1.4']), pod('b', ['10.250.0.9'])],
    /pod shop\/b has the address 10\.250\.0\.9, outside/,
    ['10.244.0.0/16', '10.250.0.0/16'],
  ],
  'a family that nothing names': [
    [KUBEADM, NODE, pod('a', ['10.244.1.4', 'fd00:9:0:1::4'])],
    /fd00:9:0:1:/,
    ['10.244.0.0/16', 'fd00:9::/56'],
  ],
  'podIP alone, and no phase': [
    [KUBEADM, NODE, pod('a', ['10.250.0.4'], { status: { podIPs: [], phase: undefined } })],
    /10\.250\.0\.4/,
    ['10.250.0.0/16'],
  ],
  'a pool of Antrea, as wide as it is': [
    [
      KUBEADM,
      NODE,
      pod('a', ['10.244.1.4']),
      pod('b', ['10.70.0.4']),
      object('crd.antrea.io/v1beta1', 'IPPool', 'apps', { spec: { ipRanges: [{ cidr: '10.70.0.0/20' }] } }),
    ],
    /10\.70\.0\.4/,
    ['10.244.0.0/16', '10.70.0.0/20'],
  ],
  'beside Services: narrower': [
    [
      configMap('kubeadm-config', {
        ClusterConfiguration: 'networking: {podSubnet: 10.244.0.0/16, serviceSubnet: 10.250.128.0/17}',
      }),
      NODE,
      pod('a', ['10.244.1.4']),
      pod('b', ['10.250.0.4']),
    ],
    /10\.250\.0\.4/,
    ['10.244.0.0/16', '10.250.0.0/17'],
  ],
  'beside nodes: narrower': [[KUBEADM, NODE, pod('a', ['192.168.200.4'])], /192\.168\.200\.4/, ['192.168.128.0/17']],
  'a public address': [[KUBEADM, NODE, pod('a', ['8.8.4.4'])], /8\.8\.4\.4/, ['8.8.4.0/24']],
}

for (const [name, [objects, why, suggestion]] of Object.entries(SIBLINGS)) {
  t.test(name, async (t) => {
    const ask = asked(...objects)
    t.match(ask?.why, why)
    t.same(ask?.suggestion, suggestion)
  })
}

t.test('what is no pod of ours asks nothing', async (t) => {
  const virtual = { ...NODE, metadata: { name: 'v', labels: { type: 'virtual-kubelet' } } }
  const windows = { ...NODE, metadata: { name: 'w', labels: { 'kubernetes.io/os': 'windows' } } }
  const network = JSON.stringify([{ name: 'second', ips: ['172.16.9.9'] }])
  const second: Raw = { annotations: { 'k8s.v1.cni.cncf.io/network-status': network }, name: 'm', namespace: 'shop' }
  const rows: Readonly<Record<string, Raw>> = {
    inside: pod('a', ['10.244.200.4']),
    'on the host network': pod('a', ['192.168.10.11'], { spec: { hostNetwork: true } }),
    'on the host network of a node elsewhere': pod('a', ['172.30.0.9'], { spec: { hostNetwork: true } }),
    'an address of a node': pod('a', ['192.168.10.11']),
    'has ended': pod('a', ['172.20.0.9'], { status: { phase: 'Succeeded' } }),
    'has failed': pod('a', ['172.20.0.9'], { status: { phase: 'Failed' } }),
    'has no address yet': pod('a', [], { status: { podIP: undefined } }),
    'on a virtual node': pod('a', ['172.20.0.9'], { spec: { nodeName: 'v' } }),
    'on a Windows node': pod('a', ['172.20.0.9'], { spec: { nodeName: 'w' } }),
    'a second network of Multus': { ...pod('a', ['10.244.1.9']), metadata: second },
    'no address at all': pod('a', ['nonsense', '127.0.0.1', '169.254.1.1', '10.0.0.0/8']),
  }
  for (const [name, one] of Object.entries(rows)) t.equal(asked(KUBEADM, NODE, virtual, windows, one), undefined, name)
})

t.test('pools: those of Calico that are switched off and still in use, those of Kube-OVN', async (t) => {
  const pool = (name: string, cidr: string, spec: Raw = {}): Raw =>
    object('crd.projectcalico.org/v1', 'IPPool', name, { spec: { cidr, ...spec } })
  const calico = [KUBEADM, NODE, daemonSet('calico-node', 'calico-node'), pool('a', '10.1.0.0/16')]
  const off = pool('b', '10.2.0.0/16', { disabled: true })
  t.same(discover({ ...EMPTY, objects: [...calico, off] }).podCIDRs?.value, ['10.1.0.0/16'])
  const used = [...calico, off, pod('old', ['10.2.0.9']), pod('new', ['10.1.0.9'])]
  t.same(discover({ ...EMPTY, objects: used }).podCIDRs?.value, ['10.1.0.0/16', '10.2.0.0/16'])
  t.equal(asked(...used), undefined)
  const subnet = (name: string, cidrBlock: string, spec: Raw = {}): Raw =>
    object('kubeovn.io/v1', 'Subnet', name, { spec: { cidrBlock, ...spec } })
  const ovn = [
    subnet('ovn-default', '10.16.0.0/16,fd00:16::/112', { vpc: 'ovn-cluster', provider: 'ovn' }),
    subnet('join', '100.64.0.0/16', { vpc: 'ovn-cluster' }),
    subnet('team', '10.66.0.0/16'),
    subnet('apart', '10.67.0.0/16', { vpc: 'vpc-1' }),
    pod('a', ['10.66.0.4']),
  ]
  t.same(discover({ ...EMPTY, objects: [KUBEADM, NODE, ...ovn] }).podCIDRs?.value, [
    '10.16.0.0/16',
    '10.66.0.0/16',
    'fd00:16::/112',
  ])
})

t.test('pods of other VPCs of Kube-OVN: no question, one advice', async (t) => {
  const subnet = (name: string, cidrBlock: string, vpc: string): Raw =>
    object('kubeovn.io/v1', 'Subnet', name, { spec: { cidrBlock, vpc, provider: 'ovn' } })
  const ovn = [
    ...[KUBEADM, NODE, subnet('ovn-default', '10.16.0.0/16', 'ovn-cluster')],
    ...[subnet('a', '10.67.0.0/16,fd00:67::/112', 'vpc-1'), subnet('same', '10.16.0.0/20', 'vpc-2')],
    pod('mine', ['10.16.0.9']),
  ]
  const apart = [pod('apart', ['10.67.0.9', 'fd00:67::9']), pod('as-mine', ['10.16.1.9'])]
  const found = discover({ ...EMPTY, objects: [...ovn, ...apart] })
  t.same(found.podCIDRs?.value, ['10.16.0.0/16'])
  t.equal(asked(...ovn, ...apart), undefined)
  t.same(
    advice(found)
      .filter(({ about }) => about === 'Kube-OVN')
      .map(({ kind, text }) => `${kind} ${text}`),
    [
      'limit Kube-OVN isolates the pods of other VPCs from the nodes (10.67.0.0/16,fd00:67::/112 of VPC vpc-1, 10.16.0.0/20 of VPC vpc-2): they cannot call other clusters or be called from them, and are left out of the pod CIDRs.',
    ],
  )
  t.match(asked(...ovn, pod('b', ['10.68.0.9']))?.why, /pod shop\/b has the address 10\.68\.0\.9/, 'in no VPC')
  const plain = discover({ ...EMPTY, objects: ovn.slice(0, 3) })
  t.notOk(advice(plain).some(({ about }) => about === 'Kube-OVN'))
})

t.test('Cilium with addresses of a cloud: the subnets of its interfaces', async (t) => {
  const cilium = [daemonSet('cilium', 'cilium-agent'), configMap('cilium-config', { ipam: 'eni' })]
  const node = (name: string, cidr: string): Raw =>
    object('cilium.io/v2', 'CiliumNode', name, { status: { eni: { enis: { 'eni-1': { subnet: { cidr } } } } } })
  const found = discover({ ...EMPTY, objects: [...cilium, node('a', '10.3.0.0/20'), node('b', '10.9.16.0/20')] })
  t.same(found.podCIDRs?.value, ['10.3.0.0/20', '10.9.16.0/20'])
  t.equal(found.podCIDRs?.confidence, 'guess')
})

t.test('a member is told and not asked: it settled the networks before', async (t) => {
  const site = JSON.stringify({ kind: 'Site', spec: { podCIDRs: ['10.244.0.0/16'], serviceCIDRs: ['10.96.0.0/12'] } })
  const member = [NODE, configMap('sealane-site', { 'site.yaml': site }, 'sealane-system')]
  const found = discover({ ...EMPTY, objects: [...member, pod('new', ['10.10.0.9'])] })
  t.same(
    found.asks.filter(({ field }) => field === 'podCIDRs'),
    [],
  )
  t.match(
    found.warnings.join('\n'),
    /pod shop\/new has the address 10\.10\.0\.9, outside the pod CIDRs of this member \(10\.244\.0\.0\/16\).*--pod-cidr 10\.244\.0\.0\/16 --pod-cidr 10\.10\.0\.0\/16/,
  )
})

t.test('a name of a pod cannot control the terminal', async (t) => {
  t.notMatch(asked(KUBEADM, NODE, pod('a\u001b[31m\n', ['172.20.0.9']))?.why, /[\p{Cc}]/u)
})

// The grouping itself.

const around = (texts: readonly string[], nodes: readonly string[] = []): string[] =>
  networksAround(
    texts.map((text) => parseAddress(text)),
    { declared: [], taken: [parsePrefix('10.96.0.0/12')], nodes: nodes.map((text) => parseAddress(text)) },
  )

t.test('many networks become fewer, each within one private range', async (t) => {
  const many = Array.from({ length: 64 }, (_, i) => `10.${i + 128}.0.9`)
  t.same(
    around(many),
    Array.from({ length: 8 }, (_, i) => `10.${128 + i * 8}.0.0/13`),
  )
  t.same(around(['10.1.0.9', '172.16.0.9', '192.168.3.9', '100.64.0.9']), [
    '10.1.0.0/16',
    '100.64.0.0/16',
    '172.16.0.0/16',
    '192.168.0.0/16',
  ])
  t.same(around(['10.97.0.9']), [], 'an address of a Service suggests nothing')
  t.same(smallestCover(['10.244.0.0/24', '192.168.0.0/24']), ['10.244.0.0/24', '192.168.0.0/24'], 'not 0.0.0.0/0')
})

t.test('whatever the addresses: nothing wide, nothing of a Service, all contained', async () => {
  const four = fc.ipV4()
  const service = parsePrefix('10.96.0.0/12')
  fc.assert(
    fc.property(fc.array(fc.oneof(four, four, fc.ipV6()), { maxLength: 60 }), fc.array(four), (texts, nodes) => {
      const addresses = texts.map((text) => parseAddress(text))
      const found = around(texts, nodes).map((text) => parsePrefix(text))
      const isFree = found.every((one) => one.length >= (one.family === 4 ? 12 : 48) && !overlaps(one, service))
      const kept = addresses.filter((one) => !containsAddress(service, one))
      const isWhole = found.length >= 32 || kept.every((one) => found.some((prefix) => containsAddress(prefix, one)))
      return isFree && isWhole
    }),
    { numRuns: 200 },
  )
})

// The join.

t.test('with --yes the join refuses, and names the pod, the networks and the flags', async (t) => {
  const found = discover({ ...EMPTY, objects: [KUBEADM, NODE, pod('a', ['10.244.1.4']), pod('b', ['10.250.0.9'])] })
  const asks = openQuestions(found, { labels: {}, gateways: [{ node: 'n1' }] })
  const error = await answered(asks, { chosen: { labels: {}, gateways: [] }, ask: undefined }).then(
    () => undefined,
    (why: unknown) => why,
  )
  t.match(error, {
    exitCode: 2,
    message:
      /^pod shop\/b has the address 10\.250\.0\.9, outside the pod CIDRs found \(10\.244\.0\.0\/16, from .*\): use --pod-cidr CIDR, perhaps --pod-cidr 10\.244\.0\.0\/16 --pod-cidr 10\.250\.0\.0\/16$/,
  })
  const given = { labels: {}, gateways: [{ node: 'n1' }], podCIDRs: ['10.244.0.0/16'] }
  t.same(openQuestions(found, given), [], 'a flag answers the question')
  const plan = planJoin(found, { ...given, clusterId: parseClusterId('c1') }, DEFAULT_VALUES)
  t.match(
    plan.notes.join('\n'),
    /pod shop\/b has the address 10\.250\.0\.9, outside the pod CIDRs given \(10\.244\.0\.0\/16\)/,
  )
})
