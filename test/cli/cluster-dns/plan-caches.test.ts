/** Caches in front of the cluster's DNS are found by what they are, and forward the zone too. */
import fc from 'fast-check'
import t from 'tap'
import { applyClusterDns, readClusterDns } from '../../../cli/cluster-dns/apply-cluster-dns.ts'
import { parseCorefile } from '../../../model/cluster-dns/parse-corefile.ts'
import { findDnsCaches } from '../../../cli/cluster-dns/dns-caches.ts'
import {
  type ClusterDnsFlavour,
  type ClusterDnsPlan,
  type DnsObject,
  findObject,
  reasonOf,
} from '../../../cli/cluster-dns/dns-change.ts'
import { planClusterDns, planClusterDnsRemoval } from '../../../cli/cluster-dns/plan-cluster-dns.ts'
import { ClusterApiError } from '../../../kubeapi/cluster-api.ts'
import { refOf, titleOf } from '../../../kubeapi/kube/kinds.ts'
import { ciliumRedirect, daemonSet, dnsmasq, inNamespace, kubespray, nodeLocal, ownCoreDns } from './cache-objects.ts'
import { AKS, K3S, KUBEADM, NODE_LOCAL, RKE2, SUBMARINER, arbitraryCorefile } from '../../support/corefiles.ts'
import { chartConfig, configMap, openshiftDns } from './objects.ts'

const OPTIONS = { domain: 'clusterset.local', forwardTo: '10.43.0.99' }
const { signal } = new AbortController()

/** Each kind of cluster DNS, and the object that its own change is in. */
const FLAVOURS: readonly (readonly [string, ClusterDnsFlavour, readonly DnsObject[], string | undefined])[] = [
  ['kubeadm', 'coredns', [configMap('coredns', { Corefile: KUBEADM })], 'ConfigMap kube-system/coredns'],
  ['*.server', 'coredns', [configMap('coredns', { Corefile: AKS })], 'ConfigMap kube-system/coredns-custom'],
  ['k3s', 'k3s', [configMap('coredns', { Corefile: K3S })], 'ConfigMap kube-system/coredns-custom'],
  [
    'AKS',
    'aks',
    [configMap('coredns', { Corefile: AKS }), configMap('coredns-custom', { 'log.override': 'log' })],
    'ConfigMap kube-system/coredns-custom',
  ],
  [
    'RKE2',
    'rke2',
    [configMap('rke2-coredns-rke2-coredns', { Corefile: RKE2 }), chartConfig('replicas: 3\n')],
    'HelmChartConfig kube-system/rke2-coredns',
  ],
  ['OpenShift', 'openshift', [openshiftDns({})], 'DNS default'],
  [
    'kube-dns',
    'kube-dns',
    [configMap('kube-dns', { upstreamNameservers: '["10.0.0.1"]' })],
    'ConfigMap kube-system/kube-dns',
  ],
  ['unknown', 'unknown', [], undefined],
]

/** Each shape of cache, and the ConfigMaps that must get the block. */
const CACHES: readonly (readonly [string, readonly DnsObject[], readonly string[]])[] = [
  ['NodeLocal DNSCache', nodeLocal(), ['kube-system/node-local-dns']],
  [
    'another namespace and name',
    nodeLocal({ name: 'ndc', namespace: 'dns', map: 'ndc-config', labels: {} }),
    ['dns/ndc-config'],
  ],
  ['a key of any name', nodeLocal({ name: 'ndc', keys: { 'base.conf': NODE_LOCAL } }), ['kube-system/ndc']],
  ['Kubespray', kubespray(), ['kube-system/nodelocaldns']],
  ['a CoreDNS of their own', ownCoreDns(), ['infra/resolver-settings']],
  ['Cilium LocalRedirectPolicy', ciliumRedirect(), ['kube-system/edge']],
  ['a ConfigMap alone', [configMap('nodelocaldns', { Corefile: NODE_LOCAL })], ['kube-system/nodelocaldns']],
  [
    'two at once',
    [...nodeLocal({ name: 'a', namespace: 'a', labels: {} }), ...ownCoreDns({ namespace: 'b' })],
    ['a/a', 'b/resolver-settings'],
  ],
]

/** These have tests of their own: the chart of RKE2 has the usual names, and node-cache takes stub domains. */
const SKIPPED: Readonly<Partial<Record<ClusterDnsFlavour, readonly string[]>>> = {
  rke2: ['NodeLocal DNSCache', 'Kubespray', 'a ConfigMap alone'],
  'kube-dns': ['NodeLocal DNSCache', 'a key of any name'],
}

