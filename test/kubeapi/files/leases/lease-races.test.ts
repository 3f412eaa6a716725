/** Several processes that share a state folder write the same Lease: no write is lost, and no two processes hold it. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { eventually } from '../../../support/eventually.ts'
import { FileSite } from '../file-site.ts'
import { SHARED_LEASE, numberOf } from './lease-process.ts'

const PROGRAM = join(import.meta.dirname, 'lease-process.ts')
/** The time between stopping the process and resuming it. */
const DOZE_MS = 30
const { signal } = new AbortController()

class Racer {
  readonly process: ChildProcess
  #said = ''

  constructor(t: Test, mode: 'count' | 'hold' | 'remove', state: string, turns: number) {
    this.process = spawn(process.execPath, [PROGRAM, mode, state, String(turns)], { stdio: ['ignore', 'pipe', 'pipe'] })
    this.process.stdout?.on('data', (data: Buffer) => (this.#said += data.toString()))
    let errors = ''
    this.process.stderr?.on('data', (data: Buffer) => (errors += data.toString()))
    this.process.on('exit', (code) => {
      if (code !== 0 && code !== null) t.fail(errors)
    })
    t.teardown(() => this.process.kill('SIGKILL'))
  }

  times(word: string): number {
    return this.#said.split('\n').filter((line) => line === word).length
  }

  async ended(): Promise<void> {
    if (this.process.exitCode === null && this.process.signalCode === null) await once(this.process, 'exit')
  }

  /** Stops the process at arbitrary moments and resumes it, until it ends. */
  async doze(): Promise<void> {
    let sleeps = false
    const turning = setInterval(() => {
      sleeps = !sleeps
      this.process.kill(sleeps ? 'SIGSTOP' : 'SIGCONT')
    }, DOZE_MS)
    await this.ended()
    clearInterval(turning)
  }
}

t.test('what many add is all there, also where one is killed and one is stopped again and again', async (t) => {
  const site = new FileSite(t)
  const racers = Array.from({ length: 4 }, () => new Racer(t, 'count', site.state, 80))
  const [victim, sleeper] = racers as [Racer, Racer, ...Racer[]]
  await eventually(() => victim.times('counted') >= 20, { deadlineMs: 60_000, intervalMs: 5, say: 'the race is on' })
  victim.process.kill('SIGKILL')
  await Promise.all([sleeper.doze(), ...racers.map((racer) => racer.ended())])
  t.equal(victim.process.signalCode, 'SIGKILL', 'the race was not over')
  const lease = await site.open().leases.read(SHARED_LEASE, signal)
  const counted = racers.reduce((sum, racer) => sum + racer.times('counted'), 0)
  const number = numberOf(lease)
  t.ok(
    number === counted || number === counted + 1,
    `${number} of ${counted} reported; one write of the dead may be unreported`,
  )
  t.equal(lease?.metadata.resourceVersion, String(number), 'each version added one')
  t.same(site.warnings(), [])
})

t.test('two never hold it at once', async (t) => {
  const site = new FileSite(t)
  const racers = Array.from({ length: 4 }, () => new Racer(t, 'hold', site.state, 25))
  const [sleeper] = racers as [Racer, ...Racer[]]
  await eventually(() => racers.every((racer) => racer.times('held') > 0), { deadlineMs: 60_000, intervalMs: 5 })
  // While the stopped process holds the Lease, no other process continues.
  await Promise.all([sleeper.doze(), ...racers.map((racer) => racer.ended())])
  for (const [i, racer] of racers.entries()) {
    t.equal(racer.times('held'), 25, `process ${i} had all its turns`)
    t.equal(racer.times('both'), 0, 'never beside another one')
    t.equal(racer.times('taken away'), 0, 'and nobody wrote meanwhile')
  }
})

t.test('it can be removed while others write it', async (t) => {
  const site = new FileSite(t)
  const writers = Array.from({ length: 3 }, () => new Racer(t, 'count', site.state, 100_000))
  await eventually(() => writers.every((racer) => racer.times('counted') > 0), { deadlineMs: 60_000 })
  const removers = Array.from({ length: 2 }, () => new Racer(t, 'remove', site.state, 300))
  await Promise.all(removers.map((racer) => racer.ended()))
  for (const racer of removers) t.equal(racer.times('removed'), 300)
})
