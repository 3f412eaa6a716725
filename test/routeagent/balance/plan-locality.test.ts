/** internalTrafficPolicy and trafficDistribution: the endpoints that a node uses. The node is `worker` in zone `a`. */
import { deepStrictEqual } from 'node:assert/strict'
import t, { type Test } from 'tap'
import fc from 'fast-check'
import type { EndpointSlice, ServiceImportSpec } from '../../../model/objects.ts'
import { BalancePlanner } from '../../../routeagent/balance/plan-balancing.ts'
import { type PortPlan, type ServiceContext, planService } from '../../../routeagent/balance/plan-service.ts'
import { elementChanges } from '../../../routeagent/balance/balance-elements.ts'
import { serviceContext } from '../../../routeagent/balance/plan-node-table.ts'
import { SERVICE_CONTEXT, cluster, node, serviceImport, slice } from '../support/site.ts'

const KEY = '245.0.0.7 . tcp . 80'

function planOf(
  spec: Partial<ServiceImportSpec>,
  slices: readonly EndpointSlice[],
  change: Partial<ServiceContext> = {},
): PortPlan {
  const plan = planService(serviceImport('web', '245.0.0.7', spec), slices, { ...SERVICE_CONTEXT, ...change }).get(KEY)
  if (plan === undefined) throw new Error(`expected a plan of ${KEY}`)
  return plan
}

/** The backends as `10.42.1.5 244.1.0.5`, or `refused`, or `dropped`. */
function reported({ slots, dropped }: PortPlan): string {
  if (slots.length > 0) return [...new Set(slots)].map((slot) => slot.split(' ')[0]).join(' ')
  return dropped === true ? 'dropped' : 'refused'
}

const milano = (...addresses: string[]): EndpointSlice => slice('web', 'milano', addresses)
const paris = (...addresses: string[]): EndpointSlice => slice('web', 'paris', addresses)

const HERE = '10.42.1.5 on worker in a'
const BESIDE = '10.42.2.5 on other in a'
const FAR = '10.42.3.5 on third in b'
const PARIS_A = '244.1.0.5 in a'
const PARIS_B = '244.1.0.6 in b'
const EVERYWHERE = [milano(HERE, BESIDE, FAR), paris(PARIS_A, PARIS_B)]
const ALL = '10.42.1.5 10.42.2.5 10.42.3.5 244.1.0.5 244.1.0.6'

interface Row {
  readonly say: string
  readonly slices?: readonly EndpointSlice[]
  readonly context?: Partial<ServiceContext>
  readonly want: string
}

function rows(t: Test, spec: Partial<ServiceImportSpec>, table: readonly Row[]): void {
  for (const { say, slices = EVERYWHERE, context, want } of table)
    t.equal(reported(planOf(spec, slices, context)), want, say)
}

t.test('internalTrafficPolicy Local', async (t) => {
  rows(t, { internalTrafficPolicy: 'Local' }, [
    { say: 'this node alone', want: '10.42.1.5' },
    { say: 'another node: its own', context: { node: 'third', zone: 'b' }, want: '10.42.3.5' },
    { say: 'a node without endpoints drops', context: { node: 'empty' }, want: 'dropped' },
    { say: 'nobody has any: refused', slices: [milano('10.42.1.5! on worker')], want: 'refused' },
    { say: 'nothing at all: refused', slices: [], want: 'refused' },
    {
      say: 'a node of the same name in another cluster is another node',
      slices: [paris('244.1.0.5 on worker in a')],
      want: 'dropped',
    },
    { say: 'an endpoint without a node is on none', slices: [milano('10.42.1.5')], want: 'dropped' },
    {
      say: 'not ready here, ready elsewhere: dropped',
      slices: [milano('10.42.1.5! on worker', BESIDE)],
      want: 'dropped',
    },
    {
      say: 'it terminates here and still serves: better than elsewhere',
      slices: [milano('10.42.1.5~ on worker', BESIDE)],
      want: '10.42.1.5',
    },
    {
      say: 'one ready here: the terminating one no longer',
      slices: [milano('10.42.1.5~ on worker', '10.42.1.6 on worker')],
      want: '10.42.1.6',
    },
    { say: 'only elsewhere, terminating: dropped', slices: [milano('10.42.2.5~ on other')], want: 'dropped' },
    {
      say: 'what cannot be reached is not elsewhere',
      slices: [paris(PARIS_A)],
      context: reach('tokyo'),
      want: 'refused',
    },
  ])
  rows(t, { internalTrafficPolicy: 'Local', trafficDistribution: 'PreferClose' }, [
    { say: 'the policy goes before the preference', context: { node: 'empty' }, want: 'dropped' },
  ])
  rows(t, { internalTrafficPolicy: 'Local', sessionAffinity: 'ClientIP' }, [
    { say: 'with affinity too', want: '10.42.1.5' },
  ])
})

