/** Whatever happens, the copy of a member ends as the set of all records that it asks for. */
import fc from 'fast-check'
import t from 'tap'
import type { RecordLog } from '../../../broker/store/record-log.ts'
import { isOfInterest } from '../../../model/records.ts'
import type { Peer, WatchMessage } from '../../../protocol/broker-api.ts'
import { decodeWatchMessage, encodeWatchMessage } from '../../../protocol/codec/messages-codec.ts'
import { Replica, ReplicaError } from '../../../protocol/replica/record-replica.ts'
import { decodeReplica, encodeReplica } from '../../../protocol/replica/replica-file.ts'
import { type Harness, Publisher, Watcher, aSlice, anExport, join_, startBroker } from '../support/harness.ts'
import { parseRecordKey } from '../../../broker/store/rows.ts'

const NAMESPACES = ['blue', 'green', 'red', 'shop', 'void']
const none: ReadonlySet<string> = new Set()

/** Returns the keys of the records of interest, each with its revision. */
function truth(log: RecordLog, interest: ReadonlySet<string> | undefined): string {
  const keys = log.list('record').map(({ key }) => key)
  const asked = keys.filter((key) => isOfInterest(interest, parseRecordKey(key)))
  return asked.map((key) => `${key} ${log.row('record', key)?.revision ?? ''}`).join('\n')
}

function copy(replica: Replica): string {
  const lines = [...replica.records].map(([key, { revision }]) => [key, `${key} ${revision}`] as const)
  return lines
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([, line]) => line)
    .join('\n')
}

function exportedIn(log: RecordLog): string[] {
  const keys = log.list('record').map(({ key }) => parseRecordKey(key))
  return [...new Set(keys.filter(({ kind }) => kind === 'ServiceExport').map(({ namespace }) => namespace))].sort()
}

/** A member that reads only when the test lets it. */
class Reader {
  replica = new Replica()
  interest: ReadonlySet<string> | undefined
  readonly #harness: Harness
  readonly #peer: Peer
  #messages: AsyncIterator<WatchMessage, void> | undefined
  #stop = new AbortController()
  #next: Promise<IteratorResult<WatchMessage, void>> | undefined

  constructor(harness: Harness, peer: Peer) {
    this.#harness = harness
    this.#peer = peer
  }

  ask(interest: ReadonlySet<string> | undefined): void {
    this.interest = interest
    this.replica.setInterest(interest)
  }

  restart(): void {
    if (!this.replica.synced) this.replica = new Replica()
    else this.replica = decodeReplica(encodeReplica(this.replica))
    this.replica.setInterest(this.interest)
  }

  /** With `old`, the broker is of a release that does not support interests. */
  async connect(packed: boolean, old = false): Promise<void> {
    await this.close()
    this.#stop = new AbortController()
    const { interest, ...request } = this.replica.begin()
    const asked = old || interest === undefined ? {} : { interest }
    const takes = packed ? { takes: ['zstd' as const] } : {}
    const watch = this.#harness.broker.watch(this.#peer, { ...request, ...asked, ...takes }, this.#stop.signal)
    this.#messages = watch[Symbol.asyncIterator]() as AsyncIterator<WatchMessage, void>
  }

