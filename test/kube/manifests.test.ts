/**
 * The installed manifests on a real API server: schemas, rights, pod security. policies.test.ts covers the policies.
 */
import t from 'tap'
import { ALL_CRDS } from '../../install/crds/all-crds.ts'
import { LABEL_MCS_RELEASE, SERVICE_EXPORT } from '../../install/crds/multicluster-crds.ts'
import { planBroker } from '../../install/plan-broker.ts'
import { planMember } from '../../install/plan-member.ts'
import { DEFAULT_VALUES } from '../../install/values/install-values.ts'
import { REPLICAS_VALUES } from '../../scripts/manifest-files.ts'
import { eventually } from '../support/eventually.ts'
import { same } from './mcs/expect.ts'
import { CRDS, applyCrds, planeWithShop } from './support/apply-manifests.ts'
import { pathOf } from './support/object-path.ts'
import { brokerObjects, memberObjects } from './support/installed-objects.ts'
import { kubeProgramsMissing } from './support/kube-programs.ts'
import type { Json, KubeObject, KubeRequest } from './support/kube-request.ts'
import { SCHEMA_ROWS, membership } from './support/manifest-objects.ts'

t.setTimeout(1_800_000)

const SYSTEM = 'sealane-system'

t.test('a real API server takes it all', { skip: kubeProgramsMissing() ?? false }, async (t) => {
  const cluster = await planeWithShop(t)
  const { api } = cluster

  await t.test('CRDs: an older one of another product is brought up to date, its objects stay', async (t) => {
    const [alpha] = SERVICE_EXPORT.spec.versions
    const labels = { [LABEL_MCS_RELEASE]: 'v0.2.0' }
    const older = {
      ...SERVICE_EXPORT,
      metadata: { ...SERVICE_EXPORT.metadata, labels },
      spec: { ...SERVICE_EXPORT.spec, versions: [{ ...alpha, storage: true }] },
    }
    await api.apply(`${CRDS}/${older.metadata.name}`, older)
    const path = '/apis/multicluster.x-k8s.io/v1alpha1/namespaces/shop/serviceexports/web'
    const webExport = { apiVersion: 'multicluster.x-k8s.io/v1alpha1', kind: 'ServiceExport', metadata: { name: 'web' } }
    await eventually(() => api.apply(path, webExport), { deadlineMs: 30_000 })
    const actions = await applyCrds(api)
    t.equal(actions.get('serviceexports.multicluster.x-k8s.io'), 'update')
    t.equal(actions.get('clusters.sealane.io'), 'create')
    await eventually(() => api.get(path.replace('v1alpha1', 'v1beta1')), { deadlineMs: 30_000 })
    t.same(new Set((await applyCrds(api)).values()), new Set(['leave']), 'the next time nothing is written')
  })

  await t.test('CRDs are established, structural, and their names are accepted', async (t) => {
    for (const { metadata } of ALL_CRDS) {
      // Several controllers write the conditions, in any order.
      const conditions = async (): Promise<string> => {
        const { status } = await api.get<{ status: { conditions: { type: string; status: string }[] } }>(
          `${CRDS}/${metadata.name}`,
        )
        return status.conditions
          .map(({ type, status }) => `${type}=${status}`)
          .sort()
          .join(' ')
      }
      const approved = metadata.name.endsWith('.k8s.io') && !metadata.name.includes('.x-k8s.io')
      const want = ['Established=True', ...(approved ? ['KubernetesAPIApprovalPolicyConformant=True'] : [])]
      await same(t, conditions, [...want, 'NamesAccepted=True'].join(' '), metadata.name)
    }
  })

  await t.test('what the schemas take and refuse', async (t) => {
    for (const row of SCHEMA_ROWS) {
      const { object, want } = row
      const { status, text } = await api.raw('PATCH', `${pathOf(object)}?fieldManager=test&force=true&dryRun=All`, {
        body: object,
        contentType: 'application/apply-patch+yaml',
      })
      if (want === '') t.ok(status < 300, `${object.kind} ${object.metadata.name} is taken: ${text.slice(0, 300)}`)
      else t.match((JSON.parse(text) as { message?: string }).message, want, `${object.kind}: ${want}`)
    }
  })

  await t.test('the id of a cluster cannot change', async (t) => {
    const path = '/apis/sealane.io/v1alpha1/memberships/self'
    await api.apply(path, membership({}))
    await api.apply(path, membership({ phase: 'leaving' }))
    await t.rejects(api.apply(path, membership({ clusterId: 'roma' })), /the id of a member cannot change/)
    await t.rejects(api.apply(path, membership({ clusterset: 'other' })), /the clusterset of a member cannot change/)
    await api.delete(path)
  })

  await t.test('all objects, first as a dry run, then for real', async (t) => {
    const broker = { ...DEFAULT_VALUES.broker, enabled: true }
    const values = { ...DEFAULT_VALUES, broker }
    const parts = [...planMember(values), ...planBroker(values)]
    const objects = parts.flatMap((part) => JSON.parse(JSON.stringify(part.objects)) as KubeObject[])
    for (const object of objects.filter(({ kind }) => kind === 'Namespace')) await api.apply(pathOf(object), object)
    for (const object of objects) {
      const done = await api.apply(`${pathOf(object)}?dryRun=All&fieldValidation=Strict`, object)
      t.equal(done.kind, object.kind, `${object.kind} ${object.metadata.name}`)
    }
    for (const object of objects) await api.apply(pathOf(object), object)
    const warned = await Promise.all(
      objects.filter(({ kind }) => kind === 'ValidatingAdmissionPolicy').map((one) => typeWarnings(api, pathOf(one))),
    )
    t.same(warned.flat(), [], 'the expressions of the policies fit the types')
  })

  await t.test('the broker as replicas, with an etcd beside them', async (t) => {
    const objects = brokerObjects(REPLICAS_VALUES)
    for (const object of objects) {
      const done = await api.apply(`${pathOf(object)}?dryRun=All&fieldValidation=Strict`, object)
      t.equal(done.kind, object.kind, `${object.kind} ${object.metadata.name}`)
    }
    const etcd = objects.filter(({ kind }) => kind === 'ServiceAccount')
    for (const object of etcd) await api.apply(pathOf(object), object)
    for (const part of ['broker', 'etcd']) {
      const { template } = templateOf(objects, part)
      const metadata = { name: `try-replica-${part}`, namespace: 'sealane-broker' }
      // The StatefulSet controller adds the volumes of the claims.
      const claimed = part === 'etcd' ? [{ name: 'data', emptyDir: {} }] : []
      const volumes = [...((template.spec as { volumes?: readonly unknown[] }).volumes ?? []), ...claimed]
      const pod = { apiVersion: 'v1', kind: 'Pod', metadata, spec: { ...template.spec, volumes } }
      const path = '/api/v1/namespaces/sealane-broker/pods?dryRun=All&fieldValidation=Strict'
      await eventually(() => api.post(path, pod), { deadlineMs: 30_000, say: `a pod of ${part}` })
      t.pass(`${part} is restricted`)
    }
  })

  await t.test('pods of all parts pass the pod security levels of their namespaces', async (t) => {
    for (const part of ['agent', 'gateway', 'routeagent', 'dns', 'broker']) {
      const namespace = part === 'broker' ? 'sealane-broker' : SYSTEM
      const { template } = templateOf([...memberObjects(), ...brokerObjects()], part)
      const name = `sealane-${part}`
      const owner = { apiVersion: 'apps/v1', kind: 'DaemonSet', name, uid: '1', controller: true }
      const made = ['gateway', 'routeagent'].includes(part) ? { ownerReferences: [owner] } : {}
      const metadata = { name: `try-${part}`, namespace, ...made }
      const pod = { apiVersion: 'v1', kind: 'Pod', metadata, spec: template.spec }
      const path = `/api/v1/namespaces/${namespace}/pods?dryRun=All&fieldValidation=Strict`
      await eventually(() => api.post(path, pod), { deadlineMs: 30_000, say: `a pod of ${part}` })
      t.pass(part)
    }
    // Outside the node's network, the parts of a member would pass even the strictest level.
    const restricted = { 'pod-security.kubernetes.io/enforce': 'restricted' }
    await api.merge('/api/v1/namespaces/shop', { metadata: { labels: restricted } })
    for (const part of ['agent', 'dns']) {
      const { template } = templateOf(memberObjects(), part)
      const spec = { ...template.spec, serviceAccountName: 'default' }
      const pod = { apiVersion: 'v1', kind: 'Pod', metadata: { name: part, namespace: 'shop' }, spec }
      await eventually(() => api.post('/api/v1/namespaces/shop/pods?dryRun=All', pod), { deadlineMs: 30_000 })
      t.pass(`${part} is restricted`)
    }
  })

  await t.test('each account may do its work and nothing else', async (t) => {
    for (const [part, verb, resource, namespace, want] of ACCESS_ROWS) {
      const account = await cluster.apiAs({ serviceAccount: { namespace: SYSTEM, name: `sealane-${part}` } })
      t.equal(await allows(account, verb, resource, namespace), want, `${part} ${verb} ${resource} ${namespace}`)
      account.close()
    }
  })

  await t.test('who edits a namespace exports its services, and only reads imports', async (t) => {
    await api.apply('/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings/editor', {
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'RoleBinding',
      metadata: { name: 'editor', namespace: 'shop' },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'edit' },
      subjects: [{ apiGroup: 'rbac.authorization.k8s.io', kind: 'User', name: 'ana' }],
    })
    const ana = await cluster.apiAs({ user: 'ana' })
    t.teardown(() => ana.close())
    const mcs = 'multicluster.x-k8s.io'
    await eventually(() => allows(ana, 'create', `${mcs}/serviceexports`, 'shop'), { deadlineMs: 30_000 })
    t.equal(await allows(ana, 'list', `${mcs}/serviceimports`, 'shop'), true)
    t.equal(await allows(ana, 'create', `${mcs}/serviceimports`, 'shop'), false)
    t.equal(await allows(ana, 'patch', `${mcs}/serviceimports`, 'shop'), false)
  })
})

