/**
 * Whether the lane of a holder whose Lease lapsed is lost, by what the API says of it. Pure. A Lease is renewed by a
 * process that can write; a lane of the kernel needs neither.
 */
import { leavingReason, mayServe } from '../../model/lanes/gateway-node.ts'
import type { Gateway, Node } from '../../model/objects.ts'
import type { CableRules } from '../cable/cable.ts'
import { linksUp } from './handover/handing-over.ts'

export interface LapsedHolderFacts {
  readonly rules: Pick<CableRules, 'endsWithProcess'>
  readonly lane: number
  /** Of the holder; undefined: there is none. */
  readonly node: Node | undefined
  readonly gateway: Gateway | undefined
}

/** Why another node may take the lane; undefined: not by this, its machine is to be asked. */
export function whyLost({ rules, lane, node, gateway }: LapsedHolderFacts): string | undefined {
  if (node === undefined) return 'its Node is gone'
  if (!mayServe(node, lane)) return 'its Node has the label of this lane no more'
  const leaving = leavingReason(node)
  if (leaving !== undefined) return leaving
  if (linksUp(gateway, lane).size === 0) return 'its last word was that no connection is up'
  const own = gateway?.status?.lanes.find((one) => one.lane === lane)
  return own === undefined ? undefined : rules.endsWithProcess(own.driver)
}
