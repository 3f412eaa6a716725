/**
 * The suites that touch the kernel, once more against a stock Debian kernel with its own WireGuard, in a virtual
 * machine without hardware acceleration. Each has a guest of its own.
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

interface Ended {
  readonly status: number
  readonly output: string
}

/** Makes the guest where there is none yet. Throws with what the script said. */
export async function prepareGuest(): Promise<void> {
  const { status, output } = await run('bash', [join(import.meta.dirname, 'prepare-guest.sh'), CACHE])
  if (status !== 0) throw new Error(`the guest cannot be made: ${output}`)
}

/** Runs a command in a guest that has been prepared. */
export function runInGuest(...words: readonly string[]): Promise<Ended> {
  return run('bash', [join(import.meta.dirname, 'run-in-guest.sh'), CACHE, ...words])
}

/** A test: test/netns/NAME.test.ts passes in a guest, and skips nothing. */
export function guestSuite(name: string): void {
  t.setTimeout(0)
  void t.test(`${name}, in a guest`, (t) => suite(t, join('test', 'netns', `${name}.test.ts`)))
}

async function suite(t: Test, file: string): Promise<void> {
  t.ok(existsSync(join(ROOT, file)), `${file} exists`)
  await prepareGuest()
  const { status, output } = await runInGuest(NODE, file)
  t.equal(status, 0, output.split('\n').slice(-60).join('\n'))
  const counted = /# \{ total: (\d+), pass: (\d+)/.exec(output)
  t.ok(Number(counted?.[2] ?? 0) > 0, `assertions passed in the guest: ${counted?.[2] ?? 'none'}`)
  t.notMatch(output, /# SKIP/, 'nothing is skipped in the guest')
}

function run(command: string, args: readonly string[]): Promise<Ended> {
  return new Promise((resolve) => {
    const env = { ...process.env, GUEST_TIMEOUT: GUEST_SECONDS }
    const child = spawn(command, args, { cwd: ROOT, env, stdio: ['ignore', 'pipe', 'pipe'] })
    let output = ''
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (chunk: Buffer) => (output += chunk.toString()))
    child.on('close', (status) => resolve({ status: status ?? 125, output }))
  })
}
