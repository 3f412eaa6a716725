/** Of what kind the NAT in front of a gateway is, by those who see it, and what the Gateway says about it. */
import fc from 'fast-check'
import t from 'tap'
import { NAT_TRAITS, type NatFacts, type NatView, natTraits, planNat } from '../../../gateway/reach/plan-nat.ts'
import { type StatusInit, planStatus } from '../../../gateway/status/plan-status.ts'
import { NOW, UPTIME } from '../support/worlds.ts'

const OUTSIDE = '198.51.100.1'
const FACTS: NatFacts = {
  ...{
    ownAddresses: new Set(['10.0.0.2', '203.0.113.5']),
    inside: '10.0.0.2',
    seen: [],
    mapping: 'unknown',
    others: [],
  },
  links: [],
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
      'symmetric cgnat same-lan',
      'True BehindSymmetricNat: symmetric NAT: another port for each destination; seen at 198.51.100.1; ' +
        '100.64.0.0/10 is on the way (CGNAT); behind the same NAT as oslo, roma; ' +
        'a mapping without packets lives for 120 s or more: keepalives every 20 s, or 10 s to ends that may be behind NAT',
    ],
    [
      'a carrier',
      { ...behind, inside: '100.127.255.255' },
      'behind cgnat',
      'True BehindCarrierNat: NAT; fewer than two relays show how it maps ports; seen at 198.51.100.1; ' +
        '100.64.0.0/10 is on the way (CGNAT)',
    ],
    ['an address next to those of carriers', { ...behind, inside: '100.128.0.1' }, 'behind', said(planNat(behind))],
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
