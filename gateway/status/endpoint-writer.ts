/** Writes this node's Endpoints: what the other clusters learn of its lanes. */
import { isNodeOfSite, sameOwners } from '../../model/node-owner.ts'
import type { Endpoint } from '../../model/objects.ts'
import type { GatewayDeps } from '../deps.ts'
import type { GatewayWorld } from '../world.ts'
import { StaleOwnerGuard } from './stale-owner-guard.ts'
import { planEndpoints } from './plan-endpoints.ts'

export type EndpointWriterDeps = Pick<GatewayDeps, 'clock' | 'api' | 'cable'>

export class EndpointWriter {
  readonly #deps: EndpointWriterDeps
  readonly #owners: StaleOwnerGuard
  /** Applied by this process: an earlier one may have put other labels on them. */
  readonly #applied = new Set<string>()

  constructor(deps: EndpointWriterDeps) {
    this.#deps = deps
    this.#owners = new StaleOwnerGuard(deps.clock)
  }

  /** Publishes our lanes to the other clusters, and withdraws lanes that we do not serve. Throws ClusterApiError. */
  async write(world: GatewayWorld, signal: AbortSignal): Promise<void> {
    const { api, cable } = this.#deps
    // A node that was removed from the site has lanes no more, whatever still runs there.
    const wanted = isNodeOfSite(world.node, world.nodes) ? planEndpoints(world, cable.rules) : []
    for (const planned of wanted) {
      const present = api.cache('Endpoint').get(planned.metadata.name)
      const endpoint = this.#owners.checked(planned, present)
      const { name } = endpoint.metadata
      const isReported = present !== undefined && sameSpec(present, endpoint) && sameOwners(present, endpoint)
      if (isReported && this.#applied.has(name)) continue
      await api.apply(endpoint, signal)
      this.#applied.add(name)
    }
    const names = new Set(wanted.map((endpoint) => endpoint.metadata.name))
    const served = new Set(world.lanes.map((lane) => lane.lane))
    for (const endpoint of ownEndpoints(this.#deps, world.own.spec.id, world.node)) {
      if (names.has(endpoint.metadata.name) || served.has(endpoint.spec.lane)) continue
      await api.remove('Endpoint', endpoint.metadata.name, undefined, signal)
    }
  }
}

/** Those of one node of this cluster. */
export function ownEndpoints(deps: Pick<GatewayDeps, 'api'>, clusterId: string, node: string): Endpoint[] {
  const all = deps.api.cache('Endpoint').list()
  return all.filter((endpoint) => endpoint.spec.cluster === clusterId && endpoint.spec.node === node)
}

function sameSpec(a: Endpoint, b: Endpoint): boolean {
  return canonical(a.spec) === canonical(b.spec)
}

/** JSON with keys in order, so that equal values have equal text. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, item: unknown) =>
    item !== null && typeof item === 'object' && !Array.isArray(item)
      ? Object.fromEntries(Object.entries(item).sort(([a], [b]) => (a < b ? -1 : 1)))
      : item,
  )
}
