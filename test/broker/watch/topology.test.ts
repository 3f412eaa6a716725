/** What a topology keeps from members, at the broker: in streams that are open, that resume, and that come later. */
import t from 'tap'
import { TopologyCommands } from '../../../broker/admin/topology-commands.ts'
import { topologyInForce } from '../../../broker/records/topology-record.ts'
import type { Topology } from '../../../model/records.ts'
import { decodeRecordEvent, memberRecordFromWire } from '../../../protocol/codec/records-codec.ts'
import {
  type Harness,
  type Joined,
  Publisher,
  Watcher,
  aSlice,
  anExport,
  facts,
  join_,
  startBroker,
} from '../support/harness.ts'

const HUB: Topology = { mode: 'hub-and-spoke', hubs: ['milano'] }

function commands({ log, stateDir, clock }: Harness): TopologyCommands {
  const state = { log, etcd: undefined, stateDir }
  return new TopologyCommands({ state, clock, who: { kind: 'operator' }, signal: new AbortController().signal })
}

async function joined(harness: Harness, id: string, at: number, labels: Record<string, string> = {}): Promise<Joined> {
  return join_(harness, id, { facts: facts([`10.${at}.0.0/16`], { serviceCIDRs: [`10.${at + 100}.0.0/16`], labels }) })
}

/** Three members, of which paris and tokyo export web with an address each. */
async function three(harness: Harness, labels: readonly Record<string, string>[] = [{}, {}, {}]) {
  const milano = await joined(harness, 'milano', 42, labels[0])
  const paris = await joined(harness, 'paris', 52, labels[1])
  const tokyo = await joined(harness, 'tokyo', 62, labels[2])
  const publishers = {
    milano: new Publisher(harness, milano.peer),
    paris: new Publisher(harness, paris.peer),
    tokyo: new Publisher(harness, tokyo.peer),
  }
  await publishers.milano.publish([])
  await publishers.paris.publish([anExport('web', { uid: 'p' }), aSlice('web', '10.52.0.5')])
  await publishers.tokyo.publish([])
  return { milano, paris, tokyo, publishers }
}

const foreign = (lines: readonly string[], owner: string): string[] =>
  lines.filter((line) => line.includes(` ${owner}/`))

t.test('an open stream starts again, and lacks the other spoke; a later one too; a hub has all', async (t) => {
  const harness = await startBroker(t)
  const { tokyo, milano } = await three(harness)
  const open = new Watcher(harness, tokyo.peer)
  await open.line('put paris/ServiceExport/shop/web')
  await open.line(/^synced/)
  const before = open.lines.length
  const { revision, epoch } = open
  t.match(await commands(harness).set({ topology: HUB }), { changed: true, number: 1 })
  await open.line('put /Topology//topology')
  const after = (): string[] => open.lines.slice(before)
  t.equal(after()[0], 'reset whole')
  t.same(foreign(after(), 'paris'), [])
  const addresses = after().filter((line) => line.includes('ClusterSetIP'))
  t.match(addresses, [/^put \/ClusterSetIP\/shop\/web /], 'an address says nothing of who exports the service')
  t.ok(after().some((line) => line === 'put milano/Cluster//milano'))
  t.match(
    after().find((line) => line.startsWith('synced')),
    /complete=,milano,paris,tokyo/,
    'so that it is withdrawn',
  )
  await open.stop()

  const resumed = new Watcher(harness, tokyo.peer, { resume: { epoch, revision } })
  await resumed.line(/^synced/)
  t.equal(resumed.lines[0], 'reset whole', 'a position of before the change is of no use')
  t.same(foreign(resumed.lines, 'paris'), [])
  const { revision: later } = resumed
  await resumed.stop()
  const again = new Watcher(harness, tokyo.peer, { resume: { epoch, revision: later } })
  await again.line(/^synced/)
  t.equal(again.lines[0], 'reset resumed')
  await again.stop()

  const hub = new Watcher(harness, milano.peer)
  await hub.line(/^synced/)
  t.ok(foreign(hub.lines, 'paris').length > 0 && foreign(hub.lines, 'tokyo').length > 0)
  await hub.stop()
})

