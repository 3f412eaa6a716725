/** When the tables that count are made, read, checked and removed. What they count: test/lanes/flows.test.ts. */
import { setImmediate } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { KernelError } from '../../../kernel/errors.ts'
import { FakeConnections } from '../../../kernel/fake/fake-connections.ts'
import { FakeNft } from '../../../kernel/fake/fake-nft.ts'
import { FakePacketLog } from '../../../kernel/fake/fake-packet-log.ts'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import { NFLOG_GROUP_FLOWS, NFT_TABLE_FLOWS as TABLE } from '../../../model/kernel-ids.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { FlowLoop, READ_EACH_MS } from '../../../routeagent/flows/flow-loop.ts'
import { RESYNC_MS } from '../../../routeagent/world/config.ts'
import { routeAgentMetrics } from '../../../routeagent/world/metrics.ts'
import type { FactsReader } from '../../../routeagent/world/node-world.ts'
import { routeAgentCaches } from '../../../routeagent/world/read-world.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { eventually } from '../../support/eventually.ts'
import { WORKER_FACTS, cluster, membership, node, serviceImport, slice } from '../support/site.ts'

/** Readings may take long. */
class LateClock extends FakeClock {
  lateMs = 0
  override monotonic(): number {
    return super.monotonic() + this.lateMs
  }
}

interface StartInit {
  readonly nft?: FakeNft
  readonly packetLog?: FakePacketLog
  readonly lookup?: FakeConnections
  /** Without other clusters nothing is counted. */
  readonly others?: boolean
}

function start(t: Test, { nft = new FakeNft(), packetLog, lookup, others = true }: StartInit = {}) {
  const [clock, logger, api] = [new LateClock(), new CapturingLogger(), new MemoryApi()]
  const nft6 = new FakeNft({ family: 'ip6' })
  for (const object of [
    membership(),
    node('worker', '192.168.7.11', '10.42.1.0/24'),
    cluster('milano', 1, '244.0.0.0/16'),
    ...(others ? [cluster('paris', 2, '244.1.0.0/16')] : []),
  ])
    api.put(object)
  const facts = { read: () => Promise.resolve(WORKER_FACTS) } as Pick<FactsReader, 'read'> as FactsReader
  const loop = new FlowLoop(
    {
      ...{ caches: routeAgentCaches(api), nfts: [nft, nft6], facts, clock, logger, cpus: 2 },
      ...(packetLog === undefined ? {} : { packetLog }),
      ...(lookup === undefined ? {} : { lookup }),
      metrics: routeAgentMetrics(createMetrics('routeagent')),
    },
    { node: 'worker' },
  )
  const stopping = new AbortController()
  const ended = loop.run(stopping.signal)
  t.teardown(async () => {
    stopping.abort()
    await ended
  })
  /** Lets time pass, and what is under way come to its end meanwhile: it takes no time of this clock. */
  const pass = async (ms = READ_EACH_MS): Promise<void> => {
    for (let passed = 0; passed < ms; passed += READ_EACH_MS) {
      await clock.advance(READ_EACH_MS)
      for (let turn = 0; turn < 50; turn += 1) await setImmediate()
    }
  }
  /** Lets time pass until it is so. */
  const until = (check: () => boolean, say: string) =>
    eventually(
      async () => {
        await pass()
        return check()
      },
      { say, intervalMs: 1 },
    )
  return { nft, clock, logger, api, loop, pass, until }
}

const hasTable = (nft: FakeNft): boolean => nft.table(TABLE) !== undefined
const rulesOf = (nft: FakeNft, chain: string): number => nft.table(TABLE)?.chains.get(chain)?.rules.length ?? 0

t.test('what an earlier process left is removed, once', async (t) => {
  const nft = new FakeNft()
  await nft.run([{ verb: 'add-table', table: TABLE }])
  let looked = 0
  const tables = nft.tables.bind(nft)
  nft.tables = (...all) => {
    looked += 1
    return tables(...all)
  }
  const { pass, until } = start(t, { nft, others: false })
  await until(() => !hasTable(nft), 'it is gone')
  await pass(10 * READ_EACH_MS)
  t.equal(looked, 1)
})

