/** How far the gateway that takes a lane over has come, seen from the one that has it. Pure. */
import { remoteLaneOf } from '../../../model/lanes/lane-number.ts'
import type { ConnectionStatus, Gateway } from '../../../model/objects.ts'
import { clusterOfKey, healthKey } from '../../world.ts'

/** Links, by healthKey(), that a gateway reports as up on its lane. */
export function linksUp(gateway: Gateway | undefined, lane: number): ReadonlySet<string> {
  const all = gateway?.status?.connections ?? []
  return new Set(all.filter((one) => one.lane === lane && one.state === 'up').map(keyOf))
}

function keyOf(connection: ConnectionStatus): string {
  return healthKey(remoteLaneOf(connection), connection.cluster)
}

/** A link that this node has lost as well is not waited for after so long: the far end has most probably died. */
const LOST_MS = 5000
/**
 * After so long a cluster that the holder reaches by some link is enough: between these two nodes there may be no way.
 * It is less than a process that ends has for all of it.
 */
const SOME_LINK_MS = 15_000

export interface HandingOverFacts {
  readonly lane: number
  /** Of the node that holds the lane now, and of this one, as they report. */
  readonly holder: Gateway | undefined
  readonly own: Gateway | undefined
  /** Links, by healthKey(), that this node has had up since the other took the lane. */
  readonly needed: ReadonlySet<string>
  /** How long ago that was. */
  readonly elapsedMs: number
}

/** Nobody needs this node any more: the holder serves the lane, and is up wherever this node was. */
export function isRelieved({ lane, holder, own, needed, elapsedMs }: HandingOverFacts): boolean {
  if (holder?.status?.lanes.some((one) => one.lane === lane) !== true) return false
  const there = linksUp(holder, lane)
  const here = linksUp(own, lane)
  const reached = new Set([...there].map(clusterOfKey))
  return [...needed].every((key) => {
    if (there.has(key)) return true
    if (elapsedMs > SOME_LINK_MS && reached.has(clusterOfKey(key))) return true
    return elapsedMs > LOST_MS && !here.has(key)
  })
}
