/** Join, deploy and leave in OpenShift: grants before the pods, nothing of it elsewhere, and nothing left at the end. */
import t from 'tap'
import { deployBroker } from '../../../../cli/broker/deploy/deploy-broker.ts'
import { removeBroker, removeInstallation } from '../../../../cli/cluster/leave/remove-installation.ts'
import { discover } from '../../../../cli/discovery/discover.ts'
import { brokerRights, checkRights, memberRights } from '../../../../cli/installation/check-rights.ts'
import {
  planInstalledMember,
  readInstalledValues,
  readMarks,
} from '../../../../cli/installation/plan-installed-values.ts'
import { DEFAULT_VALUES, type InstallValues } from '../../../../install/values/install-values.ts'
import { LEFT_ALONE } from '../../../../install/values/marks.ts'
import type { ManifestObject } from '../../../../install/values/manifest.ts'
import { planBroker } from '../../../../install/plan-broker.ts'
import { planMember } from '../../../../install/plan-member.ts'
import { refOf, titleOf } from '../../../../kubeapi/kube/kinds.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { failure } from '../../../support/failure.ts'
import { MemoryAdmin } from '../../../support/memory-admin.ts'
import { fixture } from '../../discovery/support/fixtures.ts'
import { cluster, gateway, join, node } from './joining.ts'

const SCC = 'SecurityContextConstraints'
const OPENSHIFT: InstallValues = { ...DEFAULT_VALUES, platform: { ...DEFAULT_VALUES.platform, openshift: true } }
const signal = new AbortController().signal
const NODE_GRANTS = [
  `apply ${SCC} sealane-node`,
  'apply Role sealane-system/sealane-node',
  'apply RoleBinding sealane-system/sealane-node',
  'apply RoleBinding sealane-system/sealane-agent-scc',
]

t.test('a join applies the grants before the workloads, and a preview shows them', async (t) => {
  const objects = [node('n1', 'True'), cluster('paris'), gateway()]
  const openshift = await join(objects, (admin) => void admin.unknown.delete(SCC))
  const { done } = openshift.admin
  const first = done.findIndex((line) => /^apply (Deployment|DaemonSet)/.test(line))
  for (const line of NODE_GRANTS) t.ok(done.includes(line) && done.indexOf(line) < first, line)
  const elsewhere = await join(objects)
  t.notOk(elsewhere.admin.done.some((line) => NODE_GRANTS.includes(line)))
  let said = ''
  await join(objects, (admin) => void admin.unknown.delete(SCC), { dryRun: true, say: (text) => void (said += text) })
  for (const line of NODE_GRANTS) t.match(said, line.replace('apply', '+'), 'shown')
})

t.test('a broker gets its grant before a pod of it starts', async (t) => {
  const admin = new MemoryAdmin([{ apiVersion: 'storage.k8s.io/v1', kind: 'StorageClass', metadata: { name: 'fast' } }])
  admin.unknown.delete(SCC)
  const init = { chosen: { advertise: ['192.0.2.1:7443'] }, force: true, flags: '', dryRun: true, timeoutMs: 1000 }
  const quiet = { say: () => undefined, report: () => undefined }
  await deployBroker(admin, { ...init, ...quiet, clock: new FakeClock(), signal })
  const grant = admin.done.indexOf('apply RoleBinding sealane-broker/sealane-broker-scc (dry)')
  const workload = admin.done.indexOf('apply StatefulSet sealane-broker/sealane-broker (dry)')
  t.ok(grant >= 0 && grant < workload)
})

t.test('the rights for grants are checked in OpenShift, and only there', async (t) => {
  const admin = new MemoryAdmin()
  for (const right of ['use securitycontextconstraints', 'create securitycontextconstraints']) admin.denied.add(right)
  await checkRights(admin, [...memberRights('sealane-system'), ...brokerRights('sealane-broker')], signal)
  t.equal(
    (await failure(checkRights(admin, memberRights('sealane-system', true), signal))).message,
    'context "c1" of kubeconfig: this user may not create securitycontextconstraints.security.openshift.io; ' +
      'use securitycontextconstraints.security.openshift.io nonroot-v2, ' +
      'use securitycontextconstraints.security.openshift.io sealane-node in namespace sealane-system',
  )
  t.match(
    (await failure(checkRights(admin, brokerRights('sealane-broker', 'own', true), signal))).message,
    'may not use securitycontextconstraints.security.openshift.io nonroot-v2',
  )
})

