/**
 * Links, addresses, routes, rules, neighbours and forwarding entries of this network namespace, as plain data.
 * Drivers: rtnetlink.ts (npm netlink) and fake-route-table.ts. Compliance: test/compliance/route-table.ts.
 * Every item prints as the `ip` or `bridge` command that would make it: see format-ip.ts.
 */

export interface Link {
  readonly name: string
  readonly index: number
  /** 'vxlan', 'wireguard', 'tun', 'veth', 'bridge', … or '' for hardware. */
  readonly kind: string
  readonly mtu: number
  readonly up: boolean
  /** Lower-case colon form; '' where the link has none. */
  readonly mac: string
}

export type NewLink =
  | {
      readonly kind: 'vxlan'
      readonly name: string
      readonly vni: number
      readonly port: number
      /** Local underlay address. Learning is always off: entries are ours. */
      readonly local: string
      readonly mac: string
      readonly mtu: number
    }
  | { readonly kind: 'wireguard'; readonly name: string; readonly mtu: number }
  | { readonly kind: 'dummy' | 'bridge'; readonly name: string; readonly mtu: number }

/** Vxlan details of an existing link, to see whether it is what is desired. */
export interface VxlanLink extends Link {
  readonly kind: 'vxlan'
  readonly vni: number
  readonly port: number
  readonly local: string
}

export interface InterfaceAddress {
  readonly device: string
  /** address/length. */
  readonly address: string
}

export interface NewAddress extends InterfaceAddress {
  /** The kernel never takes it as the source of a packet. Absent: of the whole network. */
  readonly scope?: 'host'
}

export interface NextHop {
  readonly device: string
  /** Gateway address; absent for a route straight out of the device. */
  readonly via?: string
  readonly onlink?: boolean
  /** 1 to 256; multipath routes only. */
  readonly weight?: number
}

export interface Route {
  readonly table: number
  /** CIDR; its family is that of the route. 'default' is 0.0.0.0/0, for IPv6 ::/0. */
  readonly destination: string
  /** throw: the look-up goes on at the next rule, as if the table did not know the destination. */
  readonly type: 'unicast' | 'unreachable' | 'throw'
  /**
   * One or more for unicast (several make a multipath route), none for the others. Gateways are of the route's own
   * family. The kernel takes a multipath route of IPv6 only if each of its next hops has a gateway: for a device that
   * needs none, any link-local one with `onlink` will do. None, too, where `nextHopId` says where it goes.
   */
  readonly nextHops: readonly NextHop[]
  /**
   * Of unicast only: a next-hop object or group (nexthop/next-hop-table.ts) instead of next hops of its own. The route
   * goes with it, without a notification where it is IPv4.
   */
  readonly nextHopId?: number
  /** Absent: 0, for IPv6 1024, the kernel's own default (there is no 0); listed as absent. */
  readonly metric?: number
  readonly mtu?: number
  /** Preferred source address of packets made on this node. */
  readonly source?: string
}

/** A route of the main table that is not ours, as far as it shows where pods are. */
export interface MainRoute {
  /** CIDR. 'default' is 0.0.0.0/0, for IPv6 ::/0. */
  readonly destination: string
  readonly type: 'unicast' | 'blackhole' | 'other'
  /** Of the first next hop; absent where there is none. */
  readonly device?: string
  /** Gateway address of the first next hop; absent for a route straight out of the device. */
  readonly via?: string
}

export interface Rule {
  /** Absent: 4. Listed only where it is 6. */
  readonly family?: 4 | 6
  readonly priority: number
  readonly table: number
  /** Incoming device; absent matches all. */
  readonly inputDevice?: string
  /**
   * Packets that come in by this device do not match; `lo`: those that start on the node. Not with any other selector.
   */
  readonly exceptInputDevice?: string
  /** Address of the sender; absent matches all. */
  readonly source?: string
  /** Packets with this mark do not match; absent: the mark does not matter. */
  readonly exceptMark?: number
  /** What the table answers by its default route does not count (suppress_prefixlength 0); the next rule is asked. */
  readonly exceptDefault?: true
  /** Absent matches all. Not beside an exception; the ports only with it. From Linux 4.17. */
  readonly protocol?: 'tcp' | 'udp'
  /** 1 to 65535; absent matches all. */
  readonly sourcePort?: number
  readonly destinationPort?: number
}

export interface Neighbour {
  readonly device: string
  /** IPv4 or IPv6. */
  readonly address: string
  readonly mac: string
}

export interface ForwardingEntry {
  readonly device: string
  readonly mac: string
  /** Underlay address of the far VTEP. */
  readonly destination: string
}

/**
 * All calls throw KernelError. dump calls on routes and rules give only those with our protocol number
 * (kernel-ids.ts ROUTE_PROTOCOL), and add calls set it; the rest of the node's state is never listed or touched.
 */
export interface RouteTable {
  links(signal?: AbortSignal): Promise<readonly (Link | VxlanLink)[]>
  addLink(link: NewLink, signal?: AbortSignal): Promise<void>
  setLink(name: string, change: { readonly up?: boolean; readonly mtu?: number }, signal?: AbortSignal): Promise<void>
  deleteLink(name: string, signal?: AbortSignal): Promise<void>

  /** IPv4 and IPv6 addresses of all devices, but for those that the node may not use yet (tentative ones). */
  addresses(signal?: AbortSignal): Promise<readonly InterfaceAddress[]>
  addAddress(address: NewAddress, signal?: AbortSignal): Promise<void>
  deleteAddress(address: InterfaceAddress, signal?: AbortSignal): Promise<void>

  /** Ours only, of both families. */
  routes(signal?: AbortSignal): Promise<readonly Route[]>
  /** Adds, or replaces the route of equal table, destination and metric. */
  replaceRoute(route: Route, signal?: AbortSignal): Promise<void>
  deleteRoute(route: Route, signal?: AbortSignal): Promise<void>
  /** Routes of the main table that are not ours, of both families. */
  mainRoutes(signal?: AbortSignal): Promise<readonly MainRoute[]>
  /** What the kernel would do with a packet to `destination` that has the mark (0: none): `ip route get`. */
  lookup(
    destination: string,
    signal?: AbortSignal,
    mark?: number,
  ): Promise<{ readonly device: string; readonly source?: string; readonly mtu: number }>

  /** Ours only, of both families. */
  rules(signal?: AbortSignal): Promise<readonly Rule[]>
  addRule(rule: Rule, signal?: AbortSignal): Promise<void>
  deleteRule(rule: Rule, signal?: AbortSignal): Promise<void>

  /** Permanent entries of the named device, of both families. */
  neighbours(device: string, signal?: AbortSignal): Promise<readonly Neighbour[]>
  replaceNeighbour(neighbour: Neighbour, signal?: AbortSignal): Promise<void>
  deleteNeighbour(neighbour: Neighbour, signal?: AbortSignal): Promise<void>
  forwardingEntries(device: string, signal?: AbortSignal): Promise<readonly ForwardingEntry[]>
  replaceForwardingEntry(entry: ForwardingEntry, signal?: AbortSignal): Promise<void>
  deleteForwardingEntry(entry: ForwardingEntry, signal?: AbortSignal): Promise<void>

  /**
   * Calls back (coalesced) when links, addresses, routes, rules or next-hop objects change, by anyone; also neighbours
   * and forwarding entries of devices that were asked for theirs.
   */
  onChange(listener: () => void): () => void
  close(): void
}