function apply(present: readonly DnsObject[], plan: ClusterDnsPlan): readonly DnsObject[] {
  return plan.changes.reduce<readonly DnsObject[]>((objects, { object, after }) => {
    const left = objects.filter((each) => each !== findObject(objects, object))
    return after === undefined ? left : [...left, after]
  }, present)
}

const sorted = (objects: readonly DnsObject[]): string[] =>
  objects.map((object) => `${titleOf(refOf(object))} ${JSON.stringify(object)}`).sort()
const changed = (plan: ClusterDnsPlan): string[] => plan.changes.map(({ object }) => titleOf(object)).sort()
const reasons = (plan: ClusterDnsPlan): string[] => plan.problems.map(reasonOf)

t.test('each flavour with each cache: both forward the zone, and both are as before afterwards', async (t) => {
  for (const [title, flavour, main, own] of FLAVOURS) {
    for (const [shape, cache, maps] of CACHES) {
      if (SKIPPED[flavour]?.includes(shape) === true) continue
      const name = `${title}, ${shape}`
      const present = [...main, ...cache]
      const plan = planClusterDns(flavour, present, OPTIONS)
      const wanted = [...maps.map((map) => `ConfigMap ${map}`), ...(own === undefined ? [] : [own])]
      t.same(changed(plan), wanted.sort(), name)
      t.same(reasons(plan), own === undefined ? ['ClusterDnsOutOfReach'] : [], name)
      const after = apply(present, plan)
      for (const map of maps) {
        const [namespace, of = ''] = map.split('/')
        const data = findObject(after, { apiVersion: 'v1', kind: 'ConfigMap', name: of, namespace })?.data ?? {}
        for (const [key, text] of Object.entries(data)) t.match(text, 'forward . 10.43.0.99', `${name}: ${map} ${key}`)
      }
      t.same(planClusterDns(flavour, after, OPTIONS).changes, [], `${name}: again`)
      const back = apply(after, planClusterDnsRemoval(flavour, after))
      t.same(sorted(back), sorted(present), `${name}: taken out`)
    }
  }
})

