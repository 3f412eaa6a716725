/** Of what kind the NAT in front of a gateway is, by those who see it, and what the Gateway says about it. */
import fc from 'fast-check'
import t from 'tap'
import { NAT_TRAITS, type NatFacts, type NatView, natTraits, planNat } from '../../../../gateway/reach/nat/plan-nat.ts'
import { type StatusInit, planStatus } from '../../../../gateway/status/plan-status.ts'
import { NOW, UPTIME } from '../../support/worlds.ts'

const OUTSIDE = '198.51.100.1'
const FACTS: NatFacts = {
  ...{
    ownAddresses: new Set(['10.0.0.2', '203.0.113.5']),
    inside: '10.0.0.2',
    seen: [],
    mapping: 'unknown',
    others: [],
  },
  ...{ links: [], neighbours: [], sights: {} },
}
/** `oslo tcp-443`, `roma udp hidden new`. */
function links(...texts: readonly string[]): NatFacts['links'] {
  return texts.map((text) => {
    const [cluster = '', by = '', ...more] = text.split(' ')
    const flags = { isCallable: !more.includes('hidden'), isNew: more.includes('new') }
    return { cluster, by: by as NatFacts['links'][number]['by'], ...flags }
  })
}
const behind: NatFacts = { ...FACTS, observed: OUTSIDE }

const STATUS: StatusInit = {
  ...{ node: 'gw', version: '1', driver: 'wireguard-kernel', sessionMs: 180_000, nowMs: NOW, monotonicMs: UPTIME },
  ...{ heardMs: () => undefined, lanes: [], laneStates: new Map(), health: new Map(), routed: new Set() },
  ...{ failure: undefined, conditions: [] },
}

function said(nat: NatView | undefined, conditions: StatusInit['conditions'] = []): string {
  const init = { ...STATUS, conditions, ...(nat === undefined ? {} : { nat }) }
  const found = planStatus(init).status?.conditions?.find(({ type }) => type === 'BehindNat')
  return found === undefined ? '' : `${found.status} ${found.reason}: ${found.message}`
}

