/** Valid lane numbers, and what a gateway states about the links that it supports. */
import type { ConnectionStatus, Endpoint } from '../model.ts'

/** A cluster has at most eight active gateways. A gateway has one device for each lane number that others use. */
export const MAX_LANE = 7

/**
 * Capability of an Endpoint: its gateway has a device for each remote lane number. A gateway without it, of a release
 * up to 0.1, has links only with gateways of its own number.
 */
export const CAPABILITY_ALL_PAIRS = 'all-pairs'

/**
 * Capability of an Endpoint: its gateway is about to stop. It still accepts traffic; senders with another route to its
 * cluster use that.
 */
export const CAPABILITY_DRAINING = 'draining'

/**
 * Capability of an Endpoint: its gateway learns the next key of a far end from the Endpoint, and adopts it when the far
 * end confirms it through the lane. A gateway without it, of a release up to 0.1, makes a new handshake.
 */
export const CAPABILITY_FOLLOWS_KEYS = 'follows-keys'

/** Capability of an Endpoint: its gateway answers padded probes (kernel/probing/probe-packet.ts). */
export const CAPABILITY_SIZED_PROBES = 'sized-probes'

/**
 * Capability of an Endpoint: its gateway relays between gateways that cannot be called, at UDP port RELAY_PORT of the
 * address at which it is called. A gateway of an earlier release ignores it.
 */
export const CAPABILITY_RELAY = 'relay'

/**
 * Capability of an Endpoint that relays: ends share the ports of the relay, so it serves PAIRS_OF_RELAY pairs. One
 * without it, of an earlier release, serves PAIRS_OF_EARLIER_RELAY. Ends need not know of it.
 */
export const CAPABILITY_RELAY_SHARES_PORTS = 'relay-shares-ports'

/**
 * Capability of an Endpoint: a router leads calls to its gateway, at the first of its observed candidates. A gateway of
 * an earlier release calls there, too, and ignores this.
 */
export const CAPABILITY_PORT_MAPPED = 'port-mapped'

export function isLaneNumber(value: number): boolean {
  return Number.isInteger(value) && value >= 0 && value <= MAX_LANE
}

/** A node that knows no other cluster yet has the device for this number, which every cluster uses. */
const FIRST_LANE = 0

/**
 * Returns the lane numbers of remote gateways for which a node that serves a lane has devices, in order. It is never
 * empty: the device identifies its node, which others must know before they can have a link to it.
 */
export function remoteLanes(numbers: Iterable<number>): readonly number[] {
  const used = [...new Set(numbers)].filter(isLaneNumber)
  return used.length === 0 ? [FIRST_LANE] : used.sort((a, b) => a - b)
}

/** Returns remoteLanes() of the Endpoints of all clusters but `self`. A gateway may refuse some of them. */
export function statedRemoteLanes(endpoints: readonly Endpoint[], self: string): readonly number[] {
  return remoteLanes(endpoints.filter(({ spec }) => spec.cluster !== self).map(({ spec }) => spec.lane))
}

/** A status of an earlier release does not state the far gateway's number; it is that of its own lane. */
export function remoteLaneOf({ lane, remoteLane }: Pick<ConnectionStatus, 'lane' | 'remoteLane'>): number {
  return remoteLane ?? lane
}

/**
 * The most Endpoints of one member: eight lanes, and for a while those of gateways that have handed over. Every gateway
 * processes each Endpoint of the other members in every round. The broker rejects more, and importers ignore more.
 */
export const MAX_ENDPOINTS_PER_CLUSTER = 64