t.test('the block listens where the cache does', async (t) => {
  const present = [configMap('coredns', { Corefile: K3S }), ...kubespray()]
  const [, map] = planClusterDns('k3s', present, OPTIONS).changes
  t.equal(map?.edit.field, 'data.Corefile, data.Corefile-second', 'one change of one ConfigMap')
  t.match(map?.after?.data?.['Corefile'], /clusterset.local:53 \{\n {4}bind 169.254.20.10 10.43.0.10\n/)
  t.match(map?.after?.data?.['Corefile-second'], /clusterset.local:53 \{\n {4}bind 169.254.25.11 10.43.0.10\n/)
})

t.test('a file that does not follow its ConfigMap, and one without the plugin reload, are restarted', async (t) => {
  const [workload, map] = ownCoreDns()
  const container = {
    image: 'coredns/coredns',
    args: ['-conf', '/etc/Corefile'],
    volumeMounts: [{ name: 'config-volume', mountPath: '/etc/Corefile', subPath: 'dns.conf' }],
  }
  const volumes = [{ name: 'config-volume', projected: { sources: [{ configMap: { name: 'resolver-settings' } }] } }]
  const pinned = daemonSet('resolver', container, { namespace: 'infra', volumes })
  const still = { ...map!, data: { 'dns.conf': NODE_LOCAL.replaceAll('    reload\n', '') } }
  for (const cache of [
    [pinned, map!],
    [workload!, still],
  ]) {
    const plan = planClusterDns('openshift', [openshiftDns({}), ...cache], OPTIONS)
    t.match(plan.changes.at(-1)?.effect, { how: 'restart', workload: { kind: 'DaemonSet', name: 'resolver' } })
  }
})

t.test('what cannot be changed is a problem of its own, and the rest is done', async (t) => {
  const main = configMap('coredns', { Corefile: K3S })
  const [workload, map] = nodeLocal({ name: 'ndc' })
  const hidden = daemonSet('ndc', { image: 'corp/node-local-dns:1', args: ['-conf', '/etc/Corefile'] })
  const node: DnsObject = {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name: 'aks-1', labels: { 'kubernetes.azure.com/localdns-state': 'enabled' } },
  }
  const rows: [string, readonly DnsObject[], string, RegExp, RegExp][] = [
    [
      'dnsmasq',
      dnsmasq(),
      'DnsCacheNotCoreDNS',
      /^DaemonSet net\/dns-accelerator .* not CoreDNS/,
      /--server=\/clusters/,
    ],
    ['no ConfigMap', [hidden], 'DnsCacheUnreadable', /in no ConfigMap that it mounts/, /by hand/],
    [
      'a ConfigMap that is not there',
      [workload!],
      'DnsCacheUnreadable',
      /ndc does not exist or cannot be read/,
      /by hand/,
    ],
    ['immutable', [workload!, { ...map!, immutable: true }], 'DnsCacheOutOfReach', /ndc is immutable/, /comes from/],
    ['AKS LocalDNS', [node], 'DnsCacheOutOfReach', /Node aks-1/, /kubeDNSOverrides/],
  ]
  for (const [title, cache, reason, message, advice] of rows) {
    const plan = planClusterDns('k3s', [main, ...cache], OPTIONS)
    t.same(reasons(plan), [reason], title)
    t.match(plan.problems, [{ kind: 'cache', message, advice: [advice] }], title)
    t.same(changed(plan), ['ConfigMap kube-system/coredns-custom'], `${title}: the rest`)
  }
})

t.test('a cache in which something else answers the zone stops the whole plan', async (t) => {
  const main = configMap('coredns', { Corefile: K3S })
  const plan = planClusterDns('k3s', [main, ...nodeLocal({ corefile: SUBMARINER })], OPTIONS)
  t.same([reasons(plan), plan.changes], [['ClusterDnsTaken'], []])
})

t.test('a cache whose Corefile cannot be read does not keep the rest from being done', async (t) => {
  const main = configMap('coredns', { Corefile: K3S })
  const [, map] = nodeLocal({ corefile: 'example.org {\n}\n' })
  const rows: readonly (readonly DnsObject[])[] = [
    ...['.:53 {\n errors\n', 'example.org {\n}\n', '.:53 {\n import /etc/base\n}\n'].map((corefile) =>
      nodeLocal({ corefile }),
    ),
    [map!],
    nodeLocal({ name: 'ndc', keys: { other: 'text' } }),
  ]
  for (const cache of rows) {
    const plan = planClusterDns('k3s', [main, ...cache], OPTIONS)
    t.same(reasons(plan), ['DnsCacheUnreadable'])
    t.match(plan.problems, [{ kind: 'cache', message: /^DaemonSet kube-system\/\S+ is a cache .*: / }])
    t.same(changed(plan), ['ConfigMap kube-system/coredns-custom'])
  }
})

t.test('stub domains of kube-dns reach node-cache by themselves', async (t) => {
  const cache = nodeLocal()
  const plan = planClusterDns('kube-dns', cache, OPTIONS)
  t.same([changed(plan), reasons(plan)], [['ConfigMap kube-system/kube-dns'], []], 'a second block would stop it')
  const stub = (domains: string): DnsObject => configMap('kube-dns', { stubDomains: domains })
  const taken = [configMap('coredns', { Corefile: KUBEADM }), ...cache, stub('{"clusterset.local":["10.0.0.1"]}')]
  t.same(reasons(planClusterDns('coredns', taken, OPTIONS)), ['ClusterDnsTaken'])
  const free = [configMap('coredns', { Corefile: KUBEADM }), ...cache, stub('{"corp.example":["10.0.0.1"]}')]
  t.same(changed(planClusterDns('coredns', free, OPTIONS)).length, 2)
})

t.test('GKE’s addon manager puts back what it has; elsewhere its label means nothing', async (t) => {
  const [workload, map] = ownCoreDns()
  const kept = { ...map!, metadata: { ...map!.metadata, labels: { 'addonmanager.kubernetes.io/mode': 'Reconcile' } } }
  t.same(reasons(planClusterDns('kube-dns', [workload!, kept], OPTIONS)), ['DnsCacheOutOfReach'])
  const plan = planClusterDns('coredns', [configMap('coredns', { Corefile: KUBEADM }), workload!, kept], OPTIONS)
  t.match(plan.notes, [/also written by the addon manager/])
  t.same(changed(plan), ['ConfigMap infra/resolver-settings', 'ConfigMap kube-system/coredns'])
})

t.test('a cache that imports additions gets an addition, and never two blocks', async (t) => {
  const importing = `${NODE_LOCAL}import /etc/custom/*.server\n`
  const cacheOf = (custom: string): readonly DnsObject[] => {
    const container = {
      image: 'k8s-dns-node-cache',
      args: ['-localip', '169.254.20.10', '-conf', '/etc/coredns/Corefile'],
      volumeMounts: [
        { name: 'a', mountPath: '/etc/coredns' },
        { name: 'b', mountPath: '/etc/custom' },
      ],
    }
    const volumes = [
      { name: 'a', configMap: { name: 'cache' } },
      { name: 'b', configMap: { name: custom, optional: true } },
    ]
    return [daemonSet('cache', container, { volumes }), configMap('cache', { Corefile: importing })]
  }
  const main = configMap('coredns', { Corefile: K3S })
  const plan = planClusterDns('k3s', [main, ...cacheOf('cache-custom')], OPTIONS)
  t.same(changed(plan), ['ConfigMap kube-system/cache-custom', 'ConfigMap kube-system/coredns-custom'])
  t.match(plan.changes.at(-1)?.after?.data?.['sealane.server'], /bind 169.254.20.10 10.43.0.10/)
  const present = [main, ...cacheOf('cache-custom')]
  const after = apply(present, plan)
  t.same(sorted(apply(after, planClusterDnsRemoval('k3s', after))), sorted(present))
  const shared = planClusterDns('k3s', [main, ...cacheOf('coredns-custom')], OPTIONS)
  t.same(changed(shared), ['ConfigMap kube-system/coredns-custom'], 'the cluster’s own additions are the cache’s too')
})

t.test('a CoreDNS on the network of the nodes with an address that no node has is a cache', async (t) => {
  const main = configMap('coredns', { Corefile: KUBEADM })
  const volumes = [{ name: 'config-volume', configMap: { name: 'dummy' } }]
  const container = {
    image: 'corp/coredns:1.12',
    args: ['-conf', '/etc/coredns/Corefile'],
    volumeMounts: [{ name: 'config-volume', mountPath: '/etc/coredns' }],
  }
  const at = (hostNetwork: boolean, labels: Readonly<Record<string, string>> = { app: 'dummy' }): DnsObject => {
    const base = daemonSet('dummy', container, { volumes, labels: labels as { 'k8s-app': string } })
    const { template } = base.spec as { template: { spec: object } }
    return { ...base, spec: { template: { ...template, spec: { ...template.spec, hostNetwork } } } }
  }
  const map = (bind: string): DnsObject =>
    withText(`.:53 {\n    bind ${bind}\n    forward cluster.local 10.43.0.10\n    forward . 10.0.0.1\n}\n`)
  const withText = (Corefile: string): DnsObject => configMap('dummy', { Corefile })
  const node = (address: string): DnsObject => ({
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name: `edge-${address}` },
    status: { addresses: [{ type: 'InternalIP', address }] },
  })
  const other = node('10.0.0.7')
  const edge = withText('.:53 {\n    bind 198.51.100.53\n    cache cluster.local\n    forward . 1.1.1.1\n}\n')
  const own = withText('prod.internal:53 {\n    bind 198.18.0.53\n    forward . 10.43.0.10\n}\n')
  const prod = configMap('coredns', { Corefile: KUBEADM.replaceAll('cluster.local', 'prod.internal') })
  const dummy = 'ConfigMap kube-system/dummy'
  const rows: readonly (readonly [string, readonly DnsObject[], boolean])[] = [
    ['a dummy device', [at(true), map('198.18.0.53'), other], true],
    ['another domain of the cluster', [at(true), own, other, prod], true],
    ['the domain of another cluster', [at(true), own, other], false],
    ['the address of a node', [at(true), map('198.18.0.53'), node('198.18.0.53')], false],
    ['in another notation', [at(true), map('FD00:0::53'), node('fd00::53'), other], false],
    ['nodes that cannot be read', [at(true), map('198.18.0.53')], false],
    ['a resolver for others', [at(true), edge, other], false],
    ['a text that is no Corefile', [at(true), withText('bind 198.18.0.53\ncluster.local'), other], false],
    ['loopback', [at(true), map('127.0.0.1 ::1'), other], false],
    ['a device by name', [at(true), map('eth0'), other], false],
    ['not on the network of the node', [at(false), map('198.18.0.53'), other], false],
    ["the cluster's own", [at(true, { 'k8s-app': 'kube-dns' }), map('198.18.0.53'), other], false],
  ]
  for (const [title, objects, isCache] of rows) {
    const found = findDnsCaches([...(objects.includes(prod) ? [] : [main]), ...objects])
    t.equal(found.length, isCache ? 1 : 0, title)
  }
  const stored = [main, at(true), edge, other]
  const client = {
    get: (ref: Parameters<typeof findObject>[1]) => Promise.resolve(findObject(stored, ref)),
    list: ({ kind }: { readonly kind: string }, labels?: string) =>
      Promise.resolve(labels === undefined ? stored.filter((one) => one.kind === kind) : []),
    replace: () => Promise.resolve(true),
  }
  const noted = planClusterDns('coredns', await readClusterDns(client, 'coredns', signal), OPTIONS)
  t.same(changed(noted), ['ConfigMap kube-system/coredns'], 'it stays as it is')
  t.match(noted.notes, [/DaemonSet kube-system\/dummy binds 198\.51\.100\.53, which no node has, but does not name/])
  const plan = planClusterDns('coredns', [main, at(true), map('198.18.0.53'), other], OPTIONS)
  t.same(changed(plan), ['ConfigMap kube-system/coredns', dummy].sort())
  t.match(
    plan.changes.map(({ after }) => after?.data?.['Corefile'] ?? '').join(''),
    /    bind 198\.18\.0\.53\n    errors/,
  )
})

