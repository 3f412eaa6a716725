/** KEP-5939: which clusters a service's calls go to, and the ClusterProperties by which they are selected. */
import fc from 'fast-check'
import t from 'tap'
import type { ClusterProperty, ClusterSelector, Node } from '../../../model/objects.ts'
import { believedProperties, statedProperties, topologyProperties } from '../../../model/services/cluster-properties.ts'
import {
  SAME_AS_IMPORTER,
  clusterSelectorsProblem,
  prepareSelector,
  selectorResults,
} from '../../../model/services/cluster-selection.ts'

const REGION = 'region.sealane.io'
const ZONE = 'zone.sealane.io'
const IMPORTER = { [REGION]: 'eu' }
const CLUSTERS = [
  { id: 'tokyo', properties: { [REGION]: 'asia', [ZONE]: 'a' } },
  { id: 'paris', properties: { [REGION]: 'eu', [ZONE]: 'a b/c' } },
  { id: 'milano', properties: { [REGION]: 'eu' } },
  { id: 'nowhere', properties: {} },
]
type Expressions = NonNullable<NonNullable<ClusterSelector['propertySelector']>['matchExpressions']>

const byPairs = (matchProperties: Readonly<Record<string, string>>): ClusterSelector => ({
  propertySelector: { matchProperties },
})
const byExpressions = (...matchExpressions: Expressions): ClusterSelector => ({
  propertySelector: { matchExpressions },
})

t.test('S2 to S4: which clusters a selector matches', async (t) => {
  const rows: readonly (readonly [string, ClusterSelector, string])[] = [
    ['a pair means In', byPairs({ [REGION]: 'eu' }), 'milano paris'],
    ['all pairs must be met', byPairs({ [REGION]: 'eu', [ZONE]: 'a b/c' }), 'paris'],
    ['values are no label values', byPairs({ [ZONE]: 'a b/c' }), 'paris'],
    ['the value of the importer', byPairs({ [REGION]: SAME_AS_IMPORTER }), 'milano paris'],
    ['which the importer lacks', byPairs({ [ZONE]: SAME_AS_IMPORTER }), ''],
    ['In', byExpressions({ key: REGION, operator: 'In', values: ['asia', 'eu'] }), 'milano paris tokyo'],
    [
      'In with the importer',
      byExpressions({ key: REGION, operator: 'In', values: ['us', SAME_AS_IMPORTER] }),
      'milano paris',
    ],
    ['NotIn', byExpressions({ key: REGION, operator: 'NotIn', values: ['eu'] }), 'nowhere tokyo'],
    [
      'NotIn with the importer',
      byExpressions({ key: REGION, operator: 'NotIn', values: [SAME_AS_IMPORTER] }),
      'nowhere tokyo',
    ],
    ['NotIn that the importer lacks', byExpressions({ key: ZONE, operator: 'NotIn', values: [SAME_AS_IMPORTER] }), ''],
    ['Exists', byExpressions({ key: ZONE, operator: 'Exists' }), 'paris tokyo'],
    ['DoesNotExist', byExpressions({ key: ZONE, operator: 'DoesNotExist' }), 'milano nowhere'],
    ['no value of an object', byExpressions({ key: 'constructor', operator: 'Exists' }), ''],
    [
      'pairs and requirements',
      {
        propertySelector: {
          matchProperties: { [REGION]: 'eu' },
          matchExpressions: [{ key: ZONE, operator: 'DoesNotExist' }],
        },
      },
      'milano',
    ],
  ]
  for (const [name, selector, expected] of rows)
    t.equal(prepareSelector(selector, IMPORTER).selectClusters(CLUSTERS).join(' '), expected, name)
})

t.test('S1, S5, S6: what is not valid, by field, value and what was expected', async (t) => {
  const many = Array.from({ length: 17 }, () => byPairs({ [REGION]: 'eu' }))
  const later = { namedSelector: {} } as ClusterSelector
  const rows: readonly (readonly [readonly ClusterSelector[], RegExp])[] = [
    [[{}], /^spec\.clusterSelectors\[0\]: "": expected one field, propertySelector$/],
    [
      [byPairs({ a: 'b' }), { propertySelector: {} }],
      /^spec\.clusterSelectors\[1\]\.propertySelector: .* at least one/,
    ],
    [[byPairs({})], /at least one entry/],
    [[later], /"namedSelector": expected one field/],
    [[{ ...byPairs({ a: 'b' }), ...later }], /expected one field/],
    [[byPairs({ 'a/b': 'c' })], /matchProperties: "a\/b": expected the name of a ClusterProperty/],
    [[byExpressions({ key: 'a', operator: 'In' })], /values: "": expected at least one value with In/],
    [[byExpressions({ key: 'a', operator: 'Exists', values: ['b'] })], /expected no values with Exists/],
    [[byExpressions({ key: 'a', operator: 'Like' as 'In', values: ['b'] })], /operator: "Like": expected In, NotIn/],
    [[byPairs({ a: 'x'.repeat(1025) })], /at most 1024 characters/],
    [many, /^spec\.clusterSelectors: 17 entries: expected at most 16$/],
  ]
  for (const [selectors, message] of rows)
    t.match(clusterSelectorsProblem(selectors, 'ClusterSetIP'), { reason: 'InvalidClusterSelector', message })
  t.throws(() => prepareSelector({ propertySelector: {} }, {}), /propertySelector "": expected at least one entry/)
  t.equal(clusterSelectorsProblem(many.slice(1), 'ClusterSetIP'), undefined)
  t.match(clusterSelectorsProblem([byPairs({ a: 'b' })], 'Headless'), { reason: 'InvalidServiceType' })
  t.equal(clusterSelectorsProblem([], 'Headless'), undefined)
  t.equal(clusterSelectorsProblem(undefined, 'Headless'), undefined)
})

