/** The smallest network that holds what the nodes have been given so far. The cluster may be given more later. */
import { type Evidence, networks } from '../evidence.ts'
import { byFamily, prefixesIn, smallestCover } from '../snapshot/prefix-texts.ts'
import { textAt, textsAt } from '../snapshot/raw.ts'
import type { World } from '../snapshot/snapshot.ts'

export function nodePodCidrs(node: unknown): string[] {
  const many = textsAt(node, 'spec', 'podCIDRs')
  return prefixesIn(many.length > 0 ? many : [textAt(node, 'spec', 'podCIDR')])
}

export function nodePodNetworks(world: World): Evidence[] {
  const all = world.list('Node', '').flatMap(nodePodCidrs)
  const cover = byFamily(smallestCover(all))
  return networks('podCIDRs', cover, 'guess', `smallest network around Node spec.podCIDRs (${all.length} so far)`)
}
