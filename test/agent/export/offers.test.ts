/** To whom exports are offered: in their records, and how much work a change makes. */
import fc from 'fast-check'
import t from 'tap'
import { type ExportAccess, OfferMemory } from '../../../agent/export/offers.ts'
import { type ExportWorld, newExportMemory, planExports } from '../../../agent/export/plan-exports.ts'
import { AccessRules } from '../../../model/access/access-rules.ts'
import type { AccessPolicy } from '../../../model/objects.ts'
import { parsePrefix } from '../../../model/values/ip.ts'
import { accessPolicy, clusterAccessPolicy } from '../../support/objects/access-objects.ts'
import { clusterObject } from '../../support/objects/cluster-objects.ts'
import { ALLOWS_ALL, service, serviceExport, slice } from '../site.ts'

const CLUSTERS = ['milano', 'oslo', 'paris'].map((id) => clusterObject({ id, labels: { tier: id.slice(0, 1) } }))
const WORLD: ExportWorld = {
  cluster: 'milano',
  podPrefixes: [parsePrefix('10.42.0.0/16')],
  access: { ...ALLOWS_ALL, clusters: CLUSTERS },
  exports: [serviceExport('shop', 'web')],
  services: [service('shop', 'web')],
  slices: [slice('shop', 'web', '10.42.0.5')],
  endpoints: [],
}

const CUT = 'its AccessPolicies name more members and namespaces than an offer carries; the rest may not call'

function offeredBy(change: Partial<ExportAccess>): string {
  const plan = planExports({ ...WORLD, access: { ...WORLD.access, ...change } })
  const [planned] = [...plan.exports.values()]
  const offers = planned?.records.map(({ body }) => ('offeredTo' in body ? JSON.stringify(body.offeredTo) : 'all'))
  return `${planned?.valid.reason} ${offers?.join(' ')}`.trim()
}

t.test('the records say to whom', async (t) => {
  const oslo = accessPolicy('shop/a', { from: [{ clusters: ['oslo'], namespaces: ['till'] }] })
  const rows: readonly [string, Partial<ExportAccess>, string][] = [
    ['the clusterset allows', {}, 'Valid all all'],
    ['the broker has not stated it yet', { clustersetDefault: undefined }, 'Valid all all'],
    ['the clusterset denies', { clustersetDefault: 'deny' }, 'Valid [] []'],
    ['the cluster denies', { clusterPolicies: [clusterAccessPolicy('deny')] }, 'Valid [] []'],
    ['another name does not', { clusterPolicies: [clusterAccessPolicy('deny', 'x')] }, 'Valid all all'],
    [
      'a policy',
      { policies: [oslo], clustersetDefault: 'deny' },
      'Valid [{"clusters":["oslo"],"namespaces":{"names":["till"],"selectors":[]}}] ["oslo"]',
    ],
    [
      'labels',
      { policies: [accessPolicy('shop/a', { from: [{ selector: { matchLabels: { tier: 'p' } } }] })] },
      'Valid [{"clusters":["paris"]}] ["paris"]',
    ],
    ['another namespace', { policies: [accessPolicy('till/a', { from: [] })] }, 'Valid all all'],
    ['nobody', { policies: [accessPolicy('shop/a', { from: [] })] }, 'Valid [] []'],
    ['all pods', { exposure: 'pods' }, 'Valid all all'],
    ['an excluded namespace', { namespaces: { excluded: ['shop'] } }, 'NamespaceNotAllowed'],
    ['and allowed', { namespaces: { excluded: ['shop'], allowed: ['shop'] } }, 'Valid all all'],
    ['nothing is exposed', { exposure: 'nothing' }, 'ExposesNothing'],
  ]
  for (const [name, change, want] of rows) t.equal(offeredBy(change), want, name)
})

