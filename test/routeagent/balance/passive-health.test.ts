/** Endpoints that refuse or do not answer. All drivers are fakes; test/lanes/routeagent-endpoints.test.ts has the packets. */
import { equal, ok } from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import type { CallsInit, ConnectionScan, TranslatedFlow } from '../../../kernel/nfnetlink/connection-table.ts'
import { FakeConnections } from '../../../kernel/fake/fake-connections.ts'
import { FakeNft } from '../../../kernel/fake/fake-nft.ts'
import { FakePacketLog } from '../../../kernel/fake/fake-packet-log.ts'
import type { LoggedPacket } from '../../../kernel/nfnetlink/packet-log.ts'
import { KernelError } from '../../../kernel/errors.ts'
import { type ServiceKey, serviceKey } from '../../../model/ids.ts'
import { NFLOG_GROUPS_REFUSALS, NFT_TABLE_NODE } from '../../../model/kernel-ids.ts'
import { BalancePlanner } from '../../../routeagent/balance/plan-balancing.ts'
import {
  FIRST_MS,
  LONGEST_MS,
  MAX_LEFT_OUT,
  MAX_LEFT_OUT_OF_SERVICE,
  PROBATION_MS,
  PassiveHealth,
  READ_EACH_MS,
  RecentAnswers,
  UNANSWERED_MS,
  leaveOut,
  nextReadingMs,
} from '../../../routeagent/balance/plan-passive-health.ts'
import { PassiveHealthLoop } from '../../../routeagent/balance/passive-health.ts'
import { reporters } from '../../../routeagent/balance/plan-node-table.ts'
import { planService } from '../../../routeagent/balance/plan-service.ts'
import { routeAgentMetrics } from '../../../routeagent/world/metrics.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { eventually } from '../../support/eventually.ts'
import { JumpingClock } from '../../support/jumping-clock.ts'
import { loopRuns } from '../support/loop-runs.ts'
import { Machine } from '../support/machine.ts'
import { SERVICE_CONTEXT, cluster, gateway, serviceImport, slice } from '../support/site.ts'

const WEB = serviceKey('shop', 'web')
const VIP = '245.0.0.7'
const targets = (count: number): string[] => Array.from({ length: count }, (_, i) => `244.1.0.${i} . 8080`)

t.test('a target is left out for twice as long each time, until it answers or for long does neither', async (t) => {
  const health = new PassiveHealth()
  const ready = new Set(targets(4))
  const at = (atMs: number, outcome: 'refused' | 'unanswered' | 'answered') =>
    health.observe({ service: WEB, target: '244.1.0.1 . 8080', outcome, atMs, ready: () => ready })?.forMs
  let nowMs = 1000
  const spells: (number | undefined)[] = []
  for (let i = 0; i < 7; i += 1) {
    const forMs = at(nowMs, i % 2 === 0 ? 'refused' : 'unanswered')
    spells.push(forMs)
    t.equal(at(nowMs + 1, 'unanswered'), undefined, 'what began before says nothing new')
    t.equal(at(nowMs + 2, 'answered'), undefined)
    t.strictSame(health.leftOut(WEB, nowMs + (forMs ?? 0) - 1), ['244.1.0.1 . 8080'])
    nowMs += forMs ?? 0
    t.strictSame(health.leftOut(WEB, nowMs), [])
    t.strictSame([...(health.onProbation(nowMs).get(WEB)?.keys() ?? [])], ['244.1.0.1 . 8080'])
  }
  t.strictSame(
    spells,
    [10, 20, 40, 80, 160, 300, 300].map((seconds) => seconds * 1000),
  )
  at(nowMs, 'answered')
  t.equal(health.size, 0)
  t.equal(at(nowMs, 'refused'), FIRST_MS, 'an answer clears it')
  nowMs += FIRST_MS + PROBATION_MS
  t.equal(health.onProbation(nowMs).size, 0)
  t.equal(at(nowMs, 'refused'), FIRST_MS, 'and so does time')
})

