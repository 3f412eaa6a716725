/** The real broker on a loopback port, and tokens for it. */
import { join } from 'node:path'
import type { Test } from 'tap'
import { type BrokerConfig, DEFAULT_BROKER_CONFIG } from '../../broker/config/broker-config.ts'
import { runBroker } from '../../broker/main.ts'
import type { TokenInit } from '../../protocol/admin/admin-api.ts'
import { type BrokerStore, openBrokerStore } from '../support/broker-store.ts'
import { type Clock, SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../runtime/component.ts'
import { freePort } from '../support/free-port.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

export class LoopbackBroker {
  readonly state: string
  readonly port: number
  /** The log lines since the first start. */
  readonly logger = new CapturingLogger()
  /** The metrics of the latest start. */
  metrics = createMetrics('broker')
  #stop: (() => Promise<void>) | undefined
  #done: Promise<void> = Promise.resolve()

  /** The clock of the broker and its tokens; a change applies from the next start. */
  clock: Clock = new SystemClock()

  private constructor(state: string, port: number) {
    this.state = state
    this.port = port
  }

  static async start(t: Test, change: Partial<BrokerConfig> = {}, clock?: Clock): Promise<LoopbackBroker> {
    const broker = new LoopbackBroker(join(temporaryFolder(t), 'broker'), await freePort())
    if (clock !== undefined) broker.clock = clock
    await broker.start(change)
    t.teardown(() => broker.stop())
    return broker
  }

  /** The address, as `127.0.0.1:PORT`. */
  get address(): string {
    return `127.0.0.1:${this.port}`
  }

  async start(change: Partial<BrokerConfig> = {}): Promise<void> {
    const { state: stateDir, address: at } = this
    const config = { ...DEFAULT_BROKER_CONFIG, clusterset: 'demo', stateDir, listen: at, advertise: [at], ...change }
    this.metrics = createMetrics('broker')
    const { clock, logger, metrics } = this
    const deps = { clock, logger, metrics, status: new StatusBoard() }
    const stopping = new AbortController()
    let onListening = (): void => undefined
    const listening = new Promise<void>((resolve) => (onListening = resolve))
    const done = runBroker({ ...deps, onListening }, config, stopping.signal)
    this.#done = done
    await Promise.race([listening, done])
    this.#stop = async () => {
      stopping.abort()
      await done
    }
  }

  /** Resolves or rejects when the broker ends by itself. A later stop() does nothing then. */
  async ended(): Promise<void> {
    await this.#done.finally(() => (this.#stop = undefined))
  }

  async stop(): Promise<void> {
    await this.#stop?.()
    this.#stop = undefined
  }

  /** Creates a token and returns its text. */
  async token(init: TokenInit = {}): Promise<string> {
    return (await this.tokens((store) => store.create(init))).text
  }

  async tokens<T>(work: (store: BrokerStore) => Promise<T>): Promise<T> {
    const store = await openBrokerStore(this.state, this.clock)
    try {
      return await work(store)
    } finally {
      await store.close()
    }
  }
}
