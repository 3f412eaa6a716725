/** Where the packets of a probe end, by what each machine saw, and what that means for the explanation. */
import fc from 'fast-check'
import t from 'tap'
import { type PathExplanation, PATH_DOCUMENT } from '../../../explain/path/document.ts'
import { type ExplainedCall, explainCall } from '../../../explain/path/explain-path.ts'
import type { ProbeLine, ProbeReport } from '../../../explain/path/packet-probe.ts'
import { parseFrom, parseTo } from '../../../explain/path/path-ends.ts'
import { type ProbePlace, noProbe, planProbe, withProbe } from '../../../explain/path/plan-probe-end.ts'
import type { CallPackets } from '../../../explain/path/probe-packets.ts'
import { SELF, factSet } from '../../support/objects/member-facts.ts'
import { type At, memberObjects, pathObjects } from './two-members.ts'
import type { Loose } from '../broken-member.ts'

const SOURCE_PORT = 21_000
const AT = '2026-11-25T10:00:00.000Z'
const [VIP, POD, BACKEND] = ['245.0.0.9', '10.42.2.7', '244.2.2.5'] as const

interface CallInit {
  readonly to?: string
  readonly asks?: boolean
  readonly here?: (at: At) => void
  readonly isStandIn?: boolean
  readonly isCut?: boolean
}

function callOf({ to = 'db.shop:5432', asks = true, here }: CallInit = {}): ExplainedCall & { packets: CallPackets } {
  const own = memberObjects(SELF)
  const objects = pathObjects(SELF)
  here?.((kind) => ((objects as Record<string, unknown>)[kind] ?? own[kind] ?? []) as Loose[])
  const far = [{ facts: factSet(memberObjects('paris')), objects: pathObjects('paris') }]
  const found = explainCall(
    { from: parseFrom('shop/front-0'), to: parseTo(to) },
    { here: { facts: factSet(own), objects }, far: asks ? far : [] },
  )
  if ('wrong' in found || found.packets === undefined) throw new Error('no call')
  return { ...found, packets: found.packets }
}

let packetCount = 0

interface Packet {
  readonly by: string
  readonly out?: string
  readonly to?: string
  readonly answers?: true
  readonly ends?: Partial<ProbeLine>
}

/** The lines of a packet that comes by one device, and leaves by another, or ends. */
function lines({ by, out, to = VIP, answers, ends }: Packet): ProbeLine[] {
  packetCount += 1
  const at = { id: packetCount.toString(16), family: 'ip', table: 'sealane_trace_0a' }
  const ports = answers === true ? { sourcePort: 5433, port: SOURCE_PORT } : { sourcePort: SOURCE_PORT, port: 5432 }
  const packet = { protocol: 'tcp', source: POD, destination: to, ...ports }
  const node = { ...at, table: 'sealane_node', chain: 'forward-guard' }
  const last: ProbeLine =
    ends === undefined
      ? { ...node, what: 'policy', action: 'accept' }
      : { ...node, what: 'rule', action: 'drop', ...ends }
  const left = { ...packet, destination: to === VIP ? BACKEND : to }
  const leaves: readonly ProbeLine[] =
    out === undefined ? [] : [{ ...at, chain: 'leaves', what: 'packet', packet: { ...left, outDevice: out } }]
  return [
    { ...at, chain: 'enters', what: 'packet', packet: { ...packet, inDevice: by } },
    { ...at, chain: 'enters', what: 'rule', rule: 'meta nftrace set 1', action: 'continue' },
    { ...node, what: 'packet', packet },
    last,
    ...leaves,
  ]
}

const report = (...packets: readonly Packet[]): ProbeReport => ({
  ...{ at: AT, leftOut: 0, counters: [{ name: 'ip sealane_node dropped-access-egress', before: 1, after: 4 }] },
  lines: packets.flatMap(lines),
})

type Result = NonNullable<ProbeReport['sent']>['result']

function caller(result: Result, ...packets: readonly Packet[]): ProbePlace {
  const place = { cluster: SELF, node: 'w0', isCaller: true, isFar: false, source: 'this machine' }
  return { ...place, report: { ...report(...packets), sent: { result, message: result } } }
}

function far(node: string, ...packets: readonly Packet[]): ProbePlace {
  return { cluster: 'paris', node, isCaller: false, isFar: true, source: `pod at ${node}`, report: report(...packets) }
}

const TORINO: ProbePlace = { ...far('gw0'), cluster: 'torino' }

const UNASKED: ProbePlace = {
  ...{ cluster: 'paris', isCaller: false, isFar: true, source: 'paris' },
  notAsked: 'not named',
}

