/** Members as an operator sees them, and eviction, which is atomic and can be repeated. */
import t from 'tap'
import { DEFAULT_BROKER_CONFIG } from '../../broker/config/broker-config.ts'
import type { ClusterId } from '../../model/ids.ts'
import { recordKeyText } from '../../model/records.ts'
import type { ClusterFacts, Peer } from '../../protocol/broker-api.ts'
import { clusterSpec } from '../../broker/addresses/addresses.ts'
import type { MemberRow } from '../../broker/store/rows.ts'
import { failure, messageOf } from '../support/failure.ts'
import { type Harness, Publisher, Watcher, aSlice, anExport, facts, join_, startBroker } from './support/harness.ts'

const START = '2026-01-01T00:00:00Z'

async function lines({ tokens }: Harness): Promise<string[]> {
  const time = (ms: number): string => new Date(ms).toISOString().replace('.000Z', 'Z')
  return (await tokens.members()).map(({ id, state, sinceMs, records, podCIDRs, globalCIDRs }) =>
    [id, state, time(sinceMs), records, podCIDRs.join(','), globalCIDRs.join(',') || '-'].join(' '),
  )
}

t.test('who is there: in contact, silent, gone', async (t) => {
  const harness = await startBroker(t, { config: { globalRange: '244.0.0.0/8' } })
  const { broker, clock } = harness
  const milano = await join_(harness, 'milano')
  const paris = await join_(harness, 'paris', { facts: facts(['10.50.0.0/16']) })
  const tokyo = await join_(harness, 'tokyo', { facts: facts(['10.60.0.0/16']) })
  await broker.leave(tokyo.peer)
  const publisher = new Publisher(harness, milano.peer)
  await publisher.publish([anExport('web'), aSlice('web', '10.42.0.5')])
  await clock.advance(90_000)
  await broker.tidy()
  await clock.advance(60_000)
  t.same(await lines(harness), [
    `milano in contact ${START} 2 10.42.0.0/16 -`,
    `paris silent ${START} 0 10.50.0.0/16 -`,
    `tokyo left ${START} 0 10.60.0.0/16 -`,
  ])
  publisher.end()
  const watcher = new Watcher(harness, paris.peer)
  await watcher.line(/^synced/)
  await broker.tidy()
  t.same(await lines(harness), [
    'milano silent 2026-01-01T00:02:30Z 2 10.42.0.0/16 -',
    'paris in contact 2026-01-01T00:02:30Z 0 10.50.0.0/16 -',
    `tokyo left ${START} 0 10.60.0.0/16 -`,
  ])
  await watcher.stop()
})

t.test('what a broker that was killed has left about contact ages', async (t) => {
  const first = await startBroker(t)
  const { peer } = await join_(first, 'milano')
  const publisher = new Publisher(first, peer)
  await publisher.publish([])
  await first.broker.tidy()
  await first.clock.advance(149_000)
  const state = async (): Promise<string> => (await first.tokens.members()).map((one) => one.state).join()
  t.equal(await state(), 'in contact')
  await first.clock.advance(2000)
  t.equal(await state(), 'silent')
  const second = await startBroker(t, { stateDir: first.stateDir, clock: first.clock })
  await second.broker.tidy()
  t.equal(second.log.get('contact', 'milano')?.connectedSinceMs, undefined, 'the next broker takes it back')
  await second.stop()
})

t.test('whoever is in contact is evicted by force alone', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const publisher = new Publisher(harness, peer)
  await publisher.publish([anExport('web')])
  await harness.broker.tidy()
  const refused = await failure(harness.tokens.evict({ cluster: 'milano', force: false }))
  t.match(refused, { code: 'FailedPrecondition', field: 'cluster' })
  t.equal(
    refused.message,
    `cluster "milano" has been in contact with this broker since ${START}: run "sealane leave" there, or evict it anyway with --force`,
  )
  t.equal(harness.log.count('record', 'milano'), 2, 'nothing was done')
  await harness.tokens.evict({ cluster: 'milano', force: true })
  await harness.log.refresh()
  t.equal(
    await messageOf(publisher.put(anExport('api'))),
    `cluster "milano" was evicted at ${START}: join again with a new token`,
    'no word of it counts any more',
  )
  t.equal(
    await messageOf(harness.broker.renew(peer, new Uint8Array())),
    await messageOf(publisher.put(anExport('api'))),
  )
})

