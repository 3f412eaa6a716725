/** The project's own files, for tests about the project itself. */
import { readFileSync, readdirSync, statSync } from 'node:fs'
import { join, relative } from 'node:path'

export const ROOT = join(import.meta.dirname, '..', '..')
/** The folders of the root that import no component. */
export const FOUNDATIONS = [
  'model',
  'protocol',
  'kubeapi',
  'kernel',
  'reconcile',
  'runtime',
  'install',
  'explain',
] as const
/** The folders of the root that import no other component. */
export const COMPONENTS = ['broker', 'agent', 'gateway', 'routeagent', 'dns', 'relay', 'console', 'cli'] as const
/** All folders that are shipped. */
export const PRODUCT: readonly string[] = [...FOUNDATIONS, ...COMPONENTS, 'compose']

const SKIPPED = new Set(['node_modules', '.git', '.tap', 'dist', 'artefacts'])

export interface SourceFile {
  /** The path from the root, with '/'. */
  readonly path: string
  readonly text: string
}

/** Whether a file is generated from a .proto, since files that people write have other rules. */
export function isGenerated(path: string): boolean {
  return /^(protocol|broker\/store\/etcd\/client)\/gen\//.test(path)
}

/** The files below the given folders (or the root) whose path matches. */
export function sourceFiles(matching: RegExp, folders: readonly string[] = ['.']): SourceFile[] {
  return folders
    .flatMap((folder) => walk(join(ROOT, folder)))
    .map((path) => relative(ROOT, path))
    .filter((path) => matching.test(path))
    .sort()
    .map((path) => ({ path, text: readFileSync(join(ROOT, path), 'utf8') }))
}

function walk(folder: string): string[] {
  return readdirSync(folder).flatMap((name) => {
    if (SKIPPED.has(name)) return []
    const path = join(folder, name)
    return statSync(path).isDirectory() ? walk(path) : [path]
  })
}

/** The imports of a module as written, type-only imports included. */
export function importsOf(text: string): string[] {
  const found = text.matchAll(
    /(?:^|\n)\s*(?:import|export)\s(?:[^'"]*?\sfrom\s)?['"]([^'"]+)['"]|import\(\s*['"]([^'"]+)['"]/g,
  )
  return [...found].map((match) => match[1] ?? match[2] ?? '')
}

/** All that `next` reaches from these starts, and in how many steps. */
export function stepsFrom(
  starts: readonly string[],
  next: ReadonlyMap<string, readonly string[]>,
): ReadonlyMap<string, number> {
  const found = new Map(starts.map((start) => [start, 0]))
  // Iteration of a map also visits entries that are added meanwhile, so this goes outward ring by ring.
  for (const [path, steps] of found) {
    for (const one of next.get(path) ?? []) if (!found.has(one)) found.set(one, steps + 1)
  }
  return found
}
