/** The route table of this network namespace, over rtnetlink (npm `netlink`, repository node_netlink). */
import { FAMILIES, familyOf, parseAddress, type Family } from '../../model/addresses/addresses.ts'
import {
  checkDeviceName,
  checkInterfaceAddress,
  checkMac,
  checkRoute,
  checkRule,
  normalRoute,
  refuseInvalid,
  routeMetric,
} from './check-route.ts'
import { KernelError, namingPortHolders } from '../kernel.ts'
import {
  formatAddress,
  formatForwardingEntry,
  formatForwardingEntryDeletion,
  formatLink,
  formatLinkChange,
  formatLinkDeletion,
  formatLookup,
  formatNeighbour,
  formatNeighbourDeletion,
  formatRoute,
  formatRouteDeletion,
  formatRule,
  formatRuleDeletion,
} from './format-ip.ts'
import {
  NLM_F_CREATE,
  NLM_F_EXCL,
  NLM_F_REPLACE,
  RtnetlinkSocket,
  watchGroups,
  type KernelMessage,
} from './netlink-socket.ts'
import type {
  ForwardingEntry,
  InterfaceAddress,
  NewAddress,
  Link,
  MainRoute,
  Neighbour,
  NewLink,
  Route,
  RouteTable,
  Rule,
  VxlanLink,
} from './route-table.ts'
import * as link from './rtnetlink-link.ts'
import * as neigh from './rtnetlink-link.ts'
import { allDevices, deviceNames, needDevice } from './rtnetlink-link.ts'
import { watchNextHops } from './next-hop-codec.ts'
import * as route from './rtnetlink-route.ts'

/** Multicast groups: links, IPv4 addresses, routes and rules, IPv6 addresses, routes and rules. */
const WATCHED_GROUPS = [1, 5, 7, 8, 9, 11, 19]
/**
 * Neighbours and forwarding entries. Notifications are filtered by device, because entries of other devices change all
 * the time.
 */
const NEIGHBOUR_GROUPS = [3]

export interface RtnetlinkInit {
  /** For each request; default 5,000. */
  readonly timeoutMs?: number
}

export class Rtnetlink implements RouteTable {
  readonly #socket: RtnetlinkSocket
  readonly #watches = new Set<() => void>()
  /** Numbers of the devices whose neighbours or forwarding entries have been listed. */
  readonly #neighbourDevices = new Set<number>()

  /** Uses the network namespace in which the process is at the time of the call. Throws KernelError. */
  constructor(init: RtnetlinkInit = {}) {
    this.#socket = new RtnetlinkSocket(init.timeoutMs)
  }

