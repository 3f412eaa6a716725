/** Ways to learn of services that are offered to other members only, at a broker and at an importer. */
import type { Test } from 'tap'
import { AccessRules } from '../../model/access/access-rules.ts'
import type { ClusterId } from '../../model/ids.ts'
import type { MemberRecord } from '../../model/records.ts'
import type { Peer, WatchRequest } from '../../protocol/broker-api.ts'
import { FakeClusterset } from '../agent/fake-clusterset.ts'
import { Site } from '../agent/site.ts'
import {
  type Harness,
  Publisher,
  Watcher,
  aSlice,
  anExport,
  facts,
  join_,
  startBroker,
} from '../broker/support/harness.ts'
import { eventually } from '../support/eventually.ts'
import { messageOf } from '../support/failure.ts'
import { namespaceObject } from '../support/objects/service-objects.ts'
import { attack } from './support/attack.ts'

const HEAD = { apiVersion: 'sealane.io/v1alpha1', kind: 'AccessPolicy' } as const

const only = (...ids: string[]) => [{ clusters: ids as ClusterId[] }]
const secret = (change: Parameters<typeof anExport>[1] = { offeredTo: only('paris') }): MemberRecord[] => [
  anExport('vault', change, 'secret'),
  aSlice('vault', '10.42.0.5', 'secret'),
]
const rangesOf = (i: number) => ({ facts: facts([`10.${i}.0.0/16`], { serviceCIDRs: [`10.${i + 1}.0.0/16`] }) })

const interestIn = (...namespaces: string[]): NonNullable<WatchRequest['interest']> => ({
  namespaces: new Set(namespaces),
  missing: new Set(namespaces),
})

interface Members {
  readonly harness: Harness
  readonly milano: Peer
  readonly paris: Peer
  readonly mallory: Peer
  readonly exporter: Publisher
}

/** Milano offers secret/vault to paris, and shop/web to all. */
async function members(t: Test): Promise<Members> {
  const harness = await startBroker(t)
  const { peer: milano } = await join_(harness, 'milano', rangesOf(42))
  const { peer: paris } = await join_(harness, 'paris', rangesOf(52))
  const { peer: mallory } = await join_(harness, 'mallory', rangesOf(62))
  const exporter = new Publisher(harness, milano)
  await exporter.publish([...secret(), anExport('web'), aSlice('web', '10.42.0.6')])
  return { harness, milano, paris, mallory, exporter }
}

/** All that the broker says until it has no more to say. It is checked that the watch does hear of shop/web. */
async function heard({ harness }: Members, peer: Peer, request: WatchRequest = {}): Promise<string[]> {
  const watcher = new Watcher(harness, peer, request)
  await watcher.line(/^synced/)
  await watcher.stop()
  return watcher.lines
}

const WEB = 'put milano/ServiceExport/shop/web'
const VAULT = ['ClusterSetIP', 'EndpointSlice', 'ServiceExport']

/** The kinds of the records of secret/vault that were named. */
const named = (lines: readonly string[]): string[] =>
  lines.flatMap((line) => (line.includes('secret') ? [line.split('/')[1] ?? line] : [])).sort()

await attack('access-records', async (t) => {
  const all = await members(t)
  t.same(named(await heard(all, all.paris)), VAULT, 'it is there for whom it is for')
  const lines = await heard(all, all.mallory)
  t.ok(lines.includes(WEB))
  t.same(named(lines), [])
})

await attack('access-interest', async (t) => {
  const all = await members(t)
  for (const interest of [['secret'], ['secret', 'shop'], []]) {
    const lines = await heard(all, all.mallory, { interest: interestIn(...interest) })
    t.same(named(lines), [], JSON.stringify(interest))
    t.ok(
      lines.some((line) => /^exported .*shop/.test(line)),
      'it is told in which namespaces something is for it',
    )
  }
  const lines = await heard(all, all.paris, { interest: interestIn('secret') })
  t.same(named(lines), [...VAULT, 'exported +secret'].sort(), 'whom it is for hears of it')
})

