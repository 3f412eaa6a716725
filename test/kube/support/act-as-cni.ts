/**
 * What a CNI would do between the nodes of a test cluster, as flannel's host-gw does it: routes and a masquerade rule.
 */
import { execFileSync } from 'node:child_process'
import { isIPv6 } from 'node:net'
import { eventually } from '../../support/eventually.ts'
import type { ControlPlane } from './control-plane.ts'
import type { Underlay } from './underlay.ts'

/** Where a node is. */
export interface NodePlace {
  readonly name: string
  readonly netns: string
  /** IPv4, and IPv6 where the cluster has that family. Without prefix length. */
  readonly addresses: readonly [string, ...string[]]
}

interface NodeObject {
  readonly spec: { readonly podCIDRs?: readonly string[] }
}

/**
 * Routes between the nodes' pods, and masquerading of what leaves the pod range, for each family. Takes the pod ranges
 * of the cluster, with commas between; waits until the nodes have theirs.
 */
export async function actAsCni(
  plane: ControlPlane,
  podCIDR: string,
  places: readonly NodePlace[],
  underlay: Underlay,
): Promise<void> {
  for (const place of places) {
    const own = await eventually(
      async () => (await plane.api.get<NodeObject>(`/api/v1/nodes/${place.name}`)).spec.podCIDRs,
    )
    for (const range of own) {
      const via = place.addresses.find((address) => isIPv6(address) === range.includes(':')) ?? ''
      for (const other of places) if (other !== place) underlay.route(other.name, range, via)
    }
    for (const range of podCIDR.split(',')) masquerade(place.netns, range)
  }
}

function masquerade(netns: string, range: string): void {
  const [family, forwarding] = range.includes(':')
    ? ['ip6', 'net.ipv6.conf.all.forwarding=1']
    : ['ip', 'net.ipv4.ip_forward=1']
  const rules = `table ${family} cni {
      chain post { type nat hook postrouting priority srcnat; ${family} saddr ${range} ${family} daddr != ${range} masquerade; }
    }`
  inNode(netns, ['sysctl', '-qw', forwarding])
  inNode(netns, ['nft', '-f', '-'], rules)
}

function inNode(netns: string, argv: readonly string[], input = ''): void {
  execFileSync('ip', ['netns', 'exec', netns, ...argv], { input, stdio: ['pipe', 'pipe', 'pipe'] })
}
