/** `sealane broker serve --audit-log` as a process: its two outputs, its signals and its environment. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { openBrokerStore } from '../../support/broker-store.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { runCli } from '../../cli/run-cli.ts'
import { eventually } from '../../support/eventually.ts'
import { freePort } from '../../support/free-port.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { readLines, shortLine } from './audit-lines.ts'

t.setTimeout(60_000)

const LAUNCHER = join(import.meta.dirname, '../../../bin/sealane')

interface Serving {
  readonly child: ChildProcess
  readonly state: string
  readonly stdout: () => string
  readonly stop: () => Promise<number | null>
}

async function serve(t: Test, args: readonly string[], env: Record<string, string> = {}): Promise<Serving> {
  const state = join(temporaryFolder(t), 'state')
  const address = `127.0.0.1:${await freePort()}`
  const words = ['broker', 'serve', '--state', state, '--listen', address, '--advertise', address]
  const child = spawn(LAUNCHER, [...words, '--status-listen', '127.0.0.1:0', ...args], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  t.teardown(() => child.kill('SIGKILL'))
  const said = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const)
    child[name].setEncoding('utf8').on('data', (text: string) => (said[name] += text))
  const ended = once(child, 'exit') as Promise<[number | null]>
  await eventually(() => said.stderr.includes('"msg":"listening"'), { deadlineMs: 20_000, say: 'it listens' })
  const stop = async (): Promise<number | null> => {
    child.kill('SIGTERM')
    return (await ended)[0]
  }
  return { child, state, stdout: () => said.stdout, stop }
}

async function create(state: string): Promise<string> {
  const store = await openBrokerStore(state, new SystemClock())
  try {
    return (await store.create({})).id
  } finally {
    await store.close()
  }
}

t.test('standard output has the audit log, and nothing else', async (t) => {
  const serving = await serve(t, [], { SEALANE_AUDIT_LOG: '-' })
  const id = await create(serving.state)
  await eventually(() => serving.stdout().includes(id))
  t.equal(await serving.stop(), 0)
  t.same(readLines(serving.stdout()).map(shortLine), [
    'broker.start ok default',
    `token.create ok ${id}`,
    'broker.stop ok default',
  ])
})

t.test('a file that was moved, and a hangup', async (t) => {
  const file = join(temporaryFolder(t), 'audit.log')
  const { child, state, stop, stdout } = await serve(t, ['--audit-log', file])
  await eventually(() => existsSync(file) && readFileSync(file, 'utf8').includes('broker.start'))
  renameSync(file, `${file}.1`)
  child.kill('SIGHUP')
  await eventually(() => existsSync(file), { say: 'a new one, without any line' })
  const id = await create(state)
  await eventually(() => readFileSync(file, 'utf8').includes(id))
  t.equal(await stop(), 0)
  t.equal(stdout(), '')
})

const off: readonly (readonly [say: string, args: readonly string[], env: string])[] = [
  ['the flag goes before the environment', ['--audit-log', 'off'], '-'],
  ['an environment that says nothing', [], ''],
]
for (const [say, args, env] of off) {
  t.test(`no audit log: ${say}`, async (t) => {
    const { stop, stdout } = await serve(t, args, { SEALANE_AUDIT_LOG: env })
    t.equal(await stop(), 0)
    t.equal(stdout(), '')
  })
}

const wrong: readonly (readonly [args: readonly string[], want: string])[] = [
  [['--audit-log', ''], '--audit-log "": expected a file, "-" or "off"'],
  [['--audit-log-size', '1.5'], '--audit-log-size "1.5": expected 0 to 1000000'],
  [['--audit-log-keep', '0'], '--audit-log-keep "0": expected 1 to 1000'],
]
t.test('values that are none', async (t) => {
  for (const [args, want] of wrong) {
    const { code, stderr } = await runCli(['broker', 'serve', '--advertise', '192.0.2.1:7443', ...args])
    t.equal(code, 2)
    t.ok(stderr.includes(want), stderr)
  }
})
