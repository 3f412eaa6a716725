/**
 * `npm run package`: a Debian package of this checkout, made by dpkg-deb.
 *
 *   npm run package                             for this machine's architecture, into build/
 *   npm run package -- --arch arm64 --out FOLDER
 *
 * The same checkout and the same SOURCE_DATE_EPOCH give the same file; without the variable, the time of the last
 * commit counts. The path of the package goes to stdout, what is done to stderr.
 */
import {
  chmodSync,
  copyFileSync,
  cpSync,
  lstatSync,
  lutimesSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { createHash } from 'node:crypto'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { NPM_CPUS, addProduct } from '../image/image-product.ts'
import { run } from '../image/image-tools.ts'
import { controlFile, debianVersion } from './control.ts'

const checkout = join(import.meta.dirname, '..', '..')
const cache = join(checkout, 'node_modules', '.cache')
const say = (text: string): void => void process.stderr.write(`${text}\n`)

const SCRIPTS = ['postinst', 'prerm', 'postrm'] as const

interface Project {
  readonly version: string
  readonly description: string
}

/** Gives the path of the package. Throws with what a program said. */
function makePackage(architecture: string, out: string): string {
  const project = JSON.parse(readFileSync(join(checkout, 'package.json'), 'utf8')) as Project
  mkdirSync(cache, { recursive: true })
  process.umask(0o022)
  const root = mkdtempSync(join(cache, 'sealane-package-'))
  // mkdtemp gives 0700, which would become the mode of / on the machine.
  chmodSync(root, 0o755)
  try {
    say(`${architecture}: the product and its npm packages`)
    const layout = { home: 'usr/lib/sealane', program: 'usr/bin/sealane' }
    addProduct(root, architecture, join(cache, 'sealane-package-npm'), layout)
    addDocuments(root)
    addControl(root, architecture, project)
    const epoch = sourceDate()
    setTimes(root, epoch)
    mkdirSync(out, { recursive: true })
    const file = join(out, `sealane_${debianVersion(project.version)}_${architecture}.deb`)
    say(`${architecture}: ${file}`)
    const how = ['--root-owner-group', ...COMPRESSION, '--build', root, file]
    run('dpkg-deb', how, { env: { SOURCE_DATE_EPOCH: String(epoch) } })
    return file
  } finally {
    rmSync(root, { recursive: true, force: true })
  }
}

/** Each release of Debian and Ubuntu reads it, and its output does not depend on the number of processors. */
const COMPRESSION = ['-Zgzip', '-z6']

function addDocuments(root: string): void {
  const docs = join(root, 'usr/share/doc/sealane')
  mkdirSync(docs, { recursive: true })
  copyFileSync(join(checkout, 'README.md'), join(docs, 'README.md'))
  cpSync(join(checkout, 'examples'), join(docs, 'examples'), { recursive: true })
  const licence = readFileSync(join(checkout, 'LICENSE'), 'utf8')
  const others = 'The licences of the packages it contains: /usr/lib/sealane/dist/third-party-licenses.txt\n'
  writeFileSync(join(docs, 'copyright'), `${others}\n${licence}`)
}

function addControl(root: string, architecture: string, { version, description }: Project): void {
  const files = filesBelow(root).filter((path) => lstatSync(join(root, path)).isFile())
  const sums = files.map((path) => `${md5(join(root, path))}  ${path}\n`).join('')
  const bytes = files.reduce((sum, path) => sum + lstatSync(join(root, path)).size, 0)
  const control = join(root, 'DEBIAN')
  mkdirSync(control)
  writeFileSync(join(control, 'control'), controlFile({ version, description, architecture, bytes }))
  writeFileSync(join(control, 'md5sums'), sums)
  for (const name of SCRIPTS) {
    copyFileSync(join(import.meta.dirname, name), join(control, name))
    chmodSync(join(control, name), 0o755)
  }
}

function filesBelow(root: string): readonly string[] {
  return readdirSync(root, { recursive: true, encoding: 'utf8' }).sort()
}

/** The format of packages asks for it; it finds damage and is no protection. */
function md5(path: string): string {
  return createHash('md5').update(readFileSync(path)).digest('hex')
}

function setTimes(root: string, epoch: number): void {
  for (const path of [...filesBelow(root), '.']) lutimesSync(join(root, path), epoch, epoch)
}

/** In seconds. https://reproducible-builds.org/specs/source-date-epoch/ */
function sourceDate(): number {
  const stated = process.env['SOURCE_DATE_EPOCH']
  if (stated !== undefined && !/^\d{1,11}$/.test(stated)) {
    throw new Error(`SOURCE_DATE_EPOCH ${JSON.stringify(stated)}: expected seconds since 1970`)
  }
  return Number(stated ?? run('git', ['log', '-1', '--format=%ct'], { cwd: checkout }).toString())
}

function architectureOf(text: string | undefined): string {
  const architecture = text ?? run('dpkg', ['--print-architecture']).toString().trim()
  if (Object.hasOwn(NPM_CPUS, architecture)) return architecture
  throw new Error(`--arch ${architecture}: expected ${Object.keys(NPM_CPUS).join(' or ')}`)
}

try {
  const { values } = parseArgs({ options: { arch: { type: 'string' }, out: { type: 'string' } } })
  const file = makePackage(architectureOf(values.arch), resolve(values.out ?? join(checkout, 'build')))
  process.stdout.write(`${file}\n`)
} catch (error) {
  say((error as Error).message)
  process.exitCode = 1
}
