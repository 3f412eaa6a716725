/**
 * The nft table of a relay. It forwards the packets of bound pairs from address to address in the kernel, without
 * connection tracking, and without a header of its own, so the MTU of a link does not change. Pure.
 *
 *   end A ─► A's port ─► prerouting -300: to where? ─► forward ─► postrouting 300: from where? ─► B's port ─► end B
 *
 * The destination is rewritten before the routing decision. The source is rewritten after it, because the kernel drops
 * packets that come in with one of its own addresses as source. All pairs share a few rules: what differs is in maps.
 *
 * Questions of ends (bind-frame.ts) have a first word of their own. They go to the socket of the port at which they
 * arrive, and are never forwarded, so no end can be bound through another relay, and relays form no circle. Anything
 * else from an address that is not bound is left alone until the kernel finds that it is for this node: the node may give
 * pods that it translates ports from those of the relay, and their answers arrive there.
 */
import type { NftBaseChain, NftMapType, NftStatement } from '../../../kernel/nft/nft.ts'
import { type Address, type AddressPort, formatAddress } from '../../../model/addresses/addresses.ts'
import { LANE_MARK, NFT_TABLE_RELAY } from '../../../model/model.ts'
import { BIND_MAGIC } from '../frames/bind-frame.ts'
import type { RelayPath } from './bindings.ts'
import type { PortRange } from './relay-ports.ts'

export interface RelayTableInit {
  /** The relay's own IPv4 address, as its interface has it. */
  readonly address: Address
  /** All UDP ports of the relay: the control port and those of pairs. */
  readonly ports: PortRange
  /** Most pairs that it may have: at most 32,767, since numbers of directions have half of a mark. */
  readonly mostPairs: number
  readonly paths: readonly RelayPath[]
  /** The ports of `ports` at which a socket takes questions. */
  readonly openPorts: readonly number[]
  /** Bound ends, each with its port. */
  readonly known: readonly { readonly at: AddressPort; readonly port: number }[]
  /** Most octets in a second that one end of a pair may send. */
  readonly bytesPerSecond: number
  /** Most octets in a second that all ends of one member may send together. */
  readonly memberBytesPerSecond: number
}

/** Named counters of dropped packets, with their meanings. */
export const RELAY_DROPS = {
  unbound: 'not from the address that is bound to this port',
  closed: 'a question to a port that no pair has',
  'over-rate': 'more than one end of a pair may send',
  'over-member-rate': 'more than the ends of one member may send together',
  'asked-often': 'more questions than are answered',
} as const
export type RelayDrop = keyof typeof RELAY_DROPS

/** Octets and packets by RelayPath.number. */
export const SET_CARRIED = 'carried'

const TABLE = NFT_TABLE_RELAY
/** Where to, by address and port of the sender and the port at which a packet arrives. */
const MAP_ADDRESSES = 'addresses'
const MAP_PORTS = 'ports'
/** The port from which a packet leaves, by its source and its new destination. */
const MAP_LEAVES = 'leaves'
const SET_OPEN = 'open'
const SET_KNOWN = 'known'
const SET_RATES = 'rates'
/** RelayPath.member in the upper half of a mark and RelayPath.number in the lower half, by the sender. */
const MAP_SENDERS = 'senders'
const MEMBER_FACTOR = 0x10000
const NUMBER_BITS = 0xffff
const MEMBER_BITS = 0xffff0000
const SET_MEMBER_RATES = 'member-rates'
const MOST_MEMBERS = 4096
const SET_ASKERS = 'askers'

/** Before connection tracking (-200), and after all source NAT (100). */
const RAW: NftBaseChain = { type: 'filter', hook: 'prerouting', priority: -300 }
const RAW_OUTPUT: NftBaseChain = { type: 'filter', hook: 'output', priority: -300 }
const INPUT: NftBaseChain = { type: 'filter', hook: 'input', priority: 0 }
const LAST: NftBaseChain = { type: 'filter', hook: 'postrouting', priority: 300 }

