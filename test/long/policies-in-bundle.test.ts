/** Policies out of a bundle count as those of the cluster, or are not answered for: a bundle never allows more. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { type Answer, POLICY_KINDS, collect } from '../../cli/bundle/items.ts'
import { kubeItems } from '../../cli/bundle/kube-items.ts'
import { bundledObjects, readWholeBundle } from '../../cli/bundle/read-bundle.ts'
import { packTar } from '../../cli/bundle/tar.ts'
import { AccessRules } from '../../model/access/access-rules.ts'
import { offeredClusters } from '../../model/access/offer.ts'
import type { AccessPolicy, Cluster } from '../../model/objects.ts'
import { accessPolicy } from '../support/objects/access-objects.ts'
import { clusterObject } from '../support/objects/cluster-objects.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const FACTS = { format: 1, takenAt: '2026-11-26T00:00:00Z', target: 'x', facts: [] }

/** A bundle with these files, as they are. */
function bundleOf(t: Test, files: Readonly<Record<string, unknown>>): string {
  const file = join(temporaryFolder(t), 'c1.tar.gz')
  const packed = Object.entries({ 'facts.json': FACTS, ...files }).map(([name, value]) => {
    return { name: `sealane-gather/${name}`, content: Buffer.from(JSON.stringify(value)) }
  })
  writeFileSync(file, gzipSync(packTar(packed, 0)))
  return file
}

/** A bundle with these objects, as gather writes them. */
async function gathered(t: Test, objects: Readonly<Record<string, readonly object[]>>): Promise<string> {
  const items = Object.entries(objects).map(([kind, list]) => {
    const ask = async (): Promise<Answer> => ({ items: list, kind })
    return { name: `objects/${kind}.json`, ms: 10_000, maxBytes: 1 << 20, ask }
  })
  const { files, missing } = await collect(items, new AbortController().signal)
  t.same(missing, [])
  return bundleOf(t, Object.fromEntries(files.map(({ name, content }) => [name, JSON.parse(content.toString())])))
}

t.test('labels with the name of a secret: equal ones stay equal, and others stay different', async (t) => {
  const clusters = [
    clusterObject({ id: 'milano' }),
    clusterObject({ id: 'oslo', labels: { 'team/secret-zone': 'north' } }),
    clusterObject({ id: 'paris', labels: { 'team/secret-zone': 'south' } }),
  ]
  const offered = (policies: readonly AccessPolicy[], members: readonly Cluster[]): unknown => {
    const world = { self: 'milano', clustersetDefault: 'deny', clusterPolicies: [] } as const
    return offeredClusters(new AccessRules({ ...world, policies, clusters: members }).offerOf('shop', 'web').offer)
  }
  const selectors: readonly AccessPolicy['spec']['from'][number][] = [
    { selector: { matchLabels: { 'team/secret-zone': 'north' } } },
    { selector: { matchExpressions: [{ key: 'team/secret-zone', operator: 'In', values: ['north', 'east'] }] } },
    { selector: { matchExpressions: [{ key: 'team/secret-zone', operator: 'NotIn', values: ['south'] }] } },
  ]
  for (const one of selectors) {
    const policy = accessPolicy('shop/p', { from: [one] })
    const file = await gathered(t, { Cluster: clusters, AccessPolicy: [policy] })
    const { Cluster: members, AccessPolicy: policies } = await bundledObjects(file, ['Cluster', 'AccessPolicy'])
    t.notMatch(JSON.stringify([members, policies]), /north|south/)
    t.same(offered(policies, members), offered([policy], clusters), JSON.stringify(one))
  }
  const weights = { 'token-eu': 5 }
  const traffic = { metadata: { name: 'p', namespace: 'shop' }, spec: { order: [{ any: {}, weights }] } }
  const { TrafficPolicy } = await bundledObjects(await gathered(t, { TrafficPolicy: [traffic] }), ['TrafficPolicy'])
  t.match(TrafficPolicy, [{ spec: { order: [{ weights }] } }], 'a weight is no secret')
})

const metadata = { name: 'p', namespace: 'shop' }
const BY_AUTH = { from: [{ selector: { matchExpressions: [{ key: 'auth', operator: 'In', values: ['a'] }] } }] }
const VALID = { metadata, spec: { from: [{ clusters: ['oslo'] }] } }

