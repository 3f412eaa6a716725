/** Asks the cluster's own DNS for the zone, as pods do, and says on this cluster's own Cluster what came of it. */
import type { ClusterApi } from '../cluster/cluster-api.ts'
import { CONDITION_CLUSTER_DNS, isConditionTrue } from '../model/conditions.ts'
import type { Clock } from '../reconcile/clock.ts'
import { type LoopInit, ReconcileLoop } from '../reconcile/loop.ts'
import type { Logger } from '../runtime/logger.ts'
import type { AskClusterDns } from './ask-resolver.ts'
import { loopDeps } from './loop-deps.ts'
import type { AgentMetrics } from './metrics.ts'
import type { MirrorWriter } from './mirror-writer.ts'
import { planDnsStatus } from './plan-dns-status.ts'
import { Subscriptions } from './subscriptions.ts'

export interface ClusterDnsLoopDeps {
  readonly cluster: ClusterApi
  readonly writer: MirrorWriter
  readonly ask: AskClusterDns
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: AgentMetrics
}

export interface ClusterDnsLoopInit {
  /** Id of this cluster. */
  readonly own: string
  readonly loop: LoopInit
}

/** While it does not answer, somebody may be waiting for it. */
const ASK_AGAIN_MS = 1000
const ASK_NOW_AND_THEN_MS = 10_000
/** A server that is started anew is away for a moment: only so many failures in a row take a good word back. */
const FAILURES_THAT_COUNT = 3

export class ClusterDnsLoop {
  readonly #deps: ClusterDnsLoopDeps
  readonly #own: string
  readonly #loop: ReconcileLoop
  readonly #subscriptions = new Subscriptions()
  #failures = 0
  #cancelWake: () => void = () => undefined

  constructor(deps: ClusterDnsLoopDeps, { own, loop }: ClusterDnsLoopInit) {
    this.#deps = deps
    this.#own = own
    const init = { ...loop, minMs: ASK_AGAIN_MS / 2, resyncMs: Math.min(loop.resyncMs, ASK_NOW_AND_THEN_MS) }
    this.#loop = new ReconcileLoop(loopDeps(deps, 'cluster-dns'), init, (signal) => this.#round(signal))
    const stop = deps.cluster.cache('Cluster').onChange((change) => {
      // Our own word, or somebody's over it; also the first time that there is a place for it.
      if (change?.object.metadata.name === own) this.#loop.poke()
    })
    this.#subscriptions.add(stop)
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#loop.run(signal)
    this.#cancelWake()
    this.#subscriptions.end()
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { cluster, writer, ask, clock, logger, metrics } = this.#deps
    this.#cancelWake()
    const answer = await ask(signal)
    signal.throwIfAborted()
    this.#failures = answer.answers ? 0 : this.#failures + 1
    if (!answer.answers) this.#cancelWake = clock.setTimer(ASK_AGAIN_MS, () => this.#loop.poke())
    const own = cluster.cache('Cluster').get(this.#own)
    if (own === undefined) return
    const answered = isConditionTrue(own.status?.conditions, CONDITION_CLUSTER_DNS)
    if (answered && !answer.answers && this.#failures < FAILURES_THAT_COUNT) return
    metrics.clusterDns.set(answer.answers ? 1 : 0)
    const change = planDnsStatus(own, answer, clock.now())
    if (change === undefined) return
    if (answer.answers) logger.info('the cluster DNS hands us the zone')
    else logger.warn('the cluster DNS does not hand us the zone', { said: answer.said })
    const [failure] = await writer.applyStatuses([change], signal)
    if (failure !== undefined && failure.code !== 'NotFound') throw failure
  }
}
