/** Checks the kernel state of probed machines, and resources that are about to run out. */
import { containsAddress, parseAddress, parsePrefix } from '../../model/addresses/addresses.ts'
import {
  CONDITION_NODES_ANSWER,
  NFT_TABLE_GATEWAY,
  NFT_TABLE_NODE,
  OVERLAY_PROBE_PORT,
  ROUTE_TABLE_LANES,
  ROUTE_TABLE_LANES_PUBLIC,
  ROUTE_TABLE_NODE,
  ROUTE_TABLE_NODE_PUBLIC,
  VXLAN_DEVICE,
  VXLAN_PORT,
  findCondition,
  lanePort,
} from '../../model/model.ts'
import { LABEL_GATEWAY, statedListenPort } from '../../model/lanes/lanes.ts'
import { type Finding, type HostReport, type Seen, type World, named, seenAt, seenSubject } from '../facts/facts.ts'
import { type Drop, type Packet, dropOf } from '../packet-filter/packet-filter.ts'

type Host = Seen<HostReport>
type Found = Pick<Finding, 'reason' | 'severity' | 'seen'> & Partial<Pick<Finding, 'because'>>

const RP_FILTER = 'rp_filter'
/** The used shares above which a resource counts as nearly exhausted. */
const NEARLY = { connections: 0.95, disk: 0.97, files: 0.9 }
const STRICT = '1'

export function hosts(world: World): readonly Finding[] {
  return [...(world.probes.host ?? []).flatMap((host) => hostFindings(world, host)), ...files(world)]
}

function hostFindings(world: World, host: Host): readonly Finding[] {
  const { node } = host.object
  const found = [
    ...settings(world, host),
    ...tables(world, host),
    ...routes(world, host),
    ...shares(host),
    ...faults(host),
    ...hairpin(host),
  ]
  return found.map((one) => ({ ...one, subject: { kind: 'Node', name: node }, ...seenAt(host) }))
}

/** Whether Sealane carries traffic on a node: as a gateway, and for its pods. */
function serves({ objects, fresh }: World, node: string): { readonly gateway: boolean; readonly node: boolean } {
  const gateway = fresh.find(({ object }) => object.metadata.name === node)
  const agent = objects.RouteAgent?.find(({ object }) => object.metadata.name === node)
  return {
    gateway: (gateway?.object.status?.lanes.length ?? 0) > 0,
    node: (agent?.object.status?.clusters.length ?? 0) > 0,
  }
}

function settings(world: World, host: Host): readonly Found[] {
  const { node, sysctls } = host.object
  const { gateway, node: carries } = serves(world, node)
  if (!gateway && !carries) return []
  const found: Found[] = []
  const off = forwardingOff(world, host)
  if (off !== undefined) found.push(off)
  // The kernel uses the larger of the two values: 2 (loose) on a device overrides 1 (strict) of all.
  const all = sysctls[`net/ipv4/conf/all/${RP_FILTER}`] ?? '0'
  const strict = Object.entries(sysctls).flatMap(([name, value]) => {
    const device = /^net\/ipv4\/conf\/(sealane[^/]*)\/rp_filter$/.exec(name)?.[1]
    const counts = Math.max(Number(all), Number(value))
    return device !== undefined && String(counts) === STRICT ? [device] : []
  })
  if (strict.length > 0) {
    const seen = `rp_filter is 1 (strict) on ${named(strict)}: the kernel drops packets whose return route uses another device`
    found.push({ reason: 'StrictReversePath', severity: 'degraded', seen })
  }
  const others = changedSettings(world, host).filter(({ name }) => !/\/(forwarding|rp_filter)$/.test(name))
  if (others.length > 0) {
    const texts = others.map(({ name, found: is, value }) => `${name.replaceAll('/', '.')} is ${is}, not ${value}`)
    found.push({ reason: 'DeviceSettingsDiffer', severity: 'degraded', seen: named(texts) })
  }
  return found
}

function ownPodCIDRs({ objects, self }: World): readonly string[] {
  return objects.Cluster?.find(({ object: one }) => one.spec.id === self)?.object.spec.podCIDRs ?? []
}

function hasIpv6Pods(world: World): boolean {
  return ownPodCIDRs(world).some((range) => range.includes(':'))
}

/**
 * The changed settings that matter: IPv6 settings count only if pods have IPv6, since nothing uses the inherited ones
 * otherwise.
 */
function changedSettings(
  world: World,
  { object: { deviceSettings = [] } }: Host,
): Host['object']['deviceSettings'] & {} {
  return hasIpv6Pods(world) ? deviceSettings : deviceSettings.filter(({ name }) => !name.startsWith('net/ipv6/'))
}

