/** Failures of a real API server cost its clients time and nothing else; see also bad-minute.test.ts. */
import t from 'tap'
import type { KubeApi } from '../../../kubeapi/kube/kube-api.ts'
import { service, serviceImport } from '../../compliance/cluster-api.ts'
import { eventually } from '../../support/eventually.ts'
import { silentProxy } from '../../support/silent-proxy.ts'
import { kubeProgramsMissing } from '../support/kube-programs.ts'
import { writeKubeconfig } from '../support/kubeconfig-file.ts'
import { empty, open, put, startApiServer } from './api-server.ts'
import { faultProxy } from './fault-proxy.ts'

t.setTimeout(1_200_000)

const LONG = { deadlineMs: 60_000 }
const SHOP = '/api/v1/namespaces/shop/services'

t.test('one API server', { skip: kubeProgramsMissing() ?? false }, async (t) => {
  const plane = await startApiServer(t)
  const { api: server } = plane
  const selectors = { Service: { namespace: 'shop' } }

  /** Retries the apply until it succeeds, as a loop does. */
  const applied = (api: KubeApi, name: string): Promise<boolean> =>
    eventually(async () => (await api.apply(serviceImport(name)), true), LONG)

  await t.test('it is killed, changes while nobody looks, and comes back', async (t) => {
    await empty(server)
    await put(server, service('stays'))
    await put(server, service('goes'))
    const { api } = await open(t, { ...plane, selectors })
    const cache = api.cache('Service')
    await cache.whenSynced(AbortSignal.timeout(10_000))
    const reported: string[] = []
    cache.onChange((change) => reported.push(`${change?.type ?? ''} ${change?.object.metadata.name ?? ''}`))
    await plane.kill('kube-apiserver')
    t.equal(cache.list().length, 2, 'what is known stays known')
    await t.rejects(api.apply(serviceImport('web')), { code: 'Unavailable' })
    await plane.restart('kube-apiserver')
    await server.delete(`${SHOP}/goes`)
    await put(server, service('new'))
    await eventually(() => cache.get('new', 'shop') !== undefined && cache.get('goes', 'shop') === undefined, LONG)
    await applied(api, 'web')
    t.same(reported.sort(), ['removed goes', 'set new'], 'and nothing else')
  })

  await t.test('it is killed again and again while everything is written', async (t) => {
    await empty(server)
    const { api } = await open(t, plane)
    const names = Array.from({ length: 40 }, (_one, i) => `s${i}`)
    const writing = Promise.all(names.map((name) => applied(api, name)))
    for (let i = 0; i < 2; i += 1) await plane.restart('kube-apiserver')
    await writing
    t.equal((await server.list('/apis/multicluster.x-k8s.io/v1beta1/serviceimports')).length, names.length)
    await eventually(() => api.cache('ServiceImport').list().length === names.length, LONG)
  })

  await t.test('the way to it goes silent: noticed within 30 s', async (t) => {
    await empty(server)
    const proxy = await silentProxy(t, { host: '127.0.0.1', port: Number(new URL(plane.url).port) })
    const admin = await plane.ca.issue({ name: 'kubernetes-admin', groups: ['system:masters'] })
    const kubeconfig = writeKubeconfig(`${plane.kubeconfig}-silent`, {
      cluster: 'c1',
      user: 'admin',
      url: `https://127.0.0.1:${proxy.port}`,
      ca: plane.ca.certificate,
      credentials: admin,
    })
    const { api } = await open(t, { kubeconfig, selectors })
    const cache = api.cache('Service')
    await cache.whenSynced(AbortSignal.timeout(10_000))
    const before = proxy.accepted()
    proxy.silence()
    const silent = performance.now()
    await put(server, service('unheard'))
    await eventually(() => cache.get('unheard', 'shop'), { deadlineMs: 30_000 })
    t.comment(`noticed after ${Math.round(performance.now() - silent)} ms`)
    t.equal(proxy.accepted(), before + 1, 'one new connection for everything')
  })

  await t.test('it has forgotten the version that a watch goes on from', async (t) => {
    await empty(server)
    const proxy = await faultProxy(t, plane)
    const { api, logger } = await open(t, { kubeconfig: proxy.kubeconfig, selectors })
    const cache = api.cache('Service')
    await cache.whenSynced(AbortSignal.timeout(10_000))
    // The watch must have lived for a second, because otherwise its end would count as a failure.
    await put(server, service('old'))
    await eventually(() => cache.get('old', 'shop'))
    await new Promise((resolve) => setTimeout(resolve, 1100))
    proxy.freeze()
    await server.delete(`${SHOP}/old`)
    await put(server, service('new'))
    // The restarted server has the present objects, and no earlier revisions.
    await plane.restart('kube-apiserver')
    proxy.end()
    await eventually(() => cache.get('new', 'shop') !== undefined && cache.get('old', 'shop') === undefined, LONG)
    t.ok(logger.messages('debug').some((line) => /too old resource version.*\(410 Expired\)$/.test(line)))
    t.same(logger.messages('warn'), [])
  })
})
