/** Links that by the topology only relays of hubs may carry: where they are called, and what is looked for beside it. */
import t from 'tap'
import { planDevice } from '../../../gateway/cable/wireguard/plan-device.ts'
import { type LinkInUse, planRelayUse } from '../../../gateway/reach/relay/plan-relay-use.ts'
import { RelayCalls } from '../../../gateway/reach/relay/relay-calls.ts'
import type { RelayPlace } from '../../../gateway/world/gateway-world.ts'
import { FakeNft } from '../../../kernel/fake/fake-nft.ts'
import { parseAddress } from '../../../model/addresses/addresses.ts'
import { formatAddressPort, parseAddressPort } from '../../../model/addresses/address-port.ts'
import { topologyText } from '../../../model/membership.ts'
import type { Cluster } from '../../../model/objects.ts'
import type { Topology } from '../../../model/records.ts'
import { transitOf } from '../../../model/schemas/own-topology.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { NOW, UPTIME, cluster, endpoint, key, keyOf, peerState, world } from '../support/worlds.ts'
import { RelayStage } from '../support/relay-stage.ts'
import { planLanes } from '../support/wireguard-plans.ts'

const VIA: Topology = { mode: 'hub-and-spoke', hubs: ['oslo', 'riga'], via: ['oslo', 'riga'] }

function noting(own: Cluster, topology: Topology): Cluster {
  const annotations = { 'sealane.io/topology': topologyText(topology) }
  return { ...own, metadata: { ...own.metadata, annotations } }
}

const OWN = noting(cluster('milano', 1, '10.42.0.0/16'), VIA)
const DIRECT = endpoint('paris', 'gw', 0, ['public 198.51.100.20:4500'])
const PARIS = reachedBy('oslo,riga')

/** The far end as the agent notes it, with its candidates, which an agent leaves out. */
function reachedBy(via: string): typeof DIRECT {
  const annotations = { ...DIRECT.metadata.annotations, 'sealane.io/via': via }
  return { ...DIRECT, metadata: { ...DIRECT.metadata, annotations } }
}
const OSLO_HUB = endpoint('oslo', 'gw', 0, ['public 203.0.113.1:4500'])
const OSLO = { ...OSLO_HUB, spec: { ...OSLO_HUB.spec, capabilities: [...OSLO_HUB.spec.capabilities, 'relay'] } }
const CLUSTERS = [OWN, cluster('paris', 2, '10.52.0.0/16'), cluster('oslo', 3, '10.62.0.0/16')]

interface Seen {
  /** Where the device has paris, and where relays take packets for it. */
  readonly at?: string
  readonly relays?: readonly string[]
  readonly state?: 'up' | 'down' | 'connecting'
  readonly refusals?: readonly string[]
  /** Whose relays these are. */
  readonly by?: string
  readonly own?: Cluster
  readonly far?: typeof DIRECT
}

function plannedLink(seen: Seen) {
  const link = planned(seen).lanes[0]?.links.find((one) => one.cluster === 'paris')
  if (link === undefined) throw new Error('no link')
  return link
}

function planned({ at, relays = [], by = 'oslo', refusals = [], state = 'up', own = OWN, far = PARIS }: Seen) {
  const peers = [
    peerState(key('oslo0'), { endpoint: '203.0.113.1:4500', lastHandshakeMs: NOW - 9000 }),
    peerState(key('paris0'), { ...(at === undefined ? {} : { endpoint: at }), lastHandshakeMs: NOW - 9000 }),
  ]
  const places = relays.map((text): RelayPlace => ({ cluster: by, at: parseAddressPort(text) }))
  return planLanes(
    world({
      ...{ own, clusters: [own, ...CLUSTERS.slice(1)], endpoints: [far, OSLO] },
      devices: new Map([[0, { name: 'sealane0', publicKey: key('own'), listenPort: 4500, peers }]]),
      health: new Map([['0/paris', { state, sinceMs: UPTIME - 5000 }]]),
      roamed: new Map([[keyOf(PARIS), { at: parseAddressPort('198.51.100.99:4500'), sinceMs: UPTIME }]]),
      ...(refusals.length === 0 ? {} : { relayRefusals: new Map([[keyOf(PARIS), refusals]]) }),
      ...(places.length === 0 ? {} : { relayPlaces: new Map([[keyOf(PARIS), places]]) }),
    }),
  )
}

