/**
 * When a relay counts as failed for a link. One that lets nothing through although both ends are bound there has failed
 * after a time (RelayTurns). One that carries the link, loses it and works again has to wait (RelayFlaps): the link
 * leaves it at once, and does without it for a time that grows, unless there is no other one, because each return would
 * cost it packets. The two ends of a link need not agree, because an end follows the packets of the other one.
 */
import { type AddressPort, formatAddressPort, sameAddressPort } from '../../../model/addresses/addresses.ts'
import type { RelayPlace } from '../../world/world.ts'
import { type LinkInUse, isRelayPlace } from './plan-relay-use.ts'

/** For how long a link does without a relay that has lost it once. It doubles with each loss, up to the longest. */
export const FLAP_HOLD_MS = 60_000
export const LONGEST_FLAP_HOLD_MS = 1_800_000
/** A relay that has not lost the link for so long after it was held back begins with the shortest time again. */
export const FLAPS_FORGOTTEN_MS = 600_000
/** Places that are remembered of one link: more than it has relays. */
const MOST_PLACES = 8

interface Flaps {
  readonly losses: number
  readonly untilMs: number
}

interface Carried {
  /** The relay that carries the link. Undefined: none does. */
  readonly at: AddressPort | undefined
  /** By formatAddressPort(), the newest loss last. */
  readonly places: ReadonlyMap<string, Flaps>
}

export class RelayFlaps {
  #links: ReadonlyMap<string, Carried> = new Map()

  /**
   * Takes all links as they are in a round, and linkKey() of those that this end sends to another place than the relay:
   * that one fails them, though a packet of the far end may have drawn them back. A link that is up by another way has
   * not lost its relay: it has moved.
   */
  look(
    links: readonly Pick<LinkInUse, 'key' | 'state' | 'at'>[],
    nowMs: number,
    sentElsewhere: ReadonlySet<string> = new Set(),
  ): void {
    this.#links = new Map(
      links.flatMap(({ key, state, at }) => {
        const before = this.#links.get(key)
        const places = new Map(
          [...(before?.places ?? [])].filter(([, { untilMs }]) => nowMs - untilMs < FLAPS_FORGOTTEN_MS),
        )
        const isCarried = state === 'up' && at !== undefined && isRelayPlace(at) && !sentElsewhere.has(key)
        const carrier = isCarried ? at : undefined
        if (state === 'down' && before?.at !== undefined) noteLoss(places, before.at, nowMs)
        return carrier === undefined && places.size === 0 ? [] : [[key, { at: carrier, places }] as const]
      }),
    )
  }

  /** The same places with those that are held back marked as failed, and after all others. Takes linkKey(). */
  sorted(key: string, places: readonly RelayPlace[], nowMs: number): readonly RelayPlace[] {
    const link = this.#links.get(key)
    if (link === undefined || link.places.size === 0) return places
    const isHeld = ({ at }: RelayPlace): boolean => {
      // A link that the far end keeps there is well.
      if (sameAddressPort(link.at, at)) return false
      return nowMs < (link.places.get(formatAddressPort(at))?.untilMs ?? -Infinity)
    }
    const held = places.filter(isHeld).map((place): RelayPlace => ({ ...place, failed: true }))
    return [...places.filter((place) => !isHeld(place)), ...held]
  }
}

function noteLoss(places: Map<string, Flaps>, at: AddressPort, nowMs: number): void {
  const name = formatAddressPort(at)
  const losses = (places.get(name)?.losses ?? 0) + 1
  const holdMs = Math.min(LONGEST_FLAP_HOLD_MS, FLAP_HOLD_MS * 2 ** Math.min(losses - 1, 16))
  places.delete(name)
  places.set(name, { losses, untilMs: nowMs + holdMs })
  const [oldest] = places.keys()
  if (places.size > MOST_PLACES && oldest !== undefined) places.delete(oldest)
}

/**
 * A call through a relay without an answer for so long, times slowness(), has failed: somewhat less than its turn
 * (choose-endpoint.ts).
 */
export const RELAY_FAILS_MS = 1500

/** Remembers since when links that are not up are called through the relay at which they are. */
export class RelayTurns {
  #turns: ReadonlyMap<string, { readonly at: AddressPort; readonly sinceMs: number }> = new Map()

  /**
   * Takes all links, and slowness() by linkKey(). Returns those whose call has failed, with the place, as long as they
   * are called there.
   */
  look(
    links: readonly Pick<LinkInUse, 'key' | 'state' | 'at'>[],
    nowMs: number,
    slow: (key: string) => number = () => 1,
  ): { readonly key: string; readonly at: AddressPort }[] {
    const turns = new Map<string, { readonly at: AddressPort; readonly sinceMs: number }>()
    for (const { key, state, at } of links) {
      if (state === 'up' || at === undefined || !isRelayPlace(at)) continue
      const before = this.#turns.get(key)
      turns.set(key, before !== undefined && sameAddressPort(before.at, at) ? before : { at, sinceMs: nowMs })
    }
    this.#turns = turns
    return [...turns].flatMap(([key, { at, sinceMs }]) => {
      return nowMs - sinceMs >= RELAY_FAILS_MS * slow(key) ? [{ key, at }] : []
    })
  }
}
