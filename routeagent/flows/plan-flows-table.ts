/**
 * Plans table sealane_flows of one family, which counts the calls of a node and refuses none. Pure.
 *
 *   forwarded: called by a clusterset IP ─► count; by a lane or the overlay ─► lane: own pods and other clusters ─► count
 *   sent, received: calls of programs of this node by a clusterset IP ─► count
 *   count: first packet ─► opened; first answer ─► answered; reset or ICMP error instead ─► refused
 *          a packet of the caller before any answer, but not the first ─► unanswered; all: octets
 *
 * Elements are counted by client, called address and server, and disappear when they are idle. The kernel does the work
 * for each call: reading events of connection tracking would take ten times as long, and a queue that is full ends the
 * process (kernel/route/netlink-socket.ts).
 */
import {
  type ElementMaps,
  type NftBaseChain,
  type NftStatement,
  elementDiff,
  elementStatements,
} from '../../kernel/nft/nft.ts'
import { COPIED_BYTES_OF_ERROR } from '../../kernel/nflog/nflog.ts'
import { LANE_DEVICE_PREFIX, NFLOG_GROUP_FLOWS, NFT_TABLE_FLOWS } from '../../model/model.ts'
import type { AddressFamily } from '../world/world.ts'

const TABLE = NFT_TABLE_FLOWS

/** The sets whose elements count. */
export const FLOW_SETS = ['opened', 'answered', 'refused', 'unanswered', 'sent', 'received'] as const
export type FlowSet = (typeof FLOW_SETS)[number]
/** All calls, also those for which a set has no room. */
export const COUNTER_ALL = 'all-opened'

/** Elements of each set. They take about 150 octets each. */
export const MAX_ELEMENTS = 16_384
/** UDP flows that wait for their first answer. */
const MAX_WAITING = 32_768
const IDLE = '15m'
const UDP_ANSWERS = '3m'
/** Calls a second of each family of which samples are made. */
export const SAMPLES_A_SECOND = 20
/** How long the answer of a sample is awaited. */
export const SAMPLE_MS = 10_000

export const SET_OWN_PODS = 'own-pods'
export const SET_REMOTE = 'remote'
const SET_WAITING = 'udp-waiting'
const SET_SAMPLED = 'sampled'
const SET_AGAIN = 'sent-again'

export interface FlowsTable {
  readonly family: AddressFamily
  readonly clustersetIpRange: string
  /** The addresses of this node's pods, as elements. */
  readonly ownPods: readonly string[]
  /** Prefixes of the other clusters, as elements. */
  readonly remote: readonly string[]
  /** Samples are logged to NFLOG_GROUP_FLOWS. */
  readonly isSampled: boolean
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
export function fixedStatements({ family, clustersetIpRange: range, isSampled }: FlowsTable): NftStatement[] {
  const { nft: ip, type } = family
  const parties = `ct original ${ip} saddr . ct original ${ip} daddr . ct reply ${ip} saddr`
  const update = (set: FlowSet): string => `update @${set} { ${parties} timeout ${IDLE} counter }`
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
    { verb: 'add-counter', table: TABLE, counter: COUNTER_ALL },
    ...FLOW_SETS.map((map): NftStatement => ({
      verb: 'add-map',
      table: TABLE,
      map,
      type: { kind: 'set', key: `${type} . ${type} . ${type}`, size: MAX_ELEMENTS, flags: ['dynamic', 'timeout'] },
    })),
    ...[SET_WAITING, SET_AGAIN, SET_SAMPLED].map((map): NftStatement => ({
      verb: 'add-map',
      table: TABLE,
      map,
      type: {
        ...{ kind: 'set', key: 'ct_id', typeOf: { key: 'ct id' } },
        size: map === SET_SAMPLED ? 1024 : MAX_WAITING,
        flags: ['dynamic', 'timeout'],
      },
    })),
    ...[SET_OWN_PODS, SET_REMOTE].map((map): NftStatement => ({
      verb: 'add-map',
      table: TABLE,
      map,
      type: { kind: 'set', key: type, flags: ['interval'] },
    })),
    ...chain('opened', [
      // A set without room ends the rule, after the counter.
      `counter name ${COUNTER_ALL} ${update('opened')}`,
      `meta l4proto udp add @${SET_WAITING} { ct id timeout ${UDP_ANSWERS} }`,
      ...(isSampled
        ? [
            `limit rate ${SAMPLES_A_SECOND}/second burst ${SAMPLES_A_SECOND} packets ` +
              `add @${SET_SAMPLED} { ct id timeout ${SAMPLE_MS / 1000}s } ${log('opened')}`,
          ]
        : []),
    ]),
    ...chain('answered', ending('answered')),
    ...chain('refused', ending('refused')),
    ...chain('unreachable', [
      `${answersUdp} goto refused`,
      'ct original protocol tcp ct status & seen-reply == 0x0 goto refused',
    ]),
    ...chain('count', [
      // A SYN that is sent again has an entry already.
      'ct state new ct status & confirmed == 0x0 meta l4proto { tcp, udp } jump opened',
      // A client that has no answer sends its first packet again, TCP after a second. Each call is counted once.
      `ct state new ct status & (confirmed | seen-reply) == confirmed ct id != @${SET_AGAIN} ` +
        `add @${SET_AGAIN} { ct id timeout ${UDP_ANSWERS} } ${update('unanswered')}`,
      `ct direction original ${update('sent')}`,
      'ct direction original return',
      update('received'),
      'tcp flags & (syn | ack) == syn | ack goto answered',
      // RFC 9293 section 3.10.7.1: the reset that answers a SYN.
      'tcp flags & (rst | ack) == rst | ack tcp sequence 0 goto refused',
      `meta l4proto udp ${answersUdp} goto answered`,
      `ct state related ${error} goto unreachable`,
    ]),
    ...chain('lane', [
      `ct original ${ip} saddr @${SET_OWN_PODS} ct original ${ip} daddr @${SET_REMOTE} goto count`,
      `ct original ${ip} saddr @${SET_REMOTE} ct reply ${ip} saddr @${SET_OWN_PODS} goto count`,
    ]),
    ...chain(
      'forwarded',
      [
        `ct original ${ip} daddr ${range} goto count`,
        `oifname "${LANE_DEVICE_PREFIX}*" goto lane`,
        `iifname "${LANE_DEVICE_PREFIX}*" goto lane`,
      ],
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

function chain(name: string, rules: readonly string[], base?: NftBaseChain): NftStatement[] {
  return [
    { verb: 'add-chain', table: TABLE, chain: name, ...(base === undefined ? {} : { base }) },
    ...rules.map((rule): NftStatement => ({ verb: 'add-rule', table: TABLE, chain: name, rule })),
  ]
}
