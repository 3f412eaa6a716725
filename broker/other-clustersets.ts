/**
 * The clustersets beside the broker's own, as its store lists them: each is opened, served and closed by itself. One that
 * cannot be opened, or whose store fails, is not served, said so, and tried again; the others do not notice.
 */
import { type BrokerServer, type HostedClusterset, reasonField } from '../protocol/transport/transport.ts'
import { DEFAULT_LOOP, ReconcileLoop } from '../reconcile/reconcile.ts'
import { messageOf } from '../runtime/runtime.ts'
import type { Counter, Gauge, Histogram } from '../runtime/metrics/metrics.ts'
import { type NamedClusterset, clustersetConfig, noteOpened, servedClustersets } from './admin/admin.ts'
import type { SharedSink } from './audit/audit.ts'
import { type BrokerConfig, type BrokerMetrics, checkBrokerConfig } from './config/config.ts'
import { REFRESH_MS, ServedClusterset, type ServedDeps, type ServedPort } from './served-clusterset.ts'
import type { RecordLog } from './store/store.ts'

/** One that cannot be served is tried again after so long. */
const TRY_AGAIN_MS = 10_000

export interface OtherClustersetsDeps extends Omit<ServedDeps, 'sink'> {
  readonly sink: SharedSink | undefined
}

export interface OtherClustersetsInit {
  /** Of the broker. */
  readonly config: BrokerConfig
  /** Of the broker's own clusterset. */
  readonly log: RecordLog
}

interface Serving {
  readonly served: ServedClusterset
  readonly hosted: HostedClusterset
  readonly counts: ClustersetMetrics
  readonly stop: AbortController
  /** Never rejects. */
  readonly running: Promise<void>
  hasFailed: boolean
}

interface Failure {
  readonly why: string
  /** Monotonic. */
  readonly tryAtMs: number
}

export class OtherClustersets {
  readonly #deps: OtherClustersetsDeps
  readonly #init: OtherClustersetsInit
  readonly #serving = new Map<string, Serving>()
  readonly #failed = new Map<string, Failure>()

  constructor(deps: OtherClustersetsDeps, init: OtherClustersetsInit) {
    this.#deps = deps
    this.#init = init
  }

