/** The suite for every ClusterApi driver. It runs against a factory that gives each test a new, empty cluster. */
import type { Test } from 'tap'
import type { ClusterApi, ObjectChange, ObjectEvent } from '../../kubeapi/cluster-api.ts'
import type { Gateway, Kind, KubeObject, Service, ServiceExport, ServiceImport } from '../../model/objects.ts'
import { eventually } from '../support/eventually.ts'
import { gatewayObject } from '../support/objects/node-objects.ts'
import { exportObject, importObject, namespaceObject, serviceObject } from '../support/objects/service-objects.ts'
import { conditionTests } from './cluster-conditions.ts'

/** A cluster, and functions that change it as a user would. */
export interface ClusterUnderTest {
  readonly api: ClusterApi
  /** The view of another process on the same cluster; the same object when the driver has only one view. */
  readonly other: ClusterApi
  readonly put: (object: KubeObject) => Promise<void>
  readonly drop: (kind: Kind, name: string, namespace?: string) => Promise<void>
  /** Returns the Events so far, as `Warning Conflict: the note`. */
  readonly reported: () => Promise<readonly string[]>
  /** The differences between this driver and a folder; none by default. */
  readonly differences?: Differences
}

export interface Differences {
  /** Whether a namespace must exist before an object can be created in it. */
  readonly namespacesAreMade?: boolean
  /** Whether an object has one owner at a time, so that a write by the user does not hide an applied object. */
  readonly oneLayer?: boolean
  /** Whether Services have no generation. */
  readonly servicesWithoutGeneration?: boolean
}

export type ClusterFactory = (t: Test) => Promise<ClusterUnderTest>

export const service = (name: string, port = 80): Service =>
  serviceObject({ name }, { ports: [{ protocol: 'TCP', port }] })

export const serviceExport = (name: string): ServiceExport => exportObject({ name })

export const serviceImport = (name: string, port = 80): ServiceImport =>
  importObject(
    { name, labels: { a: 'b' } },
    { type: 'ClusterSetIP', ports: [{ protocol: 'TCP', port }], ips: ['245.0.0.7'] },
  )

const gateway = (node: string, version = '1'): Gateway => gatewayObject(node, { version })

const deadline = (): AbortSignal => AbortSignal.timeout(5000)

/** Returns changes as text: `set web`, `removed web`, `synced`. */
function record<T extends KubeObject>(changes: (ObjectChange<T> | undefined)[]): string[] {
  return changes.map((change) => (change === undefined ? 'synced' : `${change.type} ${change.object.metadata.name}`))
}

export function clusterApiCompliance(t: Test, factory: ClusterFactory): void {
  cacheTests(t, factory)
  applyTests(t, factory)
  statusTests(t, factory)
  conditionTests(t, factory)
  removeTests(t, factory)
  userTests(t, factory)
  eventTests(t, factory)
}

