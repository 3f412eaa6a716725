/**
 * The nft table of a gateway: one-to-one translation of this cluster's own prefixes, no connection tracking for packets
 * that only pass through, and the policy for packets into and out of a lane. Each family has one table; IPv6 is never
 * translated. Pure. docs/decisions/0006.
 *
 *   in:  lane ─► prerouting -300: is it for us? ─► global to own ─► notrack ─► (conntrack -200, nat) ─► forward 0
 *   out: forward 0 ─► (nat 100) ─► postrouting 300: own to global ─► is it known to the others? ─► lane
 *
 * Both rewrites lie outside connection tracking (before it on the way in, after it on the way out), so a tracked
 * connection of a local pod has the pod's own address in both directions.
 */
import {
  LED_ELSEWHERE,
  type NftBaseChain,
  type NftFamily,
  type NftStatement,
  hostMatches,
  ledElsewhereMatches,
  refusingRules,
} from '../../kernel/nft/nft.ts'
import type { Exposure } from '../../model/access/access.ts'
import {
  type Family,
  type OpenPort,
  type Prefix,
  type PrefixPair,
  addressBits,
  formatAddress,
  formatPrefix,
  parsePrefix,
  withoutContained,
} from '../../model/addresses/addresses.ts'
import {
  ADMITTED_MARK,
  LANE_ADDRESS_RANGE,
  LANE_PROBE_PORT,
  NFT_TABLE_GATEWAY,
  VXLAN_DEVICE,
  laneCable,
} from '../../model/model.ts'
import { DROP_REASONS, type DropReason, dropCounter } from './drop-counts.ts'
import {
  ICMP_ERROR_TYPES,
  INNER_DESTINATION,
  INNER_SOURCE,
  hostMask,
  innerMatch,
  innerRewriteRules,
} from './icmp-errors.ts'

// Words of a plan that differ between the families.

interface FamilyWords {
  /** Family of the table, and of address matches inside it. */
  readonly ip: NftFamily
  readonly addressType: 'ipv4_addr' | 'ipv6_addr'
  /** Matches ICMP redirects. */
  readonly redirect: string
}

const FAMILY_WORDS: Readonly<Record<Family, FamilyWords>> = {
  4: { ip: 'ip', addressType: 'ipv4_addr', redirect: 'icmp type redirect' },
  6: { ip: 'ip6', addressType: 'ipv6_addr', redirect: 'icmpv6 type nd-redirect' },
}

/** All prefixes and addresses are of one family. */
export interface TranslationInit {
  readonly family: Family
  /** Own prefixes with their global prefixes. Empty if nothing is translated. Equal prefixes get no rule. */
  readonly pairs: readonly PrefixPair[]
  readonly podCIDRs: readonly Prefix[]
  /** Where pods of other nodes are, disjoint. Packets to other addresses are tracked. */
  readonly elsewhere: readonly Prefix[]
  /** This cluster has no other gateway, so answers come by this node too. */
  readonly isOnlyGateway: boolean
  /**
   * Lane devices. All devices of a node have the same IPv4 address, for packets that arrive on any of them. The address
   * is absent for IPv6, and for a device that is about to be removed.
   */
  readonly lanes: readonly { readonly device: string; readonly address?: string }[]
  /** Prefixes of all remote clusters, disjoint. */
  readonly remotes: readonly Prefix[]
  /** Ports of this node that pods of other clusters may call. */
  readonly openPorts: readonly OpenPort[]
  /** What other clusters may call. */
  readonly exposure: Exposure
}

interface Rule {
  readonly text: string
  readonly comment?: string
}

const TABLE = NFT_TABLE_GATEWAY
const SET_ELSEWHERE = 'elsewhere'
/** Before connection tracking (-200), and after all source NAT (100). */
const RAW: NftBaseChain = { type: 'filter', hook: 'prerouting', priority: -300 }
/** Before table sealane_node clears its mark (-199). */
const ADMITTED: NftBaseChain = { type: 'filter', hook: 'forward', priority: -200 }
const FORWARD: NftBaseChain = { type: 'filter', hook: 'forward', priority: 0 }
const INPUT: NftBaseChain = { type: 'filter', hook: 'input', priority: 0 }
const OUTPUT: NftBaseChain = { type: 'filter', hook: 'output', priority: 0 }
const LAST: NftBaseChain = { type: 'filter', hook: 'postrouting', priority: 300 }