t.test('everything of it goes, and what it had comes back with it', async (t) => {
  const harness = await startBroker(t)
  const first = await join_(harness, 'milano')
  const paris = await join_(harness, 'paris')
  const [publisher, other] = [new Publisher(harness, first.peer), new Publisher(harness, paris.peer)]
  await publisher.publish([anExport('web'), aSlice('web', '10.42.0.5')])
  await other.publish([])
  const [watcher, victim] = [new Watcher(harness, paris.peer), new Watcher(harness, first.peer)]
  const ip = recordKeyText({ cluster: '', kind: 'ClusterSetIP', namespace: 'shop', name: 'web' })
  await watcher.line(/^synced complete=,milano,paris departed=$/)
  const evicted = await harness.tokens.evict({ cluster: 'milano', force: true })
  t.same(evicted, { id: 'milano', evictedAtMs: harness.clock.now(), repeated: false })
  await harness.log.refresh()
  await harness.clock.advance(1000)
  await watcher.line('synced complete=,paris departed=milano')
  const message = `cluster "milano" was evicted at ${START}: join again with a new token`
  t.match(await victim.ended(), { code: 'PermissionDenied', message })
  t.same(
    watcher.lines.filter((line) => line.startsWith('remove')).sort(),
    [
      `remove ${ip}`,
      'remove milano/Cluster//milano',
      'remove milano/EndpointSlice/shop/web-1',
      'remove milano/ServiceExport/shop/web',
    ].sort(),
  )
  await harness.clock.advance(1000)
  const block = harness.log.get('member', 'milano')?.blocks['10.42.0.0/16']
  t.ok(block, 'overlapping, it had a block')
  const again = await harness.tokens.evict({ cluster: 'milano', force: false })
  t.same(again, { ...evicted, repeated: true }, 'the second time nothing happens')
  const second = await join_(harness, 'milano')
  t.equal(second.response.clusterIndex, first.response.clusterIndex)
  t.same(second.response.globalCIDRs, [block])
  await harness.broker.tidy()
  t.equal((await harness.tokens.members())[0]?.state, 'silent', 'the stream of the evicted one is not its own')
  t.equal(publisher.ended, message, 'and it has ended')
  publisher.end()
  await watcher.stop()
})

/** Opens a Watch whose peer stops reading after the first message, so that its stream stays open. */
async function unread({ broker }: Harness, peer: Peer): Promise<() => Promise<unknown>> {
  const stream = broker.watch(peer, {}, new AbortController().signal)[Symbol.asyncIterator]()
  await stream.next()
  return () => stream.next()
}

t.test('streams of an evicted member that reads nothing hold no place of its successor', async (t) => {
  const { streams } = DEFAULT_BROKER_CONFIG.limits.quota
  const watches = streams - 1
  const harness = await startBroker(t)
  const first = await join_(harness, 'milano')
  const held = []
  for (let i = 0; i < watches; i += 1) held.push(await unread(harness, first.peer))
  const full = `watch: the quota of cluster "milano" is ${streams} streams, one of them to publish`
  t.equal(await messageOf(unread(harness, first.peer)), full)
  await harness.tokens.evict({ cluster: 'milano', force: true })
  const second = await join_(harness, 'milano')
  await harness.broker.tidy()
  t.equal((await harness.tokens.members())[0]?.state, 'silent', 'it is not in contact by them')
  const open = []
  for (let i = 0; i < watches; i += 1) open.push(await unread(harness, second.peer))
  t.equal(await messageOf(unread(harness, second.peer)), full, 'its own count')
  for (const next of held) t.match(await messageOf(next()), /^certificate [0-9a-f]+ of cluster "milano" was replaced/)
  t.equal(await messageOf(unread(harness, second.peer)), full, 'the end of the others frees none of its places')
})

t.test('a stream that another has succeeded says nothing of contact when it ends', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const [older, newer] = [new Publisher(harness, peer), new Publisher(harness, peer)]
  await newer.publish([])
  await harness.clock.advance(1000)
  const before = harness.log.get('contact', 'milano')?.lastSeenMs
  older.end()
  await harness.clock.advance(0)
  await harness.log.transact(() => undefined)
  t.equal(harness.log.get('contact', 'milano')?.lastSeenMs, before)
})

