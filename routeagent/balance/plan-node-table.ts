/** Plans the whole table sealane_node of one family as one transaction, and its expected content. Pure. */
import {
  type ElementChange,
  type ElementMaps,
  type NftBaseChain,
  type NftElement,
  type NftStatement,
  elementDiff,
  elementStatements,
} from '../../kernel/nft/nft.ts'
import { COPIED_BYTES, COPIED_BYTES_OF_ERROR } from '../../kernel/nfnetlink/nfnetlink.ts'
import type { Exposure } from '../../model/access/access.ts'
import {
  type Address,
  type Family,
  type OpenPort,
  type Prefix,
  addressBits,
  aggregate,
  containsAddress,
  formatAddress,
  formatPrefix,
  lanePrefix,
  ofFamily,
  parseAddress,
  parsePrefix,
  podPrefixes,
  withoutContained,
} from '../../model/addresses/addresses.ts'
import {
  LABEL_ZONE,
  LANE_DEVICE_PREFIX,
  NFLOG_GROUPS_REFUSALS,
  NFT_TABLE_NODE,
  type Node,
  VXLAN_DEVICE,
} from '../../model/model.ts'
import { isOnlyGateway, usableClusters } from '../../model/lanes/lanes.ts'
import {
  type AccessGroups,
  type AccessPlan,
  type AccessSite,
  type AccessTable,
  type Origin,
  NOTHING_OFFERED,
  accessElements,
  accessGuard,
  fixedElements,
  groupStatements,
  ownPodsElements,
} from '../access/access.ts'
import { clusterValidation, clustersetRange } from '../routes/routes.ts'
import { type NodeRouteWorld, bridgeHidesAnswers, ownCluster, rangeTexts, rangesOfNode } from '../world/world.ts'
import { type AddressFamily, addressFamily } from '../world/world.ts'
import {
  LocalBackends,
  MAP_SERVICES,
  NO_LAYOUT,
  SET_ENDED,
  SET_HAIRPIN,
  SET_NONE_HERE,
  SET_NO_BACKENDS,
  type TableLayout,
  allElements,
  balanceElements,
  balanceMaps,
  hairpinType,
  layout,
  portLookup,
} from './balance-elements.ts'
import { NODE_DROP_REASONS, type NodeDropReason, nodeDropCounter } from '../world/world.ts'
import {
  type OverlayContext,
  SET_OVERLAY_NODES,
  forwardedToOverlay,
  guardedPorts,
  otherGatewayMacs,
  otherNodes,
  overlayContext,
  overlayInMatch,
  overlayOutMatch,
  planOverlayGuard,
} from './plan-overlay-guard.ts'
import type { PortPlan, ServiceContext } from './plan-service.ts'

// The fixed part of table sealane_node of one family: base chains and their rules. Pure. balance-elements.ts fills the
// maps that the rules use. README.md shows the path of a packet through them.

const TABLE = NFT_TABLE_NODE
const SET_REMOTE = 'remote'

