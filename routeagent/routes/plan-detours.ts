/**
 * How a gateway node gets packets to nodes that its own overlay does not reach any more: by another gateway node, which
 * takes them on to the node itself and never to a third (table 7316). Pure.
 *
 *   lane ─► gateway node ─✗─ worker
 *                └─► other gateway node ─► worker
 */
import type { Endpoint } from '../../model/objects.ts'
import { isDraining } from './plan-gateways.ts'
import type { OverlayNode } from './plan-nodes.ts'

export interface Detours {
  /** There is another gateway node, which may hand packets on to this one. */
  readonly mayGet: boolean
  /** By which gateway node to go, by the name of the node that is meant. Absent: straight. */
  readonly by: ReadonlyMap<string, OverlayNode>
}

export const NO_DETOURS: Detours = { mayGet: false, by: new Map() }

export interface DetoursInit {
  readonly others: readonly OverlayNode[]
  readonly ownEndpoints: readonly Endpoint[]
  /** Nodes that answered this node, and do not now. */
  readonly silent: ReadonlySet<string>
}

/** The gateway node of the lowest number that answers and stays, or else that answers. */
export function planDetours({ others, ownEndpoints, silent }: DetoursInit): Detours {
  const nodes = new Map(others.map((node) => [node.name, node]))
  const sorted = ownEndpoints.toSorted((a, b) => Number(isDraining(a)) - Number(isDraining(b)) || byLane(a, b))
  const gateways = sorted.flatMap(({ spec }) => nodes.get(spec.node) ?? [])
  const relay = gateways.find(({ name }) => !silent.has(name))
  const lost = others.filter(({ name }) => silent.has(name))
  const by = relay === undefined ? [] : lost.map(({ name }) => [name, relay] as const)
  return { mayGet: gateways.length > 0, by: new Map(by) }
}

function byLane(a: Endpoint, b: Endpoint): number {
  return a.spec.lane - b.spec.lane || (a.spec.node < b.spec.node ? -1 : 1)
}
