/**
 * Links, addresses, neighbours and forwarding entries of the fake route table: the present state, and what the kernel
 * refuses.
 */
import {
  type Family,
  addressBits,
  classifyAddress,
  containsAddress,
  familyOf,
  parseAddress,
  parsePrefix,
  prefixOf,
} from '../../model/addresses/addresses.ts'
import { IPV6_MIN_MTU } from '../../model/model.ts'
import { KernelError } from '../kernel.ts'
import {
  type ForwardingEntry,
  type InterfaceAddress,
  type Link,
  type MainRoute,
  type Neighbour,
  type NewAddress,
  type NewLink,
  type NextHopFeatures,
  type Route,
  type Rule,
  type VxlanLink,
  checkDeviceName,
  checkInterfaceAddress,
  checkMac,
  formatAddress,
  formatForwardingEntry,
  formatLink,
  formatLinkChange,
  formatNeighbour,
  normalRoute,
  refuseInvalid,
  routeMetric,
  usualAddress,
  usualInterfaceAddress,
} from '../route/route.ts'

export interface FakeNode {
  /** Devices that exist from the start and are not ours. */
  readonly links?: readonly {
    readonly name: string
    readonly mtu?: number
    readonly kind?: string
    readonly mac?: string
  }[]
  readonly addresses?: readonly InterfaceAddress[]
  /** Routes of other programs in the main table. */
  readonly mainRoutes?: readonly MainRoute[]
  /** Which next-hop features the kernel of the node supports; default: all. */
  readonly nextHopFeatures?: NextHopFeatures
  /**
   * The device of packets that match no rule and no connected network. IPv6 packets use it only if it has an IPv6
   * address.
   */
  readonly defaultDevice?: string
}

interface LinkEntry {
  link: Link | VxlanLink
  readonly made: NewLink | undefined
}

export class FakeLinks {
  readonly #links = new Map<string, LinkEntry>()
  readonly #addresses = new Map<string, InterfaceAddress>()
  readonly #foreign = new Set<string>()
  #nextIndex = 1

  constructor(node: FakeNode) {
    this.put({ name: 'lo', kind: '', mtu: 65_536, up: true, mac: '' })
    for (const { name, mtu = 1500, kind = '', mac = '' } of node.links ?? [])
      this.put({ name, kind, mtu, up: true, mac })
    for (const address of (node.addresses ?? []).map(usual)) {
      this.#addresses.set(addressKey(address), address)
      this.#foreign.add(addressKey(address))
    }
  }

