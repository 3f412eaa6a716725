/**
 * Nodes leave a site without Kubernetes: the agent removes the objects that they wrote about themselves, and withdraws
 * them from the other clusters.
 */
import t, { type Test } from 'tap'
import { agentConfig } from '../../agent/loop/config.ts'
import { agentMetrics } from '../../agent/loop/metrics.ts'
import { MirrorWriter } from '../../agent/loop/mirror-writer.ts'
import { OrphanLoop } from '../../agent/cluster/dead-nodes.ts'
import { planOrphans } from '../../agent/cluster/plan-orphans.ts'
import { MemoryApi } from '../../kubeapi/memory/memory-api.ts'
import { ownedByNode } from '../../model/node-owner.ts'
import type { Endpoint, Gateway, KubeObject, Node, RouteAgent } from '../../model/objects.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'
import { eventually } from '../support/eventually.ts'
import { endpointObject } from '../support/objects/cluster-objects.ts'
import { gatewayObject, nodeObject, routeAgentObject } from '../support/objects/node-objects.ts'
import { Site } from './site.ts'
import { FakeClusterset } from './fake-clusterset.ts'
import { until } from './until.ts'

const node = (name: string): Node => nodeObject(name, { metadata: { uid: `uid of ${name}` } })

function endpoint(cluster: string, of: string, owned = ownedByNode(node(of))): Endpoint {
  return endpointObject({ cluster, node: of }, owned)
}

const gateway = (of: string): Gateway => gatewayObject(of, undefined, ownedByNode(node(of)))
const routeAgent = (of: string): RouteAgent => routeAgentObject(of, undefined, ownedByNode(node(of)))

t.test('only what names a Node that is gone', async (t) => {
  const objects = [
    endpoint('milano', 'n1'),
    gateway('n1'),
    routeAgent('n2'),
    endpoint('milano', 'n3', {}),
    endpoint('paris', 'n1', {}),
  ]
  const orphans = (...nodes: Node[]): string[] =>
    planOrphans(objects, nodes).map(({ kind, metadata }) => `${kind} ${metadata.name}`)
  t.strictSame(orphans(node('n1'), node('n2')), [])
  t.strictSame(orphans(node('n2')), ['Endpoint milano.n1-lane0', 'Gateway n1'])
  t.strictSame(orphans(node('n3')), ['Endpoint milano.n1-lane0', 'Gateway n1', 'RouteAgent n2'])
  t.strictSame(orphans(), [], 'no Nodes at all: the folder may be empty for a moment')
  const again = { ...node('n1'), metadata: { name: 'n1', uid: 'another' } }
  t.strictSame(orphans(again, node('n2')), [], 'a Node that was put back is the same machine')
})

t.test('a gateway node is taken out of the site: the other clusters lose its Endpoint', async (t) => {
  const set = new FakeClusterset()
  const milano = new Site(set, {
    id: 'milano',
    podCIDR: '10.42.0.0/16',
    config: { removesOrphans: true, orphanGraceMs: 50 },
  })
  const paris = new Site(set, { id: 'paris', podCIDR: '10.52.0.0/16' })
  t.teardown(() => Promise.all([milano.stop(), paris.stop()]).then(() => undefined))
  for (const site of [milano, paris]) {
    await site.join()
    site.start()
  }
  const there = (): string[] =>
    paris.api
      .cache('Endpoint')
      .list()
      .map(({ metadata }) => metadata.name)
  milano.api.put(node('n1'))
  milano.api.put(node('n2'))
  for (const object of [endpoint('milano', 'n1'), gateway('n1'), routeAgent('n1'), routeAgent('n2')]) {
    await milano.api.apply(object)
  }
  await milano.api.apply(endpoint('milano', 'unowned', {}))
  await until(t, there, ['milano.n1-lane0', 'milano.unowned-lane0'], 'both Endpoints are in the other cluster')

  milano.api.drop('Node', 'n1')
  await until(t, there, ['milano.unowned-lane0'], 'that of the node is gone there')
  const here = (): string[] =>
    (['Endpoint', 'Gateway', 'RouteAgent'] as const)
      .flatMap((kind): readonly KubeObject[] => milano.api.cache(kind).list())
      .map(({ kind, metadata }) => `${kind} ${metadata.name}`)
  await until(t, here, ['Endpoint milano.unowned-lane0', 'RouteAgent n2'], 'and all of it is gone here')
})

/** Starts the loop alone, with the Endpoint of n1, on a clock that only the test moves. */
async function looping(t: Test, init: { readonly hold?: boolean } = {}) {
  const clock = new FakeClock()
  const api = new MemoryApi({ clock, ...init })
  const parts = { api: api, clock, logger: new CapturingLogger(), metrics: agentMetrics(createMetrics('agent')) }
  const config = agentConfig('unused')
  const loop = new OrphanLoop({ ...parts, writer: new MirrorWriter(parts) }, config)
  const stop = new AbortController()
  const running = loop.run(stop.signal)
  t.teardown(() => {
    stop.abort()
    return running
  })
  await api.apply(endpoint('milano', 'n1'))
  const isThere = (): boolean => api.get('Endpoint', 'milano.n1-lane0') !== undefined
  return { clock, api, isThere, graceMs: config.orphanGraceMs }
}

t.test('Nodes that have not been read say nothing', async (t) => {
  const { clock, api, isThere } = await looping(t, { hold: true })
  api.put(node('n2'))
  await clock.advance(120_000)
  t.ok(isThere())
  api.release()
  await eventually(async () => {
    await clock.advance(1000)
    return !isThere()
  })
  t.notOk(isThere(), 'read, and there is no such Node')
})

t.test('a folder without any Node says nothing', async (t) => {
  const { clock, api, isThere } = await looping(t)
  api.put(node('n1'))
  await clock.advance(1000)
  api.drop('Node', 'n1')
  await clock.advance(120_000)
  t.ok(isThere())
})

t.test('a file that is removed and put back at once takes nothing away', async (t) => {
  const { clock, api, isThere, graceMs } = await looping(t)
  api.put(node('n1'))
  api.put(node('n2'))
  for (let i = 0; i < 3; i += 1) {
    await clock.advance(1000)
    api.drop('Node', 'n1')
    await clock.advance(graceMs - 100)
    t.ok(isThere(), 'away for a moment')
    api.put(node('n1'))
  }
  await clock.advance(120_000)
  t.ok(isThere())
  api.drop('Node', 'n1')
  await clock.advance(graceMs - 100)
  t.ok(isThere())
  await clock.advance(200)
  t.notOk(isThere(), 'away for longer')
})

t.test('on Kubernetes it is not the agent that removes it', async (t) => {
  const set = new FakeClusterset()
  const milano = new Site(set, { id: 'milano', podCIDR: '10.42.0.0/16' })
  t.teardown(() => milano.stop())
  await milano.join()
  milano.start()
  await milano.api.apply(endpoint('milano', 'n1'))
  await until(t, () => milano.status.notReady(), [], 'the agent runs')
  t.ok(milano.api.get('Endpoint', 'milano.n1-lane0'))
})