function found(places: readonly ProbePlace[], init: CallInit = {}): PathExplanation {
  const { path, packets } = callOf(init)
  const { isStandIn = false, isCut = packets.isCut } = init
  const probe = planProbe({
    ...{ packets: { ...packets, isCut }, port: 5432, sourcePort: SOURCE_PORT, by: 'this machine', isStandIn, places },
    nowMs: Date.parse(AT) + 3000,
  })
  return PATH_DOCUMENT.parse(withProbe(path, probe))
}

const LANE = { by: 'cni0', out: 'sealane1' } as const
const DROPS = {
  chain: 'refused-access-namespace',
  rule: 'counter name "dropped-access-namespace" drop',
} as const

/** The outcome, and `station[ back] isExact reason` of the end. */
const ROWS: readonly (readonly [name: string, places: readonly ProbePlace[], expected: string, init?: CallInit])[] = [
  ['it is answered', [caller('answered', LANE), far('gw0', { by: 'sealane0', out: 'cni0', to: BACKEND })], 'REACHABLE'],
  ['it is answered, and the far side was not asked', [caller('answered', LANE), UNASKED], 'REACHABLE', { asks: false }],
  [
    'a rule of the caller drops it',
    [caller('silent', { by: 'cni0', ends: DROPS })],
    'UNREACHABLE access exact access-namespace',
  ],
  [
    'a table of another program drops it',
    [caller('silent', { by: 'cni0', ends: { table: 'filter', chain: 'FORWARD', what: 'policy' } })],
    'UNREACHABLE node exact -',
  ],
  ['nothing sees it leave', [caller('silent', { by: 'cni0' })], 'UNREACHABLE node exact -'],
  [
    'it leaves by a lane, and the far side sees nothing',
    [caller('silent', LANE), far('gw0')],
    'UNREACHABLE link exact CallUnanswered',
  ],
  [
    'it leaves by a lane, and the far side is unknown',
    [caller('silent', LANE), UNASKED],
    'UNREACHABLE link open CallUnanswered',
  ],
  [
    'it leaves by a lane, and only a cluster that it does not go to was asked',
    [caller('silent', LANE), TORINO],
    'UNREACHABLE link open CallUnanswered',
  ],
  [
    'that cluster sees nothing, as the called one',
    [caller('silent', LANE), TORINO, far('gw0')],
    'UNREACHABLE link exact CallUnanswered',
  ],
  [
    'the far side has nodes that were not asked',
    [caller('silent', LANE), far('gw0'), { ...UNASKED, source: '3 more nodes' }],
    'UNREACHABLE link open CallUnanswered',
  ],
  [
    'the far side has left out lines',
    [caller('silent', LANE), { ...far('gw0'), report: { ...report(), leftOut: 1 } }],
    'UNREACHABLE link open CallUnanswered',
  ],
  [
    'not all addresses were followed',
    [caller('silent', LANE), far('gw0')],
    'UNREACHABLE link open CallUnanswered',
    { isCut: true },
  ],
  [
    'a rule drops it, and not all addresses were followed',
    [caller('silent', { by: 'cni0', ends: DROPS })],
    'UNREACHABLE access exact access-namespace',
    { isCut: true },
  ],
  [
    'a stand-in gets no answer of the pod',
    [caller('silent', LANE), far('gw0', { by: 'sealane0', out: 'cni0', to: BACKEND })],
    'UNDETERMINED far-pod exact CallUnanswered',
    { isStandIn: true },
  ],
  [
    'a table of another program drops the packets of a stand-in',
    [caller('silent', { by: 'cni0', ends: { table: 'filter', chain: 'FORWARD', what: 'policy' } })],
    'UNDETERMINED node exact -',
    { isStandIn: true },
  ],
  [
    'a stand-in is refused',
    [caller('refused', LANE), UNASKED],
    'UNDETERMINED far-node open CallRefused',
    { isStandIn: true },
  ],
  [
    'our rule drops the packets of a stand-in',
    [caller('silent', { by: 'cni0', ends: DROPS })],
    'UNREACHABLE access exact access-namespace',
    { isStandIn: true },
  ],
  [
    'packets of a stand-in are lost on the lane',
    [caller('silent', LANE), far('gw0')],
    'UNREACHABLE link exact CallUnanswered',
    { isStandIn: true },
  ],
  ['a stand-in is answered', [caller('answered', LANE)], 'UNDETERMINED', { asks: false, isStandIn: true }],
  [
    'it leaves for the gateway',
    [caller('silent', { by: 'cni0', out: 'sealane-vx' })],
    'UNREACHABLE gateway open CallUnanswered',
  ],
  [
    'the far gateway refuses it',
    [
      caller('silent', LANE),
      far('gw0', {
        by: 'sealane0',
        to: BACKEND,
        ends: { table: 'sealane_gateway', rule: 'counter name dropped-in-not-ours drop' },
      }),
    ],
    'UNREACHABLE far-gateway exact in-not-ours',
  ],
  [
    'the far node refuses it',
    [
      caller('silent', LANE),
      far('w0', { by: 'sealane-vx', to: BACKEND, ends: { rule: 'counter name dropped-access-not-exported drop' } }),
      far('gw0', { by: 'sealane0', out: 'sealane-vx', to: BACKEND }),
    ],
    'UNREACHABLE far-node exact access-not-exported',
  ],
  [
    'the far gateway hands it on',
    [caller('silent', LANE), far('gw0', { by: 'sealane0', out: 'sealane-vx', to: BACKEND })],
    'UNREACHABLE far-node open CallUnanswered',
  ],
  [
    'the pod does not answer',
    [caller('silent', LANE), far('gw0', { by: 'sealane0', out: 'cni0', to: BACKEND })],
    'UNREACHABLE far-pod exact CallUnanswered',
  ],
  [
    'the pod refuses',
    [caller('refused', LANE), far('gw0', { by: 'sealane0', out: 'cni0', to: BACKEND })],
    'UNREACHABLE far-pod exact CallRefused',
  ],
  ['something behind the link refuses', [caller('refused', LANE), UNASKED], 'UNREACHABLE far-node open CallRefused'],
  [
    'the answer is dropped here',
    [
      caller('silent', LANE, { by: 'sealane1', answers: true, to: POD, ends: { rule: 'drop' } }),
      far('gw0', { by: 'sealane0', out: 'cni0', to: BACKEND }),
    ],
    'UNREACHABLE node back exact -',
  ],
  ['the kernel has no route', [caller('unreachable')], 'UNREACHABLE node exact -'],
  [
    'an interrupted trace',
    [{ ...caller('silent'), report: { ...report(), problem: 'no right', sent: { result: 'silent', message: '-' } } }],
    'UNREACHABLE node open -',
  ],
  ['it could not be sent', [{ ...UNASKED, isCaller: true, isFar: false }], 'UNDETERMINED'],
  [
    'UDP without an answer',
    [caller('silent', LANE), far('gw0', { by: 'sealane0', out: 'cni0', to: BACKEND })],
    'UNREACHABLE',
    { to: 'db.shop:5432/udp' },
  ],
  [
    'it passes although the facts say that it ends',
    [caller('answered', LANE)],
    'AMBIGUOUS',
    { here: (at) => at('Gateway').forEach(({ status }) => Object.assign(status, { connections: [] })) },
  ],
]

