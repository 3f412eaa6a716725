/**
 * Server-side apply by a real API server: which fields we own, which stay and which go. It also shows the least rights
 * that suffice.
 */
import t from 'tap'
import type { ClusterApi } from '../../../kubeapi/cluster-api.ts'
import { kindPath } from '../../../kubeapi/kube/kinds.ts'
import type { Cluster, EndpointSlice, KubeObject, ServiceImport } from '../../../model/objects.ts'
import { MAX_ZONE_HINTS } from '../../../model/spec-constants.ts'
import { serviceExport, serviceImport } from '../../compliance/cluster-api.ts'
import { eventually } from '../../support/eventually.ts'
import { kubeProgramsMissing } from '../support/kube-programs.ts'
import { empty, open, put, startApiServer } from './api-server.ts'

t.setTimeout(600_000)

const IMPORT = kindPath('ServiceImport', 'shop', 'web')
const OURS = { 'app.kubernetes.io/managed-by': 'sealane' }

/** A zone name of the greatest length, and as many of them as hints can name. */
const WHERE = {
  zone: 'z'.repeat(63),
  hints: { forZones: Array.from({ length: MAX_ZONE_HINTS }, (_one, i) => ({ name: `zone-${i}` })) },
}

const slice = (addresses: readonly string[]): EndpointSlice => ({
  apiVersion: 'discovery.k8s.io/v1',
  kind: 'EndpointSlice',
  metadata: { name: 'web-1', namespace: 'shop', labels: { 'multicluster.kubernetes.io/service-name': 'web' } },
  addressType: 'IPv4',
  endpoints: addresses.map((address) => ({ addresses: [address], ...WHERE, conditions: { ready: true } })),
  // The ports have no name and protocol, which the server fills in.
  ports: [{ port: 80 }],
})