/** All addresses are of the family. */
export interface NodeNftWorld {
  readonly family: Family
  /** Pod networks of this cluster. */
  readonly podCidrs: readonly string[]
  /** Pod networks of this node. */
  readonly nodePodCidrs: readonly string[]
  /**
   * Where backends on this node may be: its pod networks, or all pod networks if its pods have addresses outside them.
   */
  readonly localCidrs: readonly string[]
  /** Prefixes that lead to the other clusters. */
  readonly remote: readonly string[]
  readonly clustersetIpRange: string
  /** Pods of this node share a bridge that netfilter does not see (routeagent/world/node-world.ts). */
  readonly bridgeHidesAnswers: boolean
  /** The UDP ports of the overlay: guardedPorts(). */
  readonly overlayPorts: readonly number[]
  /** The nodes that may use the overlay. Undefined if none may. */
  readonly overlay: OverlayContext | undefined
  /** IPv4 InternalIPs of the other nodes. They are set elements, which can change without replacing the table. */
  readonly overlayNodes: readonly string[]
  /**
   * If this node is a gateway: the MACs of the other gateway nodes on the overlay. Packets from these MACs have been
   * forwarded already. Undefined if this node is no gateway.
   */
  readonly otherGateways: readonly string[] | undefined
  /** isOnlyGateway(). Also another gateway whose Node has no address for the overlay counts. */
  readonly isOnlyGateway: boolean
  /** Ports of this node that other clusters may call. */
  readonly openPorts: readonly OpenPort[]
  /** What other clusters may call. */
  readonly exposure: Exposure
  /** AccessTable.marksAgain */
  readonly marksAgain: boolean
  /** Samples of refused packets are logged. */
  readonly sampled: boolean
  /** Endpoints that refuse connections are logged to NFLOG_GROUPS_REFUSALS. */
  readonly logsRefusals?: boolean
  /** The kernel can end open connections (Linux 5.9). */
  readonly endsConnections?: boolean
  /** If this node is a gateway: its pods and its own addresses in the pod networks, as elements. */
  readonly ownPods: readonly string[] | undefined
  /** The prefixes of each other cluster, as elements. */
  readonly callers: ReadonlyMap<string, readonly string[]>
  /** AccessTable.origins. */
  readonly origins: readonly Origin[]
}

/** The part of the routes' world that the table needs. */
export function nodeNftWorld(
  world: NodeRouteWorld,
  family: Family,
  openPorts: readonly OpenPort[] = [],
  sampled = false,
): NodeNftWorld {
  const podCidrs = podPrefixes(ownCluster(world), family)
  const { networks, scattered, ranges } = rangesOfNode(world, family, Infinity)
  const { clusters } = clusterValidation(world)
  const remote = clusters.flatMap((cluster) => ofFamily(cluster.prefixes, family))
  const otherGateways = otherGatewayMacs(world)
  return {
    family,
    podCidrs: rangeTexts(podCidrs),
    nodePodCidrs: rangeTexts(networks),
    // An unneeded element matches nothing, while replacing the table for each pod would be expensive.
    localCidrs: rangeTexts(scattered ? podCidrs : networks),
    remote: withoutContained(remote).map(formatPrefix),
    clustersetIpRange: formatPrefix(clustersetRange(world, family)),
    bridgeHidesAnswers: bridgeHidesAnswers(world.facts, networks, family),
    overlayPorts: guardedPorts(world),
    overlay: family === 4 ? overlayContext(world) : undefined,
    overlayNodes: family === 4 ? otherNodes(world) : [],
    otherGateways,
    isOnlyGateway: otherGateways !== undefined && isOnlyGateway(world.self, world.node, world.endpoints),
    openPorts,
    exposure: world.exposure ?? 'pods',
    marksAgain: world.failClosed === undefined,
    sampled,
    ownPods: otherGateways === undefined ? undefined : elementTexts(aggregate([...networks, ...ranges])),
    origins: clusters.map(({ index, prefixes }) => originOf(index, elementTexts(ofFamily(prefixes, family)), family)),
    callers: new Map(clusters.map(({ id, prefixes }) => [id, elementTexts(ofFamily(prefixes, family))])),
  }
}

function originOf(index: number, prefixes: readonly string[], family: Family): Origin {
  return { index, prefixes, ...(family === 4 ? { lanes: formatPrefix(lanePrefix(index)) } : {}) }
}

/** In the form that nft prints: a single address has no prefix length. */
function elementTexts(prefixes: readonly Prefix[]): string[] {
  return withoutContained(prefixes).map((prefix) =>
    prefix.length === addressBits(prefix.family) ? formatAddress(prefix) : formatPrefix(prefix),
  )
}

/**
 * Everything except the elements of the service maps, to be sent after `add table` into an empty table. `keepsOpen`:
 * CallsPlan.keepsOpen.
 */
