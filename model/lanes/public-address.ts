/**
 * Where the gateways of other clusters call a gateway: at an IPv4 address or a DNS name, and on which UDP ports. A
 * gateway has one port for each lane number of the gateways that call it: the first port, which is the one that an
 * operator states, is for those with number 0, and the last for those with MAX_LANE. Pure.
 */
import {
  LANE_BASE_PORT,
  LANE_PROBE_PORT,
  OVERLAY_PROBE_PORT,
  RELAY_CALL_PORT,
  RELAY_LAST_PORT,
  RELAY_PORT,
  VXLAN_PORT,
} from '../model.ts'
import { classifyAddress, parseAddress } from '../addresses/addresses.ts'
import { MAX_NAME, isDnsLabel } from '../values/values.ts'
import { MAX_LANE } from './lane-number.ts'

/**
 * The address or DNS name at which other clusters reach this gateway if it is not the node's own (port forwarding, 1:1
 * NAT).
 */
export const ANNOTATION_PUBLIC_ADDRESS = 'sealane.io/public-address'
/** The first of the ports that the public address forwards to this gateway. */
export const ANNOTATION_PUBLIC_PORT = 'sealane.io/public-port'
/** The first of the ports on which this gateway listens. */
export const ANNOTATION_LISTEN_PORT = 'sealane.io/listen-port'
/** With the value RELAY_VALUE: the gateway of this Node forwards packets between others that cannot be called. */
export const ANNOTATION_RELAY = 'sealane.io/relay'
export const RELAY_VALUE = 'true'
/** With the value NO_PORT_MAPPING_VALUE: the gateway of this Node asks no router for ports outside. */
export const ANNOTATION_PORT_MAPPING = 'sealane.io/port-mapping'
export const NO_PORT_MAPPING_VALUE = 'false'

/** What an operator states about the calls to a gateway. */
export interface CalledAt {
  /** An IPv4 address, or a DNS name, which the gateway resolves. Absent: addresses of the Node are used. */
  readonly publicAddress?: string
  /**
   * The first port outside. Port publicPort + j leads to the port on which the gateway listens for gateways with lane
   * number j. Absent: the ports outside are those on which it listens.
   */
  readonly publicPort?: number
  /** The first port on which the gateway listens. Absent: LANE_BASE_PORT. */
  readonly listenPort?: number
  /** The gateway offers to relay between gateways that cannot be called. Absent: it does not. */
  readonly relay?: true
  /** The gateway asks no router for ports outside. Absent: it does if it cannot be called from outside. */
  readonly portMapping?: false
}

export const PUBLIC_ADDRESS_EXPECTED = 'an IPv4 address or a DNS name such as gw.example.org'
/** The greatest first port: the port for MAX_LANE still exists. */
export const MAX_FIRST_PORT = 0xffff - MAX_LANE
const PORTS_TEXT = `the first of ${MAX_LANE + 1} ports, a whole number from 1 to ${MAX_FIRST_PORT}`

type TakenPort = readonly [port: number, what: string]

/** Ports on which nodes listen for other things. Neither WireGuard nor the overlay could listen there. */
const TAKEN: readonly TakenPort[] = [
  [OVERLAY_PROBE_PORT, 'probes between nodes'],
  [LANE_PROBE_PORT, 'probes inside lanes'],
  ...Array.from({ length: MAX_LANE + 1 }, (_, lane): TakenPort => [RELAY_CALL_PORT + lane, 'questions to relays']),
]
const OVERLAY = 'the overlay between nodes'

/**
 * True for a DNS name (RFC 1123 section 2.1) of at least two labels, in any case, with or without the final dot. A name
 * whose last label is a number is none: resolvers take 127.1 and 0x7f.1 as addresses.
 */
export function isPublicName(text: string): boolean {
  const labels = text.replace(/\.$/, '').toLowerCase().split('.')
  const [last = ''] = labels.slice(-1)
  return text.length <= MAX_NAME && labels.length >= 2 && labels.every(isDnsLabel) && !/^(\d+|0x[0-9a-f]*)$/.test(last)
}

/** Returns what is wrong with a public address, as a clause; undefined if it is usable. */
export function publicAddressProblem(text: string): string | undefined {
  if (isPublicName(text)) return undefined
  const address = readable(text)
  if (address === undefined) return `expected ${PUBLIC_ADDRESS_EXPECTED}`
  const kind = classifyAddress(address)
  if (kind !== 'usable') return `it is ${kind}`
  return address.family === 4 ? undefined : `lanes are called by IPv4: expected ${PUBLIC_ADDRESS_EXPECTED}`
}

/**
 * Returns what is wrong with a first port, as a clause; undefined if it is usable. `overlayPort` is that of this
 * cluster. The default one is refused in any case, because not every caller knows that of the cluster.
 */
