/**
 * The rules of the Multi-Cluster Services API as a user experiences them. docs/mcs.md has the requirement behind each
 * test.
 */
import t, { type Test } from 'tap'
import { ClusterApiError, type ClusterApiErrorCode } from '../../kubeapi/cluster-api.ts'
import { errorFromAnswer } from '../../kubeapi/kube/kube-error.ts'
import { asServed } from '../../kubeapi/kube/write/unknown-fields.ts'
import { MemoryApi } from '../../kubeapi/memory/memory-api.ts'
import type { KubeObject, ServiceExport, ServiceImport } from '../../model/objects.ts'
import { importObject, namespaceObject } from '../support/objects/service-objects.ts'
import { Site, service, serviceExport, slice } from './site.ts'
import { FakeClusterset } from './fake-clusterset.ts'
import { until, untilReported } from './until.ts'

const GOOD = 'Valid=True/Valid Ready=True/Exported Conflict=False/NoConflicts'

async function sites(
  t: Test,
  api?: MemoryApi,
): Promise<{ set: FakeClusterset; milano: Site; paris: Site; tokyo: Site }> {
  const set = new FakeClusterset()
  const milano = new Site(set, { id: 'milano', podCIDR: '10.42.0.0/16', globalCIDR: '244.1.0.0/16' })
  const paris = new Site(set, { id: 'paris', podCIDR: '10.42.0.0/16', globalCIDR: '244.2.0.0/16' })
  const tokyo = new Site(set, {
    id: 'tokyo',
    podCIDR: '10.42.0.0/16',
    globalCIDR: '244.3.0.0/16',
    ...(api === undefined ? {} : { api }),
  })
  const all = [milano, paris, tokyo]
  t.teardown(() => Promise.all(all.map((site) => site.stop())))
  for (const site of all) {
    await site.join()
    site.api.put(namespaceObject('shop'))
    site.start()
  }
  return { set, milano, paris, tokyo }
}

t.test('types of services', async (t) => {
  const { milano, tokyo } = await sites(t)
  const types = [
    ['cluster-ip', { type: 'ClusterIP', clusterIP: '10.43.0.1' }, 'ClusterSetIP 245'],
    ['node-port', { type: 'NodePort', clusterIP: '10.43.0.2' }, 'ClusterSetIP 245'],
    ['load-balancer', { type: 'LoadBalancer', clusterIP: '10.43.0.3' }, 'ClusterSetIP 245'],
    ['headless', { type: 'ClusterIP', clusterIP: 'None' }, 'Headless -'],
  ] as const
  for (const [name, spec, want] of types) {
    milano.api.put(service('shop', name, spec))
    const before = milano.api.get('Service', name, 'shop')
    milano.api.put(slice('shop', name, '10.42.0.5'))
    milano.export('shop', name)
    const type = (): string => tokyo.show().find((line) => line.includes(`/${name} `)) ?? 'nothing'
    await until(t, () => type().startsWith(`shop/${name} ${want}`), true, `${name} is imported`)
    await until(t, () => milano.conditions('shop', name), GOOD, name)
    t.equal(milano.api.get('Service', name, 'shop'), before, 'the Service is not touched')
    t.same(tokyo.api.get('ServiceImport', name, 'shop')?.spec.ipFamilies, ['IPv4'], 'families are always said')
    t.equal(tokyo.api.get('ServiceImport', name, 'shop')?.status?.endpointSliceObjects, 'Present')
  }
  const exported = types.map(([name]) => `ServiceExport ${name} Normal Exported`)
  const reported = (): string[] => milano.reported().filter((line) => line.startsWith('ServiceExport'))
  await untilReported(t, { reported }, exported, 'each export is told')
  milano.api.put(service('shop', 'outside', { type: 'ExternalName' }))
  milano.export('shop', 'outside')
  await until(
    t,
    () => milano.conditions('shop', 'outside'),
    'Valid=False/InvalidServiceType Ready=False/Pending Conflict=False/NoConflicts',
    'ExternalName is refused',
  )
  await untilReported(t, { reported }, ['ServiceExport outside Warning InvalidServiceType'], 'the user is told')
  milano.api.put(service('shop', 'node-port', { type: 'ExternalName' }))
  await until(t, () => tokyo.show().length, 3, 'a service that becomes one is withdrawn')
  t.same(
    tokyo.show().filter((line) => line.includes('outside')),
    [],
    'never a ServiceImport',
  )
  await until(t, () => milano.conditions('shop', 'node-port').startsWith('Valid=False'), true, 'said on the export')
  await untilReported(t, { reported }, ['ServiceExport node-port Warning InvalidServiceType'], 'and the user is told')
})

