/**
 * What may be concluded from the address that the broker saw a cluster call from. Something on the way may have written
 * its own there: a kube-proxy, a load balancer, a bridge. So it counts only where nothing speaks against it; what cannot
 * be judged does not count. Pure.
 */
import {
  type Prefix,
  classifyAddress,
  containsAddress,
  formatAddress,
  parseAddress,
  parsePrefix,
  prefixOf,
} from '../model/ip.ts'
import { DEFAULT_GLOBAL_RANGE } from '../model/kernel-ids.ts'
import { reservedPrefixes } from '../model/remote-clusters.ts'
import type { GatewayWorld } from './world.ts'

type View = Pick<GatewayWorld, 'observedAddress' | 'own' | 'clusters' | 'endpoints' | 'nodes' | 'addresses'>

/**
 * The observed address of this cluster as it is told to the others; undefined where it does not count. What the others
 * tell as their observed address has no say here: else two clusters seen under one address would take theirs back and
 * tell it again in turn.
 */
export function ownObservedAddress(world: View): string | undefined {
  const { observedAddress: text } = world
  if (text === undefined || isInside(text, rangesOfMembers(world))) return undefined
  if (hasAddress(world, text)) return text
  const neighbours = world.addresses.flatMap(({ address }) => networkOf(address))
  if (isInside(text, neighbours) || ownAddresses(world).has(text)) return undefined
  return isToldElsewhere(toldAddresses(world).nodes, text, world.own.spec.id) ? undefined : text
}

/**
 * True where the broker saw this cluster under an address that counts, that no other cluster is seen under, and that
 * this node does not have.
 */
export function isBehindNat(world: View): boolean {
  const text = ownObservedAddress(world)
  if (text === undefined || hasAddress(world, text)) return false
  return !isToldElsewhere(toldAddresses(world).observed, text, world.own.spec.id)
}

/** Whether the observed address that a gateway of `cluster` tells counts here too. To be made once for all of them. */
export function observedJudge(world: View): (text: string, cluster: string) => boolean {
  const ranges = rangesOfMembers(world)
  const ours = new Set([...ownAddresses(world), ownObservedAddress(world)])
  const { nodes, observed } = toldAddresses(world)
  return (text, cluster) =>
    !isInside(text, ranges) &&
    !ours.has(text) &&
    !isToldElsewhere(nodes, text, cluster) &&
    !isToldElsewhere(observed, text, cluster)
}

/** Addresses of this node's interfaces, and of every type of this cluster's nodes. */
export function ownAddresses({ nodes, addresses }: Pick<View, 'nodes' | 'addresses'>): ReadonlySet<string> {
  const told = nodes.flatMap((node) => node.status?.addresses ?? []).map(({ address }) => address)
  return new Set([...told, ...addresses.map(({ address }) => address.split('/')[0] ?? '')])
}

/** Whether an interface of this node has the address. */
export function hasAddress({ addresses }: Pick<View, 'addresses'>, text: string): boolean {
  return addresses.some(({ address }) => address.split('/')[0] === text)
}

/** Clusters by the addresses that their Endpoints tell. */
type Tellers = ReadonlyMap<string, ReadonlySet<string>>

function toldAddresses({ endpoints }: Pick<View, 'endpoints'>): {
  readonly nodes: Tellers
  readonly observed: Tellers
} {
  const nodes = new Map<string, Set<string>>()
  const observed = new Map<string, Set<string>>()
  for (const { spec } of endpoints) {
    for (const { kind, address } of spec.candidates) {
      const tellers = kind === 'observed' ? observed : nodes
      tellers.set(address, (tellers.get(address) ?? new Set()).add(spec.cluster))
    }
  }
  return { nodes, observed }
}

function isToldElsewhere(tellers: Tellers, text: string, cluster: string): boolean {
  return [...(tellers.get(text) ?? [])].some((teller) => teller !== cluster)
}

/** Pods, Services and global addresses of all members, and what is nobody's. */
function rangesOfMembers({ own, clusters }: Pick<View, 'own' | 'clusters'>): Prefix[] {
  const claimed = [own, ...clusters].flatMap(({ spec }) => [spec.podCIDRs, spec.serviceCIDRs, spec.globalCIDRs].flat())
  const told = [...new Set([...claimed, DEFAULT_GLOBAL_RANGE])].flatMap((text) => readable(() => parsePrefix(text)))
  return [...told, ...reservedPrefixes(own.spec).map(({ prefix }) => prefix)]
}

/** The network that an interface's address, such as 192.0.2.10/24, is in. */
function networkOf(text: string): Prefix[] {
  const [address = '', length = ''] = text.split('/')
  return length === '' ? [] : readable(() => prefixOf(parseAddress(address), Number(length)))
}

/** True also of what is no IPv4 address that a gateway could be called at. */
function isInside(text: string, ranges: readonly Prefix[]): boolean {
  const [address] = readable(() => parseAddress(text))
  if (address === undefined || address.family !== 4 || classifyAddress(address) !== 'usable') return true
  return formatAddress(address) !== text || ranges.some((prefix) => containsAddress(prefix, address))
}

/** Nothing where it cannot be read: that is refused where it is used. */
function readable<T>(read: () => T): T[] {
  try {
    return [read()]
  } catch {
    return []
  }
}
