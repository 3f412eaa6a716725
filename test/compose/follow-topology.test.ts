/** An object in the cluster of the broker sets which clusters link: what counts, what stays, what is refused. */
import t, { type Test } from 'tap'
import { TopologyCommands } from '../../broker/admin/topology-commands.ts'
import { topologySink } from '../../broker/admin/topology-sink.ts'
import { type BrokerConfig, DEFAULT_BROKER_CONFIG } from '../../broker/config/broker-config.ts'
import { TOPOLOGY_KEY, topologyInForce } from '../../broker/records/topology-record.ts'
import type { EtcdStore } from '../../broker/store/etcd/etcd-store.ts'
import { formatSession } from '../../broker/store/etcd/replica-session.ts'
import { fixSettings } from '../../broker/store/open-store.ts'
import { followTopology } from '../../compose/broker/follow-topology.ts'
import type { ClusterApi, ObjectCache } from '../../kubeapi/kubeapi.ts'
import { MemoryApi } from '../../kubeapi/memory/memory-api.ts'
import type { TopologyObject } from '../../model/objects.ts'
import type { Topology } from '../../model/records.ts'
import { MemorySink, readLines, shortLine } from '../broker/audit/audit-lines.ts'
import { type Harness, startBroker } from '../broker/support/harness.ts'
import { eventually } from '../support/eventually.ts'

const HUBS: Topology = { mode: 'hub-and-spoke', hubs: ['oslo'] }
const OWNED = {
  reason: 'TopologyOwned',
  message: /^topology: Topology default in the cluster of the broker sets it: expected a change of that object/,
}

function object(spec: unknown, name = 'default'): TopologyObject {
  return { apiVersion: 'sealane.io/v1alpha1', kind: 'Topology', metadata: { name }, spec: spec as Topology }
}

function hubs(count: number): object {
  return { mode: 'hub-and-spoke', hubs: Array.from({ length: count }, (_, i) => `c${i}`) }
}

interface StageCache {
  readonly synced: boolean
  readonly isUnserved: boolean
  readonly objects: readonly TopologyObject[]
}

/** A cache that stays as it is. */
function cacheOf({
  synced = true,
  isUnserved = false,
  objects = [],
}: Partial<StageCache>): ObjectCache<TopologyObject> {
  return {
    ...{ synced, isUnserved },
    list: () => objects,
    get: (name) => objects.find(({ metadata }) => metadata.name === name),
    onChange: () => () => undefined,
    whenSynced: () => Promise.resolve(),
  }
}

interface Stage {
  readonly harness: Harness
  readonly api: MemoryApi
  readonly commands: TopologyCommands
  /** The lines of the audit log so far. */
  readonly audited: () => Promise<readonly string[]>
  readonly start: (etcd?: EtcdStore, cache?: ObjectCache<TopologyObject>) => void
  /** Whether this replica is the one that sets the topology. */
  isWriter: boolean
}

async function staged(t: Test): Promise<Stage> {
  const auditSink = new MemorySink()
  const harness = await startBroker(t, { auditSink, config: { followsTopology: true } })
  const { clock, log, logger, stateDir } = harness
  const api = new MemoryApi({ clock })
  const state = { log, etcd: undefined, stateDir }
  const stop = new AbortController()
  const common = { clock, signal: stop.signal }
  const running: Promise<void>[] = []
  const stage: Stage = {
    ...{ harness, api, isWriter: true },
    commands: new TopologyCommands({ ...common, state, who: { kind: 'operator' } }),
    audited: async () => {
      await harness.audit.flush(stop.signal)
      return readLines(auditSink.text).map(shortLine)
    },
    start: (etcd, cache) => {
      const sink = topologySink({ ...common, state: { ...state, etcd }, who: { kind: 'broker' } }, () => stage.isWriter)
      const shown = {
        cache: cache === undefined ? api.cache.bind(api) : () => cache,
        read: api.read.bind(api),
        applyStatus: api.applyStatus.bind(api),
      } as Pick<ClusterApi, 'cache' | 'read' | 'applyStatus'>
      running.push(followTopology({ api: shown, sink, clock, logger }, stop.signal))
    },
  }
  t.teardown(async () => {
    stop.abort()
    await Promise.all(running)
  })
  return stage
}

