/** The CRDs and Secrets with the marks that were asked for, and what is to be done with each. */
import { ALL_CRDS } from '../../../install/crds/all-crds.ts'
import { compareRevisions, crdRevision } from '../../../install/crds/crd-revision.ts'
import type { CustomResourceDefinition } from '../../../install/crds/custom-resource.ts'
import { type CrdDecision, planCrds } from '../../../install/crds/plan-crds.ts'
import type { ManifestObject } from '../../../install/manifest-object.ts'
import { type Marks, marked } from '../../../install/marks/marks.ts'
import { fingerprint } from '../../../kubeapi/kube/write/owned-fields.ts'
import type { ClusterAdmin } from '../access/admin.ts'
import { readMarks } from './installed-marks.ts'

export const CRD = { apiVersion: 'apiextensions.k8s.io/v1', kind: 'CustomResourceDefinition' } as const

export const NO_MARKS: Marks = { labels: {}, annotations: {} }

export function markedCrds(marks: Marks): readonly CustomResourceDefinition[] {
  const crds = ALL_CRDS as readonly unknown[] as readonly ManifestObject[]
  return marked(crds, { objects: marks, pods: NO_MARKS }) as readonly unknown[] as readonly CustomResourceDefinition[]
}

/**
 * As planCrds(); one of Sealane's own kinds that is as it should be is written again where its marks differ. Those of
 * other projects may have other owners: they get marks only when they are written anyway.
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