t.test('a token of many uses does not bring back who was evicted; a new one does', async (t) => {
  const harness = await startBroker(t)
  const { id, text } = await harness.tokens.create({ uses: 5 })
  await join_(harness, 'milano', { token: text })
  await harness.tokens.evict({ cluster: 'milano', force: true })
  await harness.clock.advance(1000)
  t.equal(
    await messageOf(join_(harness, 'milano', { token: text })),
    `token: ${id} was used by cluster "milano" before it was evicted at ${START}: create a new one with "sealane token create"`,
  )
  await join_(harness, 'paris', { token: text, facts: facts(['10.50.0.0/16']) })
  t.equal((await harness.tokens.list())[0]?.usesLeft, 3, 'for others it is as good as before')
  await join_(harness, 'milano')
})

t.test('members learn that one is drained, also after it was evicted and joined again', async (t) => {
  const harness = await startBroker(t)
  const drain = (cluster: string, drained: boolean, now?: boolean): Promise<{ readonly changed: boolean }> =>
    harness.tokens.drain({ cluster, drained, now })
  const drained = async (): Promise<Record<string, unknown>> => {
    await harness.log.refresh()
    return Object.fromEntries(
      ['milano', 'paris', 'tokyo'].map((name): [string, unknown] => {
        const key = recordKeyText({ cluster: name as ClusterId, kind: 'Cluster', namespace: '', name })
        const body = harness.log.get('record', key)?.body
        if (body?.kind !== 'Cluster') return [name, 'no record']
        return [name, body.spec.drainedNow === true ? [body.spec.drained, 'now'] : body.spec.drained]
      }),
    )
  }
  t.equal(await messageOf(drain('tokyo', true)), 'cluster "tokyo" is not a member; the clusterset has no members')
  for (const id of ['milano', 'paris', 'tokyo']) await join_(harness, id)
  t.same(await drain('paris', true), { changed: true })
  t.same(await drain('paris', true), { changed: false })
  t.same(await drained(), { milano: undefined, paris: true, tokyo: undefined })
  t.same(
    (await harness.tokens.members()).map((one) => one.drained),
    [undefined, true, undefined],
  )
  await harness.tokens.rekey({ cluster: 'paris' })
  await harness.tokens.evict({ cluster: 'paris', force: true })
  t.match(await messageOf(drain('paris', false)), /^cluster "paris" is not a member: it left at /)
  await join_(harness, 'paris', { facts: facts(['10.77.0.0/16']) })
  t.same(await drained(), { milano: undefined, paris: true, tokyo: undefined }, 'maintenance goes on')
  t.same(await drain('paris', true, true), { changed: true, now: true })
  t.same(await drain('paris', true, true), { changed: false, now: true })
  t.same(await drained(), { milano: undefined, paris: [true, 'now'], tokyo: undefined })
  await harness.tokens.evict({ cluster: 'paris', force: true })
  await join_(harness, 'paris', { facts: facts(['10.77.0.0/16']) })
  t.same(await drained(), { milano: undefined, paris: [true, 'now'], tokyo: undefined }, 'of this kind too')
  t.match(
    (await harness.tokens.members()).find(({ id }) => id === 'paris'),
    { drained: true, drainedNow: true },
  )
  t.same(await drain('paris', true), { changed: true }, 'connections go on again')
  t.same(await drained(), { milano: undefined, paris: true, tokyo: undefined })
  t.same(await drain('paris', true, true), { changed: true, now: true })
  t.same(await drain('paris', false), { changed: true })
  t.same(await drain('paris', false), { changed: false })
  t.same(await drained(), { milano: undefined, paris: undefined, tokyo: undefined })
})

t.test(
  'a drain that a replica of an earlier release has ended is over, and does not come back with another one',
  async (t) => {
    const harness = await startBroker(t)
    await join_(harness, 'paris')
    const row = async (): Promise<MemberRow> => {
      await harness.log.refresh()
      const found = harness.log.get('member', 'paris')
      if (found === undefined) throw new Error('no such member')
      return found
    }
    const spec = (): unknown => {
      const { drained, drainedNow } = clusterSpec(harness.log, 'paris') ?? {}
      return [drained, drainedNow]
    }
    // Such a replica keeps what it does not know of the row.
    const earlier = async (change: (rest: MemberRow) => MemberRow): Promise<void> => {
      const { drained: _, ...rest } = await row()
      await harness.log.transact((tx) => tx.put('member', 'paris', change(rest)))
    }
    await harness.tokens.drain({ cluster: 'paris', drained: true, now: true })
    await harness.log.refresh()
    t.same(spec(), [true, true])
    await earlier((rest) => rest)
    await join_(harness, 'roma')
    t.match(await row(), { drained: undefined, drainedNow: undefined })
    t.same(spec(), [undefined, undefined], 'drainedNow alone is in no record')
    await earlier((rest) => ({ ...rest, drained: true }))
    await join_(harness, 'oslo')
    await harness.log.refresh()
    t.same(spec(), [true, undefined], 'open connections go on')

    await harness.tokens.drain({ cluster: 'paris', drained: true, now: true })
    await earlier((rest) => rest)
    await harness.tokens.evict({ cluster: 'paris', force: true })
    await join_(harness, 'paris')
    t.equal((await row()).drainedNow, undefined, 'nor does it come back with the member')
  },
)

