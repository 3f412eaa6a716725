/**
 * Builds the page of the console: `node scripts/build-page.ts FOLDER`. A process of its own, because the rest of the
 * build does not wait for promises. The same sources give the same files.
 */
import { join } from 'node:path'
import { build } from 'vite'

/** What a browser loads and compiles before a person sees anything. */
const MAX_SCRIPT = 62_000
/** What it loads when a person comes near a drawing, for each of them. */
const MAX_LATER = 500_000

const [folder] = process.argv.slice(2)
if (folder === undefined) throw new Error('expected the folder for the page')
const built = await build({
  configFile: false,
  root: join(import.meta.dirname, '..', 'console', 'page'),
  // Below any path: the proxy of an API server has one of its own.
  base: './',
  logLevel: 'warn',
  publicDir: false,
  build: {
    outDir: folder,
    emptyOutDir: true,
    target: 'es2022',
    // The policy of the server lets no data URL and no inline script in.
    assetsInlineLimit: 0,
    modulePreload: false,
    reportCompressedSize: false,
  },
})

interface Chunk {
  readonly fileName: string
  readonly code: string
  readonly isEntry: boolean
  /** Files that it loads at once. */
  readonly imports: readonly string[]
}

const outputs = (Array.isArray(built) ? built : [built]).flatMap((one) => ('output' in one ? one.output : []))
const chunks = new Map(outputs.flatMap((one) => (one.type === 'chunk' ? [[one.fileName, one as Chunk] as const] : [])))

/** A script with those that it loads at once. */
function withImports(name: string, known = new Set<string>()): ReadonlySet<string> {
  if (known.has(name)) return known
  known.add(name)
  for (const one of chunks.get(name)?.imports ?? []) withImports(one, known)
  return known
}

function bytesOf(names: ReadonlySet<string>): number {
  return [...names].reduce((sum, name) => sum + Buffer.byteLength(chunks.get(name)?.code ?? ''), 0)
}

const first = new Set([...chunks.values()].flatMap((one) => (one.isEntry ? [...withImports(one.fileName)] : [])))
const bytes = bytesOf(first)
if (first.size === 0) throw new Error('the page has no script')
if (bytes > MAX_SCRIPT) throw new Error(`the first script of the page has ${bytes} bytes: at most ${MAX_SCRIPT}`)
for (const name of chunks.keys()) {
  const later = bytesOf(new Set([...withImports(name)].filter((one) => !first.has(one))))
  if (later > MAX_LATER) throw new Error(`${name} has ${later} bytes with what it loads: at most ${MAX_LATER}`)
}
