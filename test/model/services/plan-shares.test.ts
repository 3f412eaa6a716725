/** Which share each cluster gets and why, and which traffic policy counts. */
import fc from 'fast-check'
import t from 'tap'
import { serviceKey } from '../../../model/ids.ts'
import { objectKeyText } from '../../../model/model.ts'
import type { ClusterTrafficPolicy, TrafficPolicy, TrafficTier } from '../../../model/objects.ts'
import {
  type ExportingCluster,
  type SharesInput,
  type SharesPlan,
  type TrafficRules,
  planShares,
  weightsOf,
} from '../../../model/services/plan-shares.ts'
import { versionToKeep } from '../../../model/access/policy-versions.ts'
import { type SharesChange, changesShares } from '../../../model/services/service-shares.ts'
import {
  type AnyTrafficPolicy,
  TrafficPolicies,
  policyInForce,
  seePolicy,
  trafficNotes,
  trafficPolicyProblem,
} from '../../../model/services/traffic-policies.ts'
import { observedAt } from '../../support/objects/access-objects.ts'
import { clusterObject, membershipObject } from '../../support/objects/cluster-objects.ts'

const REGION = 'region.sealane.io'
const IMPORTER = { id: 'milano', properties: { [REGION]: 'eu' }, labels: { env: 'prod' } }

function cluster(id: string, ready: number, total = ready, change: Partial<ExportingCluster> = {}): ExportingCluster {
  return { id, ready, total, reachable: true, properties: {}, labels: {}, ...change }
}

function planned(
  clusters: readonly ExportingCluster[],
  rules?: TrafficRules,
  change: Partial<SharesInput> = {},
): SharesPlan {
  return planShares({ importer: IMPORTER, type: 'ClusterSetIP', clusters, rules, ...change })
}

/** `milano 5000 ByWeight, …`. */
function shown({ shares }: SharesPlan): string {
  return shares.map(({ cluster: id, share, reason }) => `${id} ${share} ${reason}`).join(', ')
}

const ANY: TrafficTier = { any: {} }
const among = (...clusters: string[]): TrafficTier => ({ clusters })
const SILENT = { unanswered: true } as const
const inEurope = { propertySelector: { matchProperties: { [REGION]: 'eu' } } }
const europe = { properties: { [REGION]: 'eu' } }
const inAsia = { propertySelector: { matchProperties: { [REGION]: 'asia' } } }
const asia = { properties: { [REGION]: 'asia' } }

