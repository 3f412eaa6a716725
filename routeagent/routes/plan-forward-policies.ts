/**
 * Plans the XFRM policies that keep other clusters out while the nft tables of this node are missing. Pure.
 *
 *   other cluster ─► own pod: ADMITTED_MARK, or (on a gateway) leaves by the overlay ─► allow
 *                             otherwise ─► block
 *
 * The kernel checks them before it forwards a packet, after all of prerouting. Table sealane_node admits by the mark
 * what the access rules allow. It also marks what did not come by a lane or the overlay, about which it does not
 * decide: a network that joins the clusters besides Sealane, or a CNI that carries packets of a gateway to an unknown
 * pod. So without the table nothing of another cluster reaches a pod, and with it nothing changes. The policies name
 * both prefixes, so no packet of other software, and none that leaves for another cluster, is theirs to decide. What a
 * gateway passes on by the overlay is decided by the node of the pod, which has the device only after a table of its
 * own.
 */
import type { ForwardPolicy } from '../../kernel/xfrm/xfrm.ts'
import { type Prefix, formatPrefix, ofFamily, withoutContained } from '../../model/addresses/addresses.ts'
import { ADMITTED_MARK } from '../../model/model.ts'

/** Each policy costs memory of the kernel. A larger clusterset has no policies, which is reported. */
export const MAX_FORWARD_POLICIES = 8192

export interface ForwardPoliciesInit {
  /** Prefixes of the other clusters, of both families. */
  readonly remote: readonly Prefix[]
  /** Pod CIDRs of this cluster, of both families. */
  readonly pods: readonly Prefix[]
  /** On a gateway: the number of its overlay device, if that exists. */
  readonly overlayIndex: number | undefined
}

/** Undefined if there would be more than MAX_FORWARD_POLICIES. What is admitted comes first. */
export function planForwardPolicies({
  remote,
  pods,
  overlayIndex,
}: ForwardPoliciesInit): readonly ForwardPolicy[] | undefined {
  const pairs = ([4, 6] as const).flatMap((family) => {
    const sources = texts(remote, family)
    return texts(pods, family).flatMap((destination) => sources.map((source) => ({ source, destination })))
  })
  const planned = [
    ...pairs.map((pair): ForwardPolicy => ({ ...pair, action: 'allow', mark: ADMITTED_MARK })),
    ...(overlayIndex === undefined
      ? []
      : pairs.map((pair): ForwardPolicy => ({ ...pair, action: 'allow', outputIndex: overlayIndex }))),
    ...pairs.map((pair): ForwardPolicy => ({ ...pair, action: 'block' })),
  ]
  return planned.length > MAX_FORWARD_POLICIES ? undefined : planned
}

function texts(prefixes: readonly Prefix[], family: 4 | 6): string[] {
  return [...new Set(withoutContained(ofFamily(prefixes, family)).map(formatPrefix))].sort()
}