function cacheTests(t: Test, factory: ClusterFactory): void {
  t.test('a cache tells what it finds, then that it is synced, then each change', async (t) => {
    const { api, put, drop } = await factory(t)
    await put(service('web'))
    const cache = api.cache('Service')
    t.equal(cache.synced, false)
    t.same(cache.list(), [])
    const changes: (ObjectChange<Service> | undefined)[] = []
    const stop = cache.onChange((change) => changes.push(change))
    await cache.whenSynced(deadline())
    t.same(record(changes), ['set web', 'synced'])
    await put(service('api'))
    await eventually(() => changes.length === 3)
    await put(service('api', 81))
    await eventually(() => changes.length === 4)
    const last = changes[3]
    t.equal(last?.type === 'set' && last.previous?.spec?.ports?.[0]?.port, 80)
    await drop('Service', 'web', 'shop')
    await eventually(() => changes.length === 5)
    t.same(record(changes), ['set web', 'synced', 'set api', 'set api', 'removed web'])
    stop()
    await put(service('later'))
    await eventually(() => cache.get('later', 'shop'))
    t.equal(changes.length, 5, 'silent after the listener ended')
  })

  t.test('a cache lists in order of namespace and name and does not let itself be changed', async (t) => {
    const { api, put } = await factory(t)
    for (const name of ['c', 'a', 'b']) await put(service(name))
    await put({ ...service('z'), metadata: { name: 'z', namespace: 'aaa' } })
    const cache = api.cache('Service')
    await cache.whenSynced(deadline())
    await eventually(() => cache.list().length === 4)
    t.same(
      cache.list().map(({ metadata }) => metadata.name),
      ['z', 'a', 'b', 'c'],
    )
    t.equal(api.cache('Service'), cache, 'one cache for all')
    t.throws(() => ((cache.list()[0] as { kind: string }).kind = 'x'), TypeError)
  })

  t.test('whenSynced rejects with the reason of its signal', async (t) => {
    const { api } = await factory(t)
    await t.rejects(api.cache('Pod').whenSynced(AbortSignal.abort(new Error('enough'))), { message: 'enough' })
  })

  t.test('a namespace exists while anything of the user lives in it', async (t) => {
    const { api, put, drop, differences } = await factory(t)
    if (differences?.namespacesAreMade === true) return
    const cache = api.cache('Namespace')
    await cache.whenSynced(deadline())
    await put(service('web'))
    await eventually(() => cache.get('shop'))
    await api.apply(serviceImport('web'))
    await drop('Service', 'web', 'shop')
    await eventually(() => cache.get('shop') === undefined)
    await put(namespaceObject('shop'))
    await eventually(() => cache.get('shop')?.metadata.uid !== undefined)
  })
}

function applyTests(t: Test, factory: ClusterFactory): void {
  t.test('apply creates with a uid, replaces, and does nothing when nothing differs', async (t) => {
    const { api } = await factory(t)
    const cache = api.cache('ServiceImport')
    await cache.whenSynced(deadline())
    await api.apply(serviceImport('web'))
    const first = cache.get('web', 'shop')
    t.match(first, { metadata: { generation: 1, labels: { a: 'b' } }, spec: { ips: ['245.0.0.7'] } })
    t.ok(first?.metadata.uid)
    t.match(first?.metadata.creationTimestamp, /^\d{4}-.*Z$/)
    let changes = 0
    cache.onChange(() => (changes += 1))
    await api.apply(serviceImport('web'))
    t.equal(changes, 0)
    await api.apply(serviceImport('web', 81))
    t.match(cache.get('web', 'shop'), { metadata: { generation: 2, uid: first?.metadata.uid } })
    const { labels: _labels, ...bare } = serviceImport('web', 81).metadata
    await api.apply({ ...serviceImport('web', 81), metadata: bare })
    t.equal(cache.get('web', 'shop')?.metadata.generation, 2, 'labels are no new generation')
    t.notOk(cache.get('web', 'shop')?.metadata.labels?.['a'], 'labels are replaced')
  })

  t.test(
    'apply sets the owners of what a node tells, replaces them, and does nothing when they are the same',
    async (t) => {
      const { api } = await factory(t)
      const cache = api.cache('Gateway')
      await cache.whenSynced(deadline())
      const owner = (uid: string) => ({ apiVersion: 'v1', kind: 'Node', name: 'n1', uid })
      const owned = (...uids: string[]): Gateway => gatewayObject('n1', undefined, { ownerReferences: uids.map(owner) })
      const owners = (): string[] => (cache.get('n1')?.metadata.ownerReferences ?? []).map(({ uid }) => uid)
      await api.apply(owned('first'))
      t.same(owners(), ['first'])
      let changes = 0
      cache.onChange(() => (changes += 1))
      await api.apply(owned('first'))
      t.equal(changes, 0)
      await api.apply(owned('second'))
      t.same(owners(), ['second'], 'a Node of the same name that was made anew')
      await api.apply(owned())
      t.same(owners(), [])
    },
  )

  t.test('apply shows in every process', async (t) => {
    const { api, other } = await factory(t)
    const cache = other.cache('ServiceImport')
    await cache.whenSynced(deadline())
    await api.apply(serviceImport('web'))
    const mine = api.cache('ServiceImport').get('web', 'shop')
    await eventually(() => cache.get('web', 'shop'))
    t.same(cache.get('web', 'shop'), mine)
  })

  t.test('applies of one object end in the order they began', async (t) => {
    const { api } = await factory(t)
    await api.cache('ServiceImport').whenSynced(deadline())
    await Promise.all([1, 2, 3, 4, 5].map((port) => api.apply(serviceImport('web', port))))
    t.equal(api.cache('ServiceImport').get('web', 'shop')?.spec.ports[0]?.port, 5)
  })

  t.test('impossible names and namespaces are Invalid', async (t) => {
    const { api } = await factory(t)
    const rows = [
      {
        name: '../x',
        namespace: 'shop',
        message: 'ServiceImport shop/../x: metadata.name "../x": expected an RFC 1123 subdomain',
      },
      {
        name: 'web',
        namespace: 'a/b',
        message: 'ServiceImport a/b/web: metadata.namespace "a/b": expected an RFC 1123 label',
      },
      {
        name: 'web',
        namespace: undefined,
        message: 'ServiceImport web: metadata.namespace "": expected an RFC 1123 label',
      },
    ]
    for (const { name, namespace, message } of rows) {
      const metadata = namespace === undefined ? { name } : { name, namespace }
      await t.rejects(api.apply({ ...serviceImport('web'), metadata }), { code: 'Invalid', message })
    }
    const scoped = { ...gateway('gw'), metadata: { name: 'gw', namespace: 'shop' } }
    await t.rejects(api.apply(scoped), { code: 'Invalid', message: /expected none, the kind is cluster-scoped/ })
  })

  t.test('after close, and with a signal that is aborted, nothing is written', async (t) => {
    const { api, other } = await factory(t)
    await t.rejects(api.apply(serviceImport('web'), AbortSignal.abort(new Error('enough'))), { message: 'enough' })
    if (other === api) return
    await api.close()
    await t.rejects(api.apply(serviceImport('web')), { code: 'Unavailable' })
    await other.cache('ServiceImport').whenSynced(deadline())
    t.same(other.cache('ServiceImport').list(), [])
  })
}

