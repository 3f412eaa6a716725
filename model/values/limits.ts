/**
 * How much a field of an object may hold. The API server rejects a whole object if one field holds more. Each limit
 * names its source: a specification, the validation of Kubernetes (as of 1.34), or "ours" with the reason.
 */

/**
 * The most ports of a service. Kubernetes limits the ports of an EndpointSlice
 * (pkg/apis/discovery/validation, maxPorts: 100 up to 1.20, 20,000 since 1.21 and in the last patches of 1.18 to 1.20),
 * and not those of a Service or a ServiceImport. A service with more could have no EndpointSlice.
 */
export const MAX_SERVICE_PORTS = 20_000
/** discovery.k8s.io/v1, maxEndpoints: the most endpoints of one EndpointSlice. Controllers write at most 100. */
export const MAX_SLICE_ENDPOINTS = 1000
/** discovery.k8s.io/v1, maxAddresses: the most addresses of one endpoint. Controllers write one. */
export const MAX_ENDPOINT_ADDRESSES = 100
/**
 * Ours: the most labels, and the most annotations, that an export carries. Kubernetes has no limit of their number, and
 * each importer stores them.
 */
export const MAX_PAIRS = 100
/**
 * apimachinery pkg/api/validation, TotalAnnotationSizeLimitB: the most bytes of all annotations of an object, keys and
 * values together. One value has no limit of its own.
 */
export const MAX_ANNOTATION_BYTES = 256 * 1024
/**
 * Ours: the most bytes of the ports of one merged service, as JSON. etcd takes objects of at most 1.5 MiB by default
 * (`--max-request-bytes`), and the ports of one exporter always fit.
 */
export const MAX_MERGED_PORT_BYTES = 1_300_000

/**
 * Ours. The largest lane number for which there is a lane address, its last octet. Records and objects may have it: this
 * release uses fewer (MAX_LANE), and gateways refuse the others, but a later release may use more.
 */
export const MAX_ADDRESSED_LANE = 0xff

/**
 * Ours. The most ranges that a node reports, both families together. It exceeds the number of pods on a node, and most
 * ranges hold many pods. IPv4 comes first: an earlier release reads only IPv4, and only this many entries.
 */
export const MAX_POD_RANGES = 1024

/** Ours. The most required ranges that a node reports to its own cluster. */
export const MAX_REPORTED_BY_NODE = 16

/** The largest number of reported open connections: the largest int32, which all readers of the protocol accept. */
export const MAX_OPEN_CONNECTIONS = 2 ** 31 - 1

/** Ours: the most ranges of each sort that a Cluster has. A cluster has a few, and each is a route on every node. */
export const MAX_CIDRS = 16
/** Ours: the most labels of a Cluster. */
export const MAX_CLUSTER_LABELS = 64
/** The largest index of a Cluster: two octets of the lane addresses. */
export const MAX_CLUSTER_INDEX = 0xffff

/** apimachinery pkg/util/validation (LabelValueMaxLength): the most characters of the value of a label. */
export const MAX_LABEL_VALUE = 63
/** Ours: the most entries of each list in an AccessPolicy, and the most members or namespaces in one entry. */
export const MAX_POLICY_ENTRIES = 64
export const MAX_POLICY_CALLERS = 256
export const MAX_POLICY_NAMESPACES = 256
/** Ours: the longest list of namespaces on an imported EndpointSlice. */
export const MAX_CALLERS_LENGTH = 32 * 1024
/** Ours. The most clusters in `status.clusters` of a ServiceExport. */
export const MAX_OFFERED_CLUSTERS = 256
/** Namespaces that a member allows, and those that it excludes. */
export const MAX_LISTED_NAMESPACES = 256
/** Ours. Limits of a topology: clusters that it names, groups, pairs, and names together, so that it fits into a request. */
export const MAX_TOPOLOGY_CLUSTERS = 1000
export const MAX_TOPOLOGY_GROUPS = 100
export const MAX_TOPOLOGY_PAIRS = 200
export const MAX_TOPOLOGY_NAMES = 3000
/** Limits the status of a Cluster, which every node reads: services with importers, and the ids of each. */
export const MAX_IMPORTED_SERVICES = 256
export const MAX_NAMED_IMPORTERS = 16

