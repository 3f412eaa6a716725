/**
 * Open connections of services whose import has gone while this process watched. The exporter's nodes drop the packets
 * of what is no longer offered without a word, so a client would wait for minutes. Its own node ends its TCP and SCTP
 * connections instead (plan-node-table.ts); UDP flows are forgotten (stale-flows.ts). Pure.
 *
 * - An import that was never seen here ends nothing (design rules 2 and 13), and endpoints that go while the import
 *   stays do not either: the importer leaves them out also if it has not heard of their cluster for long.
 * - Connections to endpoints of this cluster go on, and those to exporters that let them.
 * - An import that comes back at once, as when an object is replaced, ends nothing.
 */
import { type EndpointSlice, LABEL_SOURCE_CLUSTER, type ServiceImport, type ServiceKey } from '../../model/model.ts'
import { keepsOpenOf } from '../../model/services/services.ts'
import { type PortPlan, type ServiceContext, endedPlans } from './plan-service.ts'

/** How long an import has to be gone before connections are ended. */
export const WITHDRAWN_HOLD_MS = 2000
/** How long they are ended then: longer than the first keepalive of an idle connection takes by default, two hours. */
export const WITHDRAWN_MS = 3 * 3_600_000
/** Targets of all ports together. Connections to more of them are left as they are. */
export const MAX_WITHDRAWN_TARGETS = 16_384
/** Slices that are remembered because they may have gone just before their import. */
const MAX_SLICES = 256

interface WithdrawnPort {
  readonly plan: PortPlan
  readonly fromMs: number
  readonly untilMs: number
  readonly targets: number
}

export class WithdrawnPorts {
  /** The slices that went last, by namespace and name. */
  readonly #slices = new Map<string, { readonly service: ServiceKey; readonly slice: EndpointSlice }>()
  /** The imports that have gone since the last take(). */
  readonly #imports = new Map<ServiceKey, ServiceImport>()
  /** By port key, in the order in which they went. */
  readonly #ports = new Map<string, WithdrawnPort>()
  /** The keys of those whose connections are ended now. */
  readonly #ending = new Set<string>()
  #targets = 0

  sliceCame(id: string): void {
    this.#slices.delete(id)
  }

  sliceWent(id: string, service: ServiceKey, slice: EndpointSlice): void {
    this.#slices.delete(id)
    this.#slices.set(id, { service, slice })
    const [first] = this.#slices.keys()
    if (this.#slices.size > MAX_SLICES && first !== undefined) this.#slices.delete(first)
  }

  importCame(key: ServiceKey): void {
    this.#imports.delete(key)
  }

  importWent(key: ServiceKey, object: ServiceImport): void {
    this.#imports.set(key, object)
  }

  /** A service has this port. */
  portCame(port: string): void {
    this.#ending.delete(port)
    this.#targets -= this.#ports.get(port)?.targets ?? 0
    this.#ports.delete(port)
  }

  /**
   * Takes what went until this monotonic time, in milliseconds. Returns the ports whose connections are ended from now
   * on, or no longer. `slicesOf` has the slices of a service that are still there; `isPlanned`: a service has the port.
   */
  take(
    atMs: number,
    context: ServiceContext,
    slicesOf: (key: ServiceKey) => Iterable<EndpointSlice>,
    isPlanned: (port: string) => boolean,
  ): readonly string[] {
    for (const [key, object] of this.#imports) {
      const slices = [...slicesOf(key), ...this.#slicesThatWent(key)].filter((slice) => endsCalls(slice, context.self))
      if (slices.length === 0) continue
      for (const [port, plan] of endedPlans(object, slices, context)) {
        const targets = plan.ended?.length ?? 0
        if (isPlanned(port) || this.#targets + targets > MAX_WITHDRAWN_TARGETS) continue
        this.portCame(port)
        const fromMs = atMs + WITHDRAWN_HOLD_MS
        this.#ports.set(port, { plan, fromMs, untilMs: fromMs + WITHDRAWN_MS, targets })
        this.#targets += targets
      }
    }
    this.#imports.clear()
    const changed: string[] = []
    for (const [port, { fromMs, untilMs }] of this.#ports) {
      if (atMs >= untilMs) this.portCame(port)
      else if (atMs >= fromMs && !this.#ending.has(port)) this.#ending.add(port)
      else continue
      changed.push(port)
    }
    return changed
  }

  /** When take() has the next change. Infinity if there is none to come. */
  get dueMs(): number {
    let due = Infinity
    for (const [port, { fromMs, untilMs }] of this.#ports)
      due = Math.min(due, this.#ending.has(port) ? untilMs : fromMs)
    return due
  }

  /** The plan of a port that no service has, if connections to it are ended. */
  planOf(port: string): PortPlan | undefined {
    return this.#ending.has(port) ? this.#ports.get(port)?.plan : undefined
  }

  #slicesThatWent(key: ServiceKey): EndpointSlice[] {
    const found: EndpointSlice[] = []
    for (const [id, { service, slice }] of this.#slices) {
      if (service !== key) continue
      found.push(slice)
      this.#slices.delete(id)
    }
    return found
  }
}

/** Whether the exporter of the slice drops packets of open connections once it offers the service no more. */
function endsCalls(slice: EndpointSlice, self: string): boolean {
  const cluster = slice.metadata.labels?.[LABEL_SOURCE_CLUSTER]
  return cluster !== undefined && cluster !== self && !keepsOpenOf(slice)
}