/** Waits until the object of this name has these conditions, `Type Status Reason`. */
async function becomes({ api, harness }: Stage, want: readonly string[], name = 'default'): Promise<void> {
  await eventually(async () => {
    await harness.clock.advance(1000)
    const { metadata, status } = api.get('Topology', name) ?? object({})
    const conditions = status?.conditions ?? []
    const isNow = conditions.every((one) => one.observedGeneration === metadata.generation)
    const got = conditions.map((one) => `${one.type} ${one.status} ${one.reason}`)
    return isNow && JSON.stringify(got) === JSON.stringify(want)
  })
}

const APPLIED = ['Accepted True TopologyAccepted', 'Applied True TopologyApplied']
const INVALID = ['Accepted False TopologyInvalid', 'Applied False TopologyInvalid']

t.test('it is set, commands are refused, and it stays when the object becomes invalid or is deleted', async (t) => {
  const stage = await staged(t)
  const { api, commands, harness } = stage
  const counts = () => topologyInForce(harness.log)
  t.match(await commands.set({ topology: { mode: 'full' } }), { number: 0 }, 'without an object, commands set it')
  stage.start()
  api.put(object(HUBS))
  await becomes(stage, APPLIED)
  t.match(counts(), { number: 1, topology: HUBS })
  t.match(await commands.show(), { number: 1, object: 'Topology default' })
  for (let i = 0; i < 2; i += 1) await t.rejects(commands.set({ topology: { mode: 'full' } }), OWNED)

  for (const bad of [{ mode: 'groups' }, { mode: 'ring' }, undefined, { ...HUBS, hub: ['x'] }, hubs(1001)]) {
    api.put(object(bad))
    await becomes(stage, INVALID)
    t.match(counts(), { number: 1, topology: HUBS }, 'the last good one stays')
  }
  api.put(object({ mode: 'hub-and-spoke', hubs: ['paris'] }))
  await becomes(stage, APPLIED)
  t.match(counts(), { number: 2, topology: { hubs: ['paris'] } })

  api.put(object({ mode: 'full' }, 'other'))
  await becomes(stage, ['Accepted False TopologyNameUnknown', 'Applied False TopologyNameUnknown'], 'other')
  t.equal(counts().number, 2)

  api.drop('Topology', 'default')
  const said = () => harness.logger.lines.filter((line) => line.fields['reason'] === 'TopologyObjectDeleted')
  await eventually(async () => {
    await harness.clock.advance(1000)
    return said().length > 0
  })
  t.match(counts(), { number: 2, topology: { hubs: ['paris'] } }, 'it stays')
  t.match(await commands.set({ topology: { mode: 'full' } }), { changed: true, number: 3 })
  await harness.clock.advance(120_000)
  t.equal(said().length, 1, 'said once')

  api.put(object(HUBS))
  await becomes(stage, APPLIED)
  t.match(counts(), { number: 4, topology: HUBS })
  await harness.clock.advance(120_000)
  const lines = await stage.audited()
  t.equal(lines.filter((line) => line.startsWith('topology.set ok')).length, 5, 'rounds add no lines')
  t.equal(lines.filter((line) => line.includes('TopologyOwned')).length, 2)
  t.equal(lines.filter((line) => line.startsWith('topology.release ok')).length, 1, 'the end of the claim is audited')
})

t.test('a missing object ends the claim only if it is certain that there is none', async (t) => {
  const unserved = { synced: false, isUnserved: true }
  const rows: readonly (readonly [say: string, cache: Partial<StageCache>, isOwned: boolean])[] = [
    ['the kind is missing since the start', unserved, false],
    ['nothing is read yet', { synced: false, isUnserved: false }, true],
    ['the cache has the object: a proxy answers', { objects: [object(HUBS)] }, true],
    ['the cache lacks it too', {}, false],
  ]
  for (const [say, cache, isOwned] of rows) {
    const stage = await staged(t)
    const { harness, commands } = stage
    await new TopologyCommands({
      ...{ clock: harness.clock, signal: new AbortController().signal, who: { kind: 'broker' } },
      state: { log: harness.log, etcd: undefined, stateDir: harness.stateDir },
    }).follow(HUBS, 'Topology default')
    t.equal((await commands.show()).object, 'Topology default', say)
    stage.start(undefined, cacheOf(cache))
    for (let i = 0; i < 4; i += 1) await harness.clock.advance(30_000)
    const owner = async (): Promise<string | undefined> => (await commands.show()).object
    if (!isOwned) await eventually(async () => (await owner()) === undefined, { say })
    t.equal(await owner(), isOwned ? 'Topology default' : undefined, say)
  }
})