/** Strangers get this many questions through in a second, all together and each. Bound ends only have the latter. */
const QUESTIONS = 'limit rate over 1000/second burst 200 packets'
const QUESTIONS_OF_ONE = 'limit rate over 50/second burst 100 packets'
const MOST_ASKERS = 16_384

const IS_QUESTION = `@th,64,32 0x${BIND_MAGIC.toString(16)}`
const SENDER = 'ip saddr . udp sport . udp dport'
const NUMBER = `meta mark & 0x${NUMBER_BITS.toString(16)}`
const MEMBER = `meta mark & 0x${MEMBER_BITS.toString(16)}`
/**
 * Routes into lanes do not apply to packets with this mark (RULE_LANES, RULE_NODE), as to those of the lanes themselves:
 * an end may have an address inside the ranges of a cluster.
 */
const MARK = `0x${LANE_MARK.toString(16)}`

/** Statements that replace the whole table in one transaction. */
export function planRelayTable(init: RelayTableInit): NftStatement[] {
  const address = formatAddress(init.address)
  const ports = `${init.ports.first}-${init.ports.last}`
  // Two for each pair, and room for those that replace others.
  const count = 4 * init.mostPairs
  const memberRate = overRate(init.memberBytesPerSecond)
  const sourcePort = `udp sport set ip saddr . udp sport . ip daddr . udp dport map @${MAP_LEAVES}`
  const sender = 'ipv4_addr . inet_service . inet_service'
  return [
    { verb: 'add-table', table: TABLE },
    { verb: 'delete-table', table: TABLE },
    { verb: 'add-table', table: TABLE },
    ...Object.keys(RELAY_DROPS).map((counter): NftStatement => ({ verb: 'add-counter', table: TABLE, counter })),
    ...map(MAP_ADDRESSES, { kind: 'map', key: sender, value: 'ipv4_addr', size: count }, addressElements(init)),
    ...map(MAP_PORTS, { kind: 'map', key: sender, value: 'inet_service', size: count }, portElements(init)),
    ...map(
      MAP_LEAVES,
      { kind: 'map', key: 'ipv4_addr . inet_service . ipv4_addr . inet_service', value: 'inet_service', size: count },
      leavesElements(init),
    ),
    ...map(
      SET_OPEN,
      { kind: 'set', key: 'inet_service', size: init.ports.last - init.ports.first + 1 },
      init.openPorts.map((port) => ({ key: String(port) })),
    ),
    ...map(SET_KNOWN, { kind: 'set', key: sender, size: count }, knownElements(init)),
    ...map(SET_CARRIED, { kind: 'set', key: 'mark', size: count, flags: ['dynamic'] }, []),
    ...map(SET_RATES, { kind: 'set', key: 'mark', size: count, flags: ['dynamic'] }, []),
    ...map(MAP_SENDERS, { kind: 'map', key: sender, value: 'mark', size: count }, senderElements(init)),
    ...map(SET_MEMBER_RATES, { kind: 'set', key: 'mark', size: MOST_MEMBERS, flags: ['dynamic'] }, []),
    ...map(SET_ASKERS, { kind: 'set', key: 'ipv4_addr', size: MOST_ASKERS, flags: ['dynamic', 'timeout'] }, []),
    ...chain('questions', undefined, [
      // Otherwise the kernel would answer that the port is unreachable, to whatever address the packet has.
      `udp dport != @${SET_OPEN} counter name closed drop`,
      `update @${SET_ASKERS} { ip saddr timeout 10s ${QUESTIONS_OF_ONE} } counter name asked-often drop`,
      // A flood of questions must not fill the table of connections.
      'notrack',
      `${SENDER} @${SET_KNOWN} accept`,
      `${QUESTIONS} counter name asked-often drop`,
    ]),
    ...chain('arrived', undefined, [
      `${IS_QUESTION} goto questions`,
      // A rule ends where a map has no element, and then the address is still that of the relay.
      `ip daddr set ${SENDER} map @${MAP_ADDRESSES}`,
      `ip daddr ${address} accept`,
      'notrack',
      // Several ends may share the port, so what is counted is by the sender.
      `meta mark set ${SENDER} map @${MAP_SENDERS}`,
      `update @${SET_RATES} { ${NUMBER} ${overRate(init.bytesPerSecond)} } counter name over-rate drop`,
      `update @${SET_MEMBER_RATES} { ${MEMBER} ${memberRate} } counter name over-member-rate drop`,
      `update @${SET_CARRIED} { ${NUMBER} counter }`,
      `meta mark set ${MARK}`,
      `udp dport set ${SENDER} map @${MAP_PORTS}`,
    ]),
    ...chain('to-relay', RAW, [`ip daddr ${address} udp dport ${ports} goto arrived`]),
    ...chain('unbound', INPUT, [
      `${IS_QUESTION} accept`,
      `ip daddr ${address} udp dport ${ports} counter name unbound drop`,
    ]),
    // Nor must the answers.
    ...chain('answers', RAW_OUTPUT, [`ip saddr ${address} udp sport ${ports} notrack`]),
    ...chain('from-relay', LAST, [`meta mark ${MARK} ${sourcePort} ip saddr set ${address} meta mark set 0x0`]),
  ]
}

