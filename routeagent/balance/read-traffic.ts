/** The traffic policies as balancing follows them: which cluster of a service gets how much, from the caches. */
import { AccessVersions, clustersWithoutEgress } from '../../model/access/access.ts'
import {
  type Cluster,
  LABEL_SOURCE_CLUSTER,
  MEMBERSHIP_NAME,
  type EndpointSlice,
  type ServiceImport,
  type TrafficPolicy,
} from '../../model/model.ts'
import {
  type ServiceShares,
  type SharesPlan,
  type SharesWorld,
  TrafficVersions,
  changesShares,
  endedClusters,
  portId,
  sharesOfService,
} from '../../model/services/services.ts'
import type { ObjectChange } from '../../kubeapi/kubeapi.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { RouteAgentCaches } from '../world/world.ts'
import type { BalancePlanner, Traffic } from './plan-balancing.ts'
import type { ClusterShares, ServiceContext, ServiceTraffic } from './plan-service.ts'

type SharesCaches = Pick<RouteAgentCaches, 'access' | 'traffic' | 'clusters' | 'memberships'>

/** How long a node with a table of an earlier process waits for the policies. */
const READ_MS = 10_000
/** The same for a node without a table, where no service is reached meanwhile. */
const READ_WITHOUT_TABLE_MS = 2000

type ReaderClock = Pick<Clock, 'monotonic' | 'setTimer'>

export class TrafficReader {
  readonly #caches: SharesCaches
  readonly #clock: ReaderClock | undefined
  /** Since when all else can be read. */
  #since: number | undefined
  #stopWaiting: (() => void) | undefined
  #poke: () => void = () => undefined
  readonly #seen = new TrafficVersions()
  readonly #access = new AccessVersions()
  #traffic: PolicyTraffic | undefined
  #unanswered: ReadonlySet<string> = new Set()
  /** Services, and whole namespaces (`NAMESPACE/`), whose policies have changed. */
  readonly #concerned = new Set<string>()
  /** Clusters that have changed, and whether the change matters without a policy: by a drain, or by egress rules. */
  readonly #clusters = new Map<string, boolean>()
  #allChanged = true
  #egressChanged = true

  /** Without a clock, nothing is waited for. */
  constructor(caches: SharesCaches, clock?: ReaderClock) {
    this.#caches = caches
    this.#clock = clock
  }

  /** Whether a kind that the cluster may have has not been read yet. */
  get isUnread(): boolean {
    return this.#unread().length > 0
  }

  /**
   * Names the kinds that have not been read yet. Called when all else can be read. Undefined if all have, if the cluster
   * lacks them, and some time after the first call: a node that may not read them balances all the same. Pokes when that
   * time is over.
   */
  waitingFor(hasTable: boolean): string | undefined {
    const unread = this.#unread()
    this.#stopWaiting?.()
    this.#stopWaiting = undefined
    if (this.#clock === undefined || unread.length === 0) return undefined
    const now = this.#clock.monotonic()
    this.#since ??= now
    const leftMs = this.#since + (hasTable ? READ_MS : READ_WITHOUT_TABLE_MS) - now
    if (leftMs <= 0) return undefined
    this.#stopWaiting = this.#clock.setTimer(leftMs, () => this.#poke())
    return `first reading of traffic ${unread.join(', ')}`
  }

  #unread(): readonly string[] {
    return Object.entries(this.#caches.traffic).flatMap(([name, { synced, isUnserved }]) =>
      synced || isUnserved === true ? [] : [name],
    )
  }