t.test('the kind, its words and its labels', async (t) => {
  const rows: readonly (readonly [say: string, NatFacts, traits: string, condition: string])[] = [
    ['not seen by anyone that counts', FACTS, 'unknown', ''],
    ['the broker sees an own address', { ...FACTS, observed: '203.0.113.5' }, 'public', ''],
    ['so do relays', { ...FACTS, seen: ['203.0.113.5'], mapping: 'endpointIndependent' }, 'public', ''],
    [
      'the broker sees another one',
      behind,
      'behind',
      'True BehindNat: NAT; fewer than two relays show how it maps ports; seen at 198.51.100.1',
    ],
    [
      'relays see another one than the broker',
      { ...FACTS, observed: '203.0.113.5', seen: ['198.51.100.9', '198.51.100.8'] },
      'behind',
      'True BehindNat: NAT; fewer than two relays show how it maps ports; seen at 198.51.100.8, 198.51.100.9',
    ],
    [
      'one port for all',
      { ...behind, seen: [OUTSIDE], mapping: 'endpointIndependent', lifeSeconds: 30 },
      'endpoint-independent',
      'True BehindNat: NAT with one port for all destinations (endpoint-independent mapping); seen at 198.51.100.1; ' +
        'a mapping without packets lives for 30 s or more: keepalives every 20 s, or 10 s to ends that may be behind NAT',
    ],
    [
      'another port for each, behind a carrier, with neighbours',
      {
        ...{ ...behind, inside: '100.64.3.4', seen: [OUTSIDE], mapping: 'addressDependent', lifeSeconds: 120 },
        others: ['roma', 'oslo', 'oslo'].map((cluster) => ({ cluster, address: OUTSIDE })),
      },
      'symmetric cgnat same-nat',
      'True BehindSymmetricNat: symmetric NAT: another port for each destination; seen at 198.51.100.1; ' +
        'a NAT of a carrier, or a second one, is on the way (CGNAT); behind the same NAT as oslo, roma; ' +
        'a mapping without packets lives for 120 s or more: keepalives every 20 s, or 10 s to ends that may be behind NAT',
    ],
    [
      'a carrier',
      { ...behind, inside: '100.127.255.255' },
      'behind cgnat',
      'True BehindCarrierNat: NAT; fewer than two relays show how it maps ports; seen at 198.51.100.1; ' +
        'a NAT of a carrier, or a second one, is on the way (CGNAT)',
    ],
    ['an address next to those of carriers', { ...behind, inside: '100.128.0.1' }, 'behind', said(planNat(behind))],
    [
      'the router has an address of a carrier',
      { ...behind, routerOutside: '100.64.9.9' },
      'behind cgnat',
      said(planNat({ ...behind, inside: '100.127.255.255' })),
    ],
    [
      'broker and relay see another address than the private one that the router has',
      { ...behind, seen: [OUTSIDE], routerOutside: '192.168.9.77' },
      'behind cgnat',
      said(planNat({ ...behind, inside: '100.127.255.255' })),
    ],
    [
      'the router has two lines, and its word is about the other one',
      { ...behind, seen: [OUTSIDE], routerOutside: '203.0.113.77' },
      'behind',
      said(planNat(behind)),
    ],
    ['only the broker does, long ago', { ...behind, routerOutside: '192.168.9.77' }, 'behind', said(planNat(behind))],
    [
      'the broker and a relay disagree',
      { ...behind, seen: ['198.51.100.9'], routerOutside: '192.168.9.77' },
      'behind',
      said(planNat({ ...behind, seen: ['198.51.100.9'] })),
    ],
    [
      'lets in known ports, leads back inside, drops bursts',
      {
        ...{ ...behind, seen: [OUTSIDE], mapping: 'endpointIndependent' },
        sights: { filter: 'port', hairpins: true, bursts: 'limited' },
      },
      'endpoint-independent filters-ports hairpins udp-rate-limited',
      'True UdpRateLimited: NAT with one port for all destinations (endpoint-independent mapping); ' +
        'seen at 198.51.100.1; lets in addresses and ports to which the gateway has sent; leads packets back inside; ' +
        'bursts of UDP packets are dropped in part, and single ones are not',
    ],
    [
      'lets in anyone, and leads nothing back',
      {
        ...{ ...behind, seen: [OUTSIDE], mapping: 'endpointIndependent' },
        sights: { filter: 'anyone', hairpins: false, bursts: 'pass' },
      },
      'endpoint-independent filters-none no-hairpins',
      'True BehindNat: NAT with one port for all destinations (endpoint-independent mapping); ' +
        'seen at 198.51.100.1; lets in any sender; leads no packets back inside',
    ],
    [
      'a symmetric NAT that leads nothing back may do so to its real port',
      {
        ...{ ...behind, seen: [OUTSIDE], mapping: 'addressDependent' },
        sights: { filter: 'address', hairpins: false },
      },
      'symmetric filters-addresses',
      'True BehindSymmetricNat: symmetric NAT: another port for each destination; seen at 198.51.100.1; ' +
        'lets in addresses to which the gateway has sent',
    ],
    [
      'a link through the address outside',
      { ...behind, neighbours: [{ cluster: 'oslo', address: OUTSIDE, isPrivate: false }] },
      'behind hairpins',
      'True BehindNat: NAT; fewer than two relays show how it maps ports; seen at 198.51.100.1; ' +
        'leads packets back inside',
    ],
    [
      'one neighbour in the LAN, one behind the NAT alone, one with the same private address elsewhere',
      {
        ...behind,
        others: ['oslo', 'roma'].map((cluster) => ({ cluster, address: OUTSIDE })),
        neighbours: [
          { cluster: 'oslo', address: '10.0.0.9', isPrivate: true },
          { cluster: 'roma', address: '198.51.100.30', isPrivate: false },
          { cluster: 'bern', address: '10.0.0.8', isPrivate: true },
        ],
      },
      'behind same-nat same-lan',
      'True BehindNat: NAT; fewer than two relays show how it maps ports; seen at 198.51.100.1; ' +
        'in the same LAN as oslo; behind the same NAT as roma',
    ],
    [
      'bursts are dropped, and no NAT is known',
      { ...FACTS, sights: { bursts: 'limited', filter: 'port', hairpins: true } },
      'unknown udp-rate-limited',
      'False UdpRateLimited: nothing that counts has seen this gateway; ' +
        'bursts of UDP packets are dropped in part, and single ones are not',
    ],
    [
      'one that forgets soon',
      { ...behind, lifeSeconds: 0 },
      'behind',
      'True NatForgetsSoon: NAT; fewer than two relays show how it maps ports; seen at 198.51.100.1; ' +
        'a mapping without packets lives for less than 10 s: keepalives every 5 s',
    ],
    [
      'only port 443',
      { ...FACTS, links: links('oslo tcp-443', 'roma tcp-443', 'bern none hidden') },
      'unknown udp-blocked',
      'False UdpBlocked: nothing that counts has seen this gateway; UDP gets no answer, and port 443 does',
    ],
    [
      'only port 443, and only one far cluster',
      { ...FACTS, links: links('oslo tcp-443', 'oslo tcp-443') },
      'unknown udp-blocked',
      'False UdpBlocked: nothing that counts has seen this gateway; ' +
        "UDP gets no answer, and port 443 does: this network or the far end's lets no UDP through",
    ],
    ['of two far clusters one', { ...FACTS, links: links('oslo tcp-443', 'bern none') }, 'unknown', ''],
    ['only just up', { ...FACTS, links: links('oslo tcp-443 new', 'roma tcp-443') }, 'unknown', ''],
    [
      'nothing could be called anyway',
      { ...FACTS, links: links('oslo tcp-443 hidden', 'roma tcp-443 hidden') },
      'unknown',
      '',
    ],
    ['one link by UDP', { ...FACTS, links: links('oslo tcp-443', 'roma tcp-443', 'bern udp') }, 'unknown', ''],
    [
      'a relay answers by UDP',
      { ...behind, seen: [OUTSIDE], links: links('oslo tcp-443', 'roma tcp-443') },
      'behind',
      said(planNat(behind)),
    ],
    ['the broker is in the same LAN', { ...FACTS, observed: '10.0.0.2' }, 'unknown', ''],
    ['so is a relay', { ...behind, seen: ['10.0.0.2'] }, 'behind', said(planNat(behind))],
    [
      'a member at another address',
      { ...behind, others: [{ cluster: 'bern', address: '198.51.100.2' }] },
      'behind',
      said(planNat(behind)),
    ],
  ]
  for (const [say, facts, traits, condition] of rows) {
    const view = planNat(facts)
    t.equal(natTraits(view).join(' '), traits, say)
    t.equal(said(view), condition, say)
  }
})

