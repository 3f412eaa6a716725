/** Chooses which mutants are tried by a hash, so that the same sources and the same seed give the same ones. */
import { createHash } from 'node:crypto'
import type { Mutant } from './make-mutants.ts'

/** The most mutants of one file. Otherwise a file that many others use would stand for its whole room. */
const MOST_OF_A_FILE = 2

export interface ChoiceInit {
  readonly seed: number
  readonly count: number
  /** Whether a mutant is worth a try: it type-checks, and behaves differently from the file. */
  readonly accept: (mutant: Mutant) => boolean
  /** The most mutants of one file. The default is 2. */
  readonly mostOfAFile?: number
}

/** Chooses from each room in turn, and from its files in turn. `rooms` has the mutants of each file of each room. */
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

/**
 * The next mutant of a room. It is taken out of its queue, together with those that were refused or were too many of
 * one file.
 */
function firstAccepted(queue: Mutant[], init: ChoiceInit, chosen: readonly Mutant[]): Mutant | undefined {
  for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
    const { file } = next
    const ofFile = chosen.filter((one) => one.file === file).length
    if (ofFile < (init.mostOfAFile ?? MOST_OF_A_FILE) && init.accept(next)) {
      // The other mutants of this file wait until each file of the room has had one.
      const others = queue.filter((one) => one.file === file)
      const rest = queue.filter((one) => one.file !== file)
      queue.splice(0, queue.length, ...rest, ...others)
      return next
    }
  }
  return undefined
}

/**
 * Orders the files by their hashes, and the mutants of each file by kind in turn; otherwise most would be negated
 * conditions.
 */
function candidates(files: readonly (readonly Mutant[])[], { seed }: ChoiceInit): Mutant[] {
  const rows = files.flatMap((mutants) => {
    const seen = new Map<string, number>()
    return mutants.map((mutant) => {
      const { file, kind, was, becomes } = mutant
      const what = `${file} ${kind} ${was} ${becomes}`
      // The rank depends on the text and not on the line, so that a change elsewhere in the file leaves the choice as
      // it was.
      const nth = (seen.get(what) ?? 0) + 1
      seen.set(what, nth)
      const rank = [file, `${file} ${kind}`, `${what} ${nth}`].map((text) => hash(`${seed} ${text}`)).join()
      return { mutant, rank }
    })
  })
  return rows.sort((a, b) => (a.rank < b.rank ? -1 : 1)).map(({ mutant }) => mutant)
}

const hash = (text: string): string => createHash('sha256').update(text).digest('hex').slice(0, 16)
