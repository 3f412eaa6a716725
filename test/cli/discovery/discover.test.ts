/** From objects to findings: which source wins, what is reported, and which questions remain. */
import t from 'tap'
import { discover } from '../../../cli/discovery/discover.ts'
import type { ClusterSnapshot } from '../../../cli/discovery/snapshot.ts'
import { fixture } from './support/fixtures.ts'
import { nodeObject } from '../../support/objects/node-objects.ts'

const EMPTY: ClusterSnapshot = {
  version: { gitVersion: 'v1.33.5' },
  objects: [],
  crds: [],
  serviceProbes: [],
  unread: [],
}

type Raw = Record<string, unknown>

function withObjects(...objects: Raw[]): ClusterSnapshot {
  return { ...EMPTY, objects }
}

function without(name: string, matching: (object: Raw & { metadata: Raw }) => boolean): ClusterSnapshot {
  const snapshot = fixture(name)
  return { ...snapshot, objects: snapshot.objects.filter((object) => !matching(object as Raw & { metadata: Raw })) }
}

function configMap(name: string, data: Raw, namespace = 'kube-system'): Raw {
  return { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace }, data }
}

const ROWS: readonly (readonly [
  fixture: string,
  distribution: string,
  cni: string,
  proxy: string,
  pods: string,
  services: string,
])[] = [
  ['aks-kubenet', 'aks', 'kubenet', 'iptables', '10.244.0.0/16', '10.0.0.0/16'],
  ['aks-node-subnet', 'aks', 'azure', 'iptables', '10.224.0.0/16', '10.0.0.0/16'],
  ['aks-overlay', 'aks', 'azure', 'iptables', '10.244.0.0/16', '10.0.0.0/16'],
  ['calico-ebpf', 'kubeadm', 'calico', '-', '192.168.0.0/16', '10.96.0.0/12'],
  ['calico-vpp', 'kubeadm', 'calico', 'nftables', '192.168.0.0/16', '10.96.0.0/12'],
  ['cilium-mesh-eni', 'eks', 'cilium', 'none', '-', '172.20.0.0/16'],
  ['cilium-multi-pool', 'kubeadm', 'cilium', '-', '10.10.0.0/16 10.20.0.0/16', '10.96.0.0/12'],
  ['eks-auto-mode', 'eks', 'aws-vpc', '-', '10.30.0.0/16', '172.20.0.0/16'],
  ['eks-cilium-eni', 'eks', 'cilium', 'none', '10.20.0.0/18', '172.20.0.0/16'],
  ['eks-custom-networking', 'eks', 'aws-vpc', '-', '100.64.0.0/16', '-'],
  ['eks-vpc-cni', 'eks', 'aws-vpc', 'iptables', '10.20.0.0/16', '172.20.0.0/16'],
  ['gke', 'gke', 'gke', 'iptables', '10.4.0.0/14', '34.118.224.0/20'],
  ['gke-autopilot', 'gke', 'gke', 'none', '10.4.8.0/26', '34.118.224.0/20'],
  ['gke-dataplane-v2', 'gke', 'gke', 'none', '10.4.2.0/24', '34.118.224.0/20'],
  ['k3s', 'k3s', 'flannel', 'ipvs', '10.42.0.0/16', '10.43.0.0/16'],
  ['kind', 'kind', 'kindnet', 'iptables', '10.244.0.0/16', '10.96.0.0/16'],
  [
    'kubeadm-antrea',
    'kubeadm',
    'antrea',
    'nftables',
    '10.244.0.0/16 fd00:10:244::/56',
    '10.96.0.0/16 fd00:10:96::/112',
  ],
  ['kubeadm-calico-bgp-ipvs', 'kubeadm', 'calico', 'ipvs', '10.1.0.0/17 10.3.0.0/16', '10.96.0.0/12'],
  ['kubeadm-calico-operator', 'kubeadm', 'calico', 'nftables', '192.168.0.0/16', '10.96.0.0/12'],
  ['kubeadm-calico-vxlan', 'kubeadm', 'calico', 'iptables', '10.1.0.0/16', '10.96.0.0/12'],
  ['kubeadm-cilium', 'kubeadm', 'cilium', 'iptables', '10.244.0.0/16', '10.96.0.0/12'],
  ['kubeadm-cilium-kube-proxy-free', 'kubeadm', 'cilium', 'none', '10.0.0.0/8', '10.96.0.0/12'],
  ['kubeadm-flannel', 'kubeadm', 'flannel', 'iptables', '10.244.0.0/16', '10.96.0.0/12'],
  ['kubeadm-kube-router', 'kubeadm', 'kube-router', 'ipvs', '10.244.0.0/16', '10.96.0.0/12'],
  ['kubeadm-weave', 'kubeadm', 'weave', 'iptables', '10.32.0.0/12', '10.96.0.0/12'],
  ['openshift-cilium', 'openshift', 'cilium', 'none', '10.128.0.0/14', '172.30.0.0/16'],
  ['openshift-ovn', 'openshift', 'ovn-kubernetes', 'none', '10.128.0.0/14', '172.30.0.0/16'],
  ['rke2-canal', 'rke2', 'canal', 'iptables', '10.42.0.0/16', '10.43.0.0/16'],
]

