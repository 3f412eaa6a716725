/** A healthy member has no findings, in whatever order the facts come; malformed facts never make the check fail. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { diagnoseMember } from '../../explain/diagnose-member.ts'
import type { Fact, FactSet } from '../../explain/facts/fact.ts'
import { FACT_KINDS } from '../../explain/facts/shapes.ts'
import { copyOf, factSet, healthyObjects } from '../support/objects/member-facts.ts'

const healthy = fc.record({
  others: fc.integer({ min: 2, max: 19 }).map((count) => Array.from({ length: count }, (_, i) => `cluster${i}`)),
  gateways: fc.integer({ min: 2, max: 8 }),
  workers: fc.integer({ min: 0, max: 5 }),
  services: fc.integer({ min: 0, max: 8 }),
  kubernetes: fc.boolean(),
})

t.test('a healthy clusterset of 3 to 20 members with several gateways has no problem', async (t) => {
  fc.assert(
    fc.property(healthy, (init) => {
      const { health, problems, overview } = diagnoseMember(factSet(healthyObjects(init)))
      assert.deepEqual(problems, [])
      assert.equal(health, 'healthy')
      assert.equal(overview.clusters.filter(({ state }) => state === 'reached').length, init.others.length)
    }),
    { numRuns: 40 },
  )
  t.pass()
})

t.test('a condition that another program wrote without a reason hides no export', async (t) => {
  const objects = copyOf(healthyObjects({ others: ['tokyo'], gateways: 2, workers: 1, services: 2, kubernetes: true }))
  for (const { status } of (objects.ServiceExport ?? []) as { status?: { conditions: object[] } }[]) {
    const lastTransitionTime = '2026-11-25T11:00:00Z'
    status?.conditions.push({ type: 'Synced', status: 'True', reason: '', message: '', lastTransitionTime })
  }
  const { problems, overview } = diagnoseMember(factSet(objects))
  t.same(problems, [])
  t.equal(overview.exports?.total, objects.ServiceExport?.length)
})

/** The facts and their objects in another order; with `split`, each object is in a fact of its own. */
function shuffled(facts: FactSet, random: () => number, split: boolean): FactSet {
  const mix = <T>(items: readonly T[]): T[] =>
    items
      .map((item) => ({ item, at: random() }))
      .sort((a, b) => a.at - b.at)
      .map(({ item }) => item)
  const all = facts.facts.flatMap((fact): readonly Fact[] => {
    if (fact.t !== 'objects') return [fact]
    return split
      ? [{ ...fact, items: [] }, ...fact.items.map((item) => ({ ...fact, items: [item] }))]
      : [{ ...fact, items: mix(fact.items) }]
  })
  return { ...facts, facts: mix(all) }
}

/** Damages a healthy member at random; the seed determines how. */
function damaged(init: Parameters<typeof healthyObjects>[0], random: () => number): FactSet {
  const objects = copyOf(healthyObjects(init))
  for (const items of Object.values(objects)) {
    for (const item of items as Record<string, unknown>[]) if (random() < 0.1) delete item['status']
    if (random() < 0.2) items.pop()
  }
  for (const gateway of (objects.Gateway ?? []) as {
    status?: { connections: { state: string; message: string }[]; heartbeatTime: string }
  }[]) {
    if (random() < 0.3 && gateway.status !== undefined) gateway.status.heartbeatTime = '2026-11-25T11:00:00Z'
    for (const link of gateway.status?.connections ?? [])
      if (random() < 0.3) Object.assign(link, { state: 'down', message: 'no answer' })
  }
  return factSet(objects)
}

t.test('no order of facts changes what is found', async (t) => {
  let found = 0
  fc.assert(
    fc.property(healthy, fc.integer(), fc.boolean(), (init, seed, split) => {
      const facts = damaged(init, seeded(seed))
      const first = diagnoseMember(facts)
      found += first.problems.length
      assert.deepEqual(diagnoseMember(shuffled(facts, seeded(seed + 1), split)), first)
      assert.deepEqual(diagnoseMember(copyOf(facts)), first, 'and a file says the same as the cluster')
    }),
    { numRuns: 40 },
  )
  t.ok(found > 100, `${found} problems were found`)
})

function seeded(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return state / 2 ** 32
  }
}

t.test('nonsense is named and ends nothing', async (t) => {
  const object = fc.object({
    key: fc.constantFrom('metadata', 'name', 'spec', 'status', 'conditions', 'connections', 'x'),
  })
  const kind = fc.constantFrom(...FACT_KINDS)
  const fact = fc.oneof(
    fc.anything(),
    fc.record({
      t: fc.constant('objects'),
      source: fc.string(),
      at: fc.constant('2026-11-25T12:00:00Z'),
      kind,
      items: fc.array(object),
    }),
    fc.record({
      t: fc.constant('report'),
      source: fc.string(),
      at: fc.constant('2026-11-25T12:00:00Z'),
      report: object,
    }),
  )
  const set = fc.record({
    format: fc.constant(1),
    takenAt: fc.constant('2026-11-25T12:00:00Z'),
    target: fc.string(),
    facts: fc.array(fact),
  })
  fc.assert(
    fc.property(fc.oneof(fc.anything(), set), (facts) => {
      const { problems } = diagnoseMember(facts)
      assert.ok(!problems.some(({ reason }) => reason === 'InternalError'))
    }),
    { numRuns: 500 },
  )
  for (const value of [undefined, null, 7, 'x', [], {}, { format: 2, takenAt: 'x', target: '', facts: [] }]) {
    const { health, problems } = diagnoseMember(value)
    t.equal(health, 'degraded', 'who knows nothing is not well')
    t.match(problems, [{ reason: 'NotReadable' }])
  }
})

t.test('one field of one object that is wrong costs that object alone', async (t) => {
  const objects = copyOf(healthyObjects())
  const [gateway] = objects.Gateway as { status: { connections: unknown[] } }[]
  gateway?.status.connections.push({ cluster: 7 })
  const { problems } = diagnoseMember(factSet(objects))
  t.match(problems[0], {
    reason: 'NotReadable',
    subject: { kind: 'Gateway', name: 'gw0' },
    seen: /^status\.connections\.4\.cluster: /,
  })
  t.same(
    problems.map(({ reason }) => reason),
    ['NotReadable', 'OneGatewayOnly'],
  )
})

t.test('a node that its roles alone show to be virtual counts as a machine once its routeagent reports', async (t) => {
  const objects = copyOf(healthyObjects({ others: ['tokyo'], gateways: 2, workers: 1, services: 0, kubernetes: true }))
  const roles = { 'node-role.kubernetes.io/edge': '', 'node-role.kubernetes.io/agent': '' }
  for (const { metadata } of (objects.Node ?? []) as { metadata: { name: string; labels?: object } }[]) {
    if (metadata.name === 'w0') metadata.labels = { ...metadata.labels, ...roles }
  }
  const nodesOf = () => diagnoseMember(factSet(objects)).overview.nodes
  t.strictSame(nodesOf(), { machines: 3, leftOut: {} })
  const known = (objects.RouteAgent ?? []) as { metadata: { name: string } }[]
  const agents = known.filter(({ metadata }) => metadata.name !== 'w0')
  Object.assign(objects, { RouteAgent: agents })
  t.strictSame(nodesOf(), { machines: 2, leftOut: { 'a virtual node (KubeEdge, by its roles alone)': 1 } })
})