await attack('access-resume', async (t) => {
  const all = await members(t)
  const first = new Watcher(all.harness, all.mallory)
  await first.line(/^synced/)
  await first.stop()
  await all.exporter.put(anExport('vault', { offeredTo: only('paris', 'tokyo') }, 'secret'))
  await all.exporter.acknowledged()
  for (const resume of [
    { epoch: first.epoch, revision: 0 },
    { epoch: first.epoch, revision: first.revision },
    { epoch: first.epoch, revision: first.revision + 1000 },
    { epoch: 'another', revision: 1 },
  ])
    for (const interest of [undefined, interestIn('secret', 'shop')]) {
      const request = { resume, ...(interest === undefined ? {} : { interest }) }
      t.same(named(await heard(all, all.mallory, request)), [], JSON.stringify(resume))
    }
})

await attack('access-same-name', async (t) => {
  const all = await members(t)
  const thief = new Publisher(all.harness, all.mallory)
  await thief.publish([
    anExport('vault', { offeredTo: only('mallory', 'milano', 'paris') }, 'secret'),
    aSlice('vault', '10.62.0.5', 'secret'),
  ])
  const lines = (await heard(all, all.mallory)).filter((line) => line.includes('secret'))
  t.same(
    lines.filter((line) => line.includes('milano')),
    [],
    'it hears of its own only',
  )
  const paris = (await heard(all, all.paris)).filter((line) => /secret/.test(line)).map((line) => line.split(' ')[1])
  t.ok(paris.includes('milano/ServiceExport/secret/vault'), 'and takes nothing away')
})

await attack('access-endpoints-of-others', async (t) => {
  const all = await members(t)
  const thief = new Publisher(all.harness, all.mallory)
  await thief.publish([])
  for (const address of ['10.42.0.5', '10.52.0.5', '192.168.7.1', '169.254.169.254', '127.0.0.1'])
    await thief.put(aSlice('vault', address, 'secret'))
  await thief.acknowledged()
  t.equal(thief.refusals().length, 5)
  for (const one of thief.refusals()) t.match(one, /endpoints\[0\]/)
  t.same(
    (await heard(all, all.paris)).filter((line) => line.includes('mallory/EndpointSlice')),
    [],
  )
})

await attack('access-second-identity', async (t) => {
  const all = await members(t)
  const { harness } = all
  await all.exporter.put(anExport('vault', { offeredTo: only('oslo', 'paris') }, 'secret'))
  await all.exporter.acknowledged()
  const { text: token } = await harness.tokens.create({ cluster: 'mallory2' })
  for (const id of ['paris', 'oslo'])
    t.match(await messageOf(join_(harness, id, { token, ...rangesOf(72) })), /token|joined|member/, id)
  const { peer } = await join_(harness, 'mallory2', { token, ...rangesOf(72) })
  t.same(named(await heard(all, peer)), [], 'a second member is one more stranger')
  await harness.tokens.evict({ cluster: 'paris', force: true })
  const gone = new Watcher(harness, all.paris)
  t.match(String(await gone.ended()), /paris/, 'one that was evicted hears nothing')
  t.same(named(gone.lines), [])
})

await attack('access-labels', async (t) => {
  const harness = await startBroker(t)
  const { peer: milano } = await join_(harness, 'milano', rangesOf(42))
  const { text: token } = await harness.tokens.create({ cluster: 'mallory', labels: { tier: 'dev' } })
  const mine = { ...rangesOf(62).facts, labels: { tier: 'prod' } }
  const { peer: mallory } = await join_(harness, 'mallory', { token, facts: mine })
  const stream = new Publisher(harness, mallory)
  await stream.publish([])
  for (const labels of [{ tier: 'prod' }, {}, { tier: 'prod', 'tier.': 'dev' }]) await stream.facts({ ...mine, labels })
  await stream.acknowledged()
  const refused = stream.replies.flatMap((reply) => (reply.t === 'refused' ? [reply.reason] : []))
  t.same(new Set(refused), new Set(['LabelFixedByToken', 'InvalidValue']))
  const clusters = harness.log.list('record').flatMap(({ value: { body } }) => (body.kind === 'Cluster' ? [body] : []))
  const selector = { matchExpressions: [{ key: 'tier', operator: 'NotIn', values: ['dev'] }] } as const
  const policy = {
    ...HEAD,
    metadata: { name: 'not-dev', namespace: 'secret' },
    spec: { from: [{ selector }] },
  } as const
  const rules = new AccessRules({ self: milano.cluster, clusterPolicies: [], policies: [policy], clusters })
  t.equal(clusters.length, 2)
  t.same(rules.offerOf('secret', 'vault').offer, [], 'neither by the wrong label nor by none')
})

