/**
 * The clusters that answers about a headless service have: those with a share of new connections, where a traffic policy
 * says `headless: follow`. All of them for any other service.
 */
import type { ClusterApi, ObjectChange } from '../../kubeapi/kubeapi.ts'
import { type EndpointSlice, MEMBERSHIP_NAME, type ServiceImport } from '../../model/model.ts'
import {
  type AnyTrafficPolicy,
  type SharesWorld,
  TrafficPolicies,
  changesShares,
  sharesOfService,
  weightsOf,
} from '../../model/services/services.ts'

/** Whether the answers about a service may have changed. */
export type Affects = (service: ServiceImport) => boolean

export class HeadlessShares {
  #world: Omit<SharesWorld, 'reachable'>

  /** Takes the id of this cluster. */
  constructor(self: string) {
    const policies = new TrafficPolicies({ policies: [], clusterPolicies: [] })
    this.#world = { self, clusterset: undefined, clusters: new Map(), policies }
  }

  /**
   * Watches what the shares depend on besides imports, slices and links, until the returned function is called. Until
   * the policies are read, and where a cluster lacks their kinds, no service follows one.
   */
  follow(api: Pick<ClusterApi, 'cache'>, changed: (affects: Affects) => void): () => void {
    const [named, defaults] = [api.cache('TrafficPolicy'), api.cache('ClusterTrafficPolicy')]
    const [clusters, memberships] = [api.cache('Cluster'), api.cache('Membership')]
    const readPolicies = (): void => {
      const before = this.#world.policies
      const listed = { policies: named.list(), clusterPolicies: defaults.list() }
      const policies = new TrafficPolicies({ ...listed, before: before.good })
      this.#world = { ...this.#world, policies }
      changed((service) => isFollowing(before, service) || isFollowing(policies, service))
    }
    const readMembers = (): void => {
      this.#world = {
        ...this.#world,
        clusterset: memberships.get(MEMBERSHIP_NAME)?.spec.clusterset,
        clusters: new Map(clusters.list().map((cluster) => [cluster.metadata.name, cluster])),
      }
      changed((service) => isFollowing(this.#world.policies, service))
    }
    const onPolicy = (change: ObjectChange<AnyTrafficPolicy> | undefined): void => {
      if (changesShares(change)) readPolicies()
    }
    const stops = [
      named.onChange(onPolicy),
      defaults.onChange(onPolicy),
      clusters.onChange((change) => {
        if (changesShares(change)) readMembers()
      }),
      memberships.onChange((change) => {
        if (changesShares(change)) readMembers()
      }),
    ]
    readPolicies()
    readMembers()
    return () => {
      for (const stop of stops) stop()
    }
  }

  /** Takes all slices of the service, and the clusters that answer. Undefined: the answers have all clusters. */
  chosen(
    service: ServiceImport,
    slices: readonly EndpointSlice[],
    reachable: SharesWorld['reachable'],
  ): ReadonlySet<string> | undefined {
    if (!isFollowing(this.#world.policies, service)) return undefined
    const plan = sharesOfService(service, slices, { ...this.#world, reachable })
    return plan && new Set(weightsOf(plan).keys())
  }
}

function isFollowing(policies: TrafficPolicies, { spec, metadata }: ServiceImport): boolean {
  if (spec.type !== 'Headless') return false
  return policies.policyFor(metadata.namespace ?? '', metadata.name)?.spec.headless === 'follow'
}
