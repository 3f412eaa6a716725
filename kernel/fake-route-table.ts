/**
 * Routes, links and all the rest in memory. Refuses what the kernel refuses (unknown or stopped devices, gateways
 * that no address reaches, foreign source addresses, doubles, deletion of what is not there), drops what the kernel
 * drops when a device goes, and prints itself as the commands that would make it.
 */
import {
  checkDeviceName,
  checkInterfaceAddress,
  checkMac,
  checkRoute,
  normalRoute,
  refuseInvalid,
} from './check-route.ts'
import { KernelError } from './errors.ts'
import { bestRoute, connectedDevice, isConnected, routeKey, ruleKey } from './fake-route-state.ts'
import {
  formatAddress,
  formatForwardingEntry,
  formatLink,
  formatLinkChange,
  formatNeighbour,
  formatRoute,
  formatRouteDeletion,
  formatRule,
  formatRuleDeletion,
} from './format-ip.ts'
import type {
  ForwardingEntry,
  InterfaceAddress,
  Link,
  Neighbour,
  NewLink,
  Route,
  RouteTable,
  Rule,
  VxlanLink,
} from './route-table.ts'
import { parseAddress } from '../model/ip.ts'

export interface FakeNode {
  /** Devices that are there from the start and are not ours. */
  readonly links?: readonly {
    readonly name: string
    readonly mtu?: number
    readonly kind?: string
    readonly mac?: string
  }[]
  readonly addresses?: readonly InterfaceAddress[]
  /** Where packets go that no rule and no connected network wants. */
  readonly defaultDevice?: string
}

type LinkEntry = { link: Link | VxlanLink; made: NewLink | undefined }

export class FakeRouteTable implements RouteTable {
  readonly #links = new Map<string, LinkEntry>()
  readonly #addresses = new Map<string, InterfaceAddress>()
  readonly #foreignAddresses = new Set<string>()
  readonly #routes = new Map<string, Route>()
  readonly #rules = new Map<string, Rule>()
  readonly #neighbours = new Map<string, Neighbour>()
  readonly #entries = new Map<string, ForwardingEntry>()
  readonly #listeners = new Set<() => void>()
  readonly #defaultDevice: string | undefined
  #nextIndex = 1
  #notifying = false
  #nextFailure: KernelError | undefined

  constructor(node: FakeNode = {}) {
    this.#insert({ name: 'lo', kind: '', mtu: 65536, up: true, mac: '' }, undefined)
    for (const { name, mtu = 1500, kind = '', mac = '' } of node.links ?? []) {
      this.#insert({ name, kind, mtu, up: true, mac }, undefined)
    }
    for (const address of node.addresses ?? []) {
      this.#addresses.set(addressKey(address), address)
      this.#foreignAddresses.add(addressKey(address))
    }
    this.#defaultDevice = node.defaultDevice
  }

  links(signal?: AbortSignal): Promise<readonly (Link | VxlanLink)[]> {
    return this.#attempt('ip link show', signal, () => [...this.#links.values()].map((entry) => entry.link))
  }

