/** The packets of one call, as a probe sends them and as they look at each place of the way. Pure. */
import { type FamilyName, familyName, isAddress, parseAddress } from '../../model/addresses/addresses.ts'
import { MOST_DESTINATIONS, MOST_PORTS } from './packet-probe.ts'
import { type Trip, type Way, globalOf, ownOf } from './trip.ts'

export interface CallPackets {
  readonly family: 4 | 6
  readonly protocol: 'tcp' | 'udp'
  readonly to: string
  /** Absent if none was named, and the service has more than one. */
  readonly port?: number
  /** The address of the caller. Absent if only its kernel knows it. */
  readonly source?: string
  /** The node of the caller. Absent if it is not known. */
  readonly node?: string
  /** The caller is a pod with a network of its own. */
  readonly isPod: boolean
  /** Addresses of the caller, as the members see it. Empty if they are not known. */
  readonly sources: readonly string[]
  /** All addresses and ports that are called, as the members see them. */
  readonly destinations: readonly string[]
  readonly ports: readonly number[]
  /** There are more of them than can be followed, or not all are known here. */
  readonly isCut: boolean
  /** The cluster that has a called address, under which the packets leave the node of the caller. */
  readonly clusterOf: ReadonlyMap<string, string>
}

/** Undefined if no address is known that could be called. */
export function callPackets(trip: Trip, ways: readonly Way[]): CallPackets | undefined {
  const { here, to, virtual, caller, imported } = trip
  const backends = ways.flatMap(({ cluster, backends: all }) =>
    all.filter(({ address }) => isAddress(address)).map((backend) => ({ ...backend, cluster })),
  )
  const called = virtual ?? (to.what === 'address' ? to.address : backends[0]?.address)
  if (called === undefined) return undefined
  const isRewritten = virtual !== undefined
  const offered = (imported?.object.spec.ports ?? []).filter(({ protocol }) => protocol.toLowerCase() === to.protocol)
  const port = to.port ?? (offered.length === 1 ? offered[0]?.port : undefined)
  const of: FamilyName = familyName(parseAddress(called).family)
  const isOf = (one: string): boolean => familyName(parseAddress(one).family) === of
  const all = backends.flatMap(({ address, cluster }) => [address, mapped(() => ownOf(address, cluster, here))])
  const destinations = [...new Set([called, ...all])].filter((one) => one !== undefined).filter(isOf)
  const ports = [port, ...(isRewritten ? backends.map((backend) => backend.port) : [])].filter(
    (one) => one !== undefined,
  )
  const { address: source } = caller
  const global = mapped(() => globalOf(source, here.self, here))
  const allPorts = [...new Set(ports)]
  return {
    ...{ family: of === 'IPv4' ? 4 : 6, protocol: to.protocol, to: called },
    ...(port === undefined ? {} : { port }),
    ...(source === undefined ? {} : { source }),
    ...(caller.node === undefined ? {} : { node: caller.node }),
    isPod: typeof caller.namespace === 'string',
    // Where the other members see a shared address, only the source port shows whose packets they are.
    sources: source === undefined || global === undefined ? [] : [...new Set([source, global])],
    destinations: destinations.slice(0, MOST_DESTINATIONS),
    ports: allPorts.slice(0, MOST_PORTS),
    isCut: destinations.length > MOST_DESTINATIONS || allPorts.length > MOST_PORTS || all.includes(undefined),
    clusterOf: new Map(backends.map(({ address, cluster }) => [address, cluster])),
  }
}

/** Undefined in pool mode, where addresses are not mapped one to one. */
function mapped(map: () => string | undefined): string | undefined {
  try {
    return map()
  } catch {
    return undefined
  }
}
