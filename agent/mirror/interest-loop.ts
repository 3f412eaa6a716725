/** Asks the broker for the records of the namespaces that exist in this cluster. */
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
 * Each change of what is asked for begins a stream anew. Namespaces that come in a row are asked for together; the
 * first one at once.
 */
const PACE_MS = 1000

export class InterestLoop {
  readonly #deps: InterestLoopDeps
  readonly #loop: ReconcileLoop
  readonly #subscriptions = new Subscriptions()
  #plan: InterestPlan | undefined
  #problem: string | undefined

  constructor(deps: InterestLoopDeps, { loop }: { readonly loop: LoopInit }) {
    this.#deps = deps
    // What is gone is looked at again when its time is over.
    const pace = { ...loop, minMs: PACE_MS, resyncMs: Math.min(loop.resyncMs, KEEP_MS) }
    this.#loop = new ReconcileLoop(loopDeps(deps, 'interest'), pace, () => {
      this.#round()
      return Promise.resolve()
    })
    this.#subscriptions.add(deps.api.cache('Namespace').onChange(() => this.#loop.poke()))
  }

  async run(signal: AbortSignal): Promise<void> {
    // Until then nothing is known of them: that is not none.
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
      logger.warn('the records of all namespaces are asked for', { reason: 'RecordLimit', why: plan.problem })
    this.#problem = plan.problem
    this.#plan = plan
    link.setInterest(plan.interest)
  }
}
