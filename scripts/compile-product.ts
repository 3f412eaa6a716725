/** From sources to JavaScript: dist/ of a checkout, and what the image has. */
import { execFileSync } from 'node:child_process'
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { type BuildOptions, buildSync } from 'esbuild'
import { copyWithDirectImports } from './direct-imports.ts'

const root = join(import.meta.dirname, '..')
const CACHE = join(root, '.tap')
const IMAGE = /^[a-z0-9][a-z0-9._/-]*(:[0-9]+\/[a-z0-9._/-]+)?(:[\w][\w.-]{0,127})?$/

/**
 * What SEALANE_IMAGE says: the image that the built product installs where no flag says one. Throws where it is none.
 */
export function imageOfBuild(): string | undefined {
  const image = process.env['SEALANE_IMAGE'] ?? ''
  if (image === '') return undefined
  if (IMAGE.test(image)) return image
  throw new Error(`SEALANE_IMAGE ${JSON.stringify(image)}: expected REGISTRY/NAME or REGISTRY/NAME:TAG`)
}

/**
 * What each command and each part loads is put into few files, packages included: a start costs a third less
 * (decision 80).
 */
const OPTIONS = {
  chunkNames: 'chunks/[name]-[hash]',
  bundle: true,
  splitting: true,
  format: 'esm',
  platform: 'node',
  target: 'node24',
  metafile: true,
  // The first is native, the second is loaded part by part (runtime/metrics/prometheus-metrics.ts). The third is our
  // own and stands in the folder: all files are one folder below it.
  external: ['netlink', 'prom-client', '../package.json'],
  // Packages in the older form ask for Node's modules by this.
  banner: {
    js: "import { createRequire as requireFor } from 'node:module'; const require = requireFor(import.meta.url);",
  },
} as const satisfies BuildOptions

/**
 * Makes `folder` with all that the program `entry` loads, a path in this checkout that ends with FOLDER/FILE.ts: it
 * becomes FOLDER/FILE.js there. By default the command line. False when the sources do not compile: why is printed.
 * Types are for `npm run check`, not looked at here. Throws what imageOfBuild() throws, and why the compiler cannot be
 * started.
 */
export function compileProduct(folder: string, entry = 'cli/main.ts'): boolean {
  return compileProgram(folder, entry) !== undefined
}

/** The same, but it gives the paths of what it has read, from this checkout's folder; undefined: does not compile. */
export function compileProgram(folder: string, entry: string): readonly string[] | undefined {
  const image = imageOfBuild()
  // Below the checkout, so that packages are found where they are and nowhere else.
  mkdirSync(CACHE, { recursive: true })
  const copy = mkdtempSync(join(CACHE, 'sealane-sources-'))
  let inputs: readonly string[]
  try {
    copyWithDirectImports(root, entry, copy, withOwnPackage)
    for (const name of ['tsconfig.json', 'package.json']) copyFileSync(join(root, name), join(copy, name))
    const outbase = dirname(dirname(entry))
    const outdir = resolve(root, folder)
    const { metafile } = buildSync({ ...OPTIONS, absWorkingDir: copy, entryPoints: [entry], outbase, outdir })
    inputs = Object.keys(metafile.inputs).map((path) => inCheckout(join(copy, path), copy))
  } catch (error) {
    if (Object.hasOwn(error as object, 'errors')) return undefined
    throw error
  } finally {
    rmSync(copy, { recursive: true, force: true })
  }
  const project = readProject(root)
  const named = image === undefined ? project : { ...project, config: { ...project.config, image } }
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(named, undefined, 2)}\n`)
  writeFileSync(join(folder, 'third-party-licenses.txt'), licenses(inputs))
  return inputs
}

/** The packages that end up in the page of the console. */
const PAGE_PACKAGES = ['preact', '@preact/signals', '@preact/signals-core', 'cytoscape', 'uplot']
/** The folder of the page in the product. */
export const PAGE_FOLDER = 'console-page'

/** Adds the page of the console to a compiled product. False when it does not compile: why is printed. */
export function addPage(product: string): boolean {
  const folder = resolve(root, product)
  try {
    execFileSync(process.execPath, [join(root, 'scripts', 'build-page.ts'), join(folder, PAGE_FOLDER)], {
      stdio: ['ignore', 'ignore', 'inherit'],
    })
  } catch {
    return false
  }
  const file = join(folder, 'third-party-licenses.txt')
  const inputs = PAGE_PACKAGES.map((name) => `node_modules/${name}`)
  writeFileSync(file, `${readFileSync(file, 'utf8')}${SEPARATOR}${licenses(inputs)}`)
  return true
}

/** Every file of the product is one folder below the package.json that is written beside it. */
function withOwnPackage(text: string): string {
  return text.replace(/ from '(?:\.\.\/)+package\.json'/, " from '../package.json'")
}

/** From the checkout's folder. Packages are read where they are, and sources from the copy. */
function inCheckout(path: string, copy: string): string {
  const own = relative(copy, path)
  return own.startsWith('..') ? relative(root, path) : own
}

interface Project {
  readonly name: string
  readonly version: string
  readonly license?: string
  readonly config?: object
}

function readProject(folder: string): Project {
  return JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as Project
}

const SEPARATOR = `\n${'-'.repeat(80)}\n`

/** Of each package that is in it: its name and version, and the text that has to go along. */
function licenses(inputs: readonly string[]): string {
  const folders = inputs.flatMap((path) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path) ?? [])
  const parts = [...new Set(folders)].sort().map((path) => {
    const folder = join(root, path)
    const { name, version, license = 'see its package' } = readProject(folder)
    const files = readdirSync(folder).filter((file) => /^(licen[cs]e|notice|copying)/i.test(file))
    const texts = files.map((file) => readFileSync(join(folder, file), 'utf8').trim())
    return `${name} ${version}: ${license}\n\n${texts.join('\n\n')}\n`
  })
  return parts.join(SEPARATOR)
}