  /**
   * Reads one message and returns its type. Returns undefined when there is none, or when the stream must be opened
   * again.
   */
  async read(): Promise<WatchMessage['t'] | undefined> {
    this.#next ??= this.#messages?.next()
    const turns = (async () => {
      for (let i = 0; i < 20; i += 1) await new Promise((resolve) => setImmediate(resolve))
      return undefined
    })()
    const got = await Promise.race([this.#next, turns])
    if (got === undefined) return undefined
    this.#next = undefined
    const message = got.done === true ? undefined : decodeWatchMessage(encodeWatchMessage(got.value))
    if (message === undefined) return undefined
    try {
      this.replica.apply(message)
    } catch (error) {
      if (!(error instanceof ReplicaError)) throw error
      this.replica.forgetPosition()
      await this.connect(false, true)
    }
    return message.t
  }

  /** Reads until the member has everything. */
  async finish(packed: boolean, old = false): Promise<void> {
    await this.connect(packed, old)
    for (let i = 0; i < 10_000; i += 1) {
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

const record = fc.record({ namespace: fc.constantFrom(...NAMESPACES), name: fc.constantFrom('a', 'b', 'c') })
const step = fc.oneof(
  { weight: 5, arbitrary: fc.record({ t: fc.constant('put' as const), at: record, slice: fc.boolean() }) },
  { weight: 3, arbitrary: fc.record({ t: fc.constant('remove' as const), at: record, slice: fc.boolean() }) },
  { weight: 6, arbitrary: fc.record({ t: fc.constant('read' as const), reader: fc.nat(2) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      t: fc.constant('ask' as const),
      reader: fc.nat(2),
      interest: fc.option(fc.subarray(NAMESPACES), { nil: undefined, freq: 8 }),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      t: fc.constant('connect' as const),
      reader: fc.nat(2),
      packed: fc.boolean(),
      old: fc.integer({ min: 0, max: 9 }).map((n) => n === 0),
    }),
  },
  { weight: 1, arbitrary: fc.record({ t: fc.constant('restart' as const), reader: fc.nat(2) }) },
  { weight: 1, arbitrary: fc.record({ t: fc.constant('forget' as const) }) },
)

t.test('three members with interests that change, broken streams, restarts and what was forgotten', async (t) => {
  const harness = await startBroker(t, { keepRemoved: 12 })
  const { log } = harness
  const peers: Peer[] = []
  for (const id of ['milano', 'paris', 'tokyo']) peers.push((await join_(harness, id)).peer)
  for (const peer of peers) await new Publisher(harness, peer).publish([])
  // Two namespaces have so many records that the broker encodes them once for all members that ask for them.
  const { body } = aSlice('bulk', '10.42.0.9')
  await log.transact((tx) => {
    for (let i = 0; i < 150; i += 1)
      for (const at of ['blue', 'red']) tx.put('record', `roma/EndpointSlice/${at}/bulk-${i}`, { createdAtMs: 1, body })
  })
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 50 }), fc.boolean(), async (steps, packed) => {
      // The time passes so that the rate limit on new streams does not apply.
      await harness.clock.advance(60_000)
      const readers = peers.map((peer) => new Reader(harness, peer))
      for (const reader of readers) reader.ask(new Set(['shop', 'blue']))
      const keyOf = ({ namespace, name }: { namespace: string; name: string }, slice: boolean): string =>
        `roma/${slice ? 'EndpointSlice' : 'ServiceExport'}/${namespace}/${name}`
      for (const s of steps) {
        const reader = 'reader' in s ? readers[s.reader] : undefined
        if (s.t === 'put') {
          const made = s.slice ? aSlice(s.at.name, '10.42.0.1') : anExport(s.at.name)
          await log.transact((tx) => tx.put('record', keyOf(s.at, s.slice), { createdAtMs: 1, body: made.body }))
        } else if (s.t === 'remove') await log.transact((tx) => tx.remove('record', keyOf(s.at, s.slice)))
        else if (s.t === 'forget') {
          // Makes so many removals that the log forgets older ones.
          for (let i = 0; i < 15; i += 1) {
            const key = `roma/ServiceExport/none/x${i}`
            await log.transact((tx) => tx.put('record', key, { createdAtMs: 1, body: anExport('x').body }))
            await log.transact((tx) => tx.remove('record', key))
          }
        } else if (s.t === 'read') await reader?.read()
        else if (s.t === 'ask') reader?.ask(s.interest && new Set(s.interest))
        else if (s.t === 'connect') await reader?.connect(s.packed, s.old)
        else {
          await reader?.close()
          reader?.restart()
        }
        for (const { replica, interest } of readers) {
          if (replica.scope === undefined) continue
          const surplus = [...replica.records.values()].find(({ key }) => !isOfInterest(interest, key))
          if (surplus !== undefined) throw new Error(`${surplus.key.namespace} is not asked for`)
        }
      }
      for (const reader of readers) {
        await reader.finish(packed)
        const want = truth(log, reader.interest)
        if (copy(reader.replica) !== want) throw new Error(`got:\n${copy(reader.replica)}\nexpected:\n${want}`)
        const { scope, exported } = reader.replica
        const text = (names: ReadonlySet<string> | undefined): string =>
          names === undefined ? 'all' : [...names].sort().join()
        if (text(scope) !== text(reader.interest)) throw new Error(`scope ${text(scope)}`)
        const listed = exported && [...exported].sort().join()
        if (reader.interest !== undefined && listed !== exportedIn(log).join())
          throw new Error(`exported ${String(listed)}`)
        // A broker that does not support interests sends everything.
        await reader.finish(packed, true).catch(() => reader.finish(packed, true))
        if (copy(reader.replica) !== truth(log, undefined)) throw new Error('not all of a broker of an earlier release')
        await reader.close()
      }
    }),
    { numRuns: 100 },
  )
  t.pass('every copy was right')
})

t.test('a new namespace is served in one round trip, from where the member stands', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const publisher = new Publisher(harness, peer)
  const records = ['blue', 'shop', 'void'].flatMap((namespace) => [
    anExport('web', { type: 'Headless' }, namespace),
    aSlice('web', '10.42.0.5', namespace),
  ])
  await publisher.publish(records)
  const first = new Watcher(harness, peer, { interest: { namespaces: new Set(['shop']), missing: none } })
  await first.line(/^synced/)
  t.same(first.lines, [
    'reset whole',
    'exported whole +blue,+shop,+void',
    'put milano/Cluster//milano',
    'put milano/ServiceExport/shop/web',
    'put milano/EndpointSlice/shop/web-1',
    'synced complete=,milano departed=',
  ])
  await publisher.put(anExport('db', { type: 'Headless' }, 'void'))
  await publisher.put(anExport('db', { type: 'Headless' }, 'shop'))
  await first.line('put milano/ServiceExport/shop/db')
  const { epoch, revision } = first
  await first.stop()
  t.notOk(first.lines.includes('put milano/ServiceExport/void/db'))
  const namespaces = new Set(['blue', 'shop'])
  const interest = { namespaces, missing: new Set(['blue']) }
  const second = new Watcher(harness, peer, { resume: { epoch, revision }, interest })
  await second.line(/^synced/)
  t.same(second.lines, [
    'reset resumed',
    'put milano/ServiceExport/blue/web',
    'put milano/EndpointSlice/blue/web-1',
    'synced complete=,milano departed=',
  ])
  await publisher.remove(anExport('web', {}, 'blue'))
  await second.line('remove milano/ServiceExport/blue/web')
  await publisher.put(anExport('web', { type: 'Headless' }, 'new'))
  await second.line('exported +new')
  await second.line('exported -blue')
  await second.stop()
})

