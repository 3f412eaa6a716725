/**
 * Network namespaces for tests. withNetns() makes a named one: its processes are ended and it is removed when the story
 * ends or fails, or the test is interrupted; if the test was killed, the next test does that. inPrivateNetns() runs a
 * whole test file in an unnamed one, for drivers that act on their own namespace.
 */
import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'
import { atExit } from './at-exit.ts'
import { ownedNetnsName, removeNetns } from './netns-names.ts'
import { temporaryFolder } from './temporary-folder.ts'

export interface ExecResult {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

export interface ExecOptions {
  readonly input?: string
  readonly timeoutMs?: number
  readonly env?: NodeJS.ProcessEnv
  readonly cwd?: string
}

export interface Netns {
  readonly name: string
  /** Runs a program inside and returns its standard output. Throws with its standard error if it fails. */
  exec(command: string, args?: readonly string[], options?: ExecOptions): Promise<string>
  /** Does the same, and returns a failure as a result. */
  tryExec(command: string, args?: readonly string[], options?: ExecOptions): Promise<ExecResult>
  /**
   * Starts a program inside and leaves it running; it is ended with the namespace. A test that wants its output must
   * listen at once: other output is read and dropped, since a program blocks when its pipe is full.
   */
  spawn(
    command: string,
    args?: readonly string[],
    options?: { readonly env?: NodeJS.ProcessEnv; readonly cwd?: string },
  ): ChildProcess
}

const INSIDE = 'SEALANE_TEST_PRIVATE_NETNS'

/** Why namespaces cannot be made here; undefined if they can. It fits a test's `skip` option. */
export function netnsMissing(): string | undefined {
  if (process.getuid?.() !== 0) return 'needs root'
  if (process.platform !== 'linux') return 'needs Linux'
  try {
    execFileSync('ip', ['-V'], { stdio: 'ignore' })
    execFileSync('unshare', ['--net', 'true'], { stdio: 'ignore' })
    return undefined
  } catch {
    return 'needs the programs ip and unshare, and the right to make network namespaces'
  }
}

/** Makes a namespace with its loopback up, runs the story in it, and always removes it afterwards. */
export async function withNetns<T>(story: (ns: Netns) => Promise<T>): Promise<T> {
  const name = ownedNetnsName()
  const remove = (): void => removeNetns(name)
  const forget = atExit('programs', remove)
  try {
    await run('ip', ['netns', 'add', name])
    await run('ip', ['-n', name, 'link', 'set', 'lo', 'up'])
    return await story(netns(name))
  } finally {
    forget()
    remove()
  }
}

/**
 * Runs a file whose tests act on their own namespace: `inPrivateNetns(t, import.meta.url, () => { t.test(…) })`.
 * Outside, the file is started again in new network, mount and process namespaces with an empty /run and a folder of
 * its own for temporary files, and its tests count as one subtest; inside, `tests` runs. Nothing that is changed inside
 * stays afterwards, also if its time is up and all its processes are killed.
 */
export function inPrivateNetns(t: Test, fileUrl: string, tests: () => void | Promise<void>): void | Promise<void> {
  // A guest (test/guest) is discarded as a whole, and is too slow to start everything twice.
  const guest = process.env['SEALANE_GUEST'] === '1'
  // A tier states how long its files may take, and so does the environment then.
  if (guest || process.env['TAP_TIMEOUT'] === undefined) t.setTimeout(guest ? 400_000 : 90_000)
  if (guest) execFileSync('ip', ['link', 'set', 'lo', 'up'])
  if (guest || process.env[INSIDE] === '1') return tests()
  const missing = netnsMissing()
  if (missing !== undefined) {
    t.test('in a private network namespace', { skip: missing }, () => undefined)
    return
  }
  // The shell is process 1 inside, so it reaps the daemons that tests leave, and ended ones are really gone.
  const init = 'mount -t tmpfs tmpfs /run && mkdir -p /run/netns && ip link set lo up && "$@"; exit $?'
  const args = ['--net', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc', 'sh', '-c', init, 'sh']
  t.spawn(
    'unshare',
    [...args, process.execPath, ...process.execArgv, fileURLToPath(fileUrl)],
    { env: { ...process.env, [INSIDE]: '1', TMPDIR: temporaryFolder(t) } },
    'in a private network namespace',
  )
}

function netns(name: string): Netns {
  const inside = (command: string, args: readonly string[]): string[] => ['netns', 'exec', name, command, ...args]
  return {
    name,
    exec: (command, args = [], options = {}) => run('ip', inside(command, args), options),
    tryExec: (command, args = [], options = {}) => tryRun('ip', inside(command, args), options),
    spawn: (command, args = [], options = {}) => {
      const child = spawn('ip', inside(command, args), { stdio: ['ignore', 'pipe', 'pipe'], ...options })
      for (const stream of [child.stdout, child.stderr]) stream.resume()
      return child
    },
  }
}

async function run(command: string, args: readonly string[], options: ExecOptions = {}): Promise<string> {
  const result = await tryRun(command, args, options)
  if (result.code === 0) return result.stdout
  throw new Error(`${command} ${args.join(' ')} ended with ${result.code}: ${result.stderr.trim()}`)
}

function tryRun(command: string, args: readonly string[], options: ExecOptions): Promise<ExecResult> {
  const { input, timeoutMs = 30_000, env, cwd } = options
  return new Promise((resolve) => {
    const settings = {
      timeout: timeoutMs,
      maxBuffer: 64 << 20,
      env: env ?? process.env,
      ...(cwd === undefined ? {} : { cwd }),
    }
    const child = execFile(command, [...args], settings, (error, stdout, stderr) => {
      const code = error === null ? 0 : typeof error.code === 'number' ? error.code : 255
      resolve({ code, stdout, stderr: stderr === '' && error !== null ? error.message : stderr })
    })
    child.stdin?.on('error', () => undefined)
    child.stdin?.end(input ?? '')
  })
}
