/**
 * Names and numbers that specifications define. Our own numbers are in model/kernel-ids.ts and next to the code that
 * uses them.
 */

/** Multi-Cluster Services API, KEP-1645 and sigs.k8s.io/mcs-api. */
export const LABEL_SERVICE_NAME = 'multicluster.kubernetes.io/service-name'
export const LABEL_SOURCE_CLUSTER = 'multicluster.kubernetes.io/source-cluster'
export const LABEL_MANAGED_BY = 'endpointslice.kubernetes.io/managed-by'
/** The Service that an EndpointSlice belongs to (discovery.k8s.io/v1). */
export const LABEL_K8S_SERVICE_NAME = 'kubernetes.io/service-name'
/** The zone of a Node (Kubernetes' well-known labels). */
export const LABEL_ZONE = 'topology.kubernetes.io/zone'
/** The region of a Node (Kubernetes' well-known labels). */
export const LABEL_REGION = 'topology.kubernetes.io/region'
/** discovery.k8s.io/v1 (maxZoneHints, since Kubernetes 1.21): the most zones that the hints of one endpoint may name. */
export const MAX_ZONE_HINTS = 8
export const MANAGED_BY_SEALANE = 'agent.sealane.io'
/** Kubernetes recommends this label for all objects that a tool creates. */
export const LABEL_APP_MANAGED_BY = 'app.kubernetes.io/managed-by'
export const APP_MANAGED_BY_SEALANE = 'sealane'
/** The namespace of a member cluster's components, and of objects that belong to no user's namespace. */
export const SYSTEM_NAMESPACE = 'sealane-system'
/** About API, KEP-2149: names of the two properties that membership in a clusterset defines. */
export const PROPERTY_CLUSTER_ID = 'cluster.clusterset.k8s.io'
export const PROPERTY_CLUSTERSET = 'clusterset.k8s.io'
/** Ours: the region and the zone of a cluster. KEP-2149 reserves the suffixes k8s.io and kubernetes.io and names none. */
export const PROPERTY_REGION = 'region.sealane.io'
export const PROPERTY_ZONE = 'zone.sealane.io'
/** The address families that lanes carry and clusterset IPs have. */
export const CARRIED_FAMILIES: readonly ('IPv4' | 'IPv6')[] = ['IPv4', 'IPv6']
export const CLUSTERSET_ZONE = 'clusterset.local'
/** The name server in the zone's SOA record. It identifies an answer as ours. */
export const CLUSTERSET_NAME_SERVER = `ns.${CLUSTERSET_ZONE}`
/** specification.md of KEP-1645: schema version in the TXT record dns-version.<zone>. */
export const MCS_DNS_SCHEMA_VERSION = '1.0.0'

/** WireGuard: whitepaper section 6.1 (REJECT_AFTER_TIME), seconds. */
export const WIREGUARD_REJECT_AFTER_SECONDS = 180
/** Bytes that WireGuard adds to a data packet: outer IP + UDP + 16 header + 16 tag. */
export const WIREGUARD_OVERHEAD_IPV4 = 60
export const WIREGUARD_OVERHEAD_IPV6 = 80
/** RFC 7348: outer Ethernet + IPv4 + UDP + VXLAN header. */
export const VXLAN_OVERHEAD_IPV4 = 50
/** RFC 8200 section 5. The kernel disables IPv6 on a device with a lower MTU. */
export const IPV6_MIN_MTU = 1280