export function planNodeNft(world: NodeNftWorld, keepsOpen = false): NftStatement[] {
  const family = addressFamily(world.family)
  return [
    ...(Object.keys(NODE_DROP_REASONS) as NodeDropReason[]).map((reason): NftStatement => ({
      verb: 'add-counter',
      table: TABLE,
      counter: nodeDropCounter(reason),
    })),
    ...(world.family === 4
      ? [{ verb: 'add-map', table: TABLE, map: SET_OVERLAY_NODES, type: { kind: 'set', key: family.type } } as const]
      : []),
    { verb: 'add-map', table: TABLE, map: SET_REMOTE, type: { kind: 'set', key: family.type, flags: ['interval'] } },
    { verb: 'add-elements', table: TABLE, map: SET_REMOTE, elements: world.remote.map((key): NftElement => ({ key })) },
    ...balanceMaps(family),
    { verb: 'add-map', table: TABLE, map: SET_HAIRPIN, type: hairpinType(family) },
    ...planOverlayGuard({
      family: world.family,
      overlayPorts: world.overlayPorts,
      context: world.overlay,
      podCidrs: world.podCidrs,
      remote: SET_REMOTE,
      openPorts: world.openPorts,
    }),
    ...accessGuard({ ...accessTable(world), keepsOpen }),
    ...chainRows(family, world).map(({ chain, base }): NftStatement => ({
      verb: 'add-chain',
      table: TABLE,
      chain,
      ...(base === undefined ? {} : { base }),
    })),
    ...ruleRows(world, family).map((row): NftStatement => ({ verb: 'add-rule', table: TABLE, ...row })),
  ]
}

/** What the plan of the access rules depends on. A gateway node passes on packets for endpoints of all nodes. */
export function accessSite(world: NodeNftWorld, { self, node }: Pick<NodeRouteWorld, 'self' | 'node'>): AccessSite {
  const { exposure, callers, otherGateways } = world
  return { self, exposure, callers, here: node, node: otherGateways === undefined ? node : undefined }
}

/** What the access plan needs besides the table and its elements, and what is not in `existing`. */
export function accessStatements(
  { family, sampled }: Pick<NodeNftWorld, 'family' | 'sampled'>,
  access: AccessGroups,
  existing: ReadonlySet<string>,
): NftStatement[] {
  return groupStatements(access, existing, { family: addressFamily(family), remote: SET_REMOTE, sampled })
}

function accessTable(world: NodeNftWorld): Omit<AccessTable, 'keepsOpen'> {
  const nodes = world.family === 4 ? SET_OVERLAY_NODES : undefined
  return { ...world, family: addressFamily(world.family), remote: SET_REMOTE, nodes }
}

interface ChainRow {
  readonly chain: string
  readonly base?: NftBaseChain
}

// The overlay's own packets are IPv4 and need no connection tracking. Their content is tracked where that is needed.
const UNTRACKED: readonly ChainRow[] = [
  { chain: 'untracked-in', base: { type: 'filter', hook: 'prerouting', priority: -300 } },
  { chain: 'untracked-out', base: { type: 'filter', hook: 'output', priority: -300 } },
]

const CHAINS: readonly ChainRow[] = [
  // One before the usual priorities, so that a connection to a clusterset IP is balanced before kube-proxy or a CNI
  // handles it.
  { chain: 'balance-forwarded', base: { type: 'nat', hook: 'prerouting', priority: -101 } },
  { chain: 'balance-local', base: { type: 'nat', hook: 'output', priority: -101 } },
  // Before other programs masquerade: iptables and most CNIs use 100, kindnet 90.
  { chain: 'keep-source', base: { type: 'nat', hook: 'postrouting', priority: 50 } },
  { chain: 'forward-guard', base: { type: 'filter', hook: 'forward', priority: -1 } },
  { chain: 'local-guard', base: { type: 'filter', hook: 'output', priority: 0 } },
  // Postrouting sees forwarded and local packets, and local packets after they were routed again.
  { chain: 'clamp-mss', base: { type: 'filter', hook: 'postrouting', priority: -150 } },
]

