/**
 * Remembers where peers called from. WireGuard follows a peer to the address that it calls from, before anything else is
 * heard of it. Behind NAT that address is the only way to it, and the next round must not put a candidate in its place.
 */
import { type AddressPort, sameAddressPort } from '../../model/addresses/address-port.ts'
import type { DeviceState } from '../../kernel/wireguard/wireguard.ts'
import type { PlannedPeer } from '../cable/wireguard/plan-lanes.ts'
import type { RoamedPeer } from '../world.ts'

interface Trace {
  /** What the device was given last; undefined where it was given nothing yet. */
  readonly told: AddressPort | undefined
  readonly roamed: RoamedPeer | undefined
  /** The device has the address of `roamed` now. */
  readonly isThere: boolean
}

export class RoamedPeers {
  readonly #traces = new Map<string, Trace>()

  /** Looks at the devices before a round plans. Gives by public key where peers called from last. */
  seen(devices: Iterable<DeviceState>, monotonicMs: number): ReadonlyMap<string, RoamedPeer> {
    const roamed = new Map<string, RoamedPeer>()
    for (const { peers } of devices) {
      for (const { publicKey, endpoint } of peers) {
        const before = this.#traces.get(publicKey)
        const trace = traceOf(before, endpoint, monotonicMs)
        this.#traces.set(publicKey, trace)
        if (trace.roamed !== undefined) roamed.set(publicKey, trace.roamed)
      }
    }
    return roamed
  }

  /** Takes what a round gives to the devices. Peers that are planned no more are forgotten. */
  told(peers: readonly PlannedPeer[]): void {
    const planned = new Set(peers.map(({ publicKey }) => publicKey))
    for (const key of this.#traces.keys()) if (!planned.has(key)) this.#traces.delete(key)
    for (const { publicKey, choice } of peers) {
      const { told, roamed, isThere } = this.#traces.get(publicKey) ?? NO_TRACE
      if (choice.how === 'try') this.#traces.set(publicKey, { told: choice.at, roamed, isThere: false })
      else this.#traces.set(publicKey, { told, roamed, isThere })
    }
  }
}

const NO_TRACE: Trace = { told: undefined, roamed: undefined, isThere: false }

function traceOf(before: Trace | undefined, endpoint: AddressPort | undefined, monotonicMs: number): Trace {
  if (before === undefined) {
    // An earlier run of the process left it there; nobody knows when.
    const roamed = endpoint === undefined ? undefined : { at: endpoint, sinceMs: -Infinity }
    return { told: undefined, roamed, isThere: roamed !== undefined }
  }
  if (endpoint === undefined || sameAddressPort(endpoint, before.told)) return { ...before, isThere: false }
  if (before.isThere && sameAddressPort(before.roamed?.at, endpoint)) return before
  return { ...before, roamed: { at: endpoint, sinceMs: monotonicMs }, isThere: true }
}