t.test('at most half is left out, never the last, and memory is bounded', () => {
  const services = [WEB, serviceKey('shop', 'db')]
  const event = fc.record({
    service: fc.constantFrom(...services),
    target: fc.integer({ min: 0, max: 6 }).map((i) => `244.1.0.${i} . 8080`),
    outcome: fc.constantFrom('refused' as const, 'unanswered' as const, 'answered' as const),
    passes: fc.integer({ min: 0, max: 40_000 }),
    count: fc.integer({ min: 0, max: 6 }),
  })
  fc.assert(
    fc.property(fc.array(event, { maxLength: 40 }), (events) => {
      const health = new PassiveHealth()
      let atMs = 0
      for (const { service, target, outcome, passes, count } of events) {
        atMs += passes
        const ready = new Set(targets(count))
        const before = health.leftOut(service, atMs)
        const made = health.observe({ service, target, outcome, atMs, ready: () => ready })
        const after = health.leftOut(service, atMs)
        const isNew = made !== undefined
        equal(after.includes(target), before.includes(target) || isNew)
        if (isNew) {
          ok(outcome !== 'answered' && ready.has(target))
          ok(after.filter((one) => ready.has(one)).length <= count / 2)
          ok(made.forMs >= FIRST_MS && made.forMs <= LONGEST_MS)
        }
        const out = leaveOut(ready, after)
        ok(out.size <= count / 2 && [...out].every((one) => ready.has(one) && after.includes(one)))
        const { refused, unanswered } = health.counts(atMs)
        equal(
          refused + unanswered,
          services.reduce((sum, one) => sum + health.leftOut(one, atMs).length, 0),
        )
      }
      health.keep(() => false, atMs)
      equal(health.size, 0)
    }),
  )
  const health = new PassiveHealth()
  const ready = new Set(Array.from({ length: 600 }, (_, i) => `244.1.${i >> 8}.${i & 255} . 8080`))
  for (let i = 0; i < 50; i += 1)
    for (const target of ready)
      health.observe({ service: serviceKey('shop', `s${i}`), target, outcome: 'refused', atMs: 0, ready: () => ready })
  equal(health.size, MAX_LEFT_OUT)
  equal(health.leftOut(serviceKey('shop', 's0'), 0).length, MAX_LEFT_OUT_OF_SERVICE)
  for (const target of ready) {
    const atMs = FIRST_MS + PROBATION_MS
    health.observe({ service: WEB, target, outcome: 'refused', atMs, ready: () => ready })
  }
  equal(health.size, MAX_LEFT_OUT_OF_SERVICE, 'what is long past makes room')
  return Promise.resolve()
})

t.test('targets that are left out count as not ready, at most half of each port', async (t) => {
  const UDP = { name: 'dns', protocol: 'UDP', port: 53 } as const
  const HTTP = { name: 'http', protocol: 'TCP', port: 80 } as const
  const ports = [HTTP, UDP]
  const own = [
    { ...HTTP, port: 8080 },
    { ...UDP, port: 8080 },
  ]
  const three = ['244.1.0.5', '244.1.0.6', '244.1.0.7']
  type Case = readonly [say: string, endpoints: readonly string[], leftOut: readonly string[], want: readonly string[]]
  const rows: readonly Case[] = [
    ['none', three, [], three],
    ['one', three, ['244.1.0.6 . 8080'], ['244.1.0.5', '244.1.0.7']],
    ['two of three: the first that failed', three, ['244.1.0.7 . 8080', '244.1.0.5 . 8080'], three.slice(0, 2)],
    ['another port', three, ['244.1.0.6 . 8081'], three],
    ['the last', ['244.1.0.5'], ['244.1.0.5 . 8080'], ['244.1.0.5']],
    ['gone already', three, ['244.1.0.9 . 8080'], three],
    ['the last that is ready', ['244.1.0.5', '244.1.0.6~'], ['244.1.0.5 . 8080'], ['244.1.0.5']],
  ]
  for (const [say, endpoints, leftOut, want] of rows) {
    const service = serviceImport('web', VIP, { ports })
    const plans = planService(service, [slice('web', 'paris', endpoints, own)], SERVICE_CONTEXT, {
      leftOut: new Set(leftOut),
    })
    const slots = (key: string): string[] => (plans.get(key)?.slots ?? []).map((slot) => slot.split(' ')[0] ?? '')
    t.strictSame(slots(`${VIP} . tcp . 80`), want, say)
    const ready = endpoints.filter((text) => !text.endsWith('~'))
    t.strictSame(slots(`${VIP} . udp . 53`), ready, `${say}: a failure of TCP says nothing about UDP`)
  }
})

