/**
 * Checks the CustomResourceDefinitions of a cluster: whether Sealane's are as new as this command, and which other
 * products use the objects of multicluster.x-k8s.io. Reads only their metadata.
 */
import type { Definition, Fact, OtherProduct } from '../../../explain/facts/facts.ts'
import {
  ALL_CRDS,
  type CustomResourceDefinition,
  compareRevisions,
  crdRevision,
  describeRevision,
} from '../../../install/crds/crds.ts'
import type { DynamicClient } from '../../../kubeapi/kube/kube.ts'
import { OTHER_PRODUCTS } from '../../discovery/discovery.ts'
import { askFor } from '../ask.ts'
import { isWanted } from './progress.ts'
import type { PodProbesInit } from './pod-probes.ts'

const MS = 4000

interface Listed {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
}

/** Rejects only with the signal's reason. */
export async function definitionProbes(
  reader: Pick<DynamicClient, 'listPicked'>,
  { title, area, signal }: Pick<PodProbesInit, 'area' | 'signal'> & { readonly title: string },
): Promise<readonly Fact[]> {
  if (!isWanted('definitions', area)) return []
  const source = `API server of ${title}`
  const what = { apiVersion: 'apiextensions.k8s.io/v1', kind: 'CustomResourceDefinition', metadataOnly: true }
  const ask = async (limited: AbortSignal): Promise<readonly Fact[]> => {
    const listed = await reader.listPicked(
      what,
      ({ metadata: { name, labels = {} } }): Listed => ({ name, labels }),
      limited,
    )
    const at = new Date().toISOString()
    return [
      { t: 'probe', kind: 'definition', source, at, items: definitionsAmong(listed) },
      { t: 'probe', kind: 'other-product', source, at, items: productsAmong(listed) },
    ]
  }
  const right = 'list customresourcedefinitions.apiextensions.k8s.io'
  return askFor({ what: 'CustomResourceDefinition', source, needed: false, ms: MS, right, ask }, signal)
}

/** A missing definition is reported by the question that lists its objects. */
export function definitionsAmong(listed: readonly Listed[]): readonly Definition[] {
  const found = new Map(listed.map((one) => [one.name, one.labels]))
  return ALL_CRDS.flatMap((wanted): readonly Definition[] => {
    const labels = found.get(wanted.metadata.name)
    if (labels === undefined) return []
    const present: CustomResourceDefinition = { ...wanted, metadata: { ...wanted.metadata, labels } }
    const revision = crdRevision(present)
    // A definition without a version belongs to another product, or was not written by a release of Sealane.
    const isOlder = revision !== undefined && compareRevisions(revision, crdRevision(wanted)) < 0
    return [
      { name: wanted.metadata.name, found: describeRevision(present), expected: describeRevision(wanted), isOlder },
    ]
  })
}

export function productsAmong(listed: readonly Listed[]): readonly OtherProduct[] {
  const names = new Set(listed.map(({ name }) => name))
  return OTHER_PRODUCTS.filter(({ crd, ownsMcs }) => ownsMcs && names.has(crd)).map(({ crd, name }) => ({ name, crd }))
}
