/**
 * Plans table sealane_flows of one family, which counts the calls of a node and refuses none. Pure.
 *
 *   forwarded: called by a clusterset IP ─► count; by a lane or the overlay ─► lane: to other clusters ─► count,
 *              from other clusters ─► in-count
 *   from-node, to-node: calls of programs of this node by a clusterset IP ─► count
 *   count: first packet ─► opened; first answer ─► answered; reset or ICMP error instead ─► refused
 *          a packet of the caller before any answer, but not the first ─► unanswered; all others ─► sent, received
 *
 *   a reset or FIN of a call that is followed, as some of the samples are ─► logged, and counted as any other
 *
 * A packet updates one set, so that a short call costs little. Calls from other clusters have sets of their own: however
 * many callers a member makes up, the calls of this node are counted. Elements are counted by client, called address and
 * server, and disappear when they are idle. The kernel does the work for each call: reading events of connection
 * tracking would take ten times as long, and a queue that is full ends the process (kernel/route/netlink-socket.ts).
 */
import {
  type ElementMaps,
  type NftBaseChain,
  type NftStatement,
  elementDiff,
  elementStatements,
} from '../../kernel/nft/nft.ts'
import { COPIED_BYTES_OF_ERROR } from '../../kernel/nfnetlink/nfnetlink.ts'
import { LANE_DEVICE_PREFIX, NFLOG_GROUP_FLOWS, NFT_TABLE_FLOWS } from '../../model/model.ts'
import type { AddressFamily } from '../world/world.ts'

const TABLE = NFT_TABLE_FLOWS

/** What is counted: packets and octets. */
export const FLOW_SETS = ['opened', 'answered', 'refused', 'unanswered', 'sent', 'received'] as const
export type FlowSet = (typeof FLOW_SETS)[number]
/** The sets of the kernel that count it: calls from here, and calls from other clusters. */
export function setNames(set: FlowSet): readonly [out: string, into: string] {
  return [set, `in-${set}`]
}
/** Calls for which a set has no room. It has one element. */
export const SET_UNCOUNTED = 'uncounted'
/** The sets that are read. Reading a named counter makes nft read all elements of all tables first. */
export const ALL_SETS: readonly string[] = [...FLOW_SETS.flatMap(setNames), SET_UNCOUNTED]

/** Kernel memory for the elements of one family that count. */
const MAX_OCTETS = 24 << 20
/** Of an element, without its counter: key, times and hash table. */
const ELEMENT_OCTETS = 160
/** An element has a counter for each CPU that the kernel may have. */
const COUNTER_OCTETS = 16
const MOST_ELEMENTS = 8192
/** Calls from other clusters have so many times fewer. */
const IN_PART = 4
/** UDP flows that wait for their first answer. */
const MAX_WAITING = 32_768
/** When the kernel forgets an element. */
export const IDLE_MINUTES = 15
const IDLE = `${IDLE_MINUTES}m`
/** The kernel itself forgets a UDP flow without an answer after 30 seconds. */
const UDP_ANSWERS = '1m'
/** Samples of both ways, of as many seconds as they are heard. */
const MAX_SAMPLED = 8192
/** Calls a second of each family of which samples are made. */
export const SAMPLES_A_SECOND = 20
/** How long the answer of a sample is awaited before a line says that there is none. */
export const SAMPLE_MS = 10_000
/** How long it is heard: the kernel forgets a SYN without an answer after two minutes. */
export const HEARD_SECONDS = 150
const HEARD = `${HEARD_SECONDS}s`
/**
 * How long the end of a connection is awaited, and for how many. Data without acknowledgement has a time-out of five
 * minutes; an idle connection one of five days, or of a day by kube-proxy, so how that ends does not count.
 */
export const FOLLOW_HOURS = 6
export const MAX_FOLLOWED = 4096

export const SET_OWN_PODS = 'own-pods'
export const SET_REMOTE = 'remote'
const SET_WAITING = 'udp-waiting'
const SET_SAMPLED = 'sampled'
const SET_AGAIN = 'sent-again'
const SET_FOLLOWED = 'followed'

export interface FlowsTable {
  readonly family: AddressFamily
  readonly clustersetIpRange: string
  /** The addresses of this node's pods, as elements. */
  readonly ownPods: readonly string[]
  /** Prefixes of the other clusters, as elements. */
  readonly remote: readonly string[]
  /** Samples are logged to NFLOG_GROUP_FLOWS. */
  readonly isSampled: boolean
  /** CPUs that the kernel may have. */
  readonly cpus: number
}

