/**
 * Which lane a node takes whose label leaves the number open. Pure.
 *
 * The first of those that wait takes the first lane that is open, the second one the second, so that an installation
 * has all its numbers at once. Whoever is further back waits a turn for each who goes before it. A node whose label says
 * a number goes before all that would take any.
 */
import { FIRST_TURN_MS, LAST_RESORT_MS, TURN_MS } from './plan-tenure.ts'

export interface SearchedLane {
  readonly lane: number
  /** Name of a node; empty: nobody. */
  readonly holder: string
  /** Since when it may be taken by somebody else, monotonic milliseconds; undefined: not. */
  readonly openSinceMs: number | undefined
  /** Its holder goes on until another node has it. */
  readonly offered: boolean
  /** Nobody ever held it: the pods of an installation may be starting. */
  readonly isNew: boolean
  /** How many nodes may serve this lane only. */
  readonly pinned: number
  /** This node has published its end of the lane to the other clusters. */
  readonly reported: boolean
}

export interface SearchFacts {
  readonly node: string
  readonly nowMs: number
  readonly lanes: readonly SearchedLane[]
  /** How many nodes without a number go before this one. */
  readonly turn: number
  /** This node is about to go, or can make no lane: it takes only what nobody has. */
  readonly away: boolean
}

/** Undefined: none of them, for now. */
export function planSearch({ node, nowMs, lanes, turn, away }: SearchFacts): number | undefined {
  const own = lanes.filter(({ holder }) => holder === node).sort(firstToTake)
  if (own[0] !== undefined) return own[0].lane
  const openFor = ({ openSinceMs }: SearchedLane): number => nowMs - (openSinceMs ?? Infinity)
  const open = lanes.filter(({ openSinceMs }) => openSinceMs !== undefined).sort(firstToTake)
  if (away) return open.find((one) => !one.offered && openFor(one) >= LAST_RESORT_MS)?.lane
  const inTurn = (one: SearchedLane, place: number): boolean => {
    const ahead = one.reported ? 0 : Math.max(0, turn - place)
    return openFor(one) >= (ahead + one.pinned) * (one.isNew ? FIRST_TURN_MS : TURN_MS)
  }
  const mine = open[turn]
  if (mine !== undefined && !open[0]?.reported && inTurn(mine, turn)) return mine.lane
  return open.find(inTurn)?.lane
}

function firstToTake(a: SearchedLane, b: SearchedLane): number {
  return Number(b.reported) - Number(a.reported) || a.pinned - b.pinned || a.lane - b.lane
}
