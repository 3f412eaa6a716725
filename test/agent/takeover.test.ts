/** Two agents of one cluster take turns: whenever the leader dies, the other continues from the same state. */
import t from 'tap'
import { agentConfig } from '../../agent/loop/config.ts'
import { runAgent } from '../../agent/main.ts'
import type { ObjectCache } from '../../kubeapi/cluster-api.ts'
import { MemoryApi } from '../../kubeapi/memory/memory-api.ts'
import type { Kind, KubeObject, ObjectKinds } from '../../model/objects.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../runtime/component.ts'
import { eventually } from '../support/eventually.ts'
import { namespaceObject } from '../support/objects/service-objects.ts'
import { Site, service, slice } from './site.ts'
import { FakeClusterset } from './fake-clusterset.ts'
import { until } from './until.ts'

/** An API that counts listeners, and that calls back before each write, so that a test can kill the writer there. */
class WatchedCluster extends MemoryApi {
  listeners = 0
  beforeWrite: () => void = () => undefined

  override cache<K extends Kind>(kind: K): ObjectCache<ObjectKinds[K]> {
    return new Proxy(super.cache(kind), {
      get: (target, property) => {
        if (property === 'onChange') {
          return (listener: Parameters<typeof target.onChange>[0]) => {
            this.listeners += 1
            const stop = target.onChange(listener)
            return () => {
              this.listeners -= 1
              stop()
            }
          }
        }
        const value: unknown = Reflect.get(target, property, target)
        return typeof value === 'function' ? (value.bind(target) as unknown) : value
      },
    })
  }

  override async apply(object: KubeObject, signal?: AbortSignal): Promise<void> {
    this.beforeWrite()
    await super.apply(object, signal)
  }

  override async applyStatus(object: KubeObject, signal?: AbortSignal): Promise<void> {
    this.beforeWrite()
    await super.applyStatus(object, signal)
  }

  override async remove(kind: Kind, name: string, namespace?: string, signal?: AbortSignal): Promise<void> {
    this.beforeWrite()
    await super.remove(kind, name, namespace, signal)
  }
}

/** An elector that gives a free lead at once to the agent that was not the last leader. */
class Rivals {
  readonly logger = new CapturingLogger()
  terms = 0
  #stop = new AbortController()
  #done: Promise<void> = Promise.resolve()
  readonly #processes

  constructor(api: MemoryApi, set: FakeClusterset, id: string) {
    // Each process has its own registry, status and clock, and a process may lead again.
    this.#processes = [0, 1].map(() => {
      const parts = { api: api, clock: new SystemClock(), logger: this.logger }
      const deps = { ...parts, metrics: createMetrics('agent'), status: new StatusBoard() }
      return (signal: AbortSignal) =>
        runAgent({ ...deps, openLink: () => Promise.resolve(set.link(id)) }, agentConfig('unused'), signal)
    })
  }

  lead(): void {
    this.#stop = new AbortController()
    const process = this.#processes[this.terms++ % 2]!
    this.#done = process(this.#stop.signal)
  }

  kill(): void {
    this.#stop.abort(new Error('killed'))
  }

  async dead(): Promise<void> {
    await this.#done
  }
}

t.test('the leader dies at any write: nothing that stands is lost, everything that comes arrives', async (t) => {
  const set = new FakeClusterset()
  const api = new WatchedCluster()
  const milano = new Site(set, { id: 'milano', podCIDR: '10.42.0.0/16', globalCIDR: '244.1.0.0/16' })
  const tokyo = new Site(set, { id: 'tokyo', podCIDR: '10.42.0.0/16', globalCIDR: '244.3.0.0/16', api })
  for (const site of [milano, tokyo]) {
    await site.join()
    site.api.put(namespaceObject('shop'))
  }
  milano.start()
  const rivals = new Rivals(api, set, 'tokyo')
  t.teardown(async () => {
    rivals.kill()
    await Promise.all([rivals.dead(), milano.stop()])
  })
  for (const [site, name] of [
    [milano, 'theirs'],
    [tokyo, 'ours'],
  ] as const) {
    site.api.put(service('shop', name))
    site.api.put(slice('shop', name, '10.42.0.5'))
    site.export('shop', name)
  }
  rivals.lead()
  const exported = 'Valid=True/Valid Ready=True/Exported Conflict=False/NoConflicts'
  await until(t, () => [tokyo.show().length, tokyo.conditions('shop', 'ours')], [2, exported], 'at first')
  await until(t, () => milano.show().length, 2, 'both see both')
  // The first round of the leader is complete once it has written its properties, Leases and statuses.
  await eventually(() => api.cache('Lease').list().length === 1)

  const listeners = api.listeners
  const lost: string[] = []
  for (const kind of ['ServiceImport', 'EndpointSlice', 'Lease', 'ClusterProperty'] as const) {
    api.cache(kind).onChange((change) => {
      if (change?.type === 'removed' && !change.object.metadata.name.startsWith('n')) {
        lost.push(`${kind} ${change.object.metadata.name}`)
      }
    })
  }
  const watched = api.listeners - listeners
  api.cache('ServiceExport').onChange((change) => {
    if (change?.object.metadata.name !== 'ours') return
    const ready = change.object.status?.conditions?.find(({ type }) => type === 'Ready')
    if (ready?.status !== 'True') lost.push('ours is not ready')
  })

  for (let round = 1; round <= 24; round += 1) {
    let writes = round % 8
    api.beforeWrite = () => {
      writes -= 1
      if (writes < 0) rivals.kill()
    }
    const name = `n${round}`
    milano.api.put(service('shop', name))
    milano.api.put(slice('shop', name, '10.42.0.6'))
    milano.export('shop', name)
    tokyo.api.put(service('shop', `n-own${round}`))
    tokyo.export('shop', `n-own${round}`)
    if (round > 1) milano.api.drop('ServiceExport', `n${round - 1}`, 'shop')
    await new Promise((resolve) => setImmediate(resolve))
    rivals.kill()
    await rivals.dead()
    api.beforeWrite = () => undefined
    rivals.lead()
    await until(
      t,
      () => [
        tokyo.show().filter((line) => /\/n\d/.test(line)).length,
        tokyo.show().some((line) => line.includes(`/${name} `)),
        tokyo.conditions('shop', `n-own${round}`),
        milano.show().some((line) => line.includes(`/n-own${round} `)),
      ],
      [1, true, exported, true],
      `round ${round}`,
    )
  }
  t.same(lost, [], 'no import and no export was lost on the way')
  t.same(
    rivals.logger.lines.filter(({ level }) => level === 'warn' || level === 'error'),
    [],
    'and nobody complained',
  )
  t.equal(api.listeners, listeners + watched + 1, 'who has ended listens no more')
})

t.test('the lead may be lost before anything has begun', async (t) => {
  const api = new WatchedCluster({ hold: true })
  const rivals = new Rivals(api, new FakeClusterset(), 'tokyo')
  rivals.lead()
  rivals.kill()
  await rivals.dead()
  rivals.lead()
  api.release()
  await new Promise((resolve) => setImmediate(resolve))
  rivals.kill()
  await rivals.dead()
  t.equal(api.listeners, 0)
  t.same(api.writes, [])
})
