/**
 * The image of this checkout, made as a user makes it, without a registry of images: every program in it starts as the
 * user nobody, and it is pushed to a registry and written into an archive.
 */
import { execFile, execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { missingPackages } from '../../scripts/install-system-packages.ts'
import { ROOT } from '../support/source-tree.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { type ImageRegistry, startImageRegistry } from './support/image-registry.ts'

t.setTimeout(600_000)

const NAME = 'localhost/sealane-of-test:1'

function cannotBuild(): string | false {
  const missing = missingPackages('image')
  if (missing.length > 0) return `needs ${missing.join(', ')} (Debian names)`
  return process.getuid?.() === 0 ? false : 'needs root'
}

type Image = (...words: readonly string[]) => Promise<string>

t.test('the image of this checkout', { skip: cannotBuild(), timeout: 600_000 }, async (t) => {
  const folder = temporaryFolder(t)
  const registry = await startImageRegistry(t)
  const env = { ...process.env, ...settings(folder, registry) }
  const image: Image = async (...words) => {
    const args = [join(ROOT, 'scripts/image/image.ts'), ...words]
    return (await promisify(execFile)(process.execPath, args, { env, maxBuffer: 16 << 20 })).stdout.trim()
  }
  const began = performance.now()
  t.equal(await image('build', '--arch', 'amd64,arm64'), NAME, 'it says what it has built')
  t.comment(`built in ${((performance.now() - began) / 1000).toFixed(1)} s`)
  const archive = join(folder, 'sealane.tar')
  t.equal(await image('save', archive), archive)
  await t.test('its programs start, as nobody', (t) => programs(t, folder, archive))
  await t.test('it goes to a registry, with both architectures', async (t) => {
    t.equal(await image('push', `${registry.host}/tools/sealane`), `${registry.host}/tools/sealane:1`)
    const index = manifestOf(registry, '1')
    t.strictSame(index.manifests?.map(({ platform }) => platform.architecture).sort(), ['amd64', 'arm64'])
    for (const { digest: one, platform } of index.manifests ?? []) {
      const { layers = [] } = manifestOf(registry, one)
      t.ok(layers.length > 0, `${platform.architecture} has its layers`)
      for (const { digest } of layers) t.ok(registry.blobs.has(digest), digest)
    }
  })
  await t.test('the other one is of the other architecture', async (t) => {
    const other = join(folder, 'arm64.tar')
    t.equal(await image('save', other, '--arch', 'arm64'), other)
    const root = unpack(folder, other, 'arm64').root
    for (const program of ['opt/sealane/node_modules/node/bin/node', 'usr/sbin/nft', 'usr/bin/wireguard-go']) {
      t.equal(readFileSync(join(root, program)).readUInt16LE(ELF_MACHINE), AARCH64, program)
    }
  })
  await t.test('what cannot be', async (t) => {
    const rows: readonly (readonly [string, RegExp])[] = [
      ['build --arch riscv64', /--arch riscv64: expected amd64 or arm64/],
      [`save ${archive} --arch s390x`, /--arch s390x: \S+ was built for amd64, arm64\n/],
      ['push', /^usage: npm run image/],
      ['shrink', /^usage: npm run image/],
    ]
    for (const [words, said] of rows) {
      const { stderr } = await image(...words.split(' ')).then(
        () => ({ stderr: '(it did not fail)' }),
        (error: unknown) => error as { stderr: string },
      )
      t.match(stderr, said, words)
    }
  })
})

/** Settings that keep all created files in the test's folder. */
function settings(folder: string, registry: ImageRegistry): Readonly<Record<string, string>> {
  const storage = join(folder, 'storage.conf')
  const places = ['graphroot', 'runroot'].map((name) => `${name} = ${JSON.stringify(join(folder, name))}\n`).join('')
  writeFileSync(storage, `[storage]\ndriver = "vfs"\n${places}`)
  const trusted = join(folder, 'registry-ca.pem')
  writeFileSync(trusted, registry.ca)
  const auth = join(folder, 'auth.json')
  writeFileSync(auth, '{}')
  return {
    SEALANE_IMAGE: NAME,
    SEALANE_IMAGE_FOLDER: join(folder, 'work'),
    CONTAINERS_STORAGE_CONF: storage,
    // The registry is trusted as a machine trusts the authority of a company's own registry.
    SSL_CERT_FILE: trusted,
    REGISTRY_AUTH_FILE: auth,
  }
}

interface ArchiveEntry {
  readonly RepoTags: readonly string[]
  readonly Layers: readonly string[]
  readonly Config: string
}

interface Manifest {
  /** This field belongs to an index. */
  readonly manifests?: readonly { readonly digest: string; readonly platform: { readonly architecture: string } }[]
  /** This field belongs to an image. */
  readonly layers?: readonly { readonly digest: string }[]
}

function manifestOf({ manifests }: ImageRegistry, reference: string): Manifest {
  return JSON.parse(manifests.get(`tools/sealane:${reference}`) ?? '{}') as Manifest
}

/** The offset of the machine type in a 64-bit ELF file, and the expected value (System V ABI, "ELF header"). */
const ELF_MACHINE = 18
const AARCH64 = 183

/** The content of an archive, whose files are unpacked into a folder of that name as a container sees them. */
function unpack(
  folder: string,
  archive: string,
  name: string,
): { readonly entry: ArchiveEntry; readonly parts: string; readonly root: string } {
  const [parts, root] = [join(folder, `${name}-parts`), join(folder, `${name}-root`)]
  for (const one of [parts, root]) mkdirSync(one)
  execFileSync('tar', ['-xf', archive, '-C', parts])
  const [entry] = JSON.parse(readFileSync(join(parts, 'manifest.json'), 'utf8')) as [ArchiveEntry]
  for (const layer of entry.Layers) execFileSync('tar', ['-xf', join(parts, layer), '-C', root])
  return { entry, parts, root }
}

async function programs(t: Test, folder: string, archive: string): Promise<void> {
  const { entry, parts, root } = unpack(folder, archive, 'amd64')
  t.strictSame(entry.RepoTags, [NAME, `${NAME}-amd64`])
  const { config } = JSON.parse(readFileSync(join(parts, entry.Config), 'utf8')) as { config: object }
  t.match(config, { User: '65532:65532', Entrypoint: ['/usr/local/bin/sealane'] })
  const { version, dependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    version: string
    dependencies: { node: string }
  }
  const rows: readonly (readonly [string, string | RegExp])[] = [
    ['sealane version', `sealane ${version} (node ${dependencies.node})`],
    ['sealane up --help', 'Usage: sealane up'],
    // The help names the image that the command would install.
    ['sealane broker deploy --help', `"${NAME}"`],
    ['nft --version', 'nftables v'],
    ['wg --version', 'wireguard-tools v'],
    ['wireguard-go --version', /userspace WireGuard daemon/i],
    ['ip -V', 'ip utility'],
    ['ethtool --version', 'ethtool version'],
  ]
  for (const [words, said] of rows) {
    const args = ['--userspec=65532:65532', root, ...words.split(' ')]
    const env = { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' }
    t.match(execFileSync('chroot', args, { encoding: 'utf8', env }), said, words)
  }
  const packages = readdirSync(join(root, 'var/lib/dpkg/status.d'))
  for (const name of ['libc6', 'nftables']) t.ok(packages.includes(name), `scanners find ${name}`)
  const left = readdirSync(join(root, 'opt/sealane/node_modules'), { recursive: true, encoding: 'utf8' })
  t.strictSame(
    left.filter((path) => /\.d\.ts$/.test(path)),
    [],
    'no types are in it',
  )
}
