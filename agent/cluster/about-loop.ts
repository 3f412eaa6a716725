/** Keeps the ClusterProperties of the About API correct while this cluster is a member. */
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import { type Clock, type LoopInit, ReconcileLoop, Subscriptions } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { type AgentMetrics, type MirrorWriter, loopDeps } from '../loop/loop.ts'
import { objectKeyText } from '../../model/model.ts'
import { ownProperties } from '../../model/services/services.ts'
import { planAbout } from './plan-about.ts'

export interface AboutLoopDeps {
  readonly api: ClusterApi
  readonly writer: MirrorWriter
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: AgentMetrics
}

export interface AboutLoopInit {
  /** The cluster id that this cluster joined with. */
  readonly own: string
  readonly clusterset: string
  readonly loop: LoopInit
}

export class AboutLoop {
  readonly #deps: AboutLoopDeps
  readonly #init: AboutLoopInit
  readonly #loop: ReconcileLoop
  readonly #subscriptions = new Subscriptions()
  readonly #accepted: Promise<void>
  #accept: () => void = () => undefined
  #problem: string | undefined = 'ClusterProperty objects are not read yet'

  constructor(deps: AboutLoopDeps, init: AboutLoopInit) {
    this.#deps = deps
    this.#init = init
    this.#accepted = new Promise((resolve) => (this.#accept = resolve))
    this.#loop = new ReconcileLoop(loopDeps(deps, 'about'), init.loop, (signal) => this.#round(signal))
    const stop = deps.api.cache('ClusterProperty').onChange((change) => {
      if (change?.type === 'removed') deps.writer.forget(change.object)
      this.#loop.poke()
    })
    this.#subscriptions.add(stop)
    this.#subscriptions.add(deps.api.cache('Node').onChange(() => this.#loop.poke()))
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#loop.run(signal)
    this.#subscriptions.end()
    this.#accept()
  }

  /** Resolves once nothing contradicts this membership, or when run() ends. Later contradictions do not affect it. */
  whenAccepted(): Promise<void> {
    return this.#accepted
  }

  /** What contradicts this membership and what to do about it. Undefined if nothing does. */
  problem(): string | undefined {
    return this.#problem
  }

  /** Removes the agent's own ClusterProperties. Called when this cluster leaves. */
  async removeAll(signal: AbortSignal): Promise<void> {
    const own = ownProperties(this.#deps.api.cache('ClusterProperty').list())
    const [failure] = await this.#deps.writer.remove(own, signal)
    if (failure !== undefined) throw failure
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { api, writer, logger } = this.#deps
    const cache = api.cache('ClusterProperty')
    if (!cache.synced) return
    const { own: clusterId, clusterset } = this.#init
    const nodes = api.cache('Node')
    const plan = planAbout({
      ...{ clusterId, clusterset, properties: cache.list() },
      nodes: nodes.synced ? nodes.list() : undefined,
    })
    if (plan.problem === undefined) this.#accept()
    else if (plan.problem.text !== this.#problem) {
      logger.error('a ClusterProperty contradicts the membership', { reason: 'Refused', why: plan.problem.text })
      this.#warn(plan.problem.property, plan.problem.text)
    }
    this.#problem = plan.problem?.text
    for (const { name, found, wanted } of plan.changed) {
      const note =
        `${name} was changed to ${JSON.stringify(found.slice(0, 100))}, but this cluster is a member as ` +
        `${JSON.stringify(clusterId)}; the agent restored ${wanted}. To join under another id, run "sealane leave" first`
      logger.error('ClusterProperty restored', { reason: 'Refused', why: note })
      this.#warn(name, note)
    }
    const failures = await writer.apply(new Map(plan.apply.map((one) => [objectKeyText(one), one])), signal)
    failures.push(...(await writer.remove(plan.remove, signal)))
    const [failure] = failures
    if (failure !== undefined) throw failure
  }

  #warn(name: string, note: string): void {
    this.#deps.api.report({ regarding: { kind: 'ClusterProperty', name }, type: 'Warning', reason: 'Refused', note })
  }
}