/** Statements that replace the whole table in one transaction. If there is no lane, they only remove it. */
export function planTranslation(init: TranslationInit): NftStatement[] {
  // The table is added before it is deleted, because nft refuses to delete a table that does not exist.
  const clear: NftStatement[] = [
    { verb: 'add-table', table: TABLE },
    { verb: 'delete-table', table: TABLE },
  ]
  if (init.lanes.length === 0) return clear
  const devices = nftSet(init.lanes.map((lane) => lane.device))
  const incoming = nftSet(incomingDevices(init))
  const addresses = laneAddresses(init)
  return [
    ...clear,
    { verb: 'add-table', table: TABLE },
    ...(Object.keys(DROP_REASONS) as DropReason[]).map((reason): NftStatement => ({
      verb: 'add-counter',
      table: TABLE,
      counter: dropCounter(reason),
    })),
    ...elsewhereSet(init),
    ...errorChains(init),
    ...chain('from-lane', undefined, fromLane(init)),
    ...chain('to-lane', undefined, toLane(init)),
    ...chain('translate-in', RAW, [
      { text: `iifname ${incoming} jump from-lane` },
      ...(init.remotes.length === 0 ? [] : [passesThrough(init)]),
    ]),
    ...unadmitted(init, incoming),
    ...chain('node-port', undefined, nodePorts(init)),
    ...chain('out-of-lane', undefined, outOfLane(init, devices)),
    ...chain('into-lane', undefined, intoLane(init)),
    ...chain('forward-policy', FORWARD, [
      { text: `iifname ${incoming} goto out-of-lane` },
      { text: `oifname ${devices} goto into-lane` },
    ]),
    ...chain('into-node', INPUT, [
      ...(addresses.length === 0 ? [] : laneAddressPolicy(init, nftSet(addresses))),
      ...hostPolicy(init, incoming),
    ]),
    ...(addresses.length === 0 ? [] : chain('lane-address-out', OUTPUT, [outputPolicy(init)])),
    ...chain('translate-out', LAST, [{ text: `oifname ${devices} jump to-lane` }]),
  ]
}

// A separate set, because it is long if pods have single addresses.
function elsewhereSet({ elsewhere, family }: TranslationInit): NftStatement[] {
  const set = { table: TABLE, map: SET_ELSEWHERE } as const
  const elements = elsewhere.map((prefix) => ({ key: elementText(prefix) }))
  return [
    { verb: 'add-map', ...set, type: { kind: 'set', key: FAMILY_WORDS[family].addressType, flags: ['interval'] } },
    ...(elsewhere.length === 0 ? [] : [{ verb: 'add-elements', ...set, elements } as const]),
  ]
}

/** In the form that nft prints: a single address has no prefix length. */
function elementText(prefix: Prefix): string {
  return prefix.length === addressBits(prefix.family) ? formatAddress(prefix) : formatPrefix(prefix)
}

/**
 * Connections of other nodes' pods are tracked on their own node, if at all. On this node they may use several paths.
 * If there is no other gateway, this node lets in the answers for a pod whose node is not known
 * (routeagent/access/access-chains.ts), so the calls of such a pod are tracked here.
 */
function passesThrough(init: TranslationInit): Rule {
  const ip = ipWord(init)
  const known = init.isOnlyGateway ? `${ip} saddr @${SET_ELSEWHERE} ` : ''
  return { text: `iifname ${VXLAN_DEVICE} ${known}${ip} daddr ${prefixSet(init.remotes)} notrack` }
}

function fromLane(init: TranslationInit): Rule[] {
  const ip = ipWord(init)
  const senders = laneAddresses(init).length === 0 ? init.remotes : [...init.remotes, parsePrefix(LANE_ADDRESS_RANGE)]
  return [
    dropped(`${ip} daddr != ${ownAddresses(init)} `, 'in-not-ours'),
    dropped(notIn(init, 'saddr', senders), 'in-unknown-source'),
    ...(laneAddresses(init).length === 0 ? [] : laneSenders(nftSet(laneAddresses(init)))),
    ...translated(init).map((pair, i) => ({
      text: `icmp type ${ICMP_ERROR_TYPES} ${innerMatch(INNER_SOURCE, pair.global)} jump errors-in-${i}`,
    })),
    ...translated(init).map(({ own, global }) => ({ text: rewriteRule('daddr', global, own) })),
    // Address translation on this node may have redirected a local pod's connection to here, so it must be tracked.
    { text: `${ip} daddr @${SET_ELSEWHERE} notrack` },
  ]
}

/**
 * A far gateway sends from its lane address to this node's lane address, and sends its own ICMP errors to this
 * cluster's pods (RFC 4443, RFC 792). Its key proves that address. Everything else from lane addresses is dropped,
 * because the access rules for pods do not cover it. No far end has a lane address of this node.
 */
