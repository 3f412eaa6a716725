/** Which router a gateway asks for ports outside, for which ports, and which answers it believes. Pure. */
import {
  type Address,
  type AddressPort,
  UNGRANTED_SPACE,
  containsAddress,
  formatAddress,
  formatAddressPort,
  parseAddress,
  prefixOf,
} from '../../../model/addresses/addresses.ts'
import { isHidden } from '../../../model/lanes/lanes.ts'
import type { GatewayLaneConfig, GatewayWorld } from '../../world/world.ts'
import { placeValidator, planCandidates } from '../plan-candidates.ts'

export interface PortMappingPlan {
  readonly router: Address
  /** Ports of the lane devices, at most one for each lane number. */
  readonly ports: readonly number[]
}

/**
 * Undefined for a gateway that asks no router: it can be called from outside, the operator states where it is called or
 * has switched this off, it has a public address of its own, or its default gateway is not a private neighbour, as the
 * router of a home or an office is.
 */
export function planPortMapping(
  world: GatewayWorld,
  lane: GatewayLaneConfig,
  ports: readonly number[],
): PortMappingPlan | undefined {
  if (lane.portMapping === false || lane.publicAddress !== undefined || ports.length === 0) return undefined
  const candidates = planCandidates(world, lane)
  // What other members state as their addresses takes nothing away here: they may be behind the same router.
  if (!isHidden(candidates) || !candidates.some(({ kind }) => kind === 'observed')) return undefined
  const own = candidates.filter(({ kind }) => kind === 'private')
  if (!own.every(({ address }) => isPrivate(parseAddress(address)))) return undefined
  const router = routerOf(world)
  return router === undefined ? undefined : { router, ports }
}

/** The next hop of the first default route, if it is a private neighbour. */
function routerOf({ machine, addresses }: GatewayWorld): Address | undefined {
  const [text] = machine?.nextHops ?? []
  if (text === undefined) return undefined
  const router = parseAddress(text)
  const isNeighbour = addresses.some(({ address }) => {
    const [own = '', length = '32'] = address.split('/')
    const at = parseAddress(own)
    return at.family === 4 && containsAddress(prefixOf(at, Number(length)), router)
  })
  return router.family === 4 && isPrivate(router) && isNeighbour ? router : undefined
}

function isPrivate(address: Address): boolean {
  return UNGRANTED_SPACE.some((prefix) => containsAddress(prefix, address))
}

/** What the answers of a router are good for. */
export interface MappedPlace {
  /** Where far gateways of this lane's own number can call. Absent: nowhere. */
  readonly place?: AddressPort
  /** What is wrong with an answer. */
  readonly problem?: string
}

/**
 * Takes the places outside that the router states, by port of this node. One that the router could have made up is
 * refused: only an address at which others see this node counts, and ports that a NAT may give. The broker saw it when it
 * joined; `seen` are the addresses at which relays see it, which follow when the network outside changes. All ports have
 * to have one distance to those outside, because far ends know one number (linkPort()).
 */
export function planMappedPlace(
  world: GatewayWorld,
  lane: GatewayLaneConfig,
  mapped: ReadonlyMap<number, AddressPort>,
  seen: readonly string[],
): MappedPlace {
  const mayUse = placeValidator(world)
  const [first, ...others] = [...mapped].sort(([a], [b]) => a - b)
  if (first === undefined) return {}
  const believed = new Set([world.observedAddress, ...seen])
  const bad = [first, ...others].find(
    ([, at]) =>
      !believed.has(formatAddress(at.address)) ||
      formatAddress(at.address) !== formatAddress(first[1].address) ||
      !mayUse(at),
  )
  if (bad !== undefined) {
    const relays = seen.length === 0 ? '' : `, or at ${seen.join(' or ')}, where relays see it`
    return {
      problem: `it maps UDP ${bad[0]} to ${formatAddressPort(bad[1])}: expected a port from 1024 at ${world.observedAddress ?? 'no address'}, where the broker saw this gateway when it joined${relays}`,
    }
  }
  const [inside, { address, port }] = first
  const distance = port - inside
  const place = { address, port: lane.port + distance }
  if (place.port < 1 || place.port > 0xffff)
    return { problem: `it maps UDP ${inside} to port ${port}: too near the end of all ports` }
  const other = others.find(([from, at]) => at.port - from !== distance)
  if (other === undefined) return { place }
  return { place, problem: `it maps UDP ${other[0]} to port ${other[1].port}: expected ${other[0] + distance}` }
}
