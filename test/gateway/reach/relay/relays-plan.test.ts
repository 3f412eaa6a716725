/** What a gateway looks at when it takes a plan. */
import t from 'tap'
import type { LinkState } from '../../../../gateway/cable/cable-driver.ts'
import { Relays } from '../../../../gateway/reach/relay/relays.ts'
import type { GatewayDeps } from '../../../../gateway/world/deps.ts'
import { FakeNft } from '../../../../kernel/fake/fake-nft.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../../runtime/logging/capturing-logger.ts'
import { encodeRelayCosts, relayMark } from '../../../../model/lanes/lanes.ts'
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
  const metrics = { webDropped: { inc: () => undefined } }
  const init = { config, openSocket, metrics, proxies: () => undefined, onChange: () => undefined }
  const relays = new Relays(deps as unknown as GatewayDeps, init)
  const links = Array.from({ length: 50 }, (_, i) => {
    const [cluster, identity] = [`far${i}`, key(`far${i}`)]
    return { remoteLane: 0, cluster, endpoint: `${cluster}.gw-lane0`, identity, hidden: true, candidates: [] }
  })
  const here = world({ laneStates: new Map([[0, { identity: 'own', links: new Counting() }]]) })
  const clusters = links.map(({ cluster }) => ({ id: cluster }))
  relays.planned(here, { lanes: [{ remoteLane: 0, port: 4500, links }], clusters })
  t.equal(looks, 0)
  const [first] = links
  if (first === undefined) throw new Error('no link')
  const offered = [{ ...first, hidden: false, relays: true as const }, ...links.slice(1)]
  relays.planned(here, { lanes: [{ remoteLane: 0, port: 4500, links: offered }], clusters })
  t.equal(looks, links.length, 'one look at each with a relay')
})

t.test('a gateway that seeks relays states how far they are', async (t) => {
  let changes = 0
  const api = { cache: () => ({ get: () => undefined }) }
  const deps = { api, clock: new FakeClock(), logger: new CapturingLogger(), nft: new FakeNft() }
  const openSocket = () => ({ send: () => undefined, probeTcp: () => () => undefined, close: () => undefined })
  const config = { node: 'gw', lanes: [{ lane: 0, port: 4500 }] }
  const metrics = { webDropped: { inc: () => undefined } }
  const onChange = () => (changes += 1)
  const relays = new Relays(deps as unknown as GatewayDeps, {
    ...{ config, openSocket, metrics, onChange },
    proxies: () => undefined,
  })
  const link = (cluster: string, change: object = {}) => {
    const base = { remoteLane: 0, cluster, endpoint: `${cluster}.gw-lane0`, identity: key(cluster), hidden: true }
    return { ...base, candidates: [], ...change }
  }
  const links = [link('oslo', { hidden: false, relays: true }), link('roma')]
  const clusters = links.map(({ cluster }) => ({ id: cluster }))
  const planned = (nodes: ReturnType<typeof world>['nodes'], rttMs: number) => {
    const up = (ms: number) => ({ state: 'up' as const, sinceMs: 0, figures: { rttMs: ms } })
    const health = new Map([
      ['0/oslo', up(rttMs)],
      ['0/roma', up(3)],
    ])
    const laneStates = new Map([[0, { identity: 'own', links: new Map<string, LinkState>() }]])
    const here = world({ nodes, health, laneStates, lanes: [{ lane: 0, port: 4500 }] })
    relays.planned(here, { lanes: [{ remoteLane: 0, port: 4500, links }], clusters })
  }
  planned([], 12.4)
  t.strictSame(relays.known.statedCosts, encodeRelayCosts({ rttMs: new Map([[relayMark(key('oslo')), 12]]) }))
  t.equal(changes, 1, 'the Endpoint is written again')
  planned([], 13)
  t.equal(changes, 1)
})
