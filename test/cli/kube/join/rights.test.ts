/** Whatever a join or a leave writes, it has asked for the right to do so before its first write. */
import t from 'tap'
import { discover } from '../../../../cli/discovery/discover.ts'
import { readSnapshot, snapshotReader } from '../../../../cli/discovery/read-snapshot.ts'
import { wireClusterDns } from '../../../../cli/cluster/wire-cluster-dns.ts'
import { leaveCluster } from '../../../../cli/cluster/leave/leave-cluster.ts'
import { applyRights, checkRights, removalRights, rightsBesides } from '../../../../cli/installation/check-rights.ts'
import { planMember } from '../../../../install/plan-member.ts'
import { DEFAULT_VALUES } from '../../../../install/values/install-values.ts'
import type { ManifestObject } from '../../../../install/values/manifest.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { Reviews, allAsked, used, written } from '../../../support/asked-rights.ts'
import { messageOf } from '../../../support/failure.ts'
import { InstallingAdmin } from '../../../support/installing-admin.ts'
import { MemoryAdmin } from '../../../support/memory-admin.ts'
import { KUBEADM } from '../../../support/corefiles.ts'
import { configMap, coreDnsWorkload } from '../../cluster-dns/objects.ts'
import { MEMBERSHIP, gateway, join, node } from './joining.ts'

const { signal } = new AbortController()

const WITH_CONSOLE = { ...DEFAULT_VALUES, console: { ...DEFAULT_VALUES.console, enabled: true } }

function consoleObjects(): readonly ManifestObject[] {
  return planMember(WITH_CONSOLE).flatMap(({ name, objects }) => (name === 'console' ? objects : []))
}

t.test('a join, with and without a console', async (t) => {
  const world = [node('n1', 'True'), gateway()]
  const rows = [
    ['plain', world, {}],
    ['--console', world, { values: WITH_CONSOLE }],
    ['--no-console', [...world, ...consoleObjects()], { asked: { console: false } }],
    ['--prefer-local', world, { preferLocal: true }],
  ] as const
  for (const [name, objects, more] of rows) {
    await t.test(name, async (t) => {
      const reviews = new Reviews()
      const { admin } = await join(objects, (one) => reviews.watch(one), more)
      t.ok(written(admin).length > 20, 'it did install')
      if (name === '--no-console') t.ok(used(admin).some((right) => right.startsWith('delete deployments')))
      allAsked(t, admin, reviews)
    })
  }
})

t.test('who may not delete the console changes nothing', async (t) => {
  const denied = (admin: MemoryAdmin): void => void admin.denied.add('delete deployments').add('delete services')
  const objects = [node('n1', 'True'), gateway(), ...consoleObjects()]
  const { admin, outcome } = await join(objects, denied, { asked: { console: false } })
  t.match(outcome, { message: /this user may not .*delete deployments\.apps/ })
  t.match(outcome, { message: /this user may not .*delete services/ })
  t.same(written(admin), [])
  const stays = await join(objects, denied)
  t.notMatch(stays.outcome, { message: /may not/ }, 'a join that leaves it takes no such right')
})

const COREDNS = {
  flavour: { value: 'coredns', confidence: 'certain', how: 'given' },
  server: undefined,
  address: undefined,
  domain: { value: 'cluster.local', confidence: 'certain', how: 'given' },
} as const

function dnsObjects(): readonly ManifestObject[] {
  return [configMap('coredns', { Corefile: KUBEADM }), coreDnsWorkload('coredns', 'coredns')]
}

/** A join has wired the DNS of this cluster. */
async function wire(admin: MemoryAdmin): Promise<void> {
  const metadata = { name: 'sealane-dns', namespace: 'sealane-system' }
  admin.put({ apiVersion: 'v1', kind: 'Service', metadata, spec: { clusterIP: '10.43.0.99' } })
  for (const one of dnsObjects()) admin.put(one)
  const distribution = { value: 'unknown', confidence: 'certain', how: 'given' } as const
  const init = { dryRun: false, clock: new FakeClock(), signal, say: () => undefined }
  await wireClusterDns(admin, { dns: COREDNS, distribution }, init)
  admin.done.length = 0
}

