/**
 * Builds the Go programs of the test tree, once, into a cache outside the checkout. The cache is only ever a saving:
 * its name says what it was built from, and what is missing in it is built again.
 */
import { execFile, execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  existsSync,
  linkSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { homedir } from 'node:os'
import { basename, join, relative } from 'node:path'
import { eventually } from '../../support/eventually.ts'

export interface BuildOptions {
  /** Flags for the linker, beside those that leave out symbols. */
  readonly ldflags?: readonly string[]
  /** Main packages of other modules that go.mod names as `tool`. */
  readonly tools?: readonly string[]
  /** Other names for a program, as hard links: for a program that does what it is called. */
  readonly names?: Readonly<Record<string, readonly string[]>>
}

/** Program name → its path. */
export type Programs = Readonly<Record<string, string>>

const BUILD_DEADLINE_MS = 40 * 60_000
const KEPT_MS = 14 * 24 * 3600_000

/** Go's version line, such as "go1.26.8 linux/amd64"; undefined where there is no Go. */
export function goVersion(): string | undefined {
  try {
    return execFileSync('go', ['version'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim()
  } catch {
    return undefined
  }
}

/**
 * Builds every main package of the Go module in `folder` (an absolute path). Gives each program by
 * the name of its folder, and by the further names that were asked for. Throws with Go's own words when it does not
 * build. Two processes that ask at once build once.
 */
export async function buildGoModule(folder: string, options: BuildOptions = {}): Promise<Programs> {
  const version = goVersion()
  if (version === undefined) throw new Error(`${basename(folder)} is built with Go, and there is no Go here`)
  const root = join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'sealane')
  const target = join(root, `${basename(folder)}-${fingerprint(folder, version, options)}`)
  mkdirSync(root, { recursive: true })
  if (!existsSync(target)) await withLock(`${target}.lock`, () => buildInto(target, folder, options))
  const now = new Date()
  utimesSync(target, now, now)
  return Object.fromEntries(readdirSync(target).map((name) => [name, join(target, name)]))
}

async function buildInto(target: string, folder: string, options: BuildOptions): Promise<void> {
  // Another process may have built it while this one waited for the lock.
  if (existsSync(target)) return
  const half = `${target}.half`
  rmSync(half, { recursive: true, force: true })
  mkdirSync(half, { recursive: true })
  removeOld(join(target, '..'), basename(folder))
  process.stderr.write(`building the programs of ${basename(folder)}; this takes minutes the first time\n`)
  const ldflags = ['-s', '-w', ...(options.ldflags ?? [])].join(' ')
  const done = await runGo(folder, 'build', [`-ldflags=${ldflags}`, '-o', `${half}/`, ...(options.tools ?? [])])
  if (done.code !== 0) throw new Error(`the Go module ${basename(folder)} does not build:\n${done.stderr.slice(-4000)}`)
  for (const [program, names] of Object.entries(options.names ?? {})) {
    for (const name of names) linkSync(join(half, program), join(half, name))
  }
  renameSync(half, target)
}

export interface GoRun {
  readonly code: number
  readonly stdout: string
  /** What Go said about it, or why it could not be run. */
  readonly stderr: string
}

/** What is generated and next to nothing runs of, or runs once: a third less of the compiler's time. */
const COLD = [
  'helm.sh/...',
  'k8s.io/client-go/applyconfigurations/...',
  'k8s.io/client-go/informers/...',
  'k8s.io/client-go/kubernetes/...',
  'k8s.io/client-go/listers/...',
  'k8s.io/kubernetes/pkg/generated/...',
  'sigs.k8s.io/kustomize/...',
]

/** Nothing for debuggers, which takes a tenth of the compiler's time, and COLD as it stands in the sources. */
const COMPILED_FAST = ['-gcflags=all=-dwarf=false', ...COLD.map((name) => `-gcflags=${name}=-N -l -dwarf=false`)]

/**
 * Runs Go over all packages of a module, always with the same flags: what one run has compiled serves the next, and what
 * one module has compiled serves the others. With -trimpath a replaced module has the name of the version that it
 * replaces in what is compiled, and is compiled once for each.
 */
export function runGo(folder: string, verb: 'build' | 'vet' | 'test', flags: readonly string[] = []): Promise<GoRun> {
  const args = ['-n', '10', 'go', verb, '-buildvcs=false', ...COMPILED_FAST, ...flags, './...']
  // The compiler collects its memory a sixth of its time otherwise.
  const env = { ...process.env, GOGC: '400' }
  const options = { cwd: folder, env, timeout: BUILD_DEADLINE_MS, maxBuffer: 64 << 20 }
  return new Promise((resolve) => {
    execFile('nice', args, options, (error, stdout, stderr) => {
      const code = error === null ? 0 : Number(error.code) || 1
      resolve({ code, stdout, stderr: stderr === '' ? (error?.message ?? '') : stderr })
    })
  })
}

/** Of all that the programs are made from: sources, the pinned modules, the compiler, the options. */
function fingerprint(folder: string, version: string, options: BuildOptions): string {
  const hash = createHash('sha256').update(JSON.stringify([version, options, COMPILED_FAST]))
  for (const path of moduleFiles(folder).sort()) {
    hash.update(`\0${relative(folder, path)}\0`).update(readFileSync(path))
  }
  return hash.digest('hex').slice(0, 16)
}

/** go.mod, go.sum, and whatever lies beside a Go file (it may be embedded). Modules inside the module are not part. */
function moduleFiles(folder: string, top = true): string[] {
  const entries = readdirSync(folder, { withFileTypes: true })
  if (!top && entries.some(({ name }) => name === 'go.mod')) return []
  const package_ = entries.some(({ name }) => name.endsWith('.go'))
  return entries.flatMap((entry) => {
    const path = join(folder, entry.name)
    if (entry.isDirectory()) return moduleFiles(path, false)
    const counts = /^go\.(mod|sum)$/.test(entry.name) || (package_ && !/\.(ts|md)$/.test(entry.name))
    return counts ? [path] : []
  })
}

async function withLock(path: string, action: () => Promise<void>): Promise<void> {
  await eventually(() => tryLock(path), {
    deadlineMs: BUILD_DEADLINE_MS,
    intervalMs: 500,
    say: 'the build in another process',
  })
  try {
    await action()
  } finally {
    rmSync(path, { force: true })
  }
}

function tryLock(path: string): boolean {
  const own = `${path}.${process.pid}`
  writeFileSync(own, String(process.pid))
  try {
    // A link appears with its content, so that nobody ever reads a lock without its holder.
    linkSync(own, path)
    return true
  } catch {
    // A builder that was killed leaves its lock behind.
    if (!isAlive(Number(readIfThere(path)))) rmSync(path, { force: true })
    return false
  } finally {
    rmSync(own, { force: true })
  }
}

function readIfThere(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

function isAlive(pid: number): boolean {
  return pid > 0 && existsSync(`/proc/${pid}`)
}

function removeOld(root: string, module: string): void {
  for (const name of readdirSync(root).filter((name) => name.startsWith(`${module}-`) && !name.endsWith('.lock'))) {
    const path = join(root, name)
    if (statSync(path).mtimeMs < Date.now() - KEPT_MS) rmSync(path, { recursive: true, force: true })
  }
}
