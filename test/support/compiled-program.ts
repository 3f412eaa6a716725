/**
 * Programs of the product as users run them, also those that only tests have: compiled into few files, like dist/. From
 * sources a start takes three times as much of a processor.
 */
import { spawnSync } from 'node:child_process'
import { createHash, randomUUID } from 'node:crypto'
import {
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join, relative } from 'node:path'
import { compileProgram } from '../../scripts/compile-product.ts'
import { PRODUCT, ROOT } from './source-tree.ts'

const FOLDER = join(ROOT, 'node_modules/.cache/test-programs')
const MOST_TRIES = 3
const UNUSED_MS = 7 * 24 * 3600 * 1000
/** What decides on the result beside the sources. */
const SETTINGS = ['package-lock.json', 'package.json', 'scripts/compile-product.ts']

/** What was compiled last of an entry: its own sources, and what they held, together with SETTINGS. */
interface Compiled {
  readonly sources: readonly string[]
  readonly content: string
}

const known = new Map<string, string>()

/**
 * The path of a file that Node runs, compiled from `entry`, the path of a source in this checkout. Made where what is
 * there was made from other sources: they are compared by content. Several processes may ask at once. A guest (test/guest)
 * runs the source: it has one emulated processor, and keeps what Node has compiled of sources. Throws where it does not
 * compile.
 */
export function compiledProgram(entry: string): string {
  if (process.env['SEALANE_GUEST'] === '1') return entry
  const path = known.get(entry) ?? upToDate(entry)
  known.set(entry, path)
  return path
}

function upToDate(entry: string): string {
  const name = relative(ROOT, entry)
  const note = join(FOLDER, `${hashOf([name]).slice(0, 16)}.json`)
  const last = existsSync(note) ? (JSON.parse(readFileSync(note, 'utf8')) as Compiled) : undefined
  const folder = (content: string): string => join(FOLDER, content)
  const fileOf = (content: string): string =>
    join(folder(content), ...name.split('/').slice(-2)).replace(/\.ts$/, '.js')
  if (last !== undefined && existsSync(fileOf(last.content)) && contentOf(name, last.sources) === last.content) {
    utimesSync(folder(last.content), new Date(), new Date())
    return fileOf(last.content)
  }
  mkdirSync(FOLDER, { recursive: true })
  removeUnused()
  const { sources, content, made } = compile(name)
  try {
    renameSync(made, folder(content))
  } catch (error) {
    // Another process has made the same of the same sources.
    rmSync(made, { recursive: true })
    if (!existsSync(fileOf(content))) throw error
  }
  const written = join(FOLDER, `.${randomUUID()}.json`)
  writeFileSync(written, JSON.stringify({ sources, content } satisfies Compiled))
  renameSync(written, note)
  return fileOf(content)
}

/** Again where somebody has written one of the sources meanwhile: the compiler may have read what was there before. */
function compile(name: string): Compiled & { readonly made: string } {
  const made = join(FOLDER, `.${randomUUID()}`)
  for (let tries = 1; ; tries += 1) {
    const began = Date.now()
    const inputs = compileProgram(made, name)
    if (inputs === undefined) throw new Error(`${name} does not compile`)
    const sources = inputs.filter((path) => !path.startsWith('node_modules/'))
    const content = contentOf(name, sources)
    // A clock that was set back makes files of the future.
    const isStill = sources.every((path) => statSync(join(ROOT, path)).mtimeMs < began)
    if (isStill || tries >= MOST_TRIES) return { sources, content, made }
  }
}

/** Packages are as package-lock.json says. */
function contentOf(name: string, sources: readonly string[]): string {
  const paths = [...SETTINGS, ...sources]
  const texts = paths.map((path) => (existsSync(join(ROOT, path)) ? readFileSync(join(ROOT, path), 'utf8') : ''))
  return hashOf([name, process.env['SEALANE_IMAGE'] ?? '', ...paths, ...texts])
}

function hashOf(texts: readonly string[]): string {
  const hash = createHash('sha256')
  for (const text of texts) hash.update(text).update('\0')
  return hash.digest('hex')
}

function removeUnused(): void {
  for (const name of readdirSync(FOLDER)) {
    const path = join(FOLDER, name)
    const age = Date.now() - (statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? Date.now())
    if (age > UNUSED_MS) rmSync(path, { recursive: true, force: true })
  }
}

/**
 * Builds dist/ where bin/sealane would not run it, because a source or package is newer: before tests begin, so that
 * what they start is what users start. Throws with what the compiler says.
 */
export function buildProduct(): Promise<void> {
  if (isBuilt()) return Promise.resolve()
  mkdirSync(join(ROOT, 'node_modules/.cache'), { recursive: true })
  // Two of them at once would take away each other's folder.
  const build = [join(ROOT, 'node_modules/.cache/build.lock'), process.execPath, join(ROOT, 'scripts/build.ts')]
  const { status, stderr, error } = spawnSync('flock', build, { encoding: 'utf8' })
  if (error !== undefined) return Promise.reject(error)
  if (status !== 0) return Promise.reject(new Error(`the product does not compile:\n${stderr}`))
  return Promise.resolve()
}

/** By the rule of bin/sealane. */
function isBuilt(): boolean {
  const built = statSync(join(ROOT, 'dist/built'), { throwIfNoEntry: false })
  if (built === undefined) return false
  const sources = PRODUCT.flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts'))
      .map((name) => join(folder, name)),
  )
  return ['package-lock.json', ...sources].every((path) => statSync(join(ROOT, path)).mtimeMs <= built.mtimeMs)
}