t.test('an export before its Service, and a Service that goes', async (t) => {
  const { milano, tokyo } = await sites(t)
  milano.export('shop', 'web')
  const none = 'Valid=False/NoService Ready=False/Pending Conflict=False/NoConflicts'
  await until(t, () => milano.conditions('shop', 'web'), none, 'waits')
  milano.api.put(service('shop', 'web'))
  milano.api.put(slice('shop', 'web', '10.42.0.5'))
  await until(t, () => [milano.conditions('shop', 'web'), tokyo.show().length], [GOOD, 1], 'the Service comes')
  milano.api.drop('Service', 'web', 'shop')
  await until(t, () => [milano.conditions('shop', 'web'), tokyo.show().length], [none, 0], 'the Service goes')
  await untilReported(t, milano, [
    'ServiceExport web Warning NoService',
    'ServiceExport web Normal Exported',
    'ServiceImport web Normal Imported',
  ])
})

t.test('conditions: when they change, and of which generation they speak', async (t) => {
  const { set, milano } = await sites(t)
  set.admit = (_cluster, record) => (record.name === 'bad' ? 'of a rule' : undefined)
  for (const name of ['web', 'bad']) {
    milano.api.put(service('shop', name))
    milano.api.put(slice('shop', name, '10.42.0.5'))
    milano.export('shop', name)
  }
  await until(t, () => milano.conditions('shop', 'web'), GOOD, 'exported')
  await until(t, () => milano.conditions('shop', 'bad'), GOOD.replace('True/Exported', 'False/Failed'), 'refused')
  const since = (): (string | number | undefined)[] =>
    (milano.api.get('ServiceExport', 'web', 'shop')?.status?.conditions ?? []).flatMap((one) => [
      one.lastTransitionTime,
      one.observedGeneration,
    ])
  const before = since()
  milano.api.put({ ...serviceExport('shop', 'web'), spec: { exportedLabels: { a: 'b' } } })
  await until(t, () => since().filter((value) => value === 2).length, 3, 'all speak of the new generation')
  t.same(
    since().filter((value) => typeof value === 'string'),
    before.filter((value) => typeof value === 'string'),
  )
  t.same(
    milano.reported().filter((line) => line.includes('bad')),
    ['ServiceExport bad Warning Refused'],
    'told once',
  )
})