t.test('what two relays showed holds as long as the NAT is the same', async (t) => {
  const before = planNat({ ...behind, seen: [OUTSIDE], mapping: 'addressDependent' })
  t.equal(planNat(behind, before).kind, 'symmetric')
  t.equal(planNat({ ...behind, observed: '198.51.100.2' }, before).kind, 'behind', 'another one')
  t.equal(planNat({ ...behind, seen: [OUTSIDE], mapping: 'endpointIndependent' }, before).kind, 'endpoint-independent')
  t.equal(planNat(FACTS, before).kind, 'unknown')
})

t.test('the condition of the mapping does not contradict that of the NAT', async (t) => {
  const before = planStatus({ ...STATUS, natMapping: 'addressDependent' }).status?.conditions ?? []
  const after = (nat: NatView): boolean => {
    const found = planStatus({ ...STATUS, conditions: before, natMapping: 'unknown', nat }).status?.conditions
    return found?.some(({ reason }) => reason === 'NatMappingVaries') === true
  }
  const symmetric = planNat({ ...behind, seen: [OUTSIDE], mapping: 'addressDependent' })
  t.ok(before.some(({ reason }) => reason === 'NatMappingVaries'))
  t.ok(after(planNat(behind, symmetric)), 'the same NAT')
  t.notOk(after(planNat({ ...behind, observed: '198.51.100.2' }, symmetric)), 'another one')
  t.notOk(after(planNat({ ...FACTS, observed: '203.0.113.5' }, symmetric)), 'none')
})

