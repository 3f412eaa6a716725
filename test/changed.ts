/** Finds what has changed in the checkout, and which test files a change can affect. */
import { execFileSync } from 'node:child_process'
import { dirname, join, normalize } from 'node:path'
import { ROOT, importsOf, sourceFiles, stepsFrom } from './support/source-tree.ts'

/**
 * Paths from the root that differ from a revision, untracked files included. Throws Error if the revision is not found:
 * it is mistyped, or the clone lacks its history.
 */
export function changedSince(revision: string, root: string = ROOT): readonly string[] {
  const git = (...args: string[]): readonly string[] => {
    const said = execFileSync('git', ['-C', root, ...args], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
    return said.split('\0').filter((path) => path !== '')
  }
  try {
    git('rev-parse', '--verify', '--quiet', '--end-of-options', `${revision}^{commit}`)
    const differing = git('diff', '--name-only', '-z', '--no-renames', revision, '--')
    return [...new Set([...differing, ...git('ls-files', '-o', '--exclude-standard', '-z')])].sort()
  } catch (error) {
    throw new Error(`changes since ${JSON.stringify(revision)}: expected a commit of this checkout`, { cause: error })
  }
}

export interface Sources {
  readonly path: string
  readonly text: string
}

/**
 * How many steps a file is from the change: a step leads from a file to one that imports it or names its path. Files
 * that the change does not reach are left out.
 */
export function distances(
  changed: readonly string[],
  files: readonly Sources[] = sourceFiles(/\.ts$/),
): ReadonlyMap<string, number> {
  const known = new Set([...files.map(({ path }) => path), ...changed])
  const users = new Map<string, string[]>()
  for (const { path, text } of files) {
    for (const used of usedBy(path, text)) {
      if (!known.has(used)) continue
      const before = users.get(used)
      if (before === undefined) users.set(used, [path])
      else before.push(path)
    }
  }
  return stepsFrom(changed, users)
}

/** A program that a test starts is named by a path in a string, relative to the file or to the root. */
function usedBy(path: string, text: string): ReadonlySet<string> {
  const imported = importsOf(text).filter((name) => name.startsWith('.'))
  const named = [...text.matchAll(/['"`/]((?:\.{1,2}\/)*[\w.-]+(?:\/[\w.-]+)+)['"`]/g)].map((match) => match[1] ?? '')
  const here = [...imported, ...named].map((name) => normalize(join(dirname(path), name)))
  return new Set([...here, ...named.map((name) => normalize(name))])
}

/** The nearest come first; those at the same distance keep their order. */
export function nearest(files: readonly string[], steps: ReadonlyMap<string, number>): readonly string[] {
  const reached = files.filter((file) => steps.has(file))
  return reached.sort((a, b) => (steps.get(a) ?? 0) - (steps.get(b) ?? 0))
}
