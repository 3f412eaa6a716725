/**
 * Tells from the source address of a connection whether it comes from a process's own cluster or through a lane.
 * Gateways drop packets from a lane unless their source is in the ranges of other clusters, so these ranges are
 * complete. Pure. docs/decisions/0040-status-pages.md
 */
import {
  type Address,
  InvalidAddressError,
  type LabelledPrefix,
  type Prefix,
  addressBits,
  checkRemoteClusters,
  containsAddress,
  meantPrefixes,
  parseAddress,
  parsePrefix,
  prefixOf,
  routedPrefixes,
  underlayAddresses,
} from '../addresses/addresses.ts'
import { type Cluster, type ClusterSpec, LANE_ADDRESS_RANGE, type Node } from '../model.ts'

/** Cluster and Node objects, as each component of a member reads them. */
export interface MemberObjects {
  /** This cluster itself; undefined if it is not a member, so that it has no lanes. */
  readonly own: Cluster | undefined
  readonly clusters: readonly Cluster[]
  readonly nodes: readonly Node[]
}

/**
 * Returns the disjoint source ranges of packets from the lanes of this cluster. They exclude its own pods and nodes,
 * whatever other clusters claim. Throws InvalidAddressError if its own Cluster object cannot be parsed.
 */
export function laneSources({ own, clusters, nodes }: MemberObjects): readonly Prefix[] {
  if (own === undefined) return []
  const underlay = underlayAddresses(nodes)
  const remote = checkRemoteClusters({ own, clusters, underlay }).clusters.flatMap(({ prefixes }) => prefixes)
  return without(remote, [
    ...own.spec.podCIDRs.map((text) => parsePrefix(text)),
    ...underlay.map((text) => hostPrefix(parseAddress(text))),
  ])
}

type Ranges = Pick<ClusterSpec, 'podCIDRs' | 'globalCIDRs'>

/**
 * Like laneSources(), for a process that belongs to no member but may run in one, such as a broker. `addresses` are its
 * own. Lanes lead to it only if one of them is a pod address of a member; the pods of that member are then its
 * neighbours. If several members use the same pod addresses, the pods of all of them count as neighbours: through a
 * lane they have other addresses. A member whose ranges cannot be parsed is skipped.
 */
export function laneSourcesAt(addresses: readonly string[], members: readonly Ranges[]): readonly Prefix[] {
  const here = addresses.flatMap((text) => readSource(text) ?? [])
  const ranges = members.flatMap((member) => readRanges(member) ?? [])
  const own = ranges.filter(({ pods }) => here.some((address) => pods.some((one) => containsAddress(one, address))))
  if (own.length === 0) return []
  const remote = ranges.flatMap(({ routed }) => routed)
  return without(
    remote,
    own.flatMap(({ pods }) => pods),
  )
}

/**
 * Whether one of the prefixes contains the address. Takes it as Node's sockets write it: with the interface of a link,
 * and IPv4 in IPv6 form. False for a text that is not an address.
 */
export function isSourceAmong(prefixes: readonly Prefix[], source: string): boolean {
  const address = readSource(source)
  return address !== undefined && prefixes.some((prefix) => containsAddress(prefix, address))
}

/** The longest prefix that contains an address decides; of equal ones, that of `own`. */
function without(remote: readonly Prefix[], own: readonly Prefix[]): Prefix[] {
  const labelled =
    (meant: boolean) =>
    (prefix: Prefix): LabelledPrefix => ({ prefix, meant })
  const lanes = [...remote, parsePrefix(LANE_ADDRESS_RANGE)]
  return meantPrefixes([...lanes.map(labelled(true)), ...own.map(labelled(false))])
}

function readRanges(member: Ranges): { readonly pods: Prefix[]; readonly routed: Prefix[] } | undefined {
  return unlessInvalid(() => ({
    pods: member.podCIDRs.map((text) => parsePrefix(text)),
    routed: routedPrefixes(member),
  }))
}

function readSource(text: string): Address | undefined {
  const [bare = ''] = text.replace(/^::ffff:(?=\d+\.)/, '').split('%')
  return unlessInvalid(() => parseAddress(bare))
}

function unlessInvalid<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch (error) {
    if (error instanceof InvalidAddressError) return undefined
    throw error
  }
}

function hostPrefix(address: Address): Prefix {
  return prefixOf(address, addressBits(address.family))
}
