/**
 * The chains of table sealane_node that decide about packets of other clusters for this cluster's pods. Pure.
 *
 *   lane or overlay ─► access (prerouting -150): for a pod network of ours? ─► admit, or admitted if all pods are
 *   exposed admit: a pod of another node? ─► pass-through, else ─► by-state
 *   by-state: an answer, an ICMP error about one ─► admitted; this node's own address ─► admit-node
 *             else ─► ask: @access, @reachable ─► all-members or from-… ─► admitted
 *   passed through, but not over the overlay ─► leaves-nodes (forward -200): no node decides after this one ─► by-state
 *     (only if there is no other gateway)
 *   own pod ─► access-out (prerouting -90): for another cluster? ─► admitted, for the reverse-path filter
 *   another cluster ─► access-out: by other devices: not ours to decide ─► admitted, for the XFRM policies
 *                      by a lane or the overlay: was admitted ─► admitted once more
 *   admitted: sets ADMITTED_MARK, without which the packet is not routed; forward and input clear it
 *
 * Every packet of the caller is looked up, also those of a connection that has begun, unless the policy keeps open
 * connections (keptRules). What is no longer offered ends at once, without a search for its entries in connection
 * tracking. Removing entries would not be enough, because the next packet of the server would make a new entry, to
 * which the packets of the caller were answers.
 */
import {
  type ElementChange,
  type ElementMaps,
  type NftBaseChain,
  type NftElement,
  type NftStatement,
  elementDiff,
  openPortMatches,
} from '../../kernel/nft/nft.ts'
import type { Exposure } from '../../model/access/access.ts'
import type { OpenPort } from '../../model/addresses/addresses.ts'
import { ADMITTED_MARK, LANE_DEVICE_PREFIX, NFT_TABLE_NODE, VXLAN_DEVICE } from '../../model/model.ts'
import type { AddressFamily } from '../world/world.ts'
import { callsElements, callsNames, callsStatements } from './calls-chains.ts'
import { chain, droppedIn, icmpName, keptRules, map, namesComment, sampleChains } from './nft-parts.ts'
import {
  type AccessChanges,
  type AdmissionPlan,
  CHAIN_ALL,
  type CallerGroup,
  type Callers,
  type Changed,
  NOTHING_ADMITTED,
  callersChain,
} from './plan-access.ts'
import { type CallsPlan, NOTHING_LIMITED } from './plan-calls.ts'

export interface AccessPlan extends AdmissionPlan {
  readonly calls: CallsPlan
}

/** The part of a plan that is more than elements. */
export interface AccessGroups {
  readonly groups: Iterable<readonly [name: string, group: CallerGroup]>
  readonly calls: CallsPlan
}

export const NOTHING_OFFERED: AccessPlan = { ...NOTHING_ADMITTED, calls: NOTHING_LIMITED }

const MAP_ACCESS = 'access'
const MAP_REACHABLE = 'reachable'
const SET_OWN_PODS = 'own-pods'
const MAP_ERRORS = 'errors'

/** Where packets of one cluster come from. */
export interface Origin {
  readonly index: number
  readonly prefixes: readonly string[]
  /** Lane addresses, from which gateways send ICMP errors. Absent for IPv6. */
  readonly lanes?: string
}

/** The part of the table that changes only with a replacement. */
export interface AccessTable {
  readonly family: AddressFamily
  readonly exposure: Exposure
  /** Pod networks of this cluster. */
  readonly podCidrs: readonly string[]
  /**
   * Pods and addresses of this node, if it passes on packets to those of other nodes; else undefined. Connections of
   * other nodes' pods may use several gateways, so this node cannot tell their answers.
   */
  readonly ownPods: readonly string[] | undefined
  /** This node is a gateway, and its cluster has no other. */
  readonly isOnlyGateway: boolean
  readonly openPorts: readonly OpenPort[]
  /** CallsPlan.keepsOpen */
  readonly keepsOpen: boolean
  /**
   * XFRM policies look at the mark. Another program at the priority of access-in may restore the mark of a connection,
   * which clears ours, and no packet from a lane would reach a pod then.
   */
  readonly marksAgain: boolean
  /** Name of the set of prefixes of other clusters. */
  readonly remote: string
  /** Samples of what is refused are logged to NFLOG_GROUP. */
  readonly sampled: boolean
  /** The other clusters, each with the prefixes of its packets, and of its lanes for IPv4, as elements. */
  readonly origins: readonly Origin[]
  /** Name of the set of this cluster's nodes, for IPv4. Their own addresses may be among the pod networks. */
  readonly nodes: string | undefined
}

