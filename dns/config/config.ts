/** Configuration and metrics of the DNS server. */
export { type DnsConfig, type SocketAddress, dnsConfig, formatSocketAddress } from './dns-config.ts'
export {
  DISCARDING,
  type DnsMetrics,
  type DropReason,
  type ForwardResult,
  type NotForwarded,
  dnsMetrics,
} from './metrics.ts'
