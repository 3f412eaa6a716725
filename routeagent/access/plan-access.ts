/**
 * Plans which ports of this cluster's pods other clusters may call: the endpoints of exported services, each for the
 * clusters to which one of its services is offered. The plan is updated incrementally, and depends only on the objects
 * that it is given, not on clock or kernel.
 */
import { type AccessRules, type Exposure, offeredClusters } from '../../model/access/access.ts'
import {
  CONDITION_IMPORTED,
  CONDITION_READY,
  type ClusterId,
  type EndpointSlice,
  LABEL_K8S_SERVICE_NAME,
  LABEL_SOURCE_CLUSTER,
  type ServiceExport,
  type ServiceKey,
  findCondition,
  guardedNamespace,
  isDnsLabel,
  nameHash,
  serviceKey,
} from '../../model/model.ts'
import type { AddressFamily } from '../world/world.ts'

/** The clusters to which something is offered, and the prefixes from which their packets come. */
export interface CallerGroup {
  /** Sorted. */
  readonly clusters: readonly ClusterId[]
  /** In the form that nft prints, disjoint. */
  readonly prefixes: readonly string[]
}

/** The chain for what is offered to all other members. */
export const CHAIN_ALL = 'all-members'

/** The chain for callers of a group. */
export function callersChain(group: string): string {
  return `from-${group}`
}

/** The clusters that may call; undefined: all. */
export interface Callers {
  /** Sorted. */
  readonly clusters: readonly ClusterId[] | undefined
  /** The chain for them. */
  readonly target: string
  /** The same for the same clusters; empty for all. */
  readonly group: string
}

/** What other clusters may call here. */
export interface AdmissionPlan {
  /** `address . protocol . port`, and who may call it. */
  readonly ports: ReadonlyMap<string, Callers>
  /** The same for addresses: a cluster that may call a port may also send echo requests. */
  readonly addresses: ReadonlyMap<string, Callers>
  /** By name. */
  readonly groups: ReadonlyMap<string, CallerGroup>
}

export const NOTHING_ADMITTED: AdmissionPlan = { ports: new Map(), addresses: new Map(), groups: new Map() }

/** An element of a plan or a group of callers that has changed. */
export interface Changed<V> {
  readonly key: string
  readonly before: V | undefined
  readonly after: V | undefined
}

/** How the plan differs from the one of the last call. */
export interface AccessChanges {
  readonly ports: readonly Changed<Callers>[]
  readonly addresses: readonly Changed<Callers>[]
  /** By name. */
  readonly groups: readonly Changed<CallerGroup>[]
}

export const NO_ACCESS_CHANGES: AccessChanges = { ports: [], addresses: [], groups: [] }

/** What the plan depends on besides objects. */
export interface AccessContext {
  readonly exposure: Exposure
  /** Endpoints of other nodes are left out. Undefined: all count, because this node passes on their packets. */
  readonly node: string | undefined
  /** Prefixes of each other cluster, of the family, as its packets have them when they arrive. */
  readonly callers: ReadonlyMap<string, readonly string[]>
}

export interface AccessInput extends AccessContext {
  readonly family: AddressFamily
  readonly rules: AccessRules
  readonly exports: readonly ServiceExport[]
  /** Slices of the whole cluster. Those that were imported are ignored. */
  readonly slices: readonly EndpointSlice[]
}

/** The whole plan at once. */
export function planAccess({ family, rules, exports, slices, ...context }: AccessInput): AdmissionPlan {
  const planner = new AccessPlanner(family)
  planner.setContext(context)
  planner.setRules(rules)
  planner.replaceAll(exports, slices)
  planner.takeChanges()
  return planner.plan
}

/** What one service adds to the plan. */
interface Grant {
  readonly callers: Callers
  readonly ports: ReadonlySet<string>
  readonly addresses: ReadonlySet<string>
}

interface SliceEndpoints {
  readonly addresses: readonly string[]
  /** `address . protocol . port` of all addresses. */
  readonly ports: readonly string[]
}

const ALL: Callers = { clusters: undefined, target: `goto ${CHAIN_ALL}`, group: '' }

/**
 * Whether the broker, which may refuse a guarded namespace, has the export. Ready=True says that it has all of it. Ready
 * is also False while a part of the export is over quota, or a change of it is not stored yet, and members import it
 * all the same: then the broker has it if Imported is known. The agent sets Imported back to Pending when it withdraws
 * the export, and when the broker refuses it.
 */
function isAccepted({ metadata, status }: ServiceExport): boolean {
  if (guardedNamespace(metadata.namespace ?? '') === undefined) return true
  const [valid, ready, imported] = ['Valid', CONDITION_READY, CONDITION_IMPORTED].map((type) => {
    return findCondition(status?.conditions, type)
  })
  if (ready?.status === 'True') return true
  if (ready === undefined || ready.reason === 'NamespaceNotAllowed' || valid?.status !== 'True') return false
  return imported !== undefined && imported.reason !== 'Pending'
}

