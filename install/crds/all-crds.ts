/** Every CRD that Sealane needs, in the order of their names. */
import type { CustomResourceDefinition } from './custom-resource.ts'
import {
  CLUSTER_PROPERTY,
  LABEL_MCS_RELEASE,
  LABEL_MCS_REVISION,
  SERVICE_EXPORT,
  SERVICE_IMPORT,
} from './multicluster-crds.ts'
import { CLUSTER, ENDPOINT, GATEWAY, LABEL_CRD_REVISION, MEMBERSHIP, ROUTE_AGENT } from './sealane-crds.ts'

/** Sealane's own: nobody else installs them. */
export const OWN_CRDS: readonly CustomResourceDefinition[] = [CLUSTER, ENDPOINT, GATEWAY, MEMBERSHIP, ROUTE_AGENT]

/** Of the Kubernetes project: another product may have installed them before. */
export const SHARED_CRDS: readonly CustomResourceDefinition[] = [CLUSTER_PROPERTY, SERVICE_EXPORT, SERVICE_IMPORT]

export const ALL_CRDS: readonly CustomResourceDefinition[] = [...OWN_CRDS, ...SHARED_CRDS].sort((a, b) =>
  a.metadata.name < b.metadata.name ? -1 : 1,
)

// How new a CRD is, by the labels that its project puts on it for installers.

/**
 * Numbers to compare from left to right. Pre-releases come before their release (semver.org, item 11). Undefined: the
 * labels are missing or are no versions.
 */
type CrdRevision = readonly number[]

const RELEASE = /^v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$/
const NUMBER = /^\d{1,9}$/

/** Takes a CRD of ours, or one of the server with the same name. */
export function crdRevision(crd: CustomResourceDefinition): CrdRevision | undefined {
  const labels = crd.metadata.labels ?? {}
  if (crd.spec.group === 'sealane.io') return numbers(labels[LABEL_CRD_REVISION])
  const release = RELEASE.exec(labels[LABEL_MCS_RELEASE] ?? '')
  const revision = numbers(labels[LABEL_MCS_REVISION] ?? '0')
  if (release === null || revision === undefined) return undefined
  return [...release.slice(1, 4).map(Number), release[4] === undefined ? 1 : 0, ...revision]
}

/** As people say it: "v0.5.2 revision 0", "revision 3", or "without a version". */
export function describeRevision(crd: CustomResourceDefinition): string {
  const labels = crd.metadata.labels ?? {}
  if (crdRevision(crd) === undefined) return 'without a version'
  if (crd.spec.group === 'sealane.io') return `revision ${labels[LABEL_CRD_REVISION] ?? ''}`
  return `${labels[LABEL_MCS_RELEASE] ?? ''} revision ${labels[LABEL_MCS_REVISION] ?? '0'}`
}

/** Negative where a is older. What has no version is older than what has one. */
export function compareRevisions(a: CrdRevision | undefined, b: CrdRevision | undefined): number {
  if (a === undefined || b === undefined) return Number(a !== undefined) - Number(b !== undefined)
  for (const [i, number] of a.entries()) {
    const difference = number - (b[i] ?? 0)
    if (difference !== 0) return difference
  }
  return 0
}

function numbers(text: string | undefined): CrdRevision | undefined {
  return text !== undefined && NUMBER.test(text) ? [Number(text)] : undefined
}
