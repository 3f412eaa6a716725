/** Tells on this cluster's own Cluster when pods have addresses outside the pod CIDRs that the cluster states. */
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import {
  CONDITION_POD_ADDRESSES,
  LABEL_SOURCE_CLUSTER,
  PODS_OUTSIDE_BEAT_MS,
  type RouteAgent,
  findCondition,
} from '../../model/model.ts'
import type { ClusterFacts } from '../../protocol/protocol.ts'
import { type Clock, Heartbeats, type LoopInit, ReconcileLoop, Subscriptions } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { type AgentMetrics, type MirrorWriter, loopDeps } from '../loop/loop.ts'
import { newPodAddressMemory, planPodAddressStatus, podsOutsideRanges } from './plan-pod-addresses.ts'

export interface PodAddressLoopDeps {
  readonly api: ClusterApi
  readonly writer: MirrorWriter
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: AgentMetrics
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
/** A routeagent that has missed three of its writes is dead, or cannot write. */
const STALE_MS = 3 * PODS_OUTSIDE_BEAT_MS
/** More nodes than this at once are no single dead processes. Their reports count, and are not read again. */
const MOST_READ = 100

export class PodAddressLoop {
  readonly #deps: PodAddressLoopDeps
  readonly #init: PodAddressLoopInit
  readonly #loop: ReconcileLoop
  readonly #subscriptions = new Subscriptions()
  readonly #memory = newPodAddressMemory()
  /** The times that routeagents write. An earlier release writes none, and its reports count. */
  readonly #beats: Heartbeats
  #known: readonly string[] = []

  constructor(deps: PodAddressLoopDeps, init: PodAddressLoopInit) {
    this.#deps = deps
    this.#init = init
    const { resyncMs } = init.loop
    this.#beats = new Heartbeats(deps, { staleMs: STALE_MS, suspectMs: STALE_MS - 2 * resyncMs, gapMs: 4 * resyncMs })
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
    const { api, writer, clock, logger } = this.#deps
    const own = api.cache('Cluster').get(this.#init.own)
    // Without the Nodes, pods on the host network would look like pods outside.
    if (own === undefined || !KINDS.every((kind) => api.cache(kind).synced)) return
    const stated = this.#init.facts ?? own.spec
    const [nodes, slices, routeAgents] = [api.cache('Node'), api.cache('EndpointSlice'), api.cache('RouteAgent')]
    const silent = await this.#silent(routeAgents.list(), signal)
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

  /**
   * Nodes whose routeagent has stopped writing its time while the API server answered. A cache that has stalled shows
   * old times, so every round reads one object, and those that are late.
   */
  async #silent(agents: readonly RouteAgent[], signal: AbortSignal): Promise<ReadonlySet<string>> {
    const present = new Map(agents.map((agent) => [agent.metadata.name, beatOf(agent)]))
    for (const name of this.#known) if (!present.has(name)) this.#beats.forget(name)
    for (const [name, beat] of present) this.#beats.saw(name, beat)
    this.#known = [...present.keys()]
    const late = this.#beats.doubtful()
    const [one] = [...late, ...this.#known.filter((name) => present.get(name) !== undefined)]
    if (one === undefined || late.length > MOST_READ) return new Set(this.#beats.stopped())
    for (const name of new Set([...late, one])) {
      this.#beats.saw(name, beatOf(await this.#deps.api.read('RouteAgent', name, undefined, signal)))
    }
    this.#beats.viewIsLive()
    return new Set(this.#beats.stopped())
  }
}

function beatOf(agent: RouteAgent | undefined): string | undefined {
  return agent?.status?.podsOutside === undefined ? undefined : agent.status.podsOutsideTime
}

function outsideText(agent: RouteAgent | undefined): string {
  return (agent?.status?.podsOutside ?? []).join(' ')
}
