/**
 * Whether the names that DNS builds from several parts fit into one name (RFC 1035 section 2.3.4, KEP-1645 "DNS").
 * Pure.
 */
import { MAX_DNS_NAME_LENGTH } from './dns-name.ts'
import { CLUSTERSET_ZONE } from '../spec-constants.ts'

/**
 * Between the variable labels of `<hostname>.<cluster>.<service>.<namespace>` are three dots; `.svc.<zone>` follows.
 */
const FIXED_LENGTH = 3 + `.svc.${CLUSTERSET_ZONE}`.length

export interface EndpointNameParts {
  readonly hostname: string
  readonly cluster: string
  readonly service: string
  readonly namespace: string
}

/** Characters that `<hostname>.<cluster>.<service>.<namespace>.svc.clusterset.local` is too long; 0 when it fits. */
export function excessNameLength({ hostname, cluster, service, namespace }: EndpointNameParts): number {
  const length = hostname.length + cluster.length + service.length + namespace.length + FIXED_LENGTH
  return Math.max(0, length - MAX_DNS_NAME_LENGTH)
}
