/**
 * Whether links work at the places that probes have proven without a relay (punch.ts): a link that does not come up
 * there, or goes down there, goes on through its relay.
 */
import { type AddressPort, sameAddressPort } from '../../../model/addresses/addresses.ts'
import { type LinkInUse, isRelayPlace } from './plan-relay-use.ts'

/** A link that is not up at its place after this time, times slowness(), goes on through the relay. */
export const PUNCH_SETTLES_MS = 3000

interface PunchedLook {
  /** slowness() by linkKey(). */
  readonly slow?: (key: string) => number
  readonly suspected?: ReadonlySet<string>
}

/** What is remembered of one link. */
interface PunchedLink {
  readonly at: AddressPort
  /** When it was up there last, or since when the place is known. */
  readonly sinceMs: number
  readonly wasUp: boolean
  /** Since when each look has found it up there. Undefined: the last one has not. */
  readonly upSinceMs: number | undefined
  /** That has been so for PUNCH_SETTLES_MS, times slowness(): the far end sends there, too. */
  readonly isSettled: boolean
}

/** Remembers which links are up at the places that probes have proven. */
export class PunchedLinks {
  #links: ReadonlyMap<string, PunchedLink> = new Map()

  /**
   * Takes all links, the proven places and slowness() by linkKey(), and linkKey() of those whose packets went two ways
   * just now. Returns linkKey() of those that do not work there.
   */
  look(
    links: readonly Pick<LinkInUse, 'key' | 'state' | 'at'>[],
    punched: ReadonlyMap<string, AddressPort>,
    nowMs: number,
    { slow = () => 1, suspected = new Set() }: PunchedLook = {},
  ): string[] {
    const next = new Map<string, PunchedLink>()
    const lost: string[] = []
    for (const { key, state, at } of links) {
      const place = punched.get(key)
      if (place === undefined) continue
      const known = this.#links.get(key)
      const before = known !== undefined && sameAddressPort(known.at, place) ? known : undefined
      // The far end may have moved the link to another one of this end's places.
      const isUp = state === 'up' && at !== undefined && !isRelayPlace(at)
      // The place is not tried while the link stays where its far end has it (GatewayWorld.followsFar).
      const isHeld = state === 'up' && suspected.has(key)
      const sinceMs = isUp || isHeld ? nowMs : (before?.sinceMs ?? nowMs)
      const settlesMs = PUNCH_SETTLES_MS * slow(key)
      // Packets of the far end alone may have gone two ways: then this end saw no silence, and has been moved.
      const isMoved = suspected.has(key) || before?.isSettled === true
      const isLeft = before?.wasUp === true && (state !== 'up' || isMoved)
      const isLost = !isUp && (isLeft || nowMs - sinceMs >= settlesMs)
      if (isLost) {
        lost.push(key)
        continue
      }
      const upSinceMs = isUp ? (before?.upSinceMs ?? nowMs) : undefined
      const isSettled = nowMs - (upSinceMs ?? nowMs) >= settlesMs
      next.set(key, { at: place, sinceMs, wasUp: isUp || before?.wasUp === true, upSinceMs, isSettled })
    }
    this.#links = next
    return lost
  }

  /** Links, by linkKey(), that both ends have at their proven places. Elsewhere the far end has moved them. */
  get settled(): ReadonlySet<string> {
    return new Set([...this.#links].flatMap(([key, { isSettled }]) => (isSettled ? [key] : [])))
  }
}