t.test('what is left out never takes connections past the policy', async (t) => {
  const PARIS = ['244.1.0.5', '244.1.0.6']
  const TOKYO = ['244.2.0.5', '244.2.0.6']
  type Case = readonly [
    say: string,
    shares: Readonly<Record<string, number>>,
    leftOut: readonly string[],
    want: readonly string[],
    paris?: readonly string[],
  ]
  const rows: readonly Case[] = [
    ['the second tier takes no place in the limit', { paris: 10_000, tokyo: 0 }, PARIS, ['244.1.0.6']],
    ['the only one with a share stays', { paris: 10_000, tokyo: 0 }, ['244.1.0.5'], ['244.1.0.5'], ['244.1.0.5']],
    ['a drained cluster, which has no share', { paris: 10_000 }, PARIS, ['244.1.0.6']],
    ['weight 0 of the other', { paris: 0, tokyo: 10_000 }, [...PARIS, ...TOKYO], ['244.2.0.6']],
    ['none of them without a share counts', { paris: 0, tokyo: 10_000 }, [...PARIS, '244.2.0.6'], ['244.2.0.5']],
    ['refused, and stays so', { paris: 0, tokyo: 0 }, PARIS, []],
    ['two clusters with a share: all of one', { paris: 9000, tokyo: 1000 }, PARIS, TOKYO],
    ['two clusters with a share: half of both', { paris: 5000, tokyo: 5000 }, [...TOKYO, ...PARIS], PARIS],
    ['the policy has none that is ready: half of the others', { rome: 10_000 }, [...PARIS, ...TOKYO], TOKYO],
  ]
  for (const [say, shares, leftOut, want, paris = PARIS] of rows) {
    const slices = [slice('web', 'paris', paris), slice('web', 'tokyo', TOKYO)]
    const clusterShares = new Map(Object.entries(shares))
    const plans = planService(serviceImport('web', VIP), slices, SERVICE_CONTEXT, {
      clusterShares,
      leftOut: new Set(leftOut.map((address) => `${address} . 8080`)),
    })
    const slots = plans.get(`${VIP} . tcp . 80`)?.slots ?? []
    t.strictSame(
      slots.map((slot) => slot.split(' ')[0]),
      want,
      say,
    )
    const planner = new BalancePlanner(SERVICE_CONTEXT)
    planner.setTraffic({ of: () => ({ clusterShares, passiveHealth: true }) })
    planner.setImport(serviceImport('web', VIP))
    for (const one of slices) planner.setSlice(one)
    planner.takeChanges()
    const ready = [...planner.ready(`${VIP} . tcp . 80`)]
    const health = new PassiveHealth()
    for (const address of [...leftOut, ...paris, ...TOKYO])
      health.observe({
        service: WEB,
        target: `${address} . 8080`,
        outcome: 'refused',
        atMs: 0,
        ready: () => new Set(ready),
      })
    const out = health.leftOut(WEB, 0)
    planner.setLeftOut(WEB, new Set(out))
    planner.takeChanges()
    const planned = planner.ports().get(`${VIP} . tcp . 80`)?.slots ?? []
    t.strictSame(
      planned,
      want.length === 0 ? [] : ready.filter((one) => !out.includes(one)),
      `${say}: as it was decided`,
    )
  }
})

t.test('the next reading is when a call becomes a failure, and not much of a processor is used', (t) => {
  type Case = readonly [say: string, times: Partial<Parameters<typeof nextReadingMs>[0]>, wantMs: number]
  const rows: readonly Case[] = [
    ['nothing waits', {}, 1100 + READ_EACH_MS],
    ['much work', { workedMs: 100 }, 1100 + 2000],
    ['a call that was seen now', { seenMs: [1000] }, 1100 + READ_EACH_MS],
    ['one that is to be looked at sooner', { seenMs: [1000, 650] }, 650 + UNANSWERED_MS],
    ['one that came due meanwhile, on a busy node', { seenMs: [450] }, 1100],
    ['but with much work', { seenMs: [450], workedMs: 50 }, 1100 + 500],
    ['one that was looked at', { seenMs: [400] }, 1100 + READ_EACH_MS],
  ]
  for (const [say, times, wantMs] of rows) {
    const atMs = nextReadingMs({ lookedAtMs: 1000, endedMs: 1100, workedMs: 0, seenMs: [], ...times })
    t.equal(Math.max(1100, atMs), wantMs, say)
  }
  return Promise.resolve()
})

