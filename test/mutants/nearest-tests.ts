/** Finds the test files that load a file, the nearest first. */
import { globSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { PRODUCT, importsOf, stepsFrom } from '../support/source-tree.ts'

/** The unit and story tiers: tests that need no root, and do not read the text of sources. */
const TESTS = [...PRODUCT, 'demo', 'story'].map((folder) => `test/${folder}/**/*.test.ts`)

/** An import of types alone loads nothing. */
const TYPES_ALONE = /^\s*(?:import|export)\s+type\s[^'"]*?from\s+['"][^'"]+['"]/gm

/**
 * Returns the test files that load `file`: by the number of imports in between, then by the similarity of their paths,
 * then by how little else they load.
 */
export function nearestTests(root: string): (file: string) => readonly string[] {
  const imports = new Map<string, string[]>()
  const importers = new Map<string, string[]>()
  for (const path of globSync('{*,*/**}/*.ts', { cwd: root, exclude: ['node_modules', 'dist', '.git', '.tap'] })) {
    const text = readFileSync(join(root, path), 'utf8').replace(TYPES_ALONE, '')
    const targets = importsOf(text)
      .filter((name) => name.startsWith('.'))
      .map((name) => normalize(join(dirname(path), name)))
    imports.set(path, targets)
    for (const target of targets) importers.set(target, [...(importers.get(target) ?? []), path])
  }
  const tests = new Set(globSync(TESTS, { cwd: root }))
  return (file) => {
    return [...stepsFrom([file], importers)]
      .filter(([path]) => tests.has(path))
      .map(([test, steps]) => ({ test, rank: [steps, -alike(test, file), stepsFrom([test], imports).size] }))
      .sort((a, b) => compareRanks(a.rank, b.rank) || (a.test < b.test ? -1 : 1))
      .map(({ test }) => test)
  }
}

function compareRanks(a: readonly number[], b: readonly number[]): number {
  const differs = a.findIndex((one, i) => one !== b[i])
  return differs === -1 ? 0 : (a[differs] ?? 0) < (b[differs] ?? 0) ? -1 : 1
}

/** How much of a file's path the path of a test repeats. */
function alike(test: string, file: string): number {
  const mirror = `test/${file.replace(/\.ts$/, '.test.ts')}`
  if (test === mirror) return Infinity
  const [a, b] = [test.split('/'), mirror.split('/')]
  const differs = a.findIndex((part, i) => part !== b[i])
  return differs === -1 ? a.length : differs
}
