/** Names and numbers that specifications fix. Our own numbers live in kernel-ids.ts and beside their use. */

/** Multi-Cluster Services API, KEP-1645 and sigs.k8s.io/mcs-api. */
export const LABEL_SERVICE_NAME = 'multicluster.kubernetes.io/service-name'
export const LABEL_SOURCE_CLUSTER = 'multicluster.kubernetes.io/source-cluster'
export const LABEL_MANAGED_BY = 'endpointslice.kubernetes.io/managed-by'
/** The Service that an EndpointSlice belongs to (discovery.k8s.io/v1). */
export const LABEL_K8S_SERVICE_NAME = 'kubernetes.io/service-name'
/** The zone of a Node (Kubernetes' well-known labels). */
export const LABEL_ZONE = 'topology.kubernetes.io/zone'
/** discovery.k8s.io/v1: most zones that the hints of one endpoint may name. */
export const MAX_ZONE_HINTS = 8
export const MANAGED_BY_SEALANE = 'agent.sealane.io'
/** Recommended by Kubernetes for everything that a tool makes. */
export const LABEL_APP_MANAGED_BY = 'app.kubernetes.io/managed-by'
export const APP_MANAGED_BY_SEALANE = 'sealane'
/** Where the components of a member cluster, and what belongs to no user's namespace, live. */
export const SYSTEM_NAMESPACE = 'sealane-system'
/** About API, KEP-2149: names of the two properties that membership in a clusterset defines. */
export const PROPERTY_CLUSTER_ID = 'cluster.clusterset.k8s.io'
export const PROPERTY_CLUSTERSET = 'clusterset.k8s.io'
/** Families that lanes carry and clusterset IPs have. */
export const CARRIED_FAMILIES: readonly ('IPv4' | 'IPv6')[] = ['IPv4', 'IPv6']
export const CLUSTERSET_ZONE = 'clusterset.local'
/** Whom the zone's SOA record names: by this an answer is known to be ours. */
export const CLUSTERSET_NAME_SERVER = `ns.${CLUSTERSET_ZONE}`
/** specification.md of KEP-1645: schema version in the TXT record dns-version.<zone>. */
export const MCS_DNS_SCHEMA_VERSION = '1.0.0'

/** WireGuard: whitepaper section 6.1 (REJECT_AFTER_TIME), seconds. */
export const WIREGUARD_REJECT_AFTER_SECONDS = 180
/** Bytes a WireGuard data packet adds: outer IP + UDP + 16 header + 16 tag. */
export const WIREGUARD_OVERHEAD_IPV4 = 60
export const WIREGUARD_OVERHEAD_IPV6 = 80
/** RFC 7348: outer Ethernet + IPv4 + UDP + VXLAN header. */
export const VXLAN_OVERHEAD_IPV4 = 50
/** RFC 8200 section 5. The kernel takes IPv6 off a device that carries less. */
export const IPV6_MIN_MTU = 1280
