import fc from 'fast-check'
import t from 'tap'
import type { MemberRecord, StoredRecord } from '../../model/records.ts'
import type { Peer } from '../../protocol/broker-api.ts'
import type { BrokerClient } from '../../protocol/broker-client.ts'
import { canonicalJson, memberKeyText } from '../../protocol/codec/content-hash.ts'
import { type InMemoryLink, inMemoryBroker } from '../../protocol/transport/in-memory.ts'
import { PublishSession, type RefusedRecord } from '../../protocol/sessions/publish-session.ts'
import { type ReplicaStore, decodeReplica, encodeReplica } from '../../protocol/replica/replica-file.ts'
import { Replica } from '../../protocol/replica/record-replica.ts'
import { WatchSession } from '../../protocol/sessions/watch-session.ts'
import { eventually } from '../support/eventually.ts'
import { FACTS, byKey, slice } from './samples.ts'
import { authority, clock, member, silent, startSite } from './site.ts'
import { FakeBroker } from './fake-broker.ts'

const quick = { retryMinMs: 1, retryMaxMs: 20 }
const signal = AbortSignal.timeout(60_000)
const milano: Peer = { cluster: 'milano' as Peer['cluster'], address: '192.0.2.1', serial: '01' }

interface Publishing {
  session: PublishSession
  refused: RefusedRecord[]
  stop: () => Promise<void>
}

function publish(connect: () => BrokerClient, init = {}): Publishing {
  const refused: RefusedRecord[] = []
  const session = new PublishSession(
    { connect, clock, logger: silent, onRefused: (r) => refused.push(r) },
    { ...quick, ...init },
  )
  const stop = new AbortController()
  const done = session.run(stop.signal)
  return {
    session,
    refused,
    async stop() {
      stop.abort()
      await done
    },
  }
}

/** What the broker has received since the last call, as words. */
function taken(api: FakeBroker): string[] {
  return api.received.splice(0).map((message) => {
    if (message.t === 'put') return `put ${message.record.name}`
    if (message.t === 'remove') return `remove ${message.key.name}`
    return message.t === 'digest' ? `digest ${message.entries.length}` : message.t
  })
}

function held(api: FakeBroker, cluster = 'milano'): string {
  const records = [...api.recordsOf(cluster).values()].map(({ key, body }) => [memberKeyText(key as never), body])
  return canonicalJson(records.sort())
}

function wanted(records: ReadonlyMap<string, MemberRecord>): string {
  return canonicalJson([...records].map(([key, { body }]) => [key, body]).sort())
}

t.test('publish: the set, then only differences', async (t) => {
  const api = new FakeBroker()
  const link = inMemoryBroker(api, milano)
  const { session, stop } = publish(() => link.connect())
  t.equal(session.state().t, 'waiting', 'nothing is declared before anything is known')
  t.same(api.received, [])

  const set = byKey(slice('web-1'), slice('web-2'))
  session.setFacts(FACTS)
  session.setDesired(set)
  t.same(session.recordState('EndpointSlice/shop/web-1'), { t: 'pending' })
  await session.whenSettled(signal)
  t.same(taken(api), ['declare', 'digest 2', 'facts', 'put web-1', 'put web-2'])
  t.same(session.recordState('EndpointSlice/shop/web-1'), { t: 'stored' })
  t.equal(held(api), wanted(set))

  session.setDesired(byKey(slice('web-1', '10.42.0.9'), slice('web-3')))
  session.setFacts({ ...FACTS })
  await session.whenSettled(signal)
  t.same(taken(api), ['put web-1', 'put web-3', 'remove web-2'], 'adds before it removes; equal facts are not sent')

  link.cut()
  await eventually(() => session.state().t === 'waiting')
  t.match(session.state(), { error: { message: 'the broker has stopped' } })
  t.same(session.recordState('EndpointSlice/shop/web-1'), { t: 'stored' }, 'an outage takes nothing back')
  session.setDesired(byKey(slice('web-1', '10.42.0.9'), slice('web-3', '10.42.0.3')))
  link.mend()
  await session.whenSettled(signal)
  t.same(taken(api), ['declare', 'digest 2', 'put web-3'], 'only the difference')

  link.cut()
  await eventually(() => session.state().t === 'waiting')
  link.mend()
  await session.whenSettled(signal)
  t.same(taken(api), ['declare'], 'nothing differs, nothing is sent')
  await stop()
  t.equal(session.state().t, 'closed')
  t.equal(api.openStreams, 0)
  t.equal(api.recordsOf('milano').size, 2, 'stopping withdraws nothing')
})

