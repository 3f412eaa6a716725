/**
 * The clusters that answers about a headless service have: those with a share of new connections, where a traffic policy
 * says `headless: follow`. All of them for any other service.
 */
import type { Family } from '../../model/addresses/addresses.ts'
import { AccessVersions, clustersWithoutEgress } from '../../model/access/access.ts'
import type { ClusterApi, ObjectChange } from '../../kubeapi/kubeapi.ts'
import { type EndpointSlice, MEMBERSHIP_NAME, type ServiceImport } from '../../model/model.ts'
import {
  type AnyTrafficPolicy,
  type ServiceShares,
  type SharesPlan,
  type SharesWorld,
  TrafficPolicies,
  TrafficVersions,
  changesShares,
  portId,
  sharesOfService,
  weightsOf,
} from '../../model/services/services.ts'
import { type NamedPort, namedPorts } from './answer.ts'

/** Whether the answers about a service may have changed. */
export type Affects = (service: ServiceImport) => boolean

/** The clusters that answers about one headless service have: of each family, because a record is of one. */
export class ChosenClusters {
  readonly #families: ReadonlyMap<Family, ChosenOfFamily | undefined>

  /** Families that are missing have no endpoints. Undefined: all clusters. */
  constructor(families: ReadonlyMap<Family, ChosenOfFamily | undefined>) {
    this.#families = families
  }

  /** Whether the addresses of the cluster are answered, or, with a port, whether it has SRV records of them. */
  has(cluster: string, family: Family, port?: NamedPort): boolean {
    const chosen = this.#families.get(family)
    if (chosen === undefined) return true
    const ofPort = port === undefined ? undefined : chosen.ports.get(portId(port))
    return (ofPort ?? chosen.clusters).has(cluster)
  }

  /** Whether ports have other clusters than the service. */
  get dividesPorts(): boolean {
    return [...this.#families.values()].some((one) => one !== undefined && one.ports.size > 0)
  }
}

interface ChosenOfFamily {
  readonly clusters: ReadonlySet<string>
  /** Those of ports that have others, by portId() of the NamedPort. */
  readonly ports: ReadonlyMap<string, ReadonlySet<string>>
}

const FAMILIES = new Map<EndpointSlice['addressType'], Family>([
  ['IPv4', 4],
  ['IPv6', 6],
])

/** Which clusters answer. */
type LinkView = Pick<SharesWorld, 'reachable' | 'unanswered'>

export class HeadlessShares {
  #world: Omit<SharesWorld, keyof LinkView>
  readonly #access = new AccessVersions()
  readonly #seen = new TrafficVersions()

  /** Takes the id of this cluster. */
  constructor(self: string) {
    const policies = new TrafficPolicies({ policies: [], clusterPolicies: [] })
    this.#world = { self, clusterset: undefined, clusters: new Map(), policies, withoutEgress: new Set() }
  }

  /**
   * Watches what the shares depend on besides imports, slices and links, until the returned function is called. Until
   * the policies are read, and where a cluster lacks their kinds, no service follows one.
   */
  follow(api: Pick<ClusterApi, 'cache'>, changed: (affects: Affects) => void): () => void {
    const [named, defaults] = [api.cache('TrafficPolicy'), api.cache('ClusterTrafficPolicy')]
    const [clusters, memberships, access] = [
      api.cache('Cluster'),
      api.cache('Membership'),
      api.cache('ClusterAccessPolicy'),
    ]
    const readPolicies = (): void => {
      const before = this.#world.policies
      const policies = this.#seen.look(named.list(), defaults.list())
      this.#world = { ...this.#world, policies }
      changed((service) => isFollowing(before, service) || isFollowing(policies, service))
    }
    const readMembers = (): void => {
      this.#world = {
        ...this.#world,
        clusterset: memberships.get(MEMBERSHIP_NAME)?.spec.clusterset,
        clusters: new Map(clusters.list().map((cluster) => [cluster.metadata.name, cluster])),
        withoutEgress: clustersWithoutEgress(
          this.#access.clusterPolicies(access.list()),
          clusters.list(),
          this.#world.self,
        ),
      }
      changed((service) => isFollowing(this.#world.policies, service))
    }
    const onPolicy = (change: ObjectChange<AnyTrafficPolicy> | undefined): void => {
      if (change?.type === 'set') this.#seen.see(change.object)
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
      access.onChange((change) => {
        if (change?.type === 'set') this.#access.see(change.object)
        if (changesShares(change)) readMembers()
      }),
    ]
    readPolicies()
    readMembers()
    return () => {
      for (const stop of stops) stop()
    }
  }

  /** Takes all slices of the service, and what answers. Undefined: the answers have all clusters. */
  chosen(service: ServiceImport, slices: readonly EndpointSlice[], links: LinkView): ChosenClusters | undefined {
    if (!isFollowing(this.#world.policies, service)) return undefined
    const world = { ...this.#world, ...links }
    const families = new Map<Family, ChosenOfFamily | undefined>()
    for (const [type, family] of FAMILIES) {
      const ofFamily = slices.filter(({ addressType }) => addressType === type)
      const shares = ofFamily.length === 0 ? undefined : sharesOfService(service, ofFamily, world)
      families.set(family, shares && chosenOf(shares))
    }
    return new ChosenClusters(families)
  }
}

function chosenOf(shares: ServiceShares): ChosenOfFamily {
  const clustersOf = (plan: SharesPlan): ReadonlySet<string> => new Set(weightsOf(plan).keys())
  return {
    clusters: clustersOf(shares),
    ports: new Map(
      shares.ports.flatMap((plan) => {
        const clusters = clustersOf(plan)
        return plan.of.flatMap((port) => namedPorts([port]).map((one) => [portId(one), clusters] as const))
      }),
    ),
  }
}

function isFollowing(policies: TrafficPolicies, { spec, metadata }: ServiceImport): boolean {
  if (spec.type !== 'Headless') return false
  return policies.policyFor(metadata.namespace ?? '', metadata.name)?.spec.headless === 'follow'
}
