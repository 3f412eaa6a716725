/** Marks of Secrets, which parts and operators write too: they are changed one by one, and never applied whole. */
import type { MarkKind, Marks } from '../../../install/marks/marks.ts'
import type { ManifestObject } from '../../../install/manifest-object.ts'
import { type ObjectRef, refOf } from '../../../kubeapi/kube/write/object-ref.ts'
import type { ClusterAdmin } from '../access/admin.ts'

/** What is to change in the marks of one Secret. */
export interface SecretMarkChange {
  readonly ref: ObjectRef
  readonly before: ManifestObject
  /** Null takes one away. */
  readonly patch: Readonly<Record<MarkKind, Readonly<Record<string, string | null>>>>
}

export interface WantedMarks {
  /** Of an earlier command. */
  readonly before: Marks
  readonly wanted: Marks
}

/** Of those Secrets that are there and differ. */
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
