/**
 * Routes, links, rules and neighbours in memory. It refuses what the kernel refuses (unknown or stopped devices,
 * unreachable gateways, foreign source addresses, duplicates, removal of missing items), removes what the kernel
 * removes with a device, and prints itself as the commands that would create its state.
 */
import {
  FAMILIES,
  type Family,
  containsAddress,
  familyOf,
  parseAddress,
  parsePrefix,
} from '../../model/addresses/addresses.ts'
import { IPV6_MIN_MTU } from '../../model/model.ts'
import { Listeners } from '../../reconcile/reconcile.ts'
import { KernelError } from '../kernel.ts'
import {
  type NextHop,
  type Route,
  checkRoute,
  checkRule,
  normalRoute,
  refuseInvalid,
  usualAddress,
} from '../route/route.ts'
import * as format from '../route/route.ts'
import type * as item from '../route/route.ts'
import {
  FakeLinks,
  FakeNeighbours,
  type FakeNode,
  bestRoute,
  connectedDevice,
  needReach,
  routeKey,
  ruleKey,
} from './fake-links.ts'
import { FakeNextHopTable, FakeNextHops } from './fake-next-hops.ts'

/** Routes of the fake route table: the present state, what the kernel refuses, and what it removes. */
class FakeRoutes {
  readonly #links: FakeLinks
  readonly #nextHops: FakeNextHops
  readonly #routes = new Map<string, Route>()

  constructor(links: FakeLinks, nextHops: FakeNextHops) {
    this.#links = links
    this.#nextHops = nextHops
  }

  list(): readonly Route[] {
    return [...this.#routes.values()]
  }

  replace(route: Route, operation: string): void {
    checkRoute(route)
    const family = familyOf(route.destination)
    for (const { device, via, onlink } of route.nextHops) {
      this.#links.needCarries(device, family, operation)
      if (via !== undefined && onlink !== true) needReach(this.#links.addresses(), device, via, operation)
    }
    if (route.nextHopId !== undefined) this.#nextHops.needUsable(route.nextHopId, family, operation)
    if (family === 6 && hasTwice(route.nextHops))
      throw new KernelError('EEXIST', operation, 'a next hop is there twice')
    if (route.source !== undefined && !this.#links.isLocal(route.source)) {
      throw new KernelError('EINVAL', operation, `source ${route.source} is not an address of this node`)
    }
    this.#routes.set(routeKey(route), normalRoute(route))
  }

  delete(route: Route, operation: string): void {
    checkRoute(route)
    const present = this.#routes.get(routeKey(route))
    if (present?.type !== route.type) throw new KernelError('ESRCH', operation, 'no such route')
    this.#routes.delete(routeKey(route))
  }

  /** Returns the next-hop ids that IPv6 routes refer to. */
  idsNamedByIpv6(): ReadonlySet<number> {
    const ids = this.list()
      .filter((route) => isOf(route, 6))
      .map(({ nextHopId }) => nextHopId)
    return new Set(ids.filter((id) => id !== undefined))
  }

  /** Removes routes without a usable next hop after a device has stopped. */
  stopUsing(device: string, family: Family): void {
    const usable = (name: string): boolean => name !== device && this.#links.carries(name, family)
    this.#remove(
      (route) => isOf(route, family) && route.nextHops.length > 0 && !route.nextHops.some((hop) => usable(hop.device)),
    )
  }

  /**
   * Removes every route that uses a removed device. An IPv6 route with other next hops loses only those of the device.
   */
  forgetDevice(device: string, family: Family): void {
    for (const [key, route] of this.#routes) {
      const rest = route.nextHops.filter((hop) => hop.device !== device)
      if (!isOf(route, family) || rest.length === route.nextHops.length) continue
      if (family === 4 || rest.length === 0) this.#routes.delete(key)
      else this.#routes.set(key, normalRoute({ ...route, nextHops: rest }))
    }
  }

  /** Removes the routes that refer to removed next hops or groups. */
  forgetNextHops(ids: readonly number[]): void {
    this.#remove(({ nextHopId }) => nextHopId !== undefined && ids.includes(nextHopId))
  }

  /**
   * Removes the source of IPv6 routes after their address was removed, unless they refer to a next hop. IPv4 routes
   * keep their source, as they do outside the main table. Not called if the address was removed with its device: routes
   * then keep it.
   */
  forgetSource(address: string): void {
    const gone = usualAddress(address.split('/')[0] ?? '')
    for (const [key, { source, ...route }] of this.#routes) {
      if (source === gone && isOf(route, 6) && route.nextHopId === undefined) this.#routes.set(key, route)
    }
  }

  #remove(unwanted: (route: Route) => boolean): void {
    for (const [key, route] of this.#routes) if (unwanted(route)) this.#routes.delete(key)
  }
}

function isOf(route: Route, family: Family): boolean {
  return familyOf(route.destination) === family
}

function hasTwice(hops: readonly NextHop[]): boolean {
  return new Set(hops.map(({ device, via = '' }) => `${device}|${usualAddress(via)}`)).size < hops.length
}

export type { FakeNode } from './fake-links.ts'

export class FakeRouteTable implements item.RouteTable {
  readonly #links: FakeLinks
  readonly #routes: FakeRoutes
  readonly #rules = new Map<string, item.Rule>()
  readonly #neighbours: FakeNeighbours
  readonly #nextHops: FakeNextHops
  /** The next-hop objects of the same node. */
  readonly nextHops: FakeNextHopTable
  readonly #listeners = new Listeners()
  readonly #defaultDevice: string | undefined
  #mainRoutes: readonly item.MainRoute[]
  #notifying = false
  #nextFailure: KernelError | undefined

