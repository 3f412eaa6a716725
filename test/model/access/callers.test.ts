/** Which namespaces of a cluster may call: what an offer says of them, as annotation of slices, and egress rules. */
import fc from 'fast-check'
import t from 'tap'
import {
  ANNOTATION_CALLERS,
  callersIn,
  callersOf,
  callersText,
  choosesNamespace,
  keepsOpenCalls,
} from '../../../model/access/callers.ts'
import { egressRules, keepsOpenConnections } from '../../../model/access/egress.ts'
import { mayCall } from '../../../model/access/offer.ts'
import type { ClusterAccessPolicy } from '../../../model/objects.ts'
import type { NamespaceChoice, Offer } from '../../../model/records.ts'
import { MAX_CALLERS_LENGTH } from '../../../model/values/limits.ts'
import { clusterAccessPolicy } from '../../support/objects/access-objects.ts'
import { clusterObject } from '../../support/objects/cluster-objects.ts'

const IDS = ['milano', 'paris']
const NAMES = ['shop', 'bank', 'team']
const label = fc.constantFrom('x', 'y')
const selector = fc.oneof(
  fc.constant({}),
  fc.record({ matchLabels: fc.record({ team: label }) }),
  fc.record({
    matchExpressions: fc.array(
      fc.record({ key: fc.constant('team'), operator: fc.constantFrom('In', 'NotIn'), values: fc.array(label) }),
      { maxLength: 2 },
    ),
  }),
  fc.constant({ later: true }),
)
const choice = fc.record({
  names: fc.subarray(NAMES),
  selectors: fc.array(selector as fc.Arbitrary<object>, { maxLength: 2 }),
})
const offers = fc.option(
  fc.array(fc.record({ clusters: fc.subarray(IDS), namespaces: choice }, { requiredKeys: ['clusters'] }), {
    maxLength: 3,
  }),
  { nil: undefined },
) as fc.Arbitrary<unknown> as fc.Arbitrary<Offer>

function written(text: string | undefined): NamespaceChoice | undefined {
  return callersOf({
    metadata: { name: 's', ...(text === undefined ? {} : { annotations: { [ANNOTATION_CALLERS]: text } }) },
  })
}

t.test('the annotation says what the offer says', (t) => {
  const namespace = fc.record({
    name: fc.constantFrom(...NAMES),
    labels: fc.constantFrom({}, { team: 'x' }, { team: 'y' }),
  })
  fc.assert(
    fc.property(offers, fc.constantFrom(...IDS), namespace, (offer, cluster, caller) => {
      const found = written(callersText(offer, cluster))
      return (found === undefined || choosesNamespace(found, caller)) === mayCall(offer, { cluster, namespace: caller })
    }),
  )
  t.end()
})

t.test('one text for what is equal, and a limited one', (t) => {
  const rule = (names: string[], matchLabels = {}) => ({
    clusters: ['milano'] as never,
    namespaces: { names, selectors: [{ matchLabels }] },
  })
  const one = callersText([rule(['b', 'a'], { x: '1', y: '2' }), rule(['a'])], 'milano')
  t.equal(one, callersText([rule(['a']), rule(['a', 'b'], { y: '2', x: '1' })], 'milano'))
  const many = Array.from({ length: 9 }, (_, i) =>
    rule(Array.from({ length: 256 }, (_, j) => `${i}-${j}-${'n'.repeat(50)}`)),
  )
  const text = callersText(many, 'milano') ?? ''
  t.ok(text.length <= MAX_CALLERS_LENGTH && text.length > MAX_CALLERS_LENGTH - 100, `${text.length}`)
  const all = new Set(callersIn(many, 'milano')?.names)
  t.ok(
    written(text)?.names.every((name) => all.has(name)),
    'what is cut may not call',
  )
  t.equal(choosesNamespace({ names: [], selectors: [{}] }, { name: 'shop' }), false, 'labels that are not known')
  t.end()
})