t.test('publish: refusals are told once and not repeated', async (t) => {
  const api = new FakeBroker()
  api.refuse = ({ body }) =>
    body.kind === 'EndpointSlice' && body.endpoints[0]?.addresses[0]?.startsWith('127.') === true
      ? { field: 'endpoints[0].addresses[0]', reason: 'AddressOutsidePods', message: 'loopback' }
      : undefined
  const link = inMemoryBroker(api, milano)
  const { session, refused, stop } = publish(() => link.connect())
  const bad = 'EndpointSlice/shop/bad'
  session.setDesired(byKey(slice('bad', '127.0.0.1'), slice('web-1')))
  await session.whenSettled(signal)
  t.same(refused, [{ key: bad, field: 'endpoints[0].addresses[0]', reason: 'AddressOutsidePods', message: 'loopback' }])
  t.same(session.recordState(bad), {
    t: 'refused',
    field: 'endpoints[0].addresses[0]',
    reason: 'AddressOutsidePods',
    message: 'loopback',
  })
  taken(api)

  link.cut()
  await eventually(() => session.state().t === 'waiting')
  link.mend()
  await session.whenSettled(signal)
  t.same(taken(api), ['declare'], 'the declared set leaves it out')

  session.setDesired(byKey(slice('bad', '10.42.0.1'), slice('web-1')))
  await session.whenSettled(signal)
  t.same(taken(api), ['put bad'])
  t.same(session.recordState(bad), { t: 'stored' })

  session.setDesired(byKey(slice('bad', '127.0.0.2'), slice('web-1')))
  await session.whenSettled(signal)
  t.same(taken(api), ['put bad', 'remove bad'], 'the version before it is withdrawn')
  t.equal(api.recordsOf('milano').size, 1)
  session.setDesired(byKey(slice('bad', '10.42.0.1'), slice('web-1')))
  await session.whenSettled(signal)
  session.setDesired(byKey(slice('bad', '127.0.0.2'), slice('web-1')))
  await session.whenSettled(signal)
  t.same(taken(api), ['put bad', 'put bad', 'remove bad'], 'only the last refusal of a record is remembered')

  api.refuse = () => undefined
  session.retryRefused()
  await session.whenSettled(signal)
  t.same(taken(api), ['put bad'])
  const huge = slice('web-1') as MemberRecord & { body: { kind: 'EndpointSlice' } }
  session.setDesired(byKey({ ...huge, body: { ...huge.body, service: 'x'.repeat(300) } }))
  t.match(
    refused.at(-1),
    { field: 'record.body.service', reason: 'InvalidValue', message: /300 characters: expected at most 253/ },
    'without asking the broker',
  )
  await session.whenSettled(signal)
  taken(api)
  session.retryRefused()
  await session.whenSettled(signal)
  t.same(taken(api), [], 'nor is it offered again: it would end the stream')
  await stop()
})

t.test('publish: a broker of an earlier release is given nothing that is not for all members', async (t) => {
  const api = new FakeBroker()
  const link = inMemoryBroker(api, milano)
  const { session, refused, stop } = publish(() => link.connect())
  const open = slice('web-1')
  const narrow: MemberRecord = {
    ...slice('web-2'),
    body: { ...slice('web-2').body, offeredTo: [] } as MemberRecord['body'],
  }
  session.setDesired(byKey(open, slice('web-2')))
  await session.whenSettled(signal)
  t.equal(session.keepsToOffers, true)
  taken(api)

  api.keepsToOffers = false
  link.cut()
  link.mend()
  await eventually(() => session.keepsToOffers === false, { say: 'the other release' })
  await session.whenSettled(signal)
  session.setDesired(byKey(open, narrow))
  await session.whenSettled(signal)
  t.notOk(taken(api).includes('put web-2'))
  t.equal(held(api), wanted(byKey(open)), 'the record for all is removed')
  t.same(
    [session.recordState('EndpointSlice/shop/web-2').t, refused.map(({ reason }) => reason)],
    ['refused', ['OffersNotSupported']],
  )
  session.retryRefused()
  await session.whenSettled(signal)
  t.equal(held(api), wanted(byKey(open)))

  link.cut()
  link.mend()
  await eventually(() => taken(api).includes('declare'), { say: 'another stream' })
  await session.whenSettled(signal)
  t.equal(held(api), wanted(byKey(open)), 'also when the set is declared')

  api.keepsToOffers = true
  link.cut()
  link.mend()
  await eventually(() => session.keepsToOffers === true, { say: 'this release' })
  await session.whenSettled(signal)
  t.equal(held(api), wanted(byKey(open, narrow)))
  await stop()
})

