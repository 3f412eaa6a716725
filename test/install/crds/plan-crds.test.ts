/**
 * CRDs that another project may have installed before: they are never downgraded, and no stored or served version is
 * lost.
 */
import { createHash } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import { ALL_CRDS } from '../../../install/crds/all-crds.ts'
import {
  CLUSTER_PROPERTY,
  LABEL_MCS_RELEASE,
  LABEL_MCS_REVISION,
  SERVICE_EXPORT,
  SERVICE_IMPORT,
} from '../../../install/crds/multicluster-crds.ts'
import { CLUSTER, CRD_REVISION, LABEL_CRD_REVISION } from '../../../install/crds/sealane-crds.ts'
import type { CrdVersion, CustomResourceDefinition } from '../../../install/crds/custom-resource.ts'
import { planCrd, planCrds } from '../../../install/crds/plan-crds.ts'
import { canonicalJson } from '../../../protocol/codec/content-hash.ts'

interface Change {
  readonly release?: string | undefined
  readonly revision?: string | undefined
  readonly versions?: readonly CrdVersion[]
  readonly spec?: Partial<CustomResourceDefinition['spec']>
  readonly deletionTimestamp?: string
  readonly storedVersions?: readonly string[]
}

function version(name: string, storage = false, served = true): CrdVersion {
  return { name, served, storage, subresources: { status: {} } }
}

function onServer(ours: CustomResourceDefinition, change: Change = {}): CustomResourceDefinition {
  const labels: Record<string, string> = {}
  if (change.release !== undefined) labels[LABEL_MCS_RELEASE] = change.release
  if (change.revision !== undefined) labels[LABEL_MCS_REVISION] = change.revision
  return {
    ...ours,
    metadata: {
      name: ours.metadata.name,
      labels: 'release' in change ? labels : (ours.metadata.labels ?? {}),
      ...(change.deletionTimestamp === undefined ? {} : { deletionTimestamp: change.deletionTimestamp }),
    },
    spec: { ...ours.spec, ...(change.versions === undefined ? {} : { versions: change.versions }), ...change.spec },
    status: { storedVersions: change.storedVersions ?? ['v1beta1'] },
  }
}

const ALPHA_ONLY = [version('v1alpha1', true)]

interface Row {
  readonly name: string
  readonly present: CustomResourceDefinition | undefined
  readonly want: string
}