t.test('a target that has answered anybody of late is not silent', async (t) => {
  const target = '244.1.0.5 . 8080'
  type Reading = readonly [atMs: number, ids: readonly number[] | 'too many' | 'no suspect', isSilent: boolean]
  const rows: readonly (readonly [say: string, ...Reading[]])[] = [
    ['one reading says nothing', [0, [1], false], [200, [1], true]],
    [
      'a new answer counts for two seconds',
      [0, [1], false],
      [200, [1, 2], false],
      [2199, [2], false],
      [2200, [2], true],
    ],
    ['an answer in place of another', [0, [1], false], [200, [2], false]],
    ['one that ended is no answer', [0, [1, 2], false], [200, [1], true]],
    ['too many to compare: calls are believed', [0, 'too many', false], [200, 'too many', true]],
    ['too many at first', [0, 'too many', false], [200, [1], true], [400, [1, 2], false]],
    ['no suspect meanwhile', [0, [1], false], [200, 'no suspect', false], [400, [1, 2], false], [600, [1, 2], true]],
  ]
  for (const [say, ...readings] of rows) {
    const answers = new RecentAnswers()
    for (const [atMs, ids, isSilent] of readings) {
      const of = ids === 'too many' || ids === 'no suspect' ? undefined : new Set(ids)
      answers.read(ids === 'no suspect' ? new Map() : new Map([[target, of]]), atMs)
      t.equal(answers.isSilent(target, atMs), isSilent, `${say}: ${atMs} ms`)
    }
  }
})