t.test('labels and annotations: the oldest export wins, all or nothing', async (t) => {
  const { milano, paris, tokyo } = await sites(t)
  const put = (site: Site, spec: ServiceExport['spec']): void => {
    site.api.put({ ...service('shop', 'web'), metadata: { name: 'web', namespace: 'shop', labels: { dummy: 'svc' } } })
    site.api.put(slice('shop', 'web', '10.42.0.5'))
    site.api.put({ ...serviceExport('shop', 'web'), ...(spec === undefined ? {} : { spec }) })
  }
  put(milano, { exportedLabels: { a: '1' }, exportedAnnotations: { b: '2' } })
  const found = (): unknown[] => {
    const metadata = tokyo.api.get('ServiceImport', 'web', 'shop')?.metadata
    return [metadata?.labels, metadata?.annotations]
  }
  const want = [{ a: '1', 'app.kubernetes.io/managed-by': 'sealane' }, { b: '2' }]
  await until(t, found, want, 'from the export alone, not from the Service')
  const reported = (): string[] => milano.reported().filter((line) => line.startsWith('ServiceExport'))
  await untilReported(t, { reported }, ['ServiceExport web Normal Exported'], 'exported')
  put(paris, { exportedLabels: { a: '1', c: '3' }, exportedAnnotations: { d: '4' } })
  const conflict = GOOD.replace('False/NoConflicts', 'True/AnnotationsConflict,LabelsConflict')
  for (const site of [milano, paris]) await until(t, () => site.conditions('shop', 'web'), conflict, site.id)
  t.same(found(), want, 'nothing of the younger one')
  put(paris, { exportedLabels: { a: '1' }, exportedAnnotations: { b: '2' } })
  for (const site of [milano, paris]) await until(t, () => site.conditions('shop', 'web'), GOOD, `${site.id}: agreed`)
  await untilReported(t, { reported }, [
    'ServiceExport web Warning Conflict',
    'ServiceExport web Normal ConflictCleared',
  ])
})

t.test('what somebody edits or deletes is put right at once', async (t) => {
  const { milano, tokyo } = await sites(t)
  milano.api.put(service('shop', 'web'))
  milano.api.put(slice('shop', 'web', '10.42.0.5'))
  milano.export('shop', 'web')
  const want = [
    ['shop/web ClusterSetIP 245.0.0.1 http:80 from milano Ready'],
    ['web<-milano http:8080 244.1.0.5(10-42-0-5)'],
  ]
  const now = (): unknown => [tokyo.show(), tokyo.slices()]
  await until(t, now, want, 'at first')
  const found = tokyo.api.get('ServiceImport', 'web', 'shop')!
  const [imported] = tokyo.api.cache('EndpointSlice').list()
  const meddle: [string, () => Promise<void>][] = [
    ['a slice removed', () => tokyo.api.remove('EndpointSlice', imported!.metadata.name, 'shop')],
    ['endpoints added', () => tokyo.api.apply({ ...imported!, endpoints: [{ addresses: ['1.2.3.4'] }] })],
    ['ports of a slice', () => tokyo.api.apply({ ...imported!, ports: [] })],
    ['labels of a slice', () => tokyo.api.apply({ ...imported!, metadata: { ...imported!.metadata, labels: {} } })],
    ['the ServiceImport removed', () => tokyo.api.remove('ServiceImport', 'web', 'shop')],
    ['its ports', () => tokyo.api.apply({ ...found, spec: { ...found.spec, ports: [] } })],
    ['its type', () => tokyo.api.apply({ ...found, spec: { type: 'Headless', ports: [] } })],
    ['its status', () => tokyo.api.applyStatus({ ...found, status: { clusters: [], conditions: [] } })],
  ]
  for (const [name, edit] of meddle) {
    await edit()
    await until(t, now, want, name)
  }
})

/**
 * Refuses the writes that an API server refuses in a terminating namespace, before the watch shows that it terminates.
 */
class EndingNamespace extends MemoryApi {
  ending = false
  attempts = 0
  readonly #code: ClusterApiErrorCode
  constructor(code: ClusterApiErrorCode) {
    super()
    this.#code = code
  }
  override async apply(object: KubeObject, signal?: AbortSignal): Promise<void> {
    if (this.ending && object.metadata.namespace === 'shop') {
      this.attempts += 1
      throw new ClusterApiError(
        this.#code,
        `${object.metadata.name} is forbidden: unable to create new content in namespace shop because it is being terminated`,
      )
    }
    await super.apply(object, signal)
  }
}