  /** Serves those that are to be served until the signal; then they are served by the port until it closes. */
  async run(port: Pick<BrokerServer, 'host'>, signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#deps
    const { log } = this.#init
    const onError = (error: unknown): void =>
      logger.error('broker upkeep failed', { reason: 'RoundFailed', why: String(error) })
    const init = { ...DEFAULT_LOOP, resyncMs: REFRESH_MS }
    const loop = new ReconcileLoop({ clock, onError }, init, () => this.#round(port, signal))
    const stop = log.onCommit((changes) => changes.some(({ scope }) => scope === 'clusterset') && loop.poke())
    await loop.run(signal).finally(stop)
  }

  /** Those that are served now. */
  served(): readonly ServedClusterset[] {
    return [...this.#serving.values()].map(({ served }) => served)
  }

  /** To be called when the port serves nobody any more. */
  async close(): Promise<void> {
    await Promise.all([...this.#serving.keys()].map((name) => this.#end(name)))
  }

  async #round(port: Pick<BrokerServer, 'host'>, signal: AbortSignal): Promise<void> {
    const { clock, logger, metrics } = this.#deps
    const wanted = servedClustersets(this.#init.log)
    const names = new Set(wanted.map(({ name }) => name))
    for (const [name, { hasFailed }] of this.#serving) if (hasFailed || !names.has(name)) await this.#end(name)
    for (const name of this.#failed.keys()) {
      if (names.has(name)) continue
      this.#failed.delete(name)
      metrics.clustersets.set(0, { clusterset: name })
    }
    for (const row of wanted) {
      const { name } = row
      if (signal.aborted || this.#serving.has(name)) continue
      if ((this.#failed.get(name)?.tryAtMs ?? 0) > clock.monotonic()) continue
      try {
        await this.#begin(row, port, signal)
        this.#failed.delete(name)
        logger.info('another clusterset is served', { clusterset: name })
      } catch (error) {
        // Typed as it was above; it may have come meanwhile.
        if ((signal as { readonly aborted: boolean }).aborted) return
        this.#fail(name, error)
      }
    }
  }

  async #begin(row: NamedClusterset, port: Pick<BrokerServer, 'host'>, signal: AbortSignal): Promise<void> {
    const { name } = row
    const { clock, sink, metrics } = this.#deps
    const logger = this.#deps.logger.child({ clusterset: name })
    const counts = clustersetMetrics(metrics, name)
    const deps = { clock, logger, metrics: counts.metrics, sink: sink?.borrowed() }
    const config = checkBrokerConfig(clustersetConfig(this.#init.config, row))
    const init = { config, create: row.openedAtMs === undefined, auditedAs: name }
    const stop = new AbortController()
    const served = await ServedClusterset.open(deps, init, AbortSignal.any([signal, stop.signal]))
    try {
      await this.#init.log.transact((tx) => noteOpened(tx, name, clock.now()))
    } catch (error) {
      await served.close()
      throw error
    }
    const { broker: api, authority, onFailed } = served
    const hosted = port.host({ name, api, tls: authority.tls(), onFailed })
    // Members are sent away from a port, not from a clusterset: that is for the broker's own to say.
    const itsPort: ServedPort = { setTls: (tls) => hosted.setTls(tls), setCutOff: () => undefined }
    served.health.started()
    const serving: Serving = {
      ...{ served, hosted, counts, stop, hasFailed: false },
      running: served.run(itsPort, AbortSignal.any([signal, stop.signal])).catch((error: unknown) => {
        serving.hasFailed = true
        this.#fail(name, error)
      }),
    }
    this.#serving.set(name, serving)
    metrics.clustersets.set(1, { clusterset: name })
  }

  #fail(name: string, error: unknown): void {
    const { clock, logger, metrics } = this.#deps
    const why = messageOf(error)
    if (this.#failed.get(name)?.why !== why)
      logger.error('a clusterset is not served', {
        reason: 'RoundFailed',
        ...reasonField(error),
        clusterset: name,
        why,
      })
    this.#failed.set(name, { why, tryAtMs: clock.monotonic() + TRY_AGAIN_MS })
    metrics.clustersets.set(0, { clusterset: name })
  }

  /** Its streams end first, then its upkeep, then its state is closed. */
  async #end(name: string): Promise<void> {
    const { logger, metrics } = this.#deps
    const serving = this.#serving.get(name)
    if (serving === undefined) return
    this.#serving.delete(name)
    const { served, hosted, counts, stop, running } = serving
    await hosted.close()
    stop.abort(new Error('the clusterset is served no more'))
    await running
    await served.close()
    counts.forget()
    metrics.clustersets.set(0, { clusterset: name })
    logger.info('a clusterset is served no more', { clusterset: name })
  }
}

// What a broker counts of one clusterset beside its own: the same series, with its name.

interface ClustersetMetrics {
  readonly metrics: BrokerMetrics
  /** Of one that is served no more: what was so is not so. */
  forget(): void
}

type Labels = Readonly<Record<string, string>>

/** Takes the broker's own. As many names come as there may be clustersets: MAX_CLUSTERSETS. */
function clustersetMetrics(all: BrokerMetrics, clusterset: string): ClustersetMetrics {
  const held = new Map<string, () => void>()
  const withName = (labels: Labels = {}): Labels => ({ ...labels, clusterset })
  const named = (name: string, metric: Counter | Gauge | Histogram): Counter | Gauge | Histogram => {
    if ('inc' in metric) return { inc: (labels, by) => metric.inc(withName(labels), by) }
    if ('observe' in metric) return { observe: (value, labels) => metric.observe(value, withName(labels)) }
    const set = (value: number, labels?: Labels): void => {
      held.set(`${name} ${JSON.stringify(labels)}`, () => metric.set(0, withName(labels)))
      metric.set(value, withName(labels))
    }
    return { set, reset: () => held.forEach((zero) => zero()) }
  }
  const entries = Object.entries(all) as [string, Counter | Gauge | Histogram][]
  const metrics = Object.fromEntries(entries.map(([name, metric]) => [name, named(name, metric)]))
  return { metrics: metrics as unknown as BrokerMetrics, forget: () => held.forEach((zero) => zero()) }
}