  addLink(link: NewLink, signal?: AbortSignal): Promise<void> {
    const operation = formatLink(link)
    return this.#change(operation, signal, () => {
      checkDeviceName(link.name, operation)
      if (this.#links.has(link.name)) throw new KernelError('EEXIST', operation, 'the device exists')
      const plain = { name: link.name, kind: link.kind, mtu: link.mtu, up: false }
      if (link.kind !== 'vxlan') {
        this.#insert({ ...plain, mac: link.kind === 'wireguard' ? '' : '02:00:00:00:00:01' }, link)
        return
      }
      checkMac(link.mac, operation)
      refuseInvalid(operation, () => parseAddress(link.local, 'local'))
      const taken = [...this.#links.values()].find(
        (other) => other.made?.kind === 'vxlan' && other.made.vni === link.vni && other.made.port === link.port,
      )
      if (taken !== undefined) throw new KernelError('EEXIST', operation, `${taken.link.name} has this VNI and port`)
      this.#insert({ ...plain, kind: 'vxlan', mac: link.mac, vni: link.vni, port: link.port, local: link.local }, link)
    })
  }

  setLink(name: string, change: { readonly up?: boolean; readonly mtu?: number }, signal?: AbortSignal): Promise<void> {
    const operation = formatLinkChange(name, change)
    return this.#change(operation, signal, () => {
      const entry = this.#needLink(name, operation)
      entry.link = { ...entry.link, ...change }
      if (change.up === false) this.#dropOn(name, 'down')
    })
  }

  deleteLink(name: string, signal?: AbortSignal): Promise<void> {
    const operation = `ip link del ${name}`
    return this.#change(operation, signal, () => {
      this.#needLink(name, operation)
      this.#links.delete(name)
      this.#dropOn(name, 'gone')
    })
  }

  addresses(signal?: AbortSignal): Promise<readonly InterfaceAddress[]> {
    return this.#attempt('ip address show', signal, () => [...this.#addresses.values()])
  }

  addAddress(address: InterfaceAddress, signal?: AbortSignal): Promise<void> {
    const operation = formatAddress(address)
    return this.#change(operation, signal, () => {
      checkInterfaceAddress(address, operation)
      this.#needLink(address.device, operation)
      if (this.#addresses.has(addressKey(address))) throw new KernelError('EEXIST', operation, 'the address exists')
      this.#addresses.set(addressKey(address), address)
    })
  }

  deleteAddress(address: InterfaceAddress, signal?: AbortSignal): Promise<void> {
    const operation = `ip address del ${address.address} dev ${address.device}`
    return this.#change(operation, signal, () => {
      this.#needLink(address.device, operation)
      if (!this.#addresses.delete(addressKey(address)))
        throw new KernelError('EADDRNOTAVAIL', operation, 'no such address')
    })
  }

  routes(signal?: AbortSignal): Promise<readonly Route[]> {
    return this.#attempt('ip route show table all', signal, () => [...this.#routes.values()])
  }

  replaceRoute(route: Route, signal?: AbortSignal): Promise<void> {
    const operation = formatRoute(route)
    return this.#change(operation, signal, () => {
      checkRoute(route)
      for (const hop of route.nextHops) {
        if (!this.#needLink(hop.device, operation).link.up)
          throw new KernelError('ENETDOWN', operation, `${hop.device} is down`)
        if (hop.via !== undefined && hop.onlink !== true && !isConnected(this.#addressList(), hop.device, hop.via)) {
          throw new KernelError('ENETUNREACH', operation, `no address of ${hop.device} reaches ${hop.via}`)
        }
      }
      if (route.source !== undefined && !this.#isLocal(route.source)) {
        throw new KernelError('EINVAL', operation, `source ${route.source} is not an address of this node`)
      }
      this.#routes.set(routeKey(route), normalRoute(route))
    })
  }

  deleteRoute(route: Route, signal?: AbortSignal): Promise<void> {
    const operation = formatRouteDeletion(route)
    return this.#change(operation, signal, () => {
      checkRoute(route)
      const present = this.#routes.get(routeKey(route))
      if (present?.type !== route.type) throw new KernelError('ESRCH', operation, 'no such route')
      this.#routes.delete(routeKey(route))
    })
  }

  lookup(
    destination: string,
    signal?: AbortSignal,
  ): Promise<{ readonly device: string; readonly source?: string; readonly mtu: number }> {
    const operation = `ip route get ${destination}`
    return this.#attempt(operation, signal, () => {
      refuseInvalid(operation, () => parseAddress(destination, 'destination'))
      const rules = [...this.#rules.values()]
        .filter((rule) => rule.inputDevice === undefined)
        .sort((a, b) => a.priority - b.priority)
      for (const rule of rules) {
        const route = bestRoute([...this.#routes.values()], rule.table, destination)
        if (route === undefined) continue
        if (route.type === 'unreachable') throw new KernelError('EHOSTUNREACH', operation, 'no route to host')
        return this.#result(route.nextHops[0]?.device ?? '', route.source, route.mtu)
      }
      const connected = connectedDevice(this.#addressList(), destination)
      const device = connected?.device ?? this.#defaultDevice
      if (device === undefined) throw new KernelError('ENETUNREACH', operation, 'network is unreachable')
      return this.#result(device, connected?.address.split('/')[0], undefined)
    })
  }

  rules(signal?: AbortSignal): Promise<readonly Rule[]> {
    return this.#attempt('ip rule show', signal, () =>
      [...this.#rules.values()].sort((a, b) => a.priority - b.priority),
    )
  }

  addRule(rule: Rule, signal?: AbortSignal): Promise<void> {
    const operation = formatRule(rule)
    return this.#change(operation, signal, () => {
      if (this.#rules.has(ruleKey(rule))) throw new KernelError('EEXIST', operation, 'the rule exists')
      this.#rules.set(ruleKey(rule), rule)
    })
  }

  deleteRule(rule: Rule, signal?: AbortSignal): Promise<void> {
    const operation = formatRuleDeletion(rule)
    return this.#change(operation, signal, () => {
      if (!this.#rules.delete(ruleKey(rule))) throw new KernelError('ENOENT', operation, 'no such rule')
    })
  }

  neighbours(device: string, signal?: AbortSignal): Promise<readonly Neighbour[]> {
    const operation = `ip neighbour show dev ${device}`
    return this.#attempt(operation, signal, () => {
      this.#needLink(device, operation)
      return [...this.#neighbours.values()].filter((entry) => entry.device === device)
    })
  }

  replaceNeighbour(neighbour: Neighbour, signal?: AbortSignal): Promise<void> {
    const operation = formatNeighbour(neighbour)
    return this.#change(operation, signal, () => {
      checkMac(neighbour.mac, operation)
      refuseInvalid(operation, () => parseAddress(neighbour.address))
      if (!this.#needLink(neighbour.device, operation).link.up)
        throw new KernelError('ENETDOWN', operation, `${neighbour.device} is down`)
      this.#neighbours.set(`${neighbour.device}|${neighbour.address}`, neighbour)
    })
  }

  deleteNeighbour(neighbour: Neighbour, signal?: AbortSignal): Promise<void> {
    const operation = `ip neighbour del ${neighbour.address} dev ${neighbour.device}`
    return this.#change(operation, signal, () => {
      this.#needLink(neighbour.device, operation)
      if (!this.#neighbours.delete(`${neighbour.device}|${neighbour.address}`))
        throw new KernelError('ENOENT', operation, 'no such neighbour')
    })
  }

  forwardingEntries(device: string, signal?: AbortSignal): Promise<readonly ForwardingEntry[]> {
    const operation = `bridge fdb show dev ${device}`
    return this.#attempt(operation, signal, () => {
      this.#needLink(device, operation)
      return [...this.#entries.values()].filter((entry) => entry.device === device)
    })
  }

  replaceForwardingEntry(entry: ForwardingEntry, signal?: AbortSignal): Promise<void> {
    const operation = formatForwardingEntry(entry)
    return this.#change(operation, signal, () => {
      if (this.#needLink(entry.device, operation).link.kind !== 'vxlan')
        throw new KernelError('EOPNOTSUPP', operation, 'not a vxlan device')
      checkMac(entry.mac, operation)
      refuseInvalid(operation, () => parseAddress(entry.destination))
      this.#entries.set(`${entry.device}|${entry.mac}`, entry)
    })
  }

  deleteForwardingEntry(entry: ForwardingEntry, signal?: AbortSignal): Promise<void> {
    const operation = `bridge fdb del ${entry.mac} dev ${entry.device} dst ${entry.destination} self`
    return this.#change(operation, signal, () => {
      this.#needLink(entry.device, operation)
      const key = `${entry.device}|${entry.mac}`
      if (this.#entries.get(key)?.destination !== entry.destination)
        throw new KernelError('ENOENT', operation, 'no such entry')
      this.#entries.delete(key)
    })
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  close(): void {
    this.#listeners.clear()
  }

  /** The next call that changes something throws this instead. */
  failNext(error: KernelError): void {
    this.#nextFailure = error
  }

  /** A device that another tool made: a fake WireGuard device, a pod's veth. */
  putLink(link: Omit<Link, 'index'>): void {
    const made =
      link.kind === 'wireguard' || link.kind === 'tun'
        ? ({ kind: 'wireguard', name: link.name, mtu: link.mtu } as const)
        : undefined
    this.#insert(link, made)
    this.#notify()
  }

  /** Everything of ours, as sorted commands; devices that are up get a second line. */
  toString(): string {
    const lines: string[] = []
    for (const { link, made } of this.#links.values()) {
      if (made === undefined) continue
      lines.push(formatLink({ ...made, mtu: link.mtu }))
      if (link.up) lines.push(formatLinkChange(link.name, { up: true }))
    }
    for (const [key, address] of this.#addresses)
      if (!this.#foreignAddresses.has(key)) lines.push(formatAddress(address))
    lines.push(...[...this.#routes.values()].map(formatRoute))
    lines.push(...[...this.#rules.values()].map(formatRule))
    lines.push(...[...this.#neighbours.values()].map(formatNeighbour))
    lines.push(...[...this.#entries.values()].map(formatForwardingEntry))
    return lines.sort().join('\n')
  }

  #insert(link: Omit<Link, 'index'> | Omit<VxlanLink, 'index'>, made: NewLink | undefined): void {
    this.#links.set(link.name, { link: { ...link, index: this.#nextIndex++ }, made })
  }

  #needLink(name: string, operation: string): LinkEntry {
    const entry = this.#links.get(name)
    if (entry === undefined) throw new KernelError('ENODEV', operation, `no device ${name}`)
    return entry
  }

  #addressList(): readonly InterfaceAddress[] {
    return [...this.#addresses.values()]
  }

  #isLocal(address: string): boolean {
    return this.#addressList().some((entry) => entry.address.startsWith(`${address}/`))
  }

  #result(
    device: string,
    source: string | undefined,
    mtu: number | undefined,
  ): { device: string; source?: string; mtu: number } {
    const own =
      source ??
      this.#addressList()
        .find((entry) => entry.device === device)
        ?.address.split('/')[0]
    return { device, ...(own === undefined ? {} : { source: own }), mtu: mtu ?? this.#links.get(device)?.link.mtu ?? 0 }
  }

  // A device that goes takes every route that uses it, one that stops only those that have no other way left.
  #dropOn(device: string, how: 'down' | 'gone'): void {
    for (const [key, route] of this.#routes) {
      if (route.nextHops.length === 0) continue
      const dead = (name: string): boolean => name === device || this.#links.get(name)?.link.up !== true
      const lost =
        how === 'gone'
          ? route.nextHops.some((hop) => hop.device === device)
          : route.nextHops.every((hop) => dead(hop.device))
      if (lost) this.#routes.delete(key)
    }
    for (const [key, entry] of this.#neighbours) if (entry.device === device) this.#neighbours.delete(key)
    if (how === 'down') return
    for (const [key, entry] of this.#entries) if (entry.device === device) this.#entries.delete(key)
    for (const [key, entry] of this.#addresses) if (entry.device === device) this.#addresses.delete(key)
  }

  async #attempt<T>(operation: string, signal: AbortSignal | undefined, action: () => T): Promise<T> {
    await Promise.resolve()
    if (signal?.aborted === true) throw new KernelError('EINTR', operation, 'stopped before it began')
    return action()
  }

  #change(operation: string, signal: AbortSignal | undefined, action: () => void): Promise<void> {
    return this.#attempt(operation, signal, () => {
      const failure = this.#nextFailure
      this.#nextFailure = undefined
      if (failure !== undefined) throw failure
      action()
      this.#notify()
    })
  }

  #notify(): void {
    if (this.#notifying) return
    this.#notifying = true
    queueMicrotask(() => {
      this.#notifying = false
      for (const listener of [...this.#listeners]) listener()
    })
  }
}

function addressKey(address: InterfaceAddress): string {
  return `${address.device}|${address.address}`
}
