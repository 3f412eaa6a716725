/**
 * Asks the cluster's own DNS for the zone, as pods do, and writes the result to the status of this cluster's Cluster.
 */
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import { CLUSTERSET_ZONE, CONDITION_CLUSTER_DNS, findCondition } from '../../model/model.ts'
import { type Clock, type LoopInit, ReconcileLoop, Subscriptions } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { Gauge, Metrics } from '../../runtime/metrics/metrics.ts'
import type { AskClusterDns, ClusterDnsAnswer } from './ask-resolver.ts'
import { type AgentMetrics, type MirrorWriter, clusterDnsGauge, loopDeps } from '../loop/loop.ts'
import { type DnsMaps, DnsMender } from './dns-mender.ts'
import { planDnsStatus } from './plan-cluster-status.ts'

export interface ClusterDnsLoopDeps {
  readonly api: ClusterApi
  readonly writer: MirrorWriter
  readonly ask: AskClusterDns
  /** Absent if this site has no ConfigMaps. */
  readonly dnsMaps?: DnsMaps | undefined
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: AgentMetrics
  /** Declares the loop's own gauge, so that the gauge exists only where this loop runs. */
  readonly registry: Metrics
}

export interface ClusterDnsLoopInit {
  /** Id of this cluster. */
  readonly own: string
  readonly loop: LoopInit
}

/**
 * While the zone does not answer, a user may be waiting for it: the loop asks every second for the first 10 minutes.
 */
const ASK_AGAIN_MS = 1000
const SOMEBODY_WAITS_MS = 10 * 60_000
const ASK_NOW_AND_THEN_MS = 10_000
/**
 * Each DNS server of the cluster reloads its settings at its own time, and any of them may answer a query. If one of
 * two servers has not reloaded yet, 16 queries in a row all reach the other one once in 65,536 times.
 */
const ANSWERS_THAT_COUNT = 16
/** A DNS server that restarts fails for a moment. Only this many failures in a row set the condition to False. */
const FAILURES_THAT_COUNT = 3
/** The message of a condition that stays False changes at most once in this time. */
const REWORD_MS = 30_000

export class ClusterDnsLoop {
  readonly #deps: ClusterDnsLoopDeps
  readonly #own: string
  readonly #loop: ReconcileLoop
  readonly #subscriptions = new Subscriptions()
  readonly #gauge: Gauge
  readonly #mender: DnsMender | undefined
  #failures = 0
  #failingSince: number | undefined
  #wordedAt = -Infinity
  #cancelWake: () => void = () => undefined

  constructor(deps: ClusterDnsLoopDeps, { own, loop }: ClusterDnsLoopInit) {
    this.#deps = deps
    this.#own = own
    this.#gauge = clusterDnsGauge(deps.registry)
    const { dnsMaps: maps } = deps
    this.#mender = maps === undefined ? undefined : new DnsMender({ ...deps, maps }, own)
    const init = { ...loop, minMs: ASK_AGAIN_MS / 2, resyncMs: Math.min(loop.resyncMs, ASK_NOW_AND_THEN_MS) }
    this.#loop = new ReconcileLoop(loopDeps(deps, 'cluster-dns'), init, (signal) => this.#round(signal))
    const stop = deps.api.cache('Cluster').onChange((change) => {
      // The condition is missing: another client has overwritten it, or the Cluster has just been created.
      if (change?.object.metadata.name === own && this.#known() === undefined) this.#loop.poke()
    })
    this.#subscriptions.add(stop)
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#loop.run(signal)
    this.#cancelWake()
    this.#subscriptions.end()
    this.#gauge.reset()
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { api, writer, clock, logger } = this.#deps
    this.#cancelWake()
    const before = this.#known()
    const trouble = await this.#mender?.look(signal)
    const answer = await this.#ask(before === 'True' ? 1 : ANSWERS_THAT_COUNT, signal)
    this.#count(answer)
    const own = api.cache('Cluster').get(this.#own)
    if (own === undefined) return
    const isLost = trouble?.isLost === true
    if (before === 'True' && !answer.answers && !isLost && this.#failures < FAILURES_THAT_COUNT) return
    const works = answer.answers && !isLost
    this.#gauge.set(works ? 1 : 0, { zone: CLUSTERSET_ZONE })
    const change = planDnsStatus(own, answer, clock.now(), trouble)
    if (change === undefined) return
    const wording = before === 'False' && !works
    if (wording && clock.monotonic() - this.#wordedAt < REWORD_MS) return
    if (works) logger.info('the cluster DNS forwards the zone to Sealane')
    else if (!wording) {
      const said = trouble?.message ?? (answer.answers ? '' : answer.said)
      const reason = trouble?.reason ?? 'DoesNotAnswer'
      logger.warn('the cluster DNS does not forward the zone to Sealane', { reason, said })
    }
    const [failure] = await writer.applyStatuses([change], signal)
    if (failure !== undefined && failure.code !== 'NotFound') throw failure
    this.#wordedAt = clock.monotonic()
  }

  /**
   * Asks `times` times and gives the first negative answer, or a positive one if there is none. Throws the signal's
   * reason.
   */
  async #ask(times: number, signal: AbortSignal): Promise<ClusterDnsAnswer> {
    for (let n = 1; ; n += 1) {
      const answer = await this.#deps.ask(signal)
      signal.throwIfAborted()
      if (!answer.answers || n === times) return answer
    }
  }

  #count({ answers }: ClusterDnsAnswer): void {
    const { clock } = this.#deps
    this.#failures = answers ? 0 : this.#failures + 1
    this.#failingSince = answers ? undefined : (this.#failingSince ?? clock.monotonic())
    if (this.#failingSince === undefined || clock.monotonic() - this.#failingSince > SOMEBODY_WAITS_MS) return
    this.#cancelWake = clock.setTimer(ASK_AGAIN_MS, () => this.#loop.poke())
  }

  #known(): string | undefined {
    const own = this.#deps.api.cache('Cluster').get(this.#own)
    return findCondition(own?.status?.conditions, CONDITION_CLUSTER_DNS)?.status
  }
}
