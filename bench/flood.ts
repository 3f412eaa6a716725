/**
 * `npm run bench:flood -- [--json] [--only NAME,…] [--seconds N]`: how long a change takes from one honest member's
 * Publish to another's Watch, without a flood and under each one, and how much memory the broker takes. Each flood has
 * a broker of its own and runs in a child process; publisher and watcher run in this process and read one clock. A
 * third member reconnects each half second, and one cluster joins with a valid token: those that were not let in within
 * 10 s are counted.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { eventually } from '../test/support/eventually.ts'
import { freePort } from '../test/support/free-port.ts'
import { type RawBroker, type RawIdentity, openChannel } from '../test/hostile/support/raw-channel.ts'
import { rawJoin } from '../test/hostile/support/raw-join.ts'
import { RawPublish } from '../test/hostile/support/raw-publish.ts'
import { sayingRecord } from '../test/hostile/support/raw-records.ts'
import { RawWatch } from '../test/hostile/support/raw-watch.ts'
import { percentile, round, progress } from './figures.ts'
import { FLOODS } from './flood/floods.ts'

const EVERY_MS = 25
const MB = 1_000_000

interface Figures {
  readonly p99Ms: number
  readonly calmP99Ms: number
  readonly rssPeakMb: number
  readonly rssAfterMb: number
  /** The longest time until a member, or a cluster with a valid token, was let in meanwhile. */
  readonly letInMs: number
  readonly lockedOut: number
}

async function main(): Promise<void> {
  const options = {
    json: { type: 'boolean' },
    only: { type: 'string', default: '' },
    seconds: { type: 'string', default: '10' },
  } as const
  const { values } = parseArgs({ options })
  const names = values.only === '' ? Object.keys(FLOODS) : values.only.split(',')
  const result: Record<string, Figures> = {}
  for (const name of names) {
    result[name] = await measure(name, Number(values.seconds) * 1000)
    console.error(line(name, result[name]))
  }
  progress(result, names.map((name) => line(name, result[name])).join('\n'))
}

function line(name: string, figures: Figures | undefined): string {
  return `${name}: ${JSON.stringify(figures)}`
}

async function measure(flood: string, ms: number): Promise<Figures> {
  const folder = mkdtempSync(join(tmpdir(), 'sealane-bench-flood-'))
  const children: ChildProcess[] = []
  const stop = (): void => {
    for (const child of children) child.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  }
  const interrupted = (): void => {
    stop()
    process.exit(130)
  }
  process.once('SIGINT', interrupted).once('SIGTERM', interrupted)
  try {
    const { broker, child } = await startBroker(folder)
    children.push(child)
    const memory = new Memory(child.pid ?? 0)
    const honest = await Honest.start(broker)
    await sleep(1000)
    const calm = await honest.during(ms / 2)
    const member = await rawJoin(broker, 'attacker')
    const args = [join(import.meta.dirname, 'flood/client.ts'), JSON.stringify({ flood, broker, member, ms: ms + 500 })]
    const attacker = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] })
    children.push(attacker)
    memory.reset()
    const ended = once(attacker, 'exit')
    const comers = new Comers(broker, honest.third)
    const flooded = await honest.during(ms)
    const { letInMs, lockedOut } = await comers.stop()
    await ended
    const after = await memory.after()
    honest.stop()
    return {
      p99Ms: round(percentile(flooded, 0.99), 1),
      calmP99Ms: round(percentile(calm, 0.99), 1),
      rssPeakMb: Math.round(memory.peak),
      rssAfterMb: Math.round(after),
      letInMs: Math.round(letInMs),
      lockedOut,
    }
  } finally {
    process.off('SIGINT', interrupted).off('SIGTERM', interrupted)
    stop()
    for (const child of children) if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
  }
}

async function startBroker(folder: string): Promise<{ readonly broker: RawBroker; readonly child: ChildProcess }> {
  const [port, status] = [await freePort(), await freePort()]
  const broker = { address: `127.0.0.1:${port}`, state: join(folder, 'state') }
  const child = spawn(
    join(import.meta.dirname, '../bin/sealane'),
    [
      ...['broker', 'serve', '--state', broker.state, '--clusterset', 'demo', '--log-level', 'error'],
      ...['--listen', broker.address, '--advertise', broker.address, '--status-listen', `127.0.0.1:${status}`],
    ],
    { stdio: ['ignore', 'ignore', 'inherit'] },
  )
  const ready = async (): Promise<boolean> => (await fetch(`http://127.0.0.1:${status}/readyz`)).ok
  await eventually(ready, { deadlineMs: 30_000, say: 'the broker is ready' })
  return { broker, child }
}

/** A publisher and a watcher, with a change each 25 ms, whether or not the previous one has arrived. */
class Honest {
  readonly third: RawIdentity
  readonly #publish: RawPublish
  readonly #sent = new Map<number, number>()
  #took: number[] = []
  #next = 1
  readonly #close: () => void