t.test('who gets what, and why', async (t) => {
  const rows: readonly (readonly [string, SharesPlan, string])[] = [
    [
      'no policy and no selector: by ready endpoints',
      planned([cluster('tokyo', 1), cluster('milano', 2), cluster('paris', 0, 3)]),
      'milano 6667 ByReadyEndpoints, paris 0 NoReadyEndpoint, tokyo 3333 ByReadyEndpoints',
    ],
    [
      'canary: weights, whatever is ready',
      planned([cluster('a', 30), cluster('b', 2), cluster('c', 1)], {
        order: [{ ...ANY, weights: { a: 1, b: 10, c: 89 } }],
      }),
      'a 100 ByWeight, b 1000 ByWeight, c 8900 ByWeight',
    ],
    [
      'local first',
      planned([cluster('milano', 1, 30), cluster('tokyo', 9)], { order: [{ local: {} }, ANY] }),
      'milano 10000 ByReadyEndpoints, tokyo 0 TierIdle',
    ],
    [
      'a quarter ready of half: half of the calls spill',
      planned([cluster('milano', 5, 20), cluster('tokyo', 9)], { order: [{ local: {} }, ANY], spillBelowPercent: 50 }),
      'milano 5000 ByReadyEndpoints, tokyo 5000 Spilled',
    ],
    [
      'a cluster without packets counts in the tier and spills',
      planned([cluster('a', 4, 4, { reachable: false }), cluster('b', 4), cluster('c', 4)], {
        order: [among('a', 'b'), ANY],
        spillBelowPercent: 100,
      }),
      'a 0 ClusterNotReached, b 5000 ByReadyEndpoints, c 5000 Spilled',
    ],
    [
      'tiers that are all weak share everything in proportion',
      planned([cluster('a', 1, 10), cluster('b', 3, 10)], { order: [among('a'), among('b')], spillBelowPercent: 100 }),
      'a 2500 ByReadyEndpoints, b 7500 Spilled',
    ],
    [
      'a selector of properties and labels',
      planned(
        [cluster('a', 1, 1, europe), cluster('b', 1, 1, { ...europe, labels: { env: 'prod' } }), cluster('c', 1)],
        {
          order: [
            {
              selector: {
                labels: { matchLabels: { env: '@SameAsImporter@' } },
                properties: { matchProperties: { [REGION]: '@SameAsImporter@' } },
              },
            },
          ],
        },
      ),
      'a 0 InNoTier, b 10000 ByReadyEndpoints, c 0 InNoTier',
    ],
    [
      'drained: nothing new, and no spill for it',
      planned([
        cluster('a', 3, 3, { drained: 'cluster' }),
        cluster('b', 1, 1, { drained: 'service' }),
        cluster('c', 1),
      ]),
      'a 0 ClusterDrained, b 0 ServiceDrained, c 10000 ByReadyEndpoints',
    ],
    [
      'drained, and no other is ready',
      planned([cluster('a', 3, 3, { drained: 'cluster' }), cluster('c', 0, 4)]),
      'a 10000 LastReady, c 0 NoReadyEndpoint',
    ],
    [
      'silent for a moment: the next tier',
      planned([cluster('a', 3, 3, SILENT), cluster('b', 3)], { order: [among('a'), ANY] }),
      'a 0 ClusterNotReached, b 10000 Spilled',
    ],
    [
      'silent for a moment: the others of its tier, and what spills',
      planned([cluster('a', 4, 4, SILENT), cluster('b', 4), cluster('c', 4)], {
        order: [among('a', 'b'), ANY],
        spillBelowPercent: 100,
      }),
      'a 0 ClusterNotReached, b 5000 ByReadyEndpoints, c 5000 Spilled',
    ],
    [
      'all that tiers name are silent for a moment: as if they answered',
      planned([cluster('a', 3, 3, SILENT), cluster('b', 3, 3, SILENT), cluster('c', 3)], {
        order: [among('a'), among('b')],
      }),
      'a 10000 ByReadyEndpoints, b 0 TierIdle, c 0 InNoTier',
    ],
    [
      'the only tier is silent for a moment, and calls may be refused: they are not',
      planned([cluster('a', 3, 3, SILENT)], { order: [among('a')], whenNoneReady: 'refuse' }),
      'a 10000 ByReadyEndpoints',
    ],
    [
      'the one that is left is drained: silence of a moment does not move calls there',
      planned([cluster('a', 3, 3, SILENT), cluster('b', 3, 3, { drained: 'cluster' })], { order: [ANY] }),
      'a 10000 ByReadyEndpoints, b 0 ClusterDrained',
    ],
    [
      'no policy divides calls: silence of a moment changes nothing',
      planned([cluster('a', 1, 1, SILENT), cluster('b', 1)]),
      'a 5000 ByReadyEndpoints, b 5000 ByReadyEndpoints',
    ],
    [
      'a selected cluster that is silent for a moment: the next result',
      planned([cluster('a', 5, 5, { ...europe, ...SILENT }), cluster('c', 8), cluster('d', 8, 8, asia)], undefined, {
        clusterSelectors: [inEurope, inAsia],
      }),
      'a 0 ClusterNotReached, c 0 NotSelected, d 10000 ByReadyEndpoints',
    ],
    [
      'all that selectors choose are silent for a moment: as if they answered, and no call goes elsewhere',
      planned([cluster('a', 5, 5, { ...europe, ...SILENT }), cluster('c', 8)], undefined, {
        clusterSelectors: [inEurope],
      }),
      'a 10000 ByReadyEndpoints, c 0 NotSelected',
    ],
    [
      'nothing is ready where selectors choose, so all clusters count, without the one that is silent for a moment',
      planned([cluster('a', 5, 5, SILENT), cluster('b', 0, 3, europe), cluster('c', 8)], undefined, {
        clusterSelectors: [inEurope],
      }),
      'a 0 ClusterNotReached, b 0 NoReadyEndpoint, c 10000 ByReadyEndpoints',
    ],
    [
      'weight 0 moves calls to the next tier',
      planned([cluster('a', 3), cluster('b', 3)], { order: [{ ...among('a'), weights: { a: 0 } }, ANY] }),
      'a 0 WeightZero, b 10000 Spilled',
    ],
    [
      'weight 0, and no other is ready',
      planned([cluster('a', 3), cluster('b', 0, 3)], {
        order: [{ ...ANY, weights: { a: 0 } }],
        whenNoneReady: 'refuse',
      }),
      'a 0 WeightZero, b 0 NoneReadyRefused',
    ],
    [
      'no tier is ready: another cluster is called',
      planned([cluster('milano', 0, 3), cluster('tokyo', 2)], { order: [{ local: {} }] }),
      'milano 0 NoReadyEndpoint, tokyo 10000 NoneReadyAll',
    ],
    [
      'no tier is ready: refused',
      planned([cluster('milano', 0, 3), cluster('tokyo', 2)], { order: [{ local: {} }], whenNoneReady: 'refuse' }),
      'milano 0 NoneReadyRefused, tokyo 0 InNoTier',
    ],
    [
      'none is ready anywhere: all that are reached',
      planned([cluster('a', 0, 3), cluster('b', 0, 1), cluster('c', 0, 9, { reachable: false })]),
      'a 7500 NoneReadyAll, b 2500 NoneReadyAll, c 0 ClusterNotReached',
    ],
    [
      'access comes first',
      planned([cluster('a', 3, 3, { allowed: false }), cluster('b', 1)], {
        order: [{ ...ANY, weights: { a: 99, b: 1 } }],
      }),
      'a 0 CallsNotAllowed, b 10000 ByWeight',
    ],
    [
      'then cluster selection, then tiers',
      planned(
        [cluster('a', 1, 1, europe), cluster('b', 1, 1, europe), cluster('c', 8)],
        { order: [among('b'), ANY] },
        { clusterSelectors: [inEurope] },
      ),
      'a 0 TierIdle, b 10000 ByReadyEndpoints, c 0 NotSelected',
    ],
    [
      'a selected cluster without a ready endpoint: the next result, or all (S11)',
      planned([cluster('a', 0, 5, europe), cluster('c', 8)], undefined, { clusterSelectors: [inEurope] }),
      'a 0 NoReadyEndpoint, c 10000 ByReadyEndpoints',
    ],
    [
      'no tier is ready: others that selectors choose, and no call goes elsewhere (S11)',
      planned(
        [cluster('a', 0, 5, europe), cluster('b', 2, 2, europe), cluster('c', 8)],
        { order: [among('a')] },
        { clusterSelectors: [inEurope] },
      ),
      'a 0 NoReadyEndpoint, b 10000 NoneReadyAll, c 0 NotSelected',
    ],
    [
      'the others that selectors choose are drained or of weight 0: ready ones that they do not choose',
      planned(
        [cluster('a', 1, 1, europe), cluster('b', 2, 2, { ...europe, drained: 'cluster' }), cluster('c', 8)],
        { order: [{ ...among('a', 'b'), weights: { a: 0 } }] },
        { clusterSelectors: [inEurope] },
      ),
      'a 0 WeightZero, b 0 ClusterDrained, c 10000 NoneReadyAll',
    ],
    [
      'a headless service follows only where the policy says so',
      planned([cluster('milano', 1), cluster('b', 1)], { order: [{ local: {} }] }, { type: 'Headless' }),
      'b 5000 ByReadyEndpoints, milano 5000 ByReadyEndpoints',
    ],
    [
      'and there it does',
      planned(
        [cluster('milano', 1), cluster('b', 1)],
        { order: [{ local: {} }], headless: 'follow' },
        { type: 'Headless' },
      ),
      'b 0 InNoTier, milano 10000 ByReadyEndpoints',
    ],
    ['no cluster at all', planned([]), ''],
  ]
  for (const [name, plan, expected] of rows) t.equal(shown(plan), expected, name)
  t.equal(planned([]).refused, true)
})

