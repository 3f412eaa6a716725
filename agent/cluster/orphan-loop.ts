/**
 * Removes what is left of nodes that are gone: on a site without Kubernetes, where there is no garbage collector. A
 * node is gone when its Node's YAML has been away for longer than an editor needs to write it anew. A folder that has
 * not been read, or has no Nodes, says nothing.
 */
import type { ClusterApi } from '../../kubeapi/cluster-api.ts'
import { owningNode } from '../../model/node-owner.ts'
import { type KubeObject, NODE_OWNED_KINDS } from '../../model/objects.ts'
import type { Clock } from '../../reconcile/clock.ts'
import { type LoopInit, ReconcileLoop } from '../../reconcile/loop.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import { loopDeps } from '../loop-deps.ts'
import type { AgentMetrics } from '../metrics.ts'
import type { MirrorWriter } from '../import/mirror-writer.ts'
import { planOrphans } from './plan-orphans.ts'
import { Subscriptions } from '../subscriptions.ts'

export interface OrphanLoopDeps {
  readonly api: ClusterApi
  readonly writer: MirrorWriter
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: AgentMetrics
}

export interface OrphanLoopInit {
  readonly loop: LoopInit
  /** A Node that is away for less than this is not gone. */
  readonly orphanGraceMs: number
}

export class OrphanLoop {
  readonly #deps: OrphanLoopDeps
  readonly #graceMs: number
  readonly #loop: ReconcileLoop
  readonly #subscriptions = new Subscriptions()
  /** Nodes that are away, by name: since when, by the monotonic clock. */
  #awaySince: ReadonlyMap<string, number> = new Map()
  #cancelWake: () => void = () => undefined

  constructor(deps: OrphanLoopDeps, init: OrphanLoopInit) {
    this.#deps = deps
    this.#graceMs = init.orphanGraceMs
    this.#loop = new ReconcileLoop(loopDeps(deps, 'orphans'), init.loop, (signal) => this.#round(signal))
    this.#subscriptions.add(deps.api.cache('Node').onChange(() => this.#loop.poke()))
    for (const kind of NODE_OWNED_KINDS) {
      this.#subscriptions.add(
        deps.api.cache(kind).onChange((change) => {
          if (change?.type !== 'set' || change.previous === undefined) this.#loop.poke()
        }),
      )
    }
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#loop.run(signal)
    this.#cancelWake()
    this.#subscriptions.end()
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { api, writer, logger } = this.#deps
    const nodes = api.cache('Node')
    if (!nodes.synced) return
    const objects = NODE_OWNED_KINDS.flatMap((kind) => (api.cache(kind).synced ? api.cache(kind).list() : []))
    const orphans = this.#afterGrace(planOrphans(objects, nodes.list()))
    for (const { kind, metadata } of orphans) {
      logger.info('removed, since its node is gone', { kind, name: metadata.name })
    }
    const [failure] = await writer.remove(orphans, signal)
    if (failure !== undefined) throw failure
  }

  /** Those whose Node has been away long enough. Asks for a round when the next is. */
  #afterGrace<T extends KubeObject>(orphans: readonly T[]): T[] {
    const { clock } = this.#deps
    const now = clock.monotonic()
    const names = new Set(orphans.map((object) => owningNode(object) ?? ''))
    this.#awaySince = new Map([...names].map((name) => [name, this.#awaySince.get(name) ?? now]))
    const waits = [...this.#awaySince.values()].map((since) => since + this.#graceMs - now).filter((ms) => ms > 0)
    this.#cancelWake()
    if (waits.length > 0) this.#cancelWake = clock.setTimer(Math.min(...waits), () => this.#loop.poke())
    return orphans.filter((object) => {
      const since = this.#awaySince.get(owningNode(object) ?? '')
      return since !== undefined && now - since >= this.#graceMs
    })
  }
}