function chainRows({ family }: AddressFamily, { logsRefusals, endsConnections }: NodeNftWorld): ChainRow[] {
  return [
    { chain: 'refuse' },
    ...(family === 4 ? UNTRACKED : []),
    ...CHAINS,
    ...(logsRefusals === true ? [REFUSALS] : []),
    ...(endsConnections === true ? ENDED : []),
  ]
}

// After connection tracking, and before the answer gets the address that was called.
const REFUSALS: ChainRow = { chain: 'refusals', base: { type: 'filter', hook: 'prerouting', priority: -150 } }
/** What the log says of the packet. */
export const REFUSAL = 'refusal'
export const UNREACHABLE = 'unreachable'
/** Refusals a second. One of each endpoint is enough. */
const REFUSALS_LIMIT = 'limit rate 100/second burst 100 packets'

/**
 * RFC 9293 section 3.10.7.1: the reset that answers a SYN has an acknowledgement, and sequence number 0. It has to come
 * in by the device by which its source is reached, so that a pod of this node cannot forge one of a remote endpoint.
 */
function refusalRows(
  { family, clustersetIpRange }: Pick<NodeNftWorld, 'family' | 'clustersetIpRange'>,
  ip: string,
): RuleRow[] {
  const isRefusal = 'tcp flags & (rst | ack) == rst | ack tcp sequence 0'
  const called = `ct direction reply ct original ${ip} daddr ${clustersetIpRange} fib saddr . iif oif exists`
  const log = `log prefix "${REFUSAL}" group ${NFLOG_GROUPS_REFUSALS[family]} snaplen ${COPIED_BYTES}`
  return [
    {
      chain: REFUSALS.chain,
      rule: `${isRefusal} ${called} ${REFUSALS_LIMIT} ${log}`,
      comment: 'endpoints that refuse connections',
    },
    ...unreachableRows({ family, clustersetIpRange }, ip),
  ]
}

/**
 * ICMP errors about UDP. A closed port is reported by the endpoint itself, so the source has to come in by its device, as
 * above; passive-health.ts compares it with the endpoint. That a host is unreachable is said by others, and believed
 * only of what comes in by a lane or the overlay, where no pod of this node sends, and only if reporters() says so.
 */
function unreachableRows(
  { family, clustersetIpRange }: Pick<NodeNftWorld, 'family' | 'clustersetIpRange'>,
  ip: string,
): RuleRow[] {
  const [icmp, host, port] = family === 4 ? ['icmp', '1', '3'] : ['icmpv6', '{ 0, 3 }', '4']
  const error = (code: string): string => `${icmp} type destination-unreachable ${icmp} code ${code}`
  const about = `ct state related ct direction reply ct original protocol 17 ct original ${ip} daddr ${clustersetIpRange}`
  const log = (prefix: string): string =>
    `${REFUSALS_LIMIT} log prefix "${prefix}" group ${NFLOG_GROUPS_REFUSALS[family]} snaplen ${COPIED_BYTES_OF_ERROR}`
  const row = (rule: string): RuleRow => ({ chain: REFUSALS.chain, rule, comment: 'endpoints without a UDP port' })
  return [
    row(`${error(port)} ${about} fib saddr . iif oif exists ${log(REFUSAL)}`),
    row(`iifname "${LANE_DEVICE_PREFIX}*" ${error(host)} ${about} ${log(UNREACHABLE)}`),
  ]
}

/** Whether this source may report that a host is unreachable. Addresses in the form that nft prints. */
export type Reporters = (source: string, host: string) => boolean

/**
 * A node of this cluster may report of each host, and another cluster only of its own hosts: else one member could take
 * the endpoints of another one away (design rule 11). The source of what came by a lane is proven to be in the prefixes
 * or lanes of its cluster, so what is in none of them is of this cluster.
 */