t.test('it is called at relays alone, wherever it was', async (t) => {
  const [relay, other, direct] = ['203.0.113.1:4601', '203.0.113.1:4605', '198.51.100.20:4500']
  const rows: readonly (readonly [say: string, seen: Seen, want: string])[] = [
    ['it works directly', { at: direct }, 'wait -: forgets'],
    ['it works directly, and a relay has both ends', { at: direct, relays: [relay] }, `try ${relay}`],
    ['it called from elsewhere', { at: '198.51.100.99:4500', state: 'connecting' }, 'wait -: forgets'],
    ['at a port of relays, at an address that is none of a hub', { at: '198.51.100.20:4601' }, 'wait -: forgets'],
    ['it works at a relay that has not answered this process yet', { at: relay }, `keep ${relay}`],
    ['it works at a relay', { at: relay, relays: [relay] }, `keep ${relay}`],
    ['the relay has given it another port', { at: other, relays: [relay] }, `try ${relay}`],
    ['nothing is known', { state: 'connecting' }, 'wait -: forgets'],
    [
      'a relay of another member has both ends',
      { relays: [relay], by: 'bern', state: 'connecting' },
      'wait -: forgets',
    ],
    ['a relay has both ends now', { relays: [relay], state: 'connecting' }, `try ${relay}`],
    ['it is down: the relays in turn', { at: other, relays: [relay, other], state: 'down' }, `try ${relay}`],
  ]
  for (const [say, seen, want] of rows) {
    const { choice, candidates, via } = plannedLink(seen)
    const at = choice.at === undefined ? '-' : formatAddressPort(choice.at)
    t.equal(`${choice.how} ${at}${choice.forgets === true ? ': forgets' : ''}`, want, say)
    t.same([candidates, via], [[], ['oslo', 'riga']])
  }
  t.match(plannedLink({ state: 'connecting' }).suspicion?.text, /^TransitRelayMissing: .*relays of oslo, riga/)
  const refused = plannedLink({ state: 'connecting', refusals: ['oslo: full', 'riga: quotaSpent'] })
  t.match(refused.suspicion?.text, /none has both ends \(oslo: full, riga: quotaSpent\)$/)
  const free = plannedLink({ at: direct, far: DIRECT })
  t.match([free.choice.how, free.candidates.length, free.via], ['keep', 1, undefined], 'no hub is named')
})

t.test('nothing passes while no relay carries it, though the far end may call', async (t) => {
  const [relay, direct] = ['203.0.113.1:4601', '198.51.100.20:4500']
  const rows: readonly (readonly [say: string, seen: Seen, isOpen: boolean])[] = [
    ['it was called directly', { at: direct }, false],
    ['nothing is known', { state: 'connecting' }, false],
    ['a relay carries it', { at: relay, relays: [relay] }, true],
    ['a relay is called', { at: direct, relays: [relay] }, true],
    ['it may be direct', { at: direct, far: DIRECT }, true],
  ]
  for (const [say, seen, isOpen] of rows) {
    const [lane] = planned(seen).lanes
    if (lane === undefined) throw new Error('no lane')
    const { peers } = planDevice(lane).config
    t.same(
      peers.map(({ allowedIps }) => allowedIps.length > 0),
      [true, isOpen],
      say,
    )
  }
  t.match(plannedLink({ at: direct }).choice.why, /only relays of oslo, riga may carry it, and it was at 198.51.100.20/)
})

t.test('what the agent has noted at the Endpoint decides, whatever is noted at the own Cluster', async (t) => {
  const bare = cluster('milano', 1, '10.42.0.0/16')
  for (const own of [bare, noting(bare, { mode: 'full' }), noting(bare, { ...VIA, via: ['riga'] })]) {
    const { choice, via, candidates } = plannedLink({ state: 'connecting', own })
    t.same([choice.how, via, candidates], ['wait', ['oslo', 'riga'], []])
  }
})

