/** The traffic program of a pod (load.ts), and what it has seen. */
import type { ChildProcess } from 'node:child_process'
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Netns } from '../support/netns.ts'
import type { Seen } from './load.ts'

const PROGRAM = join(import.meta.dirname, 'load.ts')

export interface Load {
  readonly flows: number
  /** Datagrams a second, over all flows. */
  readonly pps: number
  readonly connections: number
  /** Between two bytes of a connection; 20 where absent. */
  readonly byteMs?: number
}

export class Caller {
  readonly #child: ChildProcess
  readonly #waiting: ((line: string) => void)[] = []
  readonly started: Promise<unknown>

  constructor(pod: Netns, address: string, { flows, pps, connections, byteMs = 20 }: Load) {
    const args = [PROGRAM, 'call', address, ...[flows, pps, connections, byteMs].map(String)]
    const inside = ['netns', 'exec', pod.name, process.execPath, ...args]
    this.#child = spawn('ip', inside, { stdio: ['pipe', 'pipe', 'inherit'] })
    this.#child.stdin?.on('error', () => undefined)
    createInterface({ input: this.#child.stdout! }).on('line', (line) => this.#waiting.shift()?.(line))
    this.started = this.#line()
  }

  /** Since the last call of it. */
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

/** Starts what answers in a pod; it ends with the namespace. */
export async function answerIn(pod: Netns): Promise<void> {
  const server = pod.spawn(process.execPath, [PROGRAM, 'serve'])
  await new Promise((resolve) => server.stdout?.once('data', resolve))
}