export function reporters(origins: readonly Origin[]): Reporters {
  const known = origins.map(({ prefixes, lanes }) => ({
    hosts: prefixes.map(parseElement),
    all: [...prefixes, ...(lanes === undefined ? [] : [lanes])].map(parseElement),
  }))
  const isIn = (prefixes: readonly Prefix[], address: Address): boolean =>
    prefixes.some((prefix) => prefix.family === address.family && containsAddress(prefix, address))
  return (source, host) => {
    const [from, to] = [parseAddress(source), parseAddress(host)]
    const senders = known.filter(({ all }) => isIn(all, from))
    return senders.every(({ hosts }) => isIn(hosts, to))
  }
}

/** An element as elementTexts() gives it. */
function parseElement(text: string): Prefix {
  if (text.includes('/')) return parsePrefix(text)
  const address = parseAddress(text)
  return { ...address, length: addressBits(address.family) }
}

/** The statements of the rule that logs refusals, as a table for a check whether the kernel has them. */
export function refusalProbe(family: Family, range: Prefix): NftStatement[] {
  const table = `${TABLE}_refusals`
  const rows = refusalRows({ family, clustersetIpRange: formatPrefix(range) }, addressFamily(family).nft)
  return [
    { verb: 'add-table', table },
    { verb: 'add-chain', table, ...REFUSALS },
    ...rows.map((row): NftStatement => ({ verb: 'add-rule', table, ...row })),
  ]
}

interface RuleRow {
  readonly chain: string
  readonly rule: string
  readonly comment?: string
}

function ruleRows(world: NodeNftWorld, family: AddressFamily): RuleRow[] {
  const ip = family.nft
  const range = world.clustersetIpRange
  const port = portLookup(family)
  const balance = `${ip} daddr ${range} ${port} vmap @${MAP_SERVICES}`
  return [
    ...(family.family === 4 ? overlayRows(world) : []),
    ...(world.logsRefusals === true ? refusalRows(world, ip) : []),
    ...(world.endsConnections === true ? endedRows(ip, range) : []),
    { chain: 'balance-forwarded', rule: balance },
    { chain: 'balance-local', rule: balance },
    {
      chain: 'keep-source',
      rule: `ct status dnat ${ip} saddr . ${ip} daddr @${SET_HAIRPIN} masquerade`,
      comment: 'a pod whose connection was balanced to itself',
    },
    ...sameNodeRows(world, ip),
    // A connection is translated only once, so this rule keeps a later masquerade rule of the CNI from applying.
    ...world.podCidrs.map((own) => ({
      chain: 'keep-source',
      rule: `${ip} saddr ${own} ${ip} daddr @${SET_REMOTE} snat to ${ip} saddr`,
      comment: 'remote pods see the real source',
    })),
    ...loopRows(world, ip),
    { chain: 'forward-guard', rule: `iifname "${VXLAN_DEVICE}" goto from-overlay` },
    // A packet that still has a clusterset IP here was not balanced. It must not leave by the route that exists for
    // lookups.
    { chain: 'forward-guard', rule: `${ip} daddr ${range} goto refuse` },
    { chain: 'local-guard', rule: `${ip} daddr ${range} goto refuse` },
    { chain: 'refuse', rule: `${port} @${SET_NONE_HERE} drop`, comment: 'no backend that this node may use' },
    {
      chain: 'refuse',
      rule: `meta l4proto tcp ${port} @${SET_NO_BACKENDS} reject with tcp reset`,
      comment: 'no backend is ready',
    },
    { chain: 'refuse', rule: `${port} @${SET_NO_BACKENDS} reject`, comment: 'no backend is ready' },
    { chain: 'refuse', rule: `reject with ${family.unreachable}`, comment: 'no service has this address or port' },
    {
      chain: 'clamp-mss',
      rule: `tcp flags syn ${ip} daddr @${SET_REMOTE} tcp option maxseg size set rt mtu`,
      comment: 'segments that fit the lane',
    },
  ]
}

