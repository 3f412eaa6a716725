/**
 * The image of this checkout, made as a user makes it, without a registry of images: every program starts in it as
 * nobody, and it goes to a registry and into an archive.
 */
import { execFile, execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { type IncomingMessage, type ServerResponse, createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { missingPackages } from '../../scripts/install-system-packages.ts'
import { ROOT } from '../support/source-tree.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

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
  const registry = await startRegistry(t)
  const env = { ...process.env, ...settings(folder, registry.host) }
  const image: Image = async (...words) => {
    const args = [join(ROOT, 'scripts/image.ts'), ...words]
    return (await promisify(execFile)(process.execPath, args, { env, maxBuffer: 16 << 20 })).stdout.trim()
  }
  const began = performance.now()
  t.equal(await image(), NAME, 'it says what it has built')
  t.comment(`built in ${((performance.now() - began) / 1000).toFixed(1)} s`)
  const archive = join(folder, 'sealane.tar')
  t.equal(await image('save', archive), archive)
  await t.test('its programs start, as nobody', (t) => programs(t, folder, archive))
  await t.test('it goes to a registry', async (t) => {
    t.equal(await image('push', `${registry.host}/tools/sealane`), `${registry.host}/tools/sealane:1`)
    const manifest = JSON.parse(registry.manifests.get('tools/sealane:1') ?? '{}') as { layers?: { digest: string }[] }
    t.ok(manifest.layers?.length, 'with its layers')
    for (const { digest } of manifest.layers ?? []) t.ok(registry.blobs.has(digest), digest)
  })
  await t.test('what cannot be', async (t) => {
    const rows: readonly (readonly [string, RegExp])[] = [
      ['build --arch riscv64', /--arch riscv64: expected amd64 or arm64/],
      [`save ${archive} --arch arm64`, /--arch arm64: \S+ was built for amd64\n/],
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

/** Everything that is made stays in the test's folder. */
function settings(folder: string, registry: string): Readonly<Record<string, string>> {
  const storage = join(folder, 'storage.conf')
  const places = ['graphroot', 'runroot'].map((name) => `${name} = ${JSON.stringify(join(folder, name))}\n`).join('')
  writeFileSync(storage, `[storage]\ndriver = "vfs"\n${places}`)
  const registries = join(folder, 'registries.conf')
  writeFileSync(registries, `[[registry]]\nlocation = "${registry}"\ninsecure = true\n`)
  return {
    SEALANE_IMAGE: NAME,
    SEALANE_IMAGE_FOLDER: join(folder, 'work'),
    CONTAINERS_STORAGE_CONF: storage,
    CONTAINERS_REGISTRIES_CONF: registries,
    REGISTRY_AUTH_FILE: join(folder, 'auth.json'),
  }
}

interface ArchiveEntry {
  readonly RepoTags: readonly string[]
  readonly Layers: readonly string[]
  readonly Config: string
}

async function programs(t: Test, folder: string, archive: string): Promise<void> {
  const [parts, root] = [join(folder, 'parts'), join(folder, 'root')]
  for (const one of [parts, root]) mkdirSync(one)
  execFileSync('tar', ['-xf', archive, '-C', parts])
  const [entry] = JSON.parse(readFileSync(join(parts, 'manifest.json'), 'utf8')) as ArchiveEntry[]
  t.strictSame(entry?.RepoTags, [NAME])
  const { config } = JSON.parse(readFileSync(join(parts, entry?.Config ?? ''), 'utf8')) as { config: object }
  t.match(config, { User: '65532:65532', Entrypoint: ['/usr/local/bin/sealane'] })
  for (const layer of entry?.Layers ?? []) execFileSync('tar', ['-xf', join(parts, layer), '-C', root])
  const { version, dependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    version: string
    dependencies: { node: string }
  }
  const rows: readonly (readonly [string, string | RegExp])[] = [
    ['sealane version', `sealane ${version} (node ${dependencies.node})`],
    ['sealane up --help', 'Usage: sealane up'],
    // What it would install itself.
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

interface Registry {
  readonly host: string
  readonly blobs: ReadonlySet<string>
  /** By `name:tag`. */
  readonly manifests: ReadonlyMap<string, string>
}

/** As much of the distribution specification as a push takes. */
async function startRegistry(t: Test): Promise<Registry> {
  const blobs = new Set<string>()
  const manifests = new Map<string, string>()
  const answer = (request: IncomingMessage, response: ServerResponse, body: Buffer): void => {
    const url = new URL(request.url ?? '', 'http://registry')
    const [, name = '', kind, rest = ''] = /^\/v2\/(.+)\/(blobs|manifests)\/(.*)$/.exec(url.pathname) ?? []
    const end = (status: number, headers: Record<string, string> = {}): void =>
      void response.writeHead(status, headers).end()
    if (kind === undefined) end(200)
    else if (kind === 'manifests' && request.method === 'PUT') {
      manifests.set(`${name}:${rest}`, body.toString())
      end(201, { 'docker-content-digest': digestOf(body) })
    } else if (request.method === 'POST') end(202, { location: `${url.pathname}${(uploads += 1)}` })
    else if (request.method === 'PATCH') {
      // Several layers come at the same time.
      const so = Buffer.concat([pending.get(rest) ?? Buffer.alloc(0), body])
      pending.set(rest, so)
      end(202, { location: url.pathname, range: `0-${so.length - 1}` })
    } else if (request.method === 'PUT') {
      const whole = Buffer.concat([pending.get(rest) ?? Buffer.alloc(0), body])
      pending.delete(rest)
      const digest = digestOf(whole)
      if (digest === url.searchParams.get('digest')) blobs.add(digest)
      end(blobs.has(digest) ? 201 : 400, { 'docker-content-digest': digest })
    } else end(blobs.has(rest) ? 200 : 404)
  }
  const pending = new Map<string, Buffer>()
  let uploads = 0
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request
      .on('data', (chunk: Buffer) => chunks.push(chunk))
      .on('end', () => answer(request, response, Buffer.concat(chunks)))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => new Promise<void>((resolve) => void server.close(() => resolve())))
  return { host: `127.0.0.1:${(server.address() as AddressInfo).port}`, blobs, manifests }
}

const digestOf = (body: Buffer): string => `sha256:${createHash('sha256').update(body).digest('hex')}`