  list(): readonly (Link | VxlanLink)[] {
    return [...this.#links.values()].map((entry) => entry.link)
  }

  addresses(): readonly InterfaceAddress[] {
    return [...this.#addresses.values()]
  }

  find(name: string): Link | VxlanLink | undefined {
    return this.#links.get(name)?.link
  }

  need(name: string, operation: string): Link | VxlanLink {
    return this.#entry(name, operation).link
  }

  needUp(name: string, operation: string): void {
    if (!this.need(name, operation).up) throw new KernelError('ENETDOWN', operation, `${name} is down`)
  }

  /** True if the device carries packets of the family. */
  carries(name: string, family: Family): boolean {
    const link = this.find(name)
    return link?.up === true && (family === 4 || link.mtu >= IPV6_MIN_MTU)
  }

  /** Throws ENETDOWN if the device is down, ENODEV if it has no IPv6. */
  needCarries(name: string, family: Family, operation: string): void {
    this.needUp(name, operation)
    if (!this.carries(name, family)) throw new KernelError('ENODEV', operation, `the MTU of ${name} is too small`)
  }

  /** Adds a device as given. Pass `made` if toString() has to print it. */
  put(link: Omit<Link, 'index'> | Omit<VxlanLink, 'index'>, made?: NewLink): void {
    this.#links.set(link.name, { link: { ...link, index: this.#nextIndex++ }, made })
  }

  add(link: NewLink): void {
    const operation = formatLink(link)
    checkDeviceName(link.name, operation)
    if (this.#links.has(link.name)) throw new KernelError('EEXIST', operation, 'the device exists')
    const plain = { name: link.name, kind: link.kind, mtu: link.mtu, up: false }
    if (link.kind !== 'vxlan') {
      this.put({ ...plain, mac: link.kind === 'wireguard' ? '' : '02:00:00:00:00:01' }, link)
      return
    }
    checkMac(link.mac, operation)
    refuseInvalid(operation, () => parseAddress(link.local, 'local'))
    const taken = [...this.#links.values()].find(
      ({ made }) => made?.kind === 'vxlan' && made.vni === link.vni && made.port === link.port,
    )
    if (taken !== undefined) throw new KernelError('EEXIST', operation, `${taken.link.name} has this VNI and port`)
    this.put({ ...plain, kind: 'vxlan', mac: link.mac, vni: link.vni, port: link.port, local: link.local }, link)
  }

  change(name: string, change: { readonly up?: boolean; readonly mtu?: number }): void {
    const entry = this.#entry(name, formatLinkChange(name, change))
    const stops = entry.link.up && change.up === false
    entry.link = { ...entry.link, ...change }
    if (stops || entry.link.mtu < IPV6_MIN_MTU) this.#dropAddresses(name, 6)
  }

  delete(name: string, operation: string): void {
    this.need(name, operation)
    this.#links.delete(name)
    this.#dropAddresses(name)
  }

  addAddress(wanted: NewAddress): void {
    const operation = formatAddress(wanted)
    checkInterfaceAddress(wanted, operation)
    const address = usual(wanted)
    const { mtu } = this.need(address.device, operation)
    if (familyOf(address.address) === 6 && mtu < IPV6_MIN_MTU) {
      throw new KernelError('EINVAL', operation, `the MTU of ${address.device} is too small`)
    }
    if (this.#addresses.has(addressKey(address))) throw new KernelError('EEXIST', operation, 'the address exists')
    this.#addresses.set(addressKey(address), address)
  }

  deleteAddress(address: InterfaceAddress, operation: string): void {
    checkInterfaceAddress(address, operation)
    this.need(address.device, operation)
    if (this.#addresses.delete(addressKey(usual(address)))) return
    throw new KernelError('EADDRNOTAVAIL', operation, 'no such address')
  }

  /** Returns the first address of the device in the family, without its prefix length. */
  addressOf(device: string, family: Family): string | undefined {
    return this.addresses()
      .find((entry) => entry.device === device && familyOf(entry.address) === family)
      ?.address.split('/')[0]
  }

  /**
   * Returns the source address of packets that leave through the device if no route names one. IPv6 takes any global
   * address.
   */
  sourceOn(device: string, family: Family): string | undefined {
    const own = this.addressOf(device, family)
    if (family === 4) return own
    const global = this.addresses()
      .filter((entry) => familyOf(entry.address) === 6 && isGlobal(entry))
      .sort((a, b) => Number(b.device === device) - Number(a.device === device))
    return global[0]?.address.split('/')[0] ?? own
  }

  isLocal(address: string): boolean {
    return this.addresses().some((entry) => entry.address.startsWith(`${usualAddress(address)}/`))
  }

  /** Returns our links and addresses as commands. A device that is up needs a second command. */
  commands(): readonly string[] {
    const links = [...this.#links.values()].flatMap(({ link, made }) => {
      if (made === undefined) return []
      const add = formatLink({ ...made, mtu: link.mtu })
      return link.up ? [add, formatLinkChange(link.name, { up: true })] : [add]
    })
    const ours = [...this.#addresses].filter(([key]) => !this.#foreign.has(key))
    return [...links, ...ours.map(([, address]) => formatAddress(address))]
  }

  #dropAddresses(device: string, family?: Family): void {
    for (const [key, entry] of this.#addresses) {
      if (entry.device !== device || (family !== undefined && familyOf(entry.address) !== family)) continue
      this.#addresses.delete(key)
    }
  }

  #entry(name: string, operation: string): LinkEntry {
    const entry = this.#links.get(name)
    if (entry === undefined) throw new KernelError('ENODEV', operation, `no device ${name}`)
    return entry
  }
}

function usual({ device, address }: InterfaceAddress): InterfaceAddress {
  return { device, address: usualInterfaceAddress(address) }
}

function isGlobal({ address }: InterfaceAddress): boolean {
  return classifyAddress(parseAddress(address.split('/')[0] ?? '')) === 'usable'
}

function addressKey(address: InterfaceAddress): string {
  return `${address.device}|${address.address}`
}

/** Neighbours and forwarding entries of the fake route table: the present state, and what the kernel refuses. */
export class FakeNeighbours {
  readonly #links: FakeLinks
  readonly #neighbours = new Map<string, Neighbour>()
  readonly #entries = new Map<string, ForwardingEntry>()

  constructor(links: FakeLinks) {
    this.#links = links
  }

  listOf(device: string, operation: string): readonly Neighbour[] {
    this.#links.need(device, operation)
    return [...this.#neighbours.values()].filter((entry) => entry.device === device)
  }

  replace(neighbour: Neighbour, operation: string): void {
    checkMac(neighbour.mac, operation)
    refuseInvalid(operation, () => parseAddress(neighbour.address))
    const { device } = neighbour
    const address = usualAddress(neighbour.address)
    this.#links.needUp(device, operation)
    if (!this.#links.carries(device, familyOf(address))) {
      throw new KernelError('EINVAL', operation, `the MTU of ${device} is too small`)
    }
    this.#neighbours.set(`${device}|${address}`, { ...neighbour, address })
  }

  delete({ device, address }: Neighbour, operation: string): void {
    refuseInvalid(operation, () => parseAddress(address))
    this.#links.need(device, operation)
    if (this.#neighbours.delete(`${device}|${usualAddress(address)}`)) return
    throw new KernelError('ENOENT', operation, 'no such neighbour')
  }

  entriesOf(device: string, operation: string): readonly ForwardingEntry[] {
    this.#links.need(device, operation)
    return [...this.#entries.values()].filter((entry) => entry.device === device)
  }

  replaceEntry(entry: ForwardingEntry, operation: string): void {
    checkMac(entry.mac, operation)
    refuseInvalid(operation, () => parseAddress(entry.destination))
    if (this.#links.need(entry.device, operation).kind !== 'vxlan') {
      throw new KernelError('EOPNOTSUPP', operation, 'not a vxlan device')
    }
    this.#entries.set(`${entry.device}|${entry.mac}`, entry)
  }

  deleteEntry({ device, mac, destination }: ForwardingEntry, operation: string): void {
    this.#links.need(device, operation)
    const present = this.#entries.get(`${device}|${mac}`)
    if (present?.destination !== destination) throw new KernelError('ENOENT', operation, 'no such entry')
    this.#entries.delete(`${device}|${mac}`)
  }

  /** Removes the neighbours of a device that has stopped, or that no longer carries the family. */
  forget(device: string, family: Family): void {
    for (const [key, entry] of this.#neighbours) {
      if (entry.device === device && familyOf(entry.address) === family) this.#neighbours.delete(key)
    }
  }

  /** Removes the forwarding entries of a device that has been removed. */
  forgetEntries(device: string): void {
    for (const [key, entry] of this.#entries) if (entry.device === device) this.#entries.delete(key)
  }

  commands(): readonly string[] {
    return [
      ...[...this.#neighbours.values()].map(formatNeighbour),
      ...[...this.#entries.values()].map(formatForwardingEntry),
    ]
  }
}

// Stateless checks and look-ups of the fake route table.

export function routeKey(route: Route): string {
  return `${route.table}|${normalRoute(route).destination}|${routeMetric(route)}`
}

export function ruleKey(rule: Rule): string {
  return `${rule.family ?? 4}|${rule.priority}|${rule.inputDevice ?? ''}|${rule.table}|${rule.exceptMark ?? ''}|${rule.exceptInputDevice ?? ''}|${rule.source ?? ''}|${rule.protocol ?? ''}|${rule.sourcePort ?? ''}|${rule.destinationPort ?? ''}|${rule.destination ?? ''}|${rule.withoutMark ?? ''}|${rule.action ?? ''}`
}

/** True if `address` is in the network of one of the addresses of the device. Every device reaches link-local IPv6. */
function isConnected(addresses: readonly InterfaceAddress[], device: string, address: string): boolean {
  const wanted = parseAddress(address)
  if (wanted.family === 6 && classifyAddress(wanted) === 'linkLocal') return true
  return addresses.some((entry) => entry.device === device && containsAddress(networkOf(entry.address), wanted))
}

/** Throws KernelError if no network of the device contains the gateway. */
export function needReach(
  addresses: readonly InterfaceAddress[],
  device: string,
  via: string,
  operation: string,
): void {
  if (isConnected(addresses, device, via)) return
  const code = parseAddress(via).family === 4 ? 'ENETUNREACH' : 'EHOSTUNREACH'
  throw new KernelError(code, operation, `no address of ${device} reaches ${via}`)
}

/** Returns the address whose connected network contains the destination, with the longest prefix. */
export function connectedDevice(
  addresses: readonly InterfaceAddress[],
  destination: string,
): InterfaceAddress | undefined {
  const wanted = parseAddress(destination)
  return addresses
    .filter((entry) => containsAddress(networkOf(entry.address), wanted))
    .sort((a, b) => networkOf(b.address).length - networkOf(a.address).length)[0]
}

/** Returns the route of a table with the longest prefix, then the lowest metric. */
export function bestRoute(routes: readonly Route[], table: number, destination: string): Route | undefined {
  const wanted = parseAddress(destination)
  return routes
    .filter((route) => route.table === table && containsAddress(parsePrefix(route.destination), wanted))
    .sort(
      (a, b) =>
        parsePrefix(b.destination).length - parsePrefix(a.destination).length || routeMetric(a) - routeMetric(b),
    )[0]
}

function networkOf(address: string): ReturnType<typeof prefixOf> {
  const [host = '', length] = address.split('/')
  const parsed = parseAddress(host)
  return prefixOf(parsed, Number(length ?? addressBits(parsed.family)))
}