t.test('a node leaves out what refuses or does not answer, where a policy asks for it', async (t) => {
  const machine = new Machine(t)
  const flows = (machine.connections = new ReadConnections())
  const packetLog = (machine.packetLog = new FakePacketLog())
  machine.join()
  machine.api.put(gateway('gw', { paris: 'up' }))
  machine.api.put(serviceImport('web', VIP))
  machine.api.put(slice('web', 'paris', ['244.1.0.5', '244.1.0.6', '244.1.0.7', '244.1.0.8']))
  const policy = {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'TrafficPolicy',
    metadata: { name: 'web', namespace: 'shop', uid: 'web-1', creationTimestamp: '2026-11-29T00:00:00Z' },
  } as const
  const running = machine.start(t)
  await machine.ready()
  const all = ['244.1.0.5', '244.1.0.6', '244.1.0.7', '244.1.0.8'] as const
  const open = (server: string, state: 'answered' | 'unanswered', port = 7000): (() => void) =>
    flows.openCall(`10.42.1.5:${port}`, `${VIP}:80`, `${server}:8080`, state)
  const left = async (): Promise<string> => {
    const found = (await machine.metrics.text()).match(/endpoints_left_out\{.*\} \d+/g) ?? []
    return found
      .map((line) => line.replace(/.*reason="(\w+)".*\} (\d+)/, '$1 $2'))
      .sort()
      .join()
  }
  /** What has failed before is looked at meanwhile. */
  const readings = async (count: number, meanwhile: () => void = () => undefined): Promise<void> => {
    const runs = await loopRuns(machine.metrics, 'passive-health')
    const isOver = async (): Promise<boolean> => {
      meanwhile()
      return (await loopRuns(machine.metrics, 'passive-health')) > runs + count
    }
    await eventually(isOver, { say: `${count} readings` })
  }
  const unanswered = async (): Promise<number> => {
    let count = 0
    const called = SERVICE_CONTEXT.clustersetIpRange
    await flows.calls({ called, state: 'unanswered', limit: 100 }, () => (count += 1))
    return count
  }

  const ended = open('244.1.0.6', 'unanswered')
  await machine.serves(VIP, ...all)
  t.equal(packetLog.log(NFLOG_GROUPS_REFUSALS[4], refusal('244.1.0.5')), false, 'without a policy nothing is watched')
  ended()
  machine.api.put({ ...policy, spec: { passiveHealth: {} } })
  open('244.1.0.6', 'answered', 6000)
  open('244.1.0.6', 'unanswered')
  await machine.serves(VIP, '244.1.0.5', '244.1.0.7', '244.1.0.8')
  await eventually(async () => (await unanswered()) === 0, { say: 'it may begin again, at another endpoint' })
  t.equal(await left(), 'EndpointDoesNotAnswer 1,EndpointRefuses 0')
  await eventually(() => machine.nft.toString().includes('log prefix "refusal"'), { say: 'refusals are logged' })
  t.match(
    machine.nft.toString(),
    /fib saddr \. iif oif exists .*log prefix "refusal"/,
    'only those that come in by the device by which their source is reached: not those that a pod here forges',
  )

  const [late, forgotten] = [open('244.1.0.6', 'unanswered', 7002), flows.forgotten.length]
  flows.onUnansweredRead = late
  await readings(2)
  t.equal(flows.onUnansweredRead, undefined, 'it was read')
  t.equal(flows.forgotten.length, forgotten, 'what no longer waits is not forgotten')

  const hangs = open('244.1.0.7', 'unanswered', 7003)
  const others: (() => void)[] = []
  for (let i = 0; i < 6; i += 1) {
    // On a busy machine readings take long, and others are answered all the time.
    await readings(1, () => others.push(open('244.1.0.7', 'answered', 7100 + others.length)))
    machine.clock.jump(300)
  }
  t.strictSame(
    await machine.backends(VIP),
    ['244.1.0.5', '244.1.0.7', '244.1.0.8'],
    'one client is not answered, and others are',
  )
  hangs()
  for (const end of others) end()

  packetLog.log(NFLOG_GROUPS_REFUSALS[4], refusal('244.1.0.8'))
  await machine.serves(VIP, '244.1.0.5', '244.1.0.7')
  t.equal(await left(), 'EndpointDoesNotAnswer 1,EndpointRefuses 1')
  const stays = open('244.1.0.5', 'unanswered')
  packetLog.log(NFLOG_GROUPS_REFUSALS[4], refusal('244.1.0.7'))
  packetLog.log(NFLOG_GROUPS_REFUSALS[4], refusal('192.0.2.1'))
  const warned = (): unknown[] => machine.logger.lines.filter(({ message }) => message === 'endpoint left out')
  await readings(4)
  t.strictSame(await machine.backends(VIP), ['244.1.0.5', '244.1.0.7'], 'half of them stay')
  stays()

  machine.clock.jump(FIRST_MS)
  await machine.serves(VIP, ...all)
  t.equal(await left(), 'EndpointDoesNotAnswer 0,EndpointRefuses 0', 'the time is over')
  t.equal(warned().length, 2)
  open('244.1.0.6', 'answered', 7001)
  const again = (): boolean => machine.logger.lines.some(({ message }) => message === 'endpoint answers again')
  await eventually(
    () => {
      machine.clock.jump(1000)
      return again()
    },
    { say: 'an answer clears it' },
  )
  packetLog.log(NFLOG_GROUPS_REFUSALS[4], refusal('244.1.0.6'))
  packetLog.log(NFLOG_GROUPS_REFUSALS[4], refusal('244.1.0.8'))
  await eventually(() => warned().length === 4, { say: 'both fail again' })
  t.match(
    warned().slice(2),
    [
      { fields: { endpoint: '244.1.0.6 . 8080', seconds: 10 } },
      { fields: { endpoint: '244.1.0.8 . 8080', seconds: 20 } },
    ],
    'only the one that has answered begins again',
  )

  flows.failure = new KernelError('EPERM', 'conntrack -L -p tcp', 'not permitted')
  const refused = (): boolean => machine.logger.messages('warn').includes('connection tracking cannot be read')
  await eventually(refused, { say: 'told' })
  t.strictSame(machine.status.notReady(), [])
  machine.api.drop('TrafficPolicy', 'web', 'shop')
  await machine.serves(VIP, ...all)
  await eventually(() => !machine.nft.toString().includes('log prefix "refusal"'), { say: 'no rule without a policy' })
  await running.stop()
})

