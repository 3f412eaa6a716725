/**
 * Open connections of services whose import has gone while this process watched, or which one of several clusters
 * exports no more: it has left `status.clusters` of the import. The exporter's nodes drop the packets
 * of what is no longer offered without a word, so a client would wait for minutes. Its own node ends its TCP and SCTP
 * connections instead (plan-node-table.ts); UDP flows are forgotten (stale-flows.ts). Pure.
 *
 * - An import that was never seen here ends nothing (design rules 2 and 13), and endpoints that go while their cluster
 *   stays among those of the import do not either: the importer leaves them out also if it has not heard of their
 *   cluster for long. An import without a status says nothing about its clusters.
 * - Only connections to exporters that say that they drop such packets are ended, and none to this cluster's endpoints.
 * - A cluster that exports the service again ends nothing more.
 * - An import that comes back at once, as when an object is replaced or the agent mends what a user has deleted, ends
 *   nothing. One that a user deletes while no agent runs does, although its exporter drops nothing: new calls find no
 *   service then either.
 * - An import that goes with its namespace ends nothing: its exporter still offers it.
 */
import { type EndpointSlice, LABEL_SOURCE_CLUSTER, type ServiceImport, type ServiceKey } from '../../model/model.ts'
import { endsOpenOf } from '../../model/services/services.ts'
import { type PortPlan, type ServiceContext, openTargets } from './plan-service.ts'

/** How long an import has to be gone before connections are ended. */
export const WITHDRAWN_HOLD_MS = 2000
/** How long they are ended then: longer than the first keepalive of an idle connection takes by default, two hours. */
export const WITHDRAWN_MS = 3 * 3_600_000
/** Nothing is ended if it is not known for so long whether the namespace stays. */
export const WITHDRAWN_UNKNOWN_MS = 30_000
/** Targets of all ports together, for each exporting cluster. Its oldest give way. */
export const MAX_WITHDRAWN_TARGETS = 2048
/** Slices that are remembered because they may have gone just before their import, for each exporting cluster. */
export const MAX_SLICES_THAT_WENT = 64

/** Whether a namespace exists and is not about to go. Undefined: not known yet. */
export type NamespaceStays = (namespace: string) => boolean | undefined

/** What else there is while withdrawn services are taken. */
export interface WithdrawnWorld {
  readonly context: ServiceContext
  /** The slices of a service that are still there. */
  readonly slicesOf: (key: ServiceKey) => Iterable<EndpointSlice>
  /** A service has the port. */
  readonly isPlanned: (port: string) => boolean
  readonly stays: NamespaceStays
}

/** The endpoints of one cluster behind one port. */
interface WithdrawnTargets {
  readonly service: ServiceKey
  readonly targets: readonly string[]
  readonly wentMs: number
  /** Waiting: looked at next at this time. Ending: no longer ended from then on. */
  readonly dueMs: number
  readonly is: 'waiting' | 'ending'
}

export class WithdrawnPorts {
  /** The slices that went last, by cluster, then by namespace and name. */
  readonly #slices = new Map<string, Map<string, { readonly service: ServiceKey; readonly slice: EndpointSlice }>>()
  /** The imports that have gone since the last take(). */
  readonly #imports = new Map<ServiceKey, ServiceImport>()
  /** The imports that clusters have left since the last take(), as they were, with these clusters. */
  readonly #left = new Map<ServiceKey, { readonly object: ServiceImport; readonly clusters: Set<string> }>()
  /** By cluster, then by port key, in the order in which they went. */
  readonly #clusters = new Map<string, Map<string, WithdrawnTargets>>()
  /** Ports whose ended connections have changed since the last take(). */
  readonly #changed = new Set<string>()