/** After our translation (-300) and connection tracking (-200), before other programs translate (-100). */
const ACCESS: NftBaseChain = { type: 'filter', hook: 'prerouting', priority: -150 }
/** Before the mark is cleared, because what is admitted here is marked once more. */
const LAST_NODE: NftBaseChain = { type: 'filter', hook: 'forward', priority: -200 }
/** After all translation (-101, -100): what leads to another cluster by the address of a service goes there too. */
const OUT: NftBaseChain = { type: 'filter', hook: 'prerouting', priority: -90 }
const FROM_OTHERS = `iifname "${LANE_DEVICE_PREFIX}*"`
const MARK_BITS = 0xffffffff

/** Chains, rules, and empty maps. The counters and the set of remote prefixes must exist. */
export function accessGuard(table: AccessTable): NftStatement[] {
  const { family, podCidrs, exposure, remote, nodes, openPorts, sampled } = table
  const { nft: ip, type } = family
  const pods = podCidrs.length === 1 ? (podCidrs[0] ?? '') : `{ ${podCidrs.join(', ')} }`
  const dropped = droppedIn(table)
  const cleared = `meta mark set meta mark & ${hex(MARK_BITS - ADMITTED_MARK)}`
  const strange = strangeMatch(table, pods)
  const outgoing = isFiltered(table) ? `${ip} saddr ${pods} ${ip} daddr @${remote}` : undefined
  const fromRemote = isClosed(table) ? `${ip} daddr ${pods} ${ip} saddr @${remote}` : undefined
  const beside = fromRemote === undefined ? undefined : `iifname != "${LANE_DEVICE_PREFIX}*" ${fromRemote}`
  const marked = table.marksAgain ? fromRemote : beside
  const foreign = [FROM_OTHERS, ...strange, ...(beside === undefined ? [] : [beside])]
  return [
    map(MAP_ACCESS, { kind: 'map', key: `${type} . inet_proto . inet_service`, value: 'verdict' }),
    map(MAP_REACHABLE, { kind: 'map', key: type, value: 'verdict' }),
    ...(transits(table) ? [map(SET_OWN_PODS, { kind: 'set', key: type, flags: ['interval'] })] : []),
    ...(sampled ? sampleChains() : []),
    ...chain('admitted', [`meta mark set meta mark | ${hex(ADMITTED_MARK)}`]),
    ...chain(CHAIN_ALL, [`${ip} saddr @${remote} goto admitted`, dropped('access-not-offered')]),
    ...chain('ask', askRules(table)),
    ...(exposure === 'pods' ? [] : errorStatements(table)),
    ...chain('admit-node', [
      ...openPortMatches(family.family, openPorts).map((match) => `${match} goto admitted`),
      dropped('access-node'),
    ]),
    ...(transits(table)
      ? [
          ...chain('pass-through', passThrough(table)),
          ...chain('by-state', stateRules(table)),
          ...chain('admit', [`${ip} daddr != @${SET_OWN_PODS} goto pass-through`, 'goto by-state']),
          ...(table.isOnlyGateway ? chain('leaves-nodes', [leavingRule(table, pods)], LAST_NODE) : []),
        ]
      : chain('admit', stateRules(table))),
    ...chain(
      'access-in',
      podCidrs.length === 0
        ? []
        : [
            ...(nodes === undefined ? [] : [`iifname "${VXLAN_DEVICE}" ${ip} saddr @${nodes} goto admitted`]),
            `${FROM_OTHERS} ${ip} daddr ${pods} goto ${exposure === 'pods' ? 'admitted' : 'admit'}`,
            ...strange.map((match) => `${match} goto ${transits(table) ? 'by-state' : 'admit'}`),
          ],
      ACCESS,
    ),
    ...(outgoing === undefined && marked === undefined
      ? []
      : chain(
          'access-out',
          [
            ...(outgoing === undefined
              ? []
              : [`iifname "${VXLAN_DEVICE}" ${outgoing}`, `iifname != "${LANE_DEVICE_PREFIX}*" ${outgoing}`]),
            // What access-in refused is not here any more.
            ...(marked === undefined ? [] : [marked]),
          ].map((match) => `${match} goto admitted`),
          OUT,
        )),
    ...chain(
      'unmark-forwarded',
      [...foreign, ...(outgoing === undefined ? [] : [outgoing])].map((match) => `${match} ${cleared}`),
      {
        type: 'filter',
        hook: 'forward',
        priority: -199,
      },
    ),
    ...chain(
      'unmark-received',
      foreign.map((match) => `${match} ${cleared}`),
      { type: 'filter', hook: 'input', priority: -199 },
    ),
  ]
}

