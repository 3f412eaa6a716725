/** Why the node's table drops a packet, and the named counter of each reason. */
import type { ReasonCode } from '../model/reasons/reasons.ts'

export const NODE_DROP_REASONS = {
  'overlay-stranger': 'for the overlay, but not from a node of this cluster by the underlay',
  'overlay-inner': 'out of the overlay, from or to an address that has no business there',
  'overlay-loop': 'out of the overlay and into it again',
  'host-service': 'from another cluster for this node itself, at a port that is not named',
} as const satisfies Partial<Readonly<Record<ReasonCode, string>>>

export type NodeDropReason = keyof typeof NODE_DROP_REASONS

export function nodeDropCounter(reason: NodeDropReason): string {
  return `dropped-${reason}`
}