  sliceCame(id: string): void {
    for (const slices of this.#slices.values()) slices.delete(id)
  }

  sliceWent(id: string, service: ServiceKey, slice: EndpointSlice): void {
    this.sliceCame(id)
    const cluster = endingCluster(slice)
    if (cluster === undefined) return
    const slices = this.#slices.get(cluster) ?? new Map<string, { service: ServiceKey; slice: EndpointSlice }>()
    this.#slices.set(cluster, slices.set(id, { service, slice }))
    const [first] = slices.keys()
    if (slices.size > MAX_SLICES_THAT_WENT && first !== undefined) slices.delete(first)
  }

  importCame(key: ServiceKey): void {
    this.#imports.delete(key)
  }

  /** The import stays. Its clusters may have changed: returns whether they have. */
  importChanged(key: ServiceKey, before: ServiceImport, after: ServiceImport): boolean {
    const [had, has] = [exporters(before), exporters(after)]
    if (had === undefined || has === undefined) return false
    for (const cluster of has) if (!had.has(cluster)) this.#clusterCame(key, cluster)
    for (const cluster of had) {
      if (has.has(cluster)) continue
      const left = this.#left.get(key) ?? { object: before, clusters: new Set<string>() }
      left.clusters.add(cluster)
      this.#left.set(key, left)
    }
    return had.size !== has.size || [...has].some((cluster) => !had.has(cluster))
  }

  #clusterCame(key: ServiceKey, cluster: string): void {
    this.#left.get(key)?.clusters.delete(cluster)
    for (const [port, { service }] of [...(this.#clusters.get(cluster) ?? [])])
      if (service === key) this.#forget(cluster, port)
  }

  importWent(key: ServiceKey, object: ServiceImport): void {
    this.#imports.set(key, object)
  }

  /**
   * A service has this port. If it is the import of before that was replaced, it is still not exported by the clusters
   * that it does not name.
   */
  portCame(port: string, key: ServiceKey, object: ServiceImport): void {
    const has = exporters(object)
    for (const [cluster, ports] of this.#clusters) {
      const isStillGone = has?.has(cluster) === false && ports.get(port)?.service === key
      if (!isStillGone) this.#forget(cluster, port)
    }
  }

  /**
   * Takes what went until this monotonic time, in milliseconds. Returns the ports whose connections are ended from now
   * on, or no longer.
   */
  take(atMs: number, world: WithdrawnWorld): readonly string[] {
    for (const [key, { object, clusters }] of this.#left) this.#takeImport(atMs, [key, object, clusters], world)
    this.#left.clear()
    for (const [key, object] of this.#imports) this.#takeImport(atMs, [key, object, undefined], world)
    this.#imports.clear()
    for (const [cluster, ports] of this.#clusters)
      for (const [port, one] of [...ports]) if (atMs >= one.dueMs) this.#goOn(atMs, [cluster, port, one], world.stays)
    const changed = [...this.#changed]
    this.#changed.clear()
    return changed
  }

  /** Takes the clusters that left the import. Undefined: the import has gone. */
  #takeImport(
    atMs: number,
    [key, object, left]: readonly [ServiceKey, ServiceImport, ReadonlySet<string> | undefined],
    { context, slicesOf, isPlanned, stays }: WithdrawnWorld,
  ): void {
    const byCluster = new Map<string, EndpointSlice[]>()
    for (const slice of [...slicesOf(key), ...this.#slicesThatWent(key, left)]) {
      const cluster = endingCluster(slice)
      if (cluster === undefined || cluster === context.self || left?.has(cluster) === false) continue
      byCluster.set(cluster, [...(byCluster.get(cluster) ?? []), slice])
    }
    // The first question has the namespaces read, so that they are known when the time comes.
    if (byCluster.size === 0 || stays(namespaceOf(key)) === false) return
    for (const [cluster, slices] of byCluster) {
      for (const [port, all] of openTargets(object, slices, context)) {
        if (left === undefined && isPlanned(port)) continue
        const targets = all.slice(0, MAX_WITHDRAWN_TARGETS)
        const dueMs = atMs + WITHDRAWN_HOLD_MS
        this.#remember([cluster, port, { service: key, targets, wentMs: atMs, dueMs, is: 'waiting' }])
      }
    }
  }

  #remember([cluster, port, one]: readonly [string, string, WithdrawnTargets]): void {
    this.#forget(cluster, port)
    const ports = this.#clusters.get(cluster) ?? new Map<string, WithdrawnTargets>()
    let left = MAX_WITHDRAWN_TARGETS - one.targets.length
    for (const { targets } of ports.values()) left -= targets.length
    for (const [oldest, { targets }] of [...ports]) {
      if (left >= 0) break
      left += targets.length
      this.#forget(cluster, oldest)
    }
    this.#clusters.set(cluster, ports.set(port, one))
  }

  /** The state machine of one cluster's endpoints behind a port: waiting ─► ending ─► forgotten. */
  #goOn(atMs: number, [cluster, port, one]: readonly [string, string, WithdrawnTargets], stays: NamespaceStays): void {
    const answer = one.is === 'waiting' ? stays(namespaceOf(one.service)) : false
    if (answer === false || (answer === undefined && atMs >= one.wentMs + WITHDRAWN_UNKNOWN_MS)) {
      this.#forget(cluster, port)
      return
    }
    if (answer === true) this.#changed.add(port)
    // A key that exists keeps its place.
    const next =
      answer === true ? { is: 'ending' as const, dueMs: atMs + WITHDRAWN_MS } : { dueMs: atMs + WITHDRAWN_HOLD_MS }
    this.#clusters.get(cluster)?.set(port, { ...one, ...next })
  }

  #forget(cluster: string, port: string): void {
    const ports = this.#clusters.get(cluster)
    if (ports?.get(port)?.is === 'ending') this.#changed.add(port)
    ports?.delete(port)
    if (ports?.size === 0) this.#clusters.delete(cluster)
  }

  /** When take() has the next change. Infinity if there is none to come. */
  get dueMs(): number {
    let due = Infinity
    for (const ports of this.#clusters.values()) for (const { dueMs } of ports.values()) due = Math.min(due, dueMs)
    return due
  }

  /** The plan of a port that no service has, if connections to it are ended. */
  planOf(port: string): PortPlan | undefined {
    const ended = this.#endedOf(port)
    return ended.size === 0 ? undefined : { pick: 'random', slots: [], ended: [...ended].sort(), withdrawn: true }
  }

  /** The plan of a port that the service has, with the connections that are ended to clusters that have left it. */
  within(port: string, service: ServiceKey, plan: PortPlan | undefined): PortPlan | undefined {
    const ended = this.#endedOf(port, service)
    if (plan === undefined || ended.size === 0) return plan
    for (const slot of plan.slots) ended.delete(slot)
    return { ...plan, ended: [...new Set([...(plan.ended ?? []), ...ended])].sort() }
  }

  #endedOf(port: string, service?: ServiceKey): Set<string> {
    const ended = new Set<string>()
    for (const ports of this.#clusters.values()) {
      const one = ports.get(port)
      if (one?.is !== 'ending' || (service !== undefined && one.service !== service)) continue
      for (const target of one.targets) ended.add(target)
    }
    return ended
  }

  /** Of these clusters, or of all. */
  #slicesThatWent(key: ServiceKey, clusters?: ReadonlySet<string>): EndpointSlice[] {
    const found: EndpointSlice[] = []
    for (const [cluster, slices] of this.#slices) {
      if (clusters?.has(cluster) === false) continue
      for (const [id, { service, slice }] of slices) {
        if (service !== key) continue
        found.push(slice)
        slices.delete(id)
      }
      if (slices.size === 0) this.#slices.delete(cluster)
    }
    return found
  }
}

/** The exporter of the slice, if it drops packets of open connections once it offers the service no more. */
function endingCluster(slice: EndpointSlice): string | undefined {
  return endsOpenOf(slice) ? slice.metadata.labels?.[LABEL_SOURCE_CLUSTER] : undefined
}

/** The clusters that export the service. Undefined: the import does not say. */
function exporters({ status }: ServiceImport): ReadonlySet<string> | undefined {
  return status?.clusters === undefined ? undefined : new Set(status.clusters.map(({ cluster }) => cluster))
}

function namespaceOf(key: ServiceKey): string {
  return key.slice(0, key.indexOf('/'))
}
