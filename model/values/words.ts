/** The words that fields of several kinds, and of the records about them, may have. */

/** The protocols of a port of a Service. */
export const PROTOCOLS = ['TCP', 'UDP', 'SCTP'] as const
export type Protocol = (typeof PROTOCOLS)[number]

/** How the address of an Endpoint's candidate is known. */
export const CANDIDATE_KINDS = ['private', 'public', 'observed', 'loadBalancer'] as const

/** The types of an imported service. */
export const IMPORT_TYPES = ['ClusterSetIP', 'Headless'] as const

export const SESSION_AFFINITIES = ['ClientIP', 'None'] as const

/** Internal traffic policies. */
export const TRAFFIC_POLICIES: readonly string[] = ['Cluster', 'Local']
