/** To whom an exporter offers its services: the policies of its cluster, the defaults, and the callers. */
import fc from 'fast-check'
import t from 'tap'
import { AccessVersions } from '../../../model/access/access-versions.ts'
import { egressRules } from '../../../model/access/egress.ts'
import { AccessRules, type AccessWorld } from '../../../model/access/access-rules.ts'
import { exposureOf } from '../../../model/access/exposure.ts'
import { matchesLabels } from '../../../model/access/match-labels.ts'
import { isOfferedTo, mayCall, offerProblem, offeredClusters } from '../../../model/access/offer.ts'
import type { AccessPolicy, ClusterAccessPolicy, LabelSelector } from '../../../model/model.ts'
import { observedAt } from '../../support/objects/access-objects.ts'

type Spec = AccessPolicy['spec']

function policy(name: string, spec: Spec, namespace = 'shop'): AccessPolicy {
  return { apiVersion: 'sealane.io/v1alpha1', kind: 'AccessPolicy', metadata: { name, namespace }, spec }
}

function byDefault(value: 'allow' | 'deny', name = 'default'): ClusterAccessPolicy {
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'ClusterAccessPolicy',
    metadata: { name },
    spec: { default: value },
  }
}

const LABELS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  milano: { region: 'south' },
  paris: { region: 'west', tier: 'prod' },
  oslo: { region: 'north', tier: 'prod' },
  tokyo: { region: 'east' },
}

function world(change: Partial<AccessWorld> = {}): AccessWorld {
  const clusters = Object.entries(LABELS).map(([id, labels]) => ({ spec: { id, labels } }))
  const known = { clustersetDefault: 'allow', clusterPolicies: [], policies: [], clusters: clusters as never } as const
  return { self: 'milano', ...known, ...change }
}

function clustersOf(change: Partial<AccessWorld>, name = 'web', namespace = 'shop'): readonly string[] | 'all' {
  return offeredClusters(new AccessRules(world(change)).offerOf(namespace, name).offer) ?? 'all'
}

t.test('the default of the cluster and of the clusterset: the stricter one counts', async (t) => {
  const rows: readonly [AccessWorld['clustersetDefault'], 'allow' | 'deny' | undefined, 'all' | 'none', string][] = [
    [undefined, undefined, 'all', 'not-stated'],
    [undefined, 'allow', 'all', 'cluster-default'],
    ['allow', undefined, 'all', 'clusterset-default'],
    ['deny', undefined, 'none', 'clusterset-default'],
    ['deny', 'allow', 'none', 'clusterset-default'],
    ['allow', 'deny', 'none', 'cluster-default'],
    ['deny', 'deny', 'none', 'cluster-default'],
    [undefined, 'deny', 'none', 'cluster-default'],
    ['allow', 'allow', 'all', 'cluster-default'],
    ['later' as never, 'allow', 'none', 'clusterset-default'],
    ['allow', 'later' as never, 'none', 'cluster-default'],
  ]
  for (const [clustersetDefault, own, expected, cause] of rows) {
    const clusterPolicies = own === undefined ? [] : [byDefault(own)]
    const { offer, cause: found } = new AccessRules(world({ clustersetDefault, clusterPolicies })).offerOf(
      'shop',
      'web',
    )
    t.same([offer === undefined ? 'all' : offer.length === 0 ? 'none' : offer, found.by], [expected, cause])
  }
  t.equal(clustersOf({ clusterPolicies: [byDefault('deny', 'other')] }), 'all', 'only the one named default counts')
})