await attack('access-labels-second-token', async (t) => {
  const harness = await startBroker(t)
  const { text: token } = await harness.tokens.create({ cluster: 'mallory', labels: { tier: 'dev' } })
  await join_(harness, 'mallory', { token, ...rangesOf(62) })
  const labels = (): unknown => harness.log.get('member', 'mallory')?.facts.labels
  t.same(labels(), { tier: 'dev' })
  const { text: general } = await harness.tokens.create({})
  t.not(await messageOf(join_(harness, 'mallory', { token: general, ...rangesOf(62) })), '')
  t.same(labels(), { tier: 'dev' }, 'a token for any cluster')
  const { text: own } = await harness.tokens.create({ cluster: 'mallory' })
  const prod = { ...rangesOf(62).facts, labels: { tier: 'prod' } }
  await join_(harness, 'mallory', { token: own, facts: prod })
  t.same(labels(), { tier: 'dev' }, 'a token for itself')
  await join_(harness, 'mallory', { token: (await harness.tokens.rekey({ cluster: 'mallory' })).text, facts: prod })
  t.same(labels(), { tier: 'dev' }, 'a new key')
})

await attack('access-old-offer', async (t) => {
  const all = await members(t)
  const wide = anExport('vault', { offeredTo: only('mallory', 'paris') }, 'secret')
  await all.exporter.put(wide)
  await all.exporter.acknowledged()
  const watcher = new Watcher(all.harness, all.mallory)
  await watcher.line('put milano/ServiceExport/secret/vault')
  const next = new Publisher(all.harness, all.milano)
  await next.publish([...secret(), anExport('web'), aSlice('web', '10.42.0.6')])
  await watcher.line('remove milano/ServiceExport/secret/vault')
  // What was under way on the replaced stream comes late.
  await all.exporter.put(wide).catch(() => undefined)
  await next.put(anExport('web', { ports: [] }))
  await next.acknowledged()
  await watcher.line(/put milano\/ServiceExport\/shop\/web/)
  await watcher.stop()
  const { length } = watcher.lines.filter((line) => line === 'put milano/ServiceExport/secret/vault')
  t.equal(length, 1, 'it does not come back')
  const again = (await heard(all, all.mallory)).filter((line) => line.startsWith('put'))
  t.same(named(again), [], 'in a new watch neither')
  t.ok(all.exporter.ended !== undefined, 'the replaced stream has ended')
})

await attack('access-into-importer', async (t) => {
  const set = new FakeClusterset()
  const here = new Site(set, { id: 'tokyo', podCIDR: '10.50.0.0/16' })
  set.join({ id: 'milano', podCIDRs: ['10.66.0.0/16'], globalCIDRs: [] })
  const put = (name: string, offeredTo: ReturnType<typeof only> | undefined): void => {
    const { body } = anExport(name, offeredTo === undefined ? {} : { offeredTo })
    set.put({ cluster: 'milano' as ClusterId, namespace: 'shop', name, kind: 'ServiceExport' }, body)
  }
  put('web', undefined)
  put('ours', only('tokyo'))
  put('vault', only('paris'))
  put('nobody', [])
  await here.join()
  here.api.put(namespaceObject('shop'))
  here.start()
  t.teardown(() => here.stop())
  const imported = (): string[] => here.show().map((line) => line.split(' ')[0] ?? '')
  await eventually(() => imported().includes('shop/web') && imported().includes('shop/ours'))
  t.same(imported().sort(), ['shop/ours', 'shop/web'], 'whatever the broker passes on')
})