const ENDED: readonly ChainRow[] = [
  { chain: 'ended-forwarded', base: { type: 'filter', hook: 'prerouting', priority: -150 } },
  { chain: 'ended-local', base: { type: 'filter', hook: 'output', priority: -150 } },
]

/**
 * Ends open connections to endpoints of clusters that are drained now: the client hears a reset when it sends next, also
 * when it acknowledges what the server sent. Connection tracking keeps the entry until then. Without it the kernel would
 * take the next packet for a new connection in its middle and send it to another endpoint: over a lane, where the access
 * rules of that cluster may drop it without a word. From 6.3 on, the kernel ends the entry with the reset. Resets
 * of the client pass, so that a server which still sends hears of the end too. SCTP has no reset here; its client gets an
 * ICMP error for each packet.
 *
 * The rules come before translation. A reset that is made later, for a packet from a bridge with netfilter, goes
 * out by its port at once, from the address of the endpoint, and the client ignores it.
 */
function endedRows(ip: string, range: string): RuleRow[] {
  // Packets of all other connections end with the first match.
  const called = `${ip} daddr ${range} ct direction original`
  const ended = `${ip} daddr . meta l4proto . th dport . ct reply ${ip} saddr @${SET_ENDED}`
  const comment = 'the cluster is drained now'
  return ENDED.flatMap(({ chain }) => [
    { chain, rule: `${called} meta l4proto tcp tcp flags & rst == 0 ${ended} reject with tcp reset`, comment },
    { chain, rule: `${called} meta l4proto sctp ${ended} reject`, comment },
  ])
}

/** The statements of the rules that end connections, as a table for a check whether the kernel has them. */
export function endedProbe(family: Family, range: Prefix): NftStatement[] {
  const table = `${TABLE}_ended`
  const { nft, type } = addressFamily(family)
  const key = `${type} . inet_proto . inet_service . ${type}`
  return [
    { verb: 'add-table', table },
    { verb: 'add-map', table, map: SET_ENDED, type: { kind: 'set', key } },
    ...ENDED.map((row): NftStatement => ({ verb: 'add-chain', table, ...row })),
    ...endedRows(nft, formatPrefix(range)).map((row): NftStatement => ({ verb: 'add-rule', table, ...row })),
  ]
}

/**
 * A gateway without a link to the destination forwards packets from nodes that are no gateways. Two gateways that each
 * expect the other to have a link would forward a packet in a loop, so packets from another gateway are not forwarded
 * again. A gateway forwards packets for a pod of this cluster directly to the pod's node (table 7316), and such packets
 * come only from gateways.
 */
function loopRows({ otherGateways }: NodeNftWorld, ip: string): RuleRow[] {
  const between = `iifname "${VXLAN_DEVICE}" oifname "${VXLAN_DEVICE}"`
  const drop = `counter name ${nodeDropCounter('overlay-loop')} drop`
  const row = (matches: string): RuleRow => {
    return { chain: 'forward-guard', rule: `${between} ${matches}${drop}`, comment: 'no loops between gateway nodes' }
  }
  if (otherGateways === undefined) return [row('')]
  const inward = `${ip} saddr @${SET_REMOTE} `
  if (otherGateways.length === 0) return [row(inward)]
  const gateways = `{ ${otherGateways.join(', ')} } `
  return [row(`ether saddr ${gateways}${ip} daddr @${SET_REMOTE} `), row(`ether saddr != ${gateways}${inward}`)]
}

function overlayRows({ overlay, overlayPorts }: NodeNftWorld): RuleRow[] {
  return [
    // Without a context nothing may come in by the overlay, so nothing is left untracked.
    ...(overlay === undefined
      ? []
      : [{ chain: 'untracked-in', rule: `${overlayInMatch(overlay, overlayPorts)} notrack` }]),
    { chain: 'untracked-out', rule: `${overlayOutMatch(overlayPorts)} notrack` },
    { chain: 'forward-guard', rule: forwardedToOverlay(overlayPorts), comment: 'only nodes may use the overlay' },
  ]
}

