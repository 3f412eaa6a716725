/** The relays that this cluster knows, for `sealane show relays`: who offers them, how good they are, who uses them. Pure. */
import type { ConnectionStatus, Endpoint, Gateway } from '../../model/model.ts'
import {
  CAPABILITY_RELAY,
  RUNG_TCP_443,
  decodeRelayCosts,
  decodeRelayNotice,
  readRelayAddress,
  relayName,
} from '../../model/lanes/lanes.ts'

export interface RelayRow {
  /** Name of the Endpoint of the gateway that relays; `tcp-443 host` for a relay on port 443. */
  readonly relay: string
  /** datagrams: a gateway of a member forwards them. */
  readonly carries: 'datagrams' | typeof RUNG_TCP_443
  /** The member, or `broker` for a relay that the broker names. */
  readonly offeredBy: string
  /** The shortest round trip of the gateways of this cluster to it, in milliseconds. Absent: none has a link with it. */
  readonly rttMs?: number
  /** What the relay states, from 0 to 1. Absent: it states nothing. */
  readonly load?: number
  /** What is wrong with it, as gateways of this cluster see it. Absent: nothing. */
  readonly troubles?: readonly { readonly node: string; readonly reason: string; readonly note?: string }[]
  /** What gateways of this cluster say of it that is no trouble: another address leads to the same process. */
  readonly remarks?: readonly { readonly node: string; readonly note: string }[]
  /** Links of this cluster that it carries now. */
  readonly links: readonly { readonly node: string; readonly cluster: string }[]
}

export interface RelayObjects {
  readonly gateways: readonly Gateway[]
  readonly endpoints: readonly Endpoint[]
  /** The annotation of the Membership: RELAYS_ANNOTATION. */
  readonly notice: string | undefined
}

/** Relays of members by name, and then those on port 443 in the broker's order. */
export function relayRows({ gateways, endpoints, notice }: RelayObjects): readonly RelayRow[] {
  const connections = gateways.flatMap((gateway) =>
    (gateway.status?.connections ?? []).map((connection) => ({ ...connection, node: gateway.metadata.name })),
  )
  const members = endpoints
    .filter(({ spec }) => spec.capabilities.includes(CAPABILITY_RELAY))
    .map((endpoint) => memberRow(endpoint, connections))
  const web = decodeRelayNotice(notice).addresses.flatMap((text): RelayRow[] => {
    const address = readRelayAddress(text)
    if (address === undefined) return []
    const relay = relayName(address)
    const links = usersOf(connections.filter(({ usingRelay }) => usingRelay === relay))
    const troubles = troublesOf(gateways, relay)
    const remarks = remarksOf(gateways, relay)
    return [
      {
        ...{ relay, carries: RUNG_TCP_443, offeredBy: 'broker', links },
        ...(troubles.length === 0 ? {} : { troubles }),
        ...(remarks.length === 0 ? {} : { remarks }),
      },
    ]
  })
  return [...members.sort((a, b) => (a.relay < b.relay ? -1 : 1)), ...web]
}

type NodeConnection = ConnectionStatus & { readonly node: string }

function memberRow({ metadata, spec }: Endpoint, connections: readonly NodeConnection[]): RelayRow {
  const own = connections.filter(({ endpoint, state }) => endpoint === metadata.name && state === 'up')
  const rtts = own.flatMap(({ rttMs }) => (rttMs === undefined ? [] : [rttMs]))
  const { load } = decodeRelayCosts(spec.capabilities)
  // A member may have several gateways that relay: the link with each shows its address.
  const hosts = new Set(own.map(({ usingAddress }) => hostOf(usingAddress)))
  const carried = connections.filter(({ usingRelay, usingAddress }) => {
    return usingRelay === spec.cluster && hosts.has(hostOf(usingAddress))
  })
  return {
    relay: metadata.name,
    carries: 'datagrams',
    offeredBy: spec.cluster,
    ...(rtts.length === 0 ? {} : { rttMs: Math.min(...rtts) }),
    ...(load === undefined ? {} : { load }),
    links: usersOf(carried),
  }
}

function troublesOf(gateways: readonly Gateway[], relay: string): NonNullable<RelayRow['troubles']> {
  return gateways.flatMap(({ metadata, status }) =>
    (status?.relays ?? []).flatMap(({ name, reason, note }) =>
      name === relay && reason !== undefined
        ? [{ node: metadata.name, reason, ...(note === undefined ? {} : { note }) }]
        : [],
    ),
  )
}

function remarksOf(gateways: readonly Gateway[], relay: string): NonNullable<RelayRow['remarks']> {
  return gateways.flatMap(({ metadata, status }) =>
    (status?.relays ?? []).flatMap(({ name, reason, note }) =>
      name === relay && reason === undefined && note !== undefined ? [{ node: metadata.name, note }] : [],
    ),
  )
}

function usersOf(connections: readonly NodeConnection[]): RelayRow['links'] {
  return connections.map(({ node, cluster }) => ({ node, cluster }))
}

/** Without the port, which is another one for each link. */
function hostOf(address: string | undefined): string | undefined {
  return address?.slice(0, address.lastIndexOf(':'))
}
