/**
 * `npm run image`: the image of this checkout, without any registry of images.
 *
 *   npm run image                                   builds it for this machine's architecture
 *   npm run image -- build --arch amd64,arm64       for several, as one image with an index
 *   npm run image -- save FILE [--arch arm64]       an archive for nodes without a registry (ctr images import)
 *   npm run image -- push REGISTRY/sealane:TAG      with the credentials of `buildah login` or REGISTRY_AUTH_FILE
 *
 * The name is that of package.json, or SEALANE_IMAGE. It works in node_modules/.cache, or in SEALANE_IMAGE_FOLDER. What
 * is said goes to stderr, the name of the image to stdout.
 */
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { formatImageName, parseImageName } from '../../install/values/install-values.ts'
import { imageOfBuild } from '../compile-product.ts'
import { fetchPackages, unpackPackages } from './image-packages.ts'
import { NPM_CPUS, addProduct } from './image-product.ts'
import { requireImageTools, run, succeeds } from './image-tools.ts'

const checkout = join(import.meta.dirname, '..', '..')
const work = resolve(process.env['SEALANE_IMAGE_FOLDER'] ?? join(checkout, 'node_modules', '.cache', 'sealane-image'))
const say = (text: string): void => void process.stderr.write(`${text}\n`)

interface Built {
  readonly name: string
  readonly architectures: readonly string[]
}

const built = join(work, 'built.json')

/** With several architectures each has an image of its own beside the index. */
const nameFor = ({ name, architectures }: Built, architecture: string): string =>
  architectures.length === 1 ? name : `${name}-${architecture}`

function imageName(): string {
  const { version, config } = JSON.parse(readFileSync(join(checkout, 'package.json'), 'utf8')) as {
    version: string
    config: { image: string }
  }
  return formatImageName(parseImageName(imageOfBuild() ?? config.image, version))
}

function build(architectures: readonly string[]): void {
  const image: Built = { name: imageName(), architectures }
  freeName(image.name)
  for (const architecture of architectures) buildOne(architecture, nameFor(image, architecture))
  if (architectures.length > 1) {
    run('buildah', ['manifest', 'create', image.name, ...architectures.map((one) => nameFor(image, one))])
  }
  writeFileSync(built, JSON.stringify(image))
  process.stdout.write(`${image.name}\n`)
}

/** The name of an earlier build: an index cannot be made again under it, nor where an image has it. */
function freeName(name: string): void {
  if (run('buildah', ['images', '--quiet', '--filter', `reference=${name}`]).length === 0) return
  const isIndex = succeeds('buildah', ['manifest', 'exists', name])
  run('buildah', isIndex ? ['manifest', 'rm', name] : ['rmi', name])
}

function buildOne(architecture: string, name: string): void {
  const folder = join(work, architecture)
  const root = join(folder, 'root')
  rmSync(root, { recursive: true, force: true })
  mkdirSync(root, { recursive: true })
  process.umask(0o022)
  say(`${architecture}: packages of the distribution`)
  unpackPackages(fetchPackages(join(folder, 'apt'), architecture), root)
  say(`${architecture}: the product and its npm packages`)
  addProduct(root, architecture, join(folder, 'npm'))
  say(`${architecture}: ${name}`)
  const context = join(folder, 'context')
  rmSync(context, { recursive: true, force: true })
  mkdirSync(context)
  // One order, one owner and one time, so that the same content is the same image.
  const same = ['--sort=name', '--owner=0', '--group=0', '--numeric-owner', '--mtime=@0', '--mode=go-w']
  run('tar', ['-c', ...same, '-f', join(context, 'root.tar'), '-C', root, '.'])
  cpSync(join(checkout, 'Containerfile'), join(context, 'Containerfile'))
  const how = ['--isolation', 'chroot', '--layers=false', '--timestamp', '0', '--platform', `linux/${architecture}`]
  run('buildah', ['build', ...how, '--tag', name, context])
  rmSync(root, { recursive: true })
  rmSync(context, { recursive: true })
}

function lastBuilt(): Built {
  if (existsSync(built)) return JSON.parse(readFileSync(built, 'utf8')) as Built
  throw new Error('there is no image yet; build it first: npm run image')
}

/** Credentials are read by buildah from its own file: never from the command line. */
function push(to: string): void {
  const { name, architectures } = lastBuilt()
  const target = `docker://${formatImageName(parseImageName(to, parseImageName(name).tag))}`
  if (architectures.length > 1) run('buildah', ['manifest', 'push', '--all', name, target])
  else run('buildah', ['push', name, target])
  process.stdout.write(`${target.slice('docker://'.length)}\n`)
}

/** As docker, podman, ctr, k3s, kind and minikube read it. */
function save(file: string, wanted: string | undefined): void {
  const image = lastBuilt()
  const architecture = wanted ?? image.architectures[0] ?? ''
  if (!image.architectures.includes(architecture)) {
    throw new Error(`--arch ${architecture}: ${image.name} was built for ${image.architectures.join(', ')}`)
  }
  const path = resolve(file)
  rmSync(path, { force: true })
  run('buildah', ['push', nameFor(image, architecture), `docker-archive:${path}:${image.name}`])
  process.stdout.write(`${path}\n`)
}

function architecturesOf(text: string | undefined): readonly string[] {
  const own = Object.entries(NPM_CPUS).find(([, cpu]) => cpu === process.arch)?.[0] ?? 'amd64'
  const list = text === undefined ? [own] : text.split(',')
  const unknown = list.find((one) => !Object.hasOwn(NPM_CPUS, one))
  if (unknown !== undefined) throw new Error(`--arch ${unknown}: expected ${Object.keys(NPM_CPUS).join(' or ')}`)
  return [...new Set(list)]
}

const USAGE =
  'usage: npm run image -- [build [--arch amd64,arm64] | save FILE [--arch ARCH] | push REGISTRY/NAME[:TAG]]'

try {
  const { values, positionals } = parseArgs({ options: { arch: { type: 'string' } }, allowPositionals: true })
  const [verb = 'build', target] = positionals
  requireImageTools()
  if (verb === 'build' && target === undefined) build(architecturesOf(values.arch))
  else if (verb === 'push' && target !== undefined && values.arch === undefined) push(target)
  else if (verb === 'save' && target !== undefined) save(target, values.arch)
  else throw new Error(USAGE)
} catch (error) {
  say((error as Error).message)
  process.exitCode = 1
}
