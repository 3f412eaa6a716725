/** A join wires the cluster's DNS and its caches, keeps what it did, and gives the agent the right to mend that. */
import t from 'tap'
import { unwireClusterDns, wireClusterDns } from '../../../cli/cluster/wire-cluster-dns.ts'
import type { DnsObject } from '../../../cli/cluster-dns/dns-change.ts'
import type { DnsFlavour } from '../../../cli/discovery/evidence.ts'
import type { ManifestObject } from '../../../install/values/manifest.ts'
import { type ObjectRef, refOf, titleOf } from '../../../kubeapi/kube/kinds.ts'
import { readWiredDns } from '../../../model/cluster-dns/wired-dns.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { K3S, KUBEADM } from '../../support/corefiles.ts'
import { MemoryAdmin } from '../../support/memory-admin.ts'
import { dnsmasq, inNamespace, nodeLocal } from './cache-objects.ts'
import { configMap, coreDnsWorkload } from './objects.ts'

const MEMBERSHIP = { apiVersion: 'sealane.io/v1alpha1', kind: 'Membership', name: 'self' }
const ROLE = { apiVersion: 'rbac.authorization.k8s.io/v1', kind: 'Role', name: 'sealane-agent-cluster-dns' }

interface RunInit {
  readonly undo?: boolean
  readonly dryRun?: boolean
  readonly server?: ObjectRef
}

function world(...objects: readonly DnsObject[]) {
  const service = {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'sealane-dns', namespace: 'sealane-system' },
    spec: { clusterIP: '10.43.0.99' },
  }
  const membership = { ...MEMBERSHIP, metadata: { name: 'self' }, spec: { clusterId: 'paris', phase: 'joined' } }
  const admin = new MemoryAdmin([service, membership, ...(objects as readonly ManifestObject[])])
  let said = ''
  const run = async (flavour: DnsFlavour, { undo = false, dryRun = false, server }: RunInit = {}) => {
    const finding = { confidence: 'certain', how: 'given' } as const
    const discovery = {
      dns: {
        flavour: { value: flavour, ...finding },
        server,
        address: undefined,
        domain: { value: 'cluster.local', ...finding },
      },
      distribution: { value: 'unknown', ...finding } as const,
    }
    const init = {
      dryRun,
      clock: new FakeClock(),
      signal: new AbortController().signal,
      say: (text: string) => void (said += text),
    }
    return (undo ? unwireClusterDns : wireClusterDns)(admin, discovery, init)
  }
  const record = async () => readWiredDns((await admin.get(MEMBERSHIP))?.metadata.annotations)
  const role = async (namespace: string) => (await admin.get({ ...ROLE, namespace }))?.['rules']
  return { admin, run, record, role, said: () => said }
}

t.test('k3s with NodeLocal DNSCache: both forward the zone, and the agent may mend exactly these', async (t) => {
  const cache = nodeLocal({ name: 'ndc', namespace: 'dns' })
  const { admin, run, record, role, said } = world(configMap('coredns', { Corefile: K3S }), ...cache)
  t.same(await run('k3s'), { left: [] })
  const data = async (namespace: string, name: string) =>
    (await admin.get({ apiVersion: 'v1', kind: 'ConfigMap', namespace, name }))?.['data'] as Record<string, string>
  t.match((await data('kube-system', 'coredns-custom'))['sealane.server'], 'forward . 10.43.0.99')
  t.match((await data('dns', 'ndc'))['Corefile'], /bind 169.254.20.10 10.43.0.10\n[^]*forward . 10.43.0.99/)
  t.match(said(), /changed {3}ConfigMap dns\/ndc/)
  const wired = await record()
  t.same(
    wired?.maps.map(({ namespace, name, key, text }) => [namespace, name, key, text !== undefined]),
    [
      ['kube-system', 'coredns-custom', 'sealane.server', true],
      ['dns', 'ndc', 'Corefile', false],
    ],
  )
  t.match(await role('dns'), [{ verbs: ['get', 'update'], resourceNames: ['ndc'] }])
  t.match(await role('kube-system'), [{ resourceNames: ['coredns-custom'] }])
  const before = admin.done.length
  await run('k3s')
  t.same(
    admin.done.slice(before).filter((line) => !/^apply Role/.test(line)),
    [],
    'a second join changes nothing',
  )

  t.same(await run('k3s', { undo: true }), { left: [] })
  t.equal(await role('dns'), undefined)
  t.equal(await data('kube-system', 'coredns-custom'), undefined)
  t.notMatch((await data('dns', 'ndc'))['Corefile'], 'sealane')
})