  private constructor(broker: RawBroker, [first, second, third]: readonly RawIdentity[]) {
    if (first === undefined || second === undefined || third === undefined) throw new Error('three members are needed')
    const channels = [openChannel(broker, first), openChannel(broker, second)] as const
    this.third = third
    this.#publish = new RawPublish(channels[0])
    new RawWatch(channels[1], (message) => {
      if (message.message?.$case === 'batch') for (const event of message.message.value.events) this.#seen(event)
    })
    this.#close = () => channels.forEach((channel) => channel.close())
  }

  static async start(broker: RawBroker): Promise<Honest> {
    const members = [await rawJoin(broker, 'milano'), await rawJoin(broker, 'paris'), await rawJoin(broker, 'tokyo')]
    const honest = new Honest(broker, members)
    await honest.#publish.open()
    return honest
  }

  /** How long each change of this time took to arrive; a change that has not arrived 15 s later counts as 15 s. */
  async during(ms: number): Promise<number[]> {
    this.#took = []
    this.#sent.clear()
    const end = performance.now() + ms
    for (let due = performance.now(); due < end; due += EVERY_MS) {
      if (this.#publish.status !== undefined)
        throw new Error(`the honest stream ended: ${this.#publish.status.details}`)
      this.#sent.set((this.#next += 1), performance.now())
      this.#publish.sendPut(sayingRecord('honest', `number ${this.#next} `))
      await sleep(Math.max(0, due + EVERY_MS - performance.now()))
    }
    await eventually(() => this.#sent.size === 0, { deadlineMs: 15_000 }).catch(() => undefined)
    return [...this.#took, ...[...this.#sent].map(() => 15_000)]
  }

  stop(): void {
    this.#close()
  }

  /** A watcher may get only the latest state, and then all changes before it count as arrived. */
  #seen(event: Uint8Array): void {
    const number = Number(/number (\d+) /.exec(Buffer.from(event).toString('latin1'))?.[1])
    for (const [sent, at] of this.#sent) {
      if (sent > number) break
      this.#took.push(performance.now() - at)
      this.#sent.delete(sent)
    }
  }
}

/** A member that reconnects each half second, and a cluster that joins every two seconds. */
class Comers {
  readonly #running: Promise<unknown>
  #stopping = false
  #longest = 0
  #lockedOut = 0

  constructor(broker: RawBroker, member: RawIdentity) {
    const members = this.#repeat(500, () => this.#reconnect(broker, member))
    const joining = this.#repeat(2000, (i) => retrying(() => rawJoin(broker, `joiner-${i}`)))
    this.#running = Promise.all([members, joining])
  }

  async stop(): Promise<{ readonly letInMs: number; readonly lockedOut: number }> {
    this.#stopping = true
    await this.#running
    return { letInMs: this.#longest, lockedOut: this.#lockedOut }
  }

  async #repeat(everyMs: number, work: (i: number) => Promise<unknown>): Promise<void> {
    for (let i = 1; !this.#stopping; i += 1) {
      const begun = performance.now()
      await work(i).catch(() => (this.#lockedOut += 1))
      this.#longest = Math.max(this.#longest, performance.now() - begun)
      await sleep(Math.max(0, begun + everyMs - performance.now()))
    }
  }

  /** Reconnects with the retries of a client that is not let in at once. */
  async #reconnect(broker: RawBroker, member: RawIdentity): Promise<void> {
    await retrying(async () => {
      const channel = openChannel(broker, member)
      try {
        const seen = new Set<string | undefined>()
        const watch = new RawWatch(channel, ({ message }) => seen.add(message?.$case))
        const over = (): boolean => seen.has('synced') || watch.status !== undefined
        await eventually(over, { deadlineMs: 10_000, intervalMs: 5 })
        if (!seen.has('synced')) throw new Error(watch.status?.details)
      } finally {
        channel.close()
      }
    })
  }
}

async function retrying(work: () => Promise<unknown>): Promise<void> {
  const end = performance.now() + 10_000
  for (;;) {
    try {
      await work()
      return
    } catch (error) {
      if (performance.now() > end) throw error
      await sleep(200)
    }
  }
}

/** The memory of the process by the kernel, in MB. */
class Memory {
  peak = 0
  readonly #pid: number

  constructor(pid: number) {
    this.#pid = pid
  }

  /** Restarts the peak from the present memory. */
  reset(): void {
    this.peak = this.#read('VmRSS')
    const sample = setInterval(() => {
      try {
        this.peak = Math.max(this.peak, this.#read('VmRSS'))
      } catch {
        clearInterval(sample)
      }
    }, 50)
    sample.unref()
  }

  /** The least memory in the following 15 s, by when freed memory has been returned. */
  async after(): Promise<number> {
    let least = Infinity
    for (let i = 0; i < 15; i += 1) {
      least = Math.min(least, this.#read('VmRSS'))
      await sleep(1000)
    }
    return least
  }

  #read(what: string): number {
    const text = readFileSync(`/proc/${this.#pid}/status`, 'utf8')
    return (Number(new RegExp(`${what}:\\s+(\\d+)`).exec(text)?.[1]) * 1024) / MB
  }
}

await main()
