/** Which links carry traffic now, by their health and by what else there is. Pure. */
import type { Gateway } from '../../model/objects.ts'
import { type GatewayWorld, clusterOfKey } from '../world.ts'

/**
 * By healthKey(): links that are up. One that is doubted carries only where nothing else leads to its cluster: no link
 * of this node, and no other gateway of this cluster. A link that has been handed over carries nothing: the far end
 * takes nothing from this node any more.
 */
export function carryingLinks({
  health,
  handedOver,
  reachedByOthers,
}: Pick<GatewayWorld, 'health' | 'handedOver' | 'reachedByOthers'>): ReadonlySet<string> {
  const up = [...health].filter(([key, { state }]) => state === 'up' && handedOver?.has(key) !== true)
  const sound = up.filter(([, { doubted }]) => doubted !== true).map(([key]) => key)
  const reached = new Set([...sound.map(clusterOfKey), ...(reachedByOthers ?? [])])
  const lastHopes = up.map(([key]) => key).filter((key) => !reached.has(clusterOfKey(key)))
  return new Set([...sound, ...lastHopes])
}

/** Clusters that other gateways report to have a link to that is up. Takes all Gateway objects of this cluster. */
export function reachedByOthers(node: string, gateways: readonly Gateway[]): ReadonlySet<string> {
  const others = gateways.filter(({ metadata }) => metadata.name !== node)
  const connections = others.flatMap(({ status }) => status?.connections ?? [])
  return new Set(connections.filter(({ state }) => state === 'up').map(({ cluster }) => cluster))
}
