/** What a gateway looks at when it takes a plan. */
import t from 'tap'
import type { LinkState } from '../../../../gateway/cable/cable-driver.ts'
import { NEW_LINK_MS, planRelayUse } from '../../../../gateway/reach/relay/plan-relay-use.ts'
import { linksOf } from '../../../../gateway/reach/relay/links-in-use.ts'
import { Relays } from '../../../../gateway/reach/relay/relays.ts'
import { CALLABLE_WEB_AFTER_MS, WEB_AFTER_MS } from '../../../../gateway/reach/web/plan-web-use.ts'
import type { GatewayDeps } from '../../../../gateway/world/deps.ts'
import { FakeNft } from '../../../../kernel/fake/fake-nft.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../../runtime/logging/capturing-logger.ts'
import { parseAddressPort } from '../../../../model/addresses/address-port.ts'
import { RELAYS_ANNOTATION, encodeRelayCosts, encodeRelayNotice, relayMark } from '../../../../model/lanes/lanes.ts'
import { Stage } from '../../support/stage.ts'
import { key, world } from '../../support/worlds.ts'

t.test('a plan without a relay costs nothing for each link', async (t) => {
  let looks = 0
  class Counting extends Map<string, LinkState> {
    override get(name: string): LinkState | undefined {
      looks += 1
      return super.get(name)
    }
  }
  const api = { cache: () => ({ get: () => undefined }) }
  const deps = { api, clock: new FakeClock(), logger: new CapturingLogger(), nft: new FakeNft() }
  const openSocket = () => ({ send: () => undefined, probeTcp: () => () => undefined, close: () => undefined })
  const config = { node: 'gw', lanes: [{ lane: 0, port: 4500 }] }
  const metrics = { webDropped: { inc: () => undefined }, twoWays: { inc: () => undefined } }
  const init = { config, openSocket, metrics, proxies: () => undefined, health: () => new Map() }
  const relays = new Relays(deps as unknown as GatewayDeps, { ...init, onChange: () => undefined })
  const links = Array.from({ length: 50 }, (_, i) => {
    const [cluster, identity] = [`far${i}`, key(`far${i}`)]
    return { remoteLane: 0, cluster, endpoint: `${cluster}.gw-lane0`, identity, hidden: true, candidates: [] }
  })
  const here = world({ laneStates: new Map([[0, { identity: 'own', links: new Counting() }]]) })
  const clusters = links.map(({ cluster }) => ({ id: cluster }))
  relays.planned(here, { lanes: [{ remoteLane: 0, port: 4500, links, successors: [] }], clusters })
  t.equal(looks, 0)
  const [first] = links
  if (first === undefined) throw new Error('no link')
  const offered = [{ ...first, hidden: false, relays: true as const }, ...links.slice(1)]
  relays.planned(here, { lanes: [{ remoteLane: 0, port: 4500, links: offered, successors: [] }], clusters })
  t.equal(looks, links.length, 'one look at each with a relay')
})

t.test('the newcomer of a lane asks for relays, too, though the gateway that serves the lane is up', (t) => {
  const far = (name: string, change: object = {}) => {
    const [cluster = ''] = name.split('.')
    const base = { remoteLane: 0, cluster, endpoint: `${name}-lane0`, identity: key(name), hidden: true }
    return { ...base, candidates: [], ...change }
  }
  const oslo = far('oslo.gw', { hidden: false, relays: true })
  const [at, relayed] = [parseAddressPort('203.0.113.1:4500'), parseAddressPort('203.0.113.1:4601')]
  const direct = far('roma.gw')
  const lane = {
    remoteLane: 0,
    links: [oslo, far('paris.gw1', { via: ['oslo'] }), direct],
    successors: [far('paris.gw2', { via: ['oslo'] }), far('roma.gw2')],
  }
  const idle = { carries: true, rxBytes: 0, txBytes: 0 }
  const states = [oslo, direct].map((end) => [`${end.endpoint} ${end.identity}`, end === oslo ? at : relayed] as const)
  const here = world({
    laneStates: new Map([
      [0, { identity: 'own', links: new Map(states.map(([name, at]) => [name, { ...idle, at }])) }],
    ]),
    health: new Map([
      ['0/oslo', { state: 'up', sinceMs: 0 }],
      ['0/paris', { state: 'up', sinceMs: 0, asleep: true }],
      ['0/roma', { state: 'up', sinceMs: 0, asleep: true }],
    ]),
  })
  const links = linksOf(here, lane)
  t.same(
    links.map(({ state, asleep }) => `${state}${asleep === true ? ', asleep' : ''}`),
    ['up', 'up, asleep', 'up, asleep', 'connecting', 'connecting'],
  )
  const ends = { ownEndpoint: 'milano.gw-lane0', hidden: true }
  const wants = planRelayUse({ links, ...ends, keeps: new Set(), worth: () => 'good' })
  t.same(
    wants.map((want) => want.key.split(' ')[0]),
    ['paris.gw1-lane0', 'roma.gw-lane0', 'paris.gw2-lane0', 'roma.gw2-lane0'],
  )
  t.end()
})

