/** Decides which links carry traffic now, from their health and from the other paths. Pure. */
import { CAPABILITY_DRAINING, remoteLaneOf } from '../../model/lanes/lanes.ts'
import type { Endpoint, Gateway } from '../../model/model.ts'
import type { CableRules, LaneState } from '../cable/cable.ts'
import { farEnds, linkAsAny } from '../links/links.ts'
import {
  type GatewayLaneConfig,
  type GatewayWorld,
  type PeerHealthView,
  clusterOfKey,
  healthKey,
} from '../world/world.ts'

export type CarryingFacts = Pick<
  GatewayWorld,
  'health' | 'handedOver' | 'reachedByOthers' | 'reachedWell' | 'draining' | 'withdrawn'
>

/**
 * Returns, by healthKey(), the links that carry traffic. They are up. A link that is suspect, or whose near or far end
 * is about to leave, carries traffic only if nothing else reaches its cluster: another link of this node, or another
 * gateway of this cluster. Of such links, those that answer come before those that are suspect. A link that has been
 * handed over carries nothing, because the far end no longer accepts packets from this node.
 *
 * A link that is held out of use because it flaps carries traffic only if no other link of this node does. Other
 * gateways do not replace it, because their reports may be outdated: a flapping link is better than none.
 *
 * A link whose far gateway leaves is replaced by other gateways only if their links stay. If each gateway relied on the
 * others, none would carry traffic.
 */
export function carryingLinks(facts: CarryingFacts): ReadonlySet<string> {
  const { health, handedOver, reachedByOthers, reachedWell, draining, withdrawn } = facts
  const up = [...health].filter(([key, { state }]) => state === 'up' && handedOver?.has(key) !== true)
  const answering = up.filter(([, { suspected }]) => suspected !== true).map(([key]) => key)
  const suspected = up.filter(([, view]) => view.suspected === true).map(([key]) => key)
  const stays = (key: string): boolean => withdrawn !== true && draining?.has(key) !== true
  const staying = answering.filter(stays)
  const steady = staying.filter((key) => health.get(key)?.held !== true)
  const held = staying.filter((key) => health.get(key)?.held === true)
  const kept = [...steady, ...lastRoutes(held, steady.map(clusterOfKey))]
  const going = lastRoutes(
    answering.filter((key) => !stays(key)),
    [...kept.map(clusterOfKey), ...((withdrawn === true ? reachedByOthers : reachedWell) ?? [])],
  )
  const reached = [...kept, ...going].map(clusterOfKey)
  return new Set([...kept, ...going, ...lastRoutes(suspected, [...reached, ...(reachedByOthers ?? [])])])
}

/** The links that carry traffic and their packet sizes as text. Equal text means equal routes. */
export function carryingText(facts: CarryingFacts): string {
  return [...carryingLinks(facts)]
    .map((key) => `${key} ${facts.health.get(key)?.sendSize ?? ''}`)
    .sort()
    .join()
}

function lastRoutes(keys: readonly string[], reached: readonly string[]): string[] {
  const elsewhere = new Set(reached)
  return keys.filter((key) => !elsewhere.has(clusterOfKey(key)))
}

/**
 * Clusters to which other gateways report a link that is up. Takes all Gateway objects of this cluster. Nodes in
 * `leaving` are ignored, because no node forwards to them. `without`: links, by healthKey(), that do not count.
 */
export function reachedByOthers(
  node: string,
  gateways: readonly Gateway[],
  leaving: ReadonlySet<string> = new Set(),
  without: ReadonlySet<string> = new Set(),
): ReadonlySet<string> {
  const others = gateways.filter(({ metadata }) => metadata.name !== node && !leaving.has(metadata.name))
  const up = others.flatMap(({ status }) => status?.connections ?? []).filter(({ state }) => state === 'up')
  const counted = up.filter((one) => !without.has(healthKey(remoteLaneOf(one), one.cluster)))
  return new Set(counted.map(({ cluster }) => cluster))
}

/**
 * By healthKey(): links whose far gateway drains. During a handover this lasts as long as the leaving gateway exists.
 */
export function drainingLinks(remotes: readonly Endpoint[]): ReadonlySet<string> {
  return new Set(remotes.filter(isDraining).map(({ spec }) => healthKey(spec.lane, spec.cluster)))
}

/** Nodes of this cluster that are about to leave, according to their Endpoints. */
export function leavingNodes(cluster: string, endpoints: readonly Endpoint[]): ReadonlySet<string> {
  const own = endpoints.filter(({ spec }) => spec.cluster === cluster)
  return new Set(own.filter(isDraining).map(({ spec }) => spec.node))
}

function isDraining({ spec }: Endpoint): boolean {
  return spec.capabilities.includes(CAPABILITY_DRAINING)
}

// The state that an earlier process left. A restart must not remove traffic while the first probes are under way: a
// connection that was reported as up, and whose tunnel still has a session, counts as up until probes show otherwise.
// Pure.

interface HandedOverInit {
  /** The present time in milliseconds of the monotonic clock. */
  readonly monotonicMs: number
  /** This node's own Gateway object. */
  readonly gateway: Gateway | undefined
  readonly lanes: readonly Pick<GatewayLaneConfig, 'lane'>[]
  readonly endpoints: readonly Endpoint[]
  readonly laneStates: ReadonlyMap<number, LaneState>
  readonly rules: CableRules
}

/** Connections to take over as up, by healthKey(). */
export function handedOverHealth(init: HandedOverInit): Map<string, PeerHealthView> {
  const ends = new Map(init.endpoints.map((one) => [one.metadata.name, farEnds(one, init.rules)]))
  const handedOver = new Map<string, PeerHealthView>()
  for (const connection of init.gateway?.status?.connections ?? []) {
    const { cluster, endpoint, state, lane } = connection
    // With another lane number this node had another identity, so sessions on the same device were not this lane's.
    if (!init.lanes.some((own) => own.lane === lane)) continue
    const remoteLane = remoteLaneOf(connection)
    const link = linkAsAny(init.laneStates.get(remoteLane), ends.get(endpoint) ?? [])
    const ageMs = init.monotonicMs - (link?.handshakeMs ?? -Infinity)
    if (state !== 'up' || ageMs > init.rules.sessionMs) continue
    const sendSize = connection.mtu === undefined ? {} : { sendSize: connection.mtu }
    handedOver.set(healthKey(remoteLane, cluster), { state: 'up', sinceMs: init.monotonicMs, ...sendSize })
  }
  return handedOver
}