t.test('whether the exporter keeps open connections: only if its text says so, and no other may call by it', (t) => {
  const offer = [{ clusters: ['milano'] as never, namespaces: { names: ['shop'], selectors: [] } }]
  const kept = callersText(offer, 'milano', true)
  const rows: readonly (readonly [text: string | undefined, keeps: boolean, may: string | undefined])[] = [
    [kept, true, 'shop'],
    [callersText(offer, 'milano'), false, 'shop'],
    [callersText(undefined, 'milano', true), false, undefined],
    ['{"names":["shop"],"selectors":[],"keepsOpen":"true"}', false, 'shop'],
    ['{"names":["shop"],"keepsOpen":true}', false, ''],
    ['{"keepsOpen":true}', false, ''],
    ['{', false, ''],
  ]
  for (const [text, keeps, may] of rows) {
    const annotations = text === undefined ? {} : { annotations: { [ANNOTATION_CALLERS]: text } }
    t.equal(keepsOpenCalls({ metadata: { name: 's', ...annotations } }), keeps, text ?? 'none')
    t.equal(written(text)?.names.join(), may, text ?? 'none')
  }
  const names = Array.from({ length: 256 }, (_, j) => `${j}-${'n'.repeat(50)}`)
  const many = Array.from({ length: 9 }, (_, i) => ({
    clusters: ['milano'] as never,
    namespaces: { names: names.map((name) => `${i}${name}`), selectors: [] },
  }))
  const text = callersText(many, 'milano', true) ?? ''
  t.ok(text.length <= MAX_CALLERS_LENGTH, `${text.length}`)
  t.equal(keepsOpenCalls({ metadata: { name: 's', annotations: { [ANNOTATION_CALLERS]: text } } }), true, 'is not cut')
  t.end()
})

t.test('egress', (t) => {
  const clusters = [
    clusterObject({ id: 'paris', index: 2, labels: { tier: 'prod' } }),
    clusterObject({ id: 'oslo', index: 3, labels: {} }),
  ]
  const to = (egress: unknown, name = 'default'): unknown[] => {
    const policy = clusterAccessPolicy('allow', name)
    const spec = { ...policy.spec, ...(egress === undefined ? {} : { egress }) } as ClusterAccessPolicy['spec']
    const rules = egressRules([{ ...policy, spec }], clusters)
    if (rules === undefined) return ['not limited']
    return ['paris', 'oslo', 'lima'].map((id) => rules.to(id)?.names.join() ?? 'all')
  }
  const prod = { matchLabels: { tier: 'prod' } }
  for (const [egress, expected] of [
    [undefined, ['not limited']],
    [[], ['', '', '']],
    [[{}], ['all', 'all', 'all']],
    [[{ namespaces: ['b', 'a'] }], ['a,b', 'a,b', 'a,b']],
    [[{ namespaces: [] }], ['', '', '']],
    [[{ clusters: ['paris', 'lima'] }], ['all', '', 'all']],
    [[{ selector: prod, namespaces: ['a'] }], ['a', '', '']],
    [[{ selector: {}, namespaces: ['a'] }], ['a', 'a', '']],
    [
      [{ namespaces: ['a'] }, { clusters: ['oslo'], namespaces: ['b'] }],
      ['a', 'a,b', 'a'],
    ],
    [[{ namespaces: ['a'], later: true }], ['', '', '']],
    [[{ selector: { later: true } }], ['', '', '']],
  ] as const)
    t.same(to(egress), expected, JSON.stringify(egress))
  t.same(to([], 'other'), ['not limited'], 'only the policy that counts')
  t.end()
})

t.test('open connections', (t) => {
  const policy = (keepOpenConnections: unknown, name = 'default') => {
    const made = clusterAccessPolicy('deny', name)
    return [{ ...made, spec: { ...made.spec, keepOpenConnections } as ClusterAccessPolicy['spec'] }]
  }
  t.equal(keepsOpenConnections([]), false)
  for (const [value, expected] of [
    [true, true],
    [false, false],
    [undefined, false],
    ['true', false],
  ] as const)
    t.equal(keepsOpenConnections(policy(value)), expected, String(value))
  t.equal(keepsOpenConnections(policy(true, 'other')), false, 'only the policy that counts')
  t.end()
})