function laneSenders(own: string): Rule[] {
  const match = `ip saddr ${LANE_ADDRESS_RANGE} ip daddr != ${own} `
  return [
    dropped(`ip saddr ${own} `, 'in-lane-source'),
    dropped(`${match}meta l4proto != icmp `, 'in-lane-source'),
    dropped(`${match}icmp type != ${ICMP_ERROR_TYPES} `, 'in-lane-source'),
  ]
}

function toLane(init: TranslationInit): Rule[] {
  return [
    ...(init.family === 6 ? [KERNEL_CHATTER] : []),
    ...translated(init).map((pair, i) => ({
      text: `icmp type ${ICMP_ERROR_TYPES} ${innerMatch(INNER_DESTINATION, pair.own)} jump errors-out-${i}`,
    })),
    ...translated(init).map(({ own, global }) => ({ text: rewriteRule('saddr', own, global) })),
    dropped(`${ipWord(init)} saddr != ${ownAddresses(init)} `, 'out-unknown-source'),
  ]
}

function errorChains(init: TranslationInit): NftStatement[] {
  const lost = dropped('', 'icmp-error')
  return translated(init).flatMap(({ own, global }, i) => [
    ...chain(`errors-in-${i}`, undefined, [...asRules(innerRewriteRules(INNER_SOURCE, global, own)), lost]),
    ...chain(`errors-out-${i}`, undefined, [...asRules(innerRewriteRules(INNER_DESTINATION, own, global)), lost]),
  ])
}

/** `match` ends with a space, or is empty to match every packet. */
function dropped(match: string, reason: DropReason): Rule {
  const comment = `dropped: ${DROP_REASONS[reason]}`
  return { text: `${match}counter name ${dropCounter(reason)} drop`, comment }
}

/** Like dropped(), but the caller is told at once that it is refused. */
function refused(match: string, reason: DropReason): Rule[] {
  const comment = `refused: ${DROP_REASONS[reason]}`
  return refusingRules(dropCounter(reason)).map((rule) => ({ text: `${match}${rule}`, comment }))
}

/**
 * Multicast that the kernel's IPv6 sends on every device (RFC 3810, RFC 4861). No far end listens for it on a lane, so
 * it is dropped without being counted.
 */
const KERNEL_CHATTER: Rule = { text: 'ip6 daddr ff00::/8 drop', comment: 'multicast from this node' }

/** MSS clamping: RFC 4459 section 3.2. `rt mtu` is the MTU of the packet's route. */
const CLAMP: Rule = { text: 'tcp flags syn tcp option maxseg size set rt mtu' }

function outOfLane(init: TranslationInit, devices: string): Rule[] {
  return [
    dropped(`oifname ${devices} `, 'lane-to-lane'),
    dropped(notIn(init, 'daddr', init.podCIDRs), 'in-no-pod'),
    dropped(`${FAMILY_WORDS[init.family].redirect} `, 'redirect'),
    { text: `${LED_ELSEWHERE} jump node-port` },
    CLAMP,
    { text: 'counter', comment: 'passed: from a lane' },
  ]
}

function intoLane(init: TranslationInit): Rule[] {
  return [
    dropped(notIn(init, 'saddr', init.podCIDRs), 'out-no-pod'),
    dropped(notIn(init, 'daddr', init.remotes), 'out-unknown-destination'),
    CLAMP,
    { text: 'counter', comment: 'passed: to a lane' },
  ]
}

/**
 * Table sealane_node marks what other clusters may call (routeagent/access/access-chains.ts). Without the mark, it was
 * not there: the route agent has not started yet, or another program has removed the table. What leaves by the overlay
 * goes on: the node of the pod has the device only with a table of its own.
 */
function unadmitted(init: TranslationInit, incoming: string): NftStatement[] {
  if (init.exposure === 'pods' || init.podCIDRs.length === 0) return []
  const toPods = `oifname != ${VXLAN_DEVICE} ${ipWord(init)} daddr ${prefixSet(init.podCIDRs)}`
  const unmarked = `meta mark & 0x${ADMITTED_MARK.toString(16)} == 0x0`
  return chain('unadmitted', ADMITTED, [dropped(`iifname ${incoming} ${toPods} ${unmarked} `, 'in-not-admitted')])
}