/** KEP-5939: the most cluster selectors of a service. */
export const MAX_CLUSTER_SELECTORS = 16
/** Ours: the most properties and requirements in one selector of properties, and the most values of a requirement. */
export const MAX_SELECTOR_ENTRIES = 64
/** Ours: the most ClusterProperties that a member sends, and the most characters of a value that it sends or selects. */
export const MAX_CLUSTER_PROPERTIES = 32
export const MAX_PROPERTY_VALUE = 1024
/** Ours: the most tiers of a traffic policy, and the largest weight of a cluster. Shares have the same unit. */
export const MAX_TRAFFIC_TIERS = 16
export const MAX_TRAFFIC_WEIGHT = 10_000
/** Ours: the most services in the status of a traffic policy, and the most clusters of each. The rest is counted. */
export const MAX_REPORTED_SERVICES = 32
export const MAX_REPORTED_SHARES = 32
/** Ours: of each service, the most groups of ports with shares of their own, and the most ports and clusters of each. */
export const MAX_REPORTED_PORT_GROUPS = 4
export const MAX_REPORTED_PORTS = 16
export const MAX_REPORTED_PORT_SHARES = 16
/** Ours: the most characters, as JSON, of the spec that the status of a policy keeps. */
export const MAX_KEPT_SPEC_LENGTH = 65_536

/** Ours. The most candidates of an Endpoint, its most capabilities, and the characters of one. */
export const MAX_CANDIDATES = 16
export const MAX_CAPABILITIES = 32
export const MAX_CAPABILITY_LENGTH = 63

/** core/v1 (MaxClientIPServiceAffinitySeconds): the longest session affinity by client IP, a day in seconds. */
export const MAX_AFFINITY_SECONDS = 86_400
/** RFC 6335 section 6. */
export const MAX_PORT = 65_535

/** Ours. Limit of `status.failure` of Gateway and RouteAgent, in characters. */
export const MAX_FAILURE_LENGTH = 4096
/** Ours. Limit of the entries in `status.silentNodes` of a RouteAgent. */
export const MAX_SILENT_NODES = 256
/** Ours. Limit of the entries in `status.podsOutside` of a RouteAgent. */
export const MAX_PODS_OUTSIDE = 8
/**
 * Ours. How often a routeagent writes `status.heartbeatTime` and `status.podsOutsideTime`, in milliseconds: a thousand
 * nodes write three times a second.
 */
export const ROUTE_AGENT_BEAT_MS = 300_000
/** Ours. Limit of `status.connections[].message` of a Gateway, in characters. */
export const MAX_CONNECTION_MESSAGE_LENGTH = 1024
/** apimachinery meta/v1 Condition: the limit of the API for a condition's message, in characters. */
export const MAX_MESSAGE_LENGTH = 32_768

/** Ours. Candidates of one connection in the status of a Gateway: as many as an Endpoint states (MAX_CANDIDATES). */
export const MAX_LINK_CANDIDATES = 16
/** Ours. Those of a connection that is up without a relay and NAT: the one in use and the next ones, as it has the best. */
export const MAX_DIRECT_CANDIDATES = 4
/**
 * Ours. Those of all connections of a Gateway together: each write of its status, every few seconds, goes to all who
 * watch it, and a candidate has about 250 bytes. So 32 KiB hold those of eight connections without a direct way.
 */
export const MAX_STATUS_CANDIDATES = 128
/** Ours. Relays in the status of a Gateway: those on port 443 (MAX_RELAYS), and some that members offer. */
export const MAX_STATUS_RELAYS = 32
/** Ours. Limit of a note at a candidate or a relay, in characters: one sentence. */
export const MAX_CANDIDATE_NOTE = 200
