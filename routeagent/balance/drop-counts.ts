/** The reasons for which the node's table drops a packet, with the named counter of each. */
import { DroppedPackets } from '../../kernel/nft/nft.ts'
import { NFT_TABLE_NODE } from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { RouteAgentMetrics } from '../world/world.ts'

export const NODE_DROP_REASONS = {
  'overlay-stranger': 'packets for the overlay that are not from a node of this cluster',
  'overlay-inner': 'packets from the overlay with an invalid source or destination',
  'overlay-loop': 'packets from the overlay that would enter it again',
  'host-service': 'packets from another cluster for a port of this node that is not open',
} as const satisfies Partial<Readonly<Record<ReasonCode, string>>>

export type NodeDropReason = keyof typeof NODE_DROP_REASONS

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
