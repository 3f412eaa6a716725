/** Whatever is offered to whom, and whoever links with whom, and when, a member is sent what is offered to it, and learns no name of anything else. */
import fc from 'fast-check'
import t from 'tap'
import { putRecord, removeRecord } from '../../../broker/records/record-writes.ts'
import { WatchHub } from '../../../broker/sessions/watch-hub.ts'
import { brokerMetrics } from '../../../broker/config/broker-metrics.ts'
import type { RecordLog } from '../../../broker/store/record-log.ts'
import { parseRecordKey } from '../../../broker/store/rows.ts'
import { setTopology, topologyInForce } from '../../../broker/records/topology-record.ts'
import type { ClusterId } from '../../../model/ids.ts'
import { links } from '../../../model/lanes/topology.ts'
import { DEFAULT_MEMBER_QUOTA } from '../../../model/member-quota.ts'
import { type MemberRecord, type Topology, followsInterest, isOfInterest } from '../../../model/records.ts'
import type { Peer, WatchMessage } from '../../../protocol/broker-api.ts'
import { memberKey } from '../../../protocol/codec/content-hash.ts'
import { decodeWatchMessage, encodeWatchMessage } from '../../../protocol/codec/messages-codec.ts'
import { decodeRecordEvent } from '../../../protocol/codec/records-codec.ts'
import { recordKeyText } from '../../../model/records.ts'
import { Replica } from '../../../protocol/replica/record-replica.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { type Harness, Publisher, aSlice, anExport, facts, join_, startBroker } from '../support/harness.ts'

const MEMBERS = ['milano', 'paris', 'tokyo'] as const
const NAMESPACES = ['blue', 'shop']
const ADDRESSES = { milano: '10.42.0.1', paris: '10.52.0.1', tokyo: '10.62.0.1' }
type Member = (typeof MEMBERS)[number]

/** The oracle: reads all rows, and knows nothing of readers. */
function isVisible(log: RecordLog, key: string, member: string): boolean {
  const { cluster, kind, namespace, name } = parseRecordKey(key)
  const body = log.get('record', key)?.body
  if (body === undefined) return false
  const { topology } = topologyInForce(log)
  const isLinked = (of: string): boolean => links(topology, { id: member }, { id: of }).linked
  if (cluster !== '' && !isLinked(cluster)) return false
  if (cluster === member || !followsInterest(kind)) return true
  const offers = (of: string, service: string): boolean | undefined => {
    const found = log.get('record', `${of}/ServiceExport/${namespace}/${service}`)?.body
    if (found?.kind !== 'ServiceExport') return undefined
    return (
      of === member ||
      found.offeredTo === undefined ||
      found.offeredTo.some((one) => one.clusters.includes(member as ClusterId))
    )
  }
  if (body.kind === 'ServiceExport') return offers(cluster, name) === true
  if (body.kind === 'EndpointSlice')
    return offers(cluster, body.service) !== false && body.offeredTo?.includes(member as ClusterId) !== false
  return MEMBERS.some((of) => {
    const found = log.get('record', `${of}/ServiceExport/${namespace}/${name}`)?.body
    return found?.kind === 'ServiceExport' && found.type === 'ClusterSetIP' && offers(of, name) === true
  })
}

function visible(log: RecordLog, member: string): string[] {
  const keys = log.list('record').map(({ key }) => key)
  return keys.filter((key) => isVisible(log, key, member))
}

function versions(log: RecordLog, keys: readonly string[]): string[] {
  return keys.map((key) => `${key} ${log.row('record', key)?.revision ?? ''}`).sort()
}

/** What a member may have learned so far. */
class Learned {
  readonly keys = new Set<string>()
  readonly versions = new Set<string>()
  readonly namespaces = new Set<string>()

  note(log: RecordLog, member: string): void {
    const keys = visible(log, member)
    for (const key of keys) {
      this.keys.add(key)
      if (key.includes('/ServiceExport/')) this.namespaces.add(parseRecordKey(key).namespace)
    }
    for (const one of versions(log, keys)) this.versions.add(one)
  }
}

class Reader {
  replica = new Replica()
  interest: ReadonlySet<string> | undefined
  readonly learned = new Learned()
  readonly member: Member
  readonly #peer: Peer
  readonly #log: RecordLog
  #messages: AsyncIterator<WatchMessage, void> | undefined
  #stop = new AbortController()
  #next: Promise<IteratorResult<WatchMessage, void>> | undefined
  /** Revision of the log when the next message was asked for. */
  #askedAt = 0

  constructor(log: RecordLog, peer: Peer) {
    this.#log = log
    this.#peer = peer
    this.member = peer.cluster as string as Member
  }

