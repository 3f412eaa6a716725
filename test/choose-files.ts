/** Finds which files of which tiers a command line means. */
import { existsSync, readdirSync, realpathSync, statSync } from 'node:fs'
import { join, relative, resolve, sep } from 'node:path'
import type { Tier } from './tiers.ts'

export const ROOT = join(import.meta.dirname, '..')

export interface ChosenFiles {
  readonly tier: Tier
  /** Paths from the root, sorted. */
  readonly files: readonly string[]
  /** Whether the command line named these files, and not only the tier. */
  readonly named: boolean
}

export interface ChoiceInit {
  readonly tiers: readonly Tier[]
  /** The folder that paths are relative to. */
  readonly from: string
}

/**
 * Words are names of tiers, and paths of test files or of folders that contain some. If there is a path, only the files
 * that paths mean are run, each in its own tier; otherwise the named tiers are run. Throws with a line for each word
 * that means nothing.
 */
export function chooseFiles(words: readonly string[], { tiers, from }: ChoiceInit): readonly ChosenFiles[] {
  const names = tiers.map(({ name }) => name)
  const paths = words.filter((word) => !names.includes(word))
  const whole = tiers.map((tier) => ({ tier, files: filesOf(tier), named: paths.length > 0 }))
  if (paths.length === 0) return whole.filter(({ tier }) => words.includes(tier.name))
  const all = new Set(whole.flatMap(({ files }) => files))
  const problems: string[] = []
  const meant = new Set<string>()
  for (const path of paths) {
    const found = filesAt(resolve(from, path), all)
    if (typeof found === 'string') problems.push(`${path}: ${found}`)
    else found.forEach((file) => meant.add(file))
  }
  if (problems.length > 0) throw new Error(problems.join('\n'))
  return whole
    .map(({ files, ...rest }) => ({ ...rest, files: files.filter((file) => meant.has(file)) }))
    .filter(({ files }) => files.length > 0)
}

/** The files of `all` that a path means, or what is wrong with the path. */
function filesAt(path: string, all: ReadonlySet<string>): readonly string[] | string {
  if (!existsSync(path)) return 'there is no such file, folder or tier'
  const place = relative(ROOT, realpathSync(path))
  if (!statSync(path).isDirectory()) {
    return all.has(place) ? [place] : 'is not a test file (*.test.ts) of a tier, see test/tiers.ts'
  }
  const within = [...all].filter((file) => place === '' || file.startsWith(`${place}${sep}`))
  return within.length > 0 ? within : 'has no test file (*.test.ts) of a tier in it, see test/tiers.ts'
}

function filesOf(tier: Tier): readonly string[] {
  return tier.folders.flatMap((folder) => testFiles(join(ROOT, folder))).sort()
}

function testFiles(folder: string): string[] {
  if (!existsSync(folder)) return []
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name)
    if (statSync(path).isDirectory()) return testFiles(path)
    return name.endsWith('.test.ts') ? [relative(ROOT, path)] : []
  })
}
