/** Long files take turns where a run has less time than all of them need. */
import type { Tier } from './tiers.ts'

export interface Share {
  readonly files: readonly string[]
  /** Left to the runs of other turns. */
  readonly left: readonly string[]
}

/** What of these files is run in a turn, any whole number from 0: all where none is named, or the tier has no turns. */
export function shareOf({ turns = [] }: Pick<Tier, 'turns'>, files: readonly string[], turn?: number): Share {
  if (turn === undefined || turns.length === 0) return { files, left: [] }
  const others = turns.filter((_, i) => i !== turn % turns.length)
  const isLeft = (file: string): boolean => others.some((pattern) => pattern.test(file))
  return { files: files.filter((file) => !isLeft(file)), left: files.filter(isLeft) }
}

/** The value of SEALANE_TURN; undefined where it is not set. Throws Error for anything but a whole number from 0. */
export function parseTurn(text: string | undefined): number | undefined {
  if (text === undefined) return undefined
  if (!/^\d{1,15}$/.test(text)) throw new Error(`SEALANE_TURN ${JSON.stringify(text)}: expected a whole number from 0`)
  return Number(text)
}
