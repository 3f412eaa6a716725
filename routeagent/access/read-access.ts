/** Plans from the caches, and keeps the last plan where a policy cannot be planned. */
import { isDeepStrictEqual } from 'node:util'
import { AccessRules, AccessVersions, type Exposure, accessProblem, policyTargets } from '../../model/access/access.ts'
import { type AccessPolicy, type Cluster, MEMBERSHIP_NAME, namespaceLists } from '../../model/model.ts'
import type { ObjectChange } from '../../kubeapi/kubeapi.ts'
import { messageOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { AddressFamily, RouteAgentCaches } from '../world/world.ts'
import { type AccessPlan, NOTHING_OFFERED } from './access-chains.ts'
import {
  type AccessChanges,
  type AccessContext,
  AccessPlanner,
  NOTHING_ADMITTED,
  NO_ACCESS_CHANGES,
} from './plan-access.ts'
import { CallsReader, changesPolicy } from './read-calls.ts'

/** What the plan depends on besides the objects of the access rules. */
export type AccessSite = AccessContext & {
  /** The name of this node. */
  readonly here: string
  /** The id of this cluster. */
  readonly self: string
}

export interface PlannedAccess {
  /** The next plan of the same reader changes it. */
  readonly plan: AccessPlan
  /** Since the last plan of the reader. */
  readonly changes: AccessChanges
}

/** If more policies change between two plans, everything is read. */
const MAX_CHANGED = 1000

/** The caches of the objects that the access rules depend on. */
export type AccessObjectCaches = Pick<RouteAgentCaches, 'memberships' | 'clusters' | 'slices' | 'access' | 'callers'>

export class AccessReader {
  readonly #caches: AccessObjectCaches
  readonly #logger: Pick<Logger, 'warn'>
  readonly #planner: AccessPlanner
  readonly #calls: CallsReader
  readonly #versions = new AccessVersions()
  #callsPlan = NOTHING_OFFERED.calls
  /** Policies, as they are and as they were, since the last reading of the rules. */
  #changed: AccessPolicy[] = []
  /** Everything is to be read again. */
  #allChanged = true
  #failure: string | undefined

  constructor(caches: AccessObjectCaches, family: AddressFamily, logger: Pick<Logger, 'warn'>) {
    this.#caches = caches
    this.#logger = logger
    this.#planner = new AccessPlanner(family)
    this.#calls = new CallsReader(caches, family, this.#versions)
  }

  /** Names the kinds that have not been read yet. Undefined if all have, or if nothing depends on them. */
  waitingFor(exposure: Exposure): string | undefined {
    const unread = new Set([...this.#unadmitted(exposure), ...this.#calls.unread(exposure)])
    return unread.size === 0 ? undefined : `first reading of ${[...unread].join(', ')}`
  }

  #unadmitted(exposure: Exposure): string[] {
    if (exposure !== 'exports') return []
    return Object.entries(this.#caches.access).flatMap(([name, { synced }]) => (synced ? [] : [name]))
  }

  /** Calls `poke` after each change that the plan depends on, besides its site. Returns the function that ends this. */
  follow(poke: () => void): () => void {
    const { memberships, clusters, slices, access } = this.#caches
    const planner = this.#planner
    const onAll = (): void => {
      this.#allChanged = true
      poke()
    }
    const stops = [
      memberships.onChange(onAll),
      access.clusterPolicies.onChange((change) => {
        if (change?.type === 'set') this.#versions.see(change.object)
        if (changesPolicy(change)) onAll()
      }),
      clusters.onChange((change) => {
        if (changesRules(change)) onAll()
      }),
      access.policies.onChange((change) => {
        if (change === undefined) {
          onAll()
          return
        }
        if (change.type === 'set') this.#versions.see(change.object)
        if (!changesPolicy(change)) return
        this.#policyChanged(change.object)
        if (change.type === 'set' && change.previous !== undefined) this.#policyChanged(change.previous)
        poke()
      }),
      access.exports.onChange((change) => {
        if (change === undefined) {
          onAll()
          return
        }
        const { namespace = '', name } = change.object.metadata
        // The agent writes the status of each export several times.
        const differs = change.type === 'set' ? planner.setExport(change.object) : planner.removeExport(namespace, name)
        if (differs) poke()
      }),
      this.#calls.follow(poke),
      slices.onChange((change) => {
        if (change === undefined) {
          onAll()
          return
        }
        const { namespace = '', name } = change.object.metadata
        const differs = change.type === 'set' ? planner.setSlice(change.object) : planner.removeSlice(namespace, name)
        if (differs) poke()
      }),
    ]
    return () => stops.forEach((stop) => stop())
  }

  /**
   * Nothing is offered, and nothing that is limited may be called, while not everything has been read. `again`: reads all
   * objects, in case an event was missed.
   */
  plan(site: AccessSite, again = false): PlannedAccess {
    let changes = NO_ACCESS_CHANGES
    try {
      // First, because calls stay limited also while a policy of admission cannot be read.
      this.#callsPlan = this.#calls.plan({ ...site, clusters: site.callers }, again)
      if (this.#unadmitted(site.exposure).length > 0)
        return { plan: { ...NOTHING_ADMITTED, calls: this.#callsPlan }, changes }
      this.#allChanged ||= again
      this.#planner.setContext(site)
      this.#read(site)
      changes = this.#planner.takeChanges()
      this.#failure = undefined
    } catch (error) {
      const why = messageOf(error)
      if (why !== this.#failure) {
        this.#logger.warn('the access rules cannot be planned; the last ones stay', { reason: 'RoundFailed', why })
      }
      this.#failure = why
    }
    return { plan: { ...this.#planner.plan, calls: this.#callsPlan }, changes }
  }

  // No plan is made while the cluster has no pods of the family, so the list must not grow without end.
  #policyChanged(policy: AccessPolicy): void {
    this.#allChanged ||= this.#changed.length >= MAX_CHANGED
    if (this.#allChanged) this.#changed = []
    else this.#changed.push(policy)
  }

  #read(site: AccessSite): void {
    if (!this.#allChanged && this.#changed.length === 0) return
    this.#planner.setRules(this.#readRules(site))
    if (this.#allChanged) {
      this.#planner.replaceAll(this.#caches.access.exports.list(), this.#caches.slices.list())
      this.#planner.touchAll()
    }
    for (const policy of this.#changed) this.#planner.touch(policy.metadata.namespace ?? '', targetsOf(policy))
    this.#allChanged = false
    this.#changed = []
  }

  #readRules({ self }: AccessSite): AccessRules {
    const { memberships, clusters, access } = this.#caches
    return new AccessRules({
      self,
      clustersetDefault: memberships.get(MEMBERSHIP_NAME)?.spec.accessDefault,
      namespaces: namespaceLists(memberships.get(MEMBERSHIP_NAME)),
      clusterPolicies: this.#versions.clusterPolicies(access.clusterPolicies.list()),
      policies: this.#versions.policies(access.policies.list()),
      clusters: clusters.list(),
    })
  }
}

/** As policyTargets(). Of a policy that is not valid, another version counts, with targets of its own. */
function targetsOf(policy: AccessPolicy): ReadonlySet<string> | undefined {
  return accessProblem(policy) === undefined ? policyTargets(policy) : undefined
}

/** Selectors see ids and labels alone. Prefixes are part of the site. */
function changesRules(change: ObjectChange<Cluster> | undefined): boolean {
  if (change?.type !== 'set' || change.previous === undefined) return true
  const [{ spec: now }, { spec: before }] = [change.object, change.previous]
  return now.id !== before.id || !isDeepStrictEqual(now.labels, before.labels)
}
