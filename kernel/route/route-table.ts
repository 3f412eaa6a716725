/**
 * The interface to links, addresses, routes, rules, neighbours and forwarding entries of this network namespace, as
 * plain data.
 * Drivers: rtnetlink.ts (npm netlink) and fake-route-table.ts. Compliance: test/compliance/route-table.ts.
 * Each item is formatted as the `ip` or `bridge` command that would create it: see format-ip.ts.
 */

export interface Link {
  readonly name: string
  readonly index: number
  /** 'vxlan', 'wireguard', 'tun', 'veth', 'bridge', … or '' for hardware. */
  readonly kind: string
  readonly mtu: number
  readonly up: boolean
  /** In lower case with colons. '' if the link has none. */
  readonly mac: string
}

export type NewLink =
  | {
      readonly kind: 'vxlan'
      readonly name: string
      readonly vni: number
      readonly port: number
      /** Local underlay address. Learning is always off: all forwarding entries are ours. */
      readonly local: string
      readonly mac: string
      readonly mtu: number
    }
  | { readonly kind: 'wireguard'; readonly name: string; readonly mtu: number }
  | { readonly kind: 'dummy' | 'bridge'; readonly name: string; readonly mtu: number }

/** Vxlan details of an existing link, to compare it with the desired one. */
export interface VxlanLink extends Link {
  readonly kind: 'vxlan'
  readonly vni: number
  readonly port: number
  readonly local: string
}

export interface InterfaceAddress {
  readonly device: string
  /** In the form address/length. */
  readonly address: string
}

export interface NewAddress extends InterfaceAddress {
  /** With host scope, the kernel never uses the address as a source. Absent: global scope. */
  readonly scope?: 'host'
}

export interface NextHop {
  readonly device: string
  /** Gateway address. Absent for a directly connected device. */
  readonly via?: string
  readonly onlink?: boolean
  /** 1 to 256; for multipath routes only. */
  readonly weight?: number
}

export interface Route {
  readonly table: number
  /** A CIDR; its family is the family of the route. The default route is 0.0.0.0/0, for IPv6 ::/0. */
  readonly destination: string
  /** throw: the look-up continues with the next rule, as if the table had no route to the destination. */
  readonly type: 'unicast' | 'unreachable' | 'throw'
  /**
   * One or more for unicast (several make a multipath route), none for other types or with `nextHopId`. Gateways have
   * the family of the route. The kernel accepts a multipath IPv6 route only if each next hop has a gateway; for a
   * device that needs none, use any link-local address with `onlink`.
   */
  readonly nextHops: readonly NextHop[]
  /**
   * For unicast only: a next-hop object or group (next-hop-table.ts) instead of `nextHops`. The kernel removes the
   * route together with that object, without a notification for IPv4.
   */
  readonly nextHopId?: number
  /** Defaults to 0, or 1024 for IPv6, which has no 0. The default is listed as absent. */
  readonly metric?: number
  readonly mtu?: number
  /** Preferred source address of packets from this node. */
  readonly source?: string
}

/** A route of the main table that is not ours, with the fields that show where pods are. */
export interface MainRoute {
  /** A CIDR. The default route is 0.0.0.0/0, for IPv6 ::/0. */
  readonly destination: string
  readonly type: 'unicast' | 'blackhole' | 'other'
  /** Device of the first next hop. Absent if there is none. */
  readonly device?: string
  /** Gateway address of the first next hop. Absent for a directly connected device. */
  readonly via?: string
}