t.test('what was made for one that lacked a namespace is no good for one that stands behind a removal', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const publisher = new Publisher(harness, peer)
  await publisher.publish([anExport('a', { type: 'Headless' }, 'blue'), anExport('b', { type: 'Headless' }, 'blue')])
  const { epoch } = harness.log
  const added = async (): Promise<string[]> => {
    const resume = { epoch, revision: harness.log.revision }
    const blue = new Set(['blue'])
    const watcher = new Watcher(harness, peer, { resume, interest: { namespaces: blue, missing: blue } })
    await watcher.line(/^synced/)
    await watcher.stop()
    return watcher.lines.slice(1, -1)
  }
  const [a, b] = ['put milano/ServiceExport/blue/a', 'put milano/ServiceExport/blue/b']
  t.same(await added(), [a, b])
  t.same(await added(), [a, b], 'a second time')
  await publisher.remove(anExport('a', {}, 'blue'))
  await publisher.acknowledged()
  t.same(await added(), [b])
})

t.test('streams that are shown the same are given the same bytes, and others are not woken', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const publisher = new Publisher(harness, peer)
  await publisher.publish([anExport('web', { type: 'Headless' })])
  const asks = (...names: string[]) => ({ interest: { namespaces: new Set(names), missing: none } })
  const alike = [1, 2, 3].map(() => new Watcher(harness, peer, asks('shop', 'blue')))
  const other = new Watcher(harness, peer, asks('blue'))
  for (const watcher of [...alike, other]) await watcher.line(/^synced/)
  for (const name of ['a', 'b', 'c']) await publisher.put(anExport(name, { type: 'Headless' }))
  for (const watcher of alike) await watcher.line('put milano/ServiceExport/shop/c')
  const [one, two, three] = alike.map((watcher) => watcher.batches.at(-1))
  t.ok(one !== undefined && one === two && two === three, 'one object')
  t.notOk(other.lines.some((line) => line.includes('/shop/')))
  const before = other.revision
  t.ok(before < harness.log.revision)
  harness.broker.reportContact()
  await other.line(/^contact/)
  t.equal(other.revision, harness.log.revision, 'now and then it hears where it stands')
  for (const watcher of [...alike, other]) await watcher.stop()
})
