/** What a real API server refuses of policies and topologies, by our CRDs: their rules are within its cost limits. */
import t from 'tap'
import { OWN_CRDS } from '../../install/crds/all-crds.ts'
import { eventually } from '../support/eventually.ts'
import { planeWithShop } from './support/apply-manifests.ts'
import { kubeProgramsMissing } from './support/kube-programs.ts'

t.setTimeout(600_000)

const PLURALS = { AccessPolicy: 'accesspolicies', TrafficPolicy: 'trafficpolicies' } as const
type PolicyKind = keyof typeof PLURALS

const ID = { clusters: ['oslo'] }
const valueless = { matchExpressions: [{ key: 'tier', operator: 'In' }] }
const tier = (one: object): object => ({ order: [one] })
const ids = (count: number): string[] => Array.from({ length: count }, (_, i) => `c${i}`.padEnd(63, 'x'))
const weights = Object.fromEntries(ids(256).map((id) => [id, 1]))

const ROWS: readonly (readonly [PolicyKind, object, RegExp | undefined])[] = [
  ['AccessPolicy', { targetRefs: [{ name: 'web' }], from: [ID] }, undefined],
  ['AccessPolicy', { targetRefs: [{ group: 'apps', name: 'web' }], from: [ID] }, /group/],
  ['AccessPolicy', { targetRefs: [{ name: 'No Label' }], from: [ID] }, /name/],
  ['AccessPolicy', { from: [{ clusters: ['No Label'] }] }, /clusters/],
  ['AccessPolicy', { from: [{ clusters: ids(257) }] }, /must have at most 256 items/],
  ['AccessPolicy', { from: [{ selector: valueless }] }, /expected values with In and NotIn/],
  ['AccessPolicy', { from: [{ namespaceSelector: { matchLabels: { a: 'x'.repeat(64) } } }] }, /Too long/],
  ['TrafficPolicy', tier({ clusters: ids(256), weights }), undefined],
  ['TrafficPolicy', tier({ clusters: [] }), /expected at least one id/],
  ['TrafficPolicy', tier({ ...ID, weights: { paris: 1 } }), /weights: expected ids of clusters/],
  ['TrafficPolicy', tier({ ...ID, weights: { oslo: 0 } }), /expected at least one above 0/],
  ['TrafficPolicy', tier({ ...ID, any: {} }), /exactly one of/],
  ['TrafficPolicy', tier({ selector: {} }), /expected labels or properties/],
  ['TrafficPolicy', tier({ selector: { labels: {} } }), /expected at least one entry/],
  ['TrafficPolicy', tier({ selector: { properties: valueless } }), /expected values with In and NotIn/],
]

const NAMED = { clusters: ['oslo'] }
const TOPOLOGIES: readonly (readonly [object, RegExp | undefined])[] = [
  [{ mode: 'full' }, undefined],
  [{ mode: 'hub-and-spoke', hubs: ['oslo'], via: ['oslo'] }, undefined],
  [{ mode: 'groups', groups: [{ name: 'eu', clusters: ids(1000) }] }, undefined],
  [{ mode: 'pairs', pairs: [{ between: NAMED, and: { selector: {} } }] }, undefined],
  [{ mode: 'ring' }, /mode/],
  [{ mode: 'full', hubs: ['oslo'] }, /hubs: expected at least one with mode hub-and-spoke, and none/],
  [{ mode: 'hub-and-spoke', hubs: [] }, /hubs: expected at least one/],
  [{ mode: 'groups', groups: [{ name: 'eu', clusters: [] }], via: ['oslo'] }, /via: expected/],
  [{ mode: 'groups', groups: [{ name: 'eu', clusters: ids(1001) }] }, /must have at most 1000 items/],
  [{ mode: 'pairs', pairs: [{ between: NAMED, and: {} }] }, /expected clusters or selector/],
  [{ mode: 'pairs', pairs: [{ between: NAMED, and: { selector: valueless } }] }, /expected values with In and NotIn/],
]

t.test('policies and topologies of no meaning', { skip: kubeProgramsMissing() ?? false }, async (t) => {
  const { api } = await planeWithShop(t, '10.43.0.0/16')
  for (const crd of OWN_CRDS.filter(({ spec }) => /Policy$|^Topology$/.test(spec.names.kind)))
    await api.apply(`/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${crd.metadata.name}`, crd)
  const apply = (kind: PolicyKind, spec: object): Promise<unknown> => {
    const path = `/apis/sealane.io/v1alpha1/namespaces/shop/${PLURALS[kind]}/p`
    const metadata = { name: 'p', namespace: 'shop' }
    return api.apply(path, { apiVersion: 'sealane.io/v1alpha1', kind, metadata, spec })
  }
  for (const kind of ['AccessPolicy', 'TrafficPolicy'] as const) {
    const [, good] = ROWS.find((row) => row[0] === kind) ?? []
    await eventually(() => apply(kind, good ?? {}), { deadlineMs: 30_000, say: `${kind} is served` })
  }
  for (const [kind, spec, refusal] of ROWS) {
    const say = `${kind} ${JSON.stringify(spec).slice(0, 100)}`
    if (refusal === undefined) await t.resolves(apply(kind, spec), say)
    else await t.rejects(apply(kind, spec), refusal, say)
  }
  const set = (spec: object): Promise<unknown> => {
    const metadata = { name: 'default' }
    return api.apply('/apis/sealane.io/v1alpha1/topologies/default', {
      ...{ apiVersion: 'sealane.io/v1alpha1', kind: 'Topology', metadata, spec },
    })
  }
  await eventually(() => set({ mode: 'full' }), { deadlineMs: 30_000, say: 'Topology is served' })
  for (const [spec, refusal] of TOPOLOGIES) {
    const say = JSON.stringify(spec).slice(0, 100)
    if (refusal === undefined) await t.resolves(set(spec), say)
    else await t.rejects(set(spec), refusal, say)
  }
})