t.test('labels: a change of them changes links, in open streams and through a restart', async (t) => {
  const harness = await startBroker(t)
  const prod = { selector: { matchLabels: { env: 'prod' } } }
  const { tokyo, publishers } = await three(harness, [{ env: 'prod' }, { env: 'prod' }, { env: 'test' }])
  await commands(harness).set({ topology: { mode: 'pairs', pairs: [{ between: prod, and: prod }] } })
  const watcher = new Watcher(harness, tokyo.peer)
  await watcher.line(/^synced/)
  t.same([...foreign(watcher.lines, 'paris'), ...foreign(watcher.lines, 'milano')], [])
  const own = facts(['10.62.0.0/16'], { serviceCIDRs: ['10.162.0.0/16'], labels: { env: 'prod' } })
  await publishers.tokyo.facts(own)
  await publishers.tokyo.acknowledged()
  await harness.clock.advance(5000)
  await watcher.line('put paris/ServiceExport/shop/web')
  const { length } = watcher.lines
  await publishers.tokyo.facts({ ...own, labels: { env: 'test' } })
  await publishers.tokyo.acknowledged()
  await watcher.line(/^put tokyo\/Cluster/)
  await harness.clock.advance(60_000)
  for (let i = 0; i < 50 && watcher.lines.lastIndexOf('reset whole') < length; i += 1)
    await new Promise((resolve) => setImmediate(resolve))
  t.same(foreign(watcher.lines.slice(watcher.lines.lastIndexOf('reset whole')), 'paris'), [])
  await watcher.stop()
})

t.test('a member whose labels flap makes others start again once a minute, and for links only', async (t) => {
  const harness = await startBroker(t)
  const prod = { selector: { matchLabels: { env: 'prod' } } }
  const { milano, publishers } = await three(harness, [{ env: 'prod' }, { env: 'prod' }, { env: 'test' }])
  await commands(harness).set({ topology: { mode: 'pairs', pairs: [{ between: prod, and: prod }] } })
  const watcher = new Watcher(harness, milano.peer)
  await watcher.line(/^synced/)
  const facts_ = (labels: Record<string, string>) =>
    publishers.tokyo.facts(facts(['10.62.0.0/16'], { serviceCIDRs: ['10.162.0.0/16'], labels }))
  const resets = (): number => watcher.lines.filter((line) => line.startsWith('reset')).length
  for (let i = 0; i < 20; i += 1) {
    await facts_({ env: 'test', build: `${i}` })
    await publishers.tokyo.acknowledged()
    await harness.clock.advance(6000)
  }
  t.equal(resets(), 1, 'labels at which the topology does not look')
  for (let i = 0; i < 15; i += 1) {
    await facts_({ env: i % 2 === 0 ? 'prod' : 'test' })
    await publishers.tokyo.acknowledged()
    await harness.clock.advance(8000)
    for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve))
  }
  t.ok(resets() >= 2 && resets() <= 4, `${resets()} starts in two minutes`)
  await watcher.stop()
})

/** The findings that a watcher was sent in the latest status of milano, as `namespace/name/cluster`. */
function findingsOf(watcher: Watcher): string[] | undefined {
  let found: string[] | undefined
  for (const bytes of watcher.batches) {
    const event = decodeRecordEvent(bytes)
    const body = event?.t === 'put' && event.record.key.cluster === 'milano' ? event.record.body : undefined
    if (body?.kind !== 'MemberStatus') continue
    t.equal(body.leftOut, 0, 'what it may not know is not about it')
    found = body.notImported.map(({ namespace, name, cluster }) => `${namespace}/${name}/${cluster}`)
  }
  return found
}

t.test('what a hub reports is read by spokes as far as they may know the service, since whenever', async (t) => {
  const harness = await startBroker(t)
  const { tokyo, paris, publishers } = await three(harness)
  const finding = { reason: 'NamespaceMissing' as const, namespace: 'shop', name: '', cluster: '' }
  const own = { ...finding, namespace: 'blue' }
  // Reported before the topology was set.
  await publishers.milano.status({ notImported: [own, finding, { ...finding, cluster: 'paris' }], leftOut: 0 })
  await publishers.milano.acknowledged()
  await publishers.tokyo.put(anExport('app', { uid: 't' }, 'blue'))
  await publishers.tokyo.acknowledged()
  await commands(harness).set({ topology: HUB })
  const [spoke, exporter] = [new Watcher(harness, tokyo.peer), new Watcher(harness, paris.peer)]
  await Promise.all([spoke.line(/^synced/), exporter.line(/^synced/)])
  t.same(findingsOf(spoke), ['blue//'])
  t.same(findingsOf(exporter), ['shop//', 'shop//paris'], 'all that is about what it exports')

  await publishers.tokyo.put(anExport('web', { uid: 't' }))
  await spoke.line('put tokyo/ServiceExport/shop/web')
  t.same(findingsOf(spoke), ['blue//', 'shop//'], 'as soon as it is about its own, though the status is the same')
  await commands(harness).set({ topology: { mode: 'full' } })
  const all = new Watcher(harness, tokyo.peer)
  await all.line(/^synced/)
  t.same(findingsOf(all), ['blue//', 'shop//', 'shop//paris'])
  await Promise.all([spoke, exporter, all].map((one) => one.stop()))
})

