/**
 * Every imported service port of this node for one family, updated incrementally. It depends only on the objects that
 * it is given, not on clock or kernel. A change of one service causes work only for that service.
 */
import {
  type EndpointSlice,
  LABEL_SERVICE_NAME,
  type ServiceImport,
  type ServiceKey,
  serviceKey,
} from '../../model/model.ts'
import { addressFamily } from './address-family.ts'
import { type PortPlan, type ServiceContext, planService } from './plan-service.ts'

/** One port of one service whose plan has changed. */
export interface PortChange {
  /** Key of the port, such as `245.0.0.7 . tcp . 80`. */
  readonly key: string
  readonly before: PortPlan | undefined
  readonly after: PortPlan | undefined
}

export class BalancePlanner {
  #context: ServiceContext
  readonly #imports = new Map<ServiceKey, ServiceImport>()
  readonly #slices = new Map<ServiceKey, Map<string, EndpointSlice>>()
  /** The service with which a slice was last seen, because its label may change. */
  readonly #serviceOfSlice = new Map<string, ServiceKey>()
  readonly #plans = new Map<ServiceKey, ReadonlyMap<string, PortPlan>>()
  /** Services that want the same port key. The first by name gets it. */
  readonly #claims = new Map<string, ServiceKey[]>()
  readonly #ports = new Map<string, PortPlan>()
  readonly #dirty = new Set<ServiceKey>()

  constructor(context: ServiceContext) {
    this.#context = context
  }

  /** Plans every service again if the context is different. */
  setContext(context: ServiceContext): void {
    if (sameContext(this.#context, context)) return
    this.#context = context
    for (const key of this.#imports.keys()) this.#dirty.add(key)
  }

  setImport(service: ServiceImport): void {
    const key = serviceKey(service.metadata.namespace ?? '', service.metadata.name)
    if (this.#imports.get(key) === service) return
    this.#imports.set(key, service)
    this.#dirty.add(key)
  }

  removeImport(namespace: string, name: string): void {
    const key = serviceKey(namespace, name)
    if (this.#imports.delete(key)) this.#dirty.add(key)
  }

  /** Ignores slices without the service label or of the other family. */
  setSlice(slice: EndpointSlice): void {
    const namespace = slice.metadata.namespace ?? ''
    const id = `${namespace}/${slice.metadata.name}`
    const isOurs = slice.addressType === addressFamily(this.#context.clustersetIpRange.family).slices
    const service = isOurs ? slice.metadata.labels?.[LABEL_SERVICE_NAME] : undefined
    const key = service === undefined ? undefined : serviceKey(namespace, service)
    const before = this.#serviceOfSlice.get(id)
    if (before !== undefined && before !== key) this.removeSlice(namespace, slice.metadata.name)
    if (key === undefined) return
    const slices = this.#slices.get(key) ?? new Map<string, EndpointSlice>()
    if (slices.get(id) === slice) return
    slices.set(id, slice)
    this.#slices.set(key, slices)
    this.#serviceOfSlice.set(id, key)
    this.#dirty.add(key)
  }

  removeSlice(namespace: string, name: string): void {
    const id = `${namespace}/${name}`
    const key = this.#serviceOfSlice.get(id)
    if (key === undefined) return
    this.#serviceOfSlice.delete(id)
    const slices = this.#slices.get(key)
    slices?.delete(id)
    if (slices?.size === 0) this.#slices.delete(key)
    this.#dirty.add(key)
  }

  /** Replaces all imports and slices by these lists. Cheap if nothing differs. */
  replaceAll(imports: readonly ServiceImport[], slices: readonly EndpointSlice[]): void {
    const importKeys = new Set(imports.map((s) => serviceKey(s.metadata.namespace ?? '', s.metadata.name)))
    for (const [key, service] of this.#imports) {
      if (!importKeys.has(key)) this.removeImport(service.metadata.namespace ?? '', service.metadata.name)
    }
    const sliceIds = new Set(slices.map((s) => `${s.metadata.namespace ?? ''}/${s.metadata.name}`))
    for (const id of this.#serviceOfSlice.keys()) {
      const slash = id.indexOf('/')
      if (!sliceIds.has(id)) this.removeSlice(id.slice(0, slash), id.slice(slash + 1))
    }
    for (const service of imports) this.setImport(service)
    for (const slice of slices) this.setSlice(slice)
  }

  /** Plans what was touched since the last call. Returns the ports whose plan changed, sorted by key. */
  takeChanges(): PortChange[] {
    const touched = new Set<string>()
    for (const key of this.#dirty) this.#replan(key, touched)
    this.#dirty.clear()
    const changes: PortChange[] = []
    for (const key of [...touched].sort()) {
      const before = this.#ports.get(key)
      const after = this.#winner(key)
      if (samePlan(before, after)) continue
      if (after === undefined) this.#ports.delete(key)
      else this.#ports.set(key, after)
      changes.push({ key, before, after })
    }
    return changes
  }

  /** Everything planned so far, by port key. */
  ports(): ReadonlyMap<string, PortPlan> {
    return this.#ports
  }

  #replan(key: ServiceKey, touched: Set<string>): void {
    const service = this.#imports.get(key)
    const slices = [...(this.#slices.get(key)?.values() ?? [])]
    const before = this.#plans.get(key)
    const after = service === undefined ? new Map<string, PortPlan>() : planService(service, slices, this.#context)
    for (const port of before?.keys() ?? []) {
      touched.add(port)
      if (!after.has(port)) this.#unclaim(port, key)
    }
    for (const port of after.keys()) {
      touched.add(port)
      if (before?.has(port) !== true) this.#claim(port, key)
    }
    if (after.size === 0) this.#plans.delete(key)
    else this.#plans.set(key, after)
  }

  #claim(port: string, key: ServiceKey): void {
    const others = this.#claims.get(port)
    this.#claims.set(port, others === undefined ? [key] : [...others, key].sort())
  }

  #unclaim(port: string, key: ServiceKey): void {
    const left = (this.#claims.get(port) ?? []).filter((claimant) => claimant !== key)
    if (left.length === 0) this.#claims.delete(port)
    else this.#claims.set(port, left)
  }

  #winner(port: string): PortPlan | undefined {
    const first = this.#claims.get(port)?.[0]
    return first === undefined ? undefined : this.#plans.get(first)?.get(port)
  }
}

export function samePlan(a: PortPlan | undefined, b: PortPlan | undefined): boolean {
  if (a === undefined || b === undefined) return a === b
  if (a.pick !== b.pick || a.dropped !== b.dropped || a.slots.length !== b.slots.length) return false
  return a.slots.every((slot, i) => slot === b.slots[i])
}

function sameContext(a: ServiceContext, b: ServiceContext): boolean {
  return (
    a.node === b.node &&
    a.self === b.self &&
    a.zone === b.zone &&
    a.clustersetIpRange.value === b.clustersetIpRange.value &&
    a.clustersetIpRange.length === b.clustersetIpRange.length &&
    sameSet(a.reachable, b.reachable)
  )
}

function sameSet(a: ReadonlySet<string> | undefined, b: ReadonlySet<string> | undefined): boolean {
  if (a === undefined || b === undefined) return a === b
  return a.size === b.size && [...a].every((item) => b.has(item))
}