// Without these rules, an answer between two pods on one bridge would reach the caller with the pod's own address.
function sameNodeRows(world: NodeNftWorld, ip: string): RuleRow[] {
  if (!world.bridgeHidesAnswers) return []
  return world.nodePodCidrs.map((own) => ({
    chain: 'keep-source',
    rule: `ct status dnat ct original ${ip} daddr ${world.clustersetIpRange} ${ip} saddr ${own} ${ip} daddr ${own} masquerade`,
    comment: 'the bridge hides answers from netfilter',
  }))
}

export interface TablePlan {
  readonly statements: readonly NftStatement[]
  readonly layout: TableLayout
  readonly localBackends: LocalBackends
}

/** Creates or replaces the table in one transaction, so that no packet sees an incomplete table. */
export function planTable(
  world: NodeNftWorld,
  ports: ReadonlyMap<string, PortPlan>,
  access: AccessPlan = NOTHING_OFFERED,
): TablePlan {
  const family = addressFamily(world.family)
  const localBackends = new LocalBackends(
    world.localCidrs.map((text) => parsePrefix(text)),
    family,
  )
  const hairpins = localBackends.apply([...ports].map(([key, after]) => ({ key, before: undefined, after })))
  const chains = layout(ports.values(), NO_LAYOUT, family)
  const elements = [
    ...allElements(ports),
    hairpins,
    ...elementDiff(new Map(), new Map([...nodeElements(world), ...accessElements(access)])),
  ]
  const statements: NftStatement[] = [
    // "add" comes first, so that "delete" finds a table in any case.
    { verb: 'add-table', table: NFT_TABLE_NODE },
    { verb: 'delete-table', table: NFT_TABLE_NODE },
    { verb: 'add-table', table: NFT_TABLE_NODE },
    ...planNodeNft(world, access.calls.keepsOpen),
    ...chains.statements,
    ...accessStatements(world, access, new Set()),
    ...elementStatements(NFT_TABLE_NODE, elements),
  ]
  return { statements, layout: chains.result, localBackends }
}

/** Every map and set of the table with its planned elements. */
export function desiredElements(
  world: NodeNftWorld,
  ports: ReadonlyMap<string, PortPlan>,
  localBackends: LocalBackends,
  access: AccessPlan = NOTHING_OFFERED,
): ElementMaps {
  const remote = new Map(world.remote.map((prefix) => [prefix, undefined]))
  return new Map([
    ...balanceElements(ports),
    [SET_HAIRPIN, localBackends.elements()],
    ...nodeElements(world),
    ...accessElements(access),
    ...fixedElements(world),
    [SET_REMOTE, remote],
  ])
}

/** How the sets of nodes and of this node's pods change if the world changes and the fixed part of the table does not. */
export function nodeChange(before: NodeNftWorld, after: NodeNftWorld): ElementChange[] {
  return elementDiff(nodeElements(before), nodeElements(after))
}

function nodeElements(world: NodeNftWorld): ElementMaps {
  const own = ownPodsElements(accessTable(world))
  if (world.family !== 4) return own
  return new Map([...own, [SET_OVERLAY_NODES, new Map(world.overlayNodes.map((address) => [address, undefined]))]])
}

export function serviceContext(world: NodeRouteWorld, family: Family): ServiceContext {
  return {
    node: world.node,
    self: world.self,
    zone: zoneOf(world.nodes.find((node) => node.metadata.name === world.node)),
    clustersetIpRange: clustersetRange(world, family),
    reachable: usableClusters(world.self, world.gateways, clusterValidation(world)),
  }
}

function zoneOf(node: Node | undefined): string | undefined {
  const zone = node?.metadata.labels?.[LABEL_ZONE]
  return zone === '' ? undefined : zone
}
