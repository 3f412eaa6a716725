/**
 * The marks that an earlier command put on what is installed: those which the server says that Sealane applied. Marks of
 * Helm, Argo CD, a cloud or a hand are theirs, and stay by themselves.
 */
import type { ManifestObject } from '../../../install/manifest-object.ts'
import { type MarkKind, type MarkValues, type Marks, isReservedKey } from '../../../install/marks/marks.ts'
import { type ManagedFieldsEntry, appliedFields, ownedPart } from '../../../kubeapi/kube/write/owned-fields.ts'
import { at } from '../../discovery/snapshot/raw.ts'

/** Of several objects that differ, the first one counts. Pure. */
export function readMarks(objects: Iterable<ManifestObject>): MarkValues {
  const all = [...objects].reverse()
  const object = mergedMarks(all.map((one) => ownMarks(one)))
  const pod = mergedMarks(all.map((one) => ownMarks(one, 'spec', 'template')))
  const alone = (kind: MarkKind): Marks['labels'] =>
    Object.fromEntries(Object.entries(pod[kind]).filter(([key, value]) => object[kind][key] !== value))
  return { objects: object, pods: { labels: alone('labels'), annotations: alone('annotations') } }
}

function mergedMarks(all: readonly Marks[]): Marks {
  const merged = (kind: MarkKind): Marks['labels'] =>
    Object.assign({}, ...all.map((marks) => marks[kind])) as Marks['labels']
  return { labels: merged('labels'), annotations: merged('annotations') }
}

function ownMarks(object: ManifestObject, ...path: readonly string[]): Marks {
  const entries = at(object, 'metadata', 'managedFields') as readonly ManagedFieldsEntry[] | undefined
  const fields = appliedFields(entries, object.apiVersion)
  const owned = fields === undefined ? {} : ownedPart(object, fields)
  const ownOf = (kind: MarkKind): Marks['labels'] => {
    // Labels of a PodMonitor have a value of their own.
    if (object.kind === 'PodMonitor' && kind === 'labels') return {}
    const found = Object.entries(at(owned, ...path, 'metadata', kind) ?? {})
    return Object.fromEntries(found.filter(([key]) => !isReservedKey(key)))
  }
  return { labels: ownOf('labels'), annotations: ownOf('annotations') }
}
