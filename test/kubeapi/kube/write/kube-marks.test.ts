/**
 * Labels and annotations that the operator configures: they are on everything that Sealane writes, on nothing else, and
 * are written once.
 */
import t, { type Test } from 'tap'
import { agentMetrics } from '../../../../agent/loop/metrics.ts'
import { MirrorWriter } from '../../../../agent/loop/mirror-writer.ts'
import { type KubeObject, objectKeyText } from '../../../../model/objects.ts'
import type { KubeApi } from '../../../../kubeapi/kube/kube-api.ts'
import type { ObjectMarks } from '../../../../kubeapi/kube/write/owned-fields.ts'
import { SystemClock } from '../../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../../runtime/metrics/prometheus-metrics.ts'
import { serviceExport, serviceImport } from '../../../compliance/cluster-api.ts'
import { eventually } from '../../../support/eventually.ts'
import { type FakeApiServer, fakeApiServer } from '../../../support/fake-api-server.ts'
import { clusterObject } from '../../../support/objects/cluster-objects.ts'
import { slice } from '../../../agent/site.ts'
import { openFake, put } from '../kube-site.ts'

const OURS = 'app.kubernetes.io/managed-by'
const MARKS: ObjectMarks = { labels: { team: 'net', a: 'theirs' }, annotations: { 'example.org/owner': 'net' } }
const NEVER = new AbortController().signal

const writes = (server: FakeApiServer): string[] => server.requests.filter((line) => !line.startsWith('GET'))

const stored = (server: FakeApiServer, name = 'web') =>
  server.objects.get(server.place('ServiceImport', name, 'shop'))?.metadata

async function opened(t: Test, server: FakeApiServer, marks?: ObjectMarks): Promise<KubeApi> {
  const { api } = await openFake(t, server, marks === undefined ? {} : { marks })
  for (const kind of ['ServiceImport', 'EndpointSlice', 'Cluster'] as const) {
    await api.cache(kind).whenSynced(AbortSignal.timeout(5000))
  }
  return api
}

t.test('an object has them from its first moment, and its own count for more', async (t) => {
  const server = await fakeApiServer(t)
  const first = await opened(t, server, MARKS)
  const { labels } = serviceImport('web').metadata
  t.ok(labels?.['a'], 'the object has a label of that key')
  await first.apply(serviceImport('web'))
  t.same(stored(server)?.labels, { team: 'net', ...labels, [OURS]: 'sealane' })
  t.same(stored(server)?.annotations, { ...serviceImport('web').metadata.annotations, ...MARKS.annotations })
  t.equal(writes(server).length, 1, 'in one write: a rule about all objects sees no other')
  await first.apply(serviceImport('web'))
  await first.close()
  const second = await opened(t, server, MARKS)
  await second.apply(serviceImport('web'))
  t.equal(writes(server).length, 1, 'also after a restart')
})

t.test('one of an earlier release gets them once; what is asked for no more goes; those of others stay', async (t) => {
  const server = await fakeApiServer(t)
  const before = await opened(t, server)
  await before.apply(serviceImport('web'))
  await before.close()
  server.objects.apply(
    server.place('ServiceImport', 'web', 'shop'),
    { metadata: { name: 'web', labels: { theirs: 'x' } } },
    { manager: 'argo', force: false, status: false },
  )
  const { labels } = serviceImport('web').metadata
  for (const [i, [marks, want]] of (
    [
      [MARKS, { team: 'net' }],
      [
        { ...MARKS, labels: { team: 'ops', tier: 'b' } },
        { team: 'ops', tier: 'b' },
      ],
      [undefined, {}],
    ] as const
  ).entries()) {
    const api = await opened(t, server, marks)
    await api.apply(serviceImport('web'))
    await api.apply(serviceImport('web'))
    t.same(stored(server)?.labels, { ...want, ...labels, [OURS]: 'sealane', theirs: 'x' })
    t.equal(writes(server).length, i + 2, 'one write each')
    await api.close()
  }
  t.notOk(stored(server)?.annotations?.['example.org/owner'])
})