t.test('a broker of an earlier release that starts after the topology was set is reported', async (t) => {
  let careless = ['old-0']
  const replicas = {
    isConnectedElsewhere: () => false,
    report: () => undefined,
    keepToOffers: () => true,
    withoutTopology: () => careless,
  }
  const harness = await startBroker(t, { replicas })
  await three(harness)
  const reported = (): unknown[] =>
    harness.logger.lines.flatMap(({ fields }) =>
      fields['reason'] === 'TopologyNotSupported' ? [fields['brokers']] : [],
    )
  harness.broker.reportContact()
  t.same(reported(), [], 'all members link')
  await commands(harness).set({ topology: HUB })
  harness.broker.reportContact()
  harness.broker.reportContact()
  t.same(reported(), ['old-0'], 'once')
  careless = []
  harness.broker.reportContact()
  careless = ['old-1']
  harness.broker.reportContact()
  t.same(reported(), ['old-0', 'old-1'])
})

t.test('what a member could not read is refused before it is stored', async (t) => {
  const harness = await startBroker(t)
  const at = commands(harness)
  const with_ = (selector: object) => ({
    topology: { mode: 'pairs', pairs: [{ between: { clusters: ['a'] }, and: { selector } }] },
  })
  const long = Object.fromEntries(Array.from({ length: 60 }, (_, i) => [`key-${i}`, 'v'.repeat(60)]))
  const rows: readonly (readonly [topology: { readonly topology: unknown }, wrong: RegExp])[] = [
    [with_({ matchLabels: { a: 'x'.repeat(100_000) } }), /^pairs\[0\]\.and\.selector\.matchLabels/],
    [with_({ matchExpressions: [{ key: 'k', operator: 'In', values: [] }] }), /^pairs\[0\]\.and\.selector: expected/],
    [
      {
        topology: {
          mode: 'pairs',
          pairs: Array.from({ length: 200 }, () => ({
            between: { clusters: ['a'] },
            and: { selector: { matchLabels: long } },
          })),
        },
      },
      /^topology: \d+ bytes: expected at most 196608$/,
    ],
  ]
  for (const [topology, message] of rows) {
    await t.rejects(at.set(topology), { reason: 'InvalidValue', message })
    await t.rejects(at.plan(topology), { reason: 'InvalidValue', message })
  }
  t.equal(topologyInForce(harness.log).number, 0)
})

t.test('operators alone set it: audited, planned, and no record of a member', async (t) => {
  const harness = await startBroker(t)
  const { publishers } = await three(harness)
  const at = commands(harness)
  const plan = await at.plan({ topology: HUB })
  t.match(plan, {
    basedOn: 0,
    links: { after: 2, lost: 1, gained: 0 },
    changes: [{ clusters: ['paris', 'tokyo'], change: 'lost' }],
    services: [{ exporter: 'paris', namespace: 'shop', name: 'web', loses: ['tokyo'], gains: [] }],
    unknown: [],
  })
  const finding = { reason: 'NamespaceMissing' as const, namespace: 'shop', name: '', cluster: '' }
  await publishers.tokyo.status({ notImported: [finding], leftOut: 0 })
  await publishers.tokyo.acknowledged()
  t.match(await at.plan({ topology: HUB }), { services: [], links: { lost: 1 } }, 'tokyo did not import it anyway')
  await at.set({ topology: HUB, basedOn: 0 })
  await at.set({ topology: HUB, basedOn: 0 })
  await t.rejects(at.set({ topology: { mode: 'ring' } }), { message: /^mode: expected one of/ })
  await t.rejects(at.set({ topology: { mode: 'full' }, basedOn: 0 }), { message: /^basedOn 0: expected 1/ })
  const events = harness.log.list('audit').map(({ value }) => value.event)
  const own = events.filter(({ act }) => act === 'topology.set')
  t.match(own, [
    {
      result: 'ok',
      who: { kind: 'operator' },
      details: {
        mode: 'hub-and-spoke',
        hubs: 1,
        linksLost: 1,
        linksGained: 0,
        digest: /^[0-9a-f]{64}$/,
        number: 1,
        repeated: false,
      },
    },
    { result: 'ok', details: { repeated: true, linksLost: 0 } },
    { result: 'refused', reason: 'TopologyChanged' },
  ])
  const NO_TOPOLOGY = { mode: 'full', groups: [], hubs: [], pairs: [], via: [], transitPairs: [] }
  const body = {
    body: { $case: 'topology' as const, value: { ...NO_TOPOLOGY, number: 9 } },
  }
  t.throws(() => memberRecordFromWire({ namespace: '', name: 'topology', body }, 'record'), /records are the broker's/)
  t.ok(harness.log.get('member', 'milano') !== undefined)
})
