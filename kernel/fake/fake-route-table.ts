/**
 * Routes, links and all the rest in memory. Refuses what the kernel refuses (unknown or stopped devices, gateways
 * that no address reaches, foreign source addresses, doubles, deletion of what is not there), drops what the kernel
 * drops when a device goes, and prints itself as the commands that would make it.
 */
import { FAMILIES, familyOf, parseAddress, type Family } from '../../model/addresses/ip.ts'
import { IPV6_MIN_MTU } from '../../model/spec-constants.ts'
import { usualAddress } from '../route/address-text.ts'
import { checkMac, checkRoute, checkRule, normalRoute, refuseInvalid } from '../route/check-route.ts'
import { KernelError } from '../errors.ts'
import { FakeLinks, type FakeNode } from './fake-links.ts'
import { bestRoute, connectedDevice, isConnected, routeKey, ruleKey } from './fake-route-state.ts'
import * as format from '../route/format-ip.ts'
import type * as item from '../route/route-table.ts'

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
      for (const family of FAMILIES) if (change.up === false) this.#stopUsing(name, family)
      if (change.mtu !== undefined && change.mtu < IPV6_MIN_MTU) this.#forget(name, 6)
    })
  }

  deleteLink(name: string, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatLinkDeletion(name), signal, (operation) => {
      this.#links.delete(name, operation)
      for (const family of FAMILIES) this.#forget(name, family)
      remove(this.#entries, (entry) => entry.device === name)
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
      if (familyOf(address.address) === 6) this.#forgetSource(address.address)
      // The kernel ends IPv4 on a device with its last address, as if it were stopped.
      else if (this.#links.addressOf(address.device, 4) === undefined) this.#stopUsing(address.device, 4)
    })
  }

  routes(signal?: AbortSignal): Promise<readonly item.Route[]> {
    return this.#read('ip route show table all', signal, () => [...this.#routes.values()])
  }

  replaceRoute(route: item.Route, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatRoute(route), signal, (operation) => {
      checkRoute(route)
      const family = familyOf(route.destination)
      for (const { device, via, onlink } of route.nextHops) {
        this.#links.needCarries(device, family, operation)
        if (via === undefined || onlink === true || isConnected(this.#links.addresses(), device, via)) continue
        const code = family === 4 ? 'ENETUNREACH' : 'EHOSTUNREACH'
        throw new KernelError(code, operation, `no address of ${device} reaches ${via}`)
      }
      if (family === 6 && hasTwice(route.nextHops))
        throw new KernelError('EEXIST', operation, 'a next hop is there twice')
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
    return this.#read(format.formatLookup(destination), signal, (operation) => {
      refuseInvalid(operation, () => parseAddress(destination, 'destination'))
      const family = familyOf(destination)
      const matching = this.#sortedRules().filter(
        (rule) => (rule.family ?? 4) === family && rule.exceptMark !== mark && isForOwnTraffic(rule),
      )
      for (const rule of matching) {
        const route = bestRoute([...this.#routes.values()], rule.table, destination)
        if (route === undefined || route.type === 'throw') continue
        if (route.type === 'unreachable') throw new KernelError('EHOSTUNREACH', operation, 'no route to host')
        return this.#way(family, { device: route.nextHops[0]?.device ?? '', source: route.source, mtu: route.mtu })
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
    return this.#read(`ip neighbour show dev ${device}`, signal, (operation) => {
      this.#links.need(device, operation)
      return [...this.#neighbours.values()].filter((entry) => entry.device === device)
    })
  }

  replaceNeighbour(neighbour: item.Neighbour, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatNeighbour(neighbour), signal, (operation) => {
      checkMac(neighbour.mac, operation)
      refuseInvalid(operation, () => parseAddress(neighbour.address))
      const { device } = neighbour
      const address = usualAddress(neighbour.address)
      this.#links.needUp(device, operation)
      if (!this.#links.carries(device, familyOf(address))) {
        throw new KernelError('EINVAL', operation, `the MTU of ${device} is too small`)
      }
      this.#neighbours.set(`${device}|${address}`, { ...neighbour, address })
    })
  }

  deleteNeighbour({ device, address }: item.Neighbour, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatNeighbourDeletion({ address, device }), signal, (operation) => {
      refuseInvalid(operation, () => parseAddress(address))
      this.#links.need(device, operation)
      if (this.#neighbours.delete(`${device}|${usualAddress(address)}`)) return
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

  deleteForwardingEntry(entry: item.ForwardingEntry, signal?: AbortSignal): Promise<void> {
    return this.#change(format.formatForwardingEntryDeletion(entry), signal, (operation) => {
      const { device, mac, destination } = entry
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

  // A device that stops takes its neighbours and the routes that have no other way left.
  #stopUsing(device: string, family: Family): void {
    const usable = (name: string): boolean => name !== device && this.#links.carries(name, family)
    remove(
      this.#routes,
      (route) => isOf(route, family) && route.nextHops.length > 0 && !route.nextHops.some((hop) => usable(hop.device)),
    )
    this.#forgetNeighbours(device, family)
  }

  // A device that goes takes every route that uses it; of IPv6 ones that have other ways, only its own.
  #forget(device: string, family: Family): void {
    for (const [key, route] of this.#routes) {
      const rest = route.nextHops.filter((hop) => hop.device !== device)
      if (!isOf(route, family) || rest.length === route.nextHops.length) continue
      if (family === 4 || rest.length === 0) this.#routes.delete(key)
      else this.#routes.set(key, normalRoute({ ...route, nextHops: rest }))
    }
    this.#forgetNeighbours(device, family)
  }

  #forgetNeighbours(device: string, family: Family): void {
    remove(this.#neighbours, (entry) => entry.device === device && familyOf(entry.address) === family)
  }

  // An IPv6 address that is taken away, unlike one that goes with its device, is forgotten by all routes.
  #forgetSource(address: string): void {
    const gone = usualAddress(address.split('/')[0] ?? '')
    for (const [key, { source, ...route }] of this.#routes) if (source === gone) this.#routes.set(key, route)
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

function isOf(route: item.Route, family: Family): boolean {
  return familyOf(route.destination) === family
}

function hasTwice(hops: readonly item.NextHop[]): boolean {
  return new Set(hops.map(({ device, via = '' }) => `${device}|${usualAddress(via)}`)).size < hops.length
}

/** As it is listed: IPv4 is not said. */
/** Of what starts on the node and has no address yet. */
function isForOwnTraffic({ inputDevice, exceptInputDevice, source }: item.Rule): boolean {
  return (inputDevice === undefined || inputDevice === 'lo') && exceptInputDevice !== 'lo' && source === undefined
}

function normalRule({ family, ...rule }: item.Rule): item.Rule {
  return family === 6 ? { family, ...rule } : rule
}

function remove<V>(items: Map<string, V>, unwanted: (value: V) => boolean): void {
  for (const [key, value] of items) if (unwanted(value)) items.delete(key)
}
