/** What of a tier a run of CI can leave to the next ones: files take turns, unless what they show has changed. */
import type { Tier } from './tiers.ts'

export interface Turns {
  /** One of these shares is run in each turn. */
  readonly shares: readonly RegExp[]
  /** All shares are run where a path from the root matches. */
  readonly changed?: RegExp
}

export interface Turn {
  /** Any whole number from 0: it goes up by one with each commit. */
  readonly number: number
  /** Paths from the root; undefined where it is not known what has changed. */
  readonly changed: readonly string[] | undefined
}

export interface Share {
  readonly files: readonly string[]
  /** Left to the runs of other turns. */
  readonly left: readonly string[]
}

/** What of these files is run in a turn: all where none is named. Files that no share has are run in each turn. */
export function shareOf({ turns = [] }: Pick<Tier, 'turns'>, files: readonly string[], turn?: Turn): Share {
  const others = turn === undefined ? [] : turns.flatMap((one) => othersOf(one, turn))
  const isLeft = (file: string): boolean => others.some((pattern) => pattern.test(file))
  return { files: files.filter((file) => !isLeft(file)), left: files.filter(isLeft) }
}

/** The shares that wait. Where it is not known what has changed, anything may have. */
function othersOf({ shares, changed }: Turns, turn: Turn): readonly RegExp[] {
  const isChanged = changed !== undefined && (turn.changed?.some((path) => changed.test(path)) ?? true)
  return isChanged ? [] : shares.filter((_, i) => i !== turn.number % shares.length)
}

/** The value of SEALANE_TURN; undefined where it is not set. Throws Error for anything but a whole number from 0. */
export function parseTurn(text: string | undefined): number | undefined {
  if (text === undefined) return undefined
  if (!/^\d{1,15}$/.test(text)) throw new Error(`SEALANE_TURN ${JSON.stringify(text)}: expected a whole number from 0`)
  return Number(text)
}