t.test('a link counts as new for a short time since it is called', (t) => {
  const [cluster, endpoint, identity] = ['oslo', 'oslo.gw-lane0', key('oslo')]
  const oslo = { remoteLane: 0, cluster, endpoint, identity, hidden: false, relays: true as const, candidates: [] }
  const isNew = (state: 'connecting' | 'down', sinceMs: number, where: 'links' | 'successors' = 'links'): boolean => {
    const here = world({ health: new Map([['0/oslo', { state, sinceMs }]]), monotonicMs: NEW_LINK_MS })
    const lane = { remoteLane: 0, links: [], successors: [], [where]: [oslo] }
    return linksOf(here, lane)[0]?.isNew === true
  }
  t.equal(isNew('connecting', 1), true)
  t.equal(isNew('connecting', 0), false, 'nothing has answered for long')
  t.equal(isNew('down', 1), false, 'it was up')
  t.equal(isNew('connecting', 1, 'successors'), false, 'it is called beside the gateway that serves')
  t.end()
})

t.test('a relay is asked in the round that calls it first, before the device has its address', (t) => {
  const far = (cluster: string) => {
    const base = { remoteLane: 0, cluster, endpoint: `${cluster}.gw-lane0`, identity: key(cluster) }
    return { ...base, hidden: true, candidates: [] }
  }
  const [planned, known] = [parseAddressPort('203.0.113.1:4500'), parseAddressPort('203.0.113.2:4500')]
  const oslo = { ...far('oslo'), hidden: false, relays: true as const, choice: { at: planned } }
  const roma = { ...far('roma'), choice: { at: parseAddressPort('10.0.0.2:4500') } }
  const lane = { remoteLane: 0, links: [oslo, roma], successors: [] }
  const links = linksOf(world({}), lane)
  t.same(
    links.map(({ at }) => at),
    [planned, undefined],
  )
  const ends = { ownEndpoint: 'milano.gw-lane0', hidden: true, keeps: new Set<string>() }
  t.same(
    planRelayUse({ links, ...ends, worth: () => 'good' }).map(({ relay }) => relay.address),
    [planned.address],
  )
  const state = { carries: true, rxBytes: 0, txBytes: 0, at: known }
  const states = new Map([[`${oslo.endpoint} ${oslo.identity}`, state]])
  const later = world({ laneStates: new Map([[0, { identity: 'own', links: states }]]) })
  t.same(linksOf(later, lane)[0]?.at, known, 'the device knows better')
  t.end()
})

t.test('a gateway that seeks relays, or has transit links, states how far they are', async (t) => {
  const twelve = encodeRelayCosts({ rttMs: new Map([[relayMark(key('oslo')), 12]]) })
  const hidden = stating()
  hidden.planned(12.4)
  t.strictSame(hidden.stated(), twelve)
  t.equal(hidden.changes(), 1, 'the Endpoint is written again')
  hidden.planned(13)
  t.equal(hidden.changes(), 1)
  const called = stating({ isHidden: false })
  called.planned(12.4)
  t.equal(called.stated(), undefined, 'it can be called')
  const sleeping = stating({ isAsleep: true })
  sleeping.planned(12.4)
  t.equal(sleeping.stated(), undefined, 'what was measured before its link slept is old')
  const spoke = stating({ isHidden: false, roma: { hidden: false, via: ['oslo'] } })
  spoke.planned(12.4)
  t.strictSame(spoke.stated(), twelve, 'it can be called, and only relays may carry its link')
})

t.test('a plan that is due is asked for once, while none can be made', async (t) => {
  const one = stating()
  const stop = new AbortController()
  const ended = one.relays.run(stop.signal)
  one.planned(12)
  await one.clock.advance(9000)
  const before = one.changes()
  await one.clock.advance(8000)
  t.equal(one.changes() - before, 1)
  one.planned(12)
  await one.clock.advance(15_000)
  t.equal(one.changes() - before, 2, 'again after the next plan')
  stop.abort()
  await ended
})

