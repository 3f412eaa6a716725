/**
 * Every imported service port of this node for one family, updated incrementally. It depends only on the objects that
 * it is given, not on clock or kernel. A change of one service causes work only for that service.
 */
import type { Prefix } from '../../model/addresses/addresses.ts'
import {
  type EndpointSlice,
  LABEL_SERVICE_NAME,
  type ServiceImport,
  type ServiceKey,
  serviceKey,
} from '../../model/model.ts'
import { type PortCounts, addressFamily } from '../world/world.ts'
import {
  type PortPlan,
  type ServiceContext,
  type ServiceTraffic,
  planService,
  portKey,
  readyTargets,
  servingTargets,
  sharesFor,
  watchedName,
} from './plan-service.ts'
import { type NamespaceStays, WithdrawnPorts } from './withdrawn.ts'

/** One port of one service whose plan has changed. Without a plan, no service has it. */
export interface PortChange {
  /** Key of the port, such as `245.0.0.7 . tcp . 80`. */
  readonly key: string
  readonly before: PortPlan | undefined
  readonly after: PortPlan | undefined
}

/** How the connections of services are divided over clusters. */
export interface Traffic {
  /** Undefined: all endpoints count alike. Takes all slices of the service, of one family. */
  of(service: ServiceImport, slices: readonly EndpointSlice[]): ServiceTraffic | undefined
}

/** What becomes of connections to a port: none of its backends is ready, or this node may use none of them. */
type PortFate = keyof PortCounts

/** Readiness that changes many times a second must not become as many changes of the kernel's table. */
export const SHARES_HOLD_MS = 100
const NO_TARGETS: ReadonlySet<string> = new Set()

export class BalancePlanner {
  #context: ServiceContext
  readonly #stays: NamespaceStays
  readonly #imports = new Map<ServiceKey, ServiceImport>()
  readonly #slices = new Map<ServiceKey, Map<string, EndpointSlice>>()
  /** The service with which a slice was last seen, because its label may change. */
  readonly #serviceOfSlice = new Map<string, ServiceKey>()
  #traffic: Traffic | undefined
  /** Services of which targets may be left out, with those that are. */
  readonly #watched = new Map<ServiceKey, ReadonlySet<string>>()
  readonly #plans = new Map<ServiceKey, ReadonlyMap<string, PortPlan>>()
  /** Services that want the same port key. The first by name gets it. */
  readonly #claims = new Map<string, ServiceKey[]>()
  readonly #ports = new Map<string, PortPlan>()
  readonly #counts: Record<PortFate, number> = { served: 0, refused: 0, dropped: 0 }
  readonly #dirty = new Set<ServiceKey>()
  /** Services whose clusters have shares. */
  readonly #shared = new Set<ServiceKey>()
  /** When those last changed whose next change may be too early, the longest ago first. */
  readonly #changedAt = new Map<ServiceKey, number>()
  #dueMs: number | undefined
  readonly #withdrawn = new WithdrawnPorts()

  /** Without `stays`, no namespace goes. */
  constructor(context: ServiceContext, stays: NamespaceStays = () => true) {
    this.#context = context
    this.#stays = stays
  }

