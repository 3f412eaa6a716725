/** Routes of the fake route table: what is there, what the kernel refuses about them, and what it drops. */
import { familyOf, type Family } from '../../model/addresses/ip.ts'
import { KernelError } from '../errors.ts'
import { usualAddress } from '../route/address-text.ts'
import { checkRoute, normalRoute } from '../route/check-route.ts'
import type { NextHop, Route } from '../route/route-table.ts'
import type { FakeLinks } from './fake-links.ts'
import type { FakeNextHops } from './fake-next-hops.ts'
import { needReach, routeKey } from './fake-route-state.ts'

export class FakeRoutes {
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

  /** Ids of next hops that routes of IPv6 name. */
  idsNamedByIpv6(): ReadonlySet<number> {
    const ids = this.list()
      .filter((route) => isOf(route, 6))
      .map(({ nextHopId }) => nextHopId)
    return new Set(ids.filter((id) => id !== undefined))
  }

  /** A device has stopped: routes that have no other way left go. */
  stopUsing(device: string, family: Family): void {
    const usable = (name: string): boolean => name !== device && this.#links.carries(name, family)
    this.#remove(
      (route) => isOf(route, family) && route.nextHops.length > 0 && !route.nextHops.some((hop) => usable(hop.device)),
    )
  }

  /** A device has gone, with every route that uses it; of IPv6 ones that have other ways, only its own. */
  forgetDevice(device: string, family: Family): void {
    for (const [key, route] of this.#routes) {
      const rest = route.nextHops.filter((hop) => hop.device !== device)
      if (!isOf(route, family) || rest.length === route.nextHops.length) continue
      if (family === 4 || rest.length === 0) this.#routes.delete(key)
      else this.#routes.set(key, normalRoute({ ...route, nextHops: rest }))
    }
  }

  /** Next hops or groups have gone, with the routes that name them. */
  forgetNextHops(ids: readonly number[]): void {
    this.#remove(({ nextHopId }) => nextHopId !== undefined && ids.includes(nextHopId))
  }

  /**
   * An address was removed (not with its device: then routes keep it). IPv6 routes lose it as their source, unless they
   * name a next hop. IPv4 routes keep it, as they do outside the main table.
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
