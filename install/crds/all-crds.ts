/** Every CRD that Sealane needs, sorted by name. */
import type { CustomResourceDefinition } from './custom-resource.ts'
import {
  CLUSTER_PROPERTY,
  LABEL_MCS_RELEASE,
  LABEL_MCS_REVISION,
  SERVICE_EXPORT,
  SERVICE_IMPORT,
} from './multicluster-crds.ts'
import {
  ACCESS_POLICY,
  CLUSTER,
  CLUSTER_ACCESS_POLICY,
  CLUSTER_TRAFFIC_POLICY,
  ENDPOINT,
  GATEWAY,
  LABEL_CRD_REVISION,
  MEMBERSHIP,
  ROUTE_AGENT,
  TOPOLOGY,
  TRAFFIC_POLICY,
} from './sealane-crds.ts'

/** Sealane's own CRDs, which no other product installs. */
export const OWN_CRDS: readonly CustomResourceDefinition[] = [
  ACCESS_POLICY,
  CLUSTER,
  CLUSTER_ACCESS_POLICY,
  CLUSTER_TRAFFIC_POLICY,
  ENDPOINT,
  GATEWAY,
  MEMBERSHIP,
  ROUTE_AGENT,
  TOPOLOGY,
  TRAFFIC_POLICY,
]

/** CRDs of the Kubernetes project, which another product may have installed before. */
export const SHARED_CRDS: readonly CustomResourceDefinition[] = [CLUSTER_PROPERTY, SERVICE_EXPORT, SERVICE_IMPORT]

export const ALL_CRDS: readonly CustomResourceDefinition[] = [...OWN_CRDS, ...SHARED_CRDS].sort((a, b) =>
  a.metadata.name < b.metadata.name ? -1 : 1,
)

// Determines the revision of a CRD by the labels that its project sets for installers.

/**
 * Numbers to compare from left to right. Pre-releases come before their release (semver.org, item 11). Undefined if the
 * labels are missing or are not versions.
 */
type CrdRevision = readonly number[]

const RELEASE = /^v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$/
const NUMBER = /^\d{1,9}$/

/** Takes a CRD of this release, or the one of the server with the same name. */
export function crdRevision(crd: CustomResourceDefinition): CrdRevision | undefined {
  const labels = crd.metadata.labels ?? {}
  if (crd.spec.group === 'sealane.io') return numbers(labels[LABEL_CRD_REVISION])
  const release = RELEASE.exec(labels[LABEL_MCS_RELEASE] ?? '')
  const revision = numbers(labels[LABEL_MCS_REVISION] ?? '0')
  if (release === null || revision === undefined) return undefined
  return [...release.slice(1, 4).map(Number), release[4] === undefined ? 1 : 0, ...revision]
}

/** The revision in messages: "v0.5.2 revision 0", "revision 3", or "without a version". */
export function describeRevision(crd: CustomResourceDefinition): string {
  const labels = crd.metadata.labels ?? {}
  if (crdRevision(crd) === undefined) return 'without a version'
  if (crd.spec.group === 'sealane.io') return `revision ${labels[LABEL_CRD_REVISION] ?? ''}`
  return `${labels[LABEL_MCS_RELEASE] ?? ''} revision ${labels[LABEL_MCS_REVISION] ?? '0'}`
}

/** Negative if `a` is older. A CRD without a version is older than one with a version. */
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
