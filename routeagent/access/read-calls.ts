/** Reads what limits the calls of this node's pods. Pods and namespaces are only read where something is limited. */
import {
  ANNOTATION_CALLERS,
  type AccessVersions,
  type AnyAccessPolicy,
  EgressRules,
  type Exposure,
  accessProblem,
  egressRules,
  keepsOpenConnections,
} from '../../model/access/access.ts'
import { type EndpointSlice, LABEL_SOURCE_CLUSTER, type Namespace, type Pod } from '../../model/model.ts'
import type { ObjectChange } from '../../kubeapi/kubeapi.ts'
import { type AddressFamily, type RouteAgentCaches, changesSpec } from '../world/world.ts'
import {
  type CallsInput,
  type CallsPlan,
  type LimitedPorts,
  limitedPorts,
  planCalls,
  podAddresses,
} from './plan-calls.ts'

export interface CallsSite extends Pick<CallsInput, 'here' | 'clusters'> {
  /** The id of this cluster. */
  readonly self: string
  readonly exposure: Exposure
}

/** The caches of the objects that calls depend on. */
export type CallsObjectCaches = Pick<RouteAgentCaches, 'clusters' | 'slices' | 'access' | 'callers'>

/**
 * Whether another version of a policy may count. The status of a policy that is not valid has the version that counts.
 */
export function changesPolicy(change: ObjectChange<AnyAccessPolicy> | undefined): boolean {
  return changesSpec(change) || change === undefined || accessProblem(change.object) !== undefined
}

export class CallsReader {
  readonly #caches: CallsObjectCaches
  readonly #family: AddressFamily
  readonly #versions: AccessVersions
  readonly #memo = new WeakMap<EndpointSlice, readonly string[]>()
  /** Undefined: slices have changed. */
  #limited: { readonly self: string; readonly ports: LimitedPorts } | undefined
  /** Whether a slice names namespaces. Undefined: not known since slices have changed. */
  #isLimited: boolean | undefined
  #egress: { readonly rules: EgressRules | undefined } | undefined
  /** The last plan. Undefined: objects have changed. */
  #planned: { readonly site: CallsSite; readonly isUnknown: boolean; readonly plan: CallsPlan } | undefined

  /** `versions` is what this process has seen of the policies. */
  constructor(caches: CallsObjectCaches, family: AddressFamily, versions: AccessVersions) {
    this.#caches = caches
    this.#family = family
    this.#versions = versions
  }

