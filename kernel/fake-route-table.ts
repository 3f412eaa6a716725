/**
 * Routes, links and all the rest in memory. Refuses what the kernel refuses (unknown or stopped devices, gateways
 * that no address reaches, foreign source addresses, doubles, deletion of what is not there), drops what the kernel
 * drops when a device goes, and prints itself as the commands that would make it.
 */
import { parseAddress } from '../model/ip.ts'
import { checkMac, checkRoute, normalRoute, refuseInvalid } from './check-route.ts'
import { KernelError } from './errors.ts'
import { FakeLinks, type FakeNode } from './fake-links.ts'
import { bestRoute, connectedDevice, isConnected, routeKey, ruleKey } from './fake-route-state.ts'
import * as format from './format-ip.ts'
import type * as item from './route-table.ts'

export type { FakeNode } from './fake-links.ts'

export class FakeRouteTable implements item.RouteTable {
  readonly #links: FakeLinks
  readonly #routes = new Map<string, item.Route>()
  readonly #rules = new Map<string, item.Rule>()
  readonly #neighbours = new Map<string, item.Neighbour>()
  readonly #entries = new Map<string, item.ForwardingEntry>()
  readonly #listeners = new Set<() => void>()
  readonly #defaultDevice: string | undefined
  #mainRoutes: readonly item.MainRoute[]
  #notifying = false
  #nextFailure: KernelError | undefined

  constructor(node: FakeNode = {}) {
    this.#links = new FakeLinks(node)
    this.#defaultDevice = node.defaultDevice
    this.#mainRoutes = node.mainRoutes ?? []
  }

  links(signal?: AbortSignal): Promise<readonly (item.Link | item.VxlanLink)[]> {
    return this.#read('ip link show', signal, () => this.#links.list())
  }

  addLink(link: item.NewLink, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatLink(link), signal, () => this.#links.add(link))
  }