t.test('policies name callers', async (t) => {
  const rows: readonly [string, Spec, readonly string[]][] = [
    ['nobody', { from: [] }, []],
    ['an empty entry', { from: [{}] }, ['oslo', 'paris', 'tokyo']],
    ['ids', { from: [{ clusters: ['paris', 'paris'] }] }, ['paris']],
    ['an id without a member', { from: [{ clusters: ['lima'] }] }, ['lima']],
    ['itself', { from: [{ clusters: ['milano'] }] }, []],
    ['labels', { from: [{ selector: { matchLabels: { tier: 'prod' } } }] }, ['oslo', 'paris']],
    [
      'ids and labels',
      { from: [{ clusters: ['paris', 'tokyo'], selector: { matchLabels: { tier: 'prod' } } }] },
      ['paris'],
    ],
    ['an id without a member, and labels', { from: [{ clusters: ['lima'], selector: {} }] }, []],
    ['two entries', { from: [{ clusters: ['tokyo'] }, { clusters: ['oslo'] }] }, ['oslo', 'tokyo']],
    ['another service', { targetRefs: [{ name: 'api' }], from: [] }, ['all']],
    ['an empty list of services', { targetRefs: [], from: [{ clusters: ['oslo'] }] }, ['oslo']],
    ['this service', { targetRefs: [{ name: 'api' }, { name: 'web' }], from: [{ clusters: ['oslo'] }] }, ['oslo']],
    ['an unknown field of the spec', { from: [{}], later: true } as never, []],
    ['an unknown field of an entry', { from: [{ clusters: ['oslo'], later: [] }] } as never, []],
    ['an unknown kind of target', { targetRefs: [{ kind: 'Later', name: 'web' }], from: [{}] } as never, []],
    ['an unknown field of a selector', { from: [{ selector: { later: {} } }] } as never, []],
  ]
  for (const [title, spec, expected] of rows) {
    const found = clustersOf({ policies: [policy('p', spec)] })
    t.same(found, expected[0] === 'all' ? 'all' : expected, title)
  }
  t.same(clustersOf({ policies: [policy('p', { from: [] }, 'other')] }), 'all', 'another namespace')
})

t.test('a policy that is not valid: its last valid version, or what only closes', async (t) => {
  const good: Spec = { targetRefs: [{ name: 'web' }], from: [{ clusters: ['oslo'] }] }
  type Kept = { readonly uid: string; readonly generation: number; readonly spec: Spec }
  const of = (spec: unknown, kept?: Partial<Kept>, observed?: number): AccessPolicy => {
    const version = { uid: 'u', generation: 3, spec: good, ...kept }
    const inForce = kept === undefined ? {} : { status: { conditions: observedAt(observed ?? 3), inForce: version } }
    const { metadata, ...rest } = policy('p', spec as Spec)
    return { ...rest, metadata: { ...metadata, uid: 'u', generation: 4 }, ...inForce }
  }
  const broken: readonly unknown[] = [
    undefined,
    null,
    {},
    { from: 7 },
    { from: [null] },
    { from: [{ clusters: 'oslo' }] },
    { from: [{}], targetRefs: 7 },
    { from: [{}], later: 1 },
    { from: [{ selector: { matchExpressions: [{ key: 'tier', operator: 'In' }] } }] },
  ]
  const selector = { matchExpressions: [{ key: 'tier', operator: 'NotIn' as const }] }
  for (const spec of broken) {
    const say = JSON.stringify([spec])
    t.same(clustersOf({ policies: [of(spec, {})] }), ['oslo'], say)
    t.equal(clustersOf({ policies: [of(spec, {})] }, 'api'), 'all', `${say}: its targets of then`)
    t.same(clustersOf({ policies: [of(spec)] }), [], `${say}: nothing is known`)
    t.same(clustersOf({ policies: [of(spec, { uid: 'other' })] }), [], `${say}: of another object`)
    t.same(clustersOf({ policies: [of(spec, { generation: 4 })] }), [], `${say}: not older`)
    t.same(clustersOf({ policies: [of(spec, { spec: { from: [{ selector }] } })] }), [], `${say}: not valid either`)
    const missed = `${say}: the agent has not observed generation 3, which may have taken away`
    t.same(clustersOf({ policies: [of(spec, { generation: 2 }, 2)] }), [], missed)
    t.same(clustersOf({ policies: [of(spec, { generation: 2 }, 3)] }), ['oslo'], `${say}: it has`)
  }
  t.same(clustersOf({ policies: [of({ ...good, from: [{}] }, {})] }), ['oslo', 'paris', 'tokyo'], 'a valid one counts')
  t.equal(clustersOf({ policies: [of({ from: 7, targetRefs: [{ name: 'api' }] })] }), 'all', 'it closes its targets')

  const versions = new AccessVersions()
  t.same(versions.policies([of(good)]), [of(good)])
  t.match(versions.policies([of({ from: 7 })]), [{ spec: good }], 'what no status has kept, this process has seen')
  versions.policies([])
  t.match(versions.policies([of({ from: 7 })]), [{ spec: { from: [] } }], 'removed is forgotten')

  const at = (generation: number, spec: unknown, kept?: Partial<Kept>, observed?: number): AccessPolicy => {
    const one = of(spec, kept, observed)
    return { ...one, metadata: { ...one.metadata, generation } }
  }
  const inForce = (...looks: readonly AccessPolicy[]): unknown => {
    const some = new AccessVersions()
    return looks.map((one) => some.policies([one])[0]?.spec).at(-1)
  }
  const [open, closed] = [{ from: [{}] }, { targetRefs: [], from: [] }]
  t.same(inForce(at(1, open), at(2, { from: 7 })), open, 'each generation was seen')
  t.same(inForce(at(1, open), at(2, { from: 7 }), at(3, { from: 8 })), open, 'each generation was seen')
  t.same(inForce(at(1, open), at(3, { from: 7 })), closed, 'generation 2 was missed: it may have taken away')
  const keptByAgent = at(3, { from: 7 }, { generation: 2, spec: good }, 2)
  t.same(inForce(at(1, open), keptByAgent), good, 'the agent has seen generation 2')
  const asOfTheFirst = at(3, { from: 7 }, { generation: 1, spec: open }, 1)
  t.same(inForce(at(1, open), asOfTheFirst), closed, 'nor has the agent')
  t.same(inForce(keptByAgent, at(3, { from: 7 })), closed, 'the agent has taken out what the API had cut short')
  const narrower = at(3, { from: 7 }, { generation: 2, spec: { from: [] } }, 2)
  t.same(inForce(keptByAgent, narrower), { from: [] }, 'or has written it whole')
  const notObserved = at(4, { from: 8 }, { generation: 2, spec: good }, 2)
  t.same(inForce(keptByAgent, notObserved), good, 'it is still there, and this process has looked at generation 3')
  t.same(inForce(at(2, good), keptByAgent, at(3, { from: 7 })), good, 'this process has seen it itself')
  const watching = new AccessVersions()
  watching.policies([at(1, good)])
  for (const one of [at(2, open), at(3, { from: 7 })]) watching.see(one)
  t.same(watching.policies([at(3, { from: 7 })])[0]?.spec, open, 'a version between two looks')
})

