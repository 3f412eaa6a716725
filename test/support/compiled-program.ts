/**
 * Programs of the product as users run them, and programs of tests, compiled into few files like dist/. A start from
 * sources takes three times the processor time.
 */
import { spawn } from 'node:child_process'
import { createHash, randomUUID } from 'node:crypto'
import { once } from 'node:events'
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
import { extname, join, relative } from 'node:path'
import { compileProgram } from '../../scripts/compile-product.ts'
import { PRODUCT, ROOT } from './source-tree.ts'

const FOLDER = join(ROOT, 'node_modules/.cache/test-programs')
const MOST_TRIES = 3
const UNUSED_MS = 7 * 24 * 3600 * 1000
/** The files that affect the result in addition to the sources. */
const SETTINGS = ['package-lock.json', 'package.json', 'scripts/compile-product.ts']

/** The last result of an entry: its own sources, and their content together with SETTINGS. */
interface Compiled {
  readonly sources: readonly string[]
  readonly content: string
}

const known = new Map<string, string>()

/**
 * The path of a file that Node can run, compiled from `entry`, the path of a source in this checkout. It is compiled
 * again if the content of its sources has changed. Several processes may call this at once. A guest (test/guest) runs
 * the source, because it has one emulated processor and keeps what Node has compiled. Throws if it does not compile.
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
    // Another process has made the same result from the same sources.
    rmSync(made, { recursive: true })
    if (!existsSync(fileOf(content))) throw error
  }
  const written = join(FOLDER, `.${randomUUID()}.json`)
  writeFileSync(written, JSON.stringify({ sources, content } satisfies Compiled))
  renameSync(written, note)
  return fileOf(content)
}

/** Compiles again if a source was written meanwhile, because the compiler may have read its previous content. */
function compile(name: string): Compiled & { readonly made: string } {
  const made = join(FOLDER, `.${randomUUID()}`)
  for (let tries = 1; ; tries += 1) {
    const began = Date.now()
    const inputs = compileProgram(made, name)
    if (inputs === undefined) throw new Error(`${name} does not compile`)
    const sources = inputs.filter((path) => !path.startsWith('node_modules/'))
    const content = contentOf(name, sources)
    // After a clock was set back, files have times in the future.
    const isStill = sources.every((path) => statSync(join(ROOT, path)).mtimeMs < began)
    if (isStill || tries >= MOST_TRIES) return { sources, content, made }
  }
}

/** The packages are determined by package-lock.json. */
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
 * Builds dist/ if bin/sealane would not run it because a source or package is newer. This happens before the tests, so
 * that they start what users start. Throws an Error with the compiler's message.
 */
export async function buildProduct(): Promise<void> {
  if (isBuilt()) return
  mkdirSync(join(ROOT, 'node_modules/.cache'), { recursive: true })
  // Two builds at once would remove each other's folder.
  const build = [join(ROOT, 'node_modules/.cache/build.lock'), process.execPath, join(ROOT, 'scripts/build.ts')]
  // The runner goes on meanwhile, because it gives other tiers their next files.
  const child = spawn('flock', build, { stdio: ['ignore', 'ignore', 'pipe'] })
  let errors = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => (errors += text))
  const [status] = (await once(child, 'close')) as [number | null]
  if (status !== 0) throw new Error(`the product does not compile:\n${errors}`)
}

/** The page of the console has a style, a document and an icon beside its scripts. */
const BUILT_FROM: ReadonlySet<string> = new Set(['.ts', '.css', '.html', '.svg'])

/** Whether dist/ is up to date by the rule of bin/sealane. */
function isBuilt(): boolean {
  const built = statSync(join(ROOT, 'dist/built'), { throwIfNoEntry: false })
  if (built === undefined) return false
  const sources = PRODUCT.flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => BUILT_FROM.has(extname(name)))
      .map((name) => join(folder, name)),
  )
  return ['package-lock.json', ...sources].every((path) => statSync(join(ROOT, path)).mtimeMs <= built.mtimeMs)
}