  constructor(node: FakeNode = {}) {
    this.#links = new FakeLinks(node)
    this.#neighbours = new FakeNeighbours(this.#links)
    this.#nextHops = new FakeNextHops(this.#links, () => this.#routes.idsNamedByIpv6())
    this.#routes = new FakeRoutes(this.#links, this.#nextHops)
    this.nextHops = new FakeNextHopTable({
      state: this.#nextHops,
      features: node.nextHopFeatures ?? { objects: true, resilient: true },
      read: (operation, signal, action) => this.#read(operation, signal, action),
      change: (operation, signal, action) => this.#change(operation, signal, action),
      gone: (ids) => this.#routes.forgetNextHops(ids),
      onChange: (listener) => this.onChange(listener),
    })
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
      if (change.up === false) {
        this.#routes.forgetNextHops(this.#nextHops.stopUsing(name))
        for (const family of FAMILIES) this.#stopUsing(name, family)
      }
      if (change.mtu !== undefined && change.mtu < IPV6_MIN_MTU) this.#forget(name, 6)
    })
  }

  deleteLink(name: string, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatLinkDeletion(name), signal, (operation) => {
      this.#links.delete(name, operation)
      this.#routes.forgetNextHops(this.#nextHops.stopUsing(name))
      for (const family of FAMILIES) this.#forget(name, family)
      this.#neighbours.forgetEntries(name)
    })
  }

  addresses(signal?: AbortSignal): Promise<readonly item.InterfaceAddress[]> {
    return this.#read('ip address show', signal, () => this.#links.addresses())
  }

  addAddress(address: item.NewAddress, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatAddress(address), signal, () => this.#links.addAddress(address))
  }

  deleteAddress(address: item.InterfaceAddress, signal?: AbortSignal): Promise<void> {
    return this.#change(`ip address del ${address.address} dev ${address.device}`, signal, (operation) => {
      this.#links.deleteAddress(address, operation)
      this.#routes.forgetSource(address.address)
      // When a device loses its last IPv4 address, the kernel removes its IPv4 state as if the device were stopped.
      const family = familyOf(address.address)
      if (family === 4 && this.#links.addressOf(address.device, 4) === undefined) this.#stopUsing(address.device, 4)
    })
  }

  routes(signal?: AbortSignal): Promise<readonly item.Route[]> {
    return this.#read('ip route show table all', signal, () => this.#routes.list())
  }

  replaceRoute(route: item.Route, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatRoute(route), signal, (operation) => this.#routes.replace(route, operation))
  }

  deleteRoute(route: item.Route, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatRouteDeletion(route), signal, (operation) => this.#routes.delete(route, operation))
  }

  mainRoutes(signal?: AbortSignal): Promise<readonly item.MainRoute[]> {
    return this.#read('ip route show', signal, () => this.#mainRoutes)
  }

  lookup(
    destination: string,
    signal?: AbortSignal,
    mark = 0,
  ): Promise<{ readonly device: string; readonly source?: string; readonly mtu: number }> {
    return this.#read(format.formatLookup(destination), signal, (operation) => {
      refuseInvalid(operation, () => parseAddress(destination, 'destination'))
      const family = familyOf(destination)
      const matching = this.#sortedRules().filter(
        (rule) => (rule.family ?? 4) === family && isForMark(rule, mark) && isForOwnTraffic(rule, destination),
      )
      for (const rule of matching) {
        if (rule.action === 'blackhole') throw new KernelError('EINVAL', operation, 'a rule drops such packets')
        const route = bestRoute(this.#routes.list(), rule.table, destination)
        if (route === undefined || route.type === 'throw') continue
        if (route.type === 'unreachable') throw new KernelError('EHOSTUNREACH', operation, 'no route to host')
        const device = route.nextHops[0]?.device ?? this.#nextHops.deviceOf(route.nextHopId ?? 0) ?? ''
        return this.#way(family, { device, source: route.source, mtu: route.mtu })
      }
      const connected = connectedDevice(this.#links.addresses(), destination)
      const device = connected?.device ?? this.#defaultDeviceOf(family)
      if (device === undefined) throw new KernelError('ENETUNREACH', operation, 'network is unreachable')
      return this.#way(family, { device, source: connected?.address.split('/')[0] })
    })
  }

  rules(signal?: AbortSignal): Promise<readonly item.Rule[]> {
    return this.#read('ip rule show', signal, () => this.#sortedRules())
  }

  addRule(rule: item.Rule, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatRule(rule), signal, (operation) => {
      checkRule(rule, operation)
      if (this.#rules.has(ruleKey(rule))) throw new KernelError('EEXIST', operation, 'the rule exists')
      this.#rules.set(ruleKey(rule), normalRule(rule))
    })
  }

  deleteRule(rule: item.Rule, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatRuleDeletion(rule), signal, (operation) => {
      if (!this.#rules.delete(ruleKey(rule))) throw new KernelError('ENOENT', operation, 'no such rule')
    })
  }

  neighbours(device: string, signal?: AbortSignal): Promise<readonly item.Neighbour[]> {
    return this.#read(`ip neighbour show dev ${device}`, signal, (operation) =>
      this.#neighbours.listOf(device, operation),
    )
  }

  replaceNeighbour(neighbour: item.Neighbour, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatNeighbour(neighbour), signal, (operation) =>
      this.#neighbours.replace(neighbour, operation),
    )
  }

  deleteNeighbour(neighbour: item.Neighbour, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatNeighbourDeletion(neighbour), signal, (operation) =>
      this.#neighbours.delete(neighbour, operation),
    )
  }

  forwardingEntries(device: string, signal?: AbortSignal): Promise<readonly item.ForwardingEntry[]> {
    return this.#read(`bridge fdb show dev ${device}`, signal, (operation) =>
      this.#neighbours.entriesOf(device, operation),
    )
  }

  replaceForwardingEntry(entry: item.ForwardingEntry, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatForwardingEntry(entry), signal, (operation) =>
      this.#neighbours.replaceEntry(entry, operation),
    )
  }

  deleteForwardingEntry(entry: item.ForwardingEntry, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatForwardingEntryDeletion(entry), signal, (operation) =>
      this.#neighbours.deleteEntry(entry, operation),
    )
  }

  onChange(listener: () => void): () => void {
    return this.#listeners.add(listener)
  }

  close(): void {
    this.#listeners.clear()
  }

  /** Makes the next call that changes something throw this error. */
  failNext(error: KernelError): void {
    this.#nextFailure = error
  }

  /**
   * Adds a device that another tool created: a fake WireGuard device, a veth of a pod. WireGuard devices are printed as
   * ours.
   */
  putLink(link: Omit<item.Link, 'index'>): void {
    const { name, mtu } = link
    this.#links.put(
      link,
      link.kind === 'wireguard' || link.kind === 'tun' ? { kind: 'wireguard', name, mtu } : undefined,
    )
    this.#notify()
  }

  /** Changes the main table as another program, such as a CNI plugin, would. */
  putMainRoutes(routes: readonly item.MainRoute[]): void {
    this.#mainRoutes = routes
    this.#notify()
  }

  /** Returns everything of ours as sorted commands. */
  toString(): string {
    return [
      ...this.#links.commands(),
      ...this.#routes.list().map(format.formatRoute),
      ...[...this.#rules.values()].map(format.formatRule),
      ...this.#nextHops.commands(),
      ...this.#neighbours.commands(),
    ]
      .sort()
      .join('\n')
  }

  // IPv4 before IPv6, as the kernel lists them.
  #sortedRules(): readonly item.Rule[] {
    return [...this.#rules.values()].sort((a, b) => (a.family ?? 4) - (b.family ?? 4) || a.priority - b.priority)
  }

  #defaultDeviceOf(family: Family): string | undefined {
    const device = this.#defaultDevice
    return device !== undefined && family === 6 && this.#links.addressOf(device, 6) === undefined ? undefined : device
  }

  #way(
    family: Family,
    way: { readonly device: string; readonly source?: string | undefined; readonly mtu?: number | undefined },
  ): { device: string; source?: string; mtu: number } {
    const { device } = way
    const source = way.source ?? this.#links.sourceOn(device, family)
    return { device, ...(source === undefined ? {} : { source }), mtu: way.mtu ?? this.#links.find(device)?.mtu ?? 0 }
  }

  // Removes the neighbours of a stopped device, and its routes.
  #stopUsing(device: string, family: Family): void {
    this.#routes.stopUsing(device, family)
    this.#neighbours.forget(device, family)
  }

  #forget(device: string, family: Family): void {
    this.#routes.forgetDevice(device, family)
    this.#neighbours.forget(device, family)
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
      this.#listeners.call()
    })
  }
}

/** True if the rule applies to traffic that starts on the node and has no source address yet. */
function isForOwnTraffic(rule: item.Rule, to: string): boolean {
  const { inputDevice, exceptInputDevice, source, protocol, destination } = rule
  if (protocol !== undefined) return false
  if (destination !== undefined && !containsAddress(parsePrefix(destination), parseAddress(to))) return false
  return (inputDevice === undefined || inputDevice === 'lo') && exceptInputDevice !== 'lo' && source === undefined
}

function isForMark({ exceptMark, withoutMark = 0 }: item.Rule, mark: number): boolean {
  return exceptMark !== mark && (withoutMark & mark) === 0
}

/** Returns a rule in the form in which it is listed, without `family` for IPv4. */
function normalRule({ family, ...rule }: item.Rule): item.Rule {
  return family === 6 ? { family, ...rule } : rule
}