  setLink(name: string, change: { readonly up?: boolean; readonly mtu?: number }, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatLinkChange(name, change), signal, () => {
      this.#links.change(name, change)
      if (change.up === false) this.#stopUsing(name)
    })
  }

  deleteLink(name: string, signal?: AbortSignal): Promise<void> {
    return this.#change(`ip link del ${name}`, signal, (operation) => {
      this.#links.delete(name, operation)
      this.#forget(name)
    })
  }

  addresses(signal?: AbortSignal): Promise<readonly item.InterfaceAddress[]> {
    return this.#read('ip address show', signal, () => this.#links.addresses())
  }

  addAddress(address: item.InterfaceAddress, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatAddress(address), signal, () => this.#links.addAddress(address))
  }

  deleteAddress(address: item.InterfaceAddress, signal?: AbortSignal): Promise<void> {
    return this.#change(`ip address del ${address.address} dev ${address.device}`, signal, (operation) => {
      this.#links.deleteAddress(address, operation)
      // The kernel ends IPv4 on a device with its last address, as if it were stopped.
      if (this.#links.addressOf(address.device) === undefined) this.#stopUsing(address.device)
    })
  }

  routes(signal?: AbortSignal): Promise<readonly item.Route[]> {
    return this.#read('ip route show table all', signal, () => [...this.#routes.values()])
  }

  replaceRoute(route: item.Route, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatRoute(route), signal, (operation) => {
      checkRoute(route)
      for (const { device, via, onlink } of route.nextHops) {
        this.#links.needUp(device, operation)
        if (via === undefined || onlink === true || isConnected(this.#links.addresses(), device, via)) continue
        throw new KernelError('ENETUNREACH', operation, `no address of ${device} reaches ${via}`)
      }
      if (route.source !== undefined && !this.#links.isLocal(route.source)) {
        throw new KernelError('EINVAL', operation, `source ${route.source} is not an address of this node`)
      }
      this.#routes.set(routeKey(route), normalRoute(route))
    })
  }

  deleteRoute(route: item.Route, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatRouteDeletion(route), signal, (operation) => {
      checkRoute(route)
      const present = this.#routes.get(routeKey(route))
      if (present?.type !== route.type) throw new KernelError('ESRCH', operation, 'no such route')
      this.#routes.delete(routeKey(route))
    })
  }

  mainRoutes(signal?: AbortSignal): Promise<readonly item.MainRoute[]> {
    return this.#read('ip route show', signal, () => this.#mainRoutes)
  }

  lookup(
    destination: string,
    signal?: AbortSignal,
    mark = 0,
  ): Promise<{ readonly device: string; readonly source?: string; readonly mtu: number }> {
    return this.#read(`ip route get ${destination}`, signal, (operation) => {
      refuseInvalid(operation, () => parseAddress(destination, 'destination'))
      const matching = this.#sortedRules().filter((r) => r.inputDevice === undefined && r.exceptMark !== mark)
      for (const rule of matching) {
        const route = bestRoute([...this.#routes.values()], rule.table, destination)
        if (route === undefined || route.type === 'throw') continue
        if (route.type === 'unreachable') throw new KernelError('EHOSTUNREACH', operation, 'no route to host')
        return this.#way(route.nextHops[0]?.device ?? '', route.source, route.mtu)
      }
      const connected = connectedDevice(this.#links.addresses(), destination)
      const device = connected?.device ?? this.#defaultDevice
      if (device === undefined) throw new KernelError('ENETUNREACH', operation, 'network is unreachable')
      return this.#way(device, connected?.address.split('/')[0], undefined)
    })
  }

  rules(signal?: AbortSignal): Promise<readonly item.Rule[]> {
    return this.#read('ip rule show', signal, () => this.#sortedRules())
  }

  addRule(rule: item.Rule, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatRule(rule), signal, (operation) => {
      if (this.#rules.has(ruleKey(rule))) throw new KernelError('EEXIST', operation, 'the rule exists')
      this.#rules.set(ruleKey(rule), rule)
    })
  }

  deleteRule(rule: item.Rule, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatRuleDeletion(rule), signal, (operation) => {
      if (!this.#rules.delete(ruleKey(rule))) throw new KernelError('ENOENT', operation, 'no such rule')
    })
  }

  neighbours(device: string, signal?: AbortSignal): Promise<readonly item.Neighbour[]> {
    return this.#read(`ip neighbour show dev ${device}`, signal, (operation) => {
      this.#links.need(device, operation)
      return [...this.#neighbours.values()].filter((entry) => entry.device === device)
    })
  }

  replaceNeighbour(neighbour: item.Neighbour, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatNeighbour(neighbour), signal, (operation) => {
      checkMac(neighbour.mac, operation)
      refuseInvalid(operation, () => parseAddress(neighbour.address))
      this.#links.needUp(neighbour.device, operation)
      this.#neighbours.set(`${neighbour.device}|${neighbour.address}`, neighbour)
    })
  }

  deleteNeighbour({ device, address }: item.Neighbour, signal?: AbortSignal): Promise<void> {
    return this.#change(`ip neighbour del ${address} dev ${device}`, signal, (operation) => {
      this.#links.need(device, operation)
      if (this.#neighbours.delete(`${device}|${address}`)) return
      throw new KernelError('ENOENT', operation, 'no such neighbour')
    })
  }

  forwardingEntries(device: string, signal?: AbortSignal): Promise<readonly item.ForwardingEntry[]> {
    return this.#read(`bridge fdb show dev ${device}`, signal, (operation) => {
      this.#links.need(device, operation)
      return [...this.#entries.values()].filter((entry) => entry.device === device)
    })
  }

  replaceForwardingEntry(entry: item.ForwardingEntry, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatForwardingEntry(entry), signal, (operation) => {
      checkMac(entry.mac, operation)
      refuseInvalid(operation, () => parseAddress(entry.destination))
      if (this.#links.need(entry.device, operation).kind !== 'vxlan') {
        throw new KernelError('EOPNOTSUPP', operation, 'not a vxlan device')
      }
      this.#entries.set(`${entry.device}|${entry.mac}`, entry)
    })
  }

  deleteForwardingEntry({ device, mac, destination }: item.ForwardingEntry, signal?: AbortSignal): Promise<void> {
    return this.#change(`bridge fdb del ${mac} dev ${device} dst ${destination} self`, signal, (operation) => {
      this.#links.need(device, operation)
      const present = this.#entries.get(`${device}|${mac}`)
      if (present?.destination !== destination) throw new KernelError('ENOENT', operation, 'no such entry')
      this.#entries.delete(`${device}|${mac}`)
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

  /** A device that another tool made: a fake WireGuard device, a pod's veth. WireGuard is printed as ours. */
  putLink(link: Omit<item.Link, 'index'>): void {
    const { name, mtu } = link
    this.#links.put(
      link,
      link.kind === 'wireguard' || link.kind === 'tun' ? { kind: 'wireguard', name, mtu } : undefined,
    )
    this.#notify()
  }

  /** Another tool, a CNI say, changes the main table. */
  putMainRoutes(routes: readonly item.MainRoute[]): void {
    this.#mainRoutes = routes
    this.#notify()
  }

  /** Everything of ours, as sorted commands. */
  toString(): string {
    return [
      ...this.#links.commands(),
      ...[...this.#routes.values()].map(format.formatRoute),
      ...[...this.#rules.values()].map(format.formatRule),
      ...[...this.#neighbours.values()].map(format.formatNeighbour),
      ...[...this.#entries.values()].map(format.formatForwardingEntry),
    ]
      .sort()
      .join('\n')
  }

  #sortedRules(): readonly item.Rule[] {
    return [...this.#rules.values()].sort((a, b) => a.priority - b.priority)
  }

  #way(
    device: string,
    source: string | undefined,
    mtu: number | undefined,
  ): { device: string; source?: string; mtu: number } {
    const own = source ?? this.#links.addressOf(device)
    return { device, ...(own === undefined ? {} : { source: own }), mtu: mtu ?? this.#links.find(device)?.mtu ?? 0 }
  }

  // A device that stops takes its neighbours and the routes that have no other way left.
  #stopUsing(device: string): void {
    const usable = (name: string): boolean => name !== device && this.#links.find(name)?.up === true
    remove(this.#routes, (route) => route.nextHops.length > 0 && !route.nextHops.some((hop) => usable(hop.device)))
    remove(this.#neighbours, (entry) => entry.device === device)
  }

  // A device that goes takes every route that uses it.
  #forget(device: string): void {
    remove(this.#routes, (route) => route.nextHops.some((hop) => hop.device === device))
    remove(this.#neighbours, (entry) => entry.device === device)
    remove(this.#entries, (entry) => entry.device === device)
  }

  async #read<T>(operation: string, signal: AbortSignal | undefined, action: (operation: string) => T): Promise<T> {
    await Promise.resolve()
    if (signal?.aborted === true) throw new KernelError('EINTR', operation, 'stopped before it began')
    return action(operation)
  }

  #change(operation: string, signal: AbortSignal | undefined, action: (operation: string) => void): Promise<void> {
    return this.#read(operation, signal, () => {
      const failure = this.#nextFailure
      this.#nextFailure = undefined
      if (failure !== undefined) throw failure
      action(operation)
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

function remove<V>(items: Map<string, V>, unwanted: (value: V) => boolean): void {
  for (const [key, value] of items) if (unwanted(value)) items.delete(key)
}