/** Checks forwarding of the kernel, of Sealane's devices, and of the devices that the CNI connects pods with. */
function forwardingOff(world: World, host: Host): Found | undefined {
  const { sysctls, devices } = host.object
  const { objects } = world
  const { object } = host
  const own = ownPodCIDRs(world)
  const nodeAddresses = (objects.Node ?? [])
    .filter(({ object: one }) => one.metadata.name === object.node)
    .flatMap(({ object: one }) => one.status?.addresses ?? [])
    .flatMap(({ type, address }) => (type === 'InternalIP' ? [address] : []))
  const has = (name: string, wanted: (address: string) => boolean): boolean =>
    devices.find((device) => device.name === name)?.addresses.some(wanted) === true
  const down: string[] = []
  const noted: string[] = []
  if (sysctls['net/ipv4/ip_forward'] === '0') down.push('net.ipv4.ip_forward')
  if (hasIpv6Pods(world) && sysctls['net/ipv6/conf/all/forwarding'] === '0') down.push('net.ipv6.conf.all.forwarding')
  for (const { name } of changedSettings(world, host))
    if (name.endsWith('/forwarding')) down.push(name.replaceAll('/', '.'))
  for (const [name, value] of Object.entries(sysctls)) {
    const device = /^net\/ipv4\/conf\/([^/]+)\/forwarding$/.exec(name)?.[1]
    if (device === undefined || value !== '0') continue
    const isOfPods = POD_DEVICE.test(device) || has(device, (address) => own.some((range) => isInside(address, range)))
    if (isOfPods) down.push(name.replaceAll('/', '.'))
    // The overlay ends on this node, so only a CNI that routes pods over the uplink needs forwarding there.
    else if (has(device, (address) => nodeAddresses.includes(address))) noted.push(name.replaceAll('/', '.'))
  }
  const seen = `${named([...down, ...noted])} = 0: the kernel does not forward packets that arrive there`
  if (down.length > 0) return { reason: 'ForwardingOff', severity: 'down', seen }
  return noted.length > 0 ? { reason: 'ForwardingOff', severity: 'notice', seen } : undefined
}

/**
 * Devices of single pods that are not bridge ports (Calico, Cilium, Antrea). The setting of a bridge port has no
 * effect.
 */
const POD_DEVICE = /^(cali|lxc)/

function tables(world: World, { object: { node, firewall } }: Host): readonly Found[] {
  const { gateway, node: carries } = serves(world, node)
  if (firewall === undefined) return []
  const wanted = [...(gateway ? [NFT_TABLE_GATEWAY] : []), ...(carries ? [NFT_TABLE_NODE] : [])]
  const missing = wanted.filter((name) => !firewall.tables.includes(`ip ${name}`))
  // A part creates its table when it has content for it, so a table counts as removed only if all are missing.
  if (missing.length === 0 || missing.length < wanted.length) return []
  const seen = `nftables has no ${named(missing.map((name) => `table ip ${name}`))}`
  return [{ reason: 'KernelTableMissing', severity: 'degraded', seen }]
}

/**
 * Finds missing routes to other clusters, on a gateway with links or on a node behind a gateway. A gateway has routes
 * for all its links, up or not, since the probes use them.
 */
function routes(world: World, { object: { node, routes: found } }: Host): readonly Found[] {
  const { objects, reached, self, links } = world
  const { gateway, node: carries } = serves(world, node)
  const hasLinks = gateway && links.some((link) => link.node === node)
  if (found === undefined || (!gateway && !carries) || (reached === undefined && !hasLinks)) return []
  const [table, other] = gateway
    ? [ROUTE_TABLE_LANES, ROUTE_TABLE_LANES_PUBLIC]
    : [ROUTE_TABLE_NODE, ROUTE_TABLE_NODE_PUBLIC]
  const known = new Set([table, other].flatMap((number) => found[number] ?? []))
  const missing = (objects.Cluster ?? [])
    .filter(({ object: { spec } }) => spec.id !== self && (hasLinks || reached?.has(spec.id) === true))
    .flatMap(({ object: { spec } }) => {
      const prefixes = spec.globalCIDRs.length > 0 ? spec.globalCIDRs : spec.podCIDRs
      return prefixes.filter((prefix) => !prefix.includes(':')).map((p) => `${p} of ${spec.id}`)
    })
  // Prefixes may be routed in parts, so routes count as removed only if there are none.
  if (missing.length === 0 || known.size > 0) return []
  const seen = `table ${table} has no route to ${named(missing)}`
  return [{ reason: 'KernelRoutesMissing', severity: 'down', seen }]
}

