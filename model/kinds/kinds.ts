/**
 * The public interface of this room: one description for each kind of object. Types, CRDs and checks follow from it.
 * Whoever needs the types alone imports them from model/model.ts, and loads nothing.
 */
export { CLUSTER_FIELDS } from './cluster.ts'
export { CLUSTER_PROPERTY_ALPHA_FIELDS, CLUSTER_PROPERTY_FIELDS } from './cluster-property.ts'
export { CONDITIONS, type Condition } from './conditions.ts'
export { crdSchema } from './crd-schema.ts'
export { ENDPOINT_FIELDS } from './endpoint.ts'
export {
  type Described,
  type Schema,
  choice,
  cidr,
  dnsLabel,
  dnsSubdomain,
  flag,
  integer,
  ipAddress,
  list,
  map,
  text,
  textMap,
  throws,
  timestamp,
} from './fields.ts'
export { type ConnectionCause, GATEWAY_FIELDS } from './gateway.ts'
export { MAX_NAME, MAX_TEXT, type Writer, loose } from './loose.ts'
export { MEMBERSHIP_FIELDS } from './membership.ts'
export { type OpenConnections, ROUTE_AGENT_FIELDS } from './route-agent.ts'
export { SERVICE_EXPORT_FIELDS } from './service-export.ts'
export { type ImportPort, type Protocol, SERVICE_IMPORT_FIELDS } from './service-import.ts'