  /** Plans every service again if the context is different. */
  setContext(context: ServiceContext): void {
    if (sameContext(this.#context, context)) return
    this.#context = context
    for (const key of this.#imports.keys()) this.#dirty.add(key)
  }

  /** Returns whether the plan may differ. */
  setImport(service: ServiceImport): boolean {
    const key = serviceKey(service.metadata.namespace ?? '', service.metadata.name)
    const before = this.#imports.get(key)
    if (before === service) return false
    this.#imports.set(key, service)
    const isLeft = before !== undefined && this.#withdrawn.importChanged(key, before, service)
    this.#withdrawn.importCame(key)
    this.#dirty.add(key)
    return isLeft || before === undefined || this.#divides(key, before, service)
  }

  /** Whether a service is planned otherwise than before. Of plain services, only what their spec says counts. */
  #divides(key: ServiceKey, before: ServiceImport, after: ServiceImport): boolean {
    if (JSON.stringify(before.spec) !== JSON.stringify(after.spec)) return true
    const slices = [...(this.#slices.get(key)?.values() ?? [])]
    return [before, after].some((service) => this.#traffic?.of(service, slices) !== undefined)
  }

  /** Returns whether the plan may differ. */
  removeImport(namespace: string, name: string): boolean {
    const key = serviceKey(namespace, name)
    const service = this.#imports.get(key)
    if (service === undefined) return false
    this.#imports.delete(key)
    this.#withdrawn.importWent(key, service)
    this.#dirty.add(key)
    return true
  }

  /**
   * Replaces what divides the connections of services. Services that it does not concern stay as they are planned. By
   * default it concerns all. `concerns` takes the slices of the service, of the planned family.
   */
  setTraffic(
    traffic: Traffic | undefined,
    concerns: (service: ServiceImport, slices: Iterable<EndpointSlice>) => boolean = () => true,
  ): void {
    this.#traffic = traffic
    for (const [key, service] of this.#imports)
      if (concerns(service, this.#slices.get(key)?.values() ?? [])) this.#dirty.add(key)
  }

  /** Ignores slices without the service label or of the other family. Returns whether the plan may differ. */
  setSlice(slice: EndpointSlice): boolean {
    const namespace = slice.metadata.namespace ?? ''
    const id = `${namespace}/${slice.metadata.name}`
    const isOurs = slice.addressType === addressFamily(this.#context.clustersetIpRange.family).slices
    const service = isOurs ? slice.metadata.labels?.[LABEL_SERVICE_NAME] : undefined
    const key = service === undefined ? undefined : serviceKey(namespace, service)
    const before = this.#serviceOfSlice.get(id)
    const isMoved = before !== undefined && before !== key
    if (isMoved) this.removeSlice(namespace, slice.metadata.name)
    if (key === undefined) return isMoved
    const slices = this.#slices.get(key) ?? new Map<string, EndpointSlice>()
    if (slices.get(id) === slice) return false
    slices.set(id, slice)
    this.#withdrawn.sliceCame(id)
    this.#slices.set(key, slices)
    this.#serviceOfSlice.set(id, key)
    this.#dirty.add(key)
    return true
  }

  /** Returns whether the plan may differ. */
  removeSlice(namespace: string, name: string): boolean {
    const id = `${namespace}/${name}`
    const key = this.#serviceOfSlice.get(id)
    if (key === undefined) return false
    this.#serviceOfSlice.delete(id)
    const slices = this.#slices.get(key)
    const slice = slices?.get(id)
    if (slice !== undefined) this.#withdrawn.sliceWent(id, key, slice)
    slices?.delete(id)
    if (slices?.size === 0) this.#slices.delete(key)
    this.#dirty.add(key)
    return true
  }

  /** Replaces all imports and slices by these lists. Cheap if nothing differs. */
  replaceAll(imports: readonly ServiceImport[], slices: readonly EndpointSlice[]): void {
    if (this.#imports.size > 0) this.#removeOtherImports(imports)
    if (this.#serviceOfSlice.size > 0) this.#removeOtherSlices(slices)
    for (const service of imports) this.setImport(service)
    for (const slice of slices) this.setSlice(slice)
  }

  #removeOtherImports(imports: readonly ServiceImport[]): void {
    const kept = new Set(imports.map((s) => serviceKey(s.metadata.namespace ?? '', s.metadata.name)))
    for (const [key, service] of this.#imports)
      if (!kept.has(key)) this.removeImport(service.metadata.namespace ?? '', service.metadata.name)
  }

  #removeOtherSlices(slices: readonly EndpointSlice[]): void {
    const kept = new Set(slices.map((s) => `${s.metadata.namespace ?? ''}/${s.metadata.name}`))
    for (const id of this.#serviceOfSlice.keys()) {
      const slash = id.indexOf('/')
      if (!kept.has(id)) this.removeSlice(id.slice(0, slash), id.slice(slash + 1))
    }
  }

  /**
   * Plans what was touched since the last call. Returns the ports whose plan changed, sorted by key. A service whose
   * clusters have shares changes once in SHARES_HOLD_MS at most: a change that comes earlier is held until `dueMs`. Takes
   * the monotonic time in milliseconds; without it, nothing is held.
   */
  takeChanges(atMs?: number): PortChange[] {
    const touched = new Set<string>()
    for (const key of this.#takeDirty(atMs)) this.#replan(key, touched)
    if (atMs !== undefined) this.#takeWithdrawn(atMs, touched)
    const changes: PortChange[] = []
    for (const key of [...touched].sort()) {
      const before = this.#ports.get(key)
      const after = inOldOrder(before, this.#winner(key))
      if (samePlan(before, after)) continue
      if (after === undefined) this.#ports.delete(key)
      else this.#ports.set(key, after)
      this.#count(before, -1)
      this.#count(after, 1)
      changes.push({ key, before, after })
      const owner = this.#claims.get(key)?.[0]
      if (atMs !== undefined && owner !== undefined && this.#shared.has(owner)) this.#changedAt.set(owner, atMs)
    }
    return changes
  }

  /** Open connections of services that have gone are ended. */
  #takeWithdrawn(atMs: number, touched: Set<string>): void {
    const slicesOf = (key: ServiceKey): Iterable<EndpointSlice> => this.#slices.get(key)?.values() ?? []
    const isPlanned = (port: string): boolean => this.#claims.has(port)
    const world = { context: this.#context, slicesOf, isPlanned, stays: this.#stays }
    for (const port of this.#withdrawn.take(atMs, world)) touched.add(port)
    const { dueMs } = this.#withdrawn
    if (dueMs < (this.#dueMs ?? Infinity)) this.#dueMs = dueMs
  }

  #count(plan: PortPlan | undefined, by: 1 | -1): void {
    if (plan !== undefined && plan.withdrawn !== true) this.#counts[fateOf(plan)] += by
  }

  /** When a change that is held may be taken, in the time that takeChanges() takes. Undefined if none is held. */
  get dueMs(): number | undefined {
    return this.#dueMs
  }

  /** The touched services that are not held. A service that is gone is never held. */
  #takeDirty(atMs: number | undefined): readonly ServiceKey[] {
    for (const [key, changedMs] of this.#changedAt) {
      if (atMs !== undefined && atMs < changedMs + SHARES_HOLD_MS) break
      this.#changedAt.delete(key)
    }
    this.#dueMs = undefined
    const taken: ServiceKey[] = []
    for (const key of this.#dirty) {
      const changedMs = this.#imports.has(key) ? this.#changedAt.get(key) : undefined
      if (changedMs === undefined) taken.push(key)
      else this.#dueMs = Math.min(this.#dueMs ?? Infinity, changedMs + SHARES_HOLD_MS)
    }
    for (const key of taken) this.#dirty.delete(key)
    return taken
  }

  /**
   * The targets to which flows of a port may go on, by servingTargets(), without those to which they are ended and, of
   * UDP, those that are left out. Undefined if no import is known to have the port.
   */
  serving(key: string): ReadonlySet<string> | undefined {
    const owner = this.#claims.get(key)?.[0]
    const service = owner === undefined ? undefined : this.#imports.get(owner)
    if (owner === undefined || service === undefined) return undefined
    const port = service.spec.ports.find((one) => key.endsWith(portKey('', one.protocol, one.port)))
    if (port === undefined) return undefined
    const serving = servingTargets(port, [...(this.#slices.get(owner)?.values() ?? [])], this.#context)
    const { ended = [], slots = [] } = this.#ports.get(key) ?? {}
    const leftOut = port.protocol === 'UDP' ? (this.#watched.get(owner) ?? NO_TARGETS) : NO_TARGETS
    if (ended.length === 0 && leftOut.size === 0) return serving
    const those = new Set(ended)
    const used = new Set(slots)
    // Who refuses is left by its flows too, unless the limit keeps it in use.
    const isLeft = (target: string): boolean => leftOut.has(watchedName(target, key)) && !used.has(target)
    return new Set([...serving].filter((target) => !those.has(target) && !isLeft(target)))
  }

  /** The services of which targets may be left out. */
  get watched(): { readonly size: number; has(service: ServiceKey): boolean } {
    return this.#watched
  }

  /** The service of a port, if targets of it may be left out. */
  watchedService(key: string): ServiceKey | undefined {
    const owner = this.#claims.get(key)?.[0]
    return owner !== undefined && this.#watched.has(owner) ? owner : undefined
  }

  /** The planned ports of the services of which targets may be left out. */
  *watchedPorts(): Generator<readonly [key: string, service: ServiceKey, plan: PortPlan]> {
    for (const service of this.#watched.keys())
      for (const [key, plan] of this.#plans.get(service) ?? [])
        if (this.#claims.get(key)?.[0] === service) yield [key, service, plan]
  }

  /** The ready targets of a port, by readyTargets(), with their watchedName(). Empty if no import is known to have the port. */
  ready(key: string): ReadonlySet<string> {
    const owner = this.#claims.get(key)?.[0]
    const service = owner === undefined ? undefined : this.#imports.get(owner)
    const port = service?.spec.ports.find((one) => key.endsWith(portKey('', one.protocol, one.port)))
    if (owner === undefined || service === undefined || port === undefined) return new Set()
    const slices = [...(this.#slices.get(owner)?.values() ?? [])]
    const clusterShares = sharesFor(this.#traffic?.of(service, slices) ?? {}, port)
    const found = readyTargets(service, port, slices, {
      ...this.#context,
      ...(clusterShares === undefined ? {} : { clusterShares }),
    })
    return new Set([...found].map((target) => watchedName(target, key)))
  }

  /** The services of which targets are left out. */
  leftOutServices(): readonly ServiceKey[] {
    return [...this.#watched].flatMap(([service, { size }]) => (size > 0 ? [service] : []))
  }

  /** Replaces the targets of a service that are left out. Returns whether these are others than before. */
  setLeftOut(service: ServiceKey, targets: ReadonlySet<string>): boolean {
    const before = this.#watched.get(service)
    if (before === undefined || [...before].join() === [...targets].join()) return false
    this.#watched.set(service, targets)
    this.#dirty.add(service)
    return true
  }

  get context(): ServiceContext {
    return this.#context
  }

  /** The range of the clusterset IPs that are planned. */
  get range(): Prefix {
    return this.#context.clustersetIpRange
  }

  /** How many of ports() are served, refused and dropped. */
  get counts(): PortCounts {
    return { ...this.#counts }
  }

  /** Everything planned so far, by port key. */
  ports(): ReadonlyMap<string, PortPlan> {
    return this.#ports
  }

  #replan(key: ServiceKey, touched: Set<string>): void {
    const service = this.#imports.get(key)
    const slices = [...(this.#slices.get(key)?.values() ?? [])]
    const before = this.#plans.get(key)
    const traffic = service === undefined ? undefined : this.#traffic?.of(service, slices)
    const leftOut = traffic?.passiveHealth === true ? (this.#watched.get(key) ?? NO_TARGETS) : undefined
    if (traffic?.clusterShares === undefined) this.#shared.delete(key)
    else this.#shared.add(key)
    if (leftOut === undefined) this.#watched.delete(key)
    else this.#watched.set(key, leftOut)
    const after =
      service === undefined
        ? new Map<string, PortPlan>()
        : planService(service, slices, this.#context, leftOut === undefined ? traffic : { ...traffic, leftOut })
    for (const port of before?.keys() ?? []) {
      touched.add(port)
      if (!after.has(port)) this.#unclaim(port, key)
    }
    for (const port of after.keys()) {
      touched.add(port)
      if (before?.has(port) === true) continue
      this.#claim(port, key)
      if (service !== undefined) this.#withdrawn.portCame(port, key, service)
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
    if (first === undefined) return this.#withdrawn.planOf(port)
    return this.#withdrawn.within(port, first, this.#plans.get(first)?.get(port))
  }
}

function fateOf({ slots, dropped }: PortPlan): PortFate {
  return slots.length > 0 ? 'served' : dropped === true ? 'dropped' : 'refused'
}

/** Parts of up to so many slots are planned the same whatever came before. */
const FEW_SLOTS = 64

/**
 * The plan with its slots in an order that leaves most of them as they were. Each slot that changes is an element, and
 * the order of many slots would otherwise shift with each endpoint that comes or goes. Slots that the address of a
 * client picks by score stay where they are.
 */
function inOldOrder(before: PortPlan | undefined, after: PortPlan | undefined): PortPlan | undefined {
  if (before === undefined || before.pick !== after?.pick || after.slots.length <= FEW_SLOTS) return after
  const had = new Map(slotsOfParts(before))
  return { ...after, slots: slotsOfParts(after).flatMap(([part, slots]) => keptInPlace(had.get(part) ?? [], slots)) }
}

function slotsOfParts({ shares, slots }: PortPlan): [part: number, slots: readonly string[]][] {
  if (shares === undefined) return [[0, slots]]
  let at = 0
  return shares.map(({ part, size }) => [part, slots.slice(at, (at += size))])
}

/** Slots of which two are alike were picked by score. */
function keptInPlace(old: readonly string[], wanted: readonly string[]): readonly string[] {
  if (wanted.length <= FEW_SLOTS) return wanted
  const left = new Set(wanted)
  if (left.size < wanted.length) return wanted
  const kept = wanted.map((_, i) => {
    const target = old[i]
    return target !== undefined && left.delete(target) ? target : undefined
  })
  const others = left.values()
  return kept.map((target) => target ?? others.next().value ?? '')
}

export function samePlan(a: PortPlan | undefined, b: PortPlan | undefined): boolean {
  if (a === undefined || b === undefined) return a === b
  if (a.pick !== b.pick || a.dropped !== b.dropped || a.slots.length !== b.slots.length) return false
  if (a.affinitySeconds !== b.affinitySeconds || a.targetPort !== b.targetPort || !sameParts(a.shares, b.shares))
    return false
  if (a.withdrawn !== b.withdrawn) return false
  if ((a.ended ?? []).join() !== (b.ended ?? []).join()) return false
  return a.slots.every((slot, i) => slot === b.slots[i])
}

function sameParts(a: PortPlan['shares'], b: PortPlan['shares']): boolean {
  if (a === undefined || b === undefined) return a === b
  return (
    a.length === b.length &&
    a.every((one, i) => one.part === b[i]?.part && one.size === b[i].size && one.share === b[i].share)
  )
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
