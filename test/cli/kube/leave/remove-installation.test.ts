/** The objects that `sealane leave` removes. */
import t from 'tap'
import {
  type LeaveClusterInit,
  removeBroker,
  removeCrds,
  removeInstallation,
} from '../../../../cli/cluster/leave/remove-installation.ts'
import { PREFER_LOCAL } from '../../../../cli/cluster/prefer-local.ts'
import { calicoPools } from '../../../../cli/discovery/advice/advice-cni.ts'
import { discover } from '../../../../cli/discovery/discover.ts'
import { ALL_CRDS } from '../../../../install/crds/all-crds.ts'
import type { ManifestObject } from '../../../../install/values/manifest.ts'
import { planBroker } from '../../../../install/plan-broker.ts'
import { planMember } from '../../../../install/plan-member.ts'
import { DEFAULT_VALUES, type InstallValues } from '../../../../install/values/install-values.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { type ObjectRef, refOf } from '../../../../kubeapi/kube/kinds.ts'
import { nodeObject } from '../../../support/objects/node-objects.ts'
import { MemoryAdmin } from '../../../support/memory-admin.ts'
import { fixture } from '../../discovery/support/fixtures.ts'

t.test("Calico's pools for other clusters go by their label, the user's stay", async (t) => {
  const apiVersion = 'crd.projectcalico.org/v1'
  const own = { apiVersion, kind: 'IPPool', metadata: { name: 'default-ipv4-ippool' }, spec: { cidr: '10.1.0.0/16' } }
  const pools = calicoPools(['244.0.0.0/8', '10.52.0.0/16'], apiVersion) as unknown as ManifestObject[]
  const admin = new MemoryAdmin([own, ...pools])
  let said = ''
  await removeInstallation(admin, discover(fixture('kubeadm-calico-vxlan')), {
    timeoutMs: 1000,
    force: false,
    clock: new FakeClock(),
    signal: new AbortController().signal,
    say: (text) => void (said += text),
  })
  t.strictSame(
    (await admin.list(apiVersion, 'IPPool', {})).map(({ metadata }) => metadata.name),
    ['default-ipv4-ippool'],
  )
  t.equal(said, '  removed   IPPool sealane-10-52-0-0-16\n  removed   IPPool sealane-244-0-0-0-8\n')
})

const MONITORED: InstallValues = {
  ...DEFAULT_VALUES,
  gateway: { ...DEFAULT_VALUES.gateway, statusListen: 'node' },
  routeagent: { ...DEFAULT_VALUES.routeagent, statusListen: 'node' },
  metrics: { ...DEFAULT_VALUES.metrics, podMonitors: { ...DEFAULT_VALUES.metrics.podMonitors, enabled: true } },
}
const INIT: LeaveClusterInit = {
  timeoutMs: 1000,
  force: false,
  clock: new FakeClock(),
  signal: new AbortController().signal,
  say: () => undefined,
}
const PROMETHEUS = 'monitoring.coreos.com/v1'

t.test('what was installed for Prometheus goes as well', async (t) => {
  const other = { apiVersion: PROMETHEUS, kind: 'PodMonitor', metadata: { name: 'own', namespace: 'sealane-broker' } }
  const broker = new MemoryAdmin([...planBroker(MONITORED).flatMap(({ objects }) => objects), other])
  t.equal((await broker.list(PROMETHEUS, 'PodMonitor', {})).length, 2)
  t.equal(await removeBroker(broker, { deleteData: false }, INIT), true)
  const left = (await broker.list(PROMETHEUS, 'PodMonitor', {})).map(({ metadata }) => metadata.name)
  t.strictSame(left, ['own'], "nobody else's")
  const kept = await Promise.all(['Namespace', 'Service'].map((kind) => broker.list('v1', kind, {})))
  t.strictSame(
    kept.map(({ length }) => length),
    [1, 1],
    'data and address stay',
  )

  const member = new MemoryAdmin(planMember(MONITORED).flatMap(({ objects }) => objects))
  t.equal((await member.list(PROMETHEUS, 'PodMonitor', {})).length, 4)
  await removeInstallation(member, discover(fixture('kubeadm-calico-vxlan')), INIT)
  t.strictSame(await member.list(PROMETHEUS, 'PodMonitor', {}), [])
})

