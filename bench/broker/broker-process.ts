/** The broker under measurement: the compiled product in a process of its own, on a state folder of its own. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openBrokerStore } from '../../broker/state/broker-store.ts'
import { parseJoinToken } from '../../protocol/identity/token.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { compileProduct } from '../../scripts/compile-product.ts'
import { eventually } from '../../test/support/eventually.ts'
import { freePort } from '../../test/support/free-port.ts'

const ROOT = join(import.meta.dirname, '..', '..')
/** As bin/sealane starts Node. */
const NODE_FLAGS = ['--max-semi-space-size=2', '--heap-growing-percent=20', '--disable-warning=ExperimentalWarning']
const READY_MS = 120_000

export class BrokerProcess {
  readonly folder = mkdtempSync(join(tmpdir(), 'sealane-bench-broker-'))
  readonly state = join(this.folder, 'state')
  /** Where the packages that it needs are found from. */
  readonly #product = join(ROOT, 'node_modules', '.cache', `sealane-bench-broker-${process.pid}`)
  readonly #status: number
  readonly port: number
  #child: ChildProcess | undefined

  private constructor(port: number, status: number) {
    this.port = port
    this.#status = status
  }

  static async prepare(): Promise<BrokerProcess> {
    const broker = new BrokerProcess(await freePort(), await freePort())
    if (compileProduct(broker.#product)) return broker
    await broker.remove()
    throw new Error('the product does not compile')
  }

  get pid(): number {
    return this.#child?.pid ?? 0
  }

  get address(): string {
    return `127.0.0.1:${this.port}`
  }

  /** Does not wait: ready() does. */
  start(): void {
    const flags = [
      ...['broker', 'serve', '--state', this.state, '--clusterset', 'bench', '--log-level', 'error'],
      ...['--listen', this.address, '--advertise', this.address, '--status-listen', `127.0.0.1:${this.#status}`],
    ]
    const main = join(this.#product, 'cli', 'main.js')
    const more = (process.env['SEALANE_BENCH_BROKER_FLAGS'] ?? '').split(' ').filter((flag) => flag !== '')
    this.#child = spawn(process.execPath, [...NODE_FLAGS, ...more, main, ...flags], {
      cwd: this.folder,
      stdio: ['ignore', 'ignore', 'inherit'],
    })
  }

  async ready(): Promise<void> {
    const ready = async (): Promise<boolean> => (await fetch(`http://127.0.0.1:${this.#status}/readyz`)).ok
    await eventually(ready, { deadlineMs: READY_MS, say: 'the broker is ready' })
  }

  /** As a machine that loses power; the process is gone then. */
  async kill(signal: 'SIGKILL' | 'SIGTERM' = 'SIGKILL'): Promise<void> {
    const child = this.#child
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return
    child.kill(signal)
    await once(child, 'exit')
  }

  /** Secrets of tokens that are good for so many joins together. */
  async secrets(joins: number): Promise<string[]> {
    const USES = 10
    const store = await openBrokerStore(this.state, new SystemClock())
    try {
      const secrets: string[] = []
      while (secrets.length < joins) {
        const { text } = await store.create({ uses: USES, ttlMs: 3_600_000 })
        secrets.push(...Array.from({ length: USES }, () => parseJoinToken(text, Date.now()).secret()))
      }
      return secrets.slice(0, joins)
    } finally {
      await store.close()
    }
  }

  async remove(): Promise<void> {
    await this.kill()
    for (const folder of [this.folder, this.#product]) rmSync(folder, { recursive: true, force: true })
  }
}