t.test('a leave that undoes what a join did to the DNS of the cluster', async (t) => {
  const reviews = new Reviews()
  const admin = await leave(async (one) => {
    await wire(one)
    reviews.watch(one)
  })
  const dns = used(admin).filter((right) => right.endsWith('in kube-system'))
  t.same(dns, ['delete rolebindings in kube-system', 'delete roles in kube-system', 'update configmaps in kube-system'])
  allAsked(t, admin, reviews)
  for (const right of ['delete roles', 'update configmaps']) {
    const denied: MemoryAdmin[] = []
    const refused = leave(async (one) => {
      await wire(one)
      one.denied.add(right)
      denied.push(one)
    })
    t.match(await messageOf(refused), new RegExp(`may not ${right}`))
    t.same(denied.flatMap(written), [], right)
  }
})

t.test('who may not change the DNS of the cluster joins nothing', async (t) => {
  const world = [node('n1', 'True'), gateway(), ...dnsObjects()]
  const reviews = new Reviews()
  const joined = await join(world, (one) => reviews.watch(one))
  t.ok(used(joined.admin).includes('update configmaps in kube-system'), 'it did wire the DNS')
  t.ok(reviews.asked.has('update configmaps in kube-system'))
  t.equal(reviews.lateBy, 0)
  const { admin, outcome } = await join(world, (one) => void one.denied.add('update configmaps'))
  t.match(outcome, { message: /this user may not update configmaps/ })
  t.same(written(admin), [])
})

t.test('a join that has mended a broken leave says so when it may not go on', async (t) => {
  const leaving = { ...MEMBERSHIP, metadata: { name: 'self', annotations: { 'sealane.io/leave-requested': 'true' } } }
  const objects = [leaving, node('n1', 'True'), gateway(), ...consoleObjects()]
  const denied = (admin: MemoryAdmin): void => void admin.denied.add('delete deployments')
  const { outcome } = await join(objects, denied, { asked: { console: false } })
  t.match(outcome, { hint: /; the earlier leave was undone, and nothing else was changed$/ })
})

async function leave(change: (admin: MemoryAdmin) => void | Promise<void>): Promise<MemoryAdmin> {
  const objects = planMember(WITH_CONSOLE).flatMap((part) => part.objects)
  const admin = new InstallingAdmin([MEMBERSHIP, node('n1', 'True'), gateway(), ...objects])
  await change(admin)
  const found = discover(await readSnapshot(snapshotReader(admin.dynamic), signal))
  const discovery = { ...found, dns: COREDNS }
  const init = { force: true, timeoutMs: 0, clock: new FakeClock(), signal, say: () => undefined }
  await leaveCluster(admin, discovery, init)
  return admin
}

t.test('a leave', async (t) => {
  const reviews = new Reviews()
  const admin = await leave((one) => reviews.watch(one))
  t.ok(used(admin).includes('delete namespaces in '), 'it did remove')
  allAsked(t, admin, reviews)
  const denied: MemoryAdmin[] = []
  const refused = messageOf(
    leave((one) => {
      one.denied.add('delete daemonsets')
      denied.push(one)
    }),
  )
  t.match(await refused, /this user may not delete daemonsets\.apps in namespace sealane-system$/)
  t.same(denied.flatMap(written), [])
})

t.test('rights from objects: each once, and asked for once', async (t) => {
  const objects: ManifestObject[] = [
    { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'a', namespace: 'x' } },
    { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'b', namespace: 'x' } },
    { apiVersion: 'sealane.io/v1alpha1', kind: 'Gateway', metadata: { name: 'a' } },
    { apiVersion: 'networking.k8s.io/v1', kind: 'NetworkPolicy', metadata: { name: 'a', namespace: 'x' } },
    { apiVersion: 'security.openshift.io/v1', kind: 'SecurityContextConstraints', metadata: { name: 'a' } },
  ]
  const rights = removalRights(objects)
  t.same(
    rights.map(({ group, resource, namespace = '' }) => [group, resource, namespace].join(' ')),
    [
      ' secrets x',
      'sealane.io gateways ',
      'networking.k8s.io networkpolicies x',
      'security.openshift.io securitycontextconstraints ',
    ],
  )
  t.same(rightsBesides([...rights, ...applyRights(objects)], applyRights(objects)), rights)
  t.same(rightsBesides(rights, rights), [])
  const admin = new MemoryAdmin()
  let reviews = 0
  const create = admin.create.bind(admin)
  admin.create = (object) => ((reviews += 1), create(object))
  await checkRights(admin, [...rights, ...rights], signal)
  t.equal(reviews, rights.length)
})
