/**
 * When a link that is up through one relay moves to another one: from a relay on port 443 to one that forwards datagrams,
 * and from a relay to one that is clearly nearer. One end of a link moves it, and the far end follows the packets, so the
 * two never move it apart.
 */
import { type AddressPort, sameAddressPort } from '../../../model/addresses/addresses.ts'
import { FULL_LOAD_MS, type RelayCosts, isClearlyLess } from '../../../model/lanes/lanes.ts'
import type { RelayPlace } from '../../world/world.ts'
import { isWebPlace } from '../web/plan-web-use.ts'
import { type LinkInUse, isRelayPlace, linkCostMs, relayOf } from './plan-relay-use.ts'

/** A way on which the link could be: both ends are bound there. */
export interface RelayWay {
  readonly at: AddressPort
  /** It goes over port 443. */
  readonly isWeb: boolean
  /** relayCostMs() without the load. Undefined: not known. */
  readonly costMs: number | undefined
  /** The load that the relay states, from 0 to 1. Absent: none. */
  readonly load?: number
}

export interface MovingLink {
  /** linkKey(). */
  readonly key: string
  readonly isUp: boolean
  readonly at: AddressPort | undefined
  /** This end moves the link. */
  readonly isMover: boolean
  /** It answered no probes a moment ago, so its packets went two ways (Suspects). Absent: they did not. */
  readonly isSuspect?: true
  /** Best first. */
  readonly ways: readonly RelayWay[]
}

interface MovingInit {
  readonly links: readonly LinkInUse[]
  /** Where relays take packets of links, by linkKey(). */
  readonly places: ReadonlyMap<string, readonly RelayPlace[]>
  /** What this gateway states of relays, and the name of its Endpoint. */
  readonly own: RelayCosts
  readonly ownEndpoint: string
  /** Links, by linkKey(), whose packets went two ways a moment ago (Suspects). Absent: none. */
  readonly suspected?: ReadonlySet<string>
}

/** All links. One that no relay carries now has no ways: its pauses are still remembered. */
export function movingLinks({ links, places, own, ownEndpoint, suspected }: MovingInit): MovingLink[] {
  const relays = links.filter((link) => link.relays === true)
  return links.map((link) => {
    const { key, state, at, endpoint } = link
    const isRelayed = at !== undefined && isRelayPlace(at)
    const usable = (places.get(key) ?? []).filter((one) => one.failed !== true || sameAddressPort(one.at, at))
    const ways = (isRelayed ? usable : []).map((place) => {
      const relay = relayOf(place.at, relays)
      const { load } = relay?.relayCosts ?? {}
      const costMs = relay && linkCostMs({ identity: relay.identity }, own, link)
      return { at: place.at, isWeb: isWebPlace(place.at), costMs, ...(load === undefined ? {} : { load }) }
    })
    const isSuspect = suspected?.has(key) === true ? ({ isSuspect: true } as const) : {}
    return { key, isUp: state === 'up', at, isMover: ownEndpoint < endpoint, ...isSuspect, ways }
  })
}

/** Both ends have to be bound for so long at a relay that takes a link over from port 443. */
export const WAY_PROVEN_MS = 5000
/** A relay has to be clearly nearer for so long. */
export const WAY_NEARER_MS = 30_000
/** A link moves at most once in this time. */
export const MOVES_APART_MS = 60_000
/** The far end has to follow within this time, and the link has to stay up for it. */
export const MOVE_SETTLES_MS = 5000
/** The link has to stay at the other relay for so long: a far end that has not followed draws it back with a packet. */
export const MOVE_STAYS_MS = 2000
/** The pause after a move that failed doubles with each one, up to this. */
export const LONGEST_MOVE_PAUSE_MS = 1_800_000

interface Move {
  /** Where the link is to go. Undefined: it is well where it is. */
  readonly to: AddressPort | undefined
  /** Since when that is the better way, and for how long it has to be. */
  readonly sinceMs: number
  readonly afterMs: number
  /** When the last move began. -Infinity: there was none. */
  readonly movedMs: number
  /** The last move is not over yet. */
  readonly isMoving: boolean
  /** Since when the link has been at the other relay in this move. Undefined: it is not there. */
  readonly thereSinceMs?: number | undefined
  readonly pauseMs: number
}

const NO_MOVE: Move = {
  ...{ to: undefined, sinceMs: 0, afterMs: 0 },
  ...{ movedMs: -Infinity, isMoving: false, pauseMs: MOVES_APART_MS },
}

export class RelayMoves {
  #moves: ReadonlyMap<string, Move> = new Map()
  #failed: readonly { readonly key: string; readonly at: AddressPort }[] = []