  /** Calls `poke` after each change that the shares depend on, besides imports and slices. Returns the function that ends this. */
  follow(poke: () => void): () => void {
    const { access, traffic, clusters, memberships } = this.#caches
    this.#poke = poke
    const onAll = (): void => {
      this.#allChanged = true
      poke()
    }
    const stops = [
      traffic.policies.onChange((change) => {
        if (change === undefined) {
          onAll()
          return
        }
        // Each version is looked at, also one that changes nothing.
        const concerned = this.#concernedBy(change)
        if (!changesShares(change)) return
        for (const one of concerned) this.#concerned.add(one)
        poke()
      }),
      traffic.clusterPolicies.onChange((change) => {
        if (change?.type === 'set') this.#seen.see(change.object)
        if (changesShares(change)) onAll()
      }),
      access.clusterPolicies.onChange((change) => {
        if (change?.type === 'set') this.#access.see(change.object)
        if (!changesShares(change)) return
        this.#egressChanged = true
        poke()
      }),
      clusters.onChange((change) => {
        if (change === undefined) onAll()
        else if (changesShares(change)) {
          const { name } = change.object.metadata
          this.#clusters.set(name, this.#clusters.get(name) === true || isOrWasDrained(change))
          poke()
        }
      }),
      memberships.onChange((change) => {
        if (changesShares(change)) onAll()
      }),
    ]
    return () => {
      stops.forEach((stop) => stop())
      this.#stopWaiting?.()
    }
  }

  /** What setUnanswered() took last. */
  get unanswered(): ReadonlySet<string> {
    return this.#unanswered
  }

  /** Takes unansweredClusters() for the next update(). */
  setUnanswered(clusters: ReadonlySet<string>): void {
    const before = this.#unanswered
    const changed = [...before, ...clusters].filter((id) => before.has(id) !== clusters.has(id))
    if (changed.length === 0) return
    this.#unanswered = clusters
    for (const id of changed) this.#clusters.set(id, this.#clusters.get(id) === true)
  }