t.test('what is no cache is left alone', async (t) => {
  const main = configMap('coredns', { Corefile: KUBEADM })
  const mounts = { volumeMounts: [{ name: 'config-volume', mountPath: '/etc/coredns' }] }
  const volumes = [{ name: 'config-volume', configMap: { name: 'edge' } }]
  const edge = configMap('edge', { Corefile: '.:53 {\n    forward . 10.0.0.1\n}\n' })
  const rows: [string, DnsObject][] = [
    ['a DNS server of no pods', daemonSet('edge', { image: 'coredns/coredns:1', ...mounts }, { volumes })],
    [
      'metadata proxy',
      daemonSet('edge', { image: 'corp/metadata', args: ['--listen=169.254.169.254:80'] }, { volumes }),
    ],
    [
      'an agent',
      daemonSet('edge', { image: 'cilium/cilium:v1.17', args: ['--config-dir=/tmp'], ...mounts }, { volumes }),
    ],
    [
      'nothing in it',
      { apiVersion: 'apps/v1', kind: 'DaemonSet', metadata: { name: 'edge', namespace: 'kube-system' } },
    ],
    ['hostile', daemonSet('edge', { image: ':@/', args: ['-conf'], command: [''] }, { volumes: [{}] })],
  ]
  for (const [title, workload] of rows) {
    const plan = planClusterDns('coredns', [main, workload, edge], OPTIONS)
    t.same([changed(plan), reasons(plan)], [['ConfigMap kube-system/coredns'], []], title)
  }
})