for (const [name, ...wanted] of ROWS) {
  t.test(name, async (t) => {
    const found = discover(fixture(name))
    const values = [
      found.distribution.value,
      found.cni?.value.name,
      found.kubeProxy?.value.mode,
      found.podCIDRs?.value.join(' '),
      found.serviceCIDRs?.value.join(' '),
    ].map((value) => value ?? '-')
    t.same(values, wanted)
    t.same(found.obstacles, [])
  })
}

t.test('OpenShift SDN, whose last release has a Kubernetes that is too old', async (t) => {
  const found = discover(fixture('openshift-sdn'))
  t.same([found.distribution.value, found.cni?.value.name], ['openshift', 'openshift-sdn'])
  t.same([found.podCIDRs?.value, found.serviceCIDRs?.value], [['10.128.0.0/14'], ['172.30.0.0/16']])
  t.match(found.obstacles, [/^Kubernetes v1\.29\.14\+7cf4c05 is too old/])
})

t.test('the same answers with less to read', async (t) => {
  const noServiceCidr = discover(without('kubeadm-flannel', ({ kind }) => kind === 'ServiceCIDR')).serviceCIDRs
  t.equal(noServiceCidr?.how, 'Pod kube-system/kube-apiserver-cp-1 --service-cluster-ip-range')
  const noPods = discover(
    without('kubeadm-flannel', ({ kind }) => kind === 'ServiceCIDR' || kind === 'Pod'),
  ).serviceCIDRs
  t.equal(noPods?.how, 'ConfigMap kube-system/kubeadm-config ClusterConfiguration networking.serviceSubnet')
  t.equal(noPods?.confidence, 'likely')
  const noFlag = discover(without('gke', ({ kind }) => kind === 'GKENetworkParamSet')).podCIDRs
  t.same(noFlag?.value, ['10.4.0.0/14'])
  t.equal(noFlag?.how, 'Pod kube-system/kube-proxy-gke-prod-default-pool-2 --cluster-cidr')
  const noPool = discover(without('kubeadm-calico-operator', ({ kind }) => kind === 'IPPool')).podCIDRs
  t.equal(noPool?.how, 'Installation default spec.calicoNetwork.ipPools')
})

t.test('who contradicts whom', async (t) => {
  const flannel = fixture('kubeadm-flannel')
  const kubeadm = configMap('kubeadm-config', { ClusterConfiguration: 'networking: {podSubnet: 10.99.0.0/16}' })
  const rest = without('kubeadm-flannel', ({ metadata }) => metadata['name'] === 'kubeadm-config').objects
  t.same(discover({ ...flannel, objects: [...rest, kubeadm] }).warnings, [
    'pod CIDRs: ConfigMap kube-system/kubeadm-config ClusterConfiguration networking.podSubnet has 10.99.0.0/16, but ConfigMap kube-flannel/kube-flannel-cfg net-conf.json Network has 10.244.0.0/16, which takes precedence',
  ])
  const probed = { ...flannel, serviceProbes: ['The range of valid IPs is 10.97.0.0/16'] }
  t.match(discover(probed).warnings, [], 'a part of the other is no contradiction')
  const elsewhere = { ...flannel, serviceProbes: ['The range of valid IPs is 172.20.0.0/16'] }
  t.match(
    discover(elsewhere).warnings.join(),
    /ServiceCIDR kubernetes spec.cidrs has 10.96.0.0\/12, which takes precedence/,
  )
  const two = {
    ...flannel,
    objects: [...flannel.objects, ...fixture('kind').objects.filter((o) => (o as Raw)['kind'] === 'DaemonSet')],
  }
  t.same(
    discover(two).warnings.filter((text) => text.startsWith('CNI')),
    ['CNI: DaemonSet kube-flannel/kube-flannel-ds shows flannel, but DaemonSet kube-system/kindnet shows kindnet'],
  )
})

