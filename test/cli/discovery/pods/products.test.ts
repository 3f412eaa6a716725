/** A product is found once, wherever it is, and its settings are read there. */
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { advice } from '../../../../cli/discovery/advice/advice.ts'
import { discover } from '../../../../cli/discovery/discover.ts'
import { wantedSettings } from '../../../../cli/discovery/product.ts'
import { type ClusterSnapshot, openSnapshot } from '../../../../cli/discovery/snapshot.ts'
import { ROOT } from '../../../support/source-tree.ts'
import { fixture } from '../support/fixtures.ts'

type Raw = Record<string, unknown>

const EMPTY: ClusterSnapshot = { version: {}, objects: [], crds: [], serviceProbes: [], unread: [] }

function moved(snapshot: ClusterSnapshot, from: string, to: string, kinds: readonly string[]): ClusterSnapshot {
  const objects = (snapshot.objects as readonly Raw[]).map((one) => {
    const metadata = one['metadata'] as Raw
    const isMoved = metadata['namespace'] === from && kinds.includes(String(one['kind']))
    return isMoved ? { ...one, metadata: { ...metadata, namespace: to } } : one
  })
  return { ...snapshot, objects }
}

/** What a join decides by. */
function outcome(snapshot: ClusterSnapshot) {
  const found = discover(snapshot)
  return {
    cni: found.cni?.value.name,
    mode: found.cni?.value.mode,
    pods: found.podCIDRs?.value,
    proxy: found.kubeProxy?.value,
    dns: [found.dns.flavour.value, found.dns.domain.value],
    advice: advice(found).map(({ id, kind }) => `${kind} ${id}`),
  }
}

t.test('Cilium in a namespace of its own is what it is in kube-system', async (t) => {
  const own = fixture('openshift-cilium')
  const control = moved(own, 'cilium', 'kube-system', ['DaemonSet', 'ConfigMap'])
  for (const namespace of ['cilium-system', 'networking', 'a']) {
    t.same(outcome(moved(own, 'cilium', namespace, ['DaemonSet', 'ConfigMap'])), outcome(control), namespace)
  }
  t.same(outcome(own), outcome(control))
  const found = discover(own)
  t.same(found.kubeProxy?.value, { mode: 'none', insteadOf: 'Cilium' })
  const todo = advice(found).find(({ id }) => id === 'cilium-host-routing')
  t.equal(todo?.kind, 'instruction')
  t.same(
    todo?.commands.filter((command) => !command.includes('--namespace cilium ')),
    [],
  )
  t.match(found.cni?.how, /DaemonSet cilium\/cilium, ConfigMap cilium\/cilium-config/)
})

t.test('every other product too', async (t) => {
  const rows = [
    ['kubeadm-flannel', 'kube-flannel'],
    ['kubeadm-antrea', 'kube-system'],
    ['kubeadm-kube-router', 'kube-system'],
    ['kubeadm-weave', 'kube-system'],
    ['kubeadm-calico-vxlan', 'kube-system'],
    ['kubeadm-calico-operator', 'calico-system'],
    ['kubeadm-cilium', 'kube-system'],
    ['kind', 'kube-system'],
    ['openshift-ovn', 'openshift-ovn-kubernetes'],
    ['rke2-canal', 'kube-system'],
  ] as const
  for (const [name, namespace] of rows) {
    const snapshot = fixture(name)
    const maps = (snapshot.objects as readonly Raw[]).flatMap((one) => {
      const { name: map, namespace: at } = one['metadata'] as { name: string; namespace?: string }
      return one['kind'] === 'ConfigMap' && at === namespace ? [map] : []
    })
    const away = {
      ...snapshot,
      objects: (moved(snapshot, namespace, 'elsewhere', ['DaemonSet', 'ConfigMap']).objects as readonly Raw[]).map(
        (one) =>
          // kubeadm's own settings and those of the cluster DNS, which has no Deployment here, stay where they are.
          maps.some((map) => /kubeadm|coredns/.test(map) && (one['metadata'] as Raw)['name'] === map) &&
          one['kind'] === 'ConfigMap'
            ? { ...one, metadata: { ...(one['metadata'] as Raw), namespace } }
            : one,
      ),
    }
    t.same(outcome(away), outcome(snapshot), name)
  }
})

const container = (name: string, image?: string): Raw => ({
  template: { spec: { containers: [{ name, ...(image === undefined ? {} : { image }) }] } },
})

function workload(kind: string, namespace: string, name: string, spec: Raw, rest: Raw = {}): Raw {
  return { apiVersion: 'apps/v1', kind, metadata: { name, namespace }, spec, ...rest }
}

t.test('CoreDNS in a namespace of its own', async (t) => {
  const zone = { Corefile: '.:53 {\n  kubernetes corp.example\n}\n' }
  const map = (namespace: string, name: string): Raw => ({
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name, namespace },
    data: zone,
  })
  const service = (namespace: string, name: string): Raw => ({
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name, namespace },
    spec: { clusterIP: '10.96.0.10' },
  })
  const own = [
    workload('Deployment', 'dns', 'coredns', container('coredns')),
    map('dns', 'coredns'),
    service('dns', 'kube-dns'),
  ]
  const found = discover({ ...EMPTY, objects: own }).dns
  t.match(found.server, { kind: 'Deployment', namespace: 'dns', name: 'coredns' })
  t.match(found, { flavour: { value: 'coredns' }, address: { value: '10.96.0.10' }, domain: { value: 'corp.example' } })
  const spec = {
    template: { spec: { containers: [{ name: 'coredns' }], volumes: [{ configMap: { name: 'cluster-dns' } }] } },
  }
  const release = {
    ...workload('Deployment', 'dns', 'my-dns', spec),
    metadata: { name: 'my-dns', namespace: 'dns', labels: { 'k8s-app': 'kube-dns' } },
  }
  const helm = discover({ ...EMPTY, objects: [release, map('dns', 'cluster-dns'), service('dns', 'my-dns')] }).dns
  t.match(helm.server, { namespace: 'dns', name: 'my-dns' })
  t.match(helm, { flavour: { value: 'coredns' }, address: { value: '10.96.0.10' }, domain: { value: 'corp.example' } })
  const foreign = [workload('Deployment', 'team', 'my-dns', container('coredns')), map('team', 'coredns')]
  t.equal(discover({ ...EMPTY, objects: foreign }).dns.flavour.value, 'unknown', "a team's own server")
})

