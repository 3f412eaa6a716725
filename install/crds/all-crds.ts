/** Every CRD that Sealane needs, in the order of their names. */
import { CLUSTER_PROPERTY } from './about.ts'
import { CLUSTER } from './cluster.ts'
import type { CustomResourceDefinition } from './custom-resource.ts'
import { ENDPOINT } from './endpoint.ts'
import { GATEWAY } from './gateway.ts'
import { MEMBERSHIP } from './membership.ts'
import { SERVICE_EXPORT, SERVICE_IMPORT } from './multicluster.ts'
import { ROUTE_AGENT } from './route-agent.ts'

/** Sealane's own: nobody else installs them. */
export const OWN_CRDS: readonly CustomResourceDefinition[] = [CLUSTER, ENDPOINT, GATEWAY, MEMBERSHIP, ROUTE_AGENT]

/** Of the Kubernetes project: another product may have installed them before. */
export const SHARED_CRDS: readonly CustomResourceDefinition[] = [CLUSTER_PROPERTY, SERVICE_EXPORT, SERVICE_IMPORT]

export const ALL_CRDS: readonly CustomResourceDefinition[] = [...OWN_CRDS, ...SHARED_CRDS].sort((a, b) =>
  a.metadata.name < b.metadata.name ? -1 : 1,
)
