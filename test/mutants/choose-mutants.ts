/** Which of all mutants are tried: chosen by a hash, so that the same sources and the same seed give the same ones. */
import { createHash } from 'node:crypto'
import type { Mutant } from './make-mutants.ts'

/**
 * How many of one file. A file that many others lean on would otherwise stand for its room.
 */
const MOST_OF_A_FILE = 2

export interface ChoiceInit {
  readonly seed: number
  readonly count: number
  /** Whether a mutant is worth a try: it type-checks, and behaves otherwise than the file. */
  readonly accept: (mutant: Mutant) => boolean
  /** How many of one file. Default 2. */
  readonly mostOfAFile?: number
}

/** Of each room in turn, of its files in turn. `rooms` has the mutants of each file of each room. */
export function chooseMutants(rooms: readonly (readonly (readonly Mutant[])[])[], init: ChoiceInit): Mutant[] {
  const queues = rooms.map((files) => candidates(files, init))
  const chosen: Mutant[] = []
  while (chosen.length < init.count && queues.some((queue) => queue.length > 0)) {
    for (const queue of queues) {
      if (chosen.length === init.count) break
      const next = firstAccepted(queue, init, chosen)
      if (next !== undefined) chosen.push(next)
    }
  }
  return chosen
}

/** The next of a room, taken out of its queue together with those that were refused or too many of one file. */
function firstAccepted(queue: Mutant[], init: ChoiceInit, chosen: readonly Mutant[]): Mutant | undefined {
  for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
    const { file } = next
    const ofFile = chosen.filter((one) => one.file === file).length
    if (ofFile < (init.mostOfAFile ?? MOST_OF_A_FILE) && init.accept(next)) {
      // Its other mutants wait until each file of the room had one.
      const others = queue.filter((one) => one.file === file)
      const rest = queue.filter((one) => one.file !== file)
      queue.splice(0, queue.length, ...rest, ...others)
      return next
    }
  }
  return undefined
}

/** File by file in the order of their hashes, and of each file kind by kind: else negated conditions were most. */
function candidates(files: readonly (readonly Mutant[])[], { seed }: ChoiceInit): Mutant[] {
  const rows = files.flatMap((mutants) => {
    const seen = new Map<string, number>()
    return mutants.map((mutant) => {
      const { file, kind, was, becomes } = mutant
      const what = `${file} ${kind} ${was} ${becomes}`
      // By its text and not by its line: a change elsewhere in the file leaves the choice as it was.
      const nth = (seen.get(what) ?? 0) + 1
      seen.set(what, nth)
      const rank = [file, `${file} ${kind}`, `${what} ${nth}`].map((text) => hash(`${seed} ${text}`)).join()
      return { mutant, rank }
    })
  })
  return rows.sort((a, b) => (a.rank < b.rank ? -1 : 1)).map(({ mutant }) => mutant)
}

const hash = (text: string): string => createHash('sha256').update(text).digest('hex').slice(0, 16)
