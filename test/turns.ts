/** What a CI run can leave to later runs: files take turns, more of them if the code that they cover has changed. */
import type { Tier } from './tiers.ts'

export interface Turns {
  /** The shares, of which one is run in each turn. */
  readonly shares: readonly RegExp[]
  /** Half of the shares are run if a changed path from the root matches: this one, and those of the next turns. */
  readonly changed?: RegExp
}

export interface Turn {
  /** Any whole number from 0, which goes up by one with each commit. */
  readonly number: number
  /** The changed paths from the root; undefined if they are not known. */
  readonly changed: readonly string[] | undefined
}

export interface Share {
  readonly files: readonly string[]
  /** The files that are left to the runs of other turns. */
  readonly left: readonly string[]
}

/** The files to run in a turn: all of them if no turn is named. Files that are in no share are run in each turn. */
export function shareOf({ turns = [] }: Pick<Tier, 'turns'>, files: readonly string[], turn?: Turn): Share {
  const others = turn === undefined ? [] : turns.flatMap((one) => othersOf(one, turn))
  const isLeft = (file: string): boolean => others.some((pattern) => pattern.test(file))
  return { files: files.filter((file) => !isLeft(file)), left: files.filter(isLeft) }
}

/** The shares that wait. If the changes are not known, anything may have changed. */
function othersOf({ shares, changed }: Turns, turn: Turn): readonly RegExp[] {
  const isChanged = changed !== undefined && (turn.changed?.some((path) => changed.test(path)) ?? true)
  // All of them would take CI past its 40 minutes.
  const count = isChanged ? Math.max(2, Math.ceil(shares.length / 2)) : 1
  const { length } = shares
  return shares.filter((_, i) => (((i - turn.number) % length) + length) % length >= count)
}

/** The value of SEALANE_TURN; undefined where it is not set. Throws Error for anything but a whole number from 0. */
export function parseTurn(text: string | undefined): number | undefined {
  if (text === undefined) return undefined
  if (!/^\d{1,15}$/.test(text)) throw new Error(`SEALANE_TURN ${JSON.stringify(text)}: expected a whole number from 0`)
  return Number(text)
}
