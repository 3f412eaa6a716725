/** How much a field of an object may hold. The API server rejects a whole object if one field holds more. */

/**
 * The largest lane number for which there is a lane address, its last octet. Records and objects may have it: this
 * release uses fewer (MAX_LANE), and gateways refuse the others, but a later release may use more.
 */
export const MAX_ADDRESSED_LANE = 0xff

/**
 * The most ranges that a node reports, both families together. It exceeds the number of pods on a node, and most ranges
 * hold many pods. IPv4 comes first: an earlier release reads only IPv4, and only this many entries.
 */
export const MAX_POD_RANGES = 1024

/** The most required ranges that a node reports to its own cluster. */
export const MAX_REPORTED_BY_NODE = 16

/** The largest number of reported open connections: the largest int32, which all readers of the protocol accept. */
export const MAX_OPEN_CONNECTIONS = 2 ** 31 - 1

/** The most ranges of each sort that a Cluster has. */
export const MAX_CIDRS = 16
/** The most labels of a Cluster. */
export const MAX_CLUSTER_LABELS = 64
/** The largest index of a Cluster: two octets of the lane addresses. */
export const MAX_CLUSTER_INDEX = 0xffff

/** The most candidates of an Endpoint, its most capabilities, and the characters of one. */
export const MAX_CANDIDATES = 16
export const MAX_CAPABILITIES = 32
export const MAX_CAPABILITY_LENGTH = 63

/** The limit of the Kubernetes API for session affinity by client IP: a day, in seconds. */
export const MAX_AFFINITY_SECONDS = 86_400
export const MAX_PORT = 65_535

/** Limit of `status.failure` of Gateway and RouteAgent, in characters. */
export const MAX_FAILURE_LENGTH = 4096
/** Limit of the entries in `status.silentNodes` of a RouteAgent. */
export const MAX_SILENT_NODES = 256
/** Limit of `status.connections[].message` of a Gateway, in characters. */
export const MAX_CONNECTION_MESSAGE_LENGTH = 1024
/** The limit of the API for a condition's message, in characters. */
export const MAX_MESSAGE_LENGTH = 32_768
