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
import { type Family, type Prefix, formatPrefix, ofFamily, withoutContained } from '../../model/addresses/addresses.ts'
import { ADMITTED_MARK } from '../../model/model.ts'

/** Each policy costs memory of the kernel. A larger clusterset has no policies, which is reported. */
export const MAX_FORWARD_POLICIES = 8192
/**
 * The kernel (since Linux 5.0) finds a policy in trees by its longer prefixes. A prefix shorter than this
 * (INEXACT_PREFIXLEN_IPV4, _IPV6) is in no tree: a policy with two of them is in a list that all packets share, and one
 * with a single one is in a list of the other prefix. The node compares the policies of a list one after the other, for
 * each packet that it forwards: at an estimated 2 to 5 ns, three policies for each of 64 pairs take 0.4 to 1 µs.
 */
const SHORTER_THAN: Readonly<Record<Family, number>> = { 4: 16, 6: 48 }
export const MAX_COMPARED_PAIRS = 64

export interface ForwardPoliciesInit {
  /** Prefixes of the other clusters, of both families. */
  readonly remote: readonly Prefix[]
  /** Pod CIDRs of this cluster, of both families. */
  readonly pods: readonly Prefix[]
  /** On a gateway: the number of its overlay device, if that exists. */
  readonly overlayIndex: number | undefined
}

export interface ForwardPoliciesPlan {
  /** What is admitted comes first. */
  readonly policies: readonly ForwardPolicy[]
  /** Why there are none, or none of a family. Empty if there are all. */
  readonly leftOut: readonly string[]
}

export const NO_FORWARD_POLICIES: ForwardPoliciesPlan = { policies: [], leftOut: [] }

interface Pair {
  readonly source: string
  readonly destination: string
}

export function planForwardPolicies({ remote, pods, overlayIndex }: ForwardPoliciesInit): ForwardPoliciesPlan {
  const families = ([4, 6] as const).map((family) => pairsOf(family, remote, pods))
  const pairs = families.flatMap((one) => one.pairs)
  const policies = [
    ...pairs.map((pair): ForwardPolicy => ({ ...pair, action: 'allow', mark: ADMITTED_MARK })),
    ...(overlayIndex === undefined
      ? []
      : pairs.map((pair): ForwardPolicy => ({ ...pair, action: 'allow', outputIndex: overlayIndex }))),
    ...pairs.map((pair): ForwardPolicy => ({ ...pair, action: 'block' })),
  ]
  const leftOut = families.flatMap((one) => one.leftOut)
  if (policies.length <= MAX_FORWARD_POLICIES) return { policies, leftOut }
  const why = `the members' prefixes give more than ${MAX_FORWARD_POLICIES} XFRM policies`
  return { policies: [], leftOut: [...leftOut, why] }
}

/** The pairs of one family. None if each packet would be compared with too many of them. */
function pairsOf(
  family: Family,
  remote: readonly Prefix[],
  pods: readonly Prefix[],
): { readonly pairs: readonly Pair[]; readonly leftOut: readonly string[] } {
  const [sources, destinations] = [distinct(remote, family), distinct(pods, family)]
  const compared = comparedPairs(sources, destinations, SHORTER_THAN[family])
  if (compared > MAX_COMPARED_PAIRS) {
    const what = `each packet would be compared with ${compared} pairs of a member and pod CIDRs`
    const why = `because of prefixes shorter than /${SHORTER_THAN[family]}`
    return { pairs: [], leftOut: [`IPv${family}: ${what}, ${why}: expected at most ${MAX_COMPARED_PAIRS}`] }
  }
  const from = sources.map(formatPrefix).sort()
  const to = destinations.map(formatPrefix).sort()
  return { pairs: to.flatMap((destination) => from.map((source) => ({ source, destination }))), leftOut: [] }
}

/** The most pairs that the kernel compares with one packet. */
function comparedPairs(sources: readonly Prefix[], destinations: readonly Prefix[], longFrom: number): number {
  const shortOf = (prefixes: readonly Prefix[]): number => prefixes.filter(({ length }) => length < longFrom).length
  const [shortSources, shortDestinations] = [shortOf(sources), shortOf(destinations)]
  const ofDestination = shortDestinations < destinations.length ? shortSources : 0
  const ofSource = shortSources < sources.length ? shortDestinations : 0
  return shortSources * shortDestinations + ofDestination + ofSource
}

function distinct(prefixes: readonly Prefix[], family: Family): Prefix[] {
  const found = withoutContained(ofFamily(prefixes, family))
  return [...new Map(found.map((prefix) => [formatPrefix(prefix), prefix])).values()]
}