t.test('policies that name more than an offer carries withdraw nothing, and the export says so', async (t) => {
  const from = (count: number, callers: (i: number) => AccessPolicy['spec']['from']) =>
    Array.from({ length: count }, (_, i) => accessPolicy(`shop/p${i}`, { from: callers(i) }))
  const ids = (count: number, at = 0) => Array.from({ length: count }, (_, k) => `c${at}-${k}`)
  const names = (count: number, at: number) => ids(count, at).map((id) => id.padEnd(60, 'x'))
  const members = ids(63).map((id) => clusterObject({ id }))
  const each = accessPolicy('shop/a', { from: Array.from({ length: 64 }, (_, i) => ({ namespaces: [`team-${i}`] })) })
  const rows: readonly [string, Partial<ExportAccess>, string][] = [
    ['another member joins', { policies: [each], clusters: members }, ''],
    ['names', { policies: from(200, (i) => [{ clusters: ids(40, i), namespaces: [`n${i}`] }]) }, CUT],
    [
      'namespaces of one member',
      { policies: from(3, (i) => [{ clusters: ['oslo'], namespaces: names(256, i) }]) },
      'its AccessPolicies name too many namespaces of oslo; the rest may not call',
    ],
  ]
  for (const [name, change, message] of rows) {
    const plan = planExports({ ...WORLD, access: { ...WORLD.access, ...change } })
    const [planned] = [...plan.exports.values()]
    t.equal(planned?.valid.reason, 'Valid', name)
    t.equal(planned?.records.length, 2)
    t.same(planned?.notes, message === '' ? [] : [{ message, reason: 'OfferCut' }], name)
  }
})

t.test(
  'an offer to namespaces says whether open connections outlast it, and each whether a withdrawal drops them',
  async (t) => {
    const memory = newExportMemory()
    const keeping = { ...clusterAccessPolicy('allow'), spec: { default: 'allow', keepOpenConnections: true } } as const
    const to = (namespaces?: string[]) =>
      accessPolicy('shop/a', { from: [{ clusters: ['oslo'], ...(namespaces === undefined ? {} : { namespaces }) }] })
    const rows: readonly (readonly [string, Partial<ExportAccess>, states: 'keeps' | 'ends' | ''])[] = [
      ['it ends them', { policies: [to(['till'])] }, 'ends'],
      ['it keeps them', { policies: [to(['till'])], clusterPolicies: [keeping] }, 'keeps'],
      ['to whole clusters: this cluster decides', { policies: [to()], clusterPolicies: [keeping] }, ''],
      ['to all', { clusterPolicies: [keeping] }, ''],
      ['to whole clusters: it ends them', { policies: [to()] }, 'ends'],
      ['to all: it ends them', {}, 'ends'],
      ['its nodes pass all to all pods', { exposure: 'pods' }, ''],
      ['and callers decide by namespaces', { exposure: 'pods', policies: [to(['till'])] }, ''],
      ['and they keep them', { exposure: 'pods', policies: [to(['till'])], clusterPolicies: [keeping] }, 'keeps'],
      ['it keeps them again', { policies: [to(['till'])], clusterPolicies: [keeping] }, 'keeps'],
      ['and ends them', { policies: [to(['till'])] }, 'ends'],
    ]
    for (const [what, change, want] of rows) {
      const plan = planExports({ ...WORLD, access: { ...WORLD.access, ...change } }, memory)
      const body = plan.records.get('ServiceExport/shop/web')?.body
      if (body?.kind !== 'ServiceExport') return void t.fail(`${what}: no record`)
      t.equal(body.keepsOpen, want === 'keeps' || undefined, what)
      t.equal(body.endsOpen, want === 'ends' || undefined, what)
    }
  },
)

t.test('what does not change an offer changes no record', async (t) => {
  const memory = newExportMemory()
  const policies = [accessPolicy('shop/a', { from: [{ clusters: ['oslo'] }] })]
  const first = planExports({ ...WORLD, access: { ...WORLD.access, policies } }, memory)
  const same: readonly [string, Partial<ExportAccess>][] = [
    ['a status', { policies: policies.map((one) => ({ ...one, status: { conditions: [] } })) }],
    ['an equal policy', { policies: [accessPolicy('shop/a', { from: [{ clusters: ['oslo', 'oslo'] }] })] }],
    ['one more that adds nothing', { policies: [...policies, accessPolicy('shop/b', { from: [] })] }],
    [
      'one of another service',
      { policies: [...policies, accessPolicy('shop/c', { targetRefs: [{ name: 'none' }], from: [{}] })] },
    ],
    ['a member', { policies, clusters: [...CLUSTERS, clusterObject({ id: 'lima' })] }],
    ['the default', { policies, clustersetDefault: 'deny' }],
  ]
  for (const [name, change] of same) {
    const { records } = planExports({ ...WORLD, access: { ...WORLD.access, ...change } }, memory)
    for (const [key, record] of first.records) t.equal(records.get(key), record, `${name}: ${key}`)
  }
  const wider = planExports({ ...WORLD, access: { ...WORLD.access, policies: [] } }, memory)
  for (const [key, record] of first.records) t.not(wider.records.get(key), record, key)
  t.same(wider.records, planExports(WORLD).records)
})

