/**
 * The public interface of this room: one description for each kind of object. Types, CRDs and checks follow from it.
 * Whoever needs the types alone imports them from model/model.ts, and loads nothing.
 */
export { ACCESS_POLICY_FIELDS, CLUSTER_ACCESS_POLICY_FIELDS } from './access-policy.ts'
export { BACKEND_HEALTH, type BackendHealth } from './backend-health.ts'
export { CLUSTER_FIELDS } from './cluster.ts'
export { CLUSTER_PROPERTY_ALPHA_FIELDS, CLUSTER_PROPERTY_FIELDS } from './cluster-property.ts'
export { CONDITIONS, type Condition } from './conditions.ts'
export { crdSchema } from './crd-schema.ts'
export { ENDPOINT_FIELDS } from './endpoint.ts'
export { ENDPOINT_SLICE_FIELDS, checkSlice } from './endpoint-slice.ts'
export {
  type Described,
  type Schema,
  choice,
  cidr,
  dnsLabel,
  dnsSubdomain,
  integer,
  ipAddress,
  list,
  map,
  text,
  textMap,
  textThat,
  timestamp,
} from './fields.ts'
export { type ConnectionCause, GATEWAY_FIELDS } from './gateway.ts'
export { LEASE_FIELDS } from './lease.ts'
export { MAX_READ_NAME, MAX_TEXT, type Writer, loose, partOf } from './loose.ts'
export { MEMBERSHIP_FIELDS } from './membership.ts'
export { METADATA, type ObjectMeta, type OwnerReference } from './metadata.ts'
export { NAMESPACE_FIELDS } from './namespace.ts'
export { NODE_FIELDS } from './node.ts'
export { POD_FIELDS } from './pod.ts'
export { type OpenConnections, ROUTE_AGENT_FIELDS } from './route-agent.ts'
export { type ClusterSelector, type PropertySelector } from './cluster-selectors.ts'
export { TOPOLOGY_FIELDS, TOPOLOGY_OBJECT_FIELDS } from './topology.ts'
export { CLUSTER_TRAFFIC_POLICY_FIELDS, TRAFFIC_POLICY_FIELDS, checkTiers } from './traffic-policy.ts'
export { SERVICE_FIELDS } from './service.ts'
export { SERVICE_EXPORT_FIELDS } from './service-export.ts'
export { type ImportPort, SERVICE_IMPORT_FIELDS } from './service-import.ts'
