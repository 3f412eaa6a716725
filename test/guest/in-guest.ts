/**
 * Runs the suites that touch the kernel again on a stock Debian kernel with its own WireGuard, in a virtual machine
 * without hardware acceleration. Each suite has a guest of its own.
 */
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { ROOT } from '../support/source-tree.ts'

const CACHE = join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'sealane', 'guest')
const NODE = join(ROOT, 'node_modules', 'node', 'bin', 'node')
/** Emulation is 5 to 40 times slower than the host. */
const GUEST_SECONDS = '840'
const LARGE_MIB = 3072

interface Ended {
  readonly status: number
  readonly output: string
}

/** Makes the guest if it does not exist yet. Throws with the output of the script. */
export async function prepareGuest(): Promise<void> {
  const { status, output } = await run('bash', [join(import.meta.dirname, 'prepare-guest.sh'), CACHE])
  if (status !== 0) throw new Error(`the guest cannot be made: ${output}`)
}

/**
 * The environment of a guest with many processes. It makes Node on the host compile the modules that Node in the guest
 * loads, since under emulation that takes seconds for each process. Throws with the output of Node.
 */
async function largeGuest(): Promise<NodeJS.ProcessEnv> {
  const folder = join(CACHE, 'compiled')
  const program = join(import.meta.dirname, 'load-modules.ts')
  const { status, output } = await run(NODE, [program], { NODE_COMPILE_CACHE: folder })
  if (status !== 0) throw new Error(`the modules cannot be loaded: ${output}`)
  return { GUEST_MEMORY: String(LARGE_MIB), GUEST_COMPILED: folder }
}

/** Runs a command in a guest that has been prepared. */
export function runInGuest(...words: readonly string[]): Promise<Ended> {
  return run('bash', [join(import.meta.dirname, 'run-in-guest.sh'), CACHE, ...words])
}

interface SuiteInit {
  /** The test file. Absent: test/netns/NAME.test.ts. */
  readonly file?: string
  /** Whether the guest runs many processes. */
  readonly isLarge?: boolean
  /** For how many seconds the guest may run. Default: GUEST_SECONDS. */
  readonly seconds?: number
}

/** Makes a test: the file passes in a guest, and skips nothing. */
export function guestSuite(name: string, init: SuiteInit = {}): void {
  t.setTimeout(0)
  void t.test(`${name}, in a guest`, (t) => suite(t, { file: join('test', 'netns', `${name}.test.ts`), ...init }))
}

async function suite(t: Test, { file, isLarge, seconds }: SuiteInit & { readonly file: string }): Promise<void> {
  t.ok(existsSync(join(ROOT, file)), `${file} exists`)
  await prepareGuest()
  const settings = {
    ...(isLarge === true ? await largeGuest() : {}),
    ...(seconds === undefined ? {} : { GUEST_TIMEOUT: String(seconds) }),
  }
  const script = [join(import.meta.dirname, 'run-in-guest.sh'), CACHE, NODE, file]
  const { status, output } = await run('bash', script, settings)
  t.equal(status, 0, output.split('\n').slice(-60).join('\n'))
  for (const [, figures = ''] of output.matchAll(/^ *# figures: (.*)$/gm)) t.comment(figures)
  const counted = /# \{ total: (\d+), pass: (\d+)/.exec(output)
  t.ok(Number(counted?.[2] ?? 0) > 0, `assertions passed in the guest: ${counted?.[2] ?? 'none'}`)
  t.notMatch(output, /# SKIP/, 'nothing is skipped in the guest')
}

function run(command: string, args: readonly string[], more: NodeJS.ProcessEnv = {}): Promise<Ended> {
  return new Promise((resolve) => {
    const env = { ...process.env, GUEST_TIMEOUT: GUEST_SECONDS, ...more }
    const child = spawn(command, args, { cwd: ROOT, env, stdio: ['ignore', 'pipe', 'pipe'] })
    let output = ''
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (chunk: Buffer) => (output += chunk.toString()))
    child.on('close', (status) => resolve({ status: status ?? 125, output }))
  })
}