/** Elements of each set of calls from here, so that all together take at most MAX_OCTETS. */
export function elementsFor(cpus: number): number {
  const octets = (ELEMENT_OCTETS + COUNTER_OCTETS * cpus) * FLOW_SETS.length * (1 + 1 / IN_PART)
  return Math.max(256, Math.min(MOST_ELEMENTS, Math.floor(MAX_OCTETS / octets)))
}

/** Creates or replaces the table in one transaction. */
export function planFlowsTable(table: FlowsTable): NftStatement[] {
  return [
    // "add" comes first, so that "delete" finds a table in any case.
    { verb: 'add-table', table: TABLE },
    { verb: 'delete-table', table: TABLE },
    { verb: 'add-table', table: TABLE },
    ...fixedStatements(table),
    ...elementStatements(TABLE, elementDiff(new Map(), flowElements(table))),
  ]
}

/** The elements that change while the rest of the table stays. */
export function flowElements({ ownPods, remote }: Pick<FlowsTable, 'ownPods' | 'remote'>): ElementMaps {
  const keys = (texts: readonly string[]) => new Map(texts.map((text) => [text, undefined]))
  return new Map([
    [SET_OWN_PODS, keys(ownPods)],
    [SET_REMOTE, keys(remote)],
  ])
}

/** Everything except the elements. */
export function fixedStatements(table: FlowsTable): NftStatement[] {
  const { family, clustersetIpRange: range } = table
  const { nft: ip, type } = family
  const size = elementsFor(table.cpus)
  const lanes = `${LANE_DEVICE_PREFIX}*`
  return [
    {
      ...{ verb: 'add-map', table: TABLE, map: SET_UNCOUNTED },
      type: { kind: 'set', key: 'ct_dir', typeOf: { key: 'ct direction' }, size: 2, flags: ['dynamic'] },
    },
    ...FLOW_SETS.flatMap(setNames).map((map, i): NftStatement => ({
      verb: 'add-map',
      table: TABLE,
      map,
      type: {
        ...{ kind: 'set', key: `${type} . ${type} . ${type}`, flags: ['dynamic', 'timeout'] },
        size: i % 2 === 0 ? size : Math.floor(size / IN_PART),
      },
    })),
    ...[SET_WAITING, SET_AGAIN, SET_SAMPLED, SET_FOLLOWED].map((map): NftStatement => ({
      verb: 'add-map',
      table: TABLE,
      map,
      type: {
        ...{ kind: 'set', key: 'ct_id', typeOf: { key: 'ct id' } },
        size: map === SET_SAMPLED ? MAX_SAMPLED : map === SET_FOLLOWED ? MAX_FOLLOWED : MAX_WAITING,
        flags: ['dynamic', 'timeout'],
      },
    })),
    ...[SET_OWN_PODS, SET_REMOTE].map((map): NftStatement => ({
      verb: 'add-map',
      table: TABLE,
      map,
      type: { kind: 'set', key: type, flags: ['interval'] },
    })),
    ...countingChains(table, ''),
    ...countingChains(table, 'in-'),
    // What another cluster sends to a clusterset IP is no call of this node.
    ...chain('service', [
      `iifname "${lanes}" ct direction original return`,
      `oifname "${lanes}" ct direction reply return`,
      'goto count',
    ]),
    ...chain('lane', [
      `ct original ${ip} saddr @${SET_OWN_PODS} ct original ${ip} daddr @${SET_REMOTE} goto count`,
      `ct original ${ip} saddr @${SET_REMOTE} ct reply ${ip} saddr @${SET_OWN_PODS} goto in-count`,
    ]),
    ...chain(
      'forwarded',
      [`ct original ${ip} daddr ${range} goto service`, `oifname "${lanes}" goto lane`, `iifname "${lanes}" goto lane`],
      // Before our guard refuses what has no endpoint.
      { type: 'filter', hook: 'forward', priority: -150 },
    ),
    // After the address of the service was translated.
    ...chain('from-node', [`ct original ${ip} daddr ${range} goto count`], {
      ...{ type: 'filter', hook: 'output', priority: -50 },
    }),
    ...chain('to-node', [`ct original ${ip} daddr ${range} goto count`], {
      ...{ type: 'filter', hook: 'input', priority: -50 },
    }),
  ]
}