t.test('leave and uninstall remove all of it, and nothing of others', async (t) => {
  const other = { apiVersion: 'security.openshift.io/v1', kind: SCC, metadata: { name: 'restricted-v2' } }
  const replicas: InstallValues = {
    ...OPENSHIFT,
    broker: { ...OPENSHIFT.broker, store: 'etcd' },
    etcd: { ...OPENSHIFT.etcd, enabled: true },
  }
  const all = [...planMember(OPENSHIFT), ...planBroker(replicas)].flatMap(({ objects }) => objects)
  const admin = new MemoryAdmin([other, ...all])
  admin.unknown.delete(SCC)
  const init = { force: false, timeoutMs: 1000, clock: new FakeClock(), signal, say: () => undefined }
  await removeInstallation(admin, discover(fixture('openshift-ovn')), init)
  await removeBroker(admin, { deleteData: true }, init)
  const left = await Promise.all([
    admin.list('security.openshift.io/v1', SCC, {}),
    admin.list('rbac.authorization.k8s.io/v1', 'RoleBinding', {}),
    admin.list('rbac.authorization.k8s.io/v1', 'Role', {}),
  ])
  t.strictSame(left, [[other], [], []])
})

function stored(values: InstallValues): ReadonlyMap<string, ManifestObject> {
  const objects = JSON.parse(JSON.stringify(planMember(values).flatMap((part) => part.objects))) as ManifestObject[]
  return new Map(objects.map((object) => [titleOf(refOf(object)), object]))
}

t.test('a second join changes nothing: the SELinux type and the grants are read back', async (t) => {
  const typed: InstallValues = {
    ...DEFAULT_VALUES,
    platform: { openshift: false, seLinuxOptions: { type: 'spc_t', level: 's0' } },
  }
  for (const values of [DEFAULT_VALUES, OPENSHIFT, typed]) {
    const live = stored(values)
    const defaults = { ...DEFAULT_VALUES, platform: { ...values.platform, seLinuxOptions: {} } }
    const again = planInstalledMember(readInstalledValues(defaults, {}, live), values.member.site, live)
    for (const object of JSON.parse(JSON.stringify(again)) as ManifestObject[]) {
      const before = live.get(titleOf(refOf(object)))
      const [was, is] = [before, object].map((one) => (one?.['spec'] as { template?: unknown } | undefined)?.template)
      t.match(is ?? {}, was === undefined ? {} : { metadata: (was as ManifestObject).metadata }, titleOf(refOf(object)))
      t.strictSame(seLinuxOf(is), seLinuxOf(was))
    }
    t.strictSame(new Set(again.map((object) => titleOf(refOf(object)))), new Set(live.keys()), 'the same objects')
  }
})

function seLinuxOf(template: unknown): unknown {
  return (template as { spec?: { securityContext?: { seLinuxOptions?: unknown } } } | undefined)?.spec?.securityContext
    ?.seLinuxOptions
}

t.test('the marks for service meshes are not taken for marks of the user', async (t) => {
  const live = stored(OPENSHIFT).get('DaemonSet sealane-system/sealane-gateway')
  if (live === undefined) throw new Error('there is no gateway')
  const owned = (map: object): object => Object.fromEntries(Object.keys(map).map((key) => [`f:${key}`, {}]))
  const annotations = { ...LEFT_ALONE.annotations, 'openshift.io/required-scc': 'sealane-node' }
  const fields = { 'f:labels': owned({ ...LEFT_ALONE.labels, team: '' }), 'f:annotations': owned(annotations) }
  const spec = live['spec'] as { template: { metadata: { labels: object } } }
  const metadata = { ...spec.template.metadata, labels: { ...spec.template.metadata.labels, team: 'net' } }
  const entry = {
    manager: 'sealane',
    operation: 'Apply',
    apiVersion: 'apps/v1',
    fieldsV1: { 'f:spec': { 'f:template': { 'f:metadata': fields } } },
  }
  const object = {
    ...live,
    metadata: { ...live.metadata, managedFields: [entry] },
    spec: { ...spec, template: { ...spec.template, metadata } },
  } as unknown as ManifestObject
  t.strictSame(readMarks([object]).pods, { labels: { team: 'net' }, annotations: {} })
})
