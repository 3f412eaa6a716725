/**
 * The labels and annotations ("marks") that the user requested, on CRDs and Secrets, and the changes that these need.
 */
import {
  ALL_CRDS,
  type CrdDecision,
  type CustomResourceDefinition,
  compareRevisions,
  crdRevision,
  planCrds,
} from '../../install/crds/crds.ts'
import { type ManifestObject, type MarkKind, type Marks, marked } from '../../install/values/values.ts'
import { type ObjectRef, fingerprint, refOf } from '../../kubeapi/kube/kube.ts'
import type { ClusterAdmin } from '../context/context.ts'
import { readMarks } from './plan-installed-values.ts'

export const CRD = { apiVersion: 'apiextensions.k8s.io/v1', kind: 'CustomResourceDefinition' } as const

export const NO_MARKS: Marks = { labels: {}, annotations: {} }

export function markedCrds(marks: Marks): readonly CustomResourceDefinition[] {
  const crds = ALL_CRDS as readonly unknown[] as readonly ManifestObject[]
  return marked(crds, { objects: marks, pods: NO_MARKS }) as readonly unknown[] as readonly CustomResourceDefinition[]
}

/**
 * Like planCrds(), and also updates a CRD of Sealane's own whose marks differ. CRDs of other projects may have other
 * owners, so they get marks only when they are written anyway.
 */
export async function decideCrds(
  admin: Pick<ClusterAdmin, 'list'>,
  marks: Marks,
  signal: AbortSignal,
): Promise<readonly CrdDecision[]> {
  const present = await admin.list(CRD.apiVersion, CRD.kind, {}, signal)
  const byName = new Map(present.map((crd) => [crd.metadata.name, crd]))
  const ours = markedCrds(marks)
  return planCrds(ours, byName as unknown as ReadonlyMap<string, CustomResourceDefinition>).map((decision) => {
    const [crd, found] = [ours.find(({ metadata }) => metadata.name === decision.name), byName.get(decision.name)]
    if (crd === undefined || found === undefined || decision.action !== 'leave') return decision
    return lacksMarks(crd, found, marks) && decision.problem === undefined
      ? { ...decision, action: 'update', crd, reason: 'its labels or annotations change' }
      : decision
  })
}

function lacksMarks(crd: CustomResourceDefinition, found: ManifestObject, marks: Marks): boolean {
  const there = crdRevision(found as unknown as CustomResourceDefinition)
  if (crd.spec.group !== 'sealane.io' || compareRevisions(crdRevision(crd), there) !== 0) return false
  return fingerprint(readMarks([found]).objects) !== fingerprint(marks)
}

// Marks of Secrets. The parts and operators write these Secrets too, so marks are patched one by one and the Secret is
// never applied as a whole.

/** The changes to the marks of one Secret. */
export interface SecretMarkChange {
  readonly ref: ObjectRef
  readonly before: ManifestObject
  /** Null removes a mark. */
  readonly patch: Readonly<Record<MarkKind, Readonly<Record<string, string | null>>>>
}

interface WantedMarks {
  /** The marks that an earlier command set. */
  readonly before: Marks
  readonly wanted: Marks
}

/** Returns a change for each Secret that exists and differs. */
export async function planSecretMarks(
  admin: Pick<ClusterAdmin, 'get'>,
  {
    namespace,
    names,
    marks,
  }: { readonly namespace: string; readonly names: readonly string[]; readonly marks: WantedMarks },
  signal: AbortSignal,
): Promise<readonly SecretMarkChange[]> {
  const refs = names.map((name) => ({ apiVersion: 'v1', kind: 'Secret', namespace, name }))
  const found = await Promise.all(refs.map((ref) => admin.get(ref, signal)))
  return found.flatMap((secret) => {
    if (secret === undefined) return []
    const patch = { labels: patchOf('labels', secret, marks), annotations: patchOf('annotations', secret, marks) }
    const isSame = Object.values(patch).every((map) => Object.keys(map).length === 0)
    return isSame ? [] : [{ ref: refOf(secret), before: secret, patch }]
  })
}

function patchOf(
  kind: MarkKind,
  secret: ManifestObject,
  { before, wanted }: WantedMarks,
): Record<string, string | null> {
  const there = secret.metadata[kind] ?? {}
  const gone = Object.keys(before[kind]).filter((key) => !Object.hasOwn(wanted[kind], key) && Object.hasOwn(there, key))
  const other = Object.entries(wanted[kind]).filter(([key, value]) => there[key] !== value)
  return { ...Object.fromEntries(gone.map((key) => [key, null])), ...Object.fromEntries(other) }
}

/** The Secret with its new marks. */
export function afterMarks({ before, patch }: SecretMarkChange): ManifestObject {
  const merged = (kind: MarkKind): Record<string, string> => {
    const all = Object.entries({ ...before.metadata[kind], ...patch[kind] })
    return Object.fromEntries(all.filter((pair): pair is [string, string] => pair[1] !== null))
  }
  return { ...before, metadata: { ...before.metadata, labels: merged('labels'), annotations: merged('annotations') } }
}

/** Throws KubeError. */
export async function applySecretMarks(
  admin: Pick<ClusterAdmin, 'merge'>,
  changes: readonly SecretMarkChange[],
  {
    dryRun,
    signal,
    report,
  }: {
    readonly dryRun: boolean
    readonly signal: AbortSignal
    readonly report: (change: { readonly ref: ObjectRef; readonly what: 'changed' }) => void
  },
): Promise<void> {
  for (const { ref, patch } of changes) {
    if (!dryRun) await admin.merge(ref, { metadata: patch }, signal)
    report({ ref, what: 'changed' })
  }
}