t.test('the default policy of join --prefer-local goes, that of somebody else stays', async (t) => {
  const type = { apiVersion: 'sealane.io/v1alpha1', kind: 'ClusterTrafficPolicy' }
  const ours = PREFER_LOCAL as unknown as ManifestObject
  for (const [policy, count] of [
    [ours, 0],
    [{ ...ours, metadata: { name: 'default' } }, 1],
    [{ ...ours, spec: { order: [{ any: {} }] } }, 1],
  ] as const) {
    const admin = new MemoryAdmin([policy])
    await removeInstallation(admin, discover(fixture('kubeadm-calico-vxlan')), INIT)
    t.equal((await admin.list(type.apiVersion, type.kind, {})).length, count)
  }
})

t.test('the labels that a join gave to virtual nodes go, those of a user stay', async (t) => {
  const node = (name: string, value: string): ManifestObject => {
    return { ...nodeObject(name), metadata: { name, labels: { 'sealane.io/virtual-node': value } } }
  }
  const admin = new MemoryAdmin([node('v1', 'join'), node('v2', 'true')])
  await removeInstallation(admin, discover(fixture('kubeadm-calico-vxlan')), INIT)
  const left = await admin.list('v1', 'Node', {})
  t.strictSame(
    left.map(({ metadata }) => Object.values<string | null>(metadata.labels ?? {}).filter((value) => value !== null)),
    [[], ['true']],
  )
})

t.test('a node that goes during the removal does not end it', async (t) => {
  const labels = [{ 'sealane.io/virtual-node': 'join' }, { 'sealane.io/gateway': 'true' }]
  const nodes = labels.map((all, i): ManifestObject => {
    return { ...nodeObject(`n${i}`), metadata: { name: `n${i}`, labels: all } }
  })
  const admin = new MemoryAdmin(nodes)
  const list = admin.list.bind(admin)
  admin.list = async (apiVersion, kind, scope) => {
    const found = await list(apiVersion, kind, scope)
    if (kind === 'Node') await Promise.all(found.map((object) => admin.remove(refOf(object))))
    // A selector by a key alone is that of the gateways.
    return kind === 'Node' && scope.labelSelector === 'sealane.io/gateway' ? nodes.slice(1) : found
  }
  await removeInstallation(admin, discover(fixture('kubeadm-calico-vxlan')), INIT)
  t.strictSame(
    admin.done.filter((one) => one.startsWith('merge Node')),
    ['merge Node n1', 'merge Node n0'],
  )
})

t.test('the ClusterProperties that the agent wrote go, those that a user wrote or edited stay', async (t) => {
  const type = { apiVersion: 'about.k8s.io/v1beta1', kind: 'ClusterProperty' }
  const property = (name: string, value: string, fromNodes?: string): ManifestObject => ({
    ...type,
    metadata: {
      name,
      labels: { 'app.kubernetes.io/managed-by': 'sealane' },
      ...(fromNodes === undefined ? {} : { annotations: { 'sealane.io/from-nodes': fromNodes } }),
    },
    spec: { value },
  })
  const left = async (...objects: ManifestObject[]): Promise<string[]> => {
    const admin = new MemoryAdmin(objects)
    await removeInstallation(admin, discover(fixture('kubeadm-calico-vxlan')), INIT)
    return (await admin.list(type.apiVersion, type.kind, {})).map(({ metadata }) => metadata.name).sort()
  }
  const both = [property('cluster.clusterset.k8s.io', 'milano'), property('clusterset.k8s.io', 'demo')]
  const own = property('region.sealane.io', 'eu')
  t.strictSame(
    await left(...both, property('region.sealane.io', 'eu', 'eu'), property('zone.sealane.io', 'a', 'a')),
    [],
  )
  t.strictSame(await left(own, property('zone.sealane.io', 'b', 'a'), property('x.example.org', 'x')), [
    'region.sealane.io',
    'x.example.org',
    'zone.sealane.io',
  ])
})

/** An API server in which a CRD exists until its objects are removed. */
class EndingAdmin extends MemoryAdmin {
  /** CRDs that are being deleted. */
  readonly ending: string[] = []

  override async remove(ref: ObjectRef): Promise<boolean> {
    const before = await this.get(ref)
    if (ref.kind !== 'CustomResourceDefinition' || before === undefined) return super.remove(ref)
    this.ending.push(ref.name)
    const conditions = [
      { type: 'NamesAccepted', status: 'True', message: 'no conflicts found' },
      { type: 'Terminating', status: 'True', message: 'CustomResource deletion is in progress' },
    ]
    this.put({ ...before, status: { conditions } })
    return true
  }