  /** Names the kinds that have not been read yet and without which what is limited is refused. */
  unread(exposure: Exposure): string[] {
    const { callers } = this.#caches
    const unread = this.#isUnknown(exposure) ? ['clusterPolicies'] : []
    if (!this.#needsPods()) return unread
    const { pods, namespaces } = callers
    const lists = Object.entries({ pods: pods.open(), namespaces: namespaces.open() })
    return [...unread, ...lists.filter(([, { synced }]) => !synced).map(([name]) => name)]
  }

  /** Calls `poke` after each change that the plan depends on, besides its site. Returns the function that ends this. */
  follow(poke: () => void): () => void {
    const onChange = (): void => {
      this.#planned = undefined
      poke()
    }
    const { clusters, slices, access, callers } = this.#caches
    const onRules = (): void => {
      this.#egress = undefined
      onChange()
    }
    const stops = [
      clusters.onChange((change) => {
        if (changesSpec(change)) onRules()
      }),
      access.clusterPolicies.onChange((change) => {
        if (changesPolicy(change)) onRules()
      }),
      slices.onChange((change) => {
        if (!this.#concerns(change)) return
        this.#limited = undefined
        this.#isLimited = undefined
        onChange()
      }),
      callers.pods.onChange((change) => {
        if (change?.type !== 'set' || isOther(change.object, change.previous, this.#family)) onChange()
      }),
      callers.namespaces.onChange((change) => {
        if (change?.type !== 'set' || labelsText(change.object) !== labelsText(change.previous)) onChange()
      }),
    ]
    return () => stops.forEach((stop) => stop())
  }

  /** The same plan while nothing changes. `again`: reads all objects, in case an event was missed. */
  plan(site: CallsSite, again = false): CallsPlan {
    if (again) this.#forget()
    // The end of the first reading is no change of an object.
    const isUnknown = this.#isUnknown(site.exposure)
    const known = this.#planned
    if (known !== undefined && known.isUnknown === isUnknown && isSameSite(known.site, site)) return known.plan
    const plan = this.#plan(site)
    this.#planned = { site, isUnknown, plan }
    return plan
  }

  #forget(): void {
    this.#limited = undefined
    this.#isLimited = undefined
    this.#egress = undefined
    this.#planned = undefined
  }

  #plan({ self, exposure, here, clusters }: CallsSite): CallsPlan {
    const { slices, callers, access } = this.#caches
    if (this.#limited?.self !== self) {
      this.#limited = { self, ports: limitedPorts(slices.list(), { self, family: this.#family }, this.#memo) }
    }
    const limited = this.#limited.ports
    const reads = this.#needsPods()
    return planCalls({
      family: this.#family,
      ...{ here, clusters, limited },
      egress: this.#isUnknown(exposure) ? new EgressRules([], []) : this.#egressRules(),
      keepsOpen: keepsOpenConnections(this.#versions.clusterPolicies(access.clusterPolicies.list())),
      pods: reads ? callers.pods.open().list() : [],
      namespaces: reads ? callers.namespaces.open().list() : [],
    })
  }

  /** Slices without namespaces matter only beside those that have some. */
  #concerns(change: ObjectChange<EndpointSlice> | undefined): boolean {
    if (change === undefined) return true
    const before = change.type === 'set' ? change.previous : undefined
    if (!isImported(change.object) && (before === undefined || !isImported(before))) return false
    return this.#isLimited !== false || isLimiting(change.object) || (before !== undefined && isLimiting(before))
  }

  /**
   * Whether egress may be limited without this process knowing it. A cluster that exposes all pods may be of an earlier
   * release, whose API server does not serve ClusterAccessPolicies: then nothing is limited.
   */
  #isUnknown(exposure: Exposure): boolean {
    const { synced, isUnserved = false } = this.#caches.access.clusterPolicies
    return !synced && !(exposure === 'pods' && isUnserved)
  }

  #needsPods(): boolean {
    this.#isLimited ??= this.#caches.slices.list().some(isLimiting)
    return this.#isLimited || this.#egressRules() !== undefined
  }

  #egressRules(): EgressRules | undefined {
    const { clusters, access } = this.#caches
    if (!access.clusterPolicies.synced) return undefined
    this.#egress ??= {
      rules: egressRules(this.#versions.clusterPolicies(access.clusterPolicies.list()), clusters.list()),
    }
    return this.#egress.rules
  }
}

function isSameSite(one: CallsSite, other: CallsSite): boolean {
  const { self, here, clusters, exposure } = other
  return one.self === self && one.here === here && one.clusters === clusters && one.exposure === exposure
}

function isImported({ metadata: { labels } }: EndpointSlice): boolean {
  return labels?.[LABEL_SOURCE_CLUSTER] !== undefined
}

function isLimiting({ metadata: { annotations } }: EndpointSlice): boolean {
  return annotations?.[ANNOTATION_CALLERS] !== undefined
}

function isOther(pod: Pod, before: Pod | undefined, family: AddressFamily): boolean {
  if (before === undefined) return true
  const text = ({ spec, status }: Pod): string =>
    [spec?.nodeName, spec?.hostNetwork, status?.phase, ...podAddresses(status, family)].join(' ')
  return text(pod) !== text(before)
}

function labelsText(namespace: Namespace | undefined): string | undefined {
  return namespace && JSON.stringify(namespace.metadata.labels ?? {})
}