t.test('networks that collide', async (t) => {
  const text = 'networking: {podSubnet: 244.10.0.0/16, serviceSubnet: 244.10.128.0/20}'
  t.same(discover(withObjects(configMap('kubeadm-config', { ClusterConfiguration: text }))).warnings, [
    'pod CIDR 244.10.0.0/16 overlaps service CIDR 244.10.128.0/20',
    '244.10.0.0/16 overlaps 244.0.0.0/8, which Sealane uses itself',
    '244.10.128.0/20 overlaps 244.0.0.0/8, which Sealane uses itself',
  ])
})

t.test('pods in class E: each of our ranges is warned of, and the rest of class E is not', async (t) => {
  const pods = { '240': [], '246': ['246.10.0.0/16 overlaps 246.0.0.0/8, which Sealane uses itself'] }
  for (const [name, warnings] of Object.entries(pods)) {
    const found = discover(fixture(`gke-class-e-${name}`))
    t.same(found.podCIDRs?.value, [`${name}.10.0.0/16`])
    t.same(found.warnings, warnings)
  }
  const rows: readonly (readonly [pods: string, services: string, ...ranges: string[]])[] = [
    ['240.0.0.0/8', '241.0.0.0/20'],
    ['243.255.0.0/16', '247.0.0.0/16'],
    ['244.255.255.0/24', '245.1.0.0/20', '244.0.0.0/8'],
    ['245.1.0.0/16', '245.0.255.0/24', '245.0.0.0/16'],
    ['10.0.0.0/16', '246.255.0.0/20', '246.0.0.0/8'],
    ['240.0.0.0/4', '10.96.0.0/16', '244.0.0.0/8', '245.0.0.0/16', '246.0.0.0/8'],
    ['fd00::/56', 'fd53:ea1a:4e00::/108', 'fd53:ea1a:4e00::/96'],
  ]
  for (const [podSubnet, serviceSubnet, ...ranges] of rows) {
    const text = `networking: {podSubnet: "${podSubnet}", serviceSubnet: "${serviceSubnet}"}`
    const { warnings } = discover(withObjects(configMap('kubeadm-config', { ClusterConfiguration: text })))
    const said = warnings.map((warning) => /overlaps (\S+), which Sealane uses itself/.exec(warning)?.[1])
    t.same(said, ranges, text)
  }
})

t.test('nodes in ranges of ours', async (t) => {
  const node = (name: string, ...addresses: string[]): Raw => ({
    ...nodeObject(name, { status: { addresses: addresses.map((address) => ({ type: 'InternalIP', address })) } }),
  })
  const warned = (...nodes: Raw[]): readonly string[] =>
    discover(withObjects(...nodes)).warnings.filter((text) => text.includes('Sealane uses itself'))
  t.same(warned(node('a', '240.1.2.3'), node('b', 'somewhere'), node('c')), [])
  t.same(warned(node('a', '246.1.2.3', 'fd53:ea1a:4e00::1')), [
    'nodes have addresses in 246.0.0.0/8, which Sealane uses itself: a 246.1.2.3',
    'nodes have addresses in fd53:ea1a:4e00::/96, which Sealane uses itself: a fd53:ea1a:4e00::1',
  ])
  const many = Array.from({ length: 5 }, (_, i) => node(`n${i}`, `245.0.0.${i}`))
  t.same(warned(...many), [
    'nodes have addresses in 245.0.0.0/16, which Sealane uses itself: n0 245.0.0.0, n1 245.0.0.1, n2 245.0.0.2 and 2 more',
  ])
})