t.test('kube-proxy anywhere, with the ConfigMap that it mounts', async (t) => {
  const spec = {
    template: {
      spec: { containers: [{ name: 'kube-proxy' }], volumes: [{ name: 'c', configMap: { name: 'proxy-settings' } }] },
    },
  }
  const map = (namespace: string, mode: string): Raw => ({
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: 'proxy-settings', namespace },
    data: { 'config.conf': `mode: ${mode}\nclusterCIDR: 10.9.0.0/16\n` },
  })
  const objects = [
    workload('DaemonSet', 'proxies', 'kube-proxy', spec),
    map('proxies', 'ipvs'),
    map('other', 'nftables'),
  ]
  const found = discover({ ...EMPTY, objects })
  t.equal(found.kubeProxy?.value.mode, 'ipvs')
  t.same(found.podCIDRs?.value, ['10.9.0.0/16'])
})

t.test('of several, the one that runs on nodes counts, and a name alone proves nothing', async (t) => {
  const at = (namespace: string, scheduled: number): Raw =>
    workload('DaemonSet', namespace, 'cilium', container('cilium-agent'), {
      status: { desiredNumberScheduled: scheduled },
    })
  const where = (...objects: Raw[]): string | undefined => discover({ ...EMPTY, objects }).cni?.value.namespace
  t.equal(where(at('kube-system', 0), at('cilium', 3)), 'cilium')
  t.equal(where(at('networking', 3), at('kube-system', 3)), 'kube-system')
  t.equal(where(workload('DaemonSet', 'team', 'cilium', container('app', 'registry/app:1'))), undefined)
  t.equal(where(workload('DaemonSet', 'team', 'cilium', container('agent', 'quay.io/cilium/cilium:v1.18.2'))), 'team')
})

t.test('a product that is switched off beside one that runs is absent', async (t) => {
  const at = (name: string, part: string, scheduled: number, namespace = 'kube-system'): Raw =>
    workload('DaemonSet', namespace, name, container(part), { status: { desiredNumberScheduled: scheduled } })
  const found = (...objects: Raw[]) => {
    const { cni, kubeProxy, warnings } = discover({ ...EMPTY, objects })
    return [cni?.value.name, kubeProxy?.value.mode, warnings.filter((text) => /CNI|proxy/.test(text)).length]
  }
  const flannel = at('kube-flannel-ds', 'kube-flannel', 3, 'kube-flannel')
  t.strictSame(found(at('calico-node', 'calico-node', 0), flannel), ['flannel', undefined, 0])
  t.strictSame(
    found(at('calico-node', 'calico-node', 0)),
    ['calico', undefined, 0],
    'no product runs: no node is there',
  )
  const cilium = at('cilium', 'cilium-agent', 3)
  const settings: Raw = {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: 'cilium-config', namespace: 'kube-system' },
    data: { 'kube-proxy-replacement': 'true' },
  }
  const off = at('kube-proxy', 'kube-proxy', 0)
  t.strictSame(found(cilium, settings, off), found(cilium, settings), 'kube-proxy beside its replacement')
})

t.test('the settings to read: in the namespace of the product, and nowhere else', async (t) => {
  const wanted = wantedSettings(openSnapshot(fixture('openshift-cilium')))
  const maps = wanted.map(({ namespace, name }) => `${namespace}/${name}`)
  t.same(
    maps.filter((map) => map.endsWith('/cilium-config')),
    ['cilium/cilium-config'],
  )
  t.equal(new Set(maps).size, maps.length)
  const blind = wantedSettings(openSnapshot(EMPTY)).filter(({ name }) => name === 'cilium-config')
  t.same(
    blind.map((one) => [one.namespace, one.for.length > 0]),
    [
      ['kube-system', true],
      ['cilium', false],
      ['cilium-system', false],
    ],
    'DaemonSets may not be listed: the usual places, of which one is told',
  )
})

t.test('no detector names the namespace of a product: product.ts alone reads ConfigMaps and workloads', async (t) => {
  const folder = join(ROOT, 'cli', 'discovery')
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'))
  t.ok(files.length > 15)
  for (const file of files.filter((one) => one !== 'product.ts')) {
    const text = readFileSync(join(folder, file), 'utf8')
    // read-snapshot.ts lists the kinds. The kubelet puts static pods into kube-system.
    const code =
      file === 'read-snapshot.ts' ? text.replace(/kind: '(ConfigMap|DaemonSet|Deployment|Pod)'.*/g, '') : text
    t.notMatch(code, /(get|list)\(\s*'(ConfigMap|DaemonSet|Deployment)'/, file)
    t.notMatch(code, /'(kube-system|calico-system|kube-flannel|tigera-operator)['/]/, file)
  }
})
