/** Takes what the named counters of table sealane_node have seen over into the metrics. */
import type { Nft } from '../kernel/nft/nft.ts'
import { NFT_TABLE_NODE } from '../model/kernel-ids.ts'
import { NODE_DROP_REASONS, type NodeDropReason, nodeDropCounter } from './drop-reasons.ts'
import type { RouteAgentMetrics } from './metrics.ts'

export interface DropCountsDeps {
  readonly nft: Pick<Nft, 'counters'>
  readonly metrics: Pick<RouteAgentMetrics, 'packetsDropped'>
}

export class DropCounts {
  readonly #deps: DropCountsDeps
  readonly #seen = new Map<NodeDropReason, number>()

  constructor(deps: DropCountsDeps) {
    this.#deps = deps
    for (const reason of reasons()) deps.metrics.packetsDropped.inc({ reason }, 0)
  }

  /** Throws KernelError ENOENT while there is no table. */
  async look(signal: AbortSignal): Promise<void> {
    const counters = await this.#deps.nft.counters(NFT_TABLE_NODE, signal)
    for (const reason of reasons()) {
      const now = counters.get(nodeDropCounter(reason)) ?? 0
      const before = this.#seen.get(reason) ?? 0
      // A table that was made anew counts from nothing.
      const more = now >= before ? now - before : now
      this.#seen.set(reason, now)
      if (more > 0) this.#deps.metrics.packetsDropped.inc({ reason }, more)
    }
  }
}

function reasons(): NodeDropReason[] {
  return Object.keys(NODE_DROP_REASONS) as NodeDropReason[]
}