t.test('results are given, and stay whole where a selector cannot be evaluated', async (t) => {
  const clusters = [cluster('a', 1, 1, europe), cluster('b', 1)]
  const { results } = planned(clusters, undefined, { clusterSelectors: [inEurope] })
  t.same(results, [{ clusters: ['a'] }])
  const later = planned(clusters, undefined, { clusterSelectors: [inEurope, {}], resultsBefore: results })
  t.equal(later.results, results)
  t.same([...weightsOf(later)], [['a', 10_000]])
  t.equal(planned(clusters).results, undefined)
})

// Properties.

const IDS = ['a', 'b', 'c', 'milano', 'z']
const anyCluster = (id: string): fc.Arbitrary<ExportingCluster> =>
  fc
    .record({
      ready: fc.nat(40),
      more: fc.nat(40),
      reachable: fc.boolean(),
      allowed: fc.boolean(),
      drained: fc.constantFrom(undefined, undefined, undefined, 'cluster' as const, 'service' as const),
      region: fc.constantFrom('eu', 'asia'),
    })
    .map(({ ready, more, region, ...rest }) => {
      return { id, ready, total: ready + more, ...rest, properties: { [REGION]: region }, labels: {} }
    })
const anyClusters = fc.tuple(...IDS.map(anyCluster)).chain((all) => fc.subarray(all))
const anyTier: fc.Arbitrary<TrafficTier> = fc
  .tuple(
    fc.oneof(
      fc.constant<TrafficTier>({ local: {} }),
      fc.constant(ANY),
      fc.subarray(IDS).map((ids): TrafficTier => among(...ids)),
      fc.constant<TrafficTier>({ selector: { properties: { matchProperties: { [REGION]: '@SameAsImporter@' } } } }),
    ),
    fc.dictionary(fc.constantFrom(...IDS), fc.nat(10_000)),
  )
  .map(([tier, weights]) => ({ ...tier, weights }))