/** The Kubernetes driver reports the first code, and the second one when the server gives no cause. */
for (const code of ['Conflict', 'Forbidden'] as const) {
  t.test(`a namespace that ends (${code}): no noise, no storm, and back when it is made anew`, async (t) => {
    const api = new EndingNamespace(code)
    const { milano, tokyo } = await sites(t, api)
    api.ending = true
    milano.api.put(service('shop', 'web'))
    milano.api.put(slice('shop', 'web', '10.42.0.5'))
    milano.export('shop', 'web')
    await until(t, () => api.attempts, 2, 'the ServiceImport and its slice are tried')
    for (let i = 6; i < 12; i += 1) {
      milano.api.put(service('other', `s${i}`))
      milano.export('other', `s${i}`)
      await until(t, () => milano.show().length, i - 4, 'more rounds')
    }
    t.equal(api.attempts, 2, 'and not again in each round')
    tokyo.api.put(namespaceObject('shop', { status: { phase: 'Terminating' } }))
    milano.api.put(slice('shop', 'web', '10.42.0.5 10.42.0.6'))
    await until(t, () => milano.slices().some((line) => line.includes('.0.6')), true, 'a change meanwhile')
    tokyo.api.drop('Namespace', 'shop')
    api.ending = false
    t.same(tokyo.show(), [])
    tokyo.api.put(namespaceObject('shop'))
    await until(t, () => [tokyo.show().length, tokyo.slices().length], [1, 1], 'made anew')
    t.same(
      tokyo.logger.lines.filter(({ level }) => level === 'warn' || level === 'error'),
      [],
    )
    t.equal(api.attempts, 2)
  })
}

const SELECTORS: NonNullable<ServiceExport['spec']> = {
  clusterSelectors: [
    { propertySelector: { matchProperties: { 'zone.sealane.io': '@SameAsImporter@' } } },
    { propertySelector: { matchExpressions: [{ key: 'zone.sealane.io', operator: 'Exists' }] } },
  ],
}

/**
 * An API server whose CRD of ServiceImports is older than some fields, behind the writer of the Kubernetes driver. As a
 * real one does (kube/driver/ownership), it refuses the whole object for one such field, in the same words.
 */
class OlderSchema extends MemoryApi {
  statusWrites = 0
  importWrites = 0
  refused = 0
  /** The writer leaves out what the server names. Without it, the refusal reaches whoever writes. */
  leavesOut = true

  override async apply(object: KubeObject, signal?: AbortSignal): Promise<void> {
    if (object.kind !== 'ServiceImport') return super.apply(object, signal)
    this.importWrites += 1
    await this.#serve(object, (served) => super.apply(served, signal))
  }
  override async applyStatus(object: KubeObject, signal?: AbortSignal): Promise<void> {
    if (object.kind !== 'ServiceImport') return super.applyStatus(object, signal)
    this.statusWrites += 1
    await this.#serve(object, (served) => super.applyStatus(served, signal))
  }
  #serve(object: ServiceImport, store: (served: ServiceImport) => Promise<void>): Promise<void> {
    const send = (served: ServiceImport): Promise<void> => {
      this.#refuse(served)
      return store(served)
    }
    return this.leavesOut ? asServed(object, send) : send(object)
  }
  #refuse({ metadata: { namespace, name }, spec, status }: ServiceImport): void {
    const unknown = [
      ...['clusterSelectors'].filter((field) => field in spec).map((field) => `.spec.${field}`),
      ...['clusterSelectorResults', 'endpointSliceObjects']
        .filter((field) => field in (status ?? {}))
        .map((field) => `.status.${field}`),
    ]
    if (unknown.length === 0) return
    this.refused += 1
    const lines = unknown.map((path) => `${path}: field not declared in schema`)
    const all = lines.length === 1 ? lines.join('') : `errors:\n  ${lines.join('\n  ')}`
    const object = `${namespace ?? ''}/${name}; multicluster.x-k8s.io/v1beta1, Kind=ServiceImport`
    const message = `failed to create typed patch object (${object}): ${all}`
    throw errorFromAnswer({ verb: 'apply', title: `ServiceImport ${namespace ?? ''}/${name}` }, 500, { message })
  }
}

