/** The measured brokers: one on SQLite, or several on an etcd of three members. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openBrokerStore } from '../../test/support/broker-store.ts'
import { parseJoinToken } from '../../protocol/identity/token.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { compileProduct } from '../../scripts/compile-product.ts'
import { startEtcdCluster } from '../../test/etcd/support/etcd-cluster.ts'
import { freePort } from '../../test/support/free-port.ts'
import { BrokerProcess } from './broker-process.ts'
import { residentMb } from './measured-process.ts'
import type { BenchOptions } from './options.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const PREFIX = '/sealane/bench'
/** The number of uses of each token. */
const USES = 10
/** The limit is above the number of members, which is what is measured. */
const MAX_MEMBERS = 4000

export class Brokers {
  readonly folder = mkdtempSync(join(tmpdir(), 'sealane-bench-broker-'))
  /** The packages that the product needs are found from this folder. */
  readonly #product = join(ROOT, 'node_modules', '.cache', `sealane-bench-broker-${process.pid}`)
  readonly #endings: (() => unknown)[] = []
  /** The port of each broker. */
  ports: readonly number[] = []
  replicas: readonly BrokerProcess[] = []

  static async prepare(options: Pick<BenchOptions, 'store' | 'replicas'>): Promise<Brokers> {
    const brokers = new Brokers()
    try {
      await brokers.#prepare(options)
      return brokers
    } catch (error) {
      await brokers.remove()
      throw error
    }
  }

  /**
   * The state folder of the first broker: commands beside it read it, and each broker has the authority's certificate
   * in its own.
   */
  get state(): string {
    return this.#stateOf(0)
  }

  /** The processor time of all brokers. */
  get cpuMs(): number {
    return this.replicas.reduce((sum, one) => sum + one.cpuMs, 0)
  }

  /** The memory of the largest broker. */
  residentMb(what: 'VmRSS' | 'VmHWM'): number {
    return Math.max(...this.replicas.map(({ pid }) => residentMb(pid, what)))
  }

  /** Starts them without waiting for ready(). */
  start(): void {
    for (const one of this.replicas) one.start()
  }

  /** Starts them for the first time: the first makes the state that the others find. */
  async startFirst(): Promise<void> {
    for (const one of this.replicas) {
      one.start()
      await one.ready()
    }
  }

  async kill(): Promise<void> {
    await Promise.all(this.replicas.map((one) => one.kill()))
  }

  /** The secrets of tokens that together allow this many joins. */
  async secrets(joins: number): Promise<string[]> {
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
    for (const end of this.#endings.reverse()) await end()
    for (const folder of [this.folder, this.#product]) rmSync(folder, { recursive: true, force: true })
  }

  async #prepare({ store, replicas }: Pick<BenchOptions, 'store' | 'replicas'>): Promise<void> {
    if (!compileProduct(this.#product)) throw new Error('the product does not compile')
    const flags = store === 'etcd' ? await this.#etcd() : []
    const ports = await Promise.all(Array.from({ length: replicas }, () => freePort()))
    const advertise = ports.flatMap((port) => ['--advertise', `127.0.0.1:${port}`])
    const all = [...advertise, '--max-members', String(MAX_MEMBERS), ...flags]
    this.ports = ports
    this.replicas = await Promise.all(
      ports.map((port, i) => {
        const state = this.#stateOf(i)
        mkdirSync(state, { mode: 0o700 })
        return BrokerProcess.prepare({ product: this.#product, folder: this.folder, state, port, flags: all })
      }),
    )
  }

  /** Starts an etcd, and returns the flags for it. */
  async #etcd(): Promise<string[]> {
    const teardown = (end: () => unknown): void => void this.#endings.push(end)
    const { folder, members } = await startEtcdCluster({ teardown })
    const endpoints = members.map(({ port }) => `127.0.0.1:${port}`).join(',')
    const at = (name: string): string => join(folder, name)
    return [
      ...['--store', `etcd://${endpoints}${PREFIX}`],
      ...['--etcd-ca', at('ca.crt'), '--etcd-cert', at('client.crt'), '--etcd-key', at('client.key')],
    ]
  }

  #stateOf(i: number): string {
    return join(this.folder, `state-${i}`)
  }
}