t.test('whom the NAT lets in, and whether it leads back inside, are conditions with codes', async (t) => {
  const of = (sights: NatFacts['sights'], before: StatusInit['conditions'] = []) => {
    const nat = planNat({ ...behind, seen: [OUTSIDE], mapping: 'endpointIndependent', sights })
    return planStatus({ ...STATUS, conditions: before, nat }).status?.conditions ?? []
  }
  const codes = (sights: NatFacts['sights'], before: StatusInit['conditions'] = []): readonly string[] =>
    of(sights, before)
      .filter(({ type }) => type === 'NatFilters' || type === 'NatHairpins')
      .map(({ type, status, reason }) => `${type} ${status} ${reason}`)
      .sort()
  t.strictSame(codes({ filter: 'anyone', hairpins: true }), [
    'NatFilters False NatLetsInAnyone',
    'NatHairpins True NatHairpinWorks',
  ])
  t.strictSame(codes({ filter: 'address' }), ['NatFilters True NatLetsInKnownAddresses'])
  const both = { filter: 'port', hairpins: false } as const
  const want = ['NatFilters True NatLetsInKnownPorts', 'NatHairpins False NatHairpinMissing']
  t.strictSame(codes(both), want)
  t.strictSame(codes({}, of(both)), [], 'they go when they are not known any more')
  const kept = planStatus({ ...STATUS, conditions: of(both) }).status?.conditions ?? []
  t.ok(
    want.every((text) => kept.some(({ reason }) => text.endsWith(reason))),
    'and stay before the first plan',
  )
})

t.test('the condition goes with its cause, and stays while nothing is known yet', async (t) => {
  const before = planStatus({ ...STATUS, nat: planNat(behind) }).status?.conditions ?? []
  t.match(said(undefined, before), 'True BehindNat')
  t.equal(said(planNat({ ...FACTS, observed: '203.0.113.5' }), before), '')
})

t.test('whatever is known, the labels are few and the message fits', async (t) => {
  const address = fc.constantFrom(OUTSIDE, '198.51.100.2', '203.0.113.5', '100.64.0.1', '10.0.0.2')
  const cluster = fc.string({ minLength: 1, maxLength: 63, unit: fc.constantFrom('a', 'b', '-') })
  const facts = fc.record({
    ...{ ownAddresses: fc.constant(FACTS.ownAddresses), inside: address, observed: address },
    ...{
      seen: fc.array(address, { maxLength: 9 }),
      others: fc.array(fc.record({ cluster, address }), { maxLength: 99 }),
    },
    mapping: fc.constantFrom('unknown' as const, 'endpointIndependent' as const, 'addressDependent' as const),
    links: fc.array(
      fc.record({
        ...{ cluster, by: fc.constantFrom('udp' as const, 'tcp-443' as const, 'none' as const) },
        ...{ isCallable: fc.boolean(), isNew: fc.boolean() },
      }),
      { maxLength: 5 },
    ),
    lifeSeconds: fc.constantFrom(0, 10, 30, 60, 120),
    routerOutside: address,
    neighbours: fc.array(fc.record({ cluster, address, isPrivate: fc.boolean() }), { maxLength: 9 }),
    sights: fc.record(
      {
        filter: fc.constantFrom('anyone' as const, 'address' as const, 'port' as const),
        hairpins: fc.boolean(),
        bursts: fc.constantFrom('pass' as const, 'limited' as const),
      },
      { requiredKeys: [] },
    ),
  })
  fc.assert(
    fc.property(facts, (one) => {
      const view = planNat(one)
      t.ok(natTraits(view).every((trait) => NAT_TRAITS.includes(trait)))
      t.ok(said(view).length < 1100)
      t.same(planNat({ ...one, seen: [...one.seen].reverse() }), view, 'in any order')
    }),
    { numRuns: 100 },
  )
})