t.test('what the mirror wants is compared with the marks: a second round writes nothing', async (t) => {
  const server = await fakeApiServer(t)
  const paris = clusterObject(
    { id: 'paris', podCIDRs: ['10.1.0.0/16'] },
    { metadata: { labels: { [OURS]: 'sealane' } } },
  )
  const ours = <T extends KubeObject>(object: T): T => {
    const labels = { ...object.metadata.labels, [OURS]: 'sealane' }
    return { ...object, metadata: { ...object.metadata, labels } }
  }
  const [web, one] = [ours(serviceImport('web')), ours(slice('shop', 'web', ''))]
  const wanted = (): Map<string, KubeObject> =>
    new Map(structuredClone([paris, web, one] as KubeObject[]).map((object) => [objectKeyText(object), object]))
  let sent = 0
  const round = async (marks: ObjectMarks | undefined, expected: number, why: string): Promise<void> => {
    const api = await opened(t, server, marks)
    const metrics = createMetrics('agent')
    const counted = agentMetrics(metrics)
    const calls: string[] = []
    const apply = api.apply.bind(api)
    api.apply = (object, signal) => (calls.push(object.metadata.name), apply(object, signal))
    const writer = new MirrorWriter({ api, clock: new SystemClock(), logger: new CapturingLogger(), metrics: counted })
    t.same(await writer.apply(wanted(), NEVER), [])
    sent += expected
    t.equal(writes(server).length, sent, why)
    t.equal(calls.length, expected, `${why}: nor is it tried`)
    const isSeen = (object: KubeObject): boolean =>
      api.cache(object.kind).get(object.metadata.name, object.metadata.namespace) !== undefined
    await eventually(() => [...wanted().values()].every(isSeen))
    for (let again = 0; again < 3; again += 1) await writer.apply(wanted(), NEVER)
    t.equal(writes(server).length, sent, 'nothing in the rounds after it')
    t.equal(calls.length, expected, 'nor is it tried')
    await api.close()
  }
  await round(undefined, 3, 'an earlier release')
  await round(MARKS, 3, 'each gets its marks')
  await round(MARKS, 0, 'nothing after a restart')
  await round({ ...MARKS, labels: { team: 'ops' } }, 3, 'another mark')
  await round(undefined, 3, 'no marks any more')
  await round(undefined, 0, 'nothing after that')
  t.same(stored(server)?.labels, web.metadata.labels)
})

t.test('Leases, Events, Secrets and what is created have them too', async (t) => {
  const server = await fakeApiServer(t)
  const api = await opened(t, server, MARKS)
  const metadataOf = (resource: string) => server.objects.list(resource, undefined).map(({ metadata }) => metadata)
  const leases = (): readonly (readonly [string, object | undefined])[] =>
    metadataOf('coordination.k8s.io/v1/leases').map(({ name, labels }) => [name, labels] as const)
  const lease = { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata: { name: 'lane' } } as const
  const held = await api.leases.write({ ...lease, spec: { holderIdentity: 'n1' } }, NEVER)
  t.same(leases(), [['lane', MARKS.labels]])
  const other = await opened(t, server, { labels: { team: 'ops' }, annotations: {} })
  const [seen, mine] = [(await other.leases.read('lane', NEVER)) ?? held, { [OURS]: 'sealane', a: 'own' }]
  await other.leases.write(
    { ...seen, metadata: { ...seen.metadata, labels: { ...seen.metadata.labels, ...mine } } },
    NEVER,
  )
  t.same(leases(), [['lane', { ...mine, team: 'ops' }]], 'one that was read has the marks of now')
  const led = new AbortController()
  await api.elect({ name: 'agent', identity: 'x' }, () => Promise.resolve(), led.signal)
  t.same(leases()[0], ['agent', MARKS.labels], 'that of an election')

  api.report({ regarding: { kind: 'Node', name: 'n1' }, type: 'Warning', reason: 'NoLane', note: 'x' })
  await eventually(() => metadataOf('events.k8s.io/v1/events').length === 1)
  t.match(metadataOf('events.k8s.io/v1/events')[0], MARKS)

  await api.secrets.write('any', { type: 'Opaque', data: new Map() })
  await api.dynamic.create({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'c', namespace: 'shop' } })
  t.match(metadataOf('v1/secrets')[0], { ...MARKS, labels: { ...MARKS.labels, [OURS]: 'sealane' } })
  t.match(metadataOf('v1/configmaps')[0], MARKS)
})

t.test('no object of a user gets one', async (t) => {
  const server = await fakeApiServer(t)
  const web = serviceExport('web')
  put(server, web)
  put(server, serviceImport('theirs'))
  const api = await opened(t, server, MARKS)
  await api.cache('ServiceExport').whenSynced(AbortSignal.timeout(5000))
  const lastTransitionTime = '2026-01-01T00:00:00Z'
  const condition = { type: 'Valid', status: 'True', reason: 'Valid', message: '', lastTransitionTime } as const
  await api.applyStatus({ ...web, status: { conditions: [condition] } })
  await api.setCondition({ kind: 'ServiceExport', name: 'web', namespace: 'shop' }, { ...condition, type: 'x' })
  await t.rejects(api.apply(serviceImport('theirs')), { code: 'Forbidden' })
  const found = server.objects.get(server.place('ServiceExport', 'web', 'shop'))
  t.match(found, { status: { conditions: [{ type: 'Valid' }, { type: 'x' }] } })
  for (const metadata of [found?.metadata, stored(server, 'theirs')]) {
    t.notOk(metadata?.labels?.['team'])
    t.notOk(metadata?.annotations?.['example.org/owner'])
  }
  const configMap = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'coredns', namespace: 'kube-system' } }
  await api.dynamic.apply(configMap)
  t.notOk(server.objects.list('v1/configmaps', undefined)[0]?.metadata.labels, 'what says its own marks has no others')
})