function endOf({ outcome, probe }: PathExplanation): string {
  const { end } = probe ?? {}
  if (end === undefined) return outcome
  const back = end.direction === 'return' ? ' back' : ''
  return `${outcome} ${end.station}${back} ${end.isExact ? 'exact' : 'open'} ${end.reason ?? '-'}`
}

for (const [name, places, expected, init] of ROWS) {
  t.test(name, async (t) => {
    const path = found(places, init)
    const seen = endOf(path)
    // An end of UDP at the facts has no step of the probe.
    t.ok(expected.includes(' ') ? seen === expected : seen.startsWith(expected), `${seen}: ${path.message}`)
    t.equal(path.outcome === 'UNREACHABLE', path.failing !== undefined)
  })
}

t.test('the steps say what became of the packets', async (t) => {
  const passed = found([caller('answered', LANE)], { asks: false })
  t.same(
    [
      ...new Set(
        passed.steps
          .filter(({ station }) => ['balance', 'link', 'far-pod'].includes(station))
          .map(({ probe }) => probe),
      ),
    ],
    ['passed'],
  )
  const ended = found([caller('silent', LANE), far('gw0')])
  t.match(
    ended.steps.find(({ probe }) => probe === 'ended'),
    { station: 'link', decision: 'fails', evidence: 'observed', ageSeconds: 0, reason: 'CallUnanswered' },
  )
  t.equal(ended.failing?.station, 'link')
  t.match(ended.probe, {
    end: { seq: ended.failing?.seq, cluster: SELF, node: 'w0' },
    places: [
      {
        node: 'w0',
        requests: 1,
        answers: 0,
        ageSeconds: 3,
        passed: ['from cni0', 'ip sealane_node forward-guard', 'to sealane1'],
      },
      { node: 'gw0', requests: 0, counters: [{ before: 1, after: 4 }] },
    ],
  })
})

t.test('what a stand-in gets is not said of the caller', async (t) => {
  const silent = found([caller('silent', LANE), far('gw0', { by: 'sealane0', out: 'cni0', to: BACKEND })], {
    isStandIn: true,
  })
  t.match(silent, { message: /the caller has other labels/, probe: { outcome: 'AMBIGUOUS', isStandIn: true } })
  const answered = found([caller('answered', LANE)], { asks: false, isStandIn: true })
  t.match(answered.probe, { outcome: 'REACHABLE', isStandIn: true })
  const unknown = answered.steps.filter(({ decision }) => decision === 'unknown')
  t.ok(unknown.length > 0, 'what is unknown stays so')
})

