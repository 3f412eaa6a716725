/** Which files of a Lease's folder are its versions. Pure. */

/** One write in a millisecond would take 31 years to get there. */
export const LAST_VERSION = 999_999_999_999
const VERSION = /^([1-9]\d{0,11})\.json$/
/** Versions follow each other. What is so far from the others is not one that we wrote. */
const MAX_GAP = 1000

export interface ReadVersions {
  /** Highest first. */
  readonly versions: readonly number[]
  /** Names of what does not count, and why not. */
  readonly strange: readonly (readonly [name: string, why: string])[]
}

export function versionFile(version: number): string {
  return `${version}.json`
}

/** Names that start with a dot are passed by: files that are being made. */
export function readVersions(names: readonly string[]): ReadVersions {
  const known: number[] = []
  const strange: (readonly [string, string])[] = []
  for (const name of names) {
    const version = VERSION.exec(name)?.[1]
    if (version !== undefined) known.push(Number(version))
    else if (!name.startsWith('.')) strange.push([name, 'its name is no number of a version'])
  }
  const runs = runsOf(known.sort((a, b) => a - b))
  const [first = []] = [...runs].sort((a, b) => b.length - a.length)
  for (const version of runs.flatMap((run) => (run === first ? [] : run))) {
    strange.push([versionFile(version), 'its number is out of line with the others'])
  }
  return { versions: [...first].reverse(), strange }
}

function runsOf(ascending: readonly number[]): number[][] {
  const runs: number[][] = []
  for (const version of ascending) {
    const last = runs.at(-1)
    if (last !== undefined && version - (last.at(-1) ?? 0) <= MAX_GAP) last.push(version)
    else runs.push([version])
  }
  return runs
}