t.test('a ClusterAccessPolicy that is not valid', async (t) => {
  const of = (spec: unknown, kept?: ClusterAccessPolicy['spec'], observed = 3): ClusterAccessPolicy => {
    const metadata = { name: 'default', uid: 'u', generation: 4 }
    const status =
      kept === undefined
        ? {}
        : { status: { conditions: observedAt(observed), inForce: { uid: 'u', generation: 3, spec: kept } } }
    return { ...byDefault('deny'), metadata, spec: spec as never, ...status }
  }
  const { clusters } = world()
  const egressOf = (one: ClusterAccessPolicy): unknown => egressRules([one], clusters)?.to('oslo')?.names
  const closed: readonly (readonly [unknown, unknown])[] = [
    [undefined, undefined],
    [{}, undefined],
    [{ default: 7 }, undefined],
    [{ default: 'allow', later: 1 }, undefined],
    [{ default: 'deny', egress: 7 }, []],
    [{ default: 'allow', egress: [{ later: 1 }] }, []],
    [{ egress: [{ clusters: ['oslo'], namespaces: ['shop'] }] }, ['shop']],
  ]
  for (const [spec, egress] of closed) {
    const say = JSON.stringify([spec])
    const isOpen = say.includes('"allow","egress"')
    t.same(clustersOf({ clusterPolicies: [of(spec)] }), isOpen ? 'all' : [], say)
    t.same(egressOf(of(spec)), egress, `${say}: calls of this cluster`)
    const kept = of(spec, { default: 'allow', egress: [{ namespaces: ['team'] }] })
    t.same([clustersOf({ clusterPolicies: [kept] }), egressOf(kept)], ['all', ['team']], `${say}: kept`)
    const missed = of(spec, { default: 'allow', egress: [{ namespaces: ['team'] }] }, 2)
    t.same(egressOf(missed), egress, `${say}: the agent has not observed generation 3`)
  }
})

t.test('policies of one service add up, and replace the default', async (t) => {
  const policies = [policy('b', { from: [{ clusters: ['oslo'] }] }), policy('a', { from: [] })]
  const decided = new AccessRules(world({ policies, clusterPolicies: [byDefault('deny')] })).offerOf('shop', 'web')
  t.same(decided.cause, { by: 'policies', names: ['a', 'b'] })
  t.same(decided.offer, [{ clusters: ['oslo'] }])
})