t.test('on a real API server', { skip: kubeProgramsMissing() ?? false }, async (t) => {
  const plane = await startApiServer(t)
  const { api: server } = plane
  t.beforeEach(() => empty(server))

  const version = async (path: string): Promise<string | undefined> =>
    (await server.get<KubeObject>(path)).metadata.resourceVersion
  const synced = async (api: ClusterApi): Promise<void> => {
    for (const kind of ['ServiceImport', 'EndpointSlice'] as const) {
      await api.cache(kind).whenSynced(AbortSignal.timeout(10_000))
    }
  }

  await t.test('what we no longer want goes, also after a restart; what others added stays', async (t) => {
    const { api: first } = await open(t, plane)
    await first.apply(serviceImport('web'))
    await first.close()
    await server.merge(IMPORT, { metadata: { labels: { theirs: 'x' } } })
    const { api: second } = await open(t, plane)
    await second.apply({ ...serviceImport('web'), metadata: { name: 'web', namespace: 'shop' } })
    t.same((await server.get<KubeObject>(IMPORT)).metadata.labels, { theirs: 'x', ...OURS })
  })

  await t.test('nothing is written when nothing differs, also after a restart, also with defaults', async (t) => {
    const { api: first } = await open(t, plane)
    const path = kindPath('EndpointSlice', 'shop', 'web-1')
    await synced(first)
    for (let i = 0; i < 2; i += 1) {
      await first.apply(serviceImport('web'))
      await first.apply(slice(['10.0.0.1', '10.0.0.2']))
      await first.applyStatus({ ...serviceImport('web'), status: { clusters: [{ cluster: 'milano' }] } })
    }
    const before = [await version(IMPORT), await version(path)]
    await first.close()
    const { api: second } = await open(t, plane)
    await second.apply(serviceImport('web'))
    await second.apply(slice(['10.0.0.1', '10.0.0.2']))
    await second.applyStatus({ ...serviceImport('web'), status: { clusters: [{ cluster: 'milano' }] } })
    t.same([await version(IMPORT), await version(path)], before)
    await second.apply(slice(['10.0.0.2']))
    t.match((await server.get<EndpointSlice>(path)).endpoints, [{ addresses: ['10.0.0.2'], ...WHERE }])
    t.equal((await server.get<EndpointSlice>(path)).endpoints?.length, 1)
  })

  await t.test('a field that the schema of an earlier release lacks is left out', async (t) => {
    const path = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusters.sealane.io'
    const definition = await server.get<KubeObject>(path)
    const text = JSON.stringify(definition)
    const older = JSON.parse(text.replaceAll('"drained":', '"wasLater":')) as KubeObject
    const { api } = await open(t, plane)
    const spec = { id: 'paris', index: 2, podCIDRs: ['10.52.0.0/16'], serviceCIDRs: [], globalCIDRs: [], labels: {} }
    const drained: Cluster = {
      apiVersion: 'sealane.io/v1alpha1',
      kind: 'Cluster',
      metadata: { name: 'paris' },
      spec: { ...spec, drained: true },
    }
    await server.raw('PUT', path, { body: older })
    const isOld = async (): Promise<boolean> => {
      await server.delete(kindPath('Cluster', undefined, 'paris'))
      await api.apply(drained)
      const found = await server.get<Cluster>(kindPath('Cluster', undefined, 'paris'))
      return found.spec.id === 'paris' && found.spec.drained === undefined
    }
    await eventually(isOld, { deadlineMs: 30_000, say: 'the rest of the object is written' })
    const before = await version(kindPath('Cluster', undefined, 'paris'))
    await api.apply(drained)
    t.equal(await version(kindPath('Cluster', undefined, 'paris')), before, 'and is not written for ever')
    const { metadata } = await server.get<KubeObject>(path)
    const again = { ...definition, metadata: { ...definition.metadata, resourceVersion: metadata.resourceVersion } }
    t.equal((await server.raw('PUT', path, { body: again })).status, 200)
  })

  await t.test('someone edits, takes the label off, deletes: put right', async (t) => {
    const { api } = await open(t, plane)
    await api.apply(serviceImport('web'))
    const edit = { spec: { ips: ['245.0.9.9'] }, metadata: { labels: { 'app.kubernetes.io/managed-by': null } } }
    await server.merge(IMPORT, edit)
    await eventually(() => api.cache('ServiceImport').get('web', 'shop')?.spec.ips?.[0] === '245.0.9.9')
    await api.apply(serviceImport('web'))
    t.match(await server.get<ServiceImport>(IMPORT), { spec: { ips: ['245.0.0.7'] }, metadata: { labels: OURS } })
    await server.delete(IMPORT)
    await eventually(() => api.cache('ServiceImport').get('web', 'shop') === undefined)
    await api.apply(serviceImport('web'))
    await server.get(IMPORT)
  })

  await t.test('one status among several writers: conditions of others stay', async (t) => {
    const { api } = await open(t, plane)
    await put(server, serviceExport('web'))
    const since = '2026-01-01T00:00:00Z'
    const condition = (type: string) =>
      ({ type, status: 'True', reason: 'Ready', message: 'm', lastTransitionTime: since }) as const
    const path = kindPath('ServiceExport', 'shop', 'web')
    await server.merge(`${path}/status`, { status: { conditions: [condition('Theirs')] } })
    await api.cache('ServiceExport').whenSynced(AbortSignal.timeout(10_000))
    const object = await eventually(() => api.cache('ServiceExport').get('web', 'shop'))
    await api.applyStatus({ ...object, status: { conditions: [condition('Valid'), condition('Ready')] } })
    await api.applyStatus({ ...object, status: { conditions: [condition('Ready')] } })
    const { status } = await server.get<typeof object>(path)
    t.same(status?.conditions?.map(({ type }) => type).sort(), ['Ready', 'Theirs'])
  })

  await t.test('the least rights: what is not allowed is said, what is allowed works', async (t) => {
    const role = (kind: string, rules: readonly object[]) => ({
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind,
      metadata: { name: 'driver' },
      rules,
    })
    const mcs = ['multicluster.x-k8s.io']
    await server.apply(
      '/apis/rbac.authorization.k8s.io/v1/clusterroles/driver',
      role('ClusterRole', [
        { apiGroups: mcs, resources: ['serviceimports'], verbs: ['list', 'watch', 'create', 'patch', 'delete'] },
        { apiGroups: mcs, resources: ['serviceimports/status'], verbs: ['patch'] },
        { apiGroups: ['events.k8s.io'], resources: ['events'], verbs: ['create'] },
        { apiGroups: ['coordination.k8s.io'], resources: ['leases'], verbs: ['get', 'create', 'update'] },
        { apiGroups: [''], resources: ['secrets'], resourceNames: ['sealane-identity'], verbs: ['get', 'patch'] },
        { apiGroups: [''], resources: ['secrets'], verbs: ['create'] },
      ]),
    )
    await server.apply('/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/driver', {
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'ClusterRoleBinding',
      metadata: { name: 'driver' },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'driver' },
      subjects: [{ apiGroup: 'rbac.authorization.k8s.io', kind: 'User', name: 'driver' }],
    })
    const kubeconfig = await plane.kubeconfigFor({ user: 'driver' })
    const { api, logger } = await open(t, { kubeconfig })
    await eventually(async () => (await api.apply(serviceImport('web')), true))
    await api.applyStatus({ ...serviceImport('web'), status: { clusters: [{ cluster: 'milano' }] } })
    api.report({
      regarding: { kind: 'ServiceImport', name: 'web', namespace: 'shop' },
      type: 'Normal',
      reason: 'Imported',
      note: 'n',
    })
    await eventually(async () => (await server.list('/apis/events.k8s.io/v1/namespaces/shop/events')).length === 1)
    await api.remove('ServiceImport', 'web', 'shop')
    const data = new Map([['cluster.key', Buffer.from('secret')]])
    await api.secrets.write('sealane-identity', { type: 'sealane.io/identity', data })
    t.ok((await api.secrets.read('sealane-identity'))?.data.has('cluster.key'))
    await t.rejects(api.secrets.read('other'), {
      code: 'Forbidden',
      message: /^get Secret sealane-system\/other: .*cannot get resource/,
    })
    let led = false
    const lead = (): Promise<void> => ((led = true), Promise.resolve())
    await api.elect({ name: 'sealane-agent', identity: 'a' }, lead, AbortSignal.timeout(10_000))
    t.ok(led)
    t.same(
      logger.messages('warn').filter((line) => !line.includes('ServiceImport')),
      [],
    )
  })

  await t.test('the dynamic client: any kind, dry run, conflicts, reviews', async (t) => {
    const { api } = await open(t, plane)
    const { dynamic } = api
    const deployment = {
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      metadata: { name: 'x', namespace: 'sealane-system' },
      spec: {
        selector: { matchLabels: { app: 'x' } },
        template: { metadata: { labels: { app: 'x' } }, spec: { containers: [{ name: 'x', image: 'x' }] } },
      },
    }
    const ref = { apiVersion: 'apps/v1', kind: 'Deployment', name: 'x', namespace: 'sealane-system' }
    t.match(await dynamic.apply(deployment, { dryRun: true }), { spec: { replicas: 1 } })
    t.equal(await dynamic.get(ref), undefined)
    await dynamic.apply(deployment)
    await dynamic.patch(ref, { spec: { replicas: 2 } }, { type: 'merge' })
    await dynamic.apply({ ...deployment, spec: { ...deployment.spec, replicas: 3 } }, { fieldManager: 'kubectl' })
    await t.rejects(dynamic.apply({ ...deployment, spec: { ...deployment.spec, replicas: 4 } }, { force: false }), {
      code: 'Conflict',
      message: /kubectl/,
    })
    t.equal((await dynamic.list({ apiVersion: 'apps/v1', kind: 'Deployment' })).length, 1)
    const review = await dynamic.create({
      apiVersion: 'authorization.k8s.io/v1',
      kind: 'SelfSubjectAccessReview',
      metadata: { name: '' },
      spec: { resourceAttributes: { verb: 'create', resource: 'pods' } },
    })
    t.match(review, { status: { allowed: true } })
    t.match(await dynamic.read('/version'), { major: '1' })
    t.equal(await dynamic.delete(ref), true)
    t.equal(await dynamic.delete(ref), false)
    const invalid = { ...deployment, spec: { ...deployment.spec, replicas: -1 } }
    await t.rejects(dynamic.apply(invalid), {
      code: 'Invalid',
      message: /^apply Deployment sealane-system\/x: the API server says: .*replicas.*\(422 Invalid\)$/,
    })
  })
})