const anyRules: fc.Arbitrary<TrafficRules> = fc.record({
  order: fc.array(anyTier, { maxLength: 4 }),
  spillBelowPercent: fc.nat(100),
  whenNoneReady: fc.constantFrom('all' as const, 'refuse' as const),
})
const anyInput = fc.record({
  importer: fc.constant(IMPORTER),
  type: fc.constant('ClusterSetIP' as const),
  clusters: anyClusters,
  rules: fc.option(anyRules, { nil: undefined }),
  clusterSelectors: fc.option(fc.constant([inEurope]), { nil: undefined }),
})
const sumOf = ({ shares }: SharesPlan): number => shares.reduce((all, { share }) => all + share, 0)

t.test('shares add up to 10,000, or to 0 where calls are refused', async (t) => {
  let refused = 0
  fc.assert(
    fc.property(anyInput, (input) => {
      const plan = planShares(input)
      if (plan.refused) refused += 1
      return sumOf(plan) === (plan.refused ? 0 : 10_000)
    }),
    { numRuns: 1000 },
  )
  t.ok(refused > 10 && refused < 990, `${refused} of 1000 are refused: both sides are looked at`)
})

t.test('each cluster that is to have calls gets some, however small its part is', async (t) => {
  const shares = (parts: readonly ExportingCluster[], rules: TrafficRules): readonly number[] =>
    planned(parts, rules).shares.map(({ share }) => share)
  const three = ['a', 'b', 'c'].map((id) => cluster(id, 1))
  t.same(shares(three, { order: [{ ...ANY, weights: { a: 10_000, b: 10_000, c: 1 } }] }), [4999, 5000, 1])
  t.same(shares([cluster('a', 30_000), cluster('b', 1)], { order: [ANY] }), [9999, 1])
  const weights = fc.array(fc.nat(10_000), { minLength: 1, maxLength: 300 })
  fc.assert(
    fc.property(weights, (all) => {
      const ids = all.map((_, i) => `c${i}`)
      const given = Object.fromEntries(ids.map((id, i) => [id, all[i] ?? 0]))
      const plan = planned(
        ids.map((id) => cluster(id, 1)),
        { order: [{ ...ANY, weights: given }], whenNoneReady: 'refuse' },
      )
      return plan.shares.every(({ cluster: id, share }) => share > 0 === (given[id] ?? 0) > 0)
    }),
  )
})

t.test('with "refuse", a weight of 0 stays 0, and a drained cluster is called as the last one', async (t) => {
  const order = [{ ...ANY, weights: { a: 0, b: 0 } }]
  const both = [cluster('a', 1), cluster('b', 1)]
  t.equal(shown(planned(both, { order, whenNoneReady: 'refuse' })), 'a 0 WeightZero, b 0 WeightZero')
  t.ok(planned(both, { order, whenNoneReady: 'refuse' }).refused)
  t.equal(shown(planned(both, { order })), 'a 5000 LastReady, b 5000 LastReady')
  const drained = [cluster('a', 1), cluster('b', 1, 1, { drained: 'cluster' })]
  const one = [{ ...ANY, weights: { a: 0 } }]
  t.equal(shown(planned(drained, { order: one, whenNoneReady: 'refuse' })), 'a 0 WeightZero, b 10000 LastReady')
})

t.test('only reached and allowed clusters get a share, and one without a ready endpoint only by "all"', async () => {
  fc.assert(
    fc.property(anyInput, (input) => {
      const plan = planShares(input)
      return plan.shares.every(({ cluster: id, share, reason }) => {
        const found = input.clusters.find((one) => one.id === id)
        if (share === 0 || found === undefined) return found !== undefined
        const isAll = (input.rules?.whenNoneReady ?? 'all') === 'all' && reason === 'NoneReadyAll'
        return found.reachable && found.allowed !== false && (found.ready > 0 || isAll)
      })
    }),
    { numRuns: 1000 },
  )
})

t.test('a drained cluster gets nothing while another one in reach is ready', async () => {
  fc.assert(
    fc.property(anyClusters, (clusters) => {
      const open = clusters.some((one) => {
        return one.reachable && one.allowed !== false && one.ready > 0 && one.drained === undefined
      })
      const drained = new Set(clusters.filter((one) => one.drained !== undefined).map(({ id }) => id))
      return !open || planned(clusters).shares.every(({ cluster: id, share }) => share === 0 || !drained.has(id))
    }),
  )
})