function shares({ object: { connections, disks } }: Host): readonly Found[] {
  const found: Found[] = []
  if (connections !== undefined && connections.used >= connections.limit * NEARLY.connections) {
    const { used, limit } = connections
    const severity = used >= limit ? 'down' : 'degraded'
    const seen = `${used} of ${limit} connections are tracked: the kernel drops new ones when the table is full`
    found.push({ reason: 'ConnectionTableFull', severity, seen })
  }
  const full = disks.filter(({ used, limit }) => used >= limit * NEARLY.disk)
  if (full.length > 0) {
    const texts = full.map(({ path, used, limit }) => `${path} (${Math.floor((used / limit) * 100)} %)`)
    found.push({ reason: 'DiskFull', severity: 'degraded', seen: `full or almost full: ${named(texts)}` })
  }
  return found
}

/**
 * Kernels in which reloading a set of concatenated ranges fails with a false clash, or finds a wrong element, on
 * processors with AVX2 (CVE-2026-43114, commit d3c0037ffe12): the first release with the fix, by series. The fault is
 * older, but only these series have the stricter check that refuses the reload (7711f4bb4b36).
 */
const CONCATENATION_FIXED: Readonly<Record<string, number>> = { '6.18': 24, '6.19': 14 }

function faults({ object: { kernel } }: Host): readonly Found[] {
  const [, series = '', patch = ''] = /^(\d+\.\d+)\.(\d+)/.exec(kernel?.release ?? '') ?? []
  const fixed = Object.hasOwn(CONCATENATION_FIXED, series) ? CONCATENATION_FIXED[series] : undefined
  if (kernel?.avx2 !== true || fixed === undefined || Number(patch) >= fixed) return []
  const seen =
    `Linux ${kernel.release} with AVX2: reloading an nftables set of concatenated ranges fails or matches wrongly ` +
    `before ${series}.${fixed}, unless the distribution has the fix of CVE-2026-43114`
  return [{ reason: 'KernelSetFault', severity: 'notice', seen }]
}

/** The CNI of a cluster owns the ports of its bridge, so that this is only said. At sites the route agent sets them. */
function hairpin({ object: { cutOffFromSelf = [] } }: Host): readonly Found[] {
  if (cutOffFromSelf.length === 0) return []
  const commands = named(cutOffFromSelf.map(({ address, command }) => `${address} (${command})`))
  const seen = `if they call their own clusterset service, these backends may get no answer: ${commands}`
  return [{ reason: 'HairpinOff', severity: 'notice', seen }]
}

/** Finds parts that report that their open files are nearly exhausted. */
function files({ reports }: World): readonly Finding[] {
  return reports.flatMap((report): readonly Finding[] => {
    const { part, name, files: open } = report.object
    if (open === undefined || open.limit === 0 || open.used < open.limit * NEARLY.files) return []
    const seen = `it has ${open.used} open files and sockets, and the limit is ${open.limit}`
    const subject = { kind: 'Part', name: `${part} ${name}` }
    return [{ reason: 'FilesNearlyOut', severity: 'degraded', subject, seen, ...seenAt(report) }]
  })
}

interface Wanted {
  readonly packet: Packet
  /** Describes the packet for messages. */
  readonly text: string
}

/** Checks whether firewalls of other programs drop Sealane's packets on probed machines. */
export function firewalls(world: World): readonly Finding[] {
  return (world.probes.host ?? []).flatMap((host) => {
    const wanted = [...pods(world, host), ...lanes(world, host), ...overlay(world, host)]
    return firewallFindings(host, wanted)
  })
}

/** Gives one finding for all places that drop packets. */
function firewallFindings(host: Seen<HostReport>, wanted: readonly Wanted[]): readonly Finding[] {
  const { firewall, node } = host.object
  if (firewall === undefined) return []
  const dropped = wanted.flatMap(({ packet, text }): readonly (Drop & { readonly text: string })[] => {
    const drop = dropOf(firewall.chains, packet)
    return drop === undefined ? [] : [{ ...drop, text }]
  })
  const places = [...new Set(dropped.map(({ where, what }) => `${what} of ${where}`))]
  if (places.length === 0) return []
  const seen = `${named(places, 3)} drops ${named(dropped.map(({ text }) => text))}`
  return [{ reason: 'FirewallDrops', severity: 'down', subject: { kind: 'Node', name: node }, seen, ...seenAt(host) }]
}