function statusTests(t: Test, factory: ClusterFactory): void {
  t.test('applyStatus needs the object, replaces the status, and survives apply', async (t) => {
    const { api } = await factory(t)
    const cache = api.cache('Gateway')
    await t.rejects(api.applyStatus(gateway('gw')), { code: 'NotFound', message: 'Gateway gw does not exist' })
    await api.apply(gateway('gw'))
    t.notOk(cache.get('gw')?.status, 'apply leaves the status alone')
    await api.applyStatus(gateway('gw'))
    t.equal(cache.get('gw')?.status?.version, '1')
    let changes = 0
    cache.onChange(() => (changes += 1))
    await api.applyStatus(gateway('gw'))
    t.equal(changes, 0)
    await api.applyStatus(gateway('gw', '2'))
    await api.apply({ ...gateway('gw'), metadata: { name: 'gw', labels: { x: 'y' } } })
    t.match(cache.get('gw'), { metadata: { labels: { x: 'y' }, generation: 1 }, status: { version: '2' } })
  })

  t.test('the status of a user object goes with it', async (t) => {
    const { api, other, put, drop } = await factory(t)
    const cache = api.cache('ServiceExport')
    const seen = other.cache('ServiceExport')
    await Promise.all([cache.whenSynced(deadline()), seen.whenSynced(deadline())])
    await put(serviceExport('web'))
    const first = await eventually(() => cache.get('web', 'shop'))
    const conditions = [
      { type: 'Valid', status: 'True', reason: 'Valid', message: '', lastTransitionTime: '2026-01-01T00:00:00Z' },
    ] as const
    await eventually(async () => {
      await api.applyStatus({ ...first, status: { conditions } })
      return true
    })
    await eventually(() => seen.get('web', 'shop')?.status?.conditions?.length === 1)
    await drop('ServiceExport', 'web', 'shop')
    await eventually(() => cache.get('web', 'shop') === undefined && seen.get('web', 'shop') === undefined)
    await put(serviceExport('web'))
    const second = await eventually(() => cache.get('web', 'shop'))
    t.not(second.metadata.uid, first.metadata.uid, 're-created: a new uid')
    t.equal(second.status, undefined)
    await eventually(() => seen.get('web', 'shop')?.metadata.uid === cache.get('web', 'shop')?.metadata.uid)
  })
}

