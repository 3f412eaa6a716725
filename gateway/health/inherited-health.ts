/**
 * What an earlier run of this process left. A restart must not take traffic away while the first probes are on their
 * way: a connection that was reported up, and whose tunnel still has a session, counts as up until probes say
 * otherwise. Pure.
 */
import type { Endpoint, Gateway } from '../../model/objects.ts'
import { WIREGUARD_REJECT_AFTER_SECONDS } from '../../model/spec-constants.ts'
import type { DeviceState } from '../../kernel/wireguard/wireguard.ts'
import { type PeerHealthView, healthKey } from '../world.ts'

export interface InheritedInit {
  /** Milliseconds of the monotonic clock. */
  readonly monotonicMs: number
  /** GatewayWorld.handshakes. */
  readonly handshakes: ReadonlyMap<string, number>
  /** This node's own Gateway object. */
  readonly gateway: Gateway | undefined
  readonly endpoints: readonly Endpoint[]
  readonly devices: ReadonlyMap<number, DeviceState>
}

/** Connections to take over as up, by healthKey(). */
export function inheritedHealth(init: InheritedInit): Map<string, PeerHealthView> {
  const keys = new Map(init.endpoints.map((endpoint) => [endpoint.metadata.name, endpoint.spec.publicKey]))
  const inherited = new Map<string, PeerHealthView>()
  for (const { cluster, lane, endpoint, state } of init.gateway?.status?.connections ?? []) {
    const peer = init.devices.get(lane)?.peers.find((one) => one.publicKey === keys.get(endpoint))
    const ageMs = init.monotonicMs - (init.handshakes.get(peer?.publicKey ?? '') ?? -Infinity)
    if (state !== 'up' || ageMs > WIREGUARD_REJECT_AFTER_SECONDS * 1000) continue
    inherited.set(healthKey(lane, cluster), { state: 'up', sinceMs: init.monotonicMs })
  }
  return inherited
}
