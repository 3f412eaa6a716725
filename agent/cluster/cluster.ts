/**
 * What the agent learns and reports about clusters and nodes: facts, statuses, cluster DNS, required ranges, open
 * connections.
 */
export { AboutLoop } from './about-loop.ts'
export { type AskClusterDns, askResolver } from './ask-resolver.ts'
export { ClusterDnsLoop } from './cluster-dns-loop.ts'
export type { DnsMap, DnsMaps } from './dns-mender.ts'
export { ContactLoop } from './contact-loop.ts'
export { GatewayLoop, OrphanLoop } from './dead-nodes.ts'
export { ReportedConnections, reportOwnRenumbering } from './open-connections.ts'
export { PodAddressLoop } from './pod-address-loop.ts'
export { SilentAgents } from './silent-agents.ts'
export { RequiredRangesLoop, type Surroundings, surroundingsReader } from './required-ranges-loop.ts'