t.test('S8, S9: one result for each selector in order, or all of the list before', async (t) => {
  const selectors = [byPairs({ [REGION]: 'us' }), byPairs({ [REGION]: 'asia' }), byPairs({ [REGION]: 'eu' })]
  const results = selectorResults(selectors, IMPORTER, CLUSTERS)
  t.same(results, [{ clusters: [] }, { clusters: ['tokyo'] }, { clusters: ['milano', 'paris'] }])
  const later = [...selectors, { other: {} } as ClusterSelector]
  t.equal(selectorResults(later, IMPORTER, CLUSTERS.slice(1), results), results, 'never a part')
  t.equal(selectorResults(later, IMPORTER, CLUSTERS), undefined)
  t.equal(selectorResults([], IMPORTER, CLUSTERS, results), undefined, 'no selectors: no results')
})

t.test('the order of clusters changes no result', async () => {
  const selector = byExpressions({ key: REGION, operator: 'NotIn', values: ['us'] })
  fc.assert(
    fc.property(fc.shuffledSubarray(CLUSTERS, { minLength: 4 }), (clusters) => {
      return prepareSelector(selector, IMPORTER).selectClusters(clusters).join() === 'milano,nowhere,paris,tokyo'
    }),
  )
})

const node = (name: string, labels: Readonly<Record<string, string>>): Node => ({
  apiVersion: 'v1',
  kind: 'Node',
  metadata: { name, labels },
})
const at = (region: string, zone: string): Readonly<Record<string, string>> => ({
  'topology.kubernetes.io/region': region,
  'topology.kubernetes.io/zone': zone,
})

t.test('region and zone are those of all machines, where they agree', async (t) => {
  const virtual = node('v', { ...at('us', 'x'), 'sealane.io/virtual-node': '' })
  const none = {}
  t.same(topologyProperties([], none), {})
  t.same(topologyProperties([node('a', at('eu', 'a')), node('b', at('eu', 'a')), virtual], none), {
    [REGION]: 'eu',
    [ZONE]: 'a',
  })
  t.same(topologyProperties([node('a', at('eu', 'a')), node('b', at('eu', 'b'))], none), { [REGION]: 'eu' })
  t.same(topologyProperties([node('a', at('eu', 'a')), node('b', {})], none), {}, 'one says nothing')
  t.same(topologyProperties([node('a', at('eu', ''))], none), { [REGION]: 'eu' })
  const before = { [REGION]: 'eu', [ZONE]: 'a' }
  t.same(topologyProperties([node('a', {}), virtual], before), before, 'a machine without labels changes nothing')
  t.same(topologyProperties([node('a', at('us', 'a')), node('b', {})], before), { [ZONE]: 'a' }, 'another value is')
  const value = fc.constantFrom('', 'a', 'b')
  const present = fc.constantFrom(undefined, 'a', 'b')
  fc.assert(
    fc.property(fc.array(value, { maxLength: 4 }), present, (zones, was) => {
      const given = zones.map((zone, i) => node(`n${i}`, zone === '' ? {} : at('eu', zone)))
      const found = topologyProperties(given, was === undefined ? {} : { [ZONE]: was })[ZONE]
      const stated = new Set(zones.filter((zone) => zone !== ''))
      if (stated.size > 1) return found === undefined
      if (was !== undefined && [...stated].every((zone) => zone === was)) return found === was
      return found === (zones.includes('') ? undefined : zones[0])
    }),
  )
})

t.test('what a member states, and what is believed', async (t) => {
  const property = (name: string, value: string): ClusterProperty => ({
    apiVersion: 'about.k8s.io/v1beta1',
    kind: 'ClusterProperty',
    metadata: { name },
    spec: { value },
  })
  const many = Array.from({ length: 40 }, (_, i) => property(`p${String(i).padStart(2, '0')}`, 'v'))
  const own = [property('cluster.clusterset.k8s.io', 'paris'), property('clusterset.k8s.io', 'set')]
  const { properties, leftOut } = statedProperties([
    ...many,
    ...own,
    property(ZONE, 'a'),
    property('long', 'x'.repeat(1025)),
  ])
  t.equal(Object.keys(properties).length, 32)
  t.equal(properties[ZONE], 'a', 'the zone comes before all others')
  t.equal(Object.hasOwn(properties, 'clusterset.k8s.io'), false)
  t.equal(leftOut.length, 10)
  t.ok(leftOut.includes('long'))
  t.same(
    believedProperties({ 'cluster.clusterset.k8s.io': 'tokyo', [REGION]: 'eu', 'A b': 'c', empty: '' }, 'paris', 'set'),
    { 'cluster.clusterset.k8s.io': 'paris', 'clusterset.k8s.io': 'set', [REGION]: 'eu' },
    'a member cannot pass for another one',
  )
  t.same(believedProperties(undefined, 'paris', undefined), { 'cluster.clusterset.k8s.io': 'paris' })
})