/** Lane addresses serve probes and what this node itself sends from them. They are reached only over lanes. */
function laneAddressPolicy(init: TranslationInit, addresses: string): Rule[] {
  const names = incomingDevices(init)
  const devices = nftSet(names)
  return [
    dropped(`iifname != ${nftSet(['lo', ...names])} ip daddr ${addresses} `, 'lane-address-outside'),
    { text: `iifname ${devices} ip daddr ${addresses} meta l4proto { tcp, udp } th dport ${LANE_PROBE_PORT} accept` },
    { text: `iifname ${devices} ip daddr ${addresses} meta l4proto icmp accept` },
    { text: `iifname ${devices} ip daddr ${addresses} ct state established,related accept` },
    dropped(`iifname ${devices} ip daddr ${addresses} `, 'lane-address-no-probe'),
  ]
}

/** Other clusters reach only the named ports of this node. Packets from other devices are not checked. */
function hostPolicy(init: TranslationInit, incoming: string): Rule[] {
  return [
    ...hostMatches(init.family, init.openPorts).map((match) => ({ text: `iifname ${incoming} ${match} accept` })),
    ...refused(`iifname ${incoming} `, 'host-service'),
  ]
}

/** A NodePort is a port of this node too, wherever its backend is. */
function nodePorts({ family, openPorts }: TranslationInit): Rule[] {
  const named = ledElsewhereMatches(family, openPorts).map((match) => ({ text: `${match} return` }))
  return [...named, ...refused('', 'host-service')]
}

/**
 * While a lane starts or is replaced, its address may exist without its routes. Packets that the node then sends from
 * it, such as a TCP reset, would leave unencrypted by the default route. The rule covers the whole range, including the
 * address of a lane that is about to be removed.
 */
function outputPolicy(init: TranslationInit): Rule {
  const devices = nftSet(['lo', ...init.lanes.map(({ device }) => device)])
  return dropped(`oifname != ${devices} ip saddr ${LANE_ADDRESS_RANGE} `, 'lane-address-astray')
}

/**
 * Rewrites a prefix: `ip saddr 10.42.0.0/16 ip saddr set ip saddr & 0.0.255.255 | 244.0.0.0`. nft updates the
 * checksums.
 */
function rewriteRule(field: 'saddr' | 'daddr', from: Prefix, to: Prefix): string {
  const mask = formatAddress({ family: 4, value: hostMask(from) })
  return `ip ${field} ${formatPrefix(from)} ip ${field} set ip ${field} & ${mask} | ${formatAddress(to)}`
}

/** Addresses at which others reach this node and its pods, as a set: the cluster's prefixes and the lane addresses. */
function ownAddresses(init: TranslationInit): string {
  const routed = init.pairs.length > 0 ? init.pairs.map((pair) => pair.global) : init.podCIDRs
  return nftSet([...routed.map(formatPrefix), ...laneAddresses(init)])
}

function translated({ pairs }: TranslationInit): readonly PrefixPair[] {
  return pairs.filter(({ own, global }) => own.value !== global.value)
}

function laneAddresses({ lanes }: TranslationInit): string[] {
  return [...new Set(lanes.flatMap(({ address }) => address ?? []))]
}

/**
 * Devices on which packets of lanes arrive. TCP over IPv4 may arrive on a device of its own
 * (kernel/tuning/segment-joining.ts).
 */
function incomingDevices({ lanes, family }: TranslationInit): string[] {
  return lanes.flatMap(({ device }) => (family === 4 ? [device, laneCable(device).rx] : [device]))
}

function ipWord({ family }: TranslationInit): string {
  return FAMILY_WORDS[family].ip
}

function chain(name: string, base: NftBaseChain | undefined, rules: readonly Rule[]): NftStatement[] {
  return [
    { verb: 'add-chain', table: TABLE, chain: name, ...(base === undefined ? {} : { base }) },
    ...rules.map(({ text, comment }): NftStatement => {
      const statement = { verb: 'add-rule', table: TABLE, chain: name, rule: text } as const
      return comment === undefined ? statement : { ...statement, comment }
    }),
  ]
}

function asRules(texts: readonly string[]): Rule[] {
  return texts.map((text) => ({ text }))
}

/** A match such as `ip saddr != { … } `. Matches everything if there is no prefix. */
function notIn(init: TranslationInit, field: 'saddr' | 'daddr', prefixes: readonly Prefix[]): string {
  return prefixes.length === 0 ? '' : `${ipWord(init)} ${field} != ${prefixSet(prefixes)} `
}

// Values for the right side of a match: one as it is, several as a set. Pure.

/** One prefix, or a set without prefixes that another one contains. */
function prefixSet(prefixes: readonly Prefix[]): string {
  return nftSet(withoutContained(prefixes).map(formatPrefix))
}

/** A single item as it is, several as a set. */
function nftSet(items: readonly string[]): string {
  return items.length === 1 ? (items[0] ?? '') : `{ ${[...items].join(', ')} }`
}