t.test('the order of the input changes nothing, and the input is not changed', async (t) => {
  fc.assert(
    fc.property(anyInput, fc.infiniteStream(fc.nat(100)), (input, numbers) => {
      const before = JSON.stringify(input)
      const keyed = input.clusters.map((one) => [numbers.next().value ?? 0, one] as const)
      const clusters = keyed.sort(([a], [b]) => a - b).map(([, one]) => one)
      t.strictSame(planShares({ ...input, clusters }), planShares(input))
      t.equal(JSON.stringify(input), before)
    }),
    { numRuns: 200 },
  )
})

t.test('a greater weight never makes a share smaller', async () => {
  const weight = fc.integer({ min: 1, max: 10_000 })
  fc.assert(
    fc.property(
      anyClusters,
      fc.tuple(weight, weight, weight, weight, weight),
      weight,
      fc.nat(100),
      (clusters, own, more, p) => {
        const weights = Object.fromEntries(IDS.map((id, i) => [id, own[i] ?? 1]))
        const shareOfA = (a: number): number => {
          const order = [
            { clusters: ['a', 'b', 'c'], weights: { a, b: own[1], c: own[2] } },
            { ...ANY, weights },
          ]
          const { shares } = planned(clusters, { order, spillBelowPercent: p })
          return shares.find((one) => one.cluster === 'a')?.share ?? 0
        }
        return shareOfA(Math.min(10_000, own[0] + more)) >= shareOfA(own[0])
      },
    ),
    { numRuns: 1000 },
  )
})

t.test(
  'a share differs from its exact value by less than 1/10,000, but the largest gives to those below 1',
  async () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 10_000 }), { minLength: 1, maxLength: 20 }), (numbers) => {
        const clusters = numbers.map((_, i) => cluster(`c${i}`, i + 1))
        const weights = Object.fromEntries(numbers.map((one, i) => [`c${i}`, one]))
        const all = numbers.reduce((a, b) => a + b, 0)
        const { shares } = planned(clusters, { order: [{ ...ANY, weights }] })
        const exact = ({ weight = 0 }: (typeof shares)[number]): number => (weight / all) * 10_000
        const most = Math.max(...shares.map(exact))
        const small = shares.filter((one) => exact(one) < 1).length
        // It may stay the largest for a while, and equal ones give in turn.
        const given = (one: (typeof shares)[number]): number => (exact(one) > most - small - 1 ? small : 0)
        return shares.every((one) => {
          const over = one.share - exact(one)
          return over < 1 && over > -1 - given(one)
        })
      }),
    )
  },
)

t.test('spill: the first tier keeps its part by readiness, and the rest goes on', async () => {
  fc.assert(
    fc.property(fc.nat(50), fc.integer({ min: 1, max: 50 }), fc.nat(100), (ready, more, percent) => {
      const total = ready + more
      const { shares } = planned([cluster('milano', ready, total), cluster('z', 5)], {
        order: [{ local: {} }, ANY],
        spillBelowPercent: percent,
      })
      const kept = ready === 0 ? 0 : percent === 0 ? 1 : Math.min(1, ready / total / (percent / 100))
      return Math.abs((shares[0]?.share ?? 0) - kept * 10_000) <= 1
    }),
  )
})

t.test('scale-up from 0 to 30 with a spill of 50: no pod has more than three times its fair share', async (t) => {
  let most = 0
  for (let remote = 1; remote <= 30; remote += 1) {
    for (let ready = 0; ready <= 30; ready += 1) {
      const rules: TrafficRules = { order: [{ local: {} }, ANY], spillBelowPercent: 50 }
      const { shares } = planned([cluster('milano', ready, 30), cluster('tokyo', remote)], rules)
      const fair = 10_000 / (ready + remote)
      if (ready > 0) most = Math.max(most, (shares[0]?.share ?? 0) / ready / fair)
    }
  }
  t.ok(most > 1 && most <= 3.001, `at most ${most.toFixed(3)} times`)
})

// Policies.

const META = { creationTimestamp: '2026-11-29T00:00:00Z' }
function policy(name: string, spec: TrafficPolicy['spec'], age = 0): TrafficPolicy {
  const creationTimestamp = `2026-11-29T00:00:${String(10 - age).padStart(2, '0')}Z`
  const metadata = { ...META, creationTimestamp, namespace: 'shop', name, uid: `${name}-1` }
  return { apiVersion: 'sealane.io/v1alpha1', kind: 'TrafficPolicy', metadata, spec }
}
function clusterPolicy(name: string, spec: ClusterTrafficPolicy['spec'] = {}): ClusterTrafficPolicy {
  return { apiVersion: 'sealane.io/v1alpha1', kind: 'ClusterTrafficPolicy', metadata: { ...META, name }, spec }
}
const targets = (...names: string[]): TrafficPolicy['spec'] => ({ targetRefs: names.map((name) => ({ name })) })