  async connect(hub: WatchHub, packed: boolean): Promise<void> {
    await this.close()
    this.#stop = new AbortController()
    const takes = packed ? { takes: ['zstd' as const] } : {}
    const watch = hub.watch(this.#peer, { ...this.replica.begin(), ...takes }, this.#stop.signal)
    this.#messages = watch[Symbol.asyncIterator]() as AsyncIterator<WatchMessage, void>
  }

  async read(): Promise<WatchMessage['t'] | undefined> {
    if (this.#next === undefined) {
      this.#askedAt = this.#log.revision
      this.#next = this.#messages?.next()
    }
    const turns = (async () => {
      for (let i = 0; i < 20; i += 1) await new Promise((resolve) => setImmediate(resolve))
      return undefined
    })()
    const got = await Promise.race([this.#next, turns])
    if (got === undefined) return undefined
    this.#next = undefined
    const message = got.done === true ? undefined : decodeWatchMessage(encodeWatchMessage(got.value))
    if (message === undefined) return undefined
    this.#check(message)
    this.replica.apply(message)
    return message.t
  }

  #check(message: WatchMessage): void {
    if (message.t === 'exportedNamespaces')
      for (const name of [...message.added, ...message.removed])
        if (!this.learned.namespaces.has(name)) throw new Error(`${this.member} learned of namespace ${name}`)
    if (message.t !== 'batch' && message.t !== 'added') return
    for (const bytes of message.events) {
      const event = decodeRecordEvent(bytes)
      if (event === undefined) continue
      const key = recordKeyText(event.t === 'put' ? event.record.key : event.key)
      if (!this.learned.keys.has(key)) throw new Error(`${this.member} learned the name ${key}`)
      if (event.t === 'remove') continue
      if (!this.learned.versions.has(`${key} ${event.record.revision}`))
        throw new Error(`${this.member} was sent ${key} of revision ${event.record.revision}`)
      const isFresh = this.#askedAt === this.#log.revision
      if (isFresh && this.#log.get('record', key) !== undefined && !isVisible(this.#log, key, this.member))
        throw new Error(`${this.member} was sent ${key} after it was narrowed`)
    }
  }

  async finish(hub: WatchHub, packed: boolean): Promise<void> {
    await this.connect(hub, packed)
    for (let i = 0; i < 10_000; i += 1) {
      this.#askedAt = this.#log.revision
      this.#next ??= this.#messages?.next()
      await this.#next
      if ((await this.read()) === 'synced') return
    }
    throw new Error('never synced')
  }

  async close(): Promise<void> {
    this.#stop.abort()
    await this.#next?.catch(() => undefined)
    await this.#messages?.return?.()
    this.#messages = undefined
    this.#next = undefined
  }
}

const at = fc.record({
  cluster: fc.constantFrom('milano' as const, 'milano' as const, 'paris' as const),
  namespace: fc.constantFrom(...NAMESPACES),
  name: fc.constantFrom('a', 'b'),
})
const offer = fc.option(fc.subarray([...MEMBERS]) as fc.Arbitrary<ClusterId[]>, { nil: undefined, freq: 3 })
const ids = fc.subarray([...MEMBERS])
const topology: fc.Arbitrary<Topology> = fc.oneof(
  fc.constant({ mode: 'full' as const }),
  fc.record({
    mode: fc.constant('groups' as const),
    groups: fc.tuple(ids, ids).map(([one, other]) => [
      { name: 'a', clusters: one },
      { name: 'b', clusters: other },
    ]),
  }),
  fc.record({ mode: fc.constant('hub-and-spoke' as const), hubs: ids }),
  fc.record({
    mode: fc.constant('pairs' as const),
    pairs: fc.tuple(ids, ids).map(([one, other]) => [{ between: { clusters: one }, and: { clusters: other } }]),
  }),
)
const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ t: fc.constant('export' as const), at, offer, headless: fc.boolean() }) },
  { weight: 5, arbitrary: fc.record({ t: fc.constant('slice' as const), at, offer }) },
  { weight: 3, arbitrary: fc.record({ t: fc.constant('remove' as const), at, slice: fc.boolean() }) },
  {
    weight: 8,
    arbitrary: fc.record({
      t: fc.constant('read' as const),
      reader: fc.nat(2),
      count: fc.integer({ min: 1, max: 12 }),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      t: fc.constant('ask' as const),
      reader: fc.nat(2),
      interest: fc.option(fc.subarray(NAMESPACES), { nil: undefined }),
    }),
  },
  { weight: 3, arbitrary: fc.record({ t: fc.constant('connect' as const), reader: fc.nat(2), packed: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ t: fc.constant('new' as const), reader: fc.nat(2) }) },
  { weight: 1, arbitrary: fc.record({ t: fc.constant('broker' as const) }) },
  { weight: 2, arbitrary: fc.record({ t: fc.constant('topology' as const), topology }) },
  { weight: 1, arbitrary: fc.record({ t: fc.constant('forget' as const) }) },
)

async function threeMembers(harness: Harness): Promise<Peer[]> {
  const peers: Peer[] = []
  for (const [i, id] of MEMBERS.entries()) {
    const cidrs = { facts: facts([`10.${42 + 10 * i}.0.0/16`], { serviceCIDRs: [`10.${43 + 10 * i}.0.0/16`] }) }
    const { peer } = await join_(harness, id, cidrs)
    await new Publisher(harness, peer).publish([])
    peers.push(peer)
  }
  return peers
}

