/** Tells on this cluster's own Cluster when pods have addresses outside the pod CIDRs that the cluster states. */
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import { CONDITION_POD_ADDRESSES, LABEL_SOURCE_CLUSTER, type RouteAgent, findCondition } from '../../model/model.ts'
import type { ClusterFacts } from '../../protocol/protocol.ts'
import { type Clock, type LoopInit, ReconcileLoop, Subscriptions } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { type AgentMetrics, type MirrorWriter, loopDeps } from '../loop/loop.ts'
import { newPodAddressMemory, planPodAddressStatus, podsOutsideRanges } from './plan-pod-addresses.ts'
import type { SilentAgents } from './silent-agents.ts'

export interface PodAddressLoopDeps {
  readonly api: ClusterApi
  readonly writer: MirrorWriter
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: AgentMetrics
  /** This loop makes it look. */
  readonly silentAgents: SilentAgents
}

export interface PodAddressLoopInit {
  /** Id of this cluster. */
  readonly own: string
  /** The facts that this cluster states about itself. If undefined, those it joined with are used. */
  readonly facts: ClusterFacts | undefined
  readonly loop: LoopInit
}

const KINDS = ['Cluster', 'EndpointSlice', 'Node', 'RouteAgent'] as const
/** Slices change with every pod, and an operator reads the condition. */
const LOOK_MS = 10_000

export class PodAddressLoop {
  readonly #deps: PodAddressLoopDeps
  readonly #init: PodAddressLoopInit
  readonly #loop: ReconcileLoop
  readonly #subscriptions = new Subscriptions()
  readonly #memory = newPodAddressMemory()

  constructor(deps: PodAddressLoopDeps, init: PodAddressLoopInit) {
    this.#deps = deps
    this.#init = init
    const timing = { ...init.loop, minMs: Math.max(init.loop.minMs, LOOK_MS) }
    this.#loop = new ReconcileLoop(loopDeps(deps, 'pod-addresses'), timing, (signal) => this.#round(signal))
    const { api } = deps
    const slices = api.cache('EndpointSlice').onChange((change) => {
      if (change?.object.metadata.labels?.[LABEL_SOURCE_CLUSTER] === undefined) this.#loop.poke()
    })
    const clusters = api.cache('Cluster').onChange((change) => {
      if (change === undefined || change.object.metadata.name === init.own) this.#loop.poke()
    })
    const reports = api.cache('RouteAgent').onChange((change) => {
      if (change?.type !== 'set' || outsideText(change.object) !== outsideText(change.previous)) this.#loop.poke()
    })
    for (const stop of [slices, clusters, reports]) this.#subscriptions.add(stop)
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#loop.run(signal)
    this.#subscriptions.end()
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { api, writer, clock, logger, silentAgents } = this.#deps
    if (api.cache('RouteAgent').synced) await silentAgents.look(signal)
    const own = api.cache('Cluster').get(this.#init.own)
    // Without the Nodes, pods on the host network would look like pods outside.
    if (own === undefined || !KINDS.every((kind) => api.cache(kind).synced)) return
    const stated = this.#init.facts ?? own.spec
    const [nodes, slices, routeAgents] = [api.cache('Node'), api.cache('EndpointSlice'), api.cache('RouteAgent')]
    const silent = silentAgents.nodes
    const world = { stated, nodes: nodes.list(), slices: slices.list(), routeAgents: routeAgents.list(), silent }
    const outside = podsOutsideRanges(world, this.#memory)
    const change = planPodAddressStatus(own, stated, outside, clock.now())
    if (change === undefined) return
    const now = findCondition(change.status?.conditions, CONDITION_POD_ADDRESSES)
    if (now?.status === 'False') {
      logger.warn('pods have addresses outside the pod CIDRs', { reason: 'PodsOutsideRanges', why: now.message })
    }
    const [failure] = await writer.applyStatuses([change], signal)
    if (failure !== undefined && failure.code !== 'NotFound') throw failure
  }
}

function outsideText(agent: RouteAgent | undefined): string {
  return (agent?.status?.podsOutside ?? []).join(' ')
}