const ROWS: readonly Row[] = [
  { name: 'none', present: undefined, want: 'create: it does not exist' },
  { name: 'the same', present: onServer(SERVICE_EXPORT), want: 'leave: it is v0.5.2 revision 0 already' },
  {
    name: 'older release',
    present: onServer(SERVICE_EXPORT, { release: 'v0.5.0', revision: '7' }),
    want: "update: the server's is older: v0.5.0 revision 7 → v1alpha1 v1beta1*",
  },
  {
    name: 'pre-release of ours',
    present: onServer(SERVICE_EXPORT, { release: 'v0.5.2-rc.1', revision: '0' }),
    want: "update: the server's is older: v0.5.2-rc.1 revision 0 → v1alpha1 v1beta1*",
  },
  {
    name: 'from before there were labels',
    present: onServer(SERVICE_EXPORT, { release: undefined, versions: ALPHA_ONLY }),
    want: "update: the server's is older: without a version → v1alpha1 v1beta1*",
  },
  {
    name: 'labels that are no versions',
    present: onServer(SERVICE_EXPORT, { release: 'newest', revision: '0' }),
    want: "update: the server's is older: without a version → v1alpha1 v1beta1*",
  },
  {
    name: 'newer revision',
    present: onServer(SERVICE_EXPORT, { release: 'v0.5.2', revision: '1' }),
    want: "leave: the server's is newer: v0.5.2 revision 1, ours is v0.5.2 revision 0",
  },
  {
    name: 'newer release, numerically',
    present: onServer(SERVICE_EXPORT, { release: 'v0.10.0', revision: '0' }),
    want: "leave: the server's is newer: v0.10.0 revision 0, ours is v0.5.2 revision 0",
  },
  {
    name: 'newer release without the version we use',
    present: onServer(SERVICE_EXPORT, { release: 'v1.0.0', revision: '0', versions: [version('v1', true)] }),
    want: "leave: the server's is newer: v1.0.0 revision 0, ours is v0.5.2 revision 0; CRD serviceexports.multicluster.x-k8s.io v1.0.0 revision 0 on the server does not serve v1beta1, and it is newer than this Sealane knows: use a newer Sealane",
  },
  {
    name: 'our release, but the version we use is switched off',
    present: onServer(SERVICE_EXPORT, { versions: [version('v1alpha1', true), version('v1beta1', false, false)] }),
    want: 'update: CRD serviceexports.multicluster.x-k8s.io v0.5.2 revision 0 on the server does not serve v1beta1 → v1alpha1 v1beta1*',
  },
  {
    name: 'our release, without the status subresource',
    present: onServer(SERVICE_EXPORT, { versions: [{ name: 'v1beta1', served: true, storage: true }] }),
    want: 'update: CRD serviceexports.multicluster.x-k8s.io v0.5.2 revision 0 on the server has no status subresource in v1beta1 → v1alpha1 v1beta1*',
  },
  {
    name: 'older, with a version of its own that is stored',
    present: onServer(SERVICE_EXPORT, {
      release: 'v0.4.0',
      revision: '0',
      versions: [version('v1', true), version('v1alpha1'), version('v1alpha0', false, false)],
      storedVersions: ['v1', 'v1alpha0'],
    }),
    want: "update: the server's is older: v0.4.0 revision 0 → v1alpha1 v1beta1* v1 (v1alpha0)",
  },
  {
    name: 'older, with a conversion webhook',
    present: onServer(SERVICE_EXPORT, {
      release: 'v0.1.0',
      versions: ALPHA_ONLY,
      spec: { conversion: { strategy: 'Webhook' } },
    }),
    want: 'leave: another product converts its versions with a webhook; CRD serviceexports.multicluster.x-k8s.io v0.1.0 revision 0 on the server does not serve v1beta1: update the product that installed it',
  },
  {
    name: 'being removed',
    present: onServer(SERVICE_EXPORT, { deletionTimestamp: '2026-11-20T00:00:00Z' }),
    want: 'leave: it is being removed; CRD serviceexports.multicluster.x-k8s.io is being removed, with all its objects: try again when it has gone',
  },
  {
    name: 'another scope',
    present: onServer(SERVICE_EXPORT, { spec: { scope: 'Cluster' } }),
    want: 'leave: its scope is Cluster; CRD serviceexports.multicluster.x-k8s.io has scope Cluster: expected Namespaced; another product made it its own way',
  },
  { name: 'About, as it is', present: onServer(CLUSTER_PROPERTY), want: 'leave: the server serves what is needed' },
  {
    name: 'About, alpha only',
    present: onServer(CLUSTER_PROPERTY, { versions: ALPHA_ONLY }),
    want: 'update: CRD clusterproperties.about.k8s.io without a version on the server does not serve v1beta1 → v1alpha1 v1beta1*',
  },
  { name: 'ours, the same', present: onServer(CLUSTER), want: `leave: it is revision ${CRD_REVISION} already` },
  {
    name: 'ours, of an earlier release',
    present: { ...CLUSTER, metadata: { ...CLUSTER.metadata, labels: { [LABEL_CRD_REVISION]: '2' } } },
    want: "update: the server's is older: revision 2 → v1alpha1*",
  },
  {
    name: 'ours, newer',
    present: {
      ...CLUSTER,
      metadata: { ...CLUSTER.metadata, labels: { [LABEL_CRD_REVISION]: String(CRD_REVISION + 1) } },
    },
    want: `leave: the server's is newer: revision ${CRD_REVISION + 1}, ours is revision ${CRD_REVISION}`,
  },
]

function byName(name: string): CustomResourceDefinition {
  return ALL_CRDS.find((crd) => crd.metadata.name === name) ?? SERVICE_EXPORT
}

/** The versions as text: `*` marks the stored one, parentheses mark those that are not served. */
function versionsText(crd: CustomResourceDefinition): string {
  return crd.spec.versions
    .map(({ name, served, storage }) => (served ? `${name}${storage ? '*' : ''}` : `(${name})`))
    .join(' ')
}

t.test('what is decided for what is on the server', async (t) => {
  for (const { name, present, want } of ROWS) {
    const { action, reason, problem, crd } = planCrd(byName(present?.metadata.name ?? ''), present)
    const versions = action === 'update' && crd !== undefined ? ` → ${versionsText(crd)}` : ''
    t.equal(`${action}: ${reason}${versions}${problem === undefined ? '' : `; ${problem}`}`, want, name)
  }
})