t.test('networks of both families', async (t) => {
  const node = (name: string, podCIDRs: string[]): Raw => ({ ...nodeObject(name, { spec: { podCIDRs } }) })
  const nodes = [node('n1', ['fd00:10:244::/64', '10.244.0.0/24']), node('n2', ['10.244.1.0/24', 'fd00:10:244:1::/64'])]
  const byNodes = discover(withObjects(...nodes))
  t.same(byNodes.podCIDRs?.value, ['10.244.0.0/23', 'fd00:10:244::/63'])
  t.same(byNodes.asks[0]?.suggestion, ['10.244.0.0/23', 'fd00:10:244::/63'])
  const text =
    'networking: {podSubnet: "fd53:ea1a:4e00::/56,10.244.0.0/16", serviceSubnet: "10.96.0.0/16,fd00:10:96::/112"}'
  const byKubeadm = discover(withObjects(...nodes, configMap('kubeadm-config', { ClusterConfiguration: text })))
  t.same(byKubeadm.podCIDRs?.value, ['fd53:ea1a:4e00::/56', '10.244.0.0/16'], 'in its own order')
  t.same(byKubeadm.serviceCIDRs?.value, ['10.96.0.0/16', 'fd00:10:96::/112'])
  t.ok(byKubeadm.warnings.includes('fd53:ea1a:4e00::/56 overlaps fd53:ea1a:4e00::/96, which Sealane uses itself'))
})

t.test('what a tenant made is not believed', async (t) => {
  const daemonSet = { apiVersion: 'apps/v1', kind: 'DaemonSet', metadata: { name: 'calico-node', namespace: 'team-a' } }
  t.equal(discover(withObjects(daemonSet)).cni, undefined)
})

t.test('nothing is known: everything is asked', async (t) => {
  const found = discover(EMPTY)
  t.same(found.asks, [
    { field: 'podCIDRs', why: 'the pod CIDRs could not be detected', suggestion: [] },
    { field: 'serviceCIDRs', why: 'the service CIDRs could not be detected', suggestion: [] },
    { field: 'gateways', why: 'the cluster has no Node', suggestion: [] },
  ])
  t.equal(found.distribution.value, 'unknown')
  t.equal(found.dns.domain.value, 'cluster.local')
})

t.test('a guess is asked about, with a suggestion', async (t) => {
  const [ask] = discover(fixture('eks-vpc-cni')).asks
  t.equal(ask?.field, 'podCIDRs')
  t.same(ask?.suggestion, ['10.20.0.0/16'])
})

t.test('what may not be read is told', async (t) => {
  const unread = [
    { what: 'ConfigMap kube-system/kubeadm-config', why: 'not allowed', weaker: ['pod CIDRs', 'service CIDRs'] },
    { what: 'Nodes', why: 'not allowed', weaker: ['gateways'] },
    { what: 'IPPools', why: 'the server is on fire', weaker: [] },
  ]
  const found = discover({ ...EMPTY, unread })
  t.same(found.warnings, [
    'not allowed to read ConfigMap kube-system/kubeadm-config: detection of pod CIDRs, service CIDRs is less reliable',
    'not allowed to read Nodes: detection of gateways is less reliable',
    'cannot read IPPools',
  ])
  t.same(found.obstacles, ['Nodes cannot be read: expected a user who may list Nodes, such as one with cluster-admin'])
})

t.test('too old a Kubernetes', async (t) => {
  const reported = (version: unknown): readonly string[] => discover({ ...EMPTY, version }).obstacles
  t.same(reported({ gitVersion: 'v1.30.14-eks-1' }), [
    'Kubernetes v1.30.14-eks-1 is too old: expected 1.31 or newer (CRDs can check addresses and networks since 1.31)',
  ])
  t.same(reported({ gitVersion: 'v1.31.0' }), [])
  t.same(reported({ major: '1', minor: '33+' }), [])
  t.equal(reported({ major: '1', minor: '20+' }).length, 1)
  t.same(reported('gibberish'), [], 'not known is not too old')
})