t.test('when very many fail at once, a reading takes some, and asks once for each port', async (t) => {
  const flows = new FakeConnections()
  const planner = new CountingPlanner(SERVICE_CONTEXT)
  planner.setTraffic({ of: () => ({ passiveHealth: true }) })
  const names = ['s0', 's1', 's2', 's3', 's4', 's5']
  for (const [i, name] of names.entries()) {
    const addresses = Array.from({ length: 300 }, (_, j) => `244.${i + 1}.${j >> 8}.${j & 255}`)
    planner.setImport(serviceImport(name, `245.0.1.${i}`))
    planner.setSlice(slice(name, 'paris', addresses))
    for (const address of addresses)
      flows.openCall('10.42.1.5:7000', `245.0.1.${i}:80`, `${address}:8080`, 'unanswered')
  }
  planner.takeChanges()
  const clock = new JumpingClock()
  const out: (readonly [leftOut: number, asked: number])[] = []
  const deps = { flows, nft: new FakeNft(), clock, logger: new CapturingLogger() }
  const metrics = createMetrics('routeagent')
  const loop = new PassiveHealthLoop(
    { ...deps, metrics: routeAgentMetrics(metrics) },
    {
      family: 4,
      name: 'passive-health',
      plan: () => planner,
      onChange: () => out.push([planner.leftOutCount, planner.asked]),
      reporters: () => undefined,
      onFollowing: () => undefined,
    },
  )
  const stopping = new AbortController()
  loop.planned()
  const running = loop.run(stopping.signal)
  await eventually(async () => (await loopRuns(metrics, 'passive-health')) > 0, { say: 'they were seen' })
  t.strictSame(out, [])
  clock.jump(UNANSWERED_MS)
  await eventually(() => out.length >= 2, { say: 'half of each service is left out' })
  stopping.abort()
  await running
  t.strictSame(
    out.slice(0, 2),
    [
      [3 * 150 + 100, 4],
      [6 * 150, 4 + 5],
    ],
    'a thousand failures, and then what was left for later first',
  )
})

class CountingPlanner extends BalancePlanner {
  asked = 0
  readonly #counts = new Map<string, number>()