t.test('namespaces of callers', async (t) => {
  const policies = [
    policy('a', { from: [{ clusters: ['oslo', 'paris'], namespaces: ['shop'] }] }),
    policy('b', { from: [{ clusters: ['oslo'], namespaceSelector: { matchLabels: { team: 'x' } } }] }),
    policy('c', { from: [{ clusters: ['tokyo'] }, { clusters: ['tokyo'], namespaces: ['one'] }] }),
  ]
  const { offer } = new AccessRules(world({ policies })).offerOf('shop', 'web')
  t.same(offeredClusters(offer), ['oslo', 'paris', 'tokyo'])
  t.equal(offerProblem(offer), undefined)
  const rows: readonly [string, string, Record<string, string>, boolean][] = [
    ['oslo', 'shop', {}, true],
    ['oslo', 'other', {}, false],
    ['oslo', 'other', { team: 'x' }, true],
    ['paris', 'shop', {}, true],
    ['paris', 'other', { team: 'x' }, false],
    ['tokyo', 'any', {}, true],
    ['lima', 'shop', { team: 'x' }, false],
  ]
  for (const [cluster, name, labels, expected] of rows)
    t.equal(mayCall(offer, { cluster, namespace: { name, labels } }), expected, `${cluster}/${name}`)
})

t.test('label selectors as Kubernetes has them', async (t) => {
  const labels = { a: '1', b: '' }
  const one = (key: string, operator: string, values?: string[]): LabelSelector =>
    ({ matchExpressions: [{ key, operator, ...(values === undefined ? {} : { values }) }] }) as LabelSelector
  const rows: readonly [LabelSelector, boolean][] = [
    [{}, true],
    [{ matchLabels: { a: '1' } }, true],
    [{ matchLabels: { a: '1', c: '1' } }, false],
    [{ matchLabels: { toString: '1' } }, false],
    [one('a', 'In', ['0', '1']), true],
    [one('c', 'In', ['1']), false],
    [one('a', 'NotIn', ['1']), false],
    [one('c', 'NotIn', ['1']), true],
    [one('c', 'NotIn'), false],
    [one('b', 'Exists'), true],
    [one('c', 'Exists'), false],
    [one('c', 'DoesNotExist'), true],
    [one('b', 'DoesNotExist'), false],
    [one('a', 'Later', ['1']), false],
  ]
  for (const [selector, expected] of rows) t.equal(matchesLabels(selector, labels), expected, JSON.stringify(selector))
})

t.test('exposure', async (t) => {
  const of = (exposure?: string) => exposureOf({ spec: exposure === undefined ? {} : { exposure } } as never)
  t.same(
    [exposureOf(undefined), of(), of('exports'), of('pods'), of('nothing'), of('later')],
    ['pods', 'pods', 'exports', 'pods', 'nothing', 'exports'],
  )
})

t.test('what other clusters send is limited', async (t) => {
  t.match(offerProblem([{ clusters: ['no such/name'] as never }]), /"no such\/name": expected an RFC 1123 label/)
  t.match(offerProblem(Array.from({ length: 300 }, () => ({ clusters: [] }))), /300 rules/)
  t.match(offerProblem([{ clusters: Array.from({ length: 5000 }, (_, i) => `c${i}`) as never }]), /5000 cluster ids/)
  const names = Array.from({ length: 300 }, (_, i) => `n${i}`)
  t.match(offerProblem([{ clusters: [], namespaces: { names, selectors: [] } }]), /300 namespaces/)
})

const ids = (count: number) => Array.from({ length: count }, (_, i) => `c${i}`)
const teams = (count: number, pad = 0) => Array.from({ length: count }, (_, i) => `team-${i}`.padEnd(pad, 'x'))

