/**
 * The suites that touch the kernel, once more against a stock Debian kernel with its own WireGuard, in a virtual
 * machine without hardware acceleration. Each file has a guest of its own.
 */
import { spawn } from 'node:child_process'
import { existsSync, readdirSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'

const ROOT = join(import.meta.dirname, '..', '..')
const CACHE = join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'sealane', 'guest')
const NODE = join(ROOT, 'node_modules', 'node', 'bin', 'node')
/** Emulation is 5 to 40 times slower than the host. */
const GUEST_SECONDS = '420'

const SUITES = [
  ...readdirSync(join(ROOT, 'test', 'netns')).filter((name) => /^kernel-.*\.test\.ts$/.test(name)),
  'gateway-lanes.test.ts',
  'gateway-restarts.test.ts',
].sort()

function run(command: string, args: readonly string[]): Promise<{ status: number; output: string }> {
  return new Promise((resolve) => {
    const env = { ...process.env, GUEST_TIMEOUT: GUEST_SECONDS }
    const child = spawn(command, args, { cwd: ROOT, env, stdio: ['ignore', 'pipe', 'pipe'] })
    let output = ''
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (chunk: Buffer) => (output += chunk.toString()))
    child.on('close', (status) => resolve({ status: status ?? 125, output }))
  })
}

t.setTimeout(0)

t.test('the guest has a stock kernel with WireGuard', async (t) => {
  const prepared = await run('bash', [join(import.meta.dirname, 'prepare-guest.sh'), CACHE])
  t.equal(prepared.status, 0, prepared.output)
  const script = 'uname -r; ip link add probe type wireguard && wg show interfaces'
  const looked = await run('bash', [join(import.meta.dirname, 'run-in-guest.sh'), CACHE, 'sh', '-c', script])
  t.equal(looked.status, 0, looked.output)
  t.match(looked.output, /-amd64\s+probe/)
})

for (const suite of SUITES) {
  t.test(suite, async (t) => {
    const file = join('test', 'netns', suite)
    t.ok(existsSync(join(ROOT, file)), `${file} exists`)
    const done = await run('bash', [join(import.meta.dirname, 'run-in-guest.sh'), CACHE, NODE, file])
    t.equal(done.status, 0, done.output.split('\n').slice(-60).join('\n'))
    const counted = /# \{ total: (\d+), pass: (\d+)/.exec(done.output)
    t.ok(Number(counted?.[2] ?? 0) > 0, `assertions passed in the guest: ${counted?.[2] ?? 'none'}`)
    t.notMatch(done.output, /# SKIP/, 'nothing is skipped in the guest')
  })
}
