/** The project's own files, for tests about the project itself. */
import { readFileSync, readdirSync, statSync } from 'node:fs'
import { join, relative } from 'node:path'

export const ROOT = join(import.meta.dirname, '..', '..')
/** Folders of the root that know no component. */
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
/** Folders of the root that know no other component. */
export const COMPONENTS = ['broker', 'agent', 'gateway', 'routeagent', 'dns', 'cli'] as const
/** All that is shipped. */
export const PRODUCT: readonly string[] = [...FOUNDATIONS, ...COMPONENTS, 'compose']

const SKIPPED = new Set(['node_modules', '.git', '.tap', 'dist'])

export interface SourceFile {
  /** From the root, with '/'. */
  readonly path: string
  readonly text: string
}

/** Whether a file is generated from a .proto: what people write has other rules. */
export function isGenerated(path: string): boolean {
  return /^(protocol|broker\/store\/etcd\/client)\/gen\//.test(path)
}

/** Files below the given folders (or the root) whose path matches. */
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

/** What a module imports, type-only imports included, as written. */
export function importsOf(text: string): string[] {
  const found = text.matchAll(
    /(?:^|\n)\s*(?:import|export)\s(?:[^'"]*?\sfrom\s)?['"]([^'"]+)['"]|import\(\s*['"]([^'"]+)['"]/g,
  )
  return [...found].map((match) => match[1] ?? match[2] ?? '')
}

/** What `next` leads to from these, and in how many steps. */
export function stepsFrom(
  starts: readonly string[],
  next: ReadonlyMap<string, readonly string[]>,
): ReadonlyMap<string, number> {
  const found = new Map(starts.map((start) => [start, 0]))
  // A map also gives what is added to it meanwhile, so this goes outward ring by ring.
  for (const [path, steps] of found) {
    for (const one of next.get(path) ?? []) if (!found.has(one)) found.set(one, steps + 1)
  }
  return found
}