/**
 * Connections are kept because connection tracking knows them. So nothing may make it know one that was not looked up,
 * such as a packet of a pod that has an address of another cluster as its source.
 */
function strangeMatch({ family: { nft }, exposure, keepsOpen, remote, podCidrs }: AccessTable, pods: string): string[] {
  if (!keepsOpen || exposure === 'pods' || podCidrs.length === 0) return []
  return [`iifname != "${LANE_DEVICE_PREFIX}*" meta l4proto tcp ${nft} saddr @${remote} ${nft} daddr ${pods}`]
}

function askRules(table: AccessTable): string[] {
  const { nft, family } = table.family
  return [
    `${nft} daddr . meta l4proto . th dport vmap @${MAP_ACCESS}`,
    `${family === 4 ? 'icmp' : 'icmpv6'} type echo-request ${nft} daddr vmap @${MAP_REACHABLE}`,
    droppedIn(table)('access-not-exported'),
  ]
}

// Only ICMP counts as related. Helpers of connection tracking would let a caller open any port of a pod. An error must be
// about a flow with another cluster, or a member could end flows of our pods among themselves. An error of another
// cluster must be about a flow with that cluster. This cluster's own nodes may send errors about all flows.
function stateRules(table: AccessTable): string[] {
  const { nft, family } = table.family
  const dropped = droppedIn(table)
  const error = `meta l4proto ${icmpName(family)} ct state related`
  const ends = ['original', 'reply'].map((direction) => `ct ${direction} ${nft} saddr @${table.remote}`)
  return [
    'ct direction reply ct state established goto admitted',
    ...(table.exposure === 'pods' ? [] : [`${error} ${nft} saddr vmap @${MAP_ERRORS}`]),
    ...ends.map((end) => `${error} ${end} goto admitted`),
    `${error} ${dropped('access-no-connection')}`,
    `ct state invalid ${dropped('access-no-connection')}`,
    'fib daddr type local goto admit-node',
    ...(table.keepsOpen ? keptRules('ask', 'goto admitted') : []),
    'goto ask',
  ]
}

/** A chain for the ICMP errors of each cluster. */
function errorStatements(table: AccessTable): NftStatement[] {
  const { family, origins } = table
  const dropped = droppedIn(table)
  const chains = origins.flatMap(({ index, prefixes }) => {
    const ends = prefixes.length === 1 ? (prefixes[0] ?? '') : `{ ${prefixes.join(', ')} }`
    const about = ['original', 'reply'].map((way) => `ct ${way} ${family.nft} saddr ${ends} goto admitted`)
    return chain(`errors-of-${index}`, [...(prefixes.length === 0 ? [] : about), dropped('access-no-connection')])
  })
  const elements = [...errorElements(table)].map(([key, value]): NftElement => ({ key, value }))
  return [
    ...chains,
    // After the chains, because nft sends the elements of intervals together with their map.
    map(MAP_ERRORS, { kind: 'map', key: family.type, value: 'verdict', flags: ['interval'] }),
    ...(elements.length === 0
      ? []
      : [{ verb: 'add-elements', table: NFT_TABLE_NODE, map: MAP_ERRORS, elements } as const]),
  ]
}

/** The chain for errors from each prefix. */
function errorElements({ origins }: Pick<AccessTable, 'origins'>): ReadonlyMap<string, string> {
  return new Map(
    origins.flatMap(({ index, prefixes, lanes }) =>
      [...prefixes, ...(lanes === undefined ? [] : [lanes])].map((from) => [from, `goto errors-of-${index}`] as const),
    ),
  )
}

/** The elements that change only with a replacement of the table. */
export function fixedElements(table: Pick<AccessTable, 'origins' | 'exposure'>): ElementMaps {
  return table.exposure === 'pods' ? new Map() : new Map([[MAP_ERRORS, errorElements(table)]])
}

/**
 * A pod whose node is not known is reached by the routes of the CNI. Its node may enforce nothing, and does not see
 * that the packet came from another cluster. So this node decides, and it tracks what it does not pass on over the
 * overlay. With several gateways, a call and its answers may come by different ones, of which only one knows the
 * connection. Then there is no such rule, and only what pass-through refuses without state is refused.
 */
function leavingRule({ family: { nft } }: AccessTable, pods: string): string {
  const passed = `${nft} daddr ${pods} ${nft} daddr != @${SET_OWN_PODS}`
  return `${FROM_OTHERS} oifname != "${VXLAN_DEVICE}" ${passed} goto by-state`
}

