/** What table sealane_node has dropped, as the metric has it. */
import { DroppedPackets } from '../kernel/nft/dropped-packets.ts'
import { NFT_TABLE_NODE } from '../model/kernel-ids.ts'
import { NODE_DROP_REASONS, type NodeDropReason, nodeDropCounter } from './drop-reasons.ts'
import type { RouteAgentMetrics } from './metrics.ts'

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