function removeTests(t: Test, factory: ClusterFactory): void {
  t.test('remove takes object and status; absent is fine; a new one has a new uid', async (t) => {
    const { api, other } = await factory(t)
    const cache = api.cache('Gateway')
    await api.remove('Gateway', 'gw')
    await api.apply(gateway('gw'))
    await api.applyStatus(gateway('gw'))
    const uid = cache.get('gw')?.metadata.uid
    await other.cache('Gateway').whenSynced(deadline())
    await eventually(() => other.cache('Gateway').get('gw'))
    await api.remove('Gateway', 'gw')
    t.equal(cache.get('gw'), undefined)
    await eventually(() => other.cache('Gateway').get('gw') === undefined)
    await api.apply(gateway('gw'))
    t.equal(cache.get('gw')?.status, undefined)
    t.not(cache.get('gw')?.metadata.uid, uid)
  })
}

function userTests(t: Test, factory: ClusterFactory): void {
  t.test("the user's own objects are neither overwritten nor removed", async (t) => {
    const { api, put } = await factory(t)
    await put(service('web'))
    await api.cache('Service').whenSynced(deadline())
    await eventually(() => api.cache('Service').get('web', 'shop'))
    await t.rejects(api.apply(service('web', 81)), {
      code: 'Forbidden',
      message: "Service shop/web is the user's own and is not overwritten",
    })
    await t.rejects(api.remove('Service', 'web', 'shop'), {
      code: 'Forbidden',
      message: "Service shop/web is the user's own and is not removed",
    })
  })

  t.test('user objects get uid, creation time and a generation that counts changes', async (t) => {
    const { api, put, differences } = await factory(t)
    const cache = api.cache('Service')
    await cache.whenSynced(deadline())
    await put(service('web'))
    const first = await eventually(() => cache.get('web', 'shop'))
    t.ok(first.metadata.uid)
    t.match(first.metadata.creationTimestamp, /^\d{4}-\d{2}-\d{2}T/)
    await put(service('web', 81))
    await eventually(() => cache.get('web', 'shop')?.spec?.ports?.[0]?.port === 81)
    if (differences?.servicesWithoutGeneration !== true) {
      t.equal(first.metadata.generation, 1)
      t.equal(cache.get('web', 'shop')?.metadata.generation, 2)
    }
    t.equal(cache.get('web', 'shop')?.metadata.uid, first.metadata.uid)
    t.equal(cache.get('web', 'shop')?.spec?.ports?.[0]?.port, 81)
  })

  t.test('what the user writes hides what we applied, and uncovers it again', async (t) => {
    const { api, put, drop, differences } = await factory(t)
    if (differences?.oneLayer === true) return
    const cache = api.cache('Service')
    await api.apply(service('web', 1))
    await put(service('web', 2))
    await eventually(() => cache.get('web', 'shop')?.spec?.ports?.[0]?.port === 2)
    await drop('Service', 'web', 'shop')
    await eventually(() => cache.get('web', 'shop')?.spec?.ports?.[0]?.port === 1)
  })
}

function eventTests(t: Test, factory: ClusterFactory): void {
  t.test('tell tells once, again when something else is to be said, and never throws', async (t) => {
    const { api, put, reported } = await factory(t)
    await put(serviceExport('web'))
    const event = (note: string, name = 'web'): ObjectEvent => ({
      regarding: { kind: 'ServiceExport', name, namespace: 'shop' },
      type: 'Warning',
      reason: 'Conflict',
      note,
    })
    api.report(event('the ports differ'))
    api.report(event('the ports differ'))
    api.report(event('the types differ'))
    api.report({ ...event('x'.repeat(5000)), type: 'Normal', reason: 'Imported' })
    await eventually(async () => (await reported()).length >= 3)
    const lines = [...(await reported())].sort()
    t.same(lines.slice(1), ['Warning Conflict: the ports differ', 'Warning Conflict: the types differ'])
    t.match(lines[0], /^Normal Imported: x+…$/)
    t.ok(Buffer.byteLength(lines[0] ?? '') <= 1024 + 'Normal Imported: '.length, 'cut')
    await api.close()
    t.doesNotThrow(() => api.report(event('too late')))
  })
}