t.test('a far end whose way cannot be read has none', async (t) => {
  for (const text of ['', ',', 'oslo,', 'Oslo', 'oslo riga', 'a,'.repeat(1000) + 'a']) {
    const { lanes, refusals } = planned({ far: reachedBy(text) })
    t.same(
      lanes.flatMap(({ links }) => links.filter((one) => one.cluster === 'paris')),
      [],
      text.slice(0, 9),
    )
    t.match(refusals, [
      { subject: `Endpoint ${PARIS.metadata.name}`, reason: 'InvalidValue', message: /sealane\.io\/via/ },
    ])
  }
})

function used(name: string, change: Partial<LinkInUse> = {}): LinkInUse {
  const ends = `${name}.gw-lane0`
  return {
    ...{ key: name, remoteLane: 0, cluster: name, endpoint: ends, identity: name, hidden: false, state: 'connecting' },
    ...change,
  }
}
const hub = (name: string, change: Partial<LinkInUse> = {}): LinkInUse =>
  used(name, { relays: true, state: 'up', at: parseAddressPort('203.0.113.1:4500'), ...change })

function bound(links: readonly LinkInUse[], mayRelay?: (relay: string, far: string) => boolean): string[] {
  const use = planRelayUse({
    ...{ links, ownEndpoint: 'milano.gw-lane0', hidden: true, keeps: new Set<string>(), worth: () => 'good' },
    ...(mayRelay === undefined ? {} : { mayRelay }),
  })
  return use.map((want) => `${want.key} by ${want.relay.cluster}${want.isTransit === true ? ' alone' : ''}`).sort()
}

t.test('relays of the named hubs alone, and none that is reached through a relay', async (t) => {
  const via = ['oslo', 'riga']
  const paris = used('paris', { hidden: true, via })
  const rows: readonly (readonly [say: string, links: readonly LinkInUse[], want: readonly string[]])[] = [
    ['both hubs', [hub('oslo'), hub('riga'), paris], ['paris by oslo alone', 'paris by riga alone']],
    ['another member relays', [hub('bern'), hub('riga'), paris], ['paris by riga alone']],
    ['it is up', [hub('oslo'), { ...paris, state: 'up' }], ['paris by oslo alone']],
    ['the hub is down', [hub('oslo', { state: 'down' }), paris], []],
    ['the hub is reached through hubs', [hub('oslo', { via: ['riga'] }), hub('bern'), paris], []],
    ['the hub is relayed', [hub('oslo', { at: parseAddressPort('203.0.113.9:4601') }), paris], []],
    ['the hub is reached over port 443', [hub('oslo', { at: parseAddressPort('127.0.0.1:41000') }), paris], []],
    [
      'the hub is an end',
      [hub('oslo'), hub('riga'), hub('paris', { via: ['paris', 'riga'] })],
      ['paris by riga alone'],
    ],
  ]
  for (const [say, links, want] of rows)
    t.same(
      bound(links).filter((text) => text.startsWith('paris')),
      want,
      say,
    )
  const [notOslo, hubs] = [(relay: string) => relay !== 'oslo', [hub('oslo'), hub('riga')]]
  const both = ['paris by oslo alone', 'paris by riga alone']
  t.same(bound([...hubs, paris], notOslo), both, 'the agent has named both, with the labels that it knows')
  t.same(bound([...hubs, used('paris', { hidden: true })], notOslo), ['paris by riga'])
})

t.test('of more links than a gateway may have bindings for, each has one', async (t) => {
  const via = ['oslo', 'riga']
  const spokes = Array.from({ length: 400 }, (_, i) => used(`spoke-${i}`, { hidden: true, via }))
  const wants = bound([hub('oslo'), hub('riga'), ...spokes, used('paris', { hidden: true })])
  const links = new Set(wants.map((text) => text.split(' by ')[0]))
  t.same([wants.length, links.size, links.has('spoke-399')], [512, 401, true])
})

