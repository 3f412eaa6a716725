/**
 * Builds the page of the console: `node scripts/build-page.ts FOLDER`. A process of its own, because the rest of the
 * build does not wait for promises. The same sources give the same files.
 */
import { readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { build } from 'vite'

/** What a browser loads and compiles before a person sees anything. */
const MAX_SCRIPT = 60_000

const [folder] = process.argv.slice(2)
if (folder === undefined) throw new Error('expected the folder for the page')
await build({
  configFile: false,
  root: join(import.meta.dirname, '..', 'console', 'page'),
  base: '/',
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

const scripts = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.js'))
const bytes = scripts.reduce((sum, name) => sum + statSync(join(folder, name)).size, 0)
if (bytes > MAX_SCRIPT) throw new Error(`the script of the page has ${bytes} bytes: at most ${MAX_SCRIPT}`)
