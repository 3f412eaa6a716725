/** Requests the records of the namespaces that exist in this cluster from the broker. */
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import { type LoopInit, ReconcileLoop, Subscriptions } from '../../reconcile/reconcile.ts'
import { type LoopParts, loopDeps } from '../loop/loop.ts'
import type { BrokerLink } from '../link/link.ts'
import { type InterestPlan, KEEP_MS, planInterest } from './plan-interest.ts'

export interface InterestLoopDeps extends LoopParts {
  readonly api: Pick<ClusterApi, 'cache'>
  readonly link: Pick<BrokerLink, 'setInterest'>
}

/**
 * Each change of the requested namespaces restarts a stream. The first new namespace is requested at once, those that
 * follow within this time together.
 */
const MIN_INTERVAL_MS = 1000

export class InterestLoop {
  readonly #deps: InterestLoopDeps
  readonly #loop: ReconcileLoop
  readonly #subscriptions = new Subscriptions()
  #plan: InterestPlan | undefined
  #problem: string | undefined

  constructor(deps: InterestLoopDeps, { loop }: { readonly loop: LoopInit }) {
    this.#deps = deps
    // Removed namespaces are checked again when their keep time is over.
    const timing = { ...loop, minMs: MIN_INTERVAL_MS, resyncMs: Math.min(loop.resyncMs, KEEP_MS) }
    this.#loop = new ReconcileLoop(loopDeps(deps, 'interest'), timing, () => {
      this.#round()
      return Promise.resolve()
    })
    this.#subscriptions.add(deps.api.cache('Namespace').onChange(() => this.#loop.poke()))
  }

  async run(signal: AbortSignal): Promise<void> {
    // Until the cache is synced, the namespaces are unknown, which must not count as none.
    const isKnown = await this.#deps.api
      .cache('Namespace')
      .whenSynced(signal)
      .then(
        () => true,
        () => false,
      )
    if (isKnown) await this.#loop.run(signal)
    this.#subscriptions.end()
  }

  #round(): void {
    const { api, link, clock, logger } = this.#deps
    const cache = api.cache('Namespace')
    if (!cache.synced) return
    const existing = new Set(cache.list().map(({ metadata }) => metadata.name))
    const plan = planInterest(this.#plan, existing, clock.monotonic())
    if (plan.problem !== undefined && plan.problem !== this.#problem)
      logger.warn('the agent requests the records of all namespaces', { reason: 'RecordLimit', why: plan.problem })
    this.#problem = plan.problem
    this.#plan = plan
    link.setInterest(plan.interest)
  }
}