t.test('what another program changed is made again', async (t) => {
  const { nft, logger, until } = start(t)
  let listings = 0
  const structure = nft.structure.bind(nft)
  nft.structure = async (...all) => {
    const text = await structure(...all)
    listings += 1
    return text
  }
  await until(() => rulesOf(nft, 'forwarded') > 0, 'a table')
  const rules = rulesOf(nft, 'forwarded')
  const changes = [
    [{ verb: 'flush-table', table: TABLE }],
    [{ verb: 'flush-chain', table: TABLE, chain: 'lane' }],
    [{ verb: 'add-rule', table: TABLE, chain: 'lane', rule: 'accept' }],
    [{ verb: 'delete-elements', table: TABLE, map: 'remote', elements: [{ key: '244.1.0.0/16' }] }],
    [{ verb: 'add-elements', table: TABLE, map: 'own-pods', elements: [{ key: '192.0.2.0/24' }] }],
  ] as const
  for (const [i, change] of changes.entries()) {
    // How it is listed is learned when it was made.
    await until(() => listings > i, 'it was made')
    const before = nft.accepted.length
    await nft.interfere(change)
    await until(() => nft.accepted.length > before, JSON.stringify(change))
    t.equal(rulesOf(nft, 'forwarded'), rules)
    t.equal(rulesOf(nft, 'lane'), 2)
    t.same([...(nft.table(TABLE)?.maps.get('remote')?.elements.keys() ?? [])], ['244.1.0.0/16'])
    t.notOk(nft.table(TABLE)?.maps.get('own-pods')?.elements.has('192.0.2.0/24'))
    t.equal(logger.lines.filter(({ message }) => message.includes('another program')).length, i + 1)
  }
})

t.test('a failure to sample that may pass is tried again', async (t) => {
  const packetLog = new FakePacketLog()
  packetLog.failure = new KernelError('TIMEOUT', 'follow', 'no answer')
  const { loop, until, pass, logger } = start(t, { packetLog })
  await until(() => loop.page().problem === 'follow: no answer', 'said')
  await pass(10 * READ_EACH_MS)
  t.equal(logger.lines.filter(({ message }) => message.includes('not sampled')).length, 1, 'once')
  packetLog.failure = undefined
  await until(() => loop.page().problem === undefined, 'sampled')
})

t.test('a failure to sample that lasts is not', async (t) => {
  const packetLog = new FakePacketLog()
  packetLog.failure = new KernelError('EOPNOTSUPP', 'follow', 'not supported')
  const { loop, until, pass } = start(t, { packetLog })
  await until(() => loop.page().problem === 'follow: not supported', 'said')
  packetLog.failure = undefined
  await pass(10 * RESYNC_MS)
  t.equal(loop.page().problem, 'follow: not supported')
})

t.test('rules that the kernel refuses for now are tried again', async (t) => {
  const nft = new FakeNft()
  nft.failNext(new KernelError('UNKNOWN', 'nft', 'Cannot allocate memory'))
  const { loop, until } = start(t, { nft, packetLog: new FakePacketLog() })
  await until(() => rulesOf(nft, 'forwarded') > 0, 'a table')
  t.equal(loop.page().problem, 'nft: Cannot allocate memory')
  await until(() => loop.page().problem === undefined, 'sampled')
  await until(() => nft.toString().includes('log prefix "opened"'), 'logged')
})

t.test('readings that take long are rare', async (t) => {
  const { nft, clock, loop, pass, until } = start(t)
  await until(() => hasTable(nft), 'a table')
  let readings = 0
  const counts = nft.counts.bind(nft)
  nft.counts = (...all) => {
    readings += 1
    clock.lateMs += 2000
    return counts(...all)
  }
  await until(() => readings === 1, 'a reading of two seconds')
  await pass(390_000)
  t.equal(readings, 1, 'one part in 200 of the time')
  await until(() => readings === 2, 'the next one')
  loop.page()
  await pass()
  t.equal(readings, 2, 'not at once')
  await until(() => readings === 3, 'sooner while somebody looks')
  t.ok(clock.monotonic() < 600_000)
})

t.test('a time-out counts for the service that was called, though its endpoint is gone by then', async (t) => {
  const [packetLog, lookup] = [new FakePacketLog(), new FakeConnections()]
  const { api, loop, until } = start(t, { packetLog, lookup })
  api.put(serviceImport('far', '245.0.0.7'))
  api.put(slice('far', 'paris', ['244.1.0.5']))
  await until(() => loop.page().problem === undefined, 'sampled')
  const [client, server] = ['10.42.1.5', '244.1.0.5']
  const forget = lookup.openCall(`${client}:7000`, '245.0.0.7:80', `${server}:8080`, 'answered')
  const syn = { source: client, destination: server, protocol: 'tcp', sourcePort: 7000, port: 8080 }
  packetLog.log(NFLOG_GROUP_FLOWS, { ...syn, prefix: 'opened' })
  const answer = { ...syn, source: server, destination: client, sourcePort: 8080, port: 7000 }
  packetLog.log(NFLOG_GROUP_FLOWS, { ...answer, prefix: 'followed' })
  let looked = 0
  const states = lookup.states.bind(lookup)
  lookup.states = (...all) => {
    looked += 1
    return states(...all)
  }
  await until(() => looked > 0, 'its entry is looked up')
  api.put(slice('far', 'paris', []))
  forget()
  const row = () => loop.page().rows.find(({ total }) => total.ended > 0)
  await until(() => row() !== undefined, 'it has ended')
  t.match(row(), { way: 'out', service: 'shop/far', cluster: 'paris', total: { ended: 1, timedOut: 1 } })
  t.match(loop.page().lines.at(-1), { outcome: 'timed-out', to: { service: 'shop/far', cluster: 'paris' } })
})
