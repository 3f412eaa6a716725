/**
 * A real API server that fails for a whole minute by its clients' clock costs them time and nothing else. Three servers
 * fail at once: one answers 429, one answers 500, and one has lost its etcd.
 */
import t, { type Test } from 'tap'
import type { KubeApi } from '../../../kubeapi/kube/kube-api.ts'
import { kindPath } from '../../../kubeapi/kube/kinds.ts'
import type { KubeObject, Service } from '../../../model/objects.ts'
import type { Clock } from '../../../reconcile/clock.ts'
import { DEFAULT_LOOP, ReconcileLoop } from '../../../reconcile/loop.ts'
import { service, serviceImport } from '../../compliance/cluster-api.ts'
import { eventually } from '../../support/eventually.ts'
import { FastClock } from '../../support/fast-clock.ts'
import type { ControlPlane } from '../support/control-plane.ts'
import { kubeProgramsMissing } from '../support/kube-programs.ts'
import { open, put, startApiServer } from './api-server.ts'
import { type FaultProxy, faultProxy } from './fault-proxy.ts'

t.setTimeout(600_000)

/** The client's clock runs faster by this factor, so its pauses are shorter; the test limits its number of requests. */
const FASTER = 3
const MINUTE_MS = 60_000 / FASTER
/** From the end of the minute until the copy is right: the longest pause between two tries, with a margin. */
const RIGHT_AGAIN_MS = 10_000 / FASTER + 5000
const WRITTEN = ['w0', 'w1', 'w2', 'w3', 'w4']
const SERVICES = Array.from({ length: 30 }, (_one, i) => `s${i}`)

interface BadMinute {
  readonly say: string
  /** The most requests of one client in the minute: it follows two kinds and has five objects to write. */
  readonly most: number
  begin(plane: ControlPlane, proxy: FaultProxy): Promise<void>
  end(plane: ControlPlane, proxy: FaultProxy): Promise<void>
  /** Servers that only answer with errors share one API server, on which others can write meanwhile. */
  readonly server: 'shared' | 'own'
  readonly namespace: string
}

function answering(status: number, retryAfter: number | undefined): Pick<BadMinute, 'begin' | 'end' | 'server'> {
  return {
    server: 'shared',
    async begin(_plane, proxy) {
      Object.assign(proxy, { status, retryAfter })
      proxy.cut()
    },
    async end(_plane, proxy) {
      proxy.status = undefined
    },
  }
}

const MINUTES: readonly BadMinute[] = [
  { say: 'it answers 429 and says when to come again', namespace: 'shop', most: 150, ...answering(429, 2) },
  { say: 'it answers 500', namespace: 'aaa', most: 200, ...answering(500, undefined) },
  {
    say: 'it has lost its etcd',
    namespace: 'shop',
    most: 30,
    server: 'own',
    begin: (plane) => plane.kill('etcd'),
    end: (plane) => plane.restart('etcd'),
  },
]

t.test('a bad minute', { skip: kubeProgramsMissing() ?? false, jobs: MINUTES.length, buffered: false }, async (t) => {
  const [shared, own] = await Promise.all([startApiServer(t), startApiServer(t)])
  await Promise.all(
    MINUTES.map((minute) => t.test(minute.say, (t) => outlives(t, minute, minute.server === 'own' ? own : shared))),
  )
})

async function outlives(t: Test, minute: BadMinute, plane: ControlPlane): Promise<void> {
  const { namespace } = minute
  const { api: server } = plane
  const clock = new FastClock(FASTER)
  const at = <T extends KubeObject>(object: T): T => ({ ...object, metadata: { ...object.metadata, namespace } })
  for (const name of SERVICES) await put(server, at(service(name)))
  const proxy = await faultProxy(t, plane)
  const selectors = { Service: { namespace }, ServiceImport: { namespace } }
  const { api, logger } = await open(t, { kubeconfig: proxy.kubeconfig, selectors }, clock)
  const cache = api.cache('Service')
  await cache.whenSynced(AbortSignal.timeout(10_000))
  const reported: string[] = []
  cache.onChange((change) => reported.push(`${change?.type ?? ''} ${change?.object.metadata.name ?? ''}`))
  const before = copyOf(api)

  await minute.begin(plane, proxy)
  const ends = performance.now() + MINUTE_MS
  const requestsBefore = proxy.requests
  await t.rejects(
    api.apply(at(serviceImport('one'))),
    { code: 'Unavailable' },
    'a write says that it did not go through',
  )
  const writer = writing(t, clock, () => Promise.all(WRITTEN.map((name) => api.apply(at(serviceImport(name))))))
  const changes = async (): Promise<void> => {
    await server.delete(`${kindPath('Service', namespace)}/s0`)
    await put(server, at(service('s1', 81)))
    await put(server, at(service('new')))
  }
  if (minute.server === 'shared') await changes()
  const passed = (ms: number): Promise<true> =>
    eventually(() => performance.now() >= ms, { deadlineMs: 2 * MINUTE_MS, say: 'the minute passes' })
  await passed((ends + performance.now()) / 2)
  const firstHalf = proxy.requests - requestsBefore
  await passed(ends)
  const requests = proxy.requests - requestsBefore
  t.comment(`${minute.say}: ${firstHalf} requests in half a minute, ${requests} in all`)
  t.ok(requests <= minute.most, `${requests} requests in the minute, at most ${minute.most}`)
  t.ok(requests - firstHalf <= firstHalf + 10, 'pauses do not get shorter')
  t.strictSame(copyOf(api), before, 'what is known stays known')
  t.strictSame(reported, [], 'and nobody is told otherwise')
  t.equal(writer.done(), 0, 'no write was taken for done')

  await minute.end(plane, proxy)
  const over = performance.now()
  if (minute.server === 'own') await changes()
  const truth = async (): Promise<string[]> =>
    (await server.list<Service>(kindPath('Service', namespace))).map(line).sort()
  const soon = { deadlineMs: RIGHT_AGAIN_MS }
  await eventually(async () => copyOf(api).join() === (await truth()).join(), { ...soon, say: 'the copy is right' })
  await eventually(() => writer.done() > 0, { ...soon, say: 'everything is written' })
  t.comment(`${minute.say}: right again after ${Math.round(performance.now() - over)} ms`)
  t.strictSame([...reported].sort(), ['removed s0', 'set new', 'set s1'], 'each change is told once, and nothing else')
  const written = await server.list<KubeObject>(kindPath('ServiceImport', namespace))
  t.strictSame(
    written.map(({ metadata }) => `${metadata.name} ${metadata.generation}`).sort(),
    WRITTEN.map((name) => `${name} 1`),
    'each object is written once',
  )
  t.ok(logger.messages('warn').length <= 10, `troubles are told, not repeated: ${logger.messages('warn').join('; ')}`)
}

/** Writes as every component does: in a loop that waits longer after each failure. */
function writing(t: Test, clock: Clock, write: () => Promise<unknown>): { done(): number } {
  let done = 0
  const stopping = new AbortController()
  const deps = { clock, onError: () => undefined }
  const loop = new ReconcileLoop(deps, DEFAULT_LOOP, async () => {
    await write()
    done += 1
  })
  const ended = loop.run(stopping.signal)
  t.teardown(async () => {
    stopping.abort()
    await ended
  })
  return { done: () => done }
}

/** The client's copy as text, for comparison with the server's. */
function copyOf(api: KubeApi): string[] {
  return api.cache('Service').list().map(line).sort()
}

function line({ metadata, spec }: Service): string {
  return `${metadata.name} ${metadata.uid} ${(spec?.ports ?? []).map(({ port }) => port).join()}`
}