t.test('ten thousand policies and exports: one change touches its namespace only', async (t) => {
  const [namespaces, each] = [100, 100]
  const at = Array.from({ length: namespaces * each }, (_, i) => `n${i % namespaces}/s${Math.floor(i / namespaces)}`)
  const make = (key: string, id: string): AccessPolicy =>
    accessPolicy(key, { targetRefs: [{ name: key.split('/')[1] ?? '' }], from: [{ clusters: [id] }] })
  const policies = at.map((key) => make(key, 'oslo'))
  const memory = new OfferMemory()
  const decide = (access: Partial<ExportAccess>) =>
    memory.decide('milano', { ...ALLOWS_ALL, clusters: CLUSTERS, policies, ...access }, at as never)
  const first = decide({})
  t.same(memory.work, { policies: 10_000, offers: 10_000 })
  t.equal(new Set(first.values()).size, 1, 'equal offers are one object')
  decide({ clusters: CLUSTERS.map((one) => ({ ...one, status: { conditions: [] } })) })
  t.same(memory.work, { policies: 10_000, offers: 10_000 }, 'a status of a Cluster is no work')
  const second = decide({ policies: policies.with(5, make(at[5] ?? '', 'paris')) })
  t.same(memory.work, { policies: 10_100, offers: 10_100 }, 'one namespace')
  t.same(
    at.filter((key) => second.get(key as never) !== first.get(key as never)),
    [at[5]],
  )
})

const COUNT = 2000

t.test('many policies for all services of one namespace, and one for each service', async (t) => {
  let reads = 0
  const all = Array.from({ length: COUNT }, (_, i) => {
    const clusters = [i % 2 === 0 ? 'oslo' : 'paris']
    const callers = { clusters, namespaces: [`n${i}`] }
    return accessPolicy(`shop/a${i}`, {
      get from() {
        reads += 1
        return [callers]
      },
    })
  })
  const each = Array.from({ length: COUNT }, (_, i) =>
    accessPolicy(`shop/b${i}`, { targetRefs: [{ name: `s${i}` }], from: [{ clusters: ['lima'] }] }),
  )
  const rules = new AccessRules({
    self: 'milano',
    policies: [...all, ...each],
    clusterPolicies: [],
    clusters: CLUSTERS,
  })
  let rulesOf = 0
  for (let i = 0; i < COUNT; i++) rulesOf += rules.offerOf('shop', `s${i}`).offer?.length ?? 0
  t.ok(reads <= 4 * COUNT, `each policy is read at most four times, not for each service: ${reads}`)
  t.equal(rulesOf, COUNT * 9, 'those of all services in chunks, and that of the service')
})

t.test('a memory changes nothing', async (t) => {
  const id = fc.constantFrom('milano', 'oslo', 'paris', 'lima')
  const policy = fc.record({
    at: fc.constantFrom('shop/a', 'shop/b', 'till/a'),
    clusters: fc.option(fc.array(id, { maxLength: 2 }), { nil: undefined }),
    target: fc.constantFrom(undefined, 'web', 'api'),
  })
  const access = fc.record({
    policies: fc.uniqueArray(policy, { maxLength: 3, selector: ({ at }) => at }),
    clustersetDefault: fc.constantFrom(undefined, 'allow' as const, 'deny' as const),
    members: fc.subarray(CLUSTERS),
  })
  fc.assert(
    fc.property(fc.array(access, { minLength: 2, maxLength: 5 }), (steps) => {
      const memory = new OfferMemory()
      const keys = ['shop/web', 'shop/api', 'till/web'] as never
      for (const { policies, clustersetDefault, members } of steps) {
        const made = policies.map(({ at, clusters, target }) =>
          accessPolicy(at, {
            ...(target === undefined ? {} : { targetRefs: [{ name: target }] }),
            from: [clusters === undefined ? {} : { clusters }],
          }),
        )
        const world = { ...ALLOWS_ALL, policies: made, clustersetDefault, clusters: members }
        t.strictSame(memory.decide('milano', world, keys), new OfferMemory().decide('milano', world, keys))
      }
    }),
    { numRuns: 60 },
  )
})