t.test('publish: a large set goes through a small window, in digest parts', async (t) => {
  const api = new FakeBroker()
  const link = inMemoryBroker(api, milano)
  const { session, stop } = publish(() => link.connect(), { window: 3, digestPart: 100 })
  const set = byKey(...Array.from({ length: 250 }, (_, i) => slice(`web-${i}`)))
  session.setDesired(set)
  await session.whenSettled(signal)
  t.same(taken(api).slice(0, 5), ['declare', 'digest 100', 'digest 100', 'digest 50', 'put web-0'])
  t.equal(held(api), wanted(set))
  await stop()
})

t.test('publish: a broker that does not answer is left, and asked again', async (t) => {
  const api = new FakeBroker()
  const deaf = new FakeBroker()
  const done = (): Promise<void> => Promise.resolve()
  deaf.openPublish = () => ({ onMessage: done, onLast: done, onEnd: () => undefined })
  let link = inMemoryBroker(deaf, milano)
  const { session, stop } = publish(() => link.connect(), { answerTimeoutMs: 30 })
  session.setDesired(byKey(slice('web-1')))
  await eventually(() => 'error' in session.state())
  t.match(session.state(), { error: { name: 'BrokerUnreachableError', message: 'the broker does not answer' } })
  link = inMemoryBroker(api, milano)
  await session.whenSettled(signal)
  await stop()
})

const names = ['a', 'b', 'c', 'd', 'e']
const publishStep = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.dictionary(fc.constantFrom(...names), fc.nat(5)).map((set) => ({ t: 'desire' as const, set })),
  },
  { weight: 2, arbitrary: fc.constant({ t: 'cut' as const }) },
  { weight: 1, arbitrary: fc.constant({ t: 'settle' as const }) },
  { weight: 1, arbitrary: fc.constant({ t: 'lose' as const }) },
)

t.test('publish: whatever happens in between, the broker ends up with the set', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(publishStep, { maxLength: 12 }), async (steps) => {
      const api = new FakeBroker()
      // The broker never accepts the address 10.0.0.5.
      api.refuse = ({ body }) =>
        body.kind === 'EndpointSlice' && body.endpoints[0]?.addresses[0] === '10.0.0.5'
          ? { field: 'f', reason: 'InvalidValue', message: 'r' }
          : undefined
      const link: InMemoryLink = inMemoryBroker(api, milano)
      const { session, stop } = publish(() => link.connect(), { window: 2 })
      let set = byKey()
      session.setDesired(set)
      for (const step of steps) {
        if (step.t === 'desire')
          session.setDesired((set = byKey(...Object.entries(step.set).map(([n, a]) => slice(n, `10.0.0.${a}`)))))
        if (step.t === 'settle') await session.whenSettled(signal)
        if (step.t === 'lose') api.forgetAll()
        if (step.t === 'cut' || step.t === 'lose') {
          link.cut()
          link.mend()
        }
        await Promise.resolve()
      }
      // After a cut the session declares again, even if the broker lost its disk meanwhile.
      link.cut()
      await eventually(() => session.state().t === 'waiting', { intervalMs: 1 })
      link.mend()
      await session.whenSettled(signal)
      const want = byKey(
        ...[...set.values()].filter(
          ({ body }) => body.kind !== 'EndpointSlice' || body.endpoints[0]?.addresses[0] !== '10.0.0.5',
        ),
      )
      const ok = held(api) === wanted(want)
      await stop()
      return ok
    }),
    { numRuns: 150 },
  )
})

interface Watching {
  session: WatchSession
  replica: Replica
  stop: () => Promise<void>
}

function watch(connect: () => BrokerClient, replica = new Replica(), store?: ReplicaStore): Watching {
  const session = new WatchSession(
    { connect, replica, clock, logger: silent, onChange: () => undefined, ...(store === undefined ? {} : { store }) },
    { ...quick, saveEveryMs: 1 },
  )
  const stop = new AbortController()
  const done = session.run(stop.signal)
  return {
    session,
    replica,
    async stop() {
      stop.abort()
      await done
    },
  }
}

function copy(replica: Replica): string {
  return [...replica.records.keys()].sort().join(' ')
}

function truth(api: FakeBroker): string {
  return [...api.records.keys()].sort().join(' ')
}