t.test('trafficDistribution', async (t) => {
  for (const trafficDistribution of ['PreferClose', 'PreferSameZone']) {
    rows(t, { trafficDistribution }, [
      { say: 'the zone, in every cluster', want: '10.42.1.5 10.42.2.5 244.1.0.5' },
      { say: 'nobody in the zone: all', context: { zone: 'c' }, want: ALL },
      { say: 'a node without zone: all', context: { zone: undefined }, want: ALL },
      {
        say: 'none ready in the zone: all that are',
        slices: [milano('10.42.1.5! on worker in a', FAR)],
        want: '10.42.3.5',
      },
      {
        say: 'one that terminates in the zone is no reason to stay',
        slices: [milano('10.42.1.5~ on worker in a', FAR)],
        want: '10.42.3.5',
      },
      {
        say: 'none ready at all: all that serve while they terminate',
        slices: [milano('10.42.1.5~ in a', '10.42.3.5~ in b')],
        want: '10.42.1.5 10.42.3.5',
      },
      {
        say: 'hints say more than where it is',
        slices: [milano('10.42.1.5 in a for b', '10.42.3.5 in b for a,c'), paris(PARIS_B)],
        want: '10.42.3.5',
      },
      { say: 'nothing: refused', slices: [], want: 'refused' },
      {
        say: 'the near one’s cluster is down: all that can be reached',
        slices: [milano(FAR), paris(PARIS_A)],
        context: reach('milano'),
        want: '10.42.3.5',
      },
    ])
  }
  rows(t, { trafficDistribution: 'PreferSameNode' }, [
    { say: 'the node first', want: '10.42.1.5' },
    { say: 'then the zone', context: { node: 'empty' }, want: '10.42.1.5 10.42.2.5 244.1.0.5' },
    { say: 'then all', context: { node: 'empty', zone: 'c' }, want: ALL },
    { say: 'without zones: the node, else all', context: { node: 'empty', zone: undefined }, want: ALL },
    {
      say: 'another cluster’s worker is none',
      slices: [milano(FAR), paris('244.1.0.5 on worker in b')],
      want: '10.42.3.5 244.1.0.5',
    },
  ])
  for (const trafficDistribution of ['', 'preferclose', 'example.org/mine', 'constructor']) {
    rows(t, { trafficDistribution }, [{ say: `${trafficDistribution}: not known, so all`, want: ALL }])
  }
  rows(t, { internalTrafficPolicy: 'Cluster' }, [{ say: 'neither: all', want: ALL }])
})

function reach(...clusters: string[]): Partial<ServiceContext> {
  return { reachable: new Set(clusters) }
}

t.test('the node’s place is read from its Node', async (t) => {
  const world = {
    node: 'worker',
    self: 'milano',
    nodes: [node('other', '192.168.7.1', undefined, 'b'), node('worker', '192.168.7.11', undefined, 'a')],
    clusters: [cluster('milano', 1)],
    endpoints: [],
    routeAgents: [],
    gateways: [],
    globalRange: '244.0.0.0/8',
    clustersetIpRange: '245.0.0.0/16',
    facts: { links: [], addresses: [], routes: [] },
  } as unknown as Parameters<typeof serviceContext>[0]
  const place = ({ node, self, zone }: ServiceContext): string => `${self}/${node} ${zone}`
  t.equal(place(serviceContext(world, 4)), 'milano/worker a')
  t.equal(place(serviceContext({ ...world, node: 'gone' }, 4)), 'milano/gone undefined')
  t.equal(
    place(serviceContext({ ...world, nodes: [node('worker', undefined, undefined, '')] }, 4)),
    'milano/worker undefined',
  )
})

