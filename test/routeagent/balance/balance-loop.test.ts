/** Single runs of the balancing loop, where the order of events matters. */
import t from 'tap'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import { KernelError } from '../../../kernel/errors.ts'
import { FakeNft } from '../../../kernel/fake/fake-nft.ts'
import { FakeRouteTable } from '../../../kernel/fake/fake-route-table.ts'
import { FakeSysctl } from '../../../kernel/fake/fake-sysctl.ts'
import { NFT_TABLE_NODE } from '../../../model/kernel-ids.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { BalanceLoop } from '../../../routeagent/balance/balance-loop.ts'
import { FactsReader } from '../../../routeagent/world/node-world.ts'
import { routeAgentMetrics } from '../../../routeagent/world/metrics.ts'
import { routeAgentCaches } from '../../../routeagent/world/read-world.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { cluster, membership, node } from '../support/site.ts'

t.test('who fights for the table is put right each time, and told a bounded number of times', async (t) => {
  const { signal } = new AbortController()
  const { loop, nft, logger, metrics } = await oneNode(signal)
  await loop.reconcile(signal)
  t.teardown(loop.followTable())
  for (let i = 0; i < 20; i += 1) {
    await nft.interfere([{ verb: 'delete-table', table: NFT_TABLE_NODE }])
    await loop.reconcile(signal)
    t.not(await nft.listTable(NFT_TABLE_NODE), undefined)
  }
  t.equal(logger.lines.filter(({ level }) => level === 'warn').length, 5, 'lines')
  t.match(await metrics.text(), /drift_repairs_total\{.*nft-table.*\} 20/, 'and all are counted')
})

t.test('a look at the machine that fails is repeated by the next run', async (t) => {
  const { signal } = new AbortController()
  const { api, loop, nft, routes, facts } = await oneNode(signal)

  const links = routes.links.bind(routes)
  const remote = (): Promise<string> =>
    nft.elements(NFT_TABLE_NODE, 'remote').then((elements) => elements.map(({ key }) => key).join(' '))
  for (const { say, change, want } of [
    { say: 'at the start', change: () => undefined, want: '' },
    { say: 'later', change: () => api.put(cluster('paris', 2, '244.1.0.0/16')), want: '244.1.0.0/16' },
  ]) {
    change()
    facts.invalidate()
    routes.links = () => Promise.reject(new KernelError('EBUSY', 'ip link', 'not now'))
    await t.rejects(loop.reconcile(signal), { code: 'EBUSY' })
    routes.links = links
    await loop.reconcile(signal)
    t.equal(await remote(), want, say)
  }
  t.equal(loop.notReady, undefined)
})

async function oneNode(signal: AbortSignal) {
  const api = new MemoryApi()
  for (const object of [membership(), node('worker', '192.168.7.11', '10.42.1.0/24')]) api.put(object)
  api.put(cluster('milano', 1, '244.0.0.0/16'))
  const caches = routeAgentCaches(api)
  await caches.slices.whenSynced(signal)
  const routes = new FakeRouteTable({ links: [{ name: 'eth0' }] })
  const nft = new FakeNft()
  const facts = new FactsReader({ routes, sysctl: new FakeSysctl({}) })
  const all = createMetrics('routeagent')
  const logger = new CapturingLogger()
  const deps = { caches, nft, facts, clock: new FakeClock(), logger, metrics: routeAgentMetrics(all) }
  const loop = new BalanceLoop(deps, { node: 'worker' })
  loop.follow()
  return { api, loop, nft, routes, facts, logger, metrics: all }
}
