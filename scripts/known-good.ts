/**
 * Remembers that a part of the check found nothing, by the content of everything that it looked at: the same content is
 * not looked at twice. Kept below node_modules, as Prettier keeps its own. CI looks every time.
 */
import { createHash } from 'node:crypto'
import { globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type ts from 'typescript'

const root = join(import.meta.dirname, '..')
const FILE = join(root, 'node_modules', '.cache', 'sealane', 'types-and-lint')
/** What decides beside the sources; the second says what is really installed. */
const SETTINGS = ['package-lock.json', 'node_modules/.package-lock.json', 'tsconfig.json']
const LEFT_OUT = new Set(['node_modules', '.tap', 'dist', '.git'])

/** Of a program with every file that it read, types of packages too, of all scripts beside it, and of the settings. */
export function contentKey(program: ts.Program): string {
  const hash = createHash('sha256').update(process.version)
  const add = (name: string, text: string): void => void hash.update(`${name.length} ${name} ${text.length} ${text}`)
  for (const { fileName, text } of program.getSourceFiles()) add(fileName, text)
  const scripts = globSync('**/*.{ts,js,mjs,cjs}', { cwd: root, exclude: (name) => LEFT_OUT.has(name) })
  for (const name of [...SETTINGS, ...scripts.sort()]) add(name, readFileSync(join(root, name), 'utf8'))
  return hash.digest('hex')
}

export function isKnownGood(key: string): boolean {
  if (process.env['CI'] !== undefined) return false
  try {
    return readFileSync(FILE, 'utf8') === key
  } catch {
    return false
  }
}

export function noteGood(key: string): void {
  mkdirSync(dirname(FILE), { recursive: true })
  writeFileSync(FILE, key)
}