const NO_CONTEXT: AccessContext = { exposure: 'exports', node: undefined, callers: new Map() }

/**
 * A change of one policy or slice causes work only for its services, and for the endpoints that these share with others;
 * a change of a cluster's prefixes only for the groups of callers.
 */
export class AccessPlanner {
  readonly #family: AddressFamily
  #context = NO_CONTEXT
  #rules: AccessRules | undefined
  readonly #exports = new Map<ServiceKey, ServiceExport>()
  readonly #exportsOfNamespace = new Map<string, Set<ServiceKey>>()
  readonly #slices = new Map<ServiceKey, Map<string, EndpointSlice>>()
  /** The service with which a slice was last seen, because its label may change. */
  readonly #serviceOfSlice = new Map<string, ServiceKey>()
  #endpoints = new WeakMap<EndpointSlice, SliceEndpoints>()
  readonly #callersOfOffer = new WeakMap<object, Callers>()
  readonly #grants = new Map<ServiceKey, Grant>()
  readonly #ports = new Offered()
  readonly #addresses = new Offered()
  readonly #groups = new Map<string, CallerGroup>()
  /** How many elements of the plan lead to the callers. */
  readonly #uses = new Map<string, { readonly clusters: readonly ClusterId[]; count: number }>()
  readonly #dirty = new Set<ServiceKey>()
  #callersChanged = false

  constructor(family: AddressFamily) {
    this.#family = family
  }