  /**
   * Gives the planner what has changed since the last call. While the policies have not been read, and where a cluster
   * lacks their kinds, all endpoints count alike, except for those of drained clusters.
   */
  update(planner: BalancePlanner): void {
    const world = this.#worldWith(planner.context)
    if (this.#allChanged || this.#traffic?.planner !== planner) {
      this.#traffic = new PolicyTraffic(planner, world)
      planner.setTraffic(this.#traffic)
    } else {
      this.#traffic.world = world
      if (this.#concerned.size > 0 || this.#clusters.size > 0)
        planner.setTraffic(this.#traffic, (service, slices) => this.#isConcerned(service, slices, world))
    }
    this.#allChanged = false
    this.#concerned.clear()
    this.#clusters.clear()
    this.#egressChanged = false
  }

  /** The services of what was in force of a policy, and of what now is, or the whole namespace (`NAMESPACE/`). */
  #concernedBy(change: ObjectChange<TrafficPolicy>): readonly string[] {
    const before = this.#seen.of(change.object)
    const now = change.type === 'set' ? this.#seen.see(change.object) : undefined
    return [before?.version, now?.version].flatMap((policy) => {
      if (policy?.kind !== 'TrafficPolicy') return []
      const { namespace = '' } = policy.metadata
      const refs = policy.spec.targetRefs ?? []
      return refs.length === 0 ? [`${namespace}/`] : refs.map(({ name }) => `${namespace}/${name}`)
    })
  }

  /** Whether the shares of a service may depend on what has changed. */
  #isConcerned(service: ServiceImport, slices: Iterable<EndpointSlice>, world: SharesWorld): boolean {
    const { namespace = '', name } = service.metadata
    if (this.#concerned.has(`${namespace}/`) || this.#concerned.has(`${namespace}/${name}`)) return true
    if (this.#clusters.size === 0) return false
    const policy = world.policies.policyFor(namespace, name)
    if ((service.spec.clusterSelectors ?? []).length > 0) return true
    if (policy !== undefined && this.#clusters.has(world.self)) return true
    if (policy?.spec.order?.some(({ selector }) => selector !== undefined) === true) return true
    // Without any rule, a cluster matters only if it is drained, or if egress rules shut it or open it.
    const matters = (id: string | undefined): boolean => {
      const always = id === undefined ? undefined : this.#clusters.get(id)
      return always !== undefined && (always || policy !== undefined)
    }
    if (service.status?.clusters?.some(({ cluster }) => matters(cluster)) === true) return true
    for (const { metadata } of slices) if (matters(metadata.labels?.[LABEL_SOURCE_CLUSTER])) return true
    return false
  }

  #worldWith({ self, reachable }: ServiceContext): SharesWorld {
    const { traffic, clusters, memberships } = this.#caches
    const listed = (): SharesWorld['clusters'] =>
      new Map(clusters.list().map((cluster) => [cluster.metadata.name, cluster]))
    const before = this.#traffic?.world
    const unanswered = this.#unanswered
    const withoutEgress = this.#withoutEgress(self, before?.withoutEgress)
    if (!this.#allChanged && this.#concerned.size === 0 && before !== undefined) {
      if (this.#clusters.size > 0) return { ...before, reachable, unanswered, withoutEgress, clusters: listed() }
      return before.reachable === reachable ? before : { ...before, reachable }
    }
    const policies = this.#seen.look(traffic.policies.list(), traffic.clusterPolicies.list())
    return {
      ...{ self, reachable, unanswered, policies, withoutEgress },
      clusterset: memberships.get(MEMBERSHIP_NAME)?.spec.clusterset,
      clusters: listed(),
    }
  }

  /**
   * Marks the clusters that egress rules shut or open. Labels of clusters matter too, because the rules
   * select by them.
   */
  #withoutEgress(self: string, before: SharesWorld['withoutEgress'] = new Set()): SharesWorld['withoutEgress'] {
    if (!this.#egressChanged && !this.#allChanged && this.#clusters.size === 0) return before
    const { access, clusters } = this.#caches
    const now = clustersWithoutEgress(
      this.#access.clusterPolicies(access.clusterPolicies.list()),
      clusters.list(),
      self,
    )
    const changed = [...before, ...now].filter((id) => before.has(id) !== now.has(id))
    for (const id of changed) this.#clusters.set(id, true)
    return changed.length === 0 ? before : now
  }
}

class PolicyTraffic implements Traffic {
  readonly planner: BalancePlanner
  world: SharesWorld
  /** What follows from shares alone: many services have the same object. */
  readonly #known = new WeakMap<ServiceShares, ServiceTraffic>()

  constructor(planner: BalancePlanner, world: SharesWorld) {
    this.planner = planner
    this.world = world
  }

  of(service: ServiceImport, slices: readonly EndpointSlice[]): ServiceTraffic | undefined {
    const shares = sharesOfService(service, slices, this.world)
    if (shares === undefined) return undefined
    let divided = this.#known.get(shares)
    if (divided === undefined) this.#known.set(shares, (divided = trafficBy(shares)))
    const ended =
      shares.ports.length === 0
        ? endedClusters(shares, slices, this.world)
        : new Set([shares, ...shares.ports].flatMap((plan) => [...endedClusters(plan, slices, this.world)]))
    return ended.size === 0 ? divided : { ...divided, ended }
  }
}

function trafficBy(shares: ServiceShares): ServiceTraffic {
  const affinitySeconds = shares.policy?.spec.sessionAffinity?.clientIP.timeoutSeconds
  return {
    clusterShares: new Map(shares.shares.map(({ cluster, share }) => [cluster, share])),
    ...(shares.ports.length === 0 ? {} : { portShares: portShares(shares) }),
    ...(affinitySeconds === undefined ? {} : { affinitySeconds }),
    ...(shares.policy?.spec.passiveHealth === undefined ? {} : { passiveHealth: true }),
  }
}

/** Each with all clusters of the service, so that a cluster has the same part of the table in all of its ports. */
function portShares({ shares, ports }: ServiceShares): ReadonlyMap<string, ClusterShares> {
  const among = (plan: SharesPlan): ClusterShares => {
    const given = new Map(plan.shares.map(({ cluster, share }) => [cluster, share]))
    return new Map(shares.map(({ cluster }) => [cluster, given.get(cluster) ?? 0]))
  }
  return new Map(
    ports.flatMap((plan) => {
      const divided = among(plan)
      return plan.of.map((port) => [portId(port), divided] as const)
    }),
  )
}

function isOrWasDrained(change: ObjectChange<Cluster>): boolean {
  const before = change.type === 'set' ? change.previous : undefined
  return change.object.spec.drained === true || before?.spec.drained === true
}