t.test('what a replica of an earlier release set beside it is set back', async (t) => {
  const stage = await staged(t)
  const { api, harness } = stage
  stage.start()
  api.put(object(HUBS))
  await becomes(stage, APPLIED)
  const body = { kind: 'Topology' as const, number: 2, topology: { mode: 'full' as const } }
  await harness.log.transact((tx) => tx.put('record', TOPOLOGY_KEY, { createdAtMs: 1, body }))
  await eventually(async () => {
    await harness.clock.advance(30_000)
    return topologyInForce(harness.log).number === 3
  })
  t.same(topologyInForce(harness.log).topology, HUBS)
})

t.test('one replica of several sets it, and the next one goes on', async (t) => {
  const stage = await staged(t)
  stage.isWriter = false
  stage.start()
  stage.api.put(object(HUBS))
  await stage.harness.clock.advance(120_000)
  t.equal(topologyInForce(stage.harness.log).number, 0)
  t.same(stage.api.writes, [])
  stage.isWriter = true
  await stage.harness.clock.advance(30_000)
  await becomes(stage, APPLIED)
  t.match(topologyInForce(stage.harness.log), { number: 1, topology: HUBS })
})

t.test('beside a replica of an earlier release nothing changes, and the condition says why', async (t) => {
  const stage = await staged(t)
  const sessions = new Map([['old-0', formatSession({ members: [] })]])
  const etcd = {
    client: {
      range: () => Promise.resolve({ kvs: [...sessions].map(([id, value]) => ({ key: Buffer.from(id), value })) }),
    },
    keys: { replicas: {}, parseReplica: (key: Buffer) => key.toString() },
  } as unknown as EtcdStore
  stage.start(etcd)
  stage.api.put(object(HUBS))
  await becomes(stage, ['Accepted True TopologyAccepted', 'Applied False TopologyNotSupported'])
  await stage.harness.clock.advance(300_000)
  t.equal(topologyInForce(stage.harness.log).number, 0)
  t.same(await stage.audited(), [], 'the condition says it, and the audit log does not grow')
  t.match(await stage.commands.set({ topology: { mode: 'full' } }), { changed: false }, 'nothing is owned yet')
  sessions.clear()
  await stage.harness.clock.advance(30_000)
  await becomes(stage, APPLIED)
  t.equal(topologyInForce(stage.harness.log).number, 1)
})

t.test('a broker that started later and follows none ends it, and one that follows again takes over', async (t) => {
  const stage = await staged(t)
  const { harness, api, commands } = stage
  const { stateDir, log } = harness
  const config = (followsTopology: boolean): BrokerConfig => {
    return { ...DEFAULT_BROKER_CONFIG, stateDir, clusterset: 'demo', advertise: ['127.0.0.1:7443'], followsTopology }
  }
  stage.start()
  api.put(object(HUBS))
  await becomes(stage, APPLIED)
  await fixSettings(log, config(true))
  await t.rejects(commands.set({ topology: { mode: 'full' } }), OWNED, 'a restart keeps it')
  await fixSettings(log, config(false))
  t.match(await commands.set({ topology: { mode: 'full' } }), { changed: true, number: 2 })
  const before = (await stage.audited()).length
  await harness.clock.advance(30_000)
  await becomes(stage, ['Accepted True TopologyAccepted', 'Applied False TopologyNotFollowed'])
  await harness.clock.advance(300_000)
  t.equal(topologyInForce(log).number, 2)
  t.equal((await stage.audited()).length, before, 'the condition says it, and the audit log does not grow')
  await fixSettings(log, config(true))
  await harness.clock.advance(30_000)
  await becomes(stage, APPLIED)
  t.match(topologyInForce(log), { number: 3, topology: HUBS })
})
