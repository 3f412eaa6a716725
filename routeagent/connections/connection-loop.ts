/**
 * Counts once a minute how many connections pods of this node have with pods of other clusters: what would break if
 * this cluster got global addresses. Each connection of a pod is tracked on the pod's own node, and counted there
 * alone.
 */
import type { ConnectionTable } from '../../kernel/conntrack/connection-table.ts'
import { type OpenConnections, isWorthReporting } from '../../model/open-connections.ts'
import type { Clock } from '../../reconcile/clock.ts'
import { ReconcileLoop } from '../../reconcile/loop.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import { messageOf } from '../../runtime/thrown.ts'
import { COUNT_CONNECTIONS_MS, type RouteAgentConfig } from '../config.ts'
import type { FactsReader } from '../facts-reader.ts'
import { LOOP_PACE, loopDeps } from '../loop-deps.ts'
import type { RouteAgentMetrics } from '../metrics.ts'
import { type NodeRoutePlan, clusterValidation } from '../routes/plan-node-routes.ts'
import { type RouteAgentCaches, readWorld, withFacts } from '../world.ts'
import { countConnections } from './count-connections.ts'

export interface ConnectionLoopDeps {
  readonly caches: RouteAgentCaches
  readonly connections: ConnectionTable
  readonly facts: FactsReader
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: RouteAgentMetrics
  /** What is in the kernel: it says where this node's pods are. */
  readonly plan: () => NodeRoutePlan | undefined
  /** Called when another figure is to be reported. */
  readonly onChange: () => void
}

export class ConnectionLoop {
  readonly #deps: ConnectionLoopDeps
  readonly #config: Pick<RouteAgentConfig, 'node'>
  readonly #loop: ReconcileLoop
  #reported: { readonly figure: OpenConnections | undefined; readonly at: number } | undefined
  #failure: string | undefined

  constructor(deps: ConnectionLoopDeps, config: Pick<RouteAgentConfig, 'node'>) {
    this.#deps = deps
    this.#config = config
    const pace = { ...LOOP_PACE, resyncMs: COUNT_CONNECTIONS_MS }
    this.#loop = new ReconcileLoop(loopDeps(deps, 'connections'), pace, (signal) => this.#round(signal))
  }

  /** What this node reports; it may differ a little from what was counted last. Undefined: not known. */
  get reported(): OpenConnections | undefined {
    return this.#reported?.figure
  }

  /** There is a plan. Where there was one before, the next count comes when it is due. */
  planned(): void {
    if (this.#reported === undefined) this.#loop.poke()
  }

  run(signal: AbortSignal): Promise<void> {
    return this.#loop.run(signal)
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { caches, facts, connections, clock, metrics, onChange } = this.#deps
    const plan = this.#deps.plan()
    const reading = readWorld(caches, this.#config.node)
    if (plan?.ok !== true || !reading.ok) return
    const world = withFacts(reading.world, await facts.read(signal))
    const others = clusterValidation(world).clusters.flatMap(({ prefixes }) => prefixes)
    const init = { pods: plan.podRanges, podsCut: plan.podRangesCut > 0, others }
    const figure = await countConnections(connections, init, signal).catch((error: unknown) =>
      this.#fail(error, signal),
    )
    if (figure !== undefined) {
      this.#failure = undefined
      metrics.openConnections.set(figure.count)
    }
    const at = clock.monotonic()
    const reported = this.#reported
    if (reported !== undefined && !isWorthReporting(reported.figure, figure, at - reported.at)) return
    this.#reported = { figure, at }
    onChange()
  }

  // Nothing depends on the figure: it is not known then, and the next count comes when it is due.
  #fail(error: unknown, signal: AbortSignal): undefined {
    signal.throwIfAborted()
    const why = messageOf(error)
    if (why !== this.#failure) {
      this.#deps.logger.warn('open connections cannot be counted', { reason: 'ConnectionsNotCounted', why })
    }
    this.#failure = why
  }
}