  async end(name: string): Promise<void> {
    this.ending.splice(this.ending.indexOf(name), 1)
    await super.remove({ apiVersion: 'apiextensions.k8s.io/v1', kind: 'CustomResourceDefinition', name })
  }
}

/** Removes all CRDs. `ends` gives the time at which each terminating CRD disappears. */
async function removed(admin: EndingAdmin, ends: Readonly<Record<string, number>>, force = false): Promise<string> {
  const clock = new FakeClock()
  let said = ''
  const over = new AbortController()
  const init: LeaveClusterInit = {
    timeoutMs: 10_000,
    force,
    clock,
    signal: new AbortController().signal,
    say: (text) => void (said += text.startsWith('  removed') ? '' : text),
  }
  const removing = removeCrds(admin, init)
    .then((left) => void (said += `left: ${left.join(', ')}`))
    .catch((error: unknown) => void (said += `failed: ${(error as Error).message}`))
    .finally(() => over.abort())
  for (let n = 0; n < 1000 && !over.signal.aborted; n += 1) {
    await clock.advance(250)
    const due = admin.ending.filter((name) => clock.monotonic() >= (ends[name] ?? 0))
    for (const name of due) await admin.end(name)
  }
  await removing
  return said
}

const CRDS = ALL_CRDS as unknown as readonly ManifestObject[]
const FOREVER = Number.POSITIVE_INFINITY

t.test('the CRDs are gone before it is said', async (t) => {
  const admin = new EndingAdmin(CRDS)
  const ends = Object.fromEntries(CRDS.map(({ metadata }) => [metadata.name, 500]))
  const said = await removed(admin, { ...ends, 'gateways.sealane.io': 8000 })
  t.equal(
    said,
    'waiting for the CRDs to be deleted: still there\n' +
      '  still there: gateways.sealane.io (CustomResource deletion is in progress)\n' +
      'left: ',
  )
  t.strictSame(await admin.list('apiextensions.k8s.io/v1', 'CustomResourceDefinition', {}), [])
  t.equal(await removed(new EndingAdmin(), {}), 'left: ', 'none is fine')
})

t.test('a CRD that does not go is named, and --force goes past it', async (t) => {
  const ending = 'gateways.sealane.io (CustomResource deletion is in progress)'
  const late = `waited 10s for the CRDs to be deleted: still there: ${ending}`
  const ends = { 'gateways.sealane.io': FOREVER }
  const failed = await removed(new EndingAdmin(CRDS), ends)
  t.equal(failed.split('\n').at(-1), `failed: ${late}`)
  const forced = await removed(new EndingAdmin(CRDS), ends, true)
  t.strictSame(forced.split('\n').slice(-2), [`${late}; continuing because of --force`, 'left: gateways.sealane.io'])
})

t.test('a CRD of others is not waited for while it is in use', async (t) => {
  const metadata = { name: 'web', namespace: 'shop' }
  const used = { apiVersion: 'multicluster.x-k8s.io/v1beta1', kind: 'ServiceExport', metadata }
  const said = await removed(new EndingAdmin([...CRDS, used]), {})
  const name = 'serviceexports.multicluster.x-k8s.io'
  t.match(said, `  kept      CustomResourceDefinition ${name}  (objects of this kind exist)\n`)
  t.equal(said.split('\n').at(-1), `left: ${name}`)
})

t.test('the CRD of Topology stays for a broker that follows it, also while there is no object', async (t) => {
  const binding = { apiVersion: 'rbac.authorization.k8s.io/v1', kind: 'ClusterRoleBinding' }
  const object = { apiVersion: 'sealane.io/v1alpha1', kind: 'Topology', metadata: { name: 'default' } }
  const name = 'topologies.sealane.io'
  const rows: readonly (readonly [say: string, more: readonly ManifestObject[], kept: string, why: string])[] = [
    ['neither', [], '', ''],
    ['an object', [object], name, 'objects of this kind exist'],
    [
      'a broker',
      [{ ...binding, metadata: { name: 'sealane-broker' } }],
      name,
      'a broker in this cluster follows objects of this kind',
    ],
    ['another binding', [{ ...binding, metadata: { name: 'sealane-agent' } }], '', ''],
  ]
  for (const [say, more, kept, why] of rows) {
    const said = await removed(new EndingAdmin([...CRDS, ...more]), {})
    t.equal(said.split('\n').at(-1), `left: ${kept}`, say)
    if (why !== '') t.match(said, `  kept      CustomResourceDefinition ${name}  (${why})\n`, say)
  }
})
