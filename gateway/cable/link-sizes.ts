/** Between which sizes a link is probed, and what its packets may have. Pure. */
import { IPV6_MIN_MTU } from '../../model/spec-constants.ts'
import { type SizeBounds, SIZE_STEP } from '../../kernel/probing/size-search.ts'

/** IPv4 needs no more (RFC 791: 576); below this the path is broken, not small. */
export const SMALLEST_MTU = 576

/** Undefined where there is nothing to find out. `overhead`: CableRules. */
export function sizeBounds(deviceMtu: number, overhead: number): SizeBounds | undefined {
  if (deviceMtu <= SMALLEST_MTU) return undefined
  // What every network carries that carries IPv6.
  const base = Math.floor((IPV6_MIN_MTU - overhead) / SIZE_STEP) * SIZE_STEP
  return { floor: SMALLEST_MTU, base, most: deviceMtu }
}

/**
 * Of one link: the device is as wide as the routes of this node say, and the way beyond may be narrower. Takes what
 * probes found to get there; never less than SMALLEST_MTU.
 */
export function linkMtu(deviceMtu: number, health: { readonly sendSize?: number } | undefined): number {
  return Math.min(deviceMtu, Math.max(SMALLEST_MTU, health?.sendSize ?? deviceMtu))
}