t.test('a cache that cannot be changed is said with its reason, and is kept for the agent', async (t) => {
  const { run, record } = world(configMap('coredns', { Corefile: KUBEADM }), ...dnsmasq())
  const { left } = await run('coredns')
  t.match(left, [
    /^DaemonSet net\/dns-accelerator is a cache .* \(DnsCacheNotCoreDNS\)$/,
    /^Make it forward clusterset/,
  ])
  const wired = await record()
  t.match(wired?.problems, [{ reason: 'DnsCacheNotCoreDNS' }])
  t.match(wired?.maps, [{ name: 'coredns', key: 'Corefile' }])
})

t.test('a dry run writes nothing, and a cluster without anything to wire gets no Role and no record', async (t) => {
  const dry = world(configMap('coredns', { Corefile: KUBEADM }))
  await dry.run('coredns', { dryRun: true })
  t.same(dry.admin.done, [])
  const none = world()
  const { left } = await none.run('unknown')
  t.match(left[0], /does not know the DNS server of this cluster \(ClusterDnsOutOfReach\)/)
  t.same(none.admin.done, [])
  t.equal(await none.record(), undefined)
})

t.test('what is no longer wired loses its Role', async (t) => {
  const cache = nodeLocal({ name: 'ndc', namespace: 'dns' })
  const { admin, run, role } = world(configMap('coredns', { Corefile: KUBEADM }), ...cache)
  await run('coredns')
  t.ok(await role('dns'))
  for (const object of cache) await admin.remove(refOf(object))
  await run('coredns')
  t.equal(await role('dns'), undefined)
  t.ok(await role('kube-system'))
  t.same(
    (await admin.list(ROLE.apiVersion, 'RoleBinding', {})).map((object) => titleOf(refOf(object))),
    ['RoleBinding kube-system/sealane-agent-cluster-dns'],
  )
})

for (const [title, settings, names] of [
  ['a Corefile', configMap('my-dns', { Corefile: KUBEADM }), { workload: 'my-dns', map: 'my-dns', key: 'Corefile' }],
  [
    'a Corefile that imports additions',
    configMap('coredns', { Corefile: K3S }),
    { workload: 'coredns', map: 'coredns-custom', key: 'sealane.server' },
  ],
] as const) {
  t.test(`CoreDNS outside kube-system, with ${title}: wired, kept for the agent and undone there`, async (t) => {
    const own = inNamespace(settings, 'dns')
    const deployment = inNamespace(coreDnsWorkload(names.workload, settings.metadata.name), 'dns')
    // What is left of the one before, which nothing reads.
    const old = configMap('coredns', { Corefile: KUBEADM })
    const { admin, run, record, role } = world(old, own, deployment)
    const server = refOf(deployment)
    const data = async (namespace: string, name: string) =>
      (await admin.get({ apiVersion: 'v1', kind: 'ConfigMap', namespace, name }))?.['data'] as
        Record<string, string> | undefined
    t.same(await run('coredns', { server }), { left: [] })
    t.match((await data('dns', names.map))?.[names.key], 'forward . 10.43.0.99')
    t.same(await data('kube-system', 'coredns'), old.data, 'another CoreDNS stays as it is')
    t.match((await record())?.maps, [{ namespace: 'dns', name: names.map, key: names.key }])
    t.match(await role('dns'), [{ verbs: ['get', 'update'], resourceNames: [names.map] }])
    t.equal(await role('kube-system'), undefined)
    await run('coredns', { undo: true, server })
    t.strictSame(await data('dns', settings.metadata.name), settings.data, 'to the byte')
    t.equal(await role('dns'), undefined)
    t.notMatch((await data('dns', names.map))?.[names.key] ?? '', 'sealane')

    await run('coredns', { server })
    await admin.remove(server)
    await run('coredns', { undo: true })
    t.notMatch((await data('dns', names.map))?.[names.key] ?? '', 'sealane', 'also once its Deployment has gone')
  })
}