t.test('a kind of policies that is not whole is absent', async (t) => {
  const labelled = clusterObject({ id: 'oslo', labels: { auth: '<redacted>' } })
  const many = Array.from({ length: 200_001 }, () => ({ metadata, spec: {} }))
  const status = { conditions: 'none' }
  const rows: readonly (readonly [string, kind: string, items: readonly object[], length: number | undefined])[] = [
    ['whole', 'AccessPolicy', [VALID], 1],
    ['a status that cannot be read', 'AccessPolicy', [{ ...VALID, status }], 1],
    ['metadata that cannot be read', 'AccessPolicy', [VALID, { metadata: 7, spec: {} }], undefined],
    ['metadata and status', 'AccessPolicy', [{ metadata: 7, spec: {}, status }], undefined],
    ['too many', 'AccessPolicy', many, undefined],
    [
      'a tier of an earlier release',
      'TrafficPolicy',
      [{ metadata, spec: { order: [{ local: '<left out>' }] } }],
      undefined,
    ],
    ['of the cluster', 'ClusterTrafficPolicy', [{ metadata, spec: { passiveHealth: '<left out>' } }], undefined],
    ['a field of a later release', 'TrafficPolicy', [{ metadata, spec: { later: '<left out>' } }], 1],
    ['a redacted id', 'AccessPolicy', [{ metadata, spec: { from: [{ clusters: ['<redacted>'] }] } }], undefined],
    ['a numbered one', 'AccessPolicy', [{ metadata, spec: { from: [{ clusters: ['<redacted-key-1>'] }] } }], 1],
    [
      'a redacted weight',
      'TrafficPolicy',
      [{ metadata, spec: { order: [{ weights: { a: '<redacted>' } }] } }],
      undefined,
    ],
    ['a key that is redacted elsewhere', 'AccessPolicy', [{ metadata, spec: BY_AUTH }], undefined],
  ]
  for (const [say, kind, items, length] of rows) {
    const file = bundleOf(t, { 'objects/Cluster.json': { items: [labelled] }, [`objects/${kind}.json`]: { items } })
    const { objects } = await readWholeBundle(file)
    t.equal(objects[kind as 'AccessPolicy']?.length, length, say)
    if (length === undefined)
      await t.rejects(bundledObjects(file, [kind as 'AccessPolicy']), { message: new RegExp(`it has no ${kind}`) }, say)
  }
})

t.test('show traffic needs imported slices alone', async (t) => {
  const slice = { metadata, addressType: 'IPv4', endpoints: [], ports: [] }
  const file = bundleOf(t, { 'objects/EndpointSlice.json': { items: [slice] } })
  await t.rejects(bundledObjects(file, ['EndpointSlice']), { message: /it has no EndpointSlice/ })
  t.equal((await bundledObjects(file, ['EndpointSlice'], 'imported')).EndpointSlice.length, 1)
})

t.test('10,000 policies, each with the version in force in its status', async (t) => {
  const spec = { targetRefs: [{ name: 'web' }], from: [{ clusters: ['oslo', 'paris'], namespaces: ['team', 'shop'] }] }
  const policies = Array.from({ length: 10_000 }, (_, i) => {
    const stored = { name: 'p', namespace: `n${i}`, uid: `u${i}`, generation: 1 }
    const conditions = [{ type: 'Valid', status: 'True', reason: 'PolicyInForce', observedGeneration: 1 }]
    return { metadata: stored, spec, status: { conditions, inForce: { uid: `u${i}`, generation: 1, spec } } }
  })
  const reader = {
    list: async ({ kind }: { readonly kind: string }) => (POLICY_KINDS.has(kind) ? policies : []),
    ...{ listPicked: async () => [], knows: () => true, readPod: async () => '', read: async () => ({}) },
  }
  const { signal } = new AbortController()
  const items = await kubeItems(reader as never, { title: 'x', timeoutMs: 10_000, signal })
  const asked = items.filter(({ name }) => name === 'objects/AccessPolicy.json')
  const { files, missing } = await collect(asked, signal)
  t.same([files.length, missing], [1, []])
})