t.test('the ClusterProperties that a member states are in its record, if they are well-formed', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const publisher = new Publisher(harness, peer)
  await publisher.publish([])
  const state = async (properties?: Record<string, string>): Promise<unknown> => {
    await publisher.facts({ ...facts(['10.42.0.0/16']), ...(properties === undefined ? {} : { properties }) })
    await publisher.acknowledged()
    return clusterSpec(harness.log, 'milano')?.properties
  }
  t.equal(clusterSpec(harness.log, 'milano')?.properties, undefined)
  const properties = { 'region.sealane.io': 'eu-south', 'tier.example.org': 'gold' }
  t.same(await state(properties), properties)
  const bad: [Record<string, string>, RegExp][] = [
    [{ 'not a name': 'x' }, /^properties.*"not a name"/],
    [{ 'a.example.org': 'x'.repeat(2000) }, /^properties/],
    [Object.fromEntries(Array.from({ length: 200 }, (_, i) => [`p${i}.example.org`, 'x'])), /^properties.*200/],
  ]
  for (const [one, why] of bad) {
    t.same(await state(one), properties, 'the last good ones stay')
    t.match(publisher.refusals().at(-1), why)
  }
  t.equal(await state(), undefined, 'an earlier release states none')
  publisher.end()
})

t.test('a member that joins again keeps what only its agent states; one that has left does not', async (t) => {
  const harness = await startBroker(t)
  const { tokens, log } = harness
  const stated = { neededCIDRs: ['192.168.7.0/24'], properties: { 'region.sealane.io': 'eu-south' } }
  const again = async (change: Partial<ClusterFacts> = {}): Promise<Partial<ClusterFacts>> => {
    await tokens.rekey({ cluster: 'milano' })
    const { text: token } = await tokens.create({ cluster: 'milano' })
    await join_(harness, 'milano', { token, facts: facts(['10.42.0.0/16', '10.44.0.0/16'], change) })
    const { podCIDRs, neededCIDRs, properties } = log.get('member', 'milano')?.facts ?? facts()
    t.strictSame(podCIDRs, ['10.42.0.0/16', '10.44.0.0/16'], 'what the join states applies')
    t.strictSame(clusterSpec(log, 'milano')?.properties, properties)
    return {
      ...(neededCIDRs === undefined ? {} : { neededCIDRs }),
      ...(properties === undefined ? {} : { properties }),
    }
  }
  await join_(harness, 'milano')
  t.strictSame(await again(), {})
  t.strictSame(await again(stated), stated)
  t.strictSame(await again(), stated)
  const other = { neededCIDRs: [], properties: { 'region.sealane.io': 'asia' } }
  t.strictSame(await again(other), other, 'what a join does state applies')
  await tokens.evict({ cluster: 'milano', force: true })
  await join_(harness, 'milano')
  t.equal(clusterSpec(log, 'milano')?.properties, undefined)
})

t.test('who is no member', async (t) => {
  const harness = await startBroker(t)
  const evict = (cluster: string): Promise<string> => messageOf(harness.tokens.evict({ cluster, force: true }))
  t.equal(await evict('tokyo'), 'cluster "tokyo" is not a member; the clusterset has no members')
  const { peer } = await join_(harness, 'tokyo')
  await harness.broker.leave(peer)
  for (const id of ['paris', 'milano']) await join_(harness, id)
  t.equal(await evict('tokyo'), `cluster "tokyo" is not a member: it left at ${START}; the members are milano, paris`)
  t.equal(await evict('Tokyo!'), 'cluster "Tokyo!": expected an RFC 1123 label: 1 to 63 of a-z, 0-9 and -')
  for (let i = 10; i < 32; i += 1) await join_(harness, `c${i}`, { facts: facts([`10.1${i}.0.0/16`]) })
  const named = Array.from({ length: 20 }, (_, i) => `c${i + 10}`).join(', ')
  t.equal(await evict('kyoto'), `cluster "kyoto" is not a member; the members are ${named} and 4 more`)
})