t.test('many policies become few rules, and what an offer does not carry is cut', async (t) => {
  const of = (clusters: readonly string[], froms: readonly Spec['from'][]) => {
    const policies = froms.map((from, i) => policy(`p${i}`, { from }))
    const members = clusters.map((one) => ({ spec: { id: one, labels: {} } })) as never
    const { offer, isCut } = new AccessRules(world({ policies, clusters: members })).offerOf('shop', 'web')
    t.equal(offerProblem(offer), undefined)
    const [rules, named] = [offer?.length, offer?.reduce((sum, one) => sum + one.clusters.length, 0)]
    const may = (cluster: string, name: string) => mayCall(offer, { cluster, namespace: { name } })
    return { rules, named, isCut: isCut === true, may }
  }
  const onePolicy = [teams(64).map((name) => ({ namespaces: [name] }))]
  for (const members of [62, 63, 250]) {
    const found = of(ids(members), onePolicy)
    t.match(found, { rules: 1, named: members, isCut: false }, 'a member that joins takes nothing from the others')
    t.ok(found.may(`c${members - 1}`, 'team-63'))
  }
  const manyPolicies = of(
    ['c0'],
    teams(300).map((name) => [{ clusters: ['c0'], namespaces: [name] }]),
  )
  t.match(manyPolicies, { rules: 2, named: 2, isCut: false })
  t.ok(teams(300).every((name) => manyPolicies.may('c0', name)))
  const perMember = of(
    [],
    ids(300).map((one) => [{ clusters: [one], namespaces: ['till'] }]),
  )
  t.match(perMember, { rules: 1, named: 300, isCut: false }, 'the same namespaces of many members')
  const selectors = teams(300).map((team) => [{ clusters: ['c0'], namespaceSelector: { matchLabels: { team } } }])
  t.match(of([], [...selectors, ...selectors]), { rules: 2, isCut: false })

  const tooManyIds = of(ids(1500), [
    [...[0, 1, 2].map((k) => ({ namespaces: teams(256).map((name) => `${name}-${k}`) })), { clusters: ['last'] }],
  ])
  t.match(tooManyIds, { named: 4000, isCut: true })
  t.ok(tooManyIds.may('c0', 'team-0-0'))
  const tooManyRules = of(
    ids(400),
    ids(400).map((one, i) => [{ clusters: [one], namespaces: [`team-${i}`] }]),
  )
  t.match(tooManyRules, { rules: 256, isCut: true })
  const long = [0, 1, 2, 3, 4, 5, 6, 7].map((k) => teams(2048, 60).map((name) => `${name}-${k}`))
  const tooLong = of(
    [],
    long.map((namespaces) => [{ clusters: ['c0'], namespaces }]),
  )
  t.match(tooLong, { isCut: true })
})

t.test('selectors do not match a namespace whose labels are not known', async (t) => {
  const rows: readonly [LabelSelector, unknown: boolean, none: boolean][] = [
    [{ matchExpressions: [{ key: 'env', operator: 'NotIn', values: ['prod'] }] }, false, true],
    [{ matchExpressions: [{ key: 'env', operator: 'DoesNotExist' }] }, false, true],
    [{ matchLabels: { env: 'prod' } }, false, false],
    [{}, true, true],
  ]
  for (const [selector, unknown, none] of rows) {
    const offer = [{ clusters: ['oslo'] as never, namespaces: { names: ['one'], selectors: [selector] } }]
    const may = (namespace: object) => mayCall(offer, { cluster: 'oslo', namespace: namespace as never })
    t.same([may({ name: 'x' }), may({ name: 'x', labels: {} }), may({ name: 'one' })], [unknown, none, true])
  }
})

const id = fc.constantFrom(...Object.keys(LABELS), 'lima')
const namespace = fc.constantFrom('shop', 'one', 'two')
const callers = fc.record(
  {
    clusters: fc.array(id, { maxLength: 3 }),
    selector: fc.constantFrom<LabelSelector>({}, { matchLabels: { tier: 'prod' } }),
    namespaces: fc.array(namespace, { maxLength: 2 }),
  },
  { requiredKeys: [] },
)

t.test('an offer covers a caller if and only if one entry of one policy does', async () => {
  const arbitrary = fc.array(fc.array(callers, { maxLength: 3 }), { minLength: 1, maxLength: 4 })
  fc.assert(
    fc.property(arbitrary, fc.nat(4), id, namespace, (froms, shared, cluster, name) => {
      const own = { targetRefs: [{ name: 'web' }] }
      const policies = froms.map((from, i) => policy(`p${i}`, { from, ...(i < shared ? {} : own) }))
      const { offer } = new AccessRules(world({ policies })).offerOf('shop', 'web')
      const expected =
        cluster !== 'milano' &&
        froms.flat().some(({ clusters, selector, namespaces }) => {
          const known = LABELS[cluster]
          if (clusters === undefined ? known === undefined : !clusters.includes(cluster)) return false
          if (selector !== undefined && (known === undefined || !matchesLabels(selector, known))) return false
          return namespaces?.includes(name) ?? true
        })
      const isCovered = mayCall(offer, { cluster, namespace: { name } })
      return isCovered === expected && (!isCovered || isOfferedTo(offer, cluster)) && offerProblem(offer) === undefined
    }),
    { numRuns: 500 },
  )
})