/** Connections between pods and other clusters, in both directions. */
function pods({ objects, self }: World, { object: { devices } }: Seen<HostReport>): readonly Wanted[] {
  const own = objects.Cluster?.find(({ object }) => object.spec.id === self)?.object.spec.podCIDRs ?? []
  const isOwn = (address: string): boolean => own.some((range) => isInside(address, range))
  const inside = devices.filter(({ name, addresses }) => !isLane(name) && addresses.some(isOwn))
  const outside = devices.filter(({ name }) => isLane(name))
  const hooks = ['prerouting', 'forward', 'postrouting'] as const
  return inside.flatMap(({ name: pod }) =>
    outside.flatMap(({ name: lane }): readonly Wanted[] => {
      const flow = { hooks, protocol: 'tcp', mayBeAnswer: false } as const
      return [
        { packet: { ...flow, inDevice: pod, outDevice: lane }, text: `connections from ${pod} to ${lane}` },
        { packet: { ...flow, inDevice: lane, outDevice: pod }, text: `connections from ${lane} to ${pod}` },
      ]
    }),
  )
}

/**
 * Whether the device is a lane's own (`sealane0`) or the overlay, which leads to lanes from other nodes. Devices of
 * cables have longer names.
 */
function isLane(device: string): boolean {
  return device === VXLAN_DEVICE || /^sealane\d$/.test(device)
}

/**
 * The packets of links that are not up. Packets of links that are up are evidently not dropped, whatever the rules seem
 * to say.
 */
function lanes({ links, objects }: World, { object: { node } }: Seen<HostReport>): readonly Wanted[] {
  const down = links.filter((link) => link.node === node && link.connection.state !== 'up')
  const own = objects.Node?.find(({ object }) => object.metadata.name === node)?.object
  const first = own === undefined ? undefined : statedListenPort(own)
  const numbers = new Set(down.map(({ connection: { lane, remoteLane = lane } }) => remoteLane))
  return [...numbers].flatMap((number): readonly Wanted[] => {
    const port = lanePort(number, first)
    const udp = { protocol: 'udp', mayBeAnswer: true } as const
    return [
      {
        packet: { ...udp, hooks: ['ingress', 'prerouting', 'input'], dport: port },
        text: `incoming UDP ${port}`,
      },
      { packet: { ...udp, hooks: ['output', 'postrouting'], sport: port }, text: `outgoing UDP ${port}` },
    ]
  })
}

/**
 * The packets of the overlay and its probes, if the node does not hear others or others do not hear it. Otherwise they
 * are evidently not dropped in either direction.
 */
function overlay({ objects }: World, { object: { node } }: Seen<HostReport>): readonly Wanted[] {
  const agents = (objects.RouteAgent ?? []).map(({ object }) => object)
  const hearsAll = agents.every(({ metadata, status }) => {
    const isOwn = metadata.name === node
    const unheard = findCondition(status?.conditions, CONDITION_NODES_ANSWER)?.status === 'Unknown'
    const silent = status?.silentNodes ?? []
    return isOwn ? silent.length === 0 && !unheard : !silent.includes(node)
  })
  if (hearsAll) return []
  const udp = { protocol: 'udp', mayBeAnswer: true } as const
  const coming = ['ingress', 'prerouting', 'input'] as const
  const port = agents.find(({ metadata }) => metadata.name === node)?.status?.overlayPort ?? VXLAN_PORT
  return [
    { packet: { ...udp, hooks: coming, dport: port }, text: `incoming UDP ${port}` },
    { packet: { ...udp, hooks: ['output', 'postrouting'], dport: port }, text: `outgoing UDP ${port}` },
    {
      packet: { ...udp, hooks: coming, inDevice: VXLAN_DEVICE, dport: OVERLAY_PROBE_PORT },
      text: `incoming UDP ${OVERLAY_PROBE_PORT} on ${VXLAN_DEVICE}`,
    },
  ]
}

// Compares addresses and ranges from reports, which may be malformed. Pure.

/** Whether the address is in the range. False if either is malformed. */
function isInside(address: string, range: string): boolean {
  try {
    return containsAddress(parsePrefix(range), parseAddress(address))
  } catch {
    return false
  }
}

/** Reports the nodes that Kubernetes marks as not ready. Plain machines have no such condition. */
export function nodes({ objects }: World): readonly Finding[] {
  return (objects.Node ?? []).flatMap((node): readonly Finding[] => {
    const { status, metadata } = node.object
    const ready = status?.conditions?.find(({ type }) => type === 'Ready')
    if (ready === undefined || ready.status === 'True') return []
    const isGateway = metadata.labels?.[LABEL_GATEWAY] !== undefined
    return [
      {
        reason: 'NodeNotReady',
        severity: isGateway ? 'degraded' : 'notice',
        subject: seenSubject('Node', node),
        seen: `Ready is ${ready.status}: ${ready.message ?? ready.reason ?? 'no reason given'}`,
        ...seenAt(node, ready.lastTransitionTime),
      },
    ]
  })
}
