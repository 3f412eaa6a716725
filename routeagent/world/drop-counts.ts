/** The reasons for which the node's table drops a packet, with the named counter of each. */
import { DroppedPackets } from '../../kernel/nft/nft.ts'
import { NFT_TABLE_NODE } from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { RouteAgentMetrics } from './metrics.ts'

export const NODE_DROP_REASONS = {
  'overlay-stranger': 'packets for the overlay that are not from a node of this cluster',
  'overlay-inner': 'packets from the overlay with an invalid source or destination',
  'overlay-loop': 'packets from the overlay that would enter it again',
  'host-service': 'packets from another cluster for a port of this node that is not open',
  'access-not-exported': 'packets from another cluster for what this cluster does not export',
  'access-not-offered': 'packets from a cluster to which the service is not offered',
  'access-node': 'packets from another cluster for an address of this node',
  'access-no-connection': 'packets from another cluster that belong to no connection',
  'access-namespace': 'packets to services of other clusters that are not offered to the namespace of the caller',
  'access-egress': 'packets to other clusters that the namespace of the caller may not call',
  'access-fragment': 'parts of packets from another cluster, without the first part',
  'access-protocol': 'packets from another cluster of a protocol that no service has',
} as const satisfies Partial<Readonly<Record<ReasonCode, string>>>

export type NodeDropReason = keyof typeof NODE_DROP_REASONS

/** Refusals of the access rules: their packets are sampled. */
export type AccessDropReason = Extract<NodeDropReason, `access-${string}`>

export const ACCESS_DROP_REASONS = (Object.keys(NODE_DROP_REASONS) as NodeDropReason[]).filter(
  (reason): reason is AccessDropReason => reason.startsWith('access-'),
)

export function nodeDropCounter(reason: NodeDropReason): string {
  return `dropped-${reason}`
}

/** The metric of the packets that table sealane_node has dropped. */
export function nodeDropCounts({
  packetsDropped,
}: Pick<RouteAgentMetrics, 'packetsDropped'>): DroppedPackets<NodeDropReason> {
  return new DroppedPackets({
    table: NFT_TABLE_NODE,
    reasons: NODE_DROP_REASONS,
    counterOf: nodeDropCounter,
    dropped: packetsDropped,
  })
}