/** A client that lists, and refuses what the user may not read. */
function clientOf(objects: readonly DnsObject[], forbidden: RegExp = /^$/) {
  const store = new Map(objects.map((object) => [titleOf(refOf(object)), object]))
  const check = (title: string): void => {
    if (forbidden.test(title)) throw new ClusterApiError('Forbidden', `may not read ${title}`)
  }
  return {
    store,
    async get(ref: Parameters<typeof titleOf>[0]) {
      check(titleOf(ref))
      return store.get(titleOf(ref))
    },
    async list({ kind }: { readonly kind: string }, labels: string | undefined) {
      check(kind)
      const [key = '', value] = labels?.split('=') ?? []
      return [...store.values()].filter(
        (object) => object.kind === kind && (labels === undefined || object.metadata.labels?.[key] === value),
      )
    },
    async replace({
      object,
      after,
    }: {
      readonly object: Parameters<typeof titleOf>[0]
      readonly after: DnsObject | undefined
    }) {
      if (after === undefined) store.delete(titleOf(object))
      else store.set(titleOf(object), after)
      return true
    },
  }
}

t.test('the API server is asked for all DaemonSets, and for the ConfigMaps of caches alone', async (t) => {
  const other = [
    daemonSet('agent', { image: 'corp/agent' }, { volumes: [{ name: 'x', configMap: { name: 'secretive' } }] }),
  ]
  const cluster = [
    configMap('coredns', { Corefile: K3S }),
    ...nodeLocal({ name: 'ndc', namespace: 'dns' }),
    ...ciliumRedirect(),
    ...other,
    configMap('secretive', { a: 'b' }),
  ]
  const client = clientOf(cluster, /secretive/)
  const read = (await readClusterDns(client, 'k3s', signal)).map((object) => titleOf(refOf(object)))
  t.notOk(read.includes('DaemonSet kube-system/agent'))
  const plan = (present: readonly DnsObject[]): ClusterDnsPlan => planClusterDns('k3s', present, OPTIONS)
  const { plan: done } = await applyClusterDns(client, 'k3s', plan, signal)
  t.same(changed(done), ['ConfigMap dns/ndc', 'ConfigMap kube-system/coredns-custom', 'ConfigMap kube-system/edge'])
  t.match(client.store.get('ConfigMap dns/ndc')?.data?.['Corefile'], 'sealane begin')
})