t.test('the most specific policy counts, whole; of one rank the older', async (t) => {
  const policies = new TrafficPolicies({
    policies: [policy('young', targets('web')), policy('old', targets('web', 'db'), 5), policy('all', {})],
    clusterPolicies: [clusterPolicy('default'), clusterPolicy('other')],
  })
  const nameFor = (namespace: string, name: string): string | undefined =>
    policies.policyFor(namespace, name)?.metadata.name
  t.equal(nameFor('shop', 'web'), 'old')
  t.equal(nameFor('shop', 'cart'), 'all')
  t.equal(nameFor('bank', 'web'), 'default')
  t.equal(
    new TrafficPolicies({ policies: [], clusterPolicies: [clusterPolicy('other')] }).policyFor('a', 'b'),
    undefined,
  )
})

t.test('the last good policy stays while the object is the same', async (t) => {
  const good = policy('p', { spillBelowPercent: 50 })
  const bad = policy('p', { spillBelowPercent: 101 })
  const first = new TrafficPolicies({ policies: [good], clusterPolicies: [] })
  const second = new TrafficPolicies({ policies: [bad], clusterPolicies: [], before: first.seen })
  t.equal(second.policyFor('shop', 'web'), good)
  const third = new TrafficPolicies({ policies: [bad], clusterPolicies: [], before: second.seen })
  t.equal(third.policyFor('shop', 'web'), good, 'however often it is read')
  const other = { ...bad, metadata: { ...bad.metadata, uid: 'p-2' } }
  const again = new TrafficPolicies({ policies: [other], clusterPolicies: [], before: third.seen })
  t.equal(again.policyFor('shop', 'web'), undefined, 'a new object has no past')
  t.equal(
    new TrafficPolicies({ policies: [], clusterPolicies: [], before: first.seen }).policyFor('shop', 'web'),
    undefined,
  )
})

t.test('of a policy that is not valid, a version counts if no generation since was missed', async (t) => {
  const kept = version(2, 20)
  const rows: readonly (readonly [say: string, looks: readonly TrafficPolicy[], want: number | undefined])[] = [
    ['each generation was seen', [version(2, 20), version(3, 30), version(4, 101)], 30],
    ['several that are not valid', [version(2, 20), version(3, 101), version(4, 102)], 20],
    ['generation 3 was missed: it may have been valid', [version(2, 20), version(4, 101)], undefined],
    ['neither has the agent seen it', [version(2, 20), version(4, 101, kept, 'p-1', 2)], undefined],
    ['the agent has seen it, not valid', [version(2, 20), version(4, 101, kept, 'p-1', 3)], 20],
    ['a process that has seen nothing', [version(4, 101)], undefined],
    ['valid again', [version(2, 20), version(4, 101), version(5, 50)], 50],
    ['what was unknown stays so', [version(2, 20), version(4, 101), version(5, 102)], undefined],
  ]
  for (const [say, looks, want] of rows) {
    let policies = new TrafficPolicies({ policies: [], clusterPolicies: [] })
    for (const one of looks)
      policies = new TrafficPolicies({ policies: [one], clusterPolicies: [], before: policies.seen })
    t.equal(policies.policyFor('shop', 'web')?.spec.spillBelowPercent, want, say)
  }
  const all = (generation: number, spill: number): ClusterTrafficPolicy => {
    const { metadata, ...rest } = clusterPolicy('default', { spillBelowPercent: spill })
    return { ...rest, metadata: { ...metadata, uid: 'd', generation } }
  }
  const first = new TrafficPolicies({ policies: [], clusterPolicies: [all(2, 20)] })
  const missed = new TrafficPolicies({ policies: [], clusterPolicies: [all(4, 101)], before: first.seen })
  t.equal(missed.policyFor('shop', 'web'), undefined, 'a default likewise')
})

