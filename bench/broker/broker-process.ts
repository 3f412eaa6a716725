/** A measured broker: the compiled product in a process of its own, with a state folder of its own. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { eventually } from '../../test/support/eventually.ts'
import { freePort } from '../../test/support/free-port.ts'
import { cpuMs } from './measured-process.ts'

/** The flags with which bin/sealane starts Node. */
const NODE_FLAGS = ['--max-semi-space-size=8', '--heap-growing-percent=20', '--disable-warning=ExperimentalWarning']
const NODE_ENV = { MALLOC_ARENA_MAX: '2' }
const READY_MS = 120_000

export interface BrokerProcessInit {
  /** The folder of the compiled product. */
  readonly product: string
  readonly folder: string
  readonly state: string
  readonly port: number
  /** The flags of a replica, added to those of a single broker. */
  readonly flags: readonly string[]
}

export class BrokerProcess {
  readonly #init: BrokerProcessInit
  readonly #status: number
  #child: ChildProcess | undefined
  /** The processor time of the previous processes. */
  #spentMs = 0

  private constructor(init: BrokerProcessInit, status: number) {
    this.#init = init
    this.#status = status
  }

  static async prepare(init: BrokerProcessInit): Promise<BrokerProcess> {
    return new BrokerProcess(init, await freePort())
  }

  get pid(): number {
    return this.#child?.pid ?? 0
  }

  get isRunning(): boolean {
    const child = this.#child
    return child !== undefined && child.exitCode === null && child.signalCode === null
  }

  /** The processor time, with that of the processes before this one. */
  get cpuMs(): number {
    return this.#spentMs + (this.isRunning ? cpuMs(this.pid) : 0)
  }

  /** Starts it without waiting for ready(). */
  start(): void {
    const { product, folder, state, port, flags } = this.#init
    const all = [
      ...['broker', 'serve', '--state', state, '--clusterset', 'bench', '--log-level', 'error'],
      ...['--listen', `127.0.0.1:${port}`, '--status-listen', `127.0.0.1:${this.#status}`, ...flags],
    ]
    const more = (process.env['SEALANE_BENCH_BROKER_FLAGS'] ?? '').split(' ').filter((flag) => flag !== '')
    const argv = [...NODE_FLAGS, ...more, join(product, 'cli', 'main.js'), ...all]
    this.#child = spawn(process.execPath, argv, {
      cwd: folder,
      env: { ...process.env, ...NODE_ENV },
      stdio: ['ignore', 'ignore', 'inherit'],
    })
  }

  async ready(): Promise<void> {
    const ready = async (): Promise<boolean> => (await fetch(`http://127.0.0.1:${this.#status}/readyz`)).ok
    await eventually(ready, { deadlineMs: READY_MS, say: 'the broker is ready' })
  }

  /** Kills it as a loss of power would; resolves once the process is gone. */
  async kill(): Promise<void> {
    const child = this.#child
    if (child === undefined || !this.isRunning) return
    this.#spentMs += cpuMs(this.pid)
    child.kill('SIGKILL')
    await once(child, 'exit')
  }
}