  /** Takes all links. Returns where links are to be moved now, by MovingLink.key. */
  look(links: readonly MovingLink[], nowMs: number): ReadonlyMap<string, AddressPort> {
    const failed: { readonly key: string; readonly at: AddressPort }[] = []
    this.#failed = failed
    this.#moves = new Map(
      links.flatMap((link) => {
        const before = this.#moves.get(link.key)
        const move = nextMove(link, before ?? NO_MOVE, nowMs)
        // A move that succeeded leaves the shortest pause.
        const hasFailed = before?.isMoving === true && !move.isMoving && move.pauseMs > MOVES_APART_MS
        if (hasFailed && before.to !== undefined) failed.push({ key: link.key, at: before.to })
        return before === undefined && move.to === undefined ? [] : [[link.key, move] as const]
      }),
    )
    const moving = new Map<string, AddressPort>()
    for (const { key, at } of links) {
      const move = this.#moves.get(key)
      if (move?.isMoving === true && move.to !== undefined && !sameAddressPort(at, move.to)) moving.set(key, move.to)
    }
    return moving
  }

  /** Links whose move failed at the last look, and where they were to go. */
  get failed(): readonly { readonly key: string; readonly at: AddressPort }[] {
    return this.#failed
  }

  /** When to look again, in milliseconds of the monotonic clock. Infinity: no link waits. */
  get dueMs(): number {
    const due = [...this.#moves.values()].map((move) => {
      if (move.isMoving) return settledMs(move)
      return move.to === undefined ? Infinity : Math.max(move.sinceMs + move.afterMs, move.movedMs + move.pauseMs)
    })
    return Math.min(Infinity, ...due)
  }
}

function nextMove(link: MovingLink, before: Move, nowMs: number): Move {
  const { isUp, at } = link
  if (before.isMoving) {
    const isThere = before.to !== undefined && sameAddressPort(at, before.to)
    // A path that loses all packets shows only after some missed probes, when the link is there already. Then what goes to
    // a second place brings it back, and it would be sent there again until the time of the move is over.
    const isBack = before.thereSinceMs !== undefined && !isThere && link.isSuspect === true
    if (!isUp || isBack) return { ...before, to: undefined, isMoving: false, pauseMs: longer(before.pauseMs) }
    const move = { ...before, thereSinceMs: isThere ? (before.thereSinceMs ?? nowMs) : undefined }
    if (nowMs < settledMs(move)) return move
    return { ...move, to: undefined, isMoving: false, pauseMs: isThere ? MOVES_APART_MS : longer(before.pauseMs) }
  }
  // One that answers no probes does not leave both its ways for a third one, and the silence would count for that.
  const better = isUp && link.isMover && link.isSuspect !== true ? betterWay(link) : undefined
  if (better === undefined) return { ...before, to: undefined }
  const isSame = before.to !== undefined && sameAddressPort(before.to, better.at)
  const sinceMs = isSame ? before.sinceMs : nowMs
  const { at: to, afterMs } = better
  const isDue = nowMs - sinceMs >= afterMs && nowMs - before.movedMs >= before.pauseMs
  const began = isDue ? { movedMs: nowMs, isMoving: true, thereSinceMs: undefined } : {}
  return { ...before, ...{ to, sinceMs, afterMs }, ...began }
}

/** When it is known whether the link has moved. */
function settledMs({ movedMs, thereSinceMs = -Infinity }: Move): number {
  return Math.max(movedMs + MOVE_SETTLES_MS, thereSinceMs + MOVE_STAYS_MS)
}

function longer(pauseMs: number): number {
  return Math.min(2 * pauseMs, LONGEST_MOVE_PAUSE_MS)
}

/**
 * The best way that is worth a move from where the link is, and for how long it has to be that. Load keeps links away from
 * a relay, and drives none away: otherwise all links of a relay would leave it together, and come back together.
 */
function betterWay({ at, ways }: MovingLink): { readonly at: AddressPort; readonly afterMs: number } | undefined {
  const present = ways.find((way) => sameAddressPort(way.at, at))
  if (present === undefined) return undefined
  const datagrams = ways.filter(({ isWeb }) => !isWeb)
  if (present.isWeb) {
    const [first] = datagrams
    return first === undefined ? undefined : { at: first.at, afterMs: WAY_PROVEN_MS }
  }
  const { costMs: presentMs } = present
  if (presentMs === undefined) return undefined
  const nearer = datagrams.flatMap(({ at: place, costMs: tripsMs, load = 0 }) => {
    const costMs = (tripsMs ?? Infinity) + FULL_LOAD_MS * load
    return isClearlyLess(costMs, presentMs) ? [{ place, costMs }] : []
  })
  const [nearest] = nearer.sort((a, b) => a.costMs - b.costMs)
  return nearest === undefined ? undefined : { at: nearest.place, afterMs: WAY_NEARER_MS }
}