t.test('policies of single services are joined to those of all: once for the same callers', async (t) => {
  const teamsOf = (name: string) => ({ selector: {}, namespaces: [name] })
  const rows: readonly (readonly [say: string, all: Spec['from'], own: Spec['from'], want: unknown])[] = [
    ['other namespaces', [teamsOf('one')], [teamsOf('two')], [[300, ['one', 'two']]]],
    ['one member more', [teamsOf('one')], [{ clusters: ['last'], namespaces: ['one'] }], [[301, ['one']]]],
    [
      'a member with another namespace',
      [teamsOf('one')],
      [{ clusters: ['c7'], namespaces: ['two'] }],
      [
        [300, ['one']],
        [1, ['two']],
      ],
    ],
    [
      'a member that may call from all',
      [{ selector: {} }],
      [{ clusters: ['c7'], namespaces: ['two'] }],
      [[300, 'all']],
    ],
    ['a member more from all', [{ selector: {} }], [{ clusters: ['last'] }], [[301, 'all']]],
    ['nobody', [teamsOf('one')], [], [[300, ['one']]]],
  ]
  const members = ids(300).map((one) => ({ spec: { id: one, labels: {} } })) as never
  for (const [say, all, own, want] of rows) {
    const targets = ['web', 'api'].map((name) => policy(name, { from: own, targetRefs: [{ name }] }))
    const rules = new AccessRules(world({ policies: [policy('all', { from: all }), ...targets], clusters: members }))
    const { offer, isCut } = rules.offerOf('shop', 'web')
    t.same([offer?.map((one) => [one.clusters.length, one.namespaces?.names ?? 'all']), isCut], [want, undefined], say)
    t.equal(rules.offerOf('shop', 'api').offer, offer, `${say}: the same callers of another service`)
  }
  const many = ids(300).map((one, i) => ({ clusters: [one], namespaces: [`team-${i % 250}`] }))
  const own = { from: teams(20).map((name, i) => ({ clusters: [`d${i}`], namespaces: [`${name}-x`] })) }
  const cut = new AccessRules(
    world({
      policies: [policy('all', { from: many }), policy('own', { ...own, targetRefs: [{ name: 'web' }] })],
      clusters: members,
    }),
  )
  t.match(cut.offerOf('shop', 'web'), { isCut: true }, 'together they are limited too')
  t.equal(offerProblem(cut.offerOf('shop', 'web').offer), undefined)
  t.equal(cut.offerOf('shop', 'other').isCut, undefined)
})

t.test(
  'namespaces that are not exported: those excluded and not allowed; of guarded ones the broker decides',
  async (t) => {
    const rows: readonly [string, AccessWorld['namespaces'], string | undefined][] = [
      ['shop', undefined, undefined],
      ['shop', { excluded: ['shop'] }, 'is among the excludedNamespaces of this cluster'],
      ['shop', { excluded: ['shop', 'till'], allowed: ['shop'] }, undefined],
      ['till', { excluded: ['shop'] }, undefined],
      ['kube-system', {}, undefined],
      ['kube-system', { excluded: ['kube-system'] }, 'is among the excludedNamespaces of this cluster'],
      ['kube-system', { allowed: ['kube-system'] }, undefined],
      ['kube-system', { excluded: ['kube-system'], allowed: ['kube-system'] }, undefined],
      ['default', { allowed: ['kube-system'] }, undefined],
    ]
    const policies = ['shop', 'kube-system', 'default'].map((at) => policy('a', { from: [{}] }, at))
    for (const [namespace, namespaces, why] of rows) {
      const { offer, cause } = new AccessRules(world({ namespaces, policies })).offerOf(namespace, 'web')
      t.same(cause.by === 'namespace' ? cause.why : undefined, why, `${namespace} ${JSON.stringify(namespaces)}`)
      t.equal(offer?.length === 0, why !== undefined, 'no policy opens it')
    }
  },
)
