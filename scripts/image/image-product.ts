/**
 * The part of an image or of a package that this checkout gives: the compiled product, its npm packages and Node.
 */
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { addPage, compileProduct } from '../compile-product.ts'
import { run } from './image-tools.ts'

const checkout = join(import.meta.dirname, '..', '..')

/** Paths below the root. */
export interface ProductLayout {
  readonly home: string
  /** A link to the program. */
  readonly program: string
}

const IN_IMAGE: ProductLayout = { home: 'opt/sealane', program: 'usr/local/bin/sealane' }

/** Names of architectures, as Debian and images have them, with npm's. */
export const NPM_CPUS: Readonly<Record<string, string>> = { amd64: 'x64', arm64: 'arm64' }

/** Throws when the sources do not compile, or with what npm said. */
export function addProduct(root: string, architecture: string, work: string, layout: ProductLayout = IN_IMAGE): void {
  const home = join(root, layout.home)
  mkdirSync(home, { recursive: true })
  for (const name of ['package.json', 'package-lock.json']) copyFileSync(join(checkout, name), join(home, name))
  cpSync(join(checkout, 'bin'), join(home, 'bin'), { recursive: true })
  if (!compileProduct(join(home, 'dist'))) throw new Error('the sources do not compile')
  if (!addPage(join(home, 'dist'))) throw new Error('the page of the console does not compile')
  addNpmPackages(home, NPM_CPUS[architecture] ?? architecture)
  addNode(home, NPM_CPUS[architecture] ?? architecture, work)
  rmSync(join(home, 'package-lock.json'))
  mkdirSync(join(root, dirname(layout.program)), { recursive: true })
  symlinkSync(`/${layout.home}/bin/sealane`, join(root, layout.program))
}

/** By the lock file, without any script of theirs: netlink brings its library for each processor. */
function addNpmPackages(home: string, cpu: string): void {
  const quiet = ['--ignore-scripts', '--no-audit', '--no-fund', '--prefer-offline']
  run('npm', ['ci', '--omit=dev', `--cpu=${cpu}`, '--os=linux', ...quiet], { cwd: home })
  rmSync(join(home, 'node_modules', '.bin'), { recursive: true, force: true })
  const prebuilds = join(home, 'node_modules', 'netlink', 'prebuilds')
  for (const name of readdirSync(prebuilds)) {
    if (name !== `linux-${cpu}`) rmSync(join(prebuilds, name), { recursive: true })
  }
  // Types and source maps are of no use at run time: half the size.
  for (const name of readdirSync(join(home, 'node_modules'), { recursive: true, encoding: 'utf8' })) {
    if (/\.(d\.[cm]?ts|map)$/.test(name)) rmSync(join(home, 'node_modules', name), { force: true })
  }
}

/**
 * Of the version that package.json pins, from the npm package of that architecture. Throws where its hash is another
 * than the pinned one, wherever it came from.
 */
function addNode(home: string, cpu: string, work: string): void {
  const { dependencies } = JSON.parse(readFileSync(join(checkout, 'package.json'), 'utf8')) as {
    dependencies: { node: string }
  }
  const folder = join(home, 'node_modules', 'node')
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(join(folder, 'bin'), { recursive: true })
  const own = join(checkout, 'node_modules', 'node', 'bin', 'node')
  const program = join(folder, 'bin', 'node')
  if (cpu === process.arch && existsSync(own)) copyFileSync(own, program)
  else {
    mkdirSync(work, { recursive: true })
    const said = run('npm', ['pack', '--json', '--prefer-offline', `node-linux-${cpu}@${dependencies.node}`], {
      cwd: work,
    })
    const [{ filename } = { filename: '' }] = JSON.parse(said.toString()) as { filename: string }[]
    run('tar', ['-xzf', join(work, filename), '-C', folder, '--strip-components=1', 'package/bin/node'])
  }
  requirePinnedNode(program, cpu)
  chmodSync(program, 0o755)
}

/** Throws with both hashes unless `program` is the Node that bin/node.sha256 pins for this processor (npm's name). */
export function requirePinnedNode(program: string, cpu: string): void {
  run(join(checkout, 'bin', 'check-node'), [program, cpu])
}