t.test('what is not valid, by field, value and what was expected', async (t) => {
  const tier = (one: object): TrafficPolicy['spec'] => ({ order: [ANY, one] })
  const rows: readonly (readonly [object, RegExp | undefined])[] = [
    [{}, undefined],
    [{ order: [] }, undefined],
    [tier({ local: {}, weights: { milano: 0 } }), undefined],
    [tier({ selector: { labels: { matchLabels: { 'a/b': 'c' } } } }), undefined],
    [{ nearest: true }, /^spec\.nearest: "nearest": expected one of order, /],
    [{ targetRefs: [{ kind: 'Service', name: 'web' }] }, /targetRefs\[0\]\.kind: "Service": expected ServiceImport$/],
    [tier({}), /^spec\.order\[1\]: "": expected exactly one of local, clusters, selector, any$/],
    [tier({ local: {}, any: {} }), /"local,any": expected exactly one of/],
    [tier({ nearest: {} }), /^spec\.order\[1\]\.nearest/],
    [tier({ clusters: [] }), /clusters: "": expected at least one id/],
    [tier({ clusters: ['A b'] }), /"A b": expected ids of clusters/],
    [
      tier({ clusters: ['a', 'b'], weights: { a: 0, b: 0 } }),
      /order\[1\]\.weights: "all 0": expected at least one above 0/,
    ],
    [tier({ clusters: ['a', 'b'], weights: { a: 0 } }), undefined],
    [tier({ clusters: ['a'], weights: { b: 1 } }), /weights\.b: 1: expected an id of clusters/],
    [tier({ any: {}, weights: { b: 10_001 } }), /weights\.b: 10001: expected 0 to 10000/],
    [tier({ any: {}, weights: { b: 0.5 } }), /0\.5: expected 0 to 10000/],
    [tier({ selector: {} }), /selector: "": expected labels or properties/],
    [tier({ selector: { labels: {} } }), /selector\.labels: "": expected at least one entry/],
    [
      tier({ selector: { properties: { matchProperties: { 'a/b': 'c' } } } }),
      /"a\/b": expected the name of a ClusterProperty/,
    ],
    [{ order: Array.from({ length: 17 }, () => ANY) }, /^spec\.order: "17 tiers": expected at most 16$/],
    [{ spillBelowPercent: -1 }, /spillBelowPercent: -1: expected 0 to 100/],
    [{ sessionAffinity: { clientIP: { timeoutSeconds: 0 } } }, /timeoutSeconds: 0: expected 1 to 86400/],
    [{ whenNoneReady: 'some' }, /whenNoneReady: "some": expected all or refuse/],
    [{ headless: 'lead' }, /headless: "lead": expected follow/],
  ]
  for (const [spec, expected] of rows) {
    const found = trafficPolicyProblem(policy('p', spec))
    if (expected === undefined) t.equal(found, undefined, JSON.stringify(spec))
    else t.match(found, expected, JSON.stringify(spec))
  }
  t.match(trafficPolicyProblem(clusterPolicy('other')), /metadata\.name: "other": expected default/)
  t.match(trafficPolicyProblem(clusterPolicy('default', targets('web'))), /^spec\.targetRefs/)
})

/** A version of a policy: `spill` above 100 is not valid. `kept`: what its status keeps, written at `observed`. */
function version(
  generation: number,
  spill: number,
  kept?: AnyTrafficPolicy,
  uid = 'p-1',
  observed = generation - 1,
): TrafficPolicy {
  const { metadata, ...rest } = policy('p', { spillBelowPercent: spill })
  const inForce = kept && versionToKeep(kept)
  const status = inForce === undefined ? {} : { status: { conditions: observedAt(observed), inForce } }
  return { ...rest, metadata: { ...metadata, uid, generation }, ...status }
}

t.test('what the status keeps counts while the policy is not valid, and only then', async (t) => {
  const kept = version(3, 30)
  const rows: readonly (readonly [say: string, TrafficPolicy, last: TrafficPolicy | undefined, number | undefined])[] =
    [
      ['a valid policy counts itself', version(4, 40, kept), undefined, 40],
      ['a process that starts', version(4, 101, kept), undefined, 30],
      ['one that has seen a later version', version(5, 101, kept), version(4, 40), 40],
      ['one that has missed the later version', version(5, 101, kept), version(2, 20), 30],
      ['another object of this name', version(4, 101, kept, 'p-2'), undefined, undefined],
      ['that was seen too', version(4, 101, kept, 'p-2'), version(3, 30), undefined],
      ['a version that is not older', version(3, 101, kept), undefined, undefined],
      ['one that this release finds not valid', version(4, 101, version(3, 102)), undefined, undefined],
      ['nothing is kept', version(4, 101), undefined, undefined],
      ['the agent has observed a later one not valid', version(5, 101, kept), undefined, 30],
      ['it has missed generation 4, which may have taken away', version(5, 101, kept, 'p-1', 3), undefined, undefined],
    ]
  for (const [say, one, last, want] of rows) {
    const seen = new Map(last && [[objectKeyText(one), { version: last, lookedAt: last.metadata.generation ?? 0 }]])
    t.equal(seePolicy(one, seen)?.version.spec.spillBelowPercent, want, say)
    if (last === undefined) t.equal(policyInForce(one)?.spec.spillBelowPercent, want, `${say}: for a reader`)
  }
  const policies = new TrafficPolicies({ policies: [version(4, 101, kept)], clusterPolicies: [] })
  t.match(policies.policyFor('shop', 'web'), { metadata: { generation: 3 }, spec: { spillBelowPercent: 30 } })
  const long = { ...kept, spec: { targetRefs: Array.from({ length: 2000 }, () => ({ name: 'x'.repeat(60) })) } }
  t.equal(versionToKeep(long), undefined, 'too long')
  t.equal(versionToKeep(policy('p', {})), undefined, 'without a generation')
})

