/** Writes this node's Endpoints: what the other clusters learn of its lanes. */
import { type Endpoint, type KubeObject, isNodeOfSite, owningNode, sameOwners } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { GatewayDeps, GatewayWorld } from '../world/world.ts'
import { planEndpoints } from './plan-gateway.ts'

/** Without owner for so long. A cache is late by less, and who removes objects by hand gets them owned again. */
export const OWNER_DOUBT_MS = 60_000

/**
 * Whether the owner of what this node writes can be the right one. A cache may be late: it still has the Node of
 * before, whose uid is nobody's any more. What is written for that owner is removed by the garbage collector at once,
 * and would be written again, and so on.
 */
export class StaleOwnerGuard {
  readonly #clock: Clock
  /** Owner with which an object was seen last, by its name. */
  readonly #seen = new Map<string, string>()
  #doubted: { readonly uid: string; readonly untilMs: number } | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /**
   * What to write: the object itself; or without owner, for a while, after it vanished while its owner, as far as is
   * known, did not. `present` is what there is of it now. To be asked at each round, with objects of one kind.
   */
  checked<T extends KubeObject>(wanted: T, present: T | undefined): T {
    const { name } = wanted.metadata
    const uid = ownerUid(wanted)
    const seen = this.#seen.get(name)
    if (present === undefined) this.#seen.delete(name)
    else this.#seen.set(name, ownerUid(present) ?? '')
    if (uid === undefined) return wanted
    const nowMs = this.#clock.monotonic()
    if (present === undefined && seen === uid) this.#doubted = { uid, untilMs: nowMs + OWNER_DOUBT_MS }
    if (this.#doubted?.uid !== uid || nowMs >= this.#doubted.untilMs) return wanted
    const { ownerReferences: _doubted, ...metadata } = wanted.metadata
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
