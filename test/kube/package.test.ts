/**
 * The Debian package of this checkout, made as a user makes it and installed by dpkg into a small system of its own:
 * it starts nothing, an upgrade restarts services, and a removal takes them away and leaves the site.
 */
import { execFile, execFileSync, spawnSync } from 'node:child_process'
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import project from '../../package.json' with { type: 'json' }
import { ROOT } from '../support/source-tree.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

t.setTimeout(600_000)

function cannotInstall(): string | false {
  const missing = ['dpkg', 'dpkg-deb', 'busybox'].filter((name) => spawnSync(name, ['--help']).error !== undefined)
  if (missing.length > 0) return `needs ${missing.join(', ')}`
  return process.getuid?.() === 0 ? false : 'needs root'
}

async function makePackage(folder: string): Promise<string> {
  const args = [join(ROOT, 'scripts/package/package.ts'), '--out', folder]
  const env = { ...process.env, SOURCE_DATE_EPOCH: '1700000000' }
  return (await promisify(execFile)(process.execPath, args, { env, maxBuffer: 16 << 20 })).stdout.trim()
}

/** A system with a shell, the libraries of Node, and a systemctl that writes down how it was called. */
class SmallSystem {
  readonly root: string

  constructor(t: Test) {
    this.root = temporaryFolder(t)
    for (const folder of ['bin', 'tmp', 'run', 'etc/default', 'var/lib/dpkg/info', 'var/lib/dpkg/updates']) {
      mkdirSync(this.path(folder), { recursive: true })
    }
    for (const file of ['status', 'available']) writeFileSync(this.path(`var/lib/dpkg/${file}`), '')
    this.#copy(execFileSync('which', ['busybox'], { encoding: 'utf8' }).trim(), '/bin/busybox')
    for (const name of ['sh', 'cat', 'dirname', 'find', 'readlink', 'rm']) {
      symlinkSync('busybox', this.path(`bin/${name}`))
    }
    const said = execFileSync('ldd', [join(ROOT, 'node_modules/node/bin/node')], { encoding: 'utf8' })
    for (const [, library = ''] of said.matchAll(/(\/\S+) \(0x/g)) this.#copy(library, library)
    const systemctl = '#!/bin/sh\necho "$*" >>/calls\ncase "$*" in *is-active*) exit 3;; esac\n'
    writeFileSync(this.path('bin/systemctl'), systemctl)
    chmodSync(this.path('bin/systemctl'), 0o755)
  }

  path(name: string): string {
    return join(this.root, name)
  }

  has(name: string): boolean {
    return existsSync(this.path(name))
  }

  #copy(from: string, to: string): void {
    mkdirSync(dirname(this.path(to)), { recursive: true })
    copyFileSync(from, this.path(to))
    chmodSync(this.path(to), 0o755)
  }

  /** Other packages are not installed in it. */
  dpkg(...args: readonly string[]): void {
    execFileSync('dpkg', [`--root=${this.root}`, '--force-depends', ...args], { encoding: 'utf8', stdio: 'pipe' })
  }

  run(...words: readonly string[]): { readonly code: number | null; readonly stdout: string; readonly stderr: string } {
    const env = { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' }
    const { status, stdout, stderr } = spawnSync('chroot', [this.root, ...words], { env, encoding: 'utf8' })
    return { code: status, stdout, stderr }
  }

  /** The calls of systemctl since the last time. */
  calls(): readonly string[] {
    if (!this.has('calls')) return []
    const text = readFileSync(this.path('calls'), 'utf8')
    writeFileSync(this.path('calls'), '')
    return text.trim().split('\n')
  }
}

const UNITS = 'etc/systemd/system'
const SITE = '/etc/sealane/site.yaml'

t.test('the package of this checkout', { skip: cannotInstall() }, async (t) => {
  const file = await makePackage(temporaryFolder(t))
  await t.test('what is in it', async (t) => {
    const fields = execFileSync('dpkg-deb', ['--field', file], { encoding: 'utf8' })
    t.match(fields, `Package: sealane\nVersion: ${project.version}\n`)
    t.match(fields, /^Depends: .*\biproute2, nftables$/m)
    const rows = execFileSync('dpkg-deb', ['--contents', file], {
      encoding: 'utf8',
      maxBuffer: 16 << 20,
      env: { ...process.env, TZ: 'UTC' },
    })
      .trim()
      .split('\n')
    const open = rows.filter((row) => !/^[-dl]([r-][w-][x-])\S* root\/root /.test(row))
    t.strictSame(open, [], 'all belongs to root')
    const writable = rows.filter((row) => !row.startsWith('l') && /^.(....w|.{7}w|..s|.....s)/.test(row))
    t.strictSame(writable, [], 'nobody else writes to it, and nothing is setuid')
    // dpkg-deb sorts the files and packs them alike, so that equal files with equal times are an equal package.
    t.strictSame([...new Set(rows.map((row) => / (2\d{3}-\d\d-\d\d) /.exec(row)?.[1]))], ['2023-11-14'], 'one time')
    for (const path of ['bin/sealane -> /usr/lib/sealane/bin/sealane', 'share/doc/sealane/copyright']) {
      t.ok(
        rows.some((row) => row.endsWith(` ./usr/${path}`)),
        path,
      )
    }
  })
  await t.test('it is installed, upgraded, removed and purged', async (t) => {
    const system = new SmallSystem(t)
    system.dpkg('--install', file)
    t.strictSame(system.run('sealane', '--version'), { code: 0, stdout: `${project.version}\n`, stderr: '' })
    t.match(system.run('sealane', 'version').stdout, `(node ${project.dependencies.node})`)

    const flags = ['--name', 'milano', '--node', 'gw=192.0.2.1', '--pod-cidr', '10.42.0.0/24', '--dns', '10.42.0.1']
    t.match(system.run('sealane', 'site', 'init', '/etc/sealane', ...flags, '--public-address', 'none'), { code: 0 })
    const install = ['sealane', 'site', 'install', '--site', SITE, '--node', 'gw']
    t.match(system.run(...install), { code: 1, stderr: /systemd does not run here/ })
    t.match(
      system.run(...install, '--dry-run').stdout,
      '\nExecStart=/usr/bin/sealane up --site /etc/sealane/site.yaml --node gw ',
    )
    t.strictSame(system.calls(), [], 'nothing was started')

    mkdirSync(system.path('run/systemd/system'), { recursive: true })
    writeFileSync(system.path('etc/default/sealane'), 'SEALANE_HEARTBEAT=5s\n')
    const installed = system.run(...install)
    t.equal(installed.code, 0, installed.stderr)
    t.equal(readdirSync(system.path(UNITS)).length, 5)
    system.calls()
    system.dpkg('--install', file)
    t.match(
      system.calls(),
      ['--no-ask-password daemon-reload', /is-active sealane-agent\.service$/],
      'an upgrade restarts',
    )
    t.equal(readdirSync(system.path(UNITS)).length, 5)

    system.dpkg('--remove', 'sealane')
    t.match(system.calls()[0], /disable --now sealane\.target sealane-agent\.service /)
    t.strictSame(readdirSync(system.path(UNITS)), [], 'the services are gone')
    t.notOk(system.has('usr/lib/sealane'))
    t.ok(system.has('etc/default/sealane'))
    system.dpkg('--purge', 'sealane')
    t.notOk(system.has('etc/default/sealane'))
    t.ok(system.has(SITE), 'the site stays')
  })
})
