/** Links and addresses of the fake route table: what is there, and what the kernel refuses about them. */
import { classifyAddress, familyOf, parseAddress, type Family } from '../../model/addresses/ip.ts'
import { IPV6_MIN_MTU } from '../../model/spec-constants.ts'
import { usualAddress, usualInterfaceAddress } from '../route/address-text.ts'
import { checkDeviceName, checkInterfaceAddress, checkMac, refuseInvalid } from '../route/check-route.ts'
import { KernelError } from '../errors.ts'
import { formatAddress, formatLink, formatLinkChange } from '../route/format-ip.ts'
import type { NextHopFeatures } from '../route/nexthop/next-hop-table.ts'
import type { InterfaceAddress, Link, MainRoute, NewAddress, NewLink, VxlanLink } from '../route/route-table.ts'

export interface FakeNode {
  /** Devices that are there from the start and are not ours. */
  readonly links?: readonly {
    readonly name: string
    readonly mtu?: number
    readonly kind?: string
    readonly mac?: string
  }[]
  readonly addresses?: readonly InterfaceAddress[]
  /** What others have in the main table. */
  readonly mainRoutes?: readonly MainRoute[]
  /** What its kernel has of next-hop objects; default: all. */
  readonly nextHopFeatures?: NextHopFeatures
  /** Where packets go that no rule and no connected network wants; IPv6 ones only if it has an IPv6 address. */
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

  /** Whether the device carries packets of that family. */
  carries(name: string, family: Family): boolean {
    const link = this.find(name)
    return link?.up === true && (family === 4 || link.mtu >= IPV6_MIN_MTU)
  }

  /** Throws ENETDOWN where it is down, ENODEV where it has no IPv6. */
  needCarries(name: string, family: Family, operation: string): void {
    this.needUp(name, operation)
    if (!this.carries(name, family)) throw new KernelError('ENODEV', operation, `the MTU of ${name} is too small`)
  }

  /** A device as it is; `made` if toString() is to print it. */
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

  /** The device's first address of that family, without its length. */
  addressOf(device: string, family: Family): string | undefined {
    return this.addresses()
      .find((entry) => entry.device === device && familyOf(entry.address) === family)
      ?.address.split('/')[0]
  }

  /** What a packet out of the device has as source where no route says it. IPv6 takes any that reaches further. */
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

  /** Ours, as commands; devices that are up get a second one. */
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