/** `way`: what the names of the chains and of their sets begin with. */
function countingChains({ family, isSampled }: FlowsTable, way: '' | 'in-'): NftStatement[] {
  const ip = family.nft
  const parties = `ct original ${ip} saddr . ct original ${ip} daddr . ct reply ${ip} saddr`
  const update = (set: FlowSet): string => `update @${way}${set} { ${parties} timeout ${IDLE} counter }`
  const log = (prefix: string): string =>
    `log prefix "${prefix}" group ${NFLOG_GROUP_FLOWS} snaplen ${COPIED_BYTES_OF_ERROR}`
  const ending = (set: 'answered' | 'refused'): string[] => [
    update(set),
    ...(isSampled ? [`ct id @${SET_SAMPLED} delete @${SET_SAMPLED} { ct id } ${log(set)}`] : []),
  ]
  const answersUdp = `ct id @${SET_WAITING} delete @${SET_WAITING} { ct id }`
  const error =
    family.family === 4
      ? 'meta l4proto icmp icmp type destination-unreachable icmp code != frag-needed'
      : 'meta l4proto ipv6-icmp icmpv6 type destination-unreachable'
  return [
    ...chain(`${way}began`, [
      `meta l4proto udp add @${SET_WAITING} { ct id timeout ${UDP_ANSWERS} }`,
      ...(isSampled
        ? [
            `limit rate ${SAMPLES_A_SECOND}/second burst ${SAMPLES_A_SECOND} packets ` +
              `add @${SET_SAMPLED} { ct id timeout ${HEARD} } ${log('opened')}`,
          ]
        : []),
    ]),
    ...chain(`${way}opened`, [
      // A set without room ends the rule.
      `${update('opened')} goto ${way}began`,
      `update @${SET_UNCOUNTED} { ct direction counter } goto ${way}began`,
    ]),
    ...chain(`${way}answered`, [
      // A set without room ends the rule, and the call is not followed.
      ...(isSampled
        ? [
            `meta l4proto tcp ct id @${SET_SAMPLED} add @${SET_FOLLOWED} { ct id timeout ${FOLLOW_HOURS}h } ` +
              `delete @${SET_SAMPLED} { ct id } ${log('followed')}`,
          ]
        : []),
      ...ending('answered'),
    ]),
    ...(isSampled
      ? chain(`${way}closing`, [`ct id @${SET_FOLLOWED} delete @${SET_FOLLOWED} { ct id } ${log('closed')}`])
      : []),
    ...chain(`${way}refused`, ending('refused')),
    ...chain(`${way}unanswered`, [update('unanswered')]),
    ...chain(`${way}sent`, [update('sent')]),
    ...chain(`${way}unreachable`, [
      `${answersUdp} goto ${way}refused`,
      `ct original protocol tcp ct status & seen-reply == 0x0 goto ${way}refused`,
      update('received'),
    ]),
    ...chain(`${way}begins`, [
      // A SYN that is sent again has an entry already.
      `ct status & confirmed == 0x0 meta l4proto { tcp, udp } goto ${way}opened`,
      // A client that has no answer sends its first packet again, TCP after a second. Each call is counted once.
      `ct status & (confirmed | seen-reply) == confirmed ct id != @${SET_AGAIN} ` +
        `add @${SET_AGAIN} { ct id timeout ${UDP_ANSWERS} } goto ${way}unanswered`,
      update('sent'),
    ]),
    ...chain(`${way}count`, [
      `ct state new goto ${way}begins`,
      // Both ends close or reset: what neither does ends by a time-out.
      ...(isSampled ? [`tcp flags & (fin | rst) != 0x0 jump ${way}closing`] : []),
      `ct direction original goto ${way}sent`,
      `tcp flags & (syn | ack) == syn | ack goto ${way}answered`,
      // RFC 9293 section 3.10.7.1: the reset that answers a SYN.
      `tcp flags & (rst | ack) == rst | ack tcp sequence 0 goto ${way}refused`,
      `meta l4proto udp ${answersUdp} goto ${way}answered`,
      `ct state related ${error} goto ${way}unreachable`,
      update('received'),
    ]),
  ]
}

function chain(name: string, rules: readonly string[], base?: NftBaseChain): NftStatement[] {
  return [
    { verb: 'add-chain', table: TABLE, chain: name, ...(base === undefined ? {} : { base }) },
    ...rules.map((rule): NftStatement => ({ verb: 'add-rule', table: TABLE, chain: name, rule })),
  ]
}
