/**
 * The nft table through which the questions of this node to relays (bind-frame.ts) leave from the ports of its lane
 * devices, and the answers come back from there. A cable owns its port alone, but a NAT on the path gives packets of
 * another port another mapping, so an answer would say nothing about the cable. Pure.
 *
 *   socket at port S ─► output -300: source port S becomes that of the device ─► (conntrack, NAT of this node)
 *   ─► relay ─► (NAT, conntrack) ─► prerouting -90: first word of an answer? port of the device becomes S ─► socket
 *
 * Both rewrites lie between connection tracking and the sockets, so a node that translates itself has one mapping for
 * both, too.
 *
 * A NAT that maps each destination may let a far end in at another port of this node alone (port-tries.ts). Then all that
 * the device sends to that place leaves from the other port, and what comes back there is for the device. The way of
 * everything else stays.
 *
 * What the device sends to a place in doubt (suspects.ts) goes to a second place, too:
 *
 *   device ─► output -310: copy for the place ─► output -310: nothing ─► (conntrack, NAT) ─► place
 *                 └─► the packet itself gets the address of the second place ─► (conntrack, NAT) ─► second place
 *
 * `dup` sends the copy before the packet goes on, so that the present place has it first. The mark of a packet names the
 * pair of places, and no packet keeps it for longer than this chain. Connection tracking does not know copies. The kernel
 * ends this by itself if the process does not.
 */
import type { NftBaseChain, NftElement, NftMapType, NftStatement } from '../../../kernel/nft/nft.ts'
import { LANE_MARK, NFT_TABLE_REACH } from '../../../model/model.ts'
import { formatAddress, isAddress, parseAddress } from '../../../model/addresses/addresses.ts'
import { BIND_MAGIC } from '../frames/bind-frame.ts'
import type { OtherPort } from '../punch/port-tries.ts'
import { SUSPECT_MS, type TwoWays } from './suspects.ts'
import { RELAYED_MAGIC } from '../frames/punch-frame.ts'

export interface SharedPort {
  /** UDP port of a lane device. */
  readonly device: number
  /** UDP port of the socket that asks relays for the links of this device. */
  readonly socket: number
}

const TABLE = NFT_TABLE_REACH
/** Ports outside, by place and port of the device. */
export const MAP_OTHER_PORTS = 'outside'
/** A chain of this type looks up the route again after a change of the destination. */
const BEFORE_RAW_OUTPUT: NftBaseChain = { type: 'route', hook: 'output', priority: -310 }
const RAW_OUTPUT: NftBaseChain = { type: 'filter', hook: 'output', priority: -300 }
const AFTER_NAT: NftBaseChain = { type: 'filter', hook: 'prerouting', priority: -90 }
/** More than relays answer. Anyone can send octets that begin like an answer, and each costs the process time. */
const ANSWERS = 'limit rate over 2000/second burst 1000 packets'
const IS_MESSAGE = `@th,64,32 { 0x${BIND_MAGIC.toString(16)}, 0x${RELAYED_MAGIC.toString(16)} }`

/** Statements that replace the whole table in one transaction. If no port is shared, they only remove it. */
export function planSharedPorts(
  shared: readonly SharedPort[],
  others: readonly OtherPort[] = [],
  twoWays: readonly TwoWays[] = [],
): NftStatement[] {
  const clear: NftStatement[] = [
    { verb: 'add-table', table: TABLE },
    { verb: 'delete-table', table: TABLE },
  ]
  if (shared.length === 0) return clear
  return [
    ...clear,
    { verb: 'add-table', table: TABLE },
    ...portMap(
      'lanes',
      shared.map(({ device, socket }) => [socket, device]),
    ),
    ...portMap(
      'sockets',
      shared.map(({ device, socket }) => [device, socket]),
    ),
    ...otherMaps(others),
    ...secondCopies(twoWays),
    { verb: 'add-chain', table: TABLE, chain: 'questions', base: RAW_OUTPUT },
    rule('questions', `${IS_MESSAGE} udp sport set udp sport map @lanes`),
    // Messages have the device's port by now.
    ...(others.length === 0 ? [] : [rule('questions', `udp sport set ${OUTGOING} map @${MAP_OTHER_PORTS}`)]),
    { verb: 'add-chain', table: TABLE, chain: 'answers', base: AFTER_NAT },
    ...(others.length === 0 ? [] : [rule('answers', `udp dport set ${INCOMING} map @inside`)]),
    rule('answers', `${IS_MESSAGE} udp dport set udp dport map @sockets`),
    rule('answers', `${IS_MESSAGE} udp dport ${socketRange(shared)} ${ANSWERS} drop`),
  ]
}

function socketRange(shared: readonly SharedPort[]): string {
  const sockets = shared.map(({ socket }) => socket)
  return `${Math.min(...sockets)}-${Math.max(...sockets)}`
}