t.test('watch: follows, survives outages, resumes with the difference', async (t) => {
  const api = new FakeBroker()
  api.complete.add('paris')
  api.put('paris', slice('web-1'))
  api.put('paris', slice('web-2'))
  const link = inMemoryBroker(api, milano)
  let saved: Uint8Array | undefined
  const store: ReplicaStore = {
    load: () => Promise.resolve(saved === undefined ? new Replica() : decodeReplica(saved)),
    save: (replica) => {
      saved = encodeReplica(replica)
      return Promise.resolve()
    },
  }
  const first = watch(() => link.connect(), await store.load(), store)
  await eventually(() => first.session.state().t === 'live')
  t.equal(copy(first.replica), truth(api))
  api.put('paris', slice('web-3'))
  api.removeKey('paris', { kind: 'EndpointSlice', namespace: 'shop', name: 'web-1' })
  await eventually(() => copy(first.replica) === truth(api))

  link.cut()
  await eventually(() => first.session.state().t === 'waiting')
  t.equal(first.replica.records.size, 2, 'the copy stands')
  api.put('paris', slice('web-4'))
  const seen = first.replica.revision
  link.mend()
  await eventually(() => copy(first.replica) === truth(api))
  t.equal(first.replica.revision, seen + 1)
  await first.stop()

  link.cut()
  const second = watch(() => link.connect(), await store.load(), store)
  await eventually(() => second.session.state().t === 'waiting')
  t.ok(second.replica.synced, 'started without the broker, and knows everything')
  t.equal(copy(second.replica), truth(api))
  api.put('paris', slice('web-5'))
  link.mend()
  await eventually(() => copy(second.replica) === truth(api))

  api.forgetAll()
  link.cut()
  link.mend()
  await eventually(() => second.replica.epoch === api.epoch)
  t.equal(second.replica.records.size, 4, 'a broker that lost everything removes nothing')
  api.put('paris', slice('web-5'))
  api.complete.add('paris')
  api.poke()
  await eventually(() => copy(second.replica) === truth(api), { say: 'once paris has declared, only its set is left' })
  await second.stop()
  t.equal(api.openStreams, 0)
})

t.test('over real sockets: two sites, the broker dies and comes back', async (t) => {
  const by = await authority('demo')
  const api = new FakeBroker()
  const first = await startSite(by)
  const { port } = first.server.address
  Object.assign(first.api, { openPublish: api.openPublish.bind(api), watch: api.watch.bind(api) })
  const identities = { milano: await member(by, 'milano'), paris: await member(by, 'paris') }
  const clients = { milano: first.client(identities.milano), paris: first.client(identities.paris) }
  const publishing = publish(() => clients.milano)
  const watching = watch(() => clients.paris)
  publishing.session.setDesired(byKey(...Array.from({ length: 500 }, (_, i) => slice(`web-${i}`))))
  await publishing.session.whenSettled(signal)
  await eventually(() => watching.replica.records.size === 500)
  t.equal(taken(api).filter((word) => word.startsWith('put')).length, 500)

  await first.server.close()
  await eventually(() => publishing.session.state().t === 'waiting' && watching.session.state().t === 'waiting')
  t.match(publishing.session.state(), { error: { name: 'BrokerUnreachableError' } })
  t.equal(watching.replica.records.size, 500)
  publishing.session.setDesired(byKey(...Array.from({ length: 500 }, (_, i) => slice(`web-${i + 1}`))))

  const second = await startSite(by, { listen: { host: '127.0.0.1', port } })
  Object.assign(second.api, { openPublish: api.openPublish.bind(api), watch: api.watch.bind(api) })
  await publishing.session.whenSettled(signal)
  const has = (record: StoredRecord['key']['name']): boolean =>
    [...watching.replica.records.values()].some(({ key }) => key.name === record)
  await eventually(() => has('web-500') && !has('web-0'))
  t.same(taken(api), ['declare', 'digest 500', 'put web-500'], 'only the difference is sent again')
  await publishing.stop()
  await watching.stop()
  await first.close().catch(() => undefined)
  await second.close()
})

t.test('a certificate of another clusterset: the session says so in words', async (t) => {
  const by = await authority('demo')
  const site = await startSite(by)
  t.teardown(() => site.close())
  const stranger = site.client(await member(await authority('other'), 'milano'))
  const publishing = publish(() => stranger)
  publishing.session.setDesired(byKey(slice('web-1')))
  // A first attempt may end before the broker has given its reason.
  const found = await eventually(() => {
    const state = publishing.session.state()
    return 'error' in state && state.error.name === 'CertificateError' && state.error
  })
  t.match(found, { problem: 'otherClusterset' })
  await publishing.stop()
})
