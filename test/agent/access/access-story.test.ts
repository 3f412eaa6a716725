/** A running member whose policies decide to whom its exports are offered: never wider than before, whatever starts. */
import t, { type Test } from 'tap'
import type { AccessWord, StatedAccess } from '../../../agent/link/broker-link.ts'
import { HeardAccess } from '../../../agent/link/protocol-link.ts'
import { planStatedAccess } from '../../../agent/membership/stated-access-loop.ts'
import type { ObjectCache } from '../../../kubeapi/cluster-api.ts'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import type { AccessDefault } from '../../../model/access/access-rules.ts'
import type { Kind, ObjectKinds, TrafficPolicy } from '../../../model/objects.ts'
import type { IdentityStore, MemberIdentity } from '../../../protocol/membership/member-files.ts'
import { secretIdentity } from '../../../protocol/membership/secret-identity.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { Listeners } from '../../../reconcile/listeners.ts'
import { accessPolicy, clusterAccessPolicy } from '../../support/objects/access-objects.ts'
import { identityParts } from '../../support/identity-parts.ts'
import { membershipObject } from '../../support/objects/cluster-objects.ts'
import { MemorySecret } from '../../support/memory-secret.ts'
import { namespaceObject } from '../../support/objects/service-objects.ts'
import { FakeClusterset } from '../fake-clusterset.ts'
import { Site, type SiteInit, service, slice } from '../site.ts'
import { until } from '../until.ts'

/** An API whose caches of one kind are read later than all others. */
class LateKind extends MemoryApi {
  readonly #late: Kind
  readonly #listeners = new Set<(change: undefined) => void>()
  #isRead = false

  constructor(late: Kind) {
    super()
    this.#late = late
  }

  /** Forgets what was read, as a new process does. */
  restart(): void {
    this.#isRead = false
  }

