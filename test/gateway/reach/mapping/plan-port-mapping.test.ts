/** Which gateways ask a router for ports, which answers they believe, and what far ends learn of them. */
import t from 'tap'
import { planMappedPlace, planPortMapping } from '../../../../gateway/reach/mapping/plan-port-mapping.ts'
import { planCandidates } from '../../../../gateway/reach/plan-candidates.ts'
import type { GatewayLaneConfig } from '../../../../gateway/world/config.ts'
import type { GatewayWorld } from '../../../../gateway/world/gateway-world.ts'
import { formatAddress, formatAddressPort, parseAddressPort } from '../../../../model/addresses/addresses.ts'
import { endpoint, node, world } from '../../support/worlds.ts'

const OBSERVED = '203.0.113.7'
const LANE: GatewayLaneConfig = { lane: 0, port: 4500 }

function home(facts: Partial<GatewayWorld> = {}): GatewayWorld {
  return world({
    nodes: [node('gw', '10.0.0.2')],
    addresses: [{ device: 'eth0', address: '10.0.0.2/24' }],
    observedAddress: OBSERVED,
    machine: { nextHops: ['10.0.0.1'], nameServers: [] },
    lanes: [LANE],
    ...facts,
  })
}

t.test('who asks', async (t) => {
  const external = { ...node('gw', '10.0.0.2') }
  const addresses = [
    { type: 'InternalIP', address: '10.0.0.2' },
    { type: 'ExternalIP', address: '198.51.100.9' },
  ]
  const rows: readonly (readonly [string, GatewayWorld, GatewayLaneConfig, boolean])[] = [
    ['behind NAT, private', home(), LANE, true],
    ['switched off', home(), { ...LANE, portMapping: false }, false],
    ['the operator states where it is called', home(), { ...LANE, publicAddress: OBSERVED }, false],
    ['the node has an external address', home({ nodes: [{ ...external, status: { addresses } }] }), LANE, false],
    ['seen as it is', home({ observedAddress: '10.0.0.2' }), LANE, false],
    ['the broker has not said', world({ ...home(), observedAddress: undefined } as never), LANE, false],
    [
      'an address that others state, too',
      home({ endpoints: [endpoint('paris', 'gw', 0, [`public ${OBSERVED}:4500`])] }),
      LANE,
      true,
    ],
    ['no default gateway', home({ machine: { nextHops: [], nameServers: [] } }), LANE, false],
    ['a public default gateway', home({ machine: { nextHops: ['198.51.100.1'], nameServers: [] } }), LANE, false],
    ['a default gateway elsewhere', home({ machine: { nextHops: ['10.9.0.1'], nameServers: [] } }), LANE, false],
    [
      'a public address of its own',
      home({ nodes: [node('gw', '192.0.2.10')], addresses: [{ device: 'eth0', address: '192.0.2.10/24' }] }),
      LANE,
      false,
    ],
  ]
  for (const [say, at, lane, asks] of rows) {
    const plan = planPortMapping(at, lane, [4500, 4501])
    t.equal(plan !== undefined, asks, say)
    if (plan !== undefined) t.equal(formatAddress(plan.router), '10.0.0.1')
  }
  t.equal(planPortMapping(home(), LANE, []), undefined, 'no device yet')
})

t.test('which answers are believed', async (t) => {
  const rows: readonly (readonly [string, Record<number, string>, string | undefined, RegExp?])[] = [
    ['the same port', { 4500: `${OBSERVED}:4500` }, `${OBSERVED}:4500`],
    ['another port', { 4501: `${OBSERVED}:51001`, 4500: `${OBSERVED}:51000` }, `${OBSERVED}:51000`],
    ['a private address', { 4500: '192.168.1.9:4500' }, undefined, /192\.168\.1\.9:4500: expected/],
    ['a carrier inside', { 4500: '100.64.0.9:4500' }, undefined, /where the broker saw/],
    ['another host', { 4500: '198.51.100.66:4500' }, undefined, /203\.0\.113\.7/],
    ['a system port', { 4500: `${OBSERVED}:53` }, undefined, /from 1024/],
    ['one of two elsewhere', { 4500: `${OBSERVED}:4500`, 4501: '198.51.100.66:4501' }, undefined, /66:4501/],
    ['a port of relays', { 4500: `${OBSERVED}:4700` }, undefined, /4700/],
    ['two distances', { 4500: `${OBSERVED}:4500`, 4501: `${OBSERVED}:6000` }, `${OBSERVED}:4500`, /expected 4501/],
    ['too near the end', { 4507: `${OBSERVED}:65535` }, `${OBSERVED}:65528`],
    ['nothing', {}, undefined],
    ['another address since it joined, which a relay sees', { 4500: '198.51.100.7:4500' }, '198.51.100.7:4500'],
    [
      'one that no relay sees',
      { 4500: '198.51.100.8:4500' },
      undefined,
      /when it joined, or at 198.51.100.7 or 10.0.0.2, where re/,
    ],
    ['two addresses', { 4500: `${OBSERVED}:4500`, 4501: '198.51.100.7:4501' }, undefined, /4501/],
    ['a relay that says where this node is inside', { 4500: '10.0.0.2:4500' }, undefined, /10.0.0.2:4500/],
  ]
  for (const [say, mapped, want, problem] of rows) {
    const at = new Map(Object.entries(mapped).map(([port, text]) => [Number(port), parseAddressPort(text)]))
    const found = planMappedPlace(home(), LANE, at, ['198.51.100.7', '10.0.0.2'])
    t.equal(found.place && formatAddressPort(found.place), want, say)
    if (problem === undefined) t.equal(found.problem, undefined, say)
    else t.match(found.problem, problem, say)
  }
})

t.test('what far ends learn', async (t) => {
  const text = (at: GatewayWorld, lane = LANE): string[] =>
    planCandidates(at, lane).map(({ kind, address, port }) => `${kind} ${address}:${port}`)
  const own = 'private 10.0.0.2:4500'
  t.strictSame(text(home()), [own, `observed ${OBSERVED}:4500`])
  t.strictSame(text(home({ mapped: parseAddressPort(`${OBSERVED}:51000`) })), [
    own,
    `observed ${OBSERVED}:51000`,
    `observed ${OBSERVED}:4500`,
  ])
  t.strictSame(text(home({ mapped: parseAddressPort(`${OBSERVED}:4500`) })), [own, `observed ${OBSERVED}:4500`])
  t.strictSame(text(home({ mapped: parseAddressPort('198.51.100.7:4500') })), [
    own,
    'observed 198.51.100.7:4500',
    `observed ${OBSERVED}:4500`,
  ])
  const stated = { ...LANE, publicAddress: OBSERVED }
  t.strictSame(text(home({ mapped: parseAddressPort(`${OBSERVED}:51000`) }), stated), [`public ${OBSERVED}:4500`, own])
})
