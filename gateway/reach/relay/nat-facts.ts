/** Gathers what planNat() needs from the world, the links of a plan, and what relays have shown. */
import { formatAddress } from '../../../model/addresses/addresses.ts'
import { UDP_SETTLES_MS, type UdpLink } from '../../../model/lanes/lanes.ts'
import { linkKey } from '../../cable/cable.ts'
import { type GatewayLaneConfig, type GatewayWorld, healthKey } from '../../world/world.ts'
import { ownAddresses, ownObservedAddress, planCandidates } from '../plan-candidates.ts'
import type { NatFacts } from '../nat/plan-nat.ts'
import type { PlannedLane } from './links-in-use.ts'
import { type LinkInUse, isRelayPlace } from './plan-relay-use.ts'
import { isWebPlace } from '../web/plan-web-use.ts'

interface NatSources extends Pick<NatFacts, 'seen' | 'mapping' | 'sights'> {
  readonly lanes: readonly PlannedLane[]
  /** All links, also without a relay: where their packets go shows who is near. */
  readonly inUse: readonly LinkInUse[]
  /** The links for which relays are chosen. None without a relay. */
  readonly links: readonly LinkInUse[]
  readonly lifeSeconds: number | undefined
}

/** Takes the world, the own lane, and what a plan and measurements have shown. Returns the facts of planNat(). */
export function natFacts(world: GatewayWorld, own: GatewayLaneConfig, sources: NatSources): NatFacts {
  const { links, inUse, lanes, lifeSeconds, sights, seen, mapping } = sources
  const observed = ownObservedAddress(world)
  const inside = planCandidates(world, own).find(({ kind }) => kind === 'private')?.address
  return {
    ownAddresses: ownAddresses(world),
    ...(inside === undefined ? {} : { inside }),
    ...(observed === undefined ? {} : { observed }),
    ...(lifeSeconds === undefined ? {} : { lifeSeconds }),
    ...(world.routerOutside === undefined ? {} : { routerOutside: world.routerOutside }),
    ...{ sights, seen, mapping, neighbours: neighboursOf(inUse, lanes) },
    others: world.endpoints.flatMap(({ spec: { cluster, candidates } }) =>
      candidates.flatMap(({ kind, address }) => (kind === 'observed' ? [{ cluster, address }] : [])),
    ),
    links: links.map((link): UdpLink => {
      const { remoteLane, cluster, hidden, via, state, at } = link
      const sinceMs = world.health.get(healthKey(remoteLane, cluster))?.sinceMs ?? world.monotonicMs
      return {
        cluster,
        by: state !== 'up' ? 'none' : isWebPlace(at) ? 'tcp-443' : 'udp',
        isCallable: !hidden && via === undefined,
        isNew: world.monotonicMs - sinceMs < UDP_SETTLES_MS,
      }
    }),
  }
}

/** Links that are up by UDP without a relay, with where their packets go. */
function neighboursOf(inUse: readonly LinkInUse[], lanes: readonly PlannedLane[]): NatFacts['neighbours'] {
  const planned = lanes.flatMap(({ links }) => links)
  const privates = new Map(
    planned.map((link) => [
      linkKey(link),
      new Set(link.candidates.flatMap(({ kind, address }) => (kind === 'private' ? [address] : []))),
    ]),
  )
  return inUse.flatMap(({ key, cluster, state, at }) => {
    if (at === undefined || state !== 'up' || isWebPlace(at) || isRelayPlace(at)) return []
    const address = formatAddress(at.address)
    return [{ cluster, address, isPrivate: privates.get(key)?.has(address) === true }]
  })
}