  links(signal?: AbortSignal): Promise<readonly (Link | VxlanLink)[]> {
    return allDevices(this.#socket, signal)
  }

  async addLink(item: NewLink, signal?: AbortSignal): Promise<void> {
    const operation = formatLink(item)
    checkDeviceName(item.name, operation)
    if (item.kind === 'vxlan') {
      checkMac(item.mac, operation)
      refuseInvalid(operation, () => parseAddress(item.local, 'local'))
    }
    try {
      await this.#change(link.RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, link.encodeNewLink(item), operation, signal)
    } catch (error) {
      throw item.kind === 'vxlan' ? await namingPortHolders(error, item.port) : error
    }
  }

  async setLink(
    name: string,
    change: { readonly up?: boolean; readonly mtu?: number },
    signal?: AbortSignal,
  ): Promise<void> {
    const operation = formatLinkChange(name, change)
    const present = await this.#needLink(name, operation, signal)
    try {
      await this.#change(link.RTM_NEWLINK, 0, link.encodeLinkChange(present.index, change), operation, signal)
    } catch (error) {
      throw 'port' in present ? await namingPortHolders(error, present.port) : error
    }
  }

  async deleteLink(name: string, signal?: AbortSignal): Promise<void> {
    const operation = formatLinkDeletion(name)
    const { index } = await this.#needLink(name, operation, signal)
    await this.#change(link.RTM_DELLINK, 0, link.encodeLinkIndex(index), operation, signal)
  }

  async addresses(signal?: AbortSignal): Promise<readonly InterfaceAddress[]> {
    const names = await deviceNames(this.#socket, signal)
    const messages = await this.#dump(link.RTM_GETADDR, link.encodeAddressDump(), 'ip address show', signal)
    return messages.map((message) => link.decodeAddress(message.data, names)).filter((item) => item !== undefined)
  }

  async addAddress(address: NewAddress, signal?: AbortSignal): Promise<void> {
    const operation = formatAddress(address)
    checkInterfaceAddress(address, operation)
    const { index } = await this.#needLink(address.device, operation, signal)
    const body = link.encodeAddress(address.address, index, address.scope)
    await this.#change(link.RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, body, operation, signal)
  }

  async deleteAddress(address: InterfaceAddress, signal?: AbortSignal): Promise<void> {
    const operation = `ip address del ${address.address} dev ${address.device}`
    checkInterfaceAddress(address, operation)
    const { index } = await this.#needLink(address.device, operation, signal)
    await this.#change(link.RTM_DELADDR, 0, link.encodeAddress(address.address, index), operation, signal)
  }

  async routes(signal?: AbortSignal): Promise<readonly Route[]> {
    return this.#routeDump('route show table all', route.decodeRoute, signal)
  }

  async replaceRoute(item: Route, signal?: AbortSignal): Promise<void> {
    const operation = formatRoute(item)
    checkRoute(item)
    const indexes = new Map<string, number>()
    for (const { device } of item.nextHops) indexes.set(device, (await this.#needLink(device, operation, signal)).index)
    const body = route.encodeRoute(item, (device) => indexes.get(device) ?? 0)
    await this.#change(route.RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, body, operation, signal)
  }

  async deleteRoute(item: Route, signal?: AbortSignal): Promise<void> {
    const operation = formatRouteDeletion(item)
    checkRoute(item)
    // For IPv4, the kernel matches any metric if none is given. For IPv6, it ignores the type. So check that the route
    // to delete is this one.
    const listed = routeMetric(item) === 0 || familyOf(item.destination) === 6
    if (listed && !(await this.routes(signal)).some((other) => isSameRoute(other, item))) {
      throw new KernelError('ESRCH', operation, 'no such route')
    }
    await this.#change(route.RTM_DELROUTE, 0, route.encodeRouteDeletion(item), operation, signal)
  }

  async mainRoutes(signal?: AbortSignal): Promise<readonly MainRoute[]> {
    return this.#routeDump('route show', route.decodeMainRoute, signal)
  }

  async lookup(
    destination: string,
    signal?: AbortSignal,
    mark = 0,
  ): Promise<{ readonly device: string; readonly source?: string; readonly mtu: number }> {
    const operation = formatLookup(destination)
    refuseInvalid(operation, () => parseAddress(destination, 'destination'))
    const request = { type: route.RTM_GETROUTE, body: route.encodeLookup(destination, mark), operation, signal }
    const [answer] = await this.#socket.request(request)
    if (answer === undefined) throw new KernelError('UNKNOWN', operation, 'the kernel returned no route')
    const found = route.decodeLookup(answer.data)
    const device = (await this.links(signal)).find((item) => item.index === found.index)
    if (device === undefined) throw new KernelError('ENODEV', operation, `device ${found.index} no longer exists`)
    return {
      device: device.name,
      ...(found.source === undefined ? {} : { source: found.source }),
      mtu: found.mtu ?? device.mtu,
    }
  }

  async rules(signal?: AbortSignal): Promise<readonly Rule[]> {
    const found: Rule[] = []
    for (const family of FAMILIES) {
      const operation = family === 4 ? 'ip rule show' : 'ip -6 rule show'
      const messages = await this.#dump(route.RTM_GETRULE, route.encodeRuleDump(family), operation, signal)
      found.push(...messages.map(({ data }) => route.decodeRule(data, family)).filter((item) => item !== undefined))
    }
    return found
  }

  async addRule(rule: Rule, signal?: AbortSignal): Promise<void> {
    const operation = formatRule(rule)
    checkRule(rule, operation)
    await this.#change(route.RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, route.encodeRule(rule), operation, signal)
  }

  async deleteRule(rule: Rule, signal?: AbortSignal): Promise<void> {
    const operation = formatRuleDeletion(rule)
    checkRule(rule, operation)
    await this.#change(route.RTM_DELRULE, 0, route.encodeRule(rule), operation, signal)
  }

  async neighbours(device: string, signal?: AbortSignal): Promise<readonly Neighbour[]> {
    const entries = await this.#neighbourDump(device, FAMILIES, `ip neighbour show dev ${device}`, signal)
    return entries.map(({ address, mac }) => ({ device, address, mac }))
  }

  async replaceNeighbour(neighbour: Neighbour, signal?: AbortSignal): Promise<void> {
    const operation = formatNeighbour(neighbour)
    checkMac(neighbour.mac, operation)
    refuseInvalid(operation, () => parseAddress(neighbour.address))
    const { index } = await this.#needUp(neighbour.device, operation, signal)
    const body = neigh.encodeNeighbour(neighbour, index)
    await this.#change(neigh.RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, body, operation, signal)
  }

  async deleteNeighbour(neighbour: Neighbour, signal?: AbortSignal): Promise<void> {
    const operation = formatNeighbourDeletion(neighbour)
    refuseInvalid(operation, () => parseAddress(neighbour.address))
    const { index } = await this.#needLink(neighbour.device, operation, signal)
    await this.#change(neigh.RTM_DELNEIGH, 0, neigh.encodeNeighbour(neighbour, index), operation, signal)
  }

  async forwardingEntries(device: string, signal?: AbortSignal): Promise<readonly ForwardingEntry[]> {
    const entries = await this.#neighbourDump(device, ['forwarding'], `bridge fdb show dev ${device}`, signal)
    return entries.map(({ address, mac }) => ({ device, mac, destination: address }))
  }

  async replaceForwardingEntry(entry: ForwardingEntry, signal?: AbortSignal): Promise<void> {
    const operation = formatForwardingEntry(entry)
    checkMac(entry.mac, operation)
    refuseInvalid(operation, () => parseAddress(entry.destination))
    const { index, kind } = await this.#needLink(entry.device, operation, signal)
    if (kind !== 'vxlan') throw new KernelError('EOPNOTSUPP', operation, 'not a vxlan device')
    const body = neigh.encodeForwardingEntry(entry, index)
    await this.#change(neigh.RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, body, operation, signal)
  }

  async deleteForwardingEntry(entry: ForwardingEntry, signal?: AbortSignal): Promise<void> {
    const operation = formatForwardingEntryDeletion(entry)
    checkMac(entry.mac, operation)
    refuseInvalid(operation, () => parseAddress(entry.destination))
    const { index } = await this.#needLink(entry.device, operation, signal)
    await this.#change(neigh.RTM_DELNEIGH, 0, neigh.encodeForwardingEntry(entry, index), operation, signal)
  }

  onChange(listener: () => void): () => void {
    const stops = [
      watchGroups(WATCHED_GROUPS, listener),
      // The kernel sends no notification about IPv4 routes that it removes with a next-hop object.
      watchNextHops(listener),
      watchGroups(NEIGHBOUR_GROUPS, listener, ({ data }) => this.#neighbourDevices.has(neigh.deviceOf(data))),
    ]
    const stop = (): void => stops.forEach((one) => one())
    this.#watches.add(stop)
    return () => {
      this.#watches.delete(stop)
      stop()
    }
  }

  close(): void {
    for (const stop of this.#watches) stop()
    this.#watches.clear()
    this.#socket.close()
  }

  #dump(
    type: number,
    body: Uint8Array[],
    operation: string,
    signal: AbortSignal | undefined,
  ): Promise<readonly KernelMessage[]> {
    return this.#socket.dump({ type, body, operation, signal })
  }

  async #change(
    type: number,
    flags: number,
    body: Uint8Array[],
    operation: string,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    await this.#socket.request({ type, flags, body, operation, signal })
  }

  #needLink(name: string, operation: string, signal: AbortSignal | undefined): Promise<Link | VxlanLink> {
    return needDevice(this.#socket, name, operation, signal)
  }

  // The kernel accepts neighbours of a device that is down, but forgets them when it comes up.
  async #needUp(name: string, operation: string, signal: AbortSignal | undefined): Promise<Link | VxlanLink> {
    const found = await this.#needLink(name, operation, signal)
    if (!found.up) throw new KernelError('ENETDOWN', operation, `${name} is down`)
    return found
  }

  async #neighbourDump(
    device: string,
    kinds: readonly neigh.NeighbourKind[],
    operation: string,
    signal: AbortSignal | undefined,
  ): Promise<readonly { readonly mac: string; readonly address: string }[]> {
    const { index } = await this.#needLink(device, operation, signal)
    this.#neighbourDevices.add(index)
    const found: { readonly mac: string; readonly address: string }[] = []
    for (const kind of kinds) {
      const messages = await this.#dump(neigh.RTM_GETNEIGH, neigh.encodeNeighbourDump(kind), operation, signal)
      const entries = messages.map(({ data }) => neigh.decodeNeighbour(data, kind, index))
      found.push(...entries.filter((item) => item !== undefined))
    }
    return found
  }

  async #routeDump<T>(
    words: string,
    decode: (data: Buffer, family: Family, name: route.DeviceNames) => T | undefined,
    signal: AbortSignal | undefined,
  ): Promise<readonly T[]> {
    const names = await deviceNames(this.#socket, signal)
    const found: T[] = []
    for (const family of FAMILIES) {
      const operation = family === 4 ? `ip ${words}` : `ip -6 ${words}`
      const messages = await this.#dump(route.RTM_GETROUTE, route.encodeRouteDump(family), operation, signal)
      for (const { data } of messages) {
        const item = decode(data, family, (index) => names.get(index))
        if (item !== undefined) found.push(item)
      }
    }
    return found
  }
}

function isSameRoute(listed: Route, route: Route): boolean {
  const { table, destination, type } = normalRoute(route)
  return (
    listed.table === table &&
    listed.destination === destination &&
    listed.type === type &&
    routeMetric(listed) === routeMetric(route)
  )
}
