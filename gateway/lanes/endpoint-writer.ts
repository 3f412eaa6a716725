/** Writes this node's Endpoints, which tell the other clusters about its lanes. */
import { type Endpoint, type KubeObject, isNodeOfSite, owningNode, sameOwners } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { GatewayDeps, GatewayWorld } from '../world/world.ts'
import { planEndpoints } from './plan-gateway.ts'

/**
 * How long objects are written without an owner. A cache lags by less than this. Objects that an operator deleted get
 * their owner again afterwards.
 */
export const OWNER_SUSPECT_MS = 60_000

/**
 * Checks whether the owner of what this node writes can be the right one. A lagging cache still has the previous Node,
 * whose uid no longer exists. The garbage collector removes an object with that owner at once, and this node would
 * write it again, and so on.
 */
export class StaleOwnerGuard {
  readonly #clock: Clock
  /** The owner with which each object was last seen, by the object's name. */
  readonly #seen = new Map<string, string>()
  #suspectOwner: { readonly uid: string; readonly untilMs: number } | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /**
   * Returns what to write: the object itself, or the object without owner for a while after it disappeared although its
   * owner still exists in the cache. `present` is the existing object. Call it in every round, with objects of one
   * kind.
   */
  checked<T extends KubeObject>(wanted: T, present: T | undefined): T {
    const { name } = wanted.metadata
    const uid = ownerUid(wanted)
    const seen = this.#seen.get(name)
    if (present === undefined) this.#seen.delete(name)
    else this.#seen.set(name, ownerUid(present) ?? '')
    if (uid === undefined) return wanted
    const nowMs = this.#clock.monotonic()
    if (present === undefined && seen === uid) this.#suspectOwner = { uid, untilMs: nowMs + OWNER_SUSPECT_MS }
    if (this.#suspectOwner?.uid !== uid || nowMs >= this.#suspectOwner.untilMs) return wanted
    const { ownerReferences: _suspect, ...metadata } = wanted.metadata
    return { ...wanted, metadata }
  }
}

function ownerUid(object: KubeObject): string | undefined {
  const name = owningNode(object)
  return object.metadata.ownerReferences?.find((owner) => owner.name === name)?.uid
}

export type EndpointWriterDeps = Pick<GatewayDeps, 'clock' | 'api' | 'cable'>

export class EndpointWriter {
  readonly #deps: EndpointWriterDeps
  readonly #owners: StaleOwnerGuard
  /** Names applied by this process. An earlier process may have set other labels. */
  readonly #applied = new Set<string>()

  constructor(deps: EndpointWriterDeps) {
    this.#deps = deps
    this.#owners = new StaleOwnerGuard(deps.clock)
  }

  /**
   * Publishes this node's lanes to the other clusters, and deletes Endpoints of lanes that it does not serve. Throws
   * ClusterApiError.
   */
  async write(world: GatewayWorld, signal: AbortSignal): Promise<void> {
    const { api, cable } = this.#deps
    // A node that was removed from the site has no lanes, whatever still runs on it.
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

/** Endpoints of one node of this cluster. */
export function ownEndpoints(deps: Pick<GatewayDeps, 'api'>, clusterId: string, node: string): Endpoint[] {
  const all = deps.api.cache('Endpoint').list()
  return all.filter((endpoint) => endpoint.spec.cluster === clusterId && endpoint.spec.node === node)
}

function sameSpec(a: Endpoint, b: Endpoint): boolean {
  return canonical(a.spec) === canonical(b.spec)
}

/** JSON with sorted keys, so that equal values have equal text. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, item: unknown) =>
    item !== null && typeof item === 'object' && !Array.isArray(item)
      ? Object.fromEntries(Object.entries(item).sort(([a], [b]) => (a < b ? -1 : 1)))
      : item,
  )
}