  /** The plan of the last takeChanges(). The next call changes it. */
  get plan(): AdmissionPlan {
    return { ports: this.#ports.callers, addresses: this.#addresses.callers, groups: this.#groups }
  }

  setContext(context: AccessContext): void {
    const before = this.#context
    this.#context = context
    if (context.callers !== before.callers) this.#callersChanged = true
    if (context.node !== before.node) this.#endpoints = new WeakMap()
    if (context.node !== before.node || context.exposure !== before.exposure) this.touchAll()
  }

  /** The caller touches the services whose offers may differ. */
  setRules(rules: AccessRules): void {
    this.#rules = rules
  }

  touchAll(): void {
    for (const key of this.#exports.keys()) this.#dirty.add(key)
  }

  /** The offers of these services may differ. Undefined: of all in the namespace. */
  touch(namespace: string, names: Iterable<string> | undefined): void {
    const keys = names === undefined ? undefined : [...names].map((name) => serviceKey(namespace, name))
    for (const key of keys ?? this.#exportsOfNamespace.get(namespace) ?? [])
      if (this.#exports.has(key)) this.#dirty.add(key)
  }

  /** An export that is being deleted counts as removed. Returns whether the plan may differ. */
  setExport(object: ServiceExport): boolean {
    const { namespace = '', name, deletionTimestamp } = object.metadata
    if (deletionTimestamp !== undefined) return this.removeExport(namespace, name)
    const key = serviceKey(namespace, name)
    const before = this.#exports.get(key)
    const differs = before === undefined || isAccepted(before) !== isAccepted(object)
    if (differs) this.#dirty.add(key)
    if (before === undefined) {
      const others = this.#exportsOfNamespace.get(namespace)
      if (others === undefined) this.#exportsOfNamespace.set(namespace, new Set([key]))
      else others.add(key)
    }
    this.#exports.set(key, object)
    return differs
  }

  /** Returns whether the plan may differ. */
  removeExport(namespace: string, name: string): boolean {
    const key = serviceKey(namespace, name)
    if (!this.#exports.delete(key)) return false
    this.#dirty.add(key)
    const others = this.#exportsOfNamespace.get(namespace)
    others?.delete(key)
    if (others?.size === 0) this.#exportsOfNamespace.delete(namespace)
    return true
  }

  /** Ignores slices of other clusters and of the other family. Returns whether the plan may differ. */
  setSlice(slice: EndpointSlice): boolean {
    const { namespace = '', name } = slice.metadata
    const service = this.#serviceOf(slice)
    const key = service === undefined ? undefined : serviceKey(namespace, service)
    const id = `${namespace}/${name}`
    const before = this.#serviceOfSlice.get(id)
    const isMoved = before !== undefined && before !== key
    if (isMoved) this.removeSlice(namespace, name)
    if (key === undefined) return isMoved
    let slices = this.#slices.get(key)
    if (slices === undefined) this.#slices.set(key, (slices = new Map<string, EndpointSlice>()))
    if (slices.get(id) === slice) return false
    slices.set(id, slice)
    this.#serviceOfSlice.set(id, key)
    this.#dirty.add(key)
    return true
  }

  /** Undefined: the slice is of another cluster, of the other family or of no Service. */
  #serviceOf({ addressType, metadata: { labels } }: EndpointSlice): string | undefined {
    const isOurs = addressType === this.#family.slices && labels?.[LABEL_SOURCE_CLUSTER] === undefined
    return isOurs ? labels?.[LABEL_K8S_SERVICE_NAME] : undefined
  }

  /** Returns whether the plan may differ. */
  removeSlice(namespace: string, name: string): boolean {
    const id = `${namespace}/${name}`
    const key = this.#serviceOfSlice.get(id)
    if (key === undefined) return false
    this.#serviceOfSlice.delete(id)
    const slices = this.#slices.get(key)
    slices?.delete(id)
    if (slices?.size === 0) this.#slices.delete(key)
    this.#dirty.add(key)
    return true
  }

  /** Replaces all exports and slices by these lists. Cheap if nothing differs. */
  replaceAll(exports: readonly ServiceExport[], slices: readonly EndpointSlice[]): void {
    const exported = new Set(exports.map(({ metadata }) => serviceKey(metadata.namespace ?? '', metadata.name)))
    for (const [key, { metadata }] of this.#exports)
      if (!exported.has(key)) this.removeExport(metadata.namespace ?? '', metadata.name)
    // Most slices of a cluster may be of imported services.
    const own = slices.filter((slice) => this.#serviceOf(slice) !== undefined)
    const ids = new Set(own.map(({ metadata }) => `${metadata.namespace ?? ''}/${metadata.name}`))
    for (const id of this.#serviceOfSlice.keys()) {
      const slash = id.indexOf('/')
      if (!ids.has(id)) this.removeSlice(id.slice(0, slash), id.slice(slash + 1))
    }
    for (const object of exports) this.setExport(object)
    for (const slice of own) this.setSlice(slice)
  }

  /**
   * Plans what was touched since the last call. Throws what the rules throw about an object that they cannot read: the
   * plan then stays, and the next call tries again.
   */
  takeChanges(): AccessChanges {
    if (this.#dirty.size === 0 && !this.#callersChanged) return NO_ACCESS_CHANGES
    // Whatever can fail comes before the first change.
    const grants = [...this.#dirty].map((key) => [key, this.#grantOf(key)] as const)
    for (const [key, grant] of grants) {
      const before = this.#grants.get(key)
      this.#ports.change(key, before?.callers, before?.ports, grant?.callers, grant?.ports)
      this.#addresses.change(key, before?.callers, before?.addresses, grant?.callers, grant?.addresses)
      if (grant === undefined) this.#grants.delete(key)
      else this.#grants.set(key, grant)
    }
    this.#dirty.clear()
    const callersOf = (key: ServiceKey): Callers | undefined => this.#grants.get(key)?.callers
    const [ports, addresses] = [this.#ports.takeChanges(callersOf), this.#addresses.takeChanges(callersOf)]
    return { ports, addresses, groups: this.#groupChanges([...ports, ...addresses]) }
  }

  /** Endpoints that are not ready count too: connections to them end by themselves, and some publish such addresses. */
  #grantOf(key: ServiceKey): Grant | undefined {
    const object = this.#exports.get(key)
    const slices = this.#slices.get(key)
    if (this.#context.exposure !== 'exports' || object === undefined || slices === undefined) return undefined
    const { namespace = '', name } = object.metadata
    if (!isAccepted(object)) return undefined
    const callers = this.#callersOf(namespace, name)
    if (callers === undefined || callers.clusters?.length === 0) return undefined
    const [ports, addresses] = [new Set<string>(), new Set<string>()]
    for (const slice of slices.values()) {
      let read = this.#endpoints.get(slice)
      if (read === undefined) this.#endpoints.set(slice, (read = readSlice(slice, this.#family, this.#context.node)))
      for (const address of read.addresses) addresses.add(address)
      for (const port of read.ports) ports.add(port)
    }
    return { callers, ports, addresses }
  }

  /** Undefined while there are no rules. */
  #callersOf(namespace: string, name: string): Callers | undefined {
    if (this.#rules === undefined) return undefined
    const { offer } = this.#rules.offerOf(namespace, name)
    if (offer === undefined) return ALL
    let callers = this.#callersOfOffer.get(offer)
    if (callers === undefined) this.#callersOfOffer.set(offer, (callers = callersOf(offeredClusters(offer))))
    return callers
  }

  #groupChanges(changes: readonly Changed<Callers>[]): Changed<CallerGroup>[] {
    const touched = new Set(this.#callersChanged ? this.#groups.keys() : [])
    this.#callersChanged = false
    for (const { before, after } of changes) {
      for (const [callers, by] of [
        [before, -1],
        [after, 1],
      ] as const) {
        if (callers?.clusters === undefined) continue
        touched.add(callers.group)
        const uses = this.#uses.get(callers.group)
        if (uses === undefined) this.#uses.set(callers.group, { clusters: callers.clusters, count: by })
        else uses.count += by
      }
    }
    return [...touched].sort().flatMap((key) => {
      const before = this.#groups.get(key)
      const uses = this.#uses.get(key)
      if (uses?.count === 0) this.#uses.delete(key)
      const after = uses === undefined || uses.count === 0 ? undefined : this.#groupOf(uses.clusters)
      if (after === undefined) this.#groups.delete(key)
      else this.#groups.set(key, after)
      return before?.prefixes.join() === after?.prefixes.join() ? [] : [{ key, before, after }]
    })
  }

  // Prefixes of different clusters never overlap: see clusterValidation().
  #groupOf(clusters: readonly ClusterId[]): CallerGroup {
    return { clusters, prefixes: clusters.flatMap((id) => this.#context.callers.get(id) ?? []) }
  }
}

/** The elements of one map of the table: an endpoint of several services is open to the callers of each. */
class Offered {
  readonly callers = new Map<string, Callers>()
  readonly #claims = new Map<string, readonly ServiceKey[]>()
  readonly #touched = new Set<string>()

  /** The elements of the service were `had` for some callers, and are now `has` for others. */
  change(
    service: ServiceKey,
    before: Callers | undefined,
    had: ReadonlySet<string> = NONE,
    after: Callers | undefined,
    has: ReadonlySet<string> = NONE,
  ): void {
    const isSame = before?.group === after?.group
    for (const key of had) {
      if (!has.has(key)) this.#unclaim(key, service)
      else if (!isSame) this.#touched.add(key)
    }
    for (const key of has) {
      if (had.has(key)) continue
      this.#claims.set(key, [...(this.#claims.get(key) ?? []), service])
      this.#touched.add(key)
    }
  }

  /** Sorted by key. */
  takeChanges(callersOf: (service: ServiceKey) => Callers | undefined): Changed<Callers>[] {
    const touched = [...this.#touched].sort()
    this.#touched.clear()
    return touched.flatMap((key) => {
      const before = this.callers.get(key)
      const claims = this.#claims.get(key)?.flatMap((service) => callersOf(service) ?? []) ?? []
      const after = claims.length === 0 ? undefined : claims.reduce(together)
      if (before !== undefined && before.group === after?.group) return []
      if (after === undefined) this.callers.delete(key)
      else this.callers.set(key, after)
      return [{ key, before, after }]
    })
  }

  #unclaim(key: string, service: ServiceKey): void {
    const left = (this.#claims.get(key) ?? []).filter((claimant) => claimant !== service)
    if (left.length === 0) this.#claims.delete(key)
    else this.#claims.set(key, left)
    this.#touched.add(key)
  }
}

const NONE: ReadonlySet<string> = new Set()

function readSlice(slice: EndpointSlice, family: AddressFamily, node: string | undefined): SliceEndpoints {
  const ports = portsOf(slice)
  if (ports.length === 0) return { addresses: [], ports: [] }
  const isHere = (nodeName: string | undefined): boolean =>
    node === undefined || nodeName === undefined || nodeName === node
  const here = (slice.endpoints ?? []).filter(({ nodeName }) => isHere(nodeName))
  const addresses = here.flatMap((one) => one.addresses.flatMap((text) => family.podAddress(text) ?? []))
  return { addresses, ports: addresses.flatMap((address) => ports.map((port) => `${address} . ${port}`)) }
}

const PROTOCOLS: ReadonlySet<string> = new Set(['TCP', 'UDP', 'SCTP'])

/** As `tcp . 80`. A port without a number would be every port. */
export function portsOf({ ports }: EndpointSlice): string[] {
  return (ports ?? []).flatMap(({ protocol = 'TCP', port }) => {
    if (port === undefined || !Number.isInteger(port) || port < 1 || port > 65535) return []
    return PROTOCOLS.has(protocol) ? [`${protocol.toLowerCase()} . ${port}`] : []
  })
}

function together(one: Callers, other: Callers): Callers {
  if (one.group === other.group || one.clusters === undefined) return one
  if (other.clusters === undefined) return other
  return callersOf([...new Set([...one.clusters, ...other.clusters])].sort())
}

function callersOf(clusters: readonly ClusterId[] | undefined): Callers {
  if (clusters === undefined) return ALL
  const group = groupName(clusters)
  return { clusters, group, target: `goto ${callersChain(group)}` }
}

/** Names of chains are limited. No cluster id begins with a dot, so both forms differ. */
const MAX_READABLE = 60

/** A policy that no schema has checked may have any text as an id: one with a dot would read as two ids. */
function groupName(clusters: readonly ClusterId[]): string {
  const readable = clusters.join('.')
  const isReadable = readable.length <= MAX_READABLE && clusters.every(isDnsLabel)
  return isReadable ? readable : `.${nameHash(...clusters)}`
}
