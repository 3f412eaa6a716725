/**
 * Whose connection it is, by the source that a process sees: one of its own cluster, or one that came by a lane. Gateways
 * drop what comes out of a lane from any other source than the ranges of other clusters, so these are all there are. Pure.
 * docs/decisions/0040-status-pages.md
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

/** Cluster and Node objects, as each part of a member reads them. */
export interface MemberObjects {
  /** This cluster itself; undefined where it is no member, so that it has no lanes. */
  readonly own: Cluster | undefined
  readonly clusters: readonly Cluster[]
  readonly nodes: readonly Node[]
}

/**
 * Sources of what comes by the lanes of this cluster, disjoint. Its own pods and nodes are none of them, whatever others
 * claim. Throws InvalidAddressError for a Cluster object of its own that cannot be read.
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
 * The same for a process that belongs to no member and may run in one, as a broker does: `addresses` are its own. Lanes
 * lead to it only if one of them is among the pods of a member; those pods are its neighbours then. Members whose pods
 * have the same addresses are all of its neighbours: over a lane they come under others. A member whose ranges cannot be
 * read is passed over.
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
 * Whether one of them holds the address. Takes it as Node's sockets write it: with the interface of a link, and IPv4 as
 * part of IPv6. What is none is among none.
 */
export function isSourceAmong(prefixes: readonly Prefix[], source: string): boolean {
  const address = readSource(source)
  return address !== undefined && prefixes.some((prefix) => containsAddress(prefix, address))
}

/** Of two prefixes that hold an address the longer one counts, and of equal ones that of `own`. */
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
