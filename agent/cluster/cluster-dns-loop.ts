/** Asks the cluster's own DNS for the zone, as pods do, and says on this cluster's own Cluster what came of it. */
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import { CLUSTERSET_ZONE, CONDITION_CLUSTER_DNS, findCondition } from '../../model/model.ts'
import { type Clock, type LoopInit, ReconcileLoop, Subscriptions } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { Gauge, Metrics } from '../../runtime/metrics/metrics.ts'
import type { AskClusterDns, ClusterDnsAnswer } from './ask-resolver.ts'
import { type AgentMetrics, type MirrorWriter, clusterDnsGauge, loopDeps } from '../loop/loop.ts'
import { planDnsStatus } from './plan-cluster-status.ts'

export interface ClusterDnsLoopDeps {
  readonly api: ClusterApi
  readonly writer: MirrorWriter
  readonly ask: AskClusterDns
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: AgentMetrics
  /** Where the loop's own gauge is declared: only where somebody asks. */
  readonly registry: Metrics
}

export interface ClusterDnsLoopInit {
  /** Id of this cluster. */
  readonly own: string
  readonly loop: LoopInit
}

/** While it does not answer, somebody may be waiting for it; not for ever. */
const ASK_AGAIN_MS = 1000
const SOMEBODY_WAITS_MS = 10 * 60_000
const ASK_NOW_AND_THEN_MS = 10_000
/**
 * Each of its servers reads new settings in its own time, and any of them answers a question: while one of two has not
 * read them, so many agree once in 30,000 times.
 */
const ANSWERS_THAT_COUNT = 16
/** A server that is started anew is away for a moment: only so many failures in a row take a good word back. */
const FAILURES_THAT_COUNT = 3
/** Another wording of the same bad news. */
const REWORD_MS = 30_000

export class ClusterDnsLoop {
  readonly #deps: ClusterDnsLoopDeps
  readonly #own: string
  readonly #loop: ReconcileLoop
  readonly #subscriptions = new Subscriptions()
  readonly #gauge: Gauge
  #failures = 0
  #failingSince: number | undefined
  #wordedAt = -Infinity
  #cancelWake: () => void = () => undefined

  constructor(deps: ClusterDnsLoopDeps, { own, loop }: ClusterDnsLoopInit) {
    this.#deps = deps
    this.#own = own
    this.#gauge = clusterDnsGauge(deps.registry)
    const init = { ...loop, minMs: ASK_AGAIN_MS / 2, resyncMs: Math.min(loop.resyncMs, ASK_NOW_AND_THEN_MS) }
    this.#loop = new ReconcileLoop(loopDeps(deps, 'cluster-dns'), init, (signal) => this.#round(signal))
    const stop = deps.api.cache('Cluster').onChange((change) => {
      // Somebody has overwritten our condition; also the first time that there is a place for it.
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
    const answer = await this.#ask(before === 'True' ? 1 : ANSWERS_THAT_COUNT, signal)
    this.#count(answer)
    const own = api.cache('Cluster').get(this.#own)
    if (own === undefined) return
    if (before === 'True' && !answer.answers && this.#failures < FAILURES_THAT_COUNT) return
    this.#gauge.set(answer.answers ? 1 : 0, { zone: CLUSTERSET_ZONE })
    const change = planDnsStatus(own, answer, clock.now())
    if (change === undefined) return
    const wording = before === 'False' && !answer.answers
    if (wording && clock.monotonic() - this.#wordedAt < REWORD_MS) return
    if (answer.answers) logger.info('the cluster DNS hands us the zone')
    else if (!wording)
      logger.warn('the cluster DNS does not hand us the zone', { reason: 'DoesNotAnswer', said: answer.said })
    const [failure] = await writer.applyStatuses([change], signal)
    if (failure !== undefined && failure.code !== 'NotFound') throw failure
    this.#wordedAt = clock.monotonic()
  }

  /** The first "no" of so many questions, else a "yes". Throws the signal's reason. */
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