/** What can be refused without knowing the connection. The node of the pod decides about the rest. */
function passThrough(table: AccessTable): string[] {
  const { family } = table.family
  const dropped = droppedIn(table)
  const part = family === 4 ? 'ip frag-off & 0x1fff != 0' : 'frag frag-off != 0'
  return [
    `${part} ${dropped('access-fragment')}`,
    'tcp flags & (syn | ack) == syn goto ask',
    `${family === 4 ? 'icmp' : 'icmpv6'} type echo-request goto ask`,
    `meta l4proto { tcp, udp, sctp, ${icmpName(family)} } goto admitted`,
    dropped('access-protocol'),
  ]
}

/**
 * Whether packets of our own pods must have the mark too. The reverse-path filter of IPv4 looks up the way back as if
 * the answer came from the lane or the overlay, and what comes from there is not routed without it.
 */
function isFiltered(table: AccessTable): boolean {
  return table.family.family === 4 && isClosed(table)
}

function isClosed({ exposure, podCidrs }: AccessTable): boolean {
  return exposure !== 'pods' && podCidrs.length > 0
}

function transits({ ownPods, exposure }: Pick<AccessTable, 'ownPods' | 'exposure'>): boolean {
  // While nothing is known about this node's pods, all pods count as its own.
  return exposure !== 'pods' && ownPods !== undefined && ownPods.length > 0
}

/**
 * The chains and sets of groups that are not in `existing`. Unused ones stay, because they are small. `remote` is the
 * set of prefixes of other clusters.
 */
export function groupStatements(
  { groups, calls }: AccessGroups,
  existing: ReadonlySet<string>,
  table: Pick<AccessTable, 'family' | 'remote' | 'sampled'>,
): NftStatement[] {
  const { nft, type } = table.family
  const dropped = droppedIn(table)
  const callers = [...groups].flatMap(([name, { clusters }]) =>
    existing.has(callersSet(name))
      ? []
      : [
          map(callersSet(name), { kind: 'set', key: type, flags: ['interval'] }),
          ...chain(callersChain(name), [
            { rule: `${nft} saddr @${callersSet(name)} goto admitted`, comment: namesComment(clusters) },
            dropped('access-not-offered'),
          ]),
        ],
  )
  return [...callers, ...callsStatements(calls, existing, table)]
}

/** The names in `existing` once the plan has been applied. */
export function groupNames({ groups, calls }: AccessGroups): string[] {
  return [...[...groups].map(([name]) => callersSet(name)), ...callsNames(calls)]
}

/** All elements. The chains and sets of its groups must exist. */
export function accessElements({ ports, addresses, groups, calls }: AccessPlan): ElementMaps {
  const targets = (of: ReadonlyMap<string, Callers>) => new Map([...of].map(([key, { target }]) => [key, target]))
  return new Map<string, ReadonlyMap<string, string | undefined>>([
    [MAP_ACCESS, targets(ports)],
    [MAP_REACHABLE, targets(addresses)],
    ...[...groups].map(([name, { prefixes }]) => [callersSet(name), keys(prefixes)] as const),
    ...callsElements(calls),
  ])
}

/** The changes of the elements for admission. The chains and sets of the groups after them must exist. */
export function accessChanges({ ports, addresses, groups }: AccessChanges): ElementChange[] {
  const prefixes = ({ key, before, after }: Changed<CallerGroup>): ElementChange[] => {
    const of = (group: CallerGroup | undefined) => new Map([[callersSet(key), keys(group?.prefixes ?? [])]])
    return elementDiff(of(before), of(after))
  }
  return [...targetChanges(MAP_ACCESS, ports), ...targetChanges(MAP_REACHABLE, addresses), ...groups.flatMap(prefixes)]
}

function targetChanges(name: string, changes: readonly Changed<Callers>[]): ElementChange[] {
  if (changes.length === 0) return []
  const remove = changes.flatMap(({ key, before }) => (before === undefined ? [] : [key]))
  const add = changes.flatMap(({ key, after }) => (after === undefined ? [] : [{ key, value: after.target }]))
  return [{ map: name, remove, add }]
}

export function ownPodsElements(table: Pick<AccessTable, 'ownPods' | 'exposure'>): ElementMaps {
  return transits(table) ? new Map([[SET_OWN_PODS, keys(table.ownPods ?? [])]]) : new Map()
}

function callersSet(group: string): string {
  return `callers-${group}`
}

function keys(texts: readonly string[]): ReadonlyMap<string, undefined> {
  return new Map(texts.map((text) => [text, undefined]))
}

function hex(bits: number): string {
  return `0x${bits.toString(16)}`
}