interface PolicyStatus {
  readonly status?: {
    readonly observedGeneration?: number
    readonly typeChecking?: { readonly expressionWarnings?: readonly { warning: string }[] }
  }
}

async function typeWarnings(api: KubeRequest, path: string): Promise<string[]> {
  const { status } = await eventually(
    async () => {
      const policy = await api.get<PolicyStatus>(path)
      return policy.status?.observedGeneration === undefined ? false : policy
    },
    { deadlineMs: 60_000, say: 'type checking' },
  )
  return (status?.typeChecking?.expressionWarnings ?? []).map(({ warning }) => warning)
}

interface Template {
  readonly template: { readonly spec: Json }
}

function templateOf(objects: readonly KubeObject[], part: string): Template {
  const found = objects.find((one) => one.metadata.name === `sealane-${part}` && 'template' in Object(one['spec']))
  return found?.['spec'] as Template
}

async function allows(api: KubeRequest, verb: string, resource: string, namespace: string): Promise<boolean> {
  const [group = '', plural = '', subresource = ''] = resource.split('/')
  const [name, at = ''] = plural.split('@').reverse()
  const resourceAttributes = {
    verb,
    group,
    resource: at === '' ? name : at,
    subresource,
    namespace,
    ...(at === '' ? {} : { name }),
  }
  const review = await api.post<{ status: { allowed: boolean } }>(
    '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews',
    { apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectAccessReview', spec: { resourceAttributes } },
  )
  return review.status.allowed
}

/**
 * Each row has the part, the verb, group/resource[@name][/subresource], the namespace ('' for all), and whether it is
 * allowed.
 */
const ACCESS_ROWS: readonly (readonly [string, string, string, string, boolean])[] = [
  ['agent', 'create', 'multicluster.x-k8s.io/serviceimports', '', true],
  ['agent', 'patch', 'multicluster.x-k8s.io/serviceexports/status', '', true],
  ['agent', 'patch', 'multicluster.x-k8s.io/serviceexports', '', false],
  // Derived Services alone: an admission policy says which.
  ['agent', 'patch', '/services', '', true],
  ['agent', 'patch', '/services/status', '', false],
  ['agent', 'patch', '/nodes', '', true],
  ['agent', 'update', '/nodes', '', false],
  ['agent', 'patch', '/nodes/status', '', false],
  ['agent', 'get', '/secrets@sealane-identity', SYSTEM, true],
  ['agent', 'get', '/secrets@other', SYSTEM, false],
  ['agent', 'get', '/secrets@sealane-join-token', SYSTEM, true],
  ['agent', 'patch', '/secrets@sealane-join-token', SYSTEM, false],
  ['agent', 'list', '/secrets', SYSTEM, false],
  ['agent', 'create', '/secrets', SYSTEM, true],
  ['agent', 'create', '/secrets', 'kube-system', false],
  ['agent', 'create', '/pods', SYSTEM, false],
  ['agent', 'update', 'coordination.k8s.io/leases', SYSTEM, true],
  ['agent', 'update', 'coordination.k8s.io/leases', 'kube-system', false],
  ['gateway', 'patch', 'sealane.io/gateways/status', '', true],
  ['gateway', 'update', 'coordination.k8s.io/leases', SYSTEM, true],
  ['gateway', 'delete', 'coordination.k8s.io/leases', SYSTEM, false],
  ['gateway', 'update', 'coordination.k8s.io/leases', 'kube-system', false],
  ['gateway', 'create', 'events.k8s.io/events', '', true],
  ['gateway', 'get', '/secrets@sealane-identity', SYSTEM, false],
  ['gateway', 'list', '/services', '', false],
  ['gateway', 'patch', '/nodes', '', false],
  ['routeagent', 'watch', 'discovery.k8s.io/endpointslices', '', true],
  ['routeagent', 'patch', 'discovery.k8s.io/endpointslices', '', false],
  ['routeagent', 'patch', 'sealane.io/gateways', '', false],
  ['dns', 'watch', 'multicluster.x-k8s.io/serviceimports', '', true],
  ['dns', 'patch', 'multicluster.x-k8s.io/serviceimports', '', false],
  ['dns', 'list', '/configmaps', SYSTEM, false],
]