t.test('a ConfigMap that the user may not read is said; a list that is refused leaves the usual names', async (t) => {
  const cluster = [
    configMap('coredns', { Corefile: K3S }),
    ...nodeLocal(),
    ...nodeLocal({ name: 'ndc', namespace: 'dns' }),
  ]
  const planned = async (forbidden: RegExp) =>
    planClusterDns('k3s', await readClusterDns(clientOf(cluster, forbidden), 'k3s', signal), OPTIONS)
  const some = await planned(/^ConfigMap dns\//)
  t.same(reasons(some), ['DnsCacheUnreadable'])
  t.same(changed(some), ['ConfigMap kube-system/coredns-custom', 'ConfigMap kube-system/node-local-dns'])
  const blind = await planned(/^DaemonSet$/)
  t.same(changed(blind), ['ConfigMap kube-system/coredns-custom', 'ConfigMap kube-system/node-local-dns'])
})

t.test('a problem of a cache is reported beside what was done', async (t) => {
  const client = clientOf([configMap('coredns', { Corefile: KUBEADM }), ...dnsmasq()])
  const plan = (present: readonly DnsObject[]): ClusterDnsPlan => planClusterDns('coredns', present, OPTIONS)
  const { plan: done } = await applyClusterDns(client, 'coredns', plan, signal)
  t.same(reasons(done), ['DnsCacheNotCoreDNS'])
  t.match(client.store.get('ConfigMap kube-system/coredns')?.data?.['Corefile'], 'sealane begin')
})

t.test('the chart’s cache in RKE2 is a problem that names the value; another one there gets the block', async (t) => {
  const main = [configMap('rke2-coredns-rke2-coredns', { Corefile: RKE2 }), chartConfig('replicas: 3\n')]
  const charted = planClusterDns('rke2', [...main, ...nodeLocal()], OPTIONS)
  t.same(changed(charted), ['HelmChartConfig kube-system/rke2-coredns'])
  t.same(reasons(charted), ['DnsCacheOutOfReach'])
  t.match(charted.problems[0]?.advice, [/nodelocal.extraClusterDomains/])
  const own = planClusterDns('rke2', [...main, ...nodeLocal({ name: 'ndc', namespace: 'dns' })], OPTIONS)
  t.same(changed(own), ['ConfigMap dns/ndc', 'HelmChartConfig kube-system/rke2-coredns'])
})

t.test(
  'any Corefile of a cache: a plan never throws, what it writes can be parsed, and going back gives it back',
  async () => {
    const text = fc.oneof(arbitraryCorefile, fc.string({ unit: 'binary' }), fc.constant(NODE_LOCAL))
    fc.assert(
      fc.property(text, fc.constantFrom('Corefile', 'a b', '__proto__x'), (corefile, key) => {
        const [workload, map] = nodeLocal({ name: 'ndc', namespace: 'dns', keys: { [key]: corefile } })
        const present = [configMap('coredns', { Corefile: K3S }), workload!, inNamespace(map!, 'dns')]
        const clean = apply(present, planClusterDnsRemoval('k3s', present))
        const plan = planClusterDns('k3s', clean, OPTIONS)
        const after = apply(clean, plan)
        for (const { after: written } of plan.changes) parseCorefile(Object.values(written?.data ?? {}).at(-1) ?? '')
        const back = apply(after, planClusterDnsRemoval('k3s', after))
        return (
          sorted(back).join() === sorted(clean).join() && (plan.changes.length === 2) === (plan.problems.length === 0)
        )
      }),
      { numRuns: 100 },
    )
  },
)