t.test('an API server with an older CRD refuses the whole object, and says for which fields', async (t) => {
  const api = new OlderSchema()
  api.put(namespaceObject('shop'))
  const object: ServiceImport = {
    ...importObject({ name: 'web', namespace: 'shop' }, { clusterSelectors: SELECTORS.clusterSelectors ?? [] }),
    status: { endpointSliceObjects: 'Present' },
  }
  api.leavesOut = false
  await t.rejects(api.apply(object), { code: 'Invalid', message: /: \.spec\.clusterSelectors: field not declared/ })
  t.equal(api.get('ServiceImport', 'web', 'shop'), undefined, 'nothing of it is stored')
  api.leavesOut = true
  await api.apply(object)
  const stored = api.get('ServiceImport', 'web', 'shop')
  t.ok(stored !== undefined && !('clusterSelectors' in stored.spec), 'the writer of the driver sends the rest')
  t.same([api.refused, api.importWrites], [2, 2])
})

t.test('a field that an older CRD does not know is not written for ever', async (t) => {
  const api = new OlderSchema()
  const { milano, tokyo } = await sites(t, api)
  let ready = 0
  for (const name of ['web', 'a', 'b', 'c']) {
    milano.api.put(service('shop', name))
    milano.api.put(slice('shop', name, '10.42.0.5'))
    milano.api.put({ ...serviceExport('shop', name), spec: SELECTORS })
    await until(t, () => tokyo.show().filter((line) => line.endsWith(' Ready')).length, ++ready, name)
  }
  const writes = [api.statusWrites, api.importWrites]
  for (let i = 6; i < 12; i += 1) {
    milano.api.put(slice('shop', 'web', `10.42.0.${i}`))
    await until(t, () => tokyo.slices().some((line) => line.includes(`.0.${i}(`)), true, 'more rounds')
  }
  t.same([api.statusWrites, api.importWrites], writes)
  t.ok(api.refused > 0, 'the server has refused some of them')
})

t.test('cluster selectors: the import has them and what they match, whatever the state of the endpoints', async (t) => {
  const { set, milano, paris, tokyo } = await sites(t)
  const properties = (id: string, globalCIDR: string, zone: string | undefined): void => {
    const more = zone === undefined ? {} : { properties: { 'zone.sealane.io': zone } }
    set.join({ id, podCIDRs: ['10.42.0.0/16'], globalCIDRs: [globalCIDR], ...more })
    set.spread()
  }
  properties('milano', '244.1.0.0/16', 'eu-1')
  properties('paris', '244.2.0.0/16', 'eu-2')
  for (const site of [milano, paris]) {
    site.api.put(service('shop', 'web'))
    site.api.put(slice('shop', 'web', ''))
    site.api.put({ ...serviceExport('shop', 'web'), spec: SELECTORS })
    await until(t, () => site.conditions('shop', 'web'), GOOD, site.id)
  }
  const found = () => tokyo.api.get('ServiceImport', 'web', 'shop')
  const results = (): unknown => found()?.status?.clusterSelectorResults?.map(({ clusters }) => clusters.join())
  await until(t, results, ['', 'milano,paris'], 'the importer has no zone')
  t.same(found()?.spec.clusterSelectors, SELECTORS.clusterSelectors)
  properties('tokyo', '244.3.0.0/16', 'eu-2')
  await until(t, results, ['paris', 'milano,paris'], 'the importer has got one')
  properties('paris', '244.2.0.0/16', undefined)
  await until(t, results, ['', 'milano'], 'an exporter has none any more')
  paris.api.put({ ...serviceExport('shop', 'web'), spec: {} })
  const conflict = GOOD.replace('False/NoConflicts', 'True/ClusterSelectorsConflict')
  for (const site of [milano, paris]) await until(t, () => site.conditions('shop', 'web'), conflict, site.id)
  milano.api.put({ ...serviceExport('shop', 'web'), spec: {} })
  await until(t, () => [results(), found()?.spec.clusterSelectors], [undefined, undefined], 'without selectors')
})