t.test('a probe that cannot begin is none that passed', async (t) => {
  const { path, protocol } = callOf()
  const without = PATH_DOCUMENT.parse(withProbe(path, noProbe('no address is known', { to: path.to, protocol })))
  t.equal(path.outcome, 'REACHABLE')
  t.match(without, {
    outcome: 'UNDETERMINED',
    probe: { result: 'failed', message: 'no packet was sent: no address is known' },
  })
})

t.test('more addresses than can be followed, and addresses that are not mapped one to one', async (t) => {
  const many = callOf({
    here: (at) => {
      const slices = at('EndpointSlice')
      for (const slice of slices) {
        const [endpoint] = (slice as unknown as { readonly endpoints: [object] }).endpoints
        const addresses = Array.from({ length: 200 }, (_, i) => `244.2.3.${i}`)
        Object.assign(slice, { endpoints: addresses.map((one) => ({ ...endpoint, addresses: [one] })) })
      }
    },
  }).packets
  t.match(many, { isCut: true })
  t.equal(many.destinations.length, 256)
  t.equal(callOf().packets.isCut, false)
  const pool = callOf({
    here: (at) => {
      for (const { spec } of at('Cluster')) Object.assign(spec as object, { globalCIDRs: ['244.1.2.0/28'] })
    },
  }).packets
  t.match(pool, { isCut: true, sources: [], to: VIP })
  t.ok(pool.destinations.includes(BACKEND), pool.destinations.join())
})

t.test('the packets that are followed', async (t) => {
  const { packets } = callOf()
  t.match(packets, { family: 4, protocol: 'tcp', to: VIP, port: 5432, source: POD, node: 'w0', isPod: true })
  t.same(packets.sources, [POD, '244.1.2.7'])
  t.same(packets.destinations, [VIP, BACKEND, '10.42.2.5'])
  t.same(packets.ports, [5432, 5433])
  t.same([...packets.clusterOf], [[BACKEND, 'paris']])
  t.equal(callOf({ to: 'db.shop' }).packets.port, 5432, 'the only port of the service')
  t.match(callOf({ to: `${BACKEND}:5433` }).packets, { to: BACKEND, port: 5433, ports: [5433] })
})

t.test('any lines of any machine', async (t) => {
  const word = fc.constantFrom(
    'ip',
    'sealane_trace_1',
    'enters',
    'leaves',
    'arrives',
    'sealane_node',
    'drop',
    '\u001b[2J\u202e',
    '',
  )
  const packet = fc.record({
    ...{
      inDevice: word,
      outDevice: fc.constantFrom('sealane1', 'sealane-vx', 'eth0'),
      destination: fc.constantFrom(BACKEND, VIP),
    },
    ...{ sourcePort: fc.constantFrom(SOURCE_PORT, 80), port: fc.constantFrom(SOURCE_PORT, 80) },
  })
  const line: fc.Arbitrary<ProbeLine> = fc.record(
    {
      ...{ id: fc.constantFrom('1', '2'), family: word, table: word, chain: word, packet, rule: word, action: word },
      what: fc.constantFrom('packet', 'rule', 'policy', 'return'),
    },
    { requiredKeys: ['id', 'family', 'table', 'chain', 'what'] },
  )
  const results = fc.constantFrom<Result>('answered', 'refused', 'unreachable', 'silent', 'failed')
  const place = fc.record({ lines: fc.array(line, { maxLength: 30 }), isFar: fc.boolean(), result: results })
  const outcomes = new Set<string>()
  fc.assert(
    fc.property(fc.array(place, { maxLength: 4 }), fc.boolean(), (all, asks) => {
      const places = all.map(({ lines: said, isFar, result }, i): ProbePlace => {
        const sent = i === 0 ? { sent: { result, message: '\u001b' } } : {}
        const seen = { at: 'never', lines: said, leftOut: 0, counters: [], ...sent }
        return { cluster: isFar ? 'paris' : SELF, isCaller: i === 0, isFar: i > 0 && isFar, source: 's', report: seen }
      })
      const path = found(places, { asks })
      outcomes.add(path.outcome)
      const first = path.steps.find(({ decision }) => decision === 'fails')
      const isSound = (path.outcome === 'UNREACHABLE') === (path.failing !== undefined)
      if (!isSound || (path.failing !== undefined && path.failing.seq !== first?.seq)) throw new Error('not sound')
      if (/[\u0000-\u0008\u001b\u202e]/.test(JSON.stringify(path).replaceAll('\\u001b', '\u001b')))
        throw new Error('not clean')
    }),
    { numRuns: 300 },
  )
  t.ok(outcomes.has('UNREACHABLE') && outcomes.has('REACHABLE') && outcomes.has('UNDETERMINED'))
})
