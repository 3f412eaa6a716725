/** Which test files load a file, the nearest first. */
import { globSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { PRODUCT, importsOf } from '../support/source-tree.ts'

/** The unit and story tiers: what needs no root, and does not look at the text of sources. */
const TESTS = [...PRODUCT, 'demo', 'story'].map((folder) => `test/${folder}/**/*.test.ts`)

/** An import that is for types alone loads nothing. */
const TYPES_ALONE = /^\s*(?:import|export)\s+type\s[^'"]*?from\s+['"][^'"]+['"]/gm

/** Gives the test files that load `file`, by how many imports they are away, and then by how alike their paths are. */
export function nearestTests(root: string): (file: string) => readonly string[] {
  const files = globSync('{*,*/**}/*.ts', { cwd: root, exclude: ['node_modules', 'dist', '.git', '.tap'] })
  const importers = new Map<string, string[]>()
  for (const path of files) {
    for (const name of importsOf(readFileSync(join(root, path), 'utf8').replace(TYPES_ALONE, ''))) {
      if (!name.startsWith('.')) continue
      const target = normalize(join(dirname(path), name))
      importers.set(target, [...(importers.get(target) ?? []), path])
    }
  }
  const tests = new Set(globSync(TESTS, { cwd: root }))
  return (file) => {
    const distance = new Map([[file, 0]])
    // A map gives what is added to it meanwhile, too, so this goes outward ring by ring.
    for (const [path, steps] of distance) {
      for (const one of importers.get(path) ?? []) if (!distance.has(one)) distance.set(one, steps + 1)
    }
    const rank = (test: string): readonly number[] => [distance.get(test) ?? 0, -alike(test, file)]
    return [...distance.keys()]
      .filter((path) => tests.has(path))
      .map((test) => ({ test, rank: rank(test) }))
      .sort(
        (a, b) => (a.rank[0] ?? 0) - (b.rank[0] ?? 0) || (a.rank[1] ?? 0) - (b.rank[1] ?? 0) || order(a.test, b.test),
      )
      .map(({ test }) => test)
  }
}

/** How much of the path of a file the path of a test repeats. */
function alike(test: string, file: string): number {
  const mirror = `test/${file.replace(/\.ts$/, '.test.ts')}`
  if (test === mirror) return Infinity
  const [a, b] = [test.split('/'), mirror.split('/')]
  const differs = a.findIndex((part, i) => part !== b[i])
  return differs === -1 ? a.length : differs
}

const order = (a: string, b: string): number => (a < b ? -1 : 1)
