/**
 * Serves the clustersets beside the broker's own that its store lists. Each opens, serves and closes independently. If
 * one cannot be opened, or its store fails, the broker logs that and tries again; the others are not affected.
 */
import { type BrokerServer, type HostedClusterset, reasonField } from '../protocol/transport/transport.ts'
import { DEFAULT_LOOP, ReconcileLoop } from '../reconcile/reconcile.ts'
import { messageOf } from '../runtime/runtime.ts'
import type { Counter, Gauge, Histogram } from '../runtime/metrics/metrics.ts'
import type { SharedSink } from './audit/audit.ts'
import { type BrokerConfig, type BrokerMetrics, checkBrokerConfig } from './config/config.ts'
import { REFRESH_MS, ServedClusterset, type ServedDeps, type ServedPort } from './served-clusterset.ts'
import { type NamedClusterset, type RecordLog, clustersetConfig, noteOpened, servedClustersets } from './store/store.ts'

/** Time until the next try for one that cannot be served. */
const TRY_AGAIN_MS = 10_000

export interface OtherClustersetsDeps extends Omit<ServedDeps, 'sink'> {
  readonly sink: SharedSink | undefined
}

export interface OtherClustersetsInit {
  /** The broker's configuration. */
  readonly config: BrokerConfig
  /** The log of the broker's own clusterset. */
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
  /** Monotonic time. */
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

  /** Serves the listed clustersets until the signal. After it, the port still serves them until it closes. */
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

  /** The clustersets that are served now. */
  served(): readonly ServedClusterset[] {
    return [...this.#serving.values()].map(({ served }) => served)
  }

  /** Call it when the port no longer serves any calls. */
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
        logger.info('serving another clusterset', { clusterset: name })
      } catch (error) {
        // The cast undoes the narrowing of the check above: the signal may have aborted since.
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
    // All clustersets share the port, so only the broker's own may send members away from it.
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
      logger.error('cannot serve a clusterset', {
        reason: 'RoundFailed',
        ...reasonField(error),
        clusterset: name,
        why,
      })
    this.#failed.set(name, { why, tryAtMs: clock.monotonic() + TRY_AGAIN_MS })
    metrics.clustersets.set(0, { clusterset: name })
  }

  /** Ends its streams first, then its upkeep, and closes its state last. */
  async #end(name: string): Promise<void> {
    const { logger, metrics } = this.#deps
    const serving = this.#serving.get(name)
    if (serving === undefined) return
    this.#serving.delete(name)
    const { served, hosted, counts, stop, running } = serving
    await hosted.close()
    stop.abort(new Error('the clusterset is no longer served'))
    await running
    await served.close()
    counts.forget()
    metrics.clustersets.set(0, { clusterset: name })
    logger.info('stopped serving a clusterset', { clusterset: name })
  }
}

// Metrics of one clusterset beside the broker's own: the same series, labelled with its name.

interface ClustersetMetrics {
  readonly metrics: BrokerMetrics
  /** Sets the gauges of a clusterset that is no longer served to 0. */
  forget(): void
}

type Labels = Readonly<Record<string, string>>

/** Takes the broker's own metrics. MAX_CLUSTERSETS limits the number of names. */
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
