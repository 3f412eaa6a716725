/**
 * Sets the condition Ready of each gateway that has stopped to report to Unknown: a dead gateway cannot do so itself.
 * The gateway's next report takes it back. Nodes and the node controller do the same.
 */
import type { ClusterApi } from '../../kubeapi/cluster-api.ts'
import type { HeardGateways } from '../../kubeapi/heard-gateways.ts'
import { CONDITION_READY, REASON_STATUS_STALE, findCondition, setCondition } from '../../model/conditions.ts'
import { isTakenAsSilent } from '../../model/lanes/heartbeat.ts'
import type { Condition, Gateway } from '../../model/objects.ts'
import type { Clock } from '../../reconcile/clock.ts'
import { type LoopInit, ReconcileLoop } from '../../reconcile/loop.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import { loopDeps } from '../loop-deps.ts'
import type { AgentMetrics } from '../metrics.ts'
import { Subscriptions } from '../subscriptions.ts'

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
    const note = `the gateway on node ${name} is heard again`
    this.#deps.api.report({ regarding, type: 'Normal', reason: 'GatewayHeard', note })
    this.#loop.poke()
  }
}

/** The condition to set; undefined where it is set already. Takes milliseconds since 1970. */
function staleFinding(gateway: Gateway, nowMs: number): Condition | undefined {
  if (isTakenAsSilent(gateway)) return undefined
  const { metadata, status } = gateway
  const since = status?.heartbeatTime === undefined ? '' : ` since ${status.heartbeatTime}`
  const message = `nothing was heard from the gateway on node ${metadata.name}${since}: its connections are not known`
  const finding = { type: CONDITION_READY, status: 'Unknown', reason: REASON_STATUS_STALE, message } as const
  return findCondition(setCondition(status?.conditions ?? [], finding, nowMs), CONDITION_READY)
}

/** The gateway has taken back what was said of it while it was silent. */
function heardAgain(before: Gateway | undefined, after: Gateway): boolean {
  return before !== undefined && isTakenAsSilent(before) && !isTakenAsSilent(after)
}
