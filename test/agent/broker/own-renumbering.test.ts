/**
 * A cluster that gets global addresses because another cluster joined reports this once, and names the other cluster.
 */
import t from 'tap'
import { renumberingNote, reportOwnRenumbering } from '../../../agent/cluster/open-connections.ts'
import type { ObjectEvent } from '../../../kubeapi/cluster-api.ts'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import type { Cluster } from '../../../model/objects.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { clusterObject } from '../../support/objects/cluster-objects.ts'
import { nodeObject, routeAgentObject } from '../../support/objects/node-objects.ts'

function cluster(id: string, podCIDRs: string[], globalCIDRs: string[] = [], serviceCIDRs: string[] = []): Cluster {
  return clusterObject({ id, podCIDRs, serviceCIDRs, globalCIDRs })
}

const NOT_KNOWN = 'open connections to them break (number unknown)'

function note(pairs: string, whose: string, broken = NOT_KNOWN): string {
  return (
    `other clusters now reach the pods of this cluster by global addresses (${pairs}), because pods or services of ` +
    `${whose} have the same addresses; ${broken}`
  )
}

t.test('told once, when it happens', async (t) => {
  const clock = new FakeClock()
  const api = new MemoryApi()
  const logger = new CapturingLogger()
  const events: ObjectEvent[] = []
  const deps = {
    api: { cache: api.cache.bind(api), report: (event: ObjectEvent) => void events.push(event) },
    clock,
    logger,
    silentAgents: { nodes: new Set<string>() },
  }
  const stop = reportOwnRenumbering(deps, 'milano')
  api.put(cluster('milano', ['10.42.0.0/16']))
  api.put(cluster('lyon', ['10.60.0.0/16']))
  await clock.advance(10_000)
  t.strictSame(events, [])
  api.put(cluster('milano', ['10.42.0.0/16'], ['244.0.0.0/16']))
  await clock.advance(500)
  api.put(cluster('paris', ['10.42.0.0/16'], ['244.1.0.0/16']))
  await clock.advance(10_000)
  const text = note('10.42.0.0/16 is 244.0.0.0/16', 'paris')
  const regarding = { kind: 'Membership', name: 'self' }
  t.strictSame(events, [{ regarding, type: 'Warning', reason: 'GlobalAddressesGiven', note: text }])
  t.strictSame(logger.messages('warn'), ['this cluster now has global addresses'])
  api.put({
    ...cluster('milano', ['10.42.0.0/16'], ['244.0.0.0/16']),
    metadata: { name: 'milano', labels: { a: 'b' } },
  })
  api.put(cluster('tokyo', ['10.42.0.0/16'], ['244.2.0.0/16']))
  await clock.advance(10_000)
  t.equal(events.length, 1)
  stop()
  t.strictSame(clock.pending(), [])
})

t.test('how many connections break', async (t) => {
  const clock = new FakeClock()
  const api = new MemoryApi()
  const logger = new CapturingLogger()
  const events: ObjectEvent[] = []
  const cache = api.cache.bind(api)
  const stop = reportOwnRenumbering(
    { api: { cache, report: (event) => void events.push(event) }, clock, logger, silentAgents: { nodes: new Set() } },
    'milano',
  )
  api.put(nodeObject('gw'))
  api.put(routeAgentObject('gw', { openConnections: { count: 12, atLeast: false } }))
  api.put(cluster('milano', ['10.42.0.0/16']))
  api.put(cluster('paris', ['10.42.0.0/16'], ['244.1.0.0/16']))
  await clock.advance(1)
  api.put(cluster('milano', ['10.42.0.0/16'], ['244.0.0.0/16']))
  await clock.advance(10_000)
  const want = note('10.42.0.0/16 is 244.0.0.0/16', 'paris', 'about 12 open connections to them break')
  t.strictSame(
    events.map((event) => event.note),
    [want],
  )
  t.match(logger.lines, [{ fields: { why: want } }], 'the log says it too')
  stop()
})

t.test('one that joins with global addresses was told by its own join', async (t) => {
  const clock = new FakeClock()
  const api = new MemoryApi()
  const events: ObjectEvent[] = []
  const deps = { api: { cache: api.cache.bind(api), report: (event: ObjectEvent) => void events.push(event) }, clock }
  const silentAgents = { nodes: new Set<string>() }
  const stop = reportOwnRenumbering({ ...deps, silentAgents, logger: new CapturingLogger() }, 'paris')
  api.put(cluster('paris', ['10.42.0.0/16'], ['244.1.0.0/16']))
  await clock.advance(10_000)
  t.strictSame(events, [])
  stop()
})

t.test('whose addresses they are', async (t) => {
  const own = cluster('milano', ['10.42.0.0/16', 'fd00:42::/48'], ['244.0.0.0/16', 'fd00:42::/48'], ['10.43.0.0/16'])
  const pairs = '10.42.0.0/16 is 244.0.0.0/16, fd00:42::/48 is fd00:42::/48'
  const rows: readonly (readonly [say: string, others: Cluster[], whose: string])[] = [
    ['nobody that is known yet', [cluster('lyon', ['10.60.0.0/16'])], 'another member'],
    ['pods and pods', [cluster('paris', ['10.42.7.0/24'])], 'paris'],
    ['our pods, their services', [cluster('paris', ['10.60.0.0/16'], [], ['10.42.0.0/20'])], 'paris'],
    ['our services, their pods', [cluster('paris', ['10.43.0.0/16'])], 'paris'],
    [
      'services of both: nobody reaches them',
      [cluster('paris', ['10.60.0.0/16'], [], ['10.43.0.0/16'])],
      'another member',
    ],
    ['IPv6 alone', [cluster('paris', ['10.60.0.0/16', 'fd00:42::/48'])], 'another member'],
    ['two', [cluster('tokyo', ['10.42.0.0/16']), cluster('paris', ['10.0.0.0/8'])], 'paris, tokyo'],
    [
      'many',
      Array.from({ length: 12 }, (_, i) => cluster(`c${10 + i}`, ['10.42.0.0/16'])),
      `${Array.from({ length: 10 }, (_, i) => `c${10 + i}`).join(', ')} and 2 more`,
    ],
  ]
  for (const [say, others, whose] of rows) {
    t.equal(renumberingNote(own, [own, ...others], undefined), note(pairs, whose), say)
  }
})
