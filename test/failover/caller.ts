/** Runs the traffic program of a pod (load.ts), and reads what it has seen. */
import type { ChildProcess } from 'node:child_process'
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { eventually } from '../support/eventually.ts'
import type { Netns } from '../support/netns.ts'
import type { Seen } from './load.ts'

const PROGRAM = join(import.meta.dirname, 'load.ts')

export interface Load {
  readonly flows: number
  /** Datagrams a second, over all flows. */
  readonly pps: number
  readonly connections: number
  /** The milliseconds between two writes of a connection. Absent: 20. */
  readonly byteMs?: number
  /** The octets of one write. Absent: 1. */
  readonly chunk?: number
  /** The octets of a datagram. Absent: 64. */
  readonly bytes?: number
}

/**
 * Enough load to see that a connection breaks and that a gateway carries, while other tests run on this machine. The
 * packets are few, since each costs the same whatever its length, and long, so that they outweigh the probes.
 */
export const LIGHT_LOAD: Load = { flows: 20, pps: 50, connections: 5, byteMs: 200, bytes: 1000 }

export class Caller {
  readonly #child: ChildProcess
  readonly #waiting: ((line: string) => void)[] = []
  readonly started: Promise<unknown>

  constructor(pod: Netns, address: string, { flows, pps, connections, byteMs = 20, bytes = 64, chunk = 1 }: Load) {
    const args = [PROGRAM, 'call', address, ...[flows, pps, connections, byteMs, bytes, chunk].map(String)]
    const inside = ['netns', 'exec', pod.name, process.execPath, ...args]
    this.#child = spawn('ip', inside, { stdio: ['pipe', 'pipe', 'inherit'] })
    this.#child.stdin?.on('error', () => undefined)
    createInterface({ input: this.#child.stdout! }).on('line', (line) => this.#waiting.shift()?.(line))
    this.started = this.#line()
  }

  /** What the program has seen since the last call. */
  async seen(): Promise<Seen> {
    const line = this.#line()
    this.#child.stdin?.write('\n')
    return JSON.parse(await line) as Seen
  }

  async stop(): Promise<void> {
    const ended = new Promise((resolve) => this.#child.once('exit', resolve))
    this.#child.stdin?.end()
    await ended
  }

  #line(): Promise<string> {
    return new Promise((resolve) => this.#waiting.push(resolve))
  }
}

/** Starts the answering program in a pod; it ends with the namespace. */
export async function answerIn(pod: Netns): Promise<void> {
  const server = pod.spawn(process.execPath, [PROGRAM, 'serve'])
  await new Promise((resolve) => server.stdout?.once('data', resolve))
}

/** Waits until nearly all datagrams of an interval are answered, for each caller. */
export async function untilFlowing(callers: readonly Caller[], say: string): Promise<void> {
  await eventually(
    async () => {
      const seen = await Promise.all(callers.map((caller) => caller.seen()))
      if (seen.every(({ sent, answered }) => sent > 20 && answered > 0.9 * sent)) return true
      throw new Error(JSON.stringify(seen))
    },
    { deadlineMs: 40_000, intervalMs: 500, say: `traffic flows ${say}` },
  )
}

/** How many connections of each caller have ended. */
export async function brokenOf(callers: readonly Caller[]): Promise<number[]> {
  return (await Promise.all(callers.map((caller) => caller.seen()))).map(({ broken }) => broken)
}