export interface Rule {
  /** Defaults to 4. Listed only if 6. */
  readonly family?: 4 | 6
  readonly priority: number
  /** 0 with an action, and only then. */
  readonly table: number
  /** Drops the packet without an answer. If absent, the table is looked up. */
  readonly action?: 'blackhole'
  /** Incoming device. If absent, all match. */
  readonly inputDevice?: string
  /**
   * Packets from this device do not match; `lo` means packets from the node itself. No other selector is allowed with
   * it.
   */
  readonly exceptInputDevice?: string
  /** Source address. If absent, all match. */
  readonly source?: string
  /** A CIDR of destinations. If absent, all match. */
  readonly destination?: string
  /** Only packets whose mark has none of these bits match. If absent, the mark has no effect. */
  readonly withoutMark?: number
  /** Packets with this mark do not match. If absent, the mark has no effect. No other selector is allowed with it. */
  readonly exceptMark?: number
  /** Ignores the default route of the table (suppress_prefixlength 0): the look-up continues with the next rule. */
  readonly exceptDefault?: true
  /** If absent, all match. Not allowed with an exception. Required by the ports. Since Linux 4.17. */
  readonly protocol?: 'tcp' | 'udp'
  /** 1 to 65535. If absent, all match. */
  readonly sourcePort?: number
  readonly destinationPort?: number
}

export interface Neighbour {
  readonly device: string
  /** An IPv4 or IPv6 address. */
  readonly address: string
  readonly mac: string
}

export interface ForwardingEntry {
  readonly device: string
  readonly mac: string
  /** Underlay address of the remote VTEP. */
  readonly destination: string
}

/**
 * All calls throw KernelError. Listings of routes and rules contain only those with our protocol number
 * (model/kernel-ids.ts ROUTE_PROTOCOL), and additions set it. Other routes and rules of the node are never changed.
 */
export interface RouteTable {
  links(signal?: AbortSignal): Promise<readonly (Link | VxlanLink)[]>
  addLink(link: NewLink, signal?: AbortSignal): Promise<void>
  setLink(name: string, change: { readonly up?: boolean; readonly mtu?: number }, signal?: AbortSignal): Promise<void>
  deleteLink(name: string, signal?: AbortSignal): Promise<void>

  /** Returns the IPv4 and IPv6 addresses of all devices, except tentative ones, which the node may not use yet. */
  addresses(signal?: AbortSignal): Promise<readonly InterfaceAddress[]>
  addAddress(address: NewAddress, signal?: AbortSignal): Promise<void>
  deleteAddress(address: InterfaceAddress, signal?: AbortSignal): Promise<void>

  /** Returns only our routes, of both families. */
  routes(signal?: AbortSignal): Promise<readonly Route[]>
  /** Adds a route, or replaces the route with the same table, destination and metric. */
  replaceRoute(route: Route, signal?: AbortSignal): Promise<void>
  deleteRoute(route: Route, signal?: AbortSignal): Promise<void>
  /** Returns the routes of the main table that are not ours, of both families. */
  mainRoutes(signal?: AbortSignal): Promise<readonly MainRoute[]>
  /** Returns how the kernel would send a packet to `destination` with the mark (0: none): `ip route get`. */
  lookup(
    destination: string,
    signal?: AbortSignal,
    mark?: number,
  ): Promise<{ readonly device: string; readonly source?: string; readonly mtu: number }>

  /** Returns only our rules, of both families. */
  rules(signal?: AbortSignal): Promise<readonly Rule[]>
  addRule(rule: Rule, signal?: AbortSignal): Promise<void>
  deleteRule(rule: Rule, signal?: AbortSignal): Promise<void>

  /** Returns the permanent entries of the device, of both families. */
  neighbours(device: string, signal?: AbortSignal): Promise<readonly Neighbour[]>
  replaceNeighbour(neighbour: Neighbour, signal?: AbortSignal): Promise<void>
  deleteNeighbour(neighbour: Neighbour, signal?: AbortSignal): Promise<void>
  forwardingEntries(device: string, signal?: AbortSignal): Promise<readonly ForwardingEntry[]>
  replaceForwardingEntry(entry: ForwardingEntry, signal?: AbortSignal): Promise<void>
  deleteForwardingEntry(entry: ForwardingEntry, signal?: AbortSignal): Promise<void>

  /**
   * Calls `listener` (coalesced) when any program changes links, addresses, routes, rules or next-hop objects, and also
   * neighbours and forwarding entries of devices for which these have been listed.
   */
  onChange(listener: () => void): () => void
  close(): void
}
