/**
 * What an earlier run of this process left. A restart must not take traffic away while the first probes are on their
 * way: a connection that was reported up, and whose tunnel still has a session, counts as up until probes say
 * otherwise. Pure.
 */
import { remoteLaneOf } from '../../model/lanes/lane-number.ts'
import type { Endpoint, Gateway } from '../../model/objects.ts'
import type { GatewayLaneConfig } from '../config.ts'
import type { CableRules, LaneState } from '../cable/cable.ts'
import { linkAsAny } from '../remotes/changed-identity.ts'
import { farEnds } from '../remotes/check-endpoints.ts'
import { type PeerHealthView, healthKey } from '../world.ts'

export interface HandedOverInit {
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
