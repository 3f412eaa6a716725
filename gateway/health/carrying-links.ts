/** Which links carry traffic now, by their health and by what else there is. Pure. */
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
 * By healthKey(): links that are up. One that is doubted, or that an end is about to leave, carries only where something
 * else does not lead to its cluster: another link of this node, or another gateway of this cluster. Of such, those that
 * answer go before those that are doubted. A link that has been handed over carries nothing: the far end takes nothing
 * from this node any more.
 *
 * One that is held out of use since it flaps carries only where no other link of this node does. It is never left to
 * other gateways, which may be gone for longer than is known: what flaps is better than nothing.
 *
 * A link whose far gateway goes is left to other gateways only for links that stay: if each left it to the others, nobody
 * would carry.
 */
export function carryingLinks(facts: CarryingFacts): ReadonlySet<string> {
  const { health, handedOver, reachedByOthers, reachedWell, draining, withdrawn } = facts
  const up = [...health].filter(([key, { state }]) => state === 'up' && handedOver?.has(key) !== true)
  const answering = up.filter(([, { doubted }]) => doubted !== true).map(([key]) => key)
  const doubted = up.filter(([, view]) => view.doubted === true).map(([key]) => key)
  const stays = (key: string): boolean => withdrawn !== true && draining?.has(key) !== true
  const staying = answering.filter(stays)
  const steady = staying.filter((key) => health.get(key)?.held !== true)
  const held = staying.filter((key) => health.get(key)?.held === true)
  const kept = [...steady, ...lastWays(held, steady.map(clusterOfKey))]
  const going = lastWays(
    answering.filter((key) => !stays(key)),
    [...kept.map(clusterOfKey), ...((withdrawn === true ? reachedByOthers : reachedWell) ?? [])],
  )
  const reached = [...kept, ...going].map(clusterOfKey)
  return new Set([...kept, ...going, ...lastWays(doubted, [...reached, ...(reachedByOthers ?? [])])])
}

/** Which links carry, and which sizes of packets: the same text, the same routes. */
export function carryingText(facts: CarryingFacts): string {
  return [...carryingLinks(facts)]
    .map((key) => `${key} ${facts.health.get(key)?.sendSize ?? ''}`)
    .sort()
    .join()
}

function lastWays(keys: readonly string[], reached: readonly string[]): string[] {
  const elsewhere = new Set(reached)
  return keys.filter((key) => !elsewhere.has(clusterOfKey(key)))
}

/**
 * Clusters that other gateways report to have a link to that is up. Takes all Gateway objects of this cluster, and the
 * nodes that are about to go: nobody hands on to these. `without`: links, by healthKey(), that do not count.
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

/** By healthKey(): while a lane is handed over it is one as long as the gateway that goes is there. */
export function drainingLinks(remotes: readonly Endpoint[]): ReadonlySet<string> {
  return new Set(remotes.filter(isDraining).map(({ spec }) => healthKey(spec.lane, spec.cluster)))
}

/** Nodes of this cluster that are about to go, by what they publish. */
export function leavingNodes(cluster: string, endpoints: readonly Endpoint[]): ReadonlySet<string> {
  const own = endpoints.filter(({ spec }) => spec.cluster === cluster)
  return new Set(own.filter(isDraining).map(({ spec }) => spec.node))
}

function isDraining({ spec }: Endpoint): boolean {
  return spec.capabilities.includes(CAPABILITY_DRAINING)
}

// What an earlier run of this process left. A restart must not take traffic away while the first probes are on their
// way: a connection that was reported up, and whose tunnel still has a session, counts as up until probes say
// otherwise. Pure.

interface HandedOverInit {
  /** Milliseconds of the monotonic clock. */
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
    // Of another number this node had another identity: its sessions on the same device were not this lane's.
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