t.test('what an earlier join left', async (t) => {
  const membership = (phase: string): Raw => ({
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Membership',
    metadata: { name: 'self' },
    spec: { clusterId: 'milano', phase },
  })
  const namespace = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'sealane-system' } }
  const part = (kind: string, name: string): Raw => ({ kind, metadata: { name, namespace: 'sealane-system' } })
  const whole = [
    namespace,
    part('ConfigMap', 'sealane-site'),
    part('DaemonSet', 'sealane-gateway'),
    part('DaemonSet', 'sealane-routeagent'),
    part('Deployment', 'sealane-agent'),
    part('Deployment', 'sealane-dns'),
  ]
  t.equal(discover(EMPTY).earlier.state, 'none')
  t.match(discover(withObjects(namespace)).earlier, {
    state: 'partial',
    missing: ['Membership', 'ConfigMap sealane-system/sealane-site'],
  })
  t.match(discover(withObjects(...whole, membership('joined'))).earlier, {
    state: 'member',
    clusterId: 'milano',
    missing: [],
  })
  t.match(discover(withObjects(namespace, membership('leaving'))).earlier, { state: 'leaving', clusterId: 'milano' })
})

t.test('what an earlier join was told is not asked again', async (t) => {
  const site = (spec: object): Raw =>
    configMap('sealane-site', { 'site.yaml': JSON.stringify({ kind: 'Site', spec }) }, 'sealane-system')
  const reported = {
    podCIDRs: ['10.7.0.0/16', 'fd07::/56'],
    serviceCIDRs: ['10.8.0.0/16'],
    labels: { region: 'eu', n: 1 },
  }
  const how = 'the earlier join (ConfigMap sealane-system/sealane-site site.yaml)'
  const bare = discover(EMPTY)
  t.same(
    bare.asks.map(({ field }) => field),
    ['podCIDRs', 'serviceCIDRs', 'gateways'],
  )
  const again = discover(withObjects(site(reported)))
  t.same(
    again.asks.map(({ field }) => field),
    ['gateways'],
  )
  t.same(again.podCIDRs, { about: 'podCIDRs', value: ['10.7.0.0/16', 'fd07::/56'], confidence: 'certain', how })
  t.same(again.serviceCIDRs?.value, ['10.8.0.0/16'])
  t.same(again.earlier.labels, { region: 'eu' })
  t.same(bare.earlier.labels, {})

  const snapshot = fixture('kubeadm-flannel')
  const flannel = discover({ ...snapshot, objects: [...snapshot.objects, site(reported)] })
  const alone = discover(snapshot)
  t.equal(alone.serviceCIDRs?.confidence, 'certain')
  t.same(flannel.serviceCIDRs?.value, ['10.8.0.0/16'], 'a cluster that has grown states it when it is told to')
  t.ok(
    flannel.warnings.includes(
      `service CIDRs: ${alone.serviceCIDRs?.how ?? ''} has 10.96.0.0/12, but ${how} has 10.8.0.0/16, which takes precedence`,
    ),
    flannel.warnings.join(' | '),
  )
  const own = (name: string): Raw => ({
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Cluster',
    metadata: { name },
    spec: reported,
  })
  const joined: Raw = {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Membership',
    metadata: { name: 'self' },
    spec: { clusterId: 'milano', phase: 'joined' },
  }
  const left = discover(withObjects(joined, own('milano'), own('paris')))
  t.same(left.podCIDRs?.value, reported.podCIDRs, 'the namespace is gone, the own Cluster is not')
  t.equal(left.podCIDRs?.how, 'the earlier join (Cluster milano)')
  t.same(left.earlier.labels, { region: 'eu' })
  t.same(
    discover(withObjects(own('milano'))).podCIDRs,
    undefined,
    'without a Membership nobody knows which is the own one',
  )

  for (const text of ['', '[', 'spec: 7', '{"spec": {"podCIDRs": "10.0.0.0/8", "labels": []}}']) {
    const odd = discover(withObjects(configMap('sealane-site', { 'site.yaml': text }, 'sealane-system')))
    t.same([odd.asks, odd.earlier.labels], [bare.asks, {}], text)
  }
})

t.test('no gateway is asked for where a node is labelled, though it is cordoned', async (t) => {
  const node = (name: string, labels: Readonly<Record<string, string>>): Raw => ({
    ...nodeObject(name, { metadata: { labels: { 'kubernetes.io/os': 'linux', ...labels } } }),
    spec: { unschedulable: true },
  })
  const asked = (...nodes: Raw[]): boolean =>
    discover(withObjects(...nodes)).asks.some(({ field }) => field === 'gateways')
  t.equal(asked(node('a', {}), node('b', {})), true)
  t.equal(asked(node('a', {}), node('b', { 'sealane.io/gateway': '0' })), false)
})
