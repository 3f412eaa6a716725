/** The bulk program of two pods (stream.ts), and what its receiver has seen. */
import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { eventually } from '../support/eventually.ts'
import type { Netns } from '../support/netns.ts'
import type { Received } from './stream.ts'

const PROGRAM = join(import.meta.dirname, 'stream.ts')

class Program {
  readonly #child: ChildProcess
  readonly #waiting: ((line: string) => void)[] = []
  readonly started: Promise<unknown>

  constructor(pod: Netns, ...args: readonly string[]) {
    const inside = ['netns', 'exec', pod.name, process.execPath, PROGRAM, ...args]
    this.#child = spawn('ip', inside, { stdio: ['pipe', 'pipe', 'inherit'] })
    this.#child.stdin?.on('error', () => undefined)
    createInterface({ input: this.#child.stdout! }).on('line', (line) => this.#waiting.shift()?.(line))
    this.started = this.line()
  }

  ask(): Promise<string> {
    const line = this.line()
    this.#child.stdin?.write('\n')
    return line
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    const ended = new Promise((resolve) => this.#child.once('exit', resolve))
    this.#child.stdin?.end()
    await ended
  }

  line(): Promise<string> {
    return new Promise((resolve) => this.#waiting.push(resolve))
  }
}

/** A stream from one pod to another, until it is stopped. */
export class Stream {
  readonly #receiver: Program
  readonly #sender: Program

  private constructor(receiver: Program, sender: Program) {
    this.#receiver = receiver
    this.#sender = sender
  }

  /** `address` is that of `to`, as `from` calls it. Resolves once data flows. */
  static async start(kind: 'tcp' | 'udp', from: Netns, to: Netns, address: string): Promise<Stream> {
    const receiver = new Program(to, 'receive')
    await receiver.started
    const sender = new Program(from, 'send', address, kind)
    await sender.started
    const stream = new Stream(receiver, sender)
    await eventually(async () => (await stream.received()).bytes > 0, { deadlineMs: 10_000, say: `${kind} flows` })
    return stream
  }

  /** What the receiver has seen since the last call. */
  async received(): Promise<Received> {
    return JSON.parse(await this.#receiver.ask()) as Received
  }

  async stop(): Promise<void> {
    await Promise.all([this.#sender.stop(), this.#receiver.stop()])
  }
}
