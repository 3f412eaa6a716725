/**
 * Sets the condition Ready of each gateway that has stopped reporting to Unknown, since a dead gateway cannot do so
 * itself. The gateway's next report reverts it. The Kubernetes node controller treats Nodes in the same way.
 */
import type { ClusterApi, HeardGateways } from '../../kubeapi/kubeapi.ts'
import {
  CONDITION_READY,
  type Condition,
  type Gateway,
  type KubeObject,
  NODE_OWNED_KINDS,
  REASON_STATUS_STALE,
  findCondition,
  owningNode,
  setCondition,
} from '../../model/model.ts'
import { isTakenAsSilent } from '../../model/lanes/lanes.ts'
import { type Clock, type LoopInit, ReconcileLoop, Subscriptions } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { type AgentMetrics, type MirrorWriter, loopDeps } from '../loop/loop.ts'
import { planOrphans } from './plan-orphans.ts'

export interface GatewayLoopDeps {
  readonly api: ClusterApi
  readonly gateways: HeardGateways
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: AgentMetrics
}

export class GatewayLoop {
  readonly #deps: GatewayLoopDeps
  readonly #loop: ReconcileLoop
  readonly #subscriptions = new Subscriptions()

  constructor(deps: GatewayLoopDeps, init: { readonly loop: LoopInit }) {
    this.#deps = deps
    this.#loop = new ReconcileLoop(loopDeps(deps, 'gateways'), init.loop, (signal) => this.#round(signal))
    const { gateways } = deps
    const stop = gateways.onChange((change) => {
      if (change?.type !== 'set') return
      if (heardAgain(change.previous, change.object)) this.#reportHeard(change.object)
      if (gateways.liveness(change.object.metadata.name) !== 'fresh') this.#loop.poke()
    })
    this.#subscriptions.add(stop)
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#loop.run(signal)
    this.#subscriptions.end()
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { api, gateways, clock, metrics } = this.#deps
    const stale = gateways.stale()
    metrics.staleGateways.set(stale.length)
    for (const name of stale) {
      const gateway = api.cache('Gateway').get(name)
      const condition = gateway === undefined ? undefined : staleFinding(gateway, clock.now())
      if (gateway === undefined || condition === undefined) continue
      await api.setCondition({ kind: 'Gateway', name }, condition, signal)
      const regarding = { kind: 'Gateway' as const, name, uid: gateway.metadata.uid }
      api.report({ regarding, type: 'Warning', reason: 'GatewaySilent', note: condition.message })
    }
  }

  #reportHeard({ metadata: { name, uid } }: Gateway): void {
    const regarding = { kind: 'Gateway' as const, name, uid }
    const note = `the gateway on node ${name} reports again`
    this.#deps.api.report({ regarding, type: 'Normal', reason: 'GatewayHeard', note })
    this.#loop.poke()
  }
}

/** The condition to set, or undefined if it is already set. Takes milliseconds since 1970. */
function staleFinding(gateway: Gateway, nowMs: number): Condition | undefined {
  if (isTakenAsSilent(gateway)) return undefined
  const { metadata, status } = gateway
  const since = status?.heartbeatTime === undefined ? '' : ` since ${status.heartbeatTime}`
  const message = `the gateway on node ${metadata.name} has not reported${since}: the state of its connections is unknown`
  const finding = { type: CONDITION_READY, status: 'Unknown', reason: REASON_STATUS_STALE, message } as const
  return findCondition(setCondition(status?.conditions ?? [], finding, nowMs), CONDITION_READY)
}

/** Whether the gateway has replaced the condition that was set while it was silent. */
function heardAgain(before: Gateway | undefined, after: Gateway): boolean {
  return before !== undefined && isTakenAsSilent(before) && !isTakenAsSilent(after)
}

interface OrphanLoopDeps {
  readonly api: ClusterApi
  readonly writer: MirrorWriter
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: AgentMetrics
}

interface OrphanLoopInit {
  readonly loop: LoopInit
  /** A Node that is missing for less than this is not treated as removed. */
  readonly orphanGraceMs: number
}

/**
 * Removes the objects of removed nodes on a site without Kubernetes, which has no garbage collector. A node is removed
 * when the YAML file of its Node has been missing for longer than an editor needs to rewrite it. A folder that has not
 * been read, or that has no Nodes, proves nothing.
 */
export class OrphanLoop {
  readonly #deps: OrphanLoopDeps
  readonly #graceMs: number
  readonly #loop: ReconcileLoop
  readonly #subscriptions = new Subscriptions()
  /** Maps the name of each missing Node to the monotonic time since when it is missing. */
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
      logger.info('removed because its node is gone', { kind, name: metadata.name })
    }
    const [failure] = await writer.remove(orphans, signal)
    if (failure !== undefined) throw failure
  }

  /**
   * The objects whose Node has been missing long enough. Schedules a round for when the next Node reaches that time.
   */
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
