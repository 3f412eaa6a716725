/**
 * Which pods are on this machine, read from its kernel: for CNIs that keep books of their own about who has which
 * range, and where Node.spec says nothing or something else. Pure.
 *
 * | CNI | what the kernel shows |
 * |---|---|
 * | Calico | `blackhole 10.42.5.0/26` for each block of the node, `10.42.5.7 dev cali…` for each pod |
 * | Cilium | `10.0.1.0/24 via 10.0.1.125 dev cilium_host`, where the gateway is the device's own address |
 * | addresses of a cloud | `10.1.3.9 dev eni…`, `dev azv…`, `dev lxc…` for each pod |
 * | a bridge or Open vSwitch (Flannel, kube-router, Antrea, OVN-Kubernetes) | the network of the device |
 */
import {
  type Prefix,
  addressBits,
  containsAddress,
  containsPrefix,
  parseAddress,
  parsePrefix,
  prefixOf,
} from '../../model/addresses/ip.ts'
import { comparePrefixes, isInside } from '../../model/addresses/prefix-set.ts'
import type { InterfaceAddress, Link, MainRoute } from '../../kernel/route/route-table.ts'

export interface KernelRangesInit {
  readonly links: readonly Link[]
  readonly addresses: readonly InterfaceAddress[]
  readonly mainRoutes: readonly MainRoute[]
  /** Pod CIDRs of the cluster; what is not of their family is not looked at. */
  readonly podCIDRs: readonly Prefix[]
  /** Device that has the node's InternalIP. */
  readonly underlay: string
}

/** All sorted, each prefix once, and inside the cluster's pod CIDRs. */
export interface KernelRanges {
  /** Networks that the CNI gave to this node. */
  readonly networks: readonly Prefix[]
  /** Single pods. */
  readonly pods: readonly Prefix[]
  /** Addresses that the machine itself has. */
  readonly addresses: readonly Prefix[]
}

/** Devices of one pod each. */
const POD_DEVICES: ReadonlySet<string> = new Set(['veth', 'netkit'])
/** Devices that pods hang on together. */
const SWITCH_DEVICES: ReadonlySet<string> = new Set(['bridge', 'openvswitch'])

export function planLocalRanges(init: KernelRangesInit): KernelRanges {
  const { podCIDRs, mainRoutes } = init
  const kinds = new Map(init.links.map((link) => [link.name, link.kind]))
  // What leads out of the node is no pod, even if it looks like one (a cloud's router is `10.1.0.1 dev eth0`).
  const outside = new Set([init.underlay])
  for (const { destination, device } of mainRoutes) if (isDefault(destination) && device) outside.add(device)
  const networks: Prefix[] = []
  const pods: Prefix[] = []
  for (const route of mainRoutes.filter(({ destination }) => !isDefault(destination))) {
    const prefix = parsePrefix(route.destination)
    if (route.type === 'blackhole') {
      // A block that is this node's; a whole pod CIDR that is blocked says nothing about one node.
      networks.push(...within(prefix, podCIDRs).filter((p) => podCIDRs.every((cidr) => p.length > cidr.length)))
      continue
    }
    const { device } = route
    if (route.type !== 'unicast' || device === undefined || outside.has(device)) continue
    const own = addressesOf(init, device)
    const isSwitch = SWITCH_DEVICES.has(kinds.get(device) ?? '')
    if (route.via !== undefined) {
      const throughItself = own.includes(route.via) && containsAddress(prefix, parseAddress(route.via))
      if (throughItself) networks.push(...within(prefix, podCIDRs))
    } else if (prefix.length === addressBits(prefix.family)) {
      if (POD_DEVICES.has(kinds.get(device) ?? '') || isSwitch) pods.push(...within(prefix, podCIDRs))
    } else if (isSwitch && own.some((text) => containsAddress(prefix, parseAddress(text)))) {
      networks.push(...within(prefix, podCIDRs))
    }
  }
  const addresses = init.addresses
    .map((entry) => parseAddress(hostOf(entry)))
    .flatMap((address) => within(prefixOf(address, addressBits(address.family)), podCIDRs))
  return { networks: distinct(networks), pods: distinct(pods), addresses: distinct(addresses) }
}

/** The part of the prefix that lies inside the pod CIDRs. */
function within(prefix: Prefix, podCIDRs: readonly Prefix[]): Prefix[] {
  if (isInside(prefix, podCIDRs)) return [prefix]
  return podCIDRs.filter((cidr) => containsPrefix(prefix, cidr))
}

function addressesOf({ addresses }: KernelRangesInit, device: string): string[] {
  return addresses.filter((entry) => entry.device === device).map(hostOf)
}

function hostOf(entry: InterfaceAddress): string {
  return entry.address.split('/')[0] ?? ''
}

function isDefault(destination: string): boolean {
  return destination.endsWith('/0')
}

function distinct(prefixes: readonly Prefix[]): Prefix[] {
  const sorted = [...prefixes].sort(comparePrefixes)
  return sorted.filter((prefix, i) => i === 0 || comparePrefixes(prefix, sorted[i - 1] as Prefix) !== 0)
}
