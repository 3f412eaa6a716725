/** Why a link has no better rung, by what its gateway reports. */
import fc from 'fast-check'
import t from 'tap'
import { LINK_RUNGS, whyNotBetter } from '../../../model/lanes/lanes.ts'
import type { Condition, LinkCandidate } from '../../../model/model.ts'
import { endpointObject } from '../../support/objects/cluster-objects.ts'

const HIDDEN = endpointObject({ cluster: 'a', candidates: [{ kind: 'observed', address: '198.51.100.7', port: 4500 }] })
const OPEN = endpointObject({ cluster: 'b', candidates: [{ kind: 'public', address: '198.51.100.8', port: 4500 }] })
const AT = '198.51.100.8:4500'

function condition(type: string, status: Condition['status'], reason: Condition['reason'], message: string): Condition {
  return { type, status, reason, message, lastTransitionTime: '2026-11-25T10:00:00Z' }
}

const SILENT_ROUTER = condition('PortMapped', 'False', 'RouterMapsNoPorts', '192.168.0.1 does not answer')
const VARIES = condition('NatMappingKept', 'False', 'NatMappingVaries', 'symmetric')

type Link = Parameters<typeof whyNotBetter>[0]
const LINK: Link = {
  connection: { state: 'up', candidates: [] },
  rung: 'relayed',
  own: HIDDEN,
  far: HIDDEN,
  conditions: [],
}

function withCandidates(...candidates: readonly LinkCandidate[]): Pick<Link, 'connection'> {
  return { connection: { ...LINK.connection, candidates } }
}

t.test('one line for each better rung', (t) => {
  const failed = { state: 'failed', since: '2026-11-25T10:00:00Z', reason: 'LaneConnecting' } as const
  const rows: readonly [title: string, change: Partial<Link>, want: object[]][] = [
    ['a direct link has none', { rung: 'direct' }, []],
    [
      'two hidden ends',
      {},
      [
        { rung: 'direct', why: /neither gateway can be called/ },
        { rung: 'port-mapped', why: /no router/ },
        { rung: 'punched', why: /no two relays see this gateway/ },
      ],
    ],
    [
      'what was tried and failed, with its code',
      { far: OPEN, ...withCandidates({ kind: 'public', at: AT, ...failed }) },
      [
        { rung: 'direct', reason: 'LaneConnecting', why: `nothing has answered at ${AT} since 2026-11-25T10:00:00Z` },
        {},
        {},
      ],
    ],
    [
      'what was not tried',
      { far: OPEN, ...withCandidates({ kind: 'public', at: AT, state: 'untried', note: 'its turn comes' }) },
      [{ rung: 'direct', why: `${AT} was not called: its turn comes` }, {}, {}],
    ],
    [
      'the router and the NAT',
      { conditions: [SILENT_ROUTER, VARIES] },
      [
        {},
        { rung: 'port-mapped', reason: 'RouterMapsNoPorts', why: '192.168.0.1 does not answer' },
        { rung: 'punched', reason: 'NatMappingVaries', why: 'symmetric' },
      ],
    ],
    [
      'what the gateway says of probes through both NATs',
      withCandidates({ kind: 'punched', state: 'failed', reason: 'BothNatsVary', note: 'another port for each' }),
      [{}, {}, { rung: 'punched', reason: 'BothNatsVary', why: 'another port for each' }],
    ],
    [
      'on port 443 also the relays of members',
      {
        rung: 'tcp-443',
        ...withCandidates({ kind: 'relay', relay: 'oslo', state: 'failed', note: 'the relay refuses: full' }),
      },
      [{}, {}, {}, { rung: 'relayed', why: 'oslo: the relay refuses: full' }],
    ],
    ['without one', { rung: 'tcp-443' }, [{}, {}, {}, { rung: 'relayed', why: /no member offers a relay/ }]],
    [
      'the topology',
      { via: ['hub'] },
      [
        { rung: 'direct', reason: 'RelayedByTopology', why: /relays of hub alone/ },
        { rung: 'port-mapped', reason: 'RelayedByTopology' },
        { rung: 'punched', reason: 'RelayedByTopology' },
      ],
    ],
    [
      'a gateway of an earlier release',
      { own: OPEN, connection: { state: 'up' } },
      [{ rung: 'direct', why: /earlier release/ }, {}, {}],
    ],
  ]
  for (const [title, change, want] of rows) {
    const found = whyNotBetter({ ...LINK, ...change })
    t.equal(found.length, want.length, title)
    t.match(found, want, title)
  }
  t.end()
})

t.test('whatever a gateway states, each better rung has one line', (t) => {
  const text = fc.string({ maxLength: 20 })
  const candidate = fc.record(
    { kind: text, state: text, at: text, relay: text, reason: text, note: text },
    { requiredKeys: ['kind', 'state'] },
  ) as fc.Arbitrary<LinkCandidate>
  const rung = fc.constantFrom(undefined, ...LINK_RUNGS)
  fc.assert(
    fc.property(rung, fc.array(candidate, { maxLength: 5 }), (one, candidates) => {
      const found = whyNotBetter({ ...LINK, rung: one, connection: { state: 'up', candidates } })
      const count = one === undefined ? LINK_RUNGS.length : LINK_RUNGS.indexOf(one)
      return found.length === count && found.every(({ rung: better }, i) => better === LINK_RUNGS[i])
    }),
  )
  t.end()
})