const RULES = {
  globalRange: '244.0.0.0/8',
  clustersetIpRange: '245.0.0.0/16',
  allowedNamespaces: [],
  quota: DEFAULT_MEMBER_QUOTA,
}

t.test(
  'offers and topologies that are narrowed, widened and withdrawn, while members read, resume and return',
  async (t) => {
    const harness = await startBroker(t, { keepRemoved: 12 })
    const { log, clock } = harness
    const peers = await threeMembers(harness)
    const put = async (cluster: Member, record: MemberRecord): Promise<void> => {
      const context = { cluster: cluster as ClusterId, rules: RULES, nowMs: 1 }
      const refused = await log.transact((tx) => putRecord(tx, record, context))
      if (refused !== undefined) throw new Error(`${refused.field} ${refused.message}`)
    }
    const remove = (cluster: Member, record: MemberRecord): Promise<void> =>
      log.transact((tx) =>
        removeRecord(tx, memberKey(record), { cluster: cluster as ClusterId, rules: RULES, nowMs: 1 }),
      )
    const metrics = brokerMetrics(createMetrics('broker'))
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), fc.boolean(), async (steps, packed) => {
        await clock.advance(60_000)
        const newHub = (): WatchHub =>
          new WatchHub({ log, clock, metrics }, { quota: DEFAULT_MEMBER_QUOTA, addresses: [] })
        let hub = newHub()
        const stopCommits = log.onCommit((changes) => {
          if (changes.some(({ scope }) => scope === 'record')) hub.wake(true, [])
        })
        const readers = peers.map((peer) => new Reader(log, peer))
        const note = (): void => {
          for (const { learned, member } of readers) learned.note(log, member)
        }
        note()
        for (const reader of readers) await reader.finish(hub, packed)
        let count = 0
        try {
          for (const s of steps) {
            const reader = 'reader' in s ? readers[s.reader] : undefined
            count += 1
            if (s.t === 'export') {
              const { cluster, namespace, name } = s.at
              const offered = s.offer === undefined ? {} : { offeredTo: [{ clusters: s.offer }] }
              const type = s.headless ? ('Headless' as const) : ('ClusterSetIP' as const)
              await put(cluster, anExport(name, { ...offered, type, uid: `u${count}` }, namespace))
            } else if (s.t === 'slice') {
              const { cluster, namespace, name } = s.at
              const made = aSlice(name, ADDRESSES[cluster], namespace)
              const body = { ...made.body, ...(s.offer === undefined ? {} : { offeredTo: s.offer }) }
              await put(cluster, { ...made, body } as MemberRecord)
            } else if (s.t === 'remove') {
              const { cluster, namespace, name } = s.at
              await remove(cluster, s.slice ? aSlice(name, '', namespace) : anExport(name, {}, namespace))
            } else if (s.t === 'read') {
              for (let i = 0; i < s.count && (await reader?.read()) !== undefined; i += 1);
            } else if (s.t === 'ask') {
              if (reader !== undefined) reader.interest = s.interest && new Set(s.interest)
              reader?.replica.setInterest(s.interest && new Set(s.interest))
            } else if (s.t === 'topology') await log.transact((tx) => setTopology(tx, { topology: s.topology }, 1))
            else if (s.t === 'connect') await reader?.connect(hub, s.packed)
            else if (s.t === 'new') {
              await reader?.close()
              if (reader !== undefined) {
                reader.replica = new Replica()
                reader.replica.setInterest(reader.interest)
              }
            } else if (s.t === 'broker') {
              for (const one of readers) await one.close()
              hub.close()
              hub = newHub()
            } else {
              for (let i = 0; i < 15; i += 1) {
                const record = anExport(`x${i}`, {}, 'shop')
                await put('milano', record)
                note()
                await remove('milano', record)
              }
            }
            note()
          }
          for (const reader of readers) {
            await reader.finish(hub, packed)
            const want = versions(
              log,
              visible(log, reader.member).filter((key) => isOfInterest(reader.interest, parseRecordKey(key))),
            )
            const got = [...reader.replica.records].map(([key, { revision }]) => `${key} ${revision}`).sort()
            if (got.join('\n') !== want.join('\n'))
              throw new Error(`${reader.member} got:\n${got.join('\n')}\nexpected:\n${want.join('\n')}`)
            const { exported } = reader.replica
            const names = visible(log, reader.member).filter((key) => key.includes('/ServiceExport/'))
            const spaces = [...new Set(names.map((key) => parseRecordKey(key).namespace))].sort().join()
            if (reader.interest !== undefined && [...(exported ?? [])].sort().join() !== spaces)
              throw new Error(`${reader.member}: exported ${[...(exported ?? [])].join()} instead of ${spaces}`)
          }
        } finally {
          for (const reader of readers) await reader.close()
          hub.close()
          stopCommits()
        }
      }),
      { numRuns: 40 },
    )
    t.pass('every copy was right, and no name too many')
  },
)