t.test('whatever is restarted when: the latest valid version counts, and none comes back', async () => {
  const step = fc.record({
    spill: fc.constantFrom(10, 20, 30, 101),
    isRestarted: fc.boolean(),
    isWritten: fc.boolean(),
  })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 20 }), (steps) => {
      let kept: AnyTrafficPolicy | undefined
      let seen: ReturnType<typeof seePolicy>
      let [observed, latest] = [-1, -1]
      for (const [generation, { spill, isRestarted, isWritten }] of steps.entries()) {
        const last = isRestarted ? undefined : seen
        const one = version(generation, spill, kept, 'p-1', observed)
        seen = seePolicy(one, new Map(last && [[objectKeyText(one), last]]))
        const counts = seen?.version
        if (spill <= 100) latest = generation
        if (counts !== undefined && counts.metadata.generation !== latest) return false
        // Nothing is lost that this process has seen, or that was written for the generation before.
        const isKnown = last !== undefined || (kept !== undefined && observed === generation - 1)
        if (isKnown && counts === undefined) return false
        if (isWritten) [kept, observed] = [counts, generation]
      }
      return true
    }),
  )
})

t.test('which changes may change shares', async (t) => {
  const set = (object: Changed, previous: Changed): SharesChange => ({ type: 'set', object, previous })
  const valid = version(1, 10)
  const invalid = version(2, 101)
  const oslo = clusterObject({ id: 'oslo' })
  const seen = { ...oslo, status: { conditions: [] } }
  const member = membershipObject()
  const rows: readonly (readonly [string, SharesChange | undefined, boolean])[] = [
    ['anything', undefined, true],
    ['a new one', { type: 'set', object: valid, previous: undefined }, true],
    ['one less', { type: 'removed', object: oslo }, true],
    ['a status alone', set({ ...valid, status: { services: [] } }, valid), false],
    ['what the status of a valid policy keeps', set(version(1, 10, valid), valid), false],
    ['what the status of another keeps', set(version(2, 101, valid), invalid), true],
    ['a spec', set(version(2, 20), valid), true],
    ['the same again, made anew', set(version(1, 10, undefined, 'p-2'), valid), true],
    ['not valid again: who misses it does not know what counts', set(version(3, 101), invalid), true],
    ['valid again, as the status has it', set(version(3, 10, valid), version(2, 101, valid)), true],
    ['the status of a Cluster', set(seen, oslo), false],
    ['a drain', set(clusterObject({ id: 'oslo', drained: true }), oslo), true],
    ['labels', set(clusterObject({ id: 'oslo', labels: { a: 'b' } }), oslo), true],
    ['ranges', set(clusterObject({ id: 'oslo', podCIDRs: ['10.9.0.0/16'] }), oslo), false],
    ['the same Membership', set({ ...member, metadata: { ...member.metadata, labels: { a: 'b' } } }, member), false],
    ['another clusterset', set({ ...member, spec: { ...member.spec, clusterset: 'other' } }, member), true],
  ]
  for (const [say, change, want] of rows) t.equal(changesShares(change), want, say)
})

type Changed = SharesChange['object']

t.test('what is said of a policy that is in force', async (t) => {
  const older = policy('older', { ...targets('web', 'db'), order: [{ ...ANY, weights: { milano: 0, paris: 0 } }] }, 5)
  const younger = policy('younger', { ...targets('web', 'gone'), order: [among('atlantis')] })
  const world = {
    policies: new TrafficPolicies({ policies: [older, younger], clusterPolicies: [] }),
    members: new Set(['milano', 'paris']),
    imports: new Map([
      [serviceKey('shop', 'web'), 'ClusterSetIP' as const],
      [serviceKey('shop', 'db'), 'Headless' as const],
    ]),
  }
  const said = (one: TrafficPolicy): string => {
    return trafficNotes(one, world)
      .notes.map(([reason, text]) => `${reason} ${text}`)
      .join('\n')
  }
  t.match(said(older), /TrafficWeightsZero spec\.order\[0\]\.weights/)
  t.match(said(older), /TrafficPolicyConflict younger and does not count for the same services: younger/)
  t.match(said(older), /TrafficHeadlessIgnored .*: db/)
  t.match(said(younger), /TrafficNamesUnknown names no members: atlantis/)
  t.match(said(younger), /TrafficPolicyConflict older and counts instead for the same services: older/)
  t.match(said(younger), /TrafficTargetMissing no ServiceImport: gone/)
  t.equal(said(policy('alone', targets('web'))).includes('Missing'), false)
})