t.test('a link that comes up in no way is looked at again in time for relays on port 443', async (t) => {
  const notice = encodeRelayNotice({ addresses: ['wss://relay.test/'] })
  for (const [isHidden, afterMs] of [
    [true, WEB_AFTER_MS],
    [false, CALLABLE_WEB_AFTER_MS],
  ] as const) {
    const one = stating({ notice, isHidden, romaState: 'down' })
    const stop = new AbortController()
    const ended = one.relays.run(stop.signal)
    one.planned(12)
    await one.clock.advance(afterMs - 50)
    const before = one.changes()
    await one.clock.advance(100)
    t.equal(one.changes() - before, 1, 'although nothing else happens')
    one.planned(12)
    await one.clock.advance(1500)
    t.equal(one.changes() - before, 1, 'and no more')
    stop.abort()
    await ended
  }
})

t.test('a restart writes the Endpoint once, with what it stated of relays before', async (t) => {
  const stage = new Stage(t)
  stage.start()
  await stage.until(() => stage.ownEndpoint() !== undefined, 'the Endpoint is there')
  await stage.stop()
  const before = stage.ownEndpoint()
  if (before === undefined) throw new Error('no Endpoint')
  const [costs] = encodeRelayCosts({ rttMs: new Map([[relayMark(key('oslo')), 12]]) })
  if (costs === undefined) throw new Error('no costs')
  const spec = { ...before.spec, capabilities: [...before.spec.capabilities, costs] }
  await stage.objects.apply({ ...before, spec }, AbortSignal.timeout(10_000))
  const written: boolean[] = []
  const ends = stage.objects.cache('Endpoint').onChange(() => {
    written.push(stage.ownEndpoint()?.spec.capabilities.includes(costs) === true)
  })
  stage.start()
  await stage.passSlowly(3000)
  ends()
  t.notOk(written.includes(false), written.join(' '))
  t.ok(stage.ownEndpoint()?.spec.capabilities.includes(costs))
})

interface Stating {
  readonly isHidden: boolean
  /** The link with oslo sleeps. */
  readonly isAsleep: boolean
  readonly roma: object
  readonly romaState: 'up' | 'down'
  /** What the agent says of relays on port 443. */
  readonly notice: string
}

/** Milano with a link with oslo, which relays, and one with roma. */
function stating(init: Partial<Stating> = {}) {
  const { isHidden = true, isAsleep = false, roma = {}, romaState = 'up', notice } = init
  let changes = 0
  const membership = { metadata: { annotations: { [RELAYS_ANNOTATION]: notice } }, spec: {} }
  const get = () => (notice === undefined ? undefined : membership)
  const api = { cache: (kind: string) => ({ get: kind === 'Membership' ? get : () => undefined }) }
  const clock = new FakeClock()
  const deps = { api, clock, logger: new CapturingLogger(), nft: new FakeNft(), cable: {} }
  const openSocket = () => ({ send: () => undefined, probeTcp: () => () => undefined, close: () => undefined })
  const config = { node: 'gw', lanes: [{ lane: 0, port: 4500 }] }
  const metrics = { webDropped: { inc: () => undefined }, twoWays: { inc: () => undefined } }
  const onChange = () => (changes += 1)
  const relays = new Relays(deps as unknown as GatewayDeps, {
    ...{ config, openSocket, metrics, onChange },
    ...{ proxies: () => undefined, health: () => new Map() },
  })
  const link = (cluster: string, change: object = {}) => {
    const base = { remoteLane: 0, cluster, endpoint: `${cluster}.gw-lane0`, identity: key(cluster), hidden: true }
    return { ...base, candidates: [], ...change }
  }
  const links = [link('oslo', { hidden: false, relays: true }), link('roma', roma)]
  const clusters = links.map(({ cluster }) => ({ id: cluster }))
  const planned = (rttMs: number) => {
    const up = (ms: number) => ({ state: 'up' as const, sinceMs: 0, figures: { rttMs: ms } })
    const health = new Map([
      ['0/oslo', { ...up(rttMs), ...(isAsleep ? { asleep: true as const } : {}) }],
      ['0/roma', { ...up(3), state: romaState }],
    ])
    const laneStates = new Map([[0, { identity: 'own', links: new Map<string, LinkState>() }]])
    const ends = isHidden ? { nodes: [], lanes: [{ lane: 0, port: 4500 }] } : {}
    const here = world({ ...ends, health, laneStates, monotonicMs: clock.monotonic() })
    relays.planned(here, { lanes: [{ remoteLane: 0, port: 4500, links, successors: [] }], clusters })
  }
  return { relays, clock, planned, stated: () => relays.known.statedCosts, changes: () => changes }
}