/** The SHA-256 digest of all schemas of sealane.io, and the revision that it belongs to: both change together. */
const SCHEMAS = { revision: 18, digest: 'dbf42b2467e4989b' }

t.test('who joined with older schemas gets the new ones: the revision was raised with them', async (t) => {
  const ours = ALL_CRDS.filter(({ spec }) => spec.group === 'sealane.io').map(({ spec }) => spec)
  const digest = createHash('sha256').update(canonicalJson(ours)).digest('hex').slice(0, 16)
  t.strictSame(
    { revision: CRD_REVISION, digest },
    SCHEMAS,
    'raise CRD_REVISION, run npm run manifests, write both here',
  )
})

t.test('a bare cluster gets all of them, and the next try leaves them alone', async (t) => {
  const first = planCrds(ALL_CRDS, new Map())
  t.same(new Set(first.map(({ action }) => action)), new Set(['create']))
  const there = new Map(first.flatMap(({ name, crd }) => (crd === undefined ? [] : [[name, crd] as const])))
  t.same(new Set(planCrds(ALL_CRDS, there).map(({ action }) => action)), new Set(['leave']))
})

const anyVersions = fc
  .uniqueArray(
    fc.record({
      name: fc.constantFrom('v1alpha0', 'v1alpha1', 'v1alpha2', 'v1beta1', 'v1beta2', 'v1'),
      served: fc.boolean(),
      hasStatus: fc.boolean(),
    }),
    { selector: ({ name }) => name, minLength: 1 },
  )
  .chain((versions) =>
    fc.record({
      stored: fc.nat({ max: versions.length - 1 }),
      versions: fc.constant(versions),
      old: fc.subarray(versions.map(({ name }) => name)),
    }),
  )

const anyPresent = fc
  .record({
    crd: fc.constantFrom(...ALL_CRDS),
    versions: anyVersions,
    release: fc.constantFrom(undefined, 'v0.1.0', 'v0.5.2', 'v0.6.0', 'x'),
    revision: fc.constantFrom(undefined, '0', '3'),
    strategy: fc.constantFrom('None', 'Webhook'),
  })
  .map(({ crd, versions: { versions, stored, old }, release, revision, strategy }) => {
    const list = versions.map(({ name, served, hasStatus }, i): CrdVersion => ({
      name,
      served,
      storage: i === stored,
      ...(hasStatus ? { subresources: { status: {} } } : {}),
    }))
    const storedVersions = [...new Set([...old, list[stored]?.name ?? ''])]
    const change = { release, revision, versions: list, storedVersions, spec: { conversion: { strategy } } }
    return { ours: crd, present: onServer(crd, change) }
  })

t.test('no stored version and no served version is ever lost', async () => {
  fc.assert(
    fc.property(anyPresent, ({ ours, present }) => {
      const { action, crd, problem } = planCrd(ours, present)
      if (crd === undefined) return action === 'leave'
      const after = new Map(crd.spec.versions.map((version) => [version.name, version]))
      const keepsStored = (present.status?.storedVersions ?? []).every((name) => after.has(name))
      const keepsServed = present.spec.versions.every(({ name, served }) => !served || after.get(name)?.served === true)
      const oneStored = crd.spec.versions.filter(({ storage }) => storage).length === 1
      return action === 'update' && problem === undefined && keepsStored && keepsServed && oneStored
    }),
  )
})

t.test('deciding twice is deciding once', async () => {
  fc.assert(
    fc.property(anyPresent, ({ ours, present }) => {
      const { crd } = planCrd(ours, present)
      return crd === undefined || planCrd(ours, crd).action === 'leave'
    }),
  )
})

t.test('the CRDs of the Multi-Cluster Services API have no field that its release lacks', async (t) => {
  for (const crd of [SERVICE_EXPORT, SERVICE_IMPORT])
    for (const { schema } of crd.spec.versions) {
      const { spec, status } = schema?.openAPIV3Schema?.properties ?? {}
      t.ok(Object.keys(spec?.properties ?? {}).length > 1 && Object.hasOwn(status?.properties ?? {}, 'conditions'))
      t.equal(Object.hasOwn(spec?.properties ?? {}, 'clusterSelectors'), false, crd.metadata.name)
      t.equal(Object.hasOwn(status?.properties ?? {}, 'clusterSelectorResults'), false, crd.metadata.name)
      if (crd === SERVICE_EXPORT) t.equal(Object.hasOwn(status?.properties ?? {}, 'clusters'), false)
    }
})
