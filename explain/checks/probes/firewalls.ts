/** Whether a firewall of somebody else drops what Sealane sends and receives on a machine that was looked at. */
import { CONDITION_NODES_ANSWER, findCondition } from '../../../model/conditions.ts'
import { LANE_BASE_PORT, OVERLAY_PROBE_PORT, VXLAN_DEVICE, VXLAN_PORT } from '../../../model/kernel-ids.ts'
import type { HostReport } from '../../facts/probe-shapes.ts'
import type { Seen } from '../../facts/read-facts.ts'
import type { Finding } from '../../finding.ts'
import { type Drop, type Packet, dropOf } from '../../firewall/walk-chains.ts'
import { isInside } from '../../inside.ts'
import { type World, named, seenAt } from '../../world.ts'

interface Wanted {
  readonly packet: Packet
  /** What it is, in words. */
  readonly text: string
}

export function firewalls(world: World): readonly Finding[] {
  return (world.probes.host ?? []).flatMap((host) => {
    const wanted = [...pods(world, host), ...lanes(world, host), ...overlay(world, host)]
    return firewallFindings(host, wanted)
  })
}

/** One place that drops is one finding, whatever it drops. */
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

/** Connections of pods to other clusters, and from there. */
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

/** `sealane0`, and the overlay, which leads to it from other nodes; what carries a lane has a name that goes on. */
function isLane(device: string): boolean {
  return device === VXLAN_DEVICE || /^sealane\d$/.test(device)
}

/** The packets of links, while not all are up: what carries is not dropped, whatever rules seem to say. */
function lanes({ links }: World, { object: { node } }: Seen<HostReport>): readonly Wanted[] {
  const down = links.filter((link) => link.node === node && link.connection.state !== 'up')
  const numbers = new Set(down.map(({ connection: { lane, remoteLane = lane } }) => remoteLane))
  return [...numbers].flatMap((number): readonly Wanted[] => {
    const port = LANE_BASE_PORT + number
    const udp = { protocol: 'udp', mayBeAnswer: true } as const
    return [
      {
        packet: { ...udp, hooks: ['ingress', 'prerouting', 'input'], dport: port },
        text: `UDP ${port} that comes in`,
      },
      { packet: { ...udp, hooks: ['output', 'postrouting'], sport: port }, text: `UDP ${port} that goes out` },
    ]
  })
}

/**
 * Packets of the overlay and the probes in it, while the node does not hear others or they do not hear it: what answers
 * is not dropped. The answers tell as much of what it sends as of what it receives.
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
  return [
    { packet: { ...udp, hooks: coming, dport: VXLAN_PORT }, text: `UDP ${VXLAN_PORT} that comes in` },
    {
      packet: { ...udp, hooks: ['output', 'postrouting'], dport: VXLAN_PORT },
      text: `UDP ${VXLAN_PORT} that goes out`,
    },
    {
      packet: { ...udp, hooks: coming, inDevice: VXLAN_DEVICE, dport: OVERLAY_PROBE_PORT },
      text: `UDP ${OVERLAY_PROBE_PORT} that comes in by ${VXLAN_DEVICE}`,
    },
  ]
}
