/**
 * Finds pods of this node with addresses outside the pod CIDRs that the cluster states, for the report of the node. The
 * node watches its own pods anyway, so no process lists those of the whole cluster.
 */
import type { ClusterApi } from '../kubeapi/kubeapi.ts'
import { addressesOfNode, formatAddress, outsidePodsOf, parsePrefix } from '../model/addresses/addresses.ts'
import { MEMBERSHIP_NAME } from '../model/model.ts'
import { type Clock, ReconcileLoop } from '../reconcile/reconcile.ts'
import type { Logger } from '../runtime/logging/logging.ts'
import {
  LOOP_TIMING,
  OUTSIDE_PODS_MS,
  type RouteAgentCaches,
  type RouteAgentConfig,
  type RouteAgentMetrics,
  changesSpec,
  loopDeps,
} from './world/world.ts'

export interface OutsidePodsDeps {
  readonly api: Pick<ClusterApi, 'read'>
  readonly caches: RouteAgentCaches
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: RouteAgentMetrics
  /** Called when other addresses are to be reported. */
  readonly onChange: () => void
}

export class OutsidePodsLoop {
  readonly #deps: OutsidePodsDeps
  readonly #node: string
  readonly #loop: ReconcileLoop
  #reported: readonly string[] | undefined

  constructor(deps: OutsidePodsDeps, { node }: Pick<RouteAgentConfig, 'node'>) {
    this.#deps = deps
    this.#node = node
    // An operator reads this, and pods come and go.
    const timing = { ...LOOP_TIMING, minMs: OUTSIDE_PODS_MS }
    this.#loop = new ReconcileLoop(loopDeps(deps, 'outside-pods'), timing, (signal) => this.#round(signal))
  }

  /** Addresses, sorted. Undefined until the pods have been read: then the report stays as it was. */
  get reported(): readonly string[] | undefined {
    return this.#reported
  }

  /** Watches the caches, and starts that of pods. Returns the function that ends this. */
  follow(): () => void {
    const { caches } = this.#deps
    const stops = [
      caches.callers.pods.open().onChange(() => this.#loop.poke()),
      caches.clusters.onChange((change) => {
        if (changesSpec(change)) this.#loop.poke()
      }),
    ]
    return () => stops.forEach((stop) => stop())
  }

  run(signal: AbortSignal): Promise<void> {
    return this.#loop.run(signal)
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { api, caches, onChange } = this.#deps
    const pods = caches.callers.pods.open()
    const self = caches.memberships.get(MEMBERSHIP_NAME)?.spec.clusterId
    const own = self === undefined ? undefined : caches.clusters.get(self)
    // Without its Node, pods on the host network would look like pods outside.
    const node = caches.nodes.get(this.#node)
    if (own === undefined || node === undefined || !pods.synced) return
    // An earlier process on this node has chosen among the same addresses.
    const status = this.#reported ? undefined : (await api.read('RouteAgent', this.#node, undefined, signal))?.status
    const before = this.#reported ?? status?.podsOutside ?? []
    const reported = outsidePodsOf(pods.list(), {
      ...{ node: this.#node, before },
      podCIDRs: own.spec.podCIDRs.map((text) => parsePrefix(text)),
      nodes: new Set(addressesOfNode(node).map(formatAddress)),
    })
    const isNew = this.#reported === undefined || reported.join() !== before.join()
    this.#reported = reported
    if (isNew) onChange()
  }
}