  get leftOutCount(): number {
    return [...this.#counts.values()].reduce((sum, one) => sum + one, 0)
  }

  override ready(key: string): ReadonlySet<string> {
    this.asked += 1
    return super.ready(key)
  }

  override setLeftOut(service: ServiceKey, targets: ReadonlySet<string>): boolean {
    this.#counts.set(service, targets.size)
    return super.setLeftOut(service, targets)
  }
}

const refusal = (source: string): LoggedPacket => {
  return { prefix: 'refusal', source, sourcePort: 8080, destination: '10.42.1.5', port: 7000, protocol: 'tcp' }
}

/** An ICMP error about a datagram to UDP port 8080 of `target`. */
const icmpError = (prefix: 'refusal' | 'unreachable', source: string, target: string): LoggedPacket => {
  const about = { source: '10.42.1.5', destination: target, protocol: 'udp', port: 8080 }
  return { prefix, source, destination: '10.42.1.5', protocol: 'icmp', about }
}

t.test('UDP endpoints are left out by ICMP errors, and their flows move', async (t) => {
  const machine = new Machine(t)
  const flows = (machine.connections = new FakeConnections())
  const packetLog = (machine.packetLog = new FakePacketLog())
  machine.join()
  const both = (port: number) =>
    [
      { name: 'http', protocol: 'TCP', port },
      { name: 'dns', protocol: 'UDP', port },
    ] as const
  const all = ['244.1.0.5', '244.1.0.6', '244.1.0.7', '244.1.0.8']
  machine.api.put(cluster('roma', 3, '244.2.0.0/16'))
  machine.api.put(gateway('gw', { paris: 'up' }))
  machine.api.put(serviceImport('web', VIP, { ports: both(80) }))
  machine.api.put(slice('web', 'paris', all, both(8080)))
  const metadata = { name: 'web', namespace: 'shop', uid: 'web-1', creationTimestamp: '2026-11-29T00:00:00Z' }
  machine.api.put({ apiVersion: 'sealane.io/v1alpha1', kind: 'TrafficPolicy', metadata, spec: { passiveHealth: {} } })
  const running = machine.start(t)
  await machine.ready()
  await eventually(() => machine.nft.toString().includes('log prefix "unreachable"'), { say: 'errors are logged' })
  const served = async (): Promise<string> => {
    const slots = await machine.nft.elements(NFT_TABLE_NODE, 'slots')
    const udp = slots
      .filter(({ key }) => key.includes(' . udp . '))
      .map(({ value = '' }) => value.replace('244.1.0.', ''))
    return [...new Set(udp)].sort().join()
  }
  const becomes = (want: string, say: string): Promise<unknown> =>
    eventually(async () => (await served()) === want, { say: `${say}: ${want}` })
  await becomes('5,6,7,8', 'at first')
  const servers: string[] = []
  const open = async (): Promise<number> => {
    servers.length = 0
    await flows.flows(SERVICE_CONTEXT.clustersetIpRange, 100, ({ server }) => servers.push(server.address))
    return servers.length
  }
  for (const server of ['244.1.0.5', '244.1.0.6']) flows.openFlow('10.42.1.5:7000', `${VIP}:80`, `${server}:8080`)
  const log = (packet: LoggedPacket): boolean => packetLog.log(NFLOG_GROUPS_REFUSALS[4], packet)
  log(icmpError('refusal', '10.42.1.5', '244.1.0.8'))
  log(icmpError('refusal', '244.1.0.5', '244.1.0.5'))
  await becomes('6,7,8', 'it refuses; what another one says of a port does not count')
  await eventually(async () => (await open()) === 1, { say: 'its flow is forgotten' })
  t.same(servers, ['244.1.0.6'])
  t.same(await machine.backends(VIP), all, 'its TCP port serves')
  for (const [source, target] of [
    ['244.2.0.9', '244.1.0.6'],
    ['246.0.3.0', '244.1.0.7'],
  ] as const)
    log(icmpError('unreachable', source, target))
  log(icmpError('unreachable', '192.168.7.1', '244.1.0.8'))
  await becomes('6,7', 'its host is not reached, says a gateway; what another member says of it does not count')
  log(icmpError('refusal', '244.1.0.7', '244.1.0.7'))
  const text = await machine.metrics.text()
  t.match(text, /endpoint_ejections_total\{.*EndpointRefuses.*\} 1$/m)
  t.match(text, /endpoint_ejections_total\{.*EndpointDoesNotAnswer.*\} 1$/m)
  machine.clock.jump(1000)
  await becomes('6,7', 'half of them stay')
  machine.clock.jump(FIRST_MS)
  await becomes('5,6,7,8', 'the time is over')
  log(icmpError('refusal', '244.1.0.5', '244.1.0.5'))
  await becomes('6,7,8', 'again')
  const last = machine.logger.lines.filter(({ message }) => message === 'endpoint left out').at(-1)
  t.match(last, { fields: { endpoint: '244.1.0.5 . 8080 . udp', seconds: 20, reason: 'EndpointRefuses' } })
  await running.stop()
})

t.test('who may report that a host is unreachable', async (t) => {
  const paris = { index: 2, prefixes: ['244.1.0.0/16', '10.9.0.7'], lanes: '246.0.2.0/24' }
  const roma = { index: 3, prefixes: ['244.2.0.0/16'], lanes: '246.0.3.0/24' }
  const wide = [
    { index: 2, prefixes: ['fd42:1::/48'] },
    { index: 3, prefixes: ['fd42:2::/48'] },
  ]
  const rows: readonly (readonly [say: string, source: string, host: string, want: boolean])[] = [
    ['a node of this cluster', '192.168.7.1', '244.1.0.6', true],
    ['its own gateway', '246.0.2.1', '244.1.0.6', true],
    ['an address among its pods', '244.1.0.1', '10.9.0.7', true],
    ['a gateway of another cluster', '246.0.3.1', '244.1.0.6', false],
    ['a pod of another cluster', '244.2.0.1', '10.9.0.7', false],
    ['another cluster, of a pod of this one', '244.2.0.1', '10.42.1.6', false],
    ['IPv6: a node of this cluster', 'fd00::1', 'fd42:1::6', true],
    ['IPv6: its own', 'fd42:1::1', 'fd42:1::6', true],
    ['IPv6: another', 'fd42:2::1', 'fd42:1::6', false],
  ]
  for (const [say, source, host, want] of rows) t.equal(reporters([paris, roma, ...wide])(source, host), want, say)
})

/** Has an entry end when the unanswered ones have been read. */
class ReadConnections extends FakeConnections {
  onUnansweredRead: (() => void) | undefined
  readonly forgotten: TranslatedFlow[] = []

  override async calls(
    init: CallsInit,
    visit: (call: TranslatedFlow) => void,
    signal?: AbortSignal,
  ): Promise<ConnectionScan> {
    const scan = await super.calls(init, visit, signal)
    if (init.state === 'unanswered') {
      this.onUnansweredRead?.()
      this.onUnansweredRead = undefined
    }
    return scan
  }

  override forget(flows: readonly TranslatedFlow[], signal?: AbortSignal): Promise<number> {
    this.forgotten.push(...flows)
    return super.forget(flows, signal)
  }
}