const OUTGOING = 'ip daddr . udp dport . udp sport'
const INCOMING = 'ip saddr . udp sport . udp dport'

function otherMaps(others: readonly OtherPort[]): NftStatement[] {
  if (others.length === 0) return []
  const type = { kind: 'map', key: 'ipv4_addr . inet_service . inet_service', value: 'inet_service' } as const
  const element = ({ to }: OtherPort, key: number, value: number): { key: string; value: string } => {
    return { key: `${formatAddress(to.address)} . ${to.port} . ${key}`, value: String(value) }
  }
  const [outside, inside] = [
    others.map((one) => element(one, one.device, one.port)),
    others.map((one) => element(one, one.port, one.device)),
  ]
  return [
    { verb: 'add-map', table: TABLE, map: MAP_OTHER_PORTS, type },
    { verb: 'add-elements', table: TABLE, map: MAP_OTHER_PORTS, elements: outside },
    { verb: 'add-map', table: TABLE, map: 'inside', type },
    { verb: 'add-elements', table: TABLE, map: 'inside', elements: inside },
  ]
}

function secondCopies(twoWays: readonly TwoWays[]): NftStatement[] {
  if (twoWays.length === 0) return []
  const pairs = twoWays.map((ways, i) => ({ ...ways, mark: pairMark(i) }))
  const key = 'ipv4_addr . inet_service . inet_service'
  const lane = `0x${LANE_MARK.toString(16)}`
  return [
    ...marksMap('suspected', { key, value: 'mark', flags: ['dynamic', 'timeout'] }, pairs, ({ device, to, mark }) => {
      return { key: `${formatAddress(to.address)} . ${to.port} . ${device} timeout ${LONGEST_SUSPECT}`, value: mark }
    }),
    ...marksMap('second-addresses', { key: 'mark', value: 'ipv4_addr' }, pairs, ({ second, mark }) => {
      return { key: mark, value: formatAddress(second.address) }
    }),
    ...marksMap('second-ports', { key: 'mark', value: 'inet_service' }, pairs, ({ second, mark }) => {
      return { key: mark, value: String(second.port) }
    }),
    { verb: 'add-chain', table: TABLE, chain: 'to-second' },
    rule('to-second', 'udp dport set meta mark map @second-ports ip daddr set meta mark map @second-addresses'),
    rule('to-second', `counter meta mark set ${lane}`),
    { verb: 'add-chain', table: TABLE, chain: 'both-ways', base: BEFORE_RAW_OUTPUT },
    rule('both-ways', `meta mark { ${pairs.map(({ mark }) => mark).join(', ')} } meta mark set ${lane} accept`),
    rule('both-ways', `meta mark ${lane} meta mark set ${OUTGOING} map @suspected dup to ip daddr goto to-second`),
  ]
}

/** Later than the process ends a doubt. */
const LONGEST_SUSPECT = `${SUSPECT_MS / 1000 + 1}s`

/** LANE_MARK with the number of the pair, from 1, in its upper half. In the form in which nft prints marks. */
function pairMark(index: number): string {
  return `0x${((index + 1) * 0x10000 + LANE_MARK).toString(16).padStart(8, '0')}`
}

function marksMap<P>(
  map: string,
  type: Omit<NftMapType, 'kind'>,
  pairs: readonly P[],
  elementOf: (pair: P) => NftElement,
): NftStatement[] {
  return [
    { verb: 'add-map', table: TABLE, map, type: { kind: 'map', ...type } },
    { verb: 'add-elements', table: TABLE, map, elements: pairs.map(elementOf) },
  ]
}

/** What planSharedPorts() has put into a table. Elements of another form are left out. */
export function otherPortsOf(elements: readonly NftElement[]): OtherPort[] {
  return elements.flatMap(({ key, value }) => {
    const [address = '', to, device, ...rest] = key.split(' . ')
    const numbers = [to, device, value].map(Number)
    if (rest.length > 0 || !isAddress(address) || !numbers.every(isPort)) return []
    const [toPort = 0, devicePort = 0, port = 0] = numbers
    return [{ device: devicePort, port, to: { address: parseAddress(address), port: toPort } }]
  })
}

function isPort(number: number): boolean {
  return Number.isInteger(number) && number > 0 && number <= 65_535
}

function portMap(name: string, pairs: readonly (readonly [number, number])[]): NftStatement[] {
  const elements = pairs.map(([key, value]) => ({ key: String(key), value: String(value) }))
  return [
    { verb: 'add-map', table: TABLE, map: name, type: { kind: 'map', key: 'inet_service', value: 'inet_service' } },
    { verb: 'add-elements', table: TABLE, map: name, elements },
  ]
}

function rule(chain: string, text: string): NftStatement {
  return { verb: 'add-rule', table: TABLE, chain, rule: text }
}