t.test('a flip costs its own port and nothing else', async (t) => {
  const planner = new BalancePlanner(SERVICE_CONTEXT)
  for (const i of [1, 2, 3]) {
    planner.setImport(serviceImport(`s${i}`, `245.0.0.${i}`, { internalTrafficPolicy: 'Local' }))
    planner.setSlice(slice(`s${i}`, 'milano', [BESIDE, HERE]))
  }
  t.equal(planner.takeChanges().length, 3)
  const steps: [say: string, addresses: string[], want: string[]][] = [
    ['elsewhere: nothing to do here', [HERE, FAR], []],
    ['gone from here: dropped', [FAR], ['none-here -0 +1', 'services -1 +0', 'slots -2 +0']],
    ['gone everywhere: refused', [], ['no-backends -0 +1', 'none-here -1 +0']],
    ['back elsewhere: dropped', [FAR], ['no-backends -1 +0', 'none-here -0 +1']],
    ['back here', [HERE], ['none-here -1 +0', 'services -0 +1', 'slots -0 +2']],
  ]
  for (const [say, addresses, want] of steps) {
    planner.setSlice(slice('s2', 'milano', addresses))
    const changes = elementChanges(planner.takeChanges())
    t.strictSame(
      changes.map((c) => `${c.map} -${c.remove.length} +${c.add.length}`),
      want,
      say,
    )
  }
  planner.setContext({ ...SERVICE_CONTEXT, zone: 'b' })
  t.strictSame(planner.takeChanges(), [], 'another zone is looked at, and changes none of these')
  planner.setContext({ ...SERVICE_CONTEXT, node: 'third' })
  t.equal(planner.takeChanges().length, 3, 'another node has other endpoints')
})

const places = fc
  .record({
    host: fc.integer({ min: 1, max: 9 }),
    state: fc.constantFrom('', '', '!', '~'),
    node: fc.constantFrom('', ' on worker', ' on other'),
    zone: fc.constantFrom('', ' in a', ' in b'),
    hints: fc.constantFrom('', '', ' for a', ' for b', ' for b,c'),
  })
  .map(({ host, state, node, zone, hints }) => `10.42.1.${host}${state}${node}${zone}${hints}`)
const endpoints = fc.uniqueArray(places, { maxLength: 6, selector: (text) => text.split(/[ !~]/)[0] })
const specs = fc.record({
  internalTrafficPolicy: fc.constantFrom('Cluster', 'Local'),
  trafficDistribution: fc.constantFrom('', 'PreferClose', 'PreferSameZone', 'PreferSameNode', 'Other'),
})

t.test('never nothing while something is ready, but for Local; and the order does not matter', async () => {
  fc.assert(
    fc.property(specs, endpoints, endpoints, fc.option(fc.constantFrom('a', 'b', 'c')), (spec, own, remote, zone) => {
      const context = { zone: zone ?? undefined }
      const elsewhere = remote.map((text) => text.replace('10.42.1', '244.1.0'))
      const plan = planOf(spec, [milano(...own), paris(...elsewhere)], context)
      const reversed = planOf(spec, [paris(...elsewhere.reverse()), milano(...own.reverse())], context)
      deepStrictEqual(plan, reversed)
      const everyone = planOf({}, [milano(...own), paris(...elsewhere)], context).slots
      if (plan.slots.some((slot) => !everyone.includes(slot)) && spec.internalTrafficPolicy !== 'Local') return false
      if (spec.internalTrafficPolicy === 'Local') {
        const here = own.filter((text) => text.includes(' on worker')).map((text) => text.split(/[ !~]/)[0])
        const inside = plan.slots.every((slot) => here.includes(slot.split(' ')[0]))
        return inside && (plan.slots.length > 0 || (plan.dropped === true) === everyone.length > 0)
      }
      return plan.dropped === undefined && plan.slots.length > 0 === everyone.length > 0
    }),
    { numRuns: 500 },
  )
})
