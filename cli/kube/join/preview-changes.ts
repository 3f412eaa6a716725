/** What a join would change, asked of the API server object by object and shown as a diff before anything is done. */
import type { ManifestObject } from '../../../install/manifest-object.ts'
import type { Marks } from '../../../install/marks/marks.ts'
import { type ObjectRef, refOf, titleOf } from '../../../kubeapi/kube/write/object-ref.ts'
import type { ClusterAdmin } from '../access/admin.ts'
import { objectDiff } from '../object-diff.ts'
import type { NodeChange } from './apply-join.ts'
import { type SecretMarkChange, afterMarks } from '../marks/mark-secrets.ts'
import { decideCrds } from '../marks/marked-crds.ts'

/** Of one object. */
export interface PlannedChange {
  readonly ref: ObjectRef
  readonly how: 'create' | 'change' | 'remove'
  /** Empty for what is created or removed. */
  readonly lines: readonly string[]
  readonly why?: string
}

type Previewer = Pick<ClusterAdmin, 'get' | 'list' | 'preview'>

/** What would be created or changed, in order; the others are left out. */
export async function previewObjects(
  admin: Previewer,
  objects: readonly ManifestObject[],
  signal: AbortSignal,
): Promise<readonly PlannedChange[]> {
  const previews = await Promise.all(objects.map((object) => admin.preview(object, signal)))
  return previews.flatMap(({ before, after }, i) => {
    const object = objects[i]
    return object === undefined ? [] : plannedChange(refOf(object), before, after)
  })
}

/** As applyCrds() would; that one reports what keeps it from doing so. */
export async function previewCrds(
  admin: Previewer,
  marks: Marks,
  signal: AbortSignal,
): Promise<readonly PlannedChange[]> {
  const decisions = await decideCrds(admin, marks, signal)
  const wanted = decisions.flatMap(({ crd, reason }) => (crd === undefined ? [] : [{ crd, why: reason }]))
  const changes = await previewObjects(
    admin,
    wanted.map(({ crd }) => crd as unknown as ManifestObject),
    signal,
  )
  return changes.map((change) => {
    const why = wanted.find(({ crd }) => crd.metadata.name === change.ref.name)?.why
    return why === undefined ? change : { ...change, why }
  })
}

export async function previewNodes(
  admin: Previewer,
  nodes: readonly NodeChange[],
  signal: AbortSignal,
): Promise<readonly PlannedChange[]> {
  const found = await Promise.all(
    nodes.map(async ({ node, labels, annotations }) => {
      const ref = { apiVersion: 'v1', kind: 'Node', name: node }
      const before = (await admin.get(ref, signal)) ?? { ...ref, metadata: { name: node } }
      const { metadata } = before
      const changed = {
        ...metadata,
        labels: { ...metadata.labels, ...labels },
        annotations: { ...metadata.annotations, ...annotations },
      }
      return plannedChange(ref, before, { ...before, metadata: changed })
    }),
  )
  return found.flat()
}

export function previewSecretMarks(changes: readonly SecretMarkChange[]): readonly PlannedChange[] {
  return changes.flatMap((change) => plannedChange(change.ref, change.before, afterMarks(change)))
}

/** One or none. */
export function plannedChange(
  ref: ObjectRef,
  before: ManifestObject | undefined,
  after: ManifestObject | undefined,
): readonly PlannedChange[] {
  if (before === undefined) return after === undefined ? [] : [{ ref, how: 'create', lines: [] }]
  if (after === undefined) return [{ ref, how: 'remove', lines: [] }]
  const lines = objectDiff(before, after)
  return lines.length === 0 ? [] : [{ ref, how: 'change', lines }]
}

const MARKS = { create: '+', change: '~', remove: '-' } as const

/** `~ Deployment sealane-system/sealane-agent`, and what differs below it. */
export function describePlanned({ ref, how, lines, why }: PlannedChange): string {
  const title = `  ${MARKS[how]} ${titleOf(ref)}${why === undefined ? '' : `  (${why})`}\n`
  return title + lines.map((line) => `      ${line}\n`).join('')
}