t.test('a relay of a member that does not link with both ends is not asked', async (t) => {
  const hubs: Topology = {
    mode: 'groups',
    groups: [
      { name: 'x', clusters: ['milano', 'paris', 'oslo'] },
      { name: 'y', clusters: ['milano', 'riga'] },
    ],
  }
  const transit = transitOf({ own: noting(cluster('milano', 1, '10.42.0.0/16'), hubs), clusters: CLUSTERS })
  const links = [hub('oslo'), hub('riga'), used('paris', { hidden: true })]
  const use = planRelayUse({
    ...{ links, ownEndpoint: 'milano.gw-lane0', hidden: true, keeps: new Set<string>(), worth: () => 'good' },
    mayRelay: (relay, far) => transit.mayRelay(relay, ['milano', far]),
  })
  t.same(
    use.map(({ relay }) => relay.cluster),
    ['oslo'],
  )
  t.notOk(transit.mayRelay('milano', ['paris', 'riga']), 'and this one relays for no pair that does not link')
  t.ok(transit.mayRelay('milano', ['paris', 'oslo']))
})

t.test('a relay binds no pair that does not link, or that other hubs link', async (t) => {
  const stage = new RelayStage()
  const [paris, roma] = [stage.end('paris'), stage.end('roma')]
  const obey = (topology: Topology): void => {
    const transit = transitOf({ own: noting(cluster('oslo', 3, '10.62.0.0/16'), topology), clusters: [] })
    stage.allow([paris, roma], (a, b) => transit.mayRelay('oslo', [a, b]))
    const isTransit = topology.via !== undefined
    t.same([transit.isTransit(['paris', 'roma']), transit.isTransit(['oslo', 'roma'])], [isTransit, false])
  }
  const hubs = (...via: readonly string[]): Topology => ({
    mode: 'hub-and-spoke',
    hubs: ['oslo', 'riga'],
    ...(via.length === 0 ? {} : { via }),
  })
  const bindBoth = (): number => {
    stage.bind(paris, roma, '198.51.100.1:4500')
    stage.bind(roma, paris, '198.51.100.2:4500')
    return stage.bindings.paths().length
  }
  obey({ mode: 'full' })
  t.equal(bindBoth(), 2)
  for (const topology of [hubs(), hubs('riga')]) {
    obey(topology)
    t.same([stage.bindings.paths(), stage.bindings.openPorts()], [[], []], 'the pair has ended at once')
    t.match(stage.prove(paris, roma, { at: '198.51.100.1:4500' }), { type: 'refused', why: 'notAllowed' })
    obey(hubs('oslo', 'riga'))
    t.equal(bindBoth(), 2, 'and is bound where the topology names this relay')
  }
})

t.test('nobody relays by a topology that cannot be read', async (t) => {
  for (const text of ['', '{', '{"mode":"ring"}', '[]', 'null']) {
    const own = cluster('milano', 1, '10.42.0.0/16')
    const noted = { ...own, metadata: { ...own.metadata, annotations: { 'sealane.io/topology': text } } }
    const transit = transitOf({ own: noted, clusters: [] })
    t.notOk(transit.mayRelay('milano', ['a', 'b']), text)
  }
})

t.test('no other way is looked for', async (t) => {
  const none = () => undefined
  const openSocket = () => ({ send: none, probeTcp: () => none, close: none })
  const deps = { nft: new FakeNft(), clock: new FakeClock(), openSocket }
  const calls = new RelayCalls({ ...deps, onError: none, onChange: none, onDue: none })
  const at = { cluster: 'oslo', endpoint: 'oslo.gw-lane0', identity: 'oslo', address: parseAddress('203.0.113.1') }
  const want = { key: 'paris', remoteLane: 0, identity: 'paris', relay: at }
  const own = { clusterset: 'alps', identity: 'milano', agree: () => Buffer.alloc(32) }
  const init = { own, ports: new Map([[0, 4500]]) }
  const { signal } = new AbortController()
  await calls.apply([{ ...want, isTransit: true }], init, signal)
  t.equal(calls.whyRelayed('paris'), 'topology')
  await calls.apply([want], init, signal)
  t.equal(calls.whyRelayed('paris'), 'searching', 'the topology lets the two link directly now')
  calls.close()
})