export function firstPortProblem(
  port: number,
  side: 'public' | 'listen',
  overlayPort: number = VXLAN_PORT,
): string | undefined {
  if (!Number.isInteger(port) || port < 1 || port > MAX_FIRST_PORT) return `expected ${PORTS_TEXT}`
  const all: readonly TakenPort[] = [...TAKEN, [overlayPort, OVERLAY], [VXLAN_PORT, OVERLAY]]
  const taken = side === 'public' ? undefined : all.find(([one]) => one >= port && one <= port + MAX_LANE)
  if (taken === undefined) return undefined
  return `expected ports that Sealane does not use itself: ${portRange(port)} contain ${taken[0]}, for ${taken[1]}`
}

/**
 * Returns what is wrong with a UDP port for the overlay, as a clause; undefined if it is usable. Ports of gateways that
 * listen elsewhere than at LANE_BASE_PORT are compared by firstPortProblem().
 */
export function overlayPortProblem(port: number): string | undefined {
  if (!Number.isInteger(port) || port < 1 || port > 0xffff) return 'expected a UDP port, a whole number from 1 to 65535'
  const isLanes = port >= LANE_BASE_PORT && port <= LANE_BASE_PORT + MAX_LANE
  const what = isLanes ? 'lanes' : TAKEN.find(([one]) => one === port)?.[1]
  if (what === undefined) return undefined
  return `expected a port that Sealane does not use itself: ${isLanes ? portRange(LANE_BASE_PORT) : port} ${isLanes ? 'are' : 'is'} for ${what}`
}

/**
 * Returns what has the UDP port on machines of a site with these gateways, as a clause; undefined if it is free. The
 * port of the overlay is compared elsewhere: where it is stated, the message is about it.
 */
export function takenPortProblem(
  port: number,
  gateways: readonly Pick<CalledAt, 'listenPort' | 'relay'>[],
): string | undefined {
  const firsts = gateways.map(({ listenPort = LANE_BASE_PORT }) => listenPort)
  const first = firsts.find((one) => port >= one && port <= one + MAX_LANE)
  if (first !== undefined) return `${portRange(first)} are for lanes`
  const what = TAKEN.find(([one]) => one === port)?.[1]
  if (what !== undefined) return `${port} is for ${what}`
  const relays = gateways.some(({ relay }) => relay === true)
  if (!relays || port < RELAY_PORT || port > RELAY_LAST_PORT) return undefined
  return `${RELAY_PORT} to ${RELAY_LAST_PORT} are for relayed packets`
}

/**
 * Returns why a gateway that is called there cannot relay, as a clause; undefined if it can. The ports are UDP ports. A
 * gateway with other ports outside cannot, because ends find a relay at the same ports at its address.
 */
export function relayProblem(
  { listenPort = LANE_BASE_PORT, publicPort = listenPort }: Undefinable<Pick<CalledAt, 'listenPort' | 'publicPort'>>,
  overlayPort: number = VXLAN_PORT,
): string | undefined {
  const isIn = (first: number, last: number): boolean => first <= RELAY_LAST_PORT && last >= RELAY_PORT
  const relays = `ports ${RELAY_PORT} to ${RELAY_LAST_PORT} are for relayed packets`
  if (isIn(listenPort, listenPort + MAX_LANE)) return `${relays}, and ${portRange(listenPort)} are for lanes`
  if (isIn(overlayPort, overlayPort)) return `${relays}, and ${overlayPort} is for the overlay between nodes`
  if (publicPort === listenPort) return undefined
  return `${relays}, outside too: expected ${listenPort} as the public port, or none, not ${publicPort}`
}

/** Parses the decimal text of a first port. NaN if it is none. */
export function parsePort(text: string): number {
  return /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN
}

/** All ports that belong to a first port: `51820 to 51827`. */
export function portRange(first: number): string {
  return `${first} to ${first + MAX_LANE}`
}

/** The first port outside: that of the public address, else the first one on which the gateway listens. */
export function firstPublicPort({ publicPort, listenPort }: Pick<CalledAt, 'publicPort' | 'listenPort'>): number {
  return publicPort ?? listenPort ?? LANE_BASE_PORT
}

/** Whether two gateways have the same public address and some of the same ports there, so that one is not reached. */
export function isCalledAlike(a: Undefinable<CalledAt>, b: Undefinable<CalledAt>): boolean {
  if (a.publicAddress === undefined || a.publicAddress !== b.publicAddress) return false
  return Math.abs(firstPublicPort(calledAt(a)) - firstPublicPort(calledAt(b))) <= MAX_LANE
}

/** The fields that are set, without undefined ones. */
export function calledAt(calls: Undefinable<CalledAt>): CalledAt {
  const { publicAddress, publicPort, listenPort, relay, portMapping } = calls
  return {
    ...(publicAddress === undefined ? {} : { publicAddress }),
    ...(publicPort === undefined ? {} : { publicPort }),
    ...(listenPort === undefined ? {} : { listenPort }),
    ...(relay === undefined ? {} : { relay }),
    ...(portMapping === undefined ? {} : { portMapping }),
  }
}

type Undefinable<T> = { readonly [K in keyof T]?: T[K] | undefined }

function readable(text: string): ReturnType<typeof parseAddress> | undefined {
  try {
    return parseAddress(text)
  } catch {
    return undefined
  }
}