  readNow(): void {
    this.#isRead = true
    for (const listener of this.#listeners) listener(undefined)
  }

  override cache<K extends Kind>(kind: K): ObjectCache<ObjectKinds[K]> {
    const inner = super.cache(kind)
    if (kind !== this.#late) return inner
    const isRead = (): boolean => this.#isRead
    return {
      get synced() {
        return isRead() && inner.synced
      },
      list: () => (isRead() ? inner.list() : []),
      get: (name, namespace) => (isRead() ? inner.get(name, namespace) : undefined),
      whenSynced: (signal) => inner.whenSynced(signal),
      onChange: (listener) => {
        this.#listeners.add(listener)
        const stop = inner.onChange((change) => {
          if (isRead()) listener(change)
        })
        return () => {
          this.#listeners.delete(listener)
          stop()
        }
      },
    }
  }
}

/** Milano with the service shop/web, and everything that it has ever declared about the export of it. */
async function milano(t: Test, init: Partial<SiteInit> = {}) {
  const set = new FakeClusterset()
  set.join({ id: 'oslo', podCIDRs: ['10.43.0.0/16'], globalCIDRs: [] })
  const declared: string[] = []
  const declare = set.declare.bind(set)
  set.declare = (cluster, desired) => {
    const body = desired.get('ServiceExport/shop/web')?.body
    const now = body === undefined ? 'none' : JSON.stringify('offeredTo' in body ? body.offeredTo : 'all')
    if (declared.at(-1) !== now) declared.push(now)
    return declare(cluster, desired)
  }
  const site = new Site(set, { id: 'milano', podCIDR: '10.42.0.0/16', ...init })
  await site.join()
  site.api.put(namespaceObject('shop'))
  site.api.put(service('shop', 'web'))
  site.api.put(slice('shop', 'web', '10.42.0.5'))
  site.export('shop', 'web')
  t.teardown(() => site.stop())
  return { set, site, declared }
}

const OSLO = '[{"clusters":["oslo"]}]'

t.test('nothing is published wider than before while the policies are not read', async (t) => {
  const closing = {
    AccessPolicy: () => accessPolicy('shop/only', { from: [{ clusters: ['oslo'] }] }),
    ClusterAccessPolicy: () => clusterAccessPolicy('deny'),
  } as const
  for (const late of ['AccessPolicy', 'ClusterAccessPolicy'] as const) {
    const api = new LateKind(late)
    const { site, declared } = await milano(t, { api })
    api.put(closing[late]())
    const want = late === 'AccessPolicy' ? OSLO : '[]'
    for (const start of ['the first start', 'a restart']) {
      site.start()
      await until(t, () => site.status.notReady(), [`agent: ${late} objects are not read yet`], `${late}: ${start}`)
      api.readNow()
      await until(t, () => site.conditions('shop', 'web').includes('Ready=True'), true, 'published')
      await site.stop()
      api.restart()
    }
    t.same(declared, [want], `${late}: all that was ever declared`)
  }
})

t.test('policies come and go', async (t) => {
  const { site, declared } = await milano(t)
  const clusters = (): unknown => site.api.get('ServiceExport', 'web', 'shop')?.status?.clusters
  site.start()
  await until(t, () => declared.at(-1), '"all"', 'no policy')
  t.equal(clusters(), undefined, 'all is absent')
  site.api.put(accessPolicy('shop/a', { from: [{ clusters: ['oslo', 'lima'] }] }))
  await until(t, () => declared.at(-1), '[{"clusters":["lima","oslo"]}]', 'a policy')
  await until(t, clusters, [{ cluster: 'lima' }, { cluster: 'oslo' }], 'the export says to whom')
  const valid = (): unknown =>
    site.api.get('AccessPolicy', 'a', 'shop')?.status?.conditions?.map(({ reason }) => reason)
  await until(t, valid, ['PolicyNamesUnknown'], 'the policy says that lima is no member')
  site.api.drop('AccessPolicy', 'a', 'shop')
  await until(t, () => declared.at(-1), '"all"', 'the default again')
  site.api.put(accessPolicy('shop/a', { from: [{ clusters: ['lima'], later: 1 } as never] }))
  await until(t, () => declared.at(-1), '[]', 'never understood: nobody')
  await until(t, clusters, [], 'nobody is not absent')
  await until(t, valid, ['PolicyNotUnderstood,PolicyNamesNobody,PolicyNamesUnknown'], 'told')
  site.api.drop('AccessPolicy', 'a', 'shop')
  await until(t, () => declared.at(-1), '"all"', 'the default again')
  await until(t, clusters, undefined, 'absent again')
})

t.test('a policy that cannot be read any more keeps what it said, over restarts of the agent', async (t) => {
  const { site, declared } = await milano(t)
  const put = (generation: number, spec: unknown): void => {
    const stored = site.api.get('AccessPolicy', 'a', 'shop')
    const { metadata, ...rest } = accessPolicy('shop/a', spec as never, generation)
    const status = stored?.status === undefined ? {} : { status: stored.status }
    site.api.put({ ...rest, ...status, metadata: { ...metadata, uid: 'u-1' } })
  }
  const conditions = (): unknown =>
    site.api.get('AccessPolicy', 'a', 'shop')?.status?.conditions?.map(({ reason, message }) => [reason, message])
  site.start()
  put(1, { from: [{ clusters: ['oslo'] }] })
  await until(t, () => declared.at(-1), OSLO, 'in force')
  await until(t, () => site.api.get('AccessPolicy', 'a', 'shop')?.status?.inForce?.generation, 1, 'kept')
  const unread = (why: string) => [['PolicyNotUnderstood', `not understood: ${why}; generation 1 stays in force`]]
  put(2, { from: [{}], later: true })
  await until(t, conditions, unread('spec.later'), 'a field of a later release')
  put(3, { from: 'everybody' })
  await until(t, conditions, unread('spec.from: expected a list'), 'an API server without our CRD')
  await site.stop()
  const before = declared.length
  site.start()
  await until(t, () => site.conditions('shop', 'web').includes('Ready=True'), true, 'after a restart')
  put(4, {})
  await until(t, conditions, unread('spec.from: expected a list'), 'still')
  t.same([...new Set(['[]', OSLO, ...declared.slice(declared.indexOf(OSLO))])], ['[]', OSLO], 'never wider, nor closed')
  t.ok(declared.length >= before)
  put(5, { from: [] })
  await until(t, () => declared.at(-1), '[]', 'valid again')
  await until(
    t,
    () => site.api.get('AccessPolicy', 'a', 'shop')?.status?.inForce?.generation,
    5,
    'an older one is forgotten',
  )
})

t.test('a cluster that exposes nothing', async (t) => {
  const { site, declared } = await milano(t)
  site.start()
  await until(t, () => site.conditions('shop', 'web').includes('Ready=True'), true, 'published')
  await site.stop()
  const { site: closed, set } = await milano(t, { config: { exposure: 'nothing' }, api: site.api })
  closed.start()
  const exposure = (): unknown => closed.api.get('Membership', 'self')?.spec.exposure
  await until(t, exposure, 'nothing', 'the Membership has what the configuration states')
  await until(t, () => closed.conditions('shop', 'web').split(' ')[0], 'Valid=False/ExposesNothing', 'told')
  t.same(
    [...set.records.values()].filter(({ key }) => key.kind === 'ServiceExport'),
    [],
    'no record',
  )
  const membership = closed.api.get('Membership', 'self')
  if (membership !== undefined)
    await closed.api.apply({ ...membership, spec: { ...membership.spec, exposure: 'pods' } })
  await until(t, exposure, 'nothing', 'set again')
  t.same(declared, ['"all"'])
})

t.test('what the broker states becomes the default of the Membership', async (t) => {
  type Default = AccessDefault | undefined
  const rows: readonly [string, stated: AccessWord | undefined, before: Default, want: Default, isNew?: true][] = [
    ['it has not answered', undefined, undefined, undefined],
    ['it states none', 'none', undefined, 'allow'],
    ['a replica of an earlier release states none', 'none', 'deny', 'deny'],
    ['it states none, as before', 'none', 'allow', 'allow'],
    ['it denies', 'deny', 'allow', 'deny'],
    ['it denies at once', 'deny', undefined, 'deny'],
    ['it allows again', 'allow', 'deny', 'allow'],
    ['it is away', undefined, 'deny', 'deny'],
    ['a new member that it has not answered', undefined, 'deny', 'deny', true],
    ['it states none to a new member', 'none', 'deny', 'allow', true],
    ['it denies a new member', 'deny', 'deny', 'deny', true],
    ['a replica of an earlier release answers a new member', 'unknown', 'deny', 'deny', true],
    ['it answers one that joined before there were defaults', 'unknown', undefined, undefined, true],
    ['it answers where another replica denied', 'unknown', 'deny', 'deny'],
    ['it answers where another replica allowed', 'unknown', 'allow', 'allow'],
  ]
  for (const [title, accessDefault, before, want, isNew = false] of rows) {
    const wasStated = !isNew
    const { accessDefault: _any, ...spec } = membershipObject().spec
    const present = { ...membershipObject(), spec: before === undefined ? spec : { ...spec, accessDefault: before } }
    const change = planStatedAccess(present, { exposure: undefined, accessDefault, wasStated })
    t.equal({ ...present.spec, ...change }.accessDefault, want, title)
    t.equal(change !== undefined, before !== want, `${title}: written only if it differs`)
    const leaving = { ...present, spec: { ...present.spec, phase: 'leaving' as const } }
    t.equal(
      planStatedAccess(leaving, { exposure: 'pods', accessDefault, wasStated }),
      undefined,
      'a leave is not undone',
    )
  }
})

t.test(
  'what brokers of two releases state, one after the other: the absence of a word takes nothing back',
  async (t) => {
    const fresh = 'unknown'
    type Said = 'allow' | 'deny' | 'none' | undefined
    const rows: readonly (readonly [said: readonly (readonly [Said, keepsToOffers?: boolean])[], want: unknown])[] = [
      [[], undefined],
      [[[undefined, true]], undefined],
      [[['none']], fresh],
      [[['none', false]], fresh],
      [[['none', true]], 'none'],
      [[['none'], ['none', false], ['none', true]], 'none'],
      [
        [
          ['none', true],
          ['none', false],
        ],
        'none',
      ],
      [
        [
          ['deny', true],
          ['none', false],
        ],
        'deny',
      ],
      [
        [
          ['deny', true],
          ['none', true],
        ],
        'deny',
      ],
      [
        [
          ['none', false],
          ['deny', false],
          ['none', false],
        ],
        'deny',
      ],
      [
        [
          ['deny', true],
          ['allow', true],
          ['none', false],
        ],
        'allow',
      ],
      [
        [
          ['allow', true],
          ['none', false],
          ['deny', true],
        ],
        'deny',
      ],
    ]
    for (const [said, want] of rows) {
      const heard = new HeardAccess()
      for (const [word, keeps] of said) {
        const before = heard.latest
        t.equal(heard.take(word, keeps), heard.latest !== before, 'says whether it is another word')
      }
      t.equal(heard.latest, want, JSON.stringify(said))
    }
  },
)

t.test('a new member beside a replica of an earlier release stays closed until a later one has answered', async (t) => {
  const secret = new MemorySecret(await identityParts('test', 'milano'))
  const { set, site, declared } = await milano(t, { config: { identity: secretIdentity(secret) } })
  const listeners = new Listeners()
  const heard = new HeardAccess()
  const access: StatedAccess = { get: () => heard.latest, onChange: (listener) => listeners.add(listener) }
  const answer = (word: AccessDefault | 'none', keepsToOffers: boolean): void => {
    if (heard.take(word, keepsToOffers)) listeners.call()
  }
  const found = (): unknown => site.api.get('Membership', 'self')?.spec.accessDefault
  const kept = (): unknown =>
    (JSON.parse(secret.content?.data['access.json'] ?? '{}') as { accessDefault?: unknown }).accessDefault
  await site.api.apply(membershipObject({ clusterset: 'test', exposure: 'exports', accessDefault: 'deny' }))
  site.start(Object.assign(set.link('milano'), { access }))
  await until(t, () => site.conditions('shop', 'web').includes('Valid=True'), true, 'checked')
  t.same(declared, [], 'nothing is published before an answer')
  answer('none', false)
  await until(t, () => declared.at(-1), '[]', 'an earlier release answers')
  t.same([found(), kept()], ['deny', undefined], 'the provisional default stays, and does not count as stated')
  answer('none', true)
  await until(t, () => declared.at(-1), '"all"', 'all replicas know defaults, and none is set')
  await until(t, found, 'allow', 'which is written')
  answer('deny', true)
  await until(t, () => declared.at(-1), '[]', 'an operator sets it')
  answer('none', false)
  const excluded = (): unknown => site.api.get('Membership', 'self')?.spec.excludedNamespaces
  await site.api.apply(
    membershipObject({ clusterset: 'test', exposure: 'exports', accessDefault: 'deny', excludedNamespaces: ['till'] }),
  )
  await until(t, excluded, [], 'the Membership was looked at again')
  t.same([found(), declared.at(-1)], ['deny', '[]'], 'an earlier replica takes nothing back')
})

t.test('the lists of the site file become those of the Membership', async (t) => {
  const stated = (spec: object, lists: object) =>
    planStatedAccess(
      { ...membershipObject(), spec: { ...membershipObject().spec, ...spec } },
      { exposure: undefined, accessDefault: 'allow', wasStated: true, ...lists },
    )
  t.equal(stated({}, {}), undefined, 'no lists')
  t.equal(stated({}, { allowedNamespaces: [], excludedNamespaces: [] }), undefined, 'empty ones')
  const lists = { allowedNamespaces: ['default'], excludedNamespaces: ['till', 'bank', 'bank'] }
  const want = { allowedNamespaces: ['default'], excludedNamespaces: ['bank', 'till'] }
  t.same(stated({}, lists), want)
  t.equal(stated(want, lists), undefined, 'as they are')
  t.same(stated(want, { allowedNamespaces: ['default'] }), { excludedNamespaces: [] }, 'one list less')
})

t.test('what the Membership says is kept beside the identity', async (t) => {
  const secret = new MemorySecret(await identityParts('test', 'milano'))
  const identity = secretIdentity(secret)
  const { site } = await milano(t, { config: { identity, exposure: 'pods' } })
  site.start()
  const kept = () => secret.content?.data['access.json']
  const want = { clusterset: 'test', exposure: 'pods', accessDefault: 'allow' }
  await until(t, () => JSON.parse(kept() ?? '{}') as object, want, 'as the configuration and the broker state it')
  const known = site.api.get('Membership', 'self')
  if (known === undefined) throw new Error('no Membership')
  await site.api.apply({ ...known, spec: { ...known.spec, accessDefault: 'deny' } })
  await until(t, () => JSON.parse(kept() ?? '{}') as object, { ...want, accessDefault: 'deny' }, 'and as a user says')
  await identity.write(await present(identity))
  t.equal((await identity.access())?.accessDefault, 'deny', 'a renewal of the identity leaves it')
  await identity.remove()
  t.equal(kept(), undefined, 'it goes with the identity')
})

async function present(identity: IdentityStore): Promise<MemberIdentity> {
  const found = await identity.read()
  if (found === undefined) throw new Error('no identity')
  return found
}

t.test('the Membership has the default that the broker states, also while it is away', async (t) => {
  const { set, site, declared } = await milano(t)
  const listeners = new Listeners()
  let stated: AccessDefault | 'none' | undefined
  const access: StatedAccess = { get: () => stated, onChange: (listener) => listeners.add(listener) }
  const state = (value: AccessDefault | 'none' | undefined): void => {
    stated = value
    listeners.call()
  }
  const found = (): unknown => site.api.get('Membership', 'self')?.spec.accessDefault
  const { accessDefault: _stated, ...fresh } = membershipObject({ clusterset: 'test' }).spec
  await site.api.apply({ ...membershipObject(), spec: fresh })
  site.start(Object.assign(set.link('milano'), { access }))
  await until(t, () => site.status.notReady(), [], 'ready')
  t.same([found(), declared], [undefined, []], 'nothing is published before the broker has answered')
  state('none')
  await until(t, () => declared.at(-1), '"all"', 'it states none')
  await until(t, found, 'allow', 'which is written')
  state('deny')
  await until(t, found, 'deny', 'stated')
  await until(t, () => declared.at(-1), '[]', 'and counts')
  state('none')
  const excluded = (): unknown => site.api.get('Membership', 'self')?.spec.excludedNamespaces
  const denied = membershipObject({ ...fresh, accessDefault: 'deny', excludedNamespaces: ['till'] })
  await site.api.apply(denied)
  await until(t, excluded, [], 'the Membership was looked at again')
  t.equal(found(), 'deny', 'an earlier replica opens nothing, even if what was stated cannot be kept')
  await site.stop()
  state(undefined)
  site.start(Object.assign(set.link('milano'), { access }))
  await until(t, () => site.status.notReady(), [], 'a restart without the broker')
  await until(t, () => site.conditions('shop', 'web').includes('Ready=True'), true, 'published')
  t.same([found(), declared], ['deny', ['"all"', '[]']], 'the last word stays')
  state('allow')
  await until(t, () => declared.at(-1), '"all"', 'allowed')
  await site.setPhase('leaving')
  state('deny')
  await site.ended()
  t.equal(site.api.get('Membership', 'self')?.spec.phase, 'leaving', 'a leave is not undone')
})

t.test('a new member keeps what it has published until the broker has stated the default', async (t) => {
  const listeners = new Listeners()
  let stated: AccessDefault | 'none' | undefined
  const access: StatedAccess = { get: () => stated, onChange: (listener) => listeners.add(listener) }
  const start = async (title: string, spec: object) => {
    const secret = new MemorySecret(await identityParts('test', 'milano'))
    const { set, site, declared } = await milano(t, { config: { identity: secretIdentity(secret) } })
    const kept = (): unknown =>
      (JSON.parse(secret.content?.data['access.json'] ?? '{}') as { accessDefault?: unknown }).accessDefault
    const { accessDefault: _stated, ...fresh } = membershipObject({ clusterset: 'test' }).spec
    await site.api.apply({ ...membershipObject(), spec: { ...fresh, ...spec } })
    stated = undefined
    site.start(Object.assign(set.link('milano'), { access }))
    await until(t, () => site.conditions('shop', 'web').includes('Valid=True'), true, `${title}: checked`)
    t.same([declared, kept()], [[], undefined], `${title}: nothing is sent yet`)
    const state = (value: AccessDefault | 'none'): void => {
      stated = value
      listeners.call()
    }
    const found = (): unknown => site.api.get('Membership', 'self')?.spec.accessDefault
    return { site, declared, state, found, kept }
  }
  for (const [title, word, want, sent] of [
    ['none', 'none', 'allow', '"all"'],
    ['allow', 'allow', 'allow', '"all"'],
    ['deny', 'deny', 'deny', '[]'],
  ] as const) {
    for (const spec of [{ exposure: 'exports', accessDefault: 'deny' }, {}]) {
      const one = await start(title, spec)
      one.state(word)
      await until(t, () => one.declared.at(-1), sent, `${title}: published`)
      await until(t, one.found, want, `${title}: written`)
      await until(t, one.kept, want, `${title}: known as stated`)
      t.same(one.declared, [sent], `${title}: nothing else in between`)
      await one.site.stop()
    }
  }
})

t.test('a replica of an earlier release opens nothing that was denied', async (t) => {
  const clock = new FakeClock()
  const listeners = new Listeners()
  const stated: { word?: 'none' } = {}
  const access: StatedAccess = { get: () => stated.word, onChange: (listener) => listeners.add(listener) }
  const secret = new MemorySecret(await identityParts('test', 'milano'))
  const denied = { clusterset: 'test', exposure: 'exports', accessDefault: 'deny' } as const
  await secretIdentity(secret).keepAccess(denied)
  const { set, site, declared } = await milano(t, { clock, config: { identity: secretIdentity(secret) } })
  await site.api.apply(membershipObject(denied))
  site.start(Object.assign(set.link('milano'), { access }))
  const isChecked = () => site.conditions('shop', 'web').includes('Valid=True')
  for (let i = 0; i < 20 && !isChecked(); i++) await clock.advance(100)
  t.ok(isChecked())
  stated.word = 'none'
  listeners.call()
  await clock.advance(9000)
  t.same(declared, [], 'what it has published stays for a while')
  await clock.advance(2000)
  t.same(declared, ['[]'], 'then what was stated counts')
  t.equal(site.api.get('Membership', 'self')?.spec.accessDefault, 'deny')
})

t.test('the condition of a TrafficPolicy follows imports and members, and says what is wrong', async (t) => {
  const { site } = await milano(t)
  const put = (spec: TrafficPolicy['spec']): void => {
    const metadata = { namespace: 'shop', name: 'p' }
    site.api.put({ apiVersion: 'sealane.io/v1alpha1', kind: 'TrafficPolicy', metadata, spec })
  }
  const reason = (): unknown => site.api.get('TrafficPolicy', 'p', 'shop')?.status?.conditions?.[0]?.reason
  put({ targetRefs: [{ name: 'gone' }], order: [{ local: {} }] })
  site.start()
  await until(t, reason, 'TrafficTargetMissing', 'written before its service')
  put({ targetRefs: [{ name: 'web' }], order: [{ clusters: ['oslo'] }] })
  await until(t, reason, 'TrafficPolicyInForce', 'oslo is a member, and the service is imported')
  put({ order: [{ local: {}, any: {} }] })
  await until(t, reason, 'TrafficPolicyInvalid', 'two kinds in one tier')
})