/** What one end may send at once: a tenth of a second, and always a few packets that a card has joined (64 KiB). */
function overRate(bytesPerSecond: number): string {
  const burst = Math.max(524_288, Math.ceil(bytesPerSecond / 10))
  return `limit rate over ${bytesPerSecond} bytes/second burst ${burst} bytes`
}

function addressElements({ paths }: RelayTableInit): { key: string; value: string }[] {
  return paths.map((path) => ({ key: senderKey(path.from, path.port), value: formatAddress(path.to.address) }))
}

function portElements({ paths }: RelayTableInit): { key: string; value: string }[] {
  return paths.map((path) => ({ key: senderKey(path.from, path.port), value: String(path.to.port) }))
}

function leavesElements({ paths }: RelayTableInit): { key: string; value: string }[] {
  return paths.map(({ from, to, leaves }) => {
    const key = [formatAddress(from.address), from.port, formatAddress(to.address), to.port].join(' . ')
    return { key, value: String(leaves) }
  })
}

/** In the form in which nft prints marks. Members beyond MOST_MEMBERS share rates. */
function senderElements({ paths }: RelayTableInit): { key: string; value: string }[] {
  return paths.map(({ from, port, member, number }) => {
    const mark = (member % MOST_MEMBERS) * MEMBER_FACTOR + number
    return { key: senderKey(from, port), value: `0x${mark.toString(16).padStart(8, '0')}` }
  })
}

function knownElements({ known }: RelayTableInit): { key: string }[] {
  return known.map(({ at, port }) => ({ key: senderKey(at, port) }))
}

function senderKey({ address, port: from }: AddressPort, port: number): string {
  return `${formatAddress(address)} . ${from} . ${port}`
}

function map(name: string, type: NftMapType, elements: readonly { key: string; value?: string }[]): NftStatement[] {
  const named = { table: TABLE, map: name } as const
  return [
    { verb: 'add-map', ...named, type },
    ...(elements.length === 0 ? [] : [{ verb: 'add-elements', ...named, elements } as const]),
  ]
}

function chain(name: string, base: NftBaseChain | undefined, rules: readonly string[]): NftStatement[] {
  return [
    { verb: 'add-chain', table: TABLE, chain: name, ...(base === undefined ? {} : { base }) },
    ...rules.map((rule): NftStatement => ({ verb: 'add-rule', table: TABLE, chain: name, rule })),
  ]
}
