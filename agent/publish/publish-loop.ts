/** Keeps the broker's records of this cluster equal to this cluster's exports. */
import type { ClusterApi, ObjectChange } from '../../kubeapi/kubeapi.ts'
import { type AccessDefault, AccessVersions, accessProblem, exposureOf } from '../../model/access/access.ts'
import { type Prefix, ipv6Among, ipv6Clashes, parsePrefix, podFamilies } from '../../model/addresses/addresses.ts'
import {
  type ClusterSpec,
  type KubeObject,
  LABEL_SOURCE_CLUSTER,
  MEMBERSHIP_NAME,
  type Membership,
  type NamespaceLists,
  type ServiceExport,
  type ServiceKey,
  serviceKey,
} from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { ClusterFacts } from '../../protocol/protocol.ts'
import { type Clock, KeyedMemo, type LoopInit, ReconcileLoop, Subscriptions } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { type ExportAccess, type ExportPlan, type ExportWorld, newExportMemory, planExports } from '../export/export.ts'
import type { Publisher, ReplicaView, StatedAccess } from '../link/link.ts'
import { type AgentMetrics, type MirrorWriter, type SharedFindings, loopDeps } from '../loop/loop.ts'
import { ExportConditions } from './export-conditions.ts'

export interface PublishLoopDeps {
  readonly api: ClusterApi
  readonly publisher: Publisher
  /** The default of the clusterset. Undefined if the broker never states one. */
  readonly stated: StatedAccess | undefined
  /** What the broker has. Absent: nothing of this cluster, as far as the loop knows. */
  readonly replica?: Pick<ReplicaView, 'synced' | 'confirmed' | 'holds' | 'records' | 'onChange'>
  /** What this process has seen of the access policies. Absent: nothing yet, and no other loop shares it. */
  readonly versions?: AccessVersions
  readonly writer: MirrorWriter
  readonly findings: SharedFindings
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: AgentMetrics
}

export interface PublishLoopInit {
  /** Id of this cluster. */
  readonly own: string
  /** The facts that this cluster states about itself. If undefined, those it joined with are used. */
  readonly facts: ClusterFacts | undefined
  readonly allowedNamespaces: readonly string[]
  readonly excludedNamespaces: readonly string[]
  readonly loop: LoopInit
}

/**
 * The kinds that decide what is published. Nothing is published before all of them have been read: an incomplete set of
 * exports would withdraw the missing ones, and an incomplete set of policies would offer to all what is offered to few.
 */
const KINDS = ['ServiceExport', 'Service', 'EndpointSlice', 'Endpoint', 'Cluster', 'Membership'] as const
const POLICY_KINDS = ['ClusterAccessPolicy', 'AccessPolicy'] as const
/**
 * A cluster that an image alone has upgraded has no CRDs of policies, and exposes all pods as before. New gateways must
 * reach the broker there too.
 */
const POLICIES_MS = 30_000
/**
 * Whether the default of a new member is provisional is found out for at most this long after the broker has answered,
 * while its records at the broker stay as they are.
 */
const STATED_MS = 10_000

export class PublishLoop {
  readonly #deps: PublishLoopDeps
  readonly #startedMs: number
  readonly #own: string
  readonly #facts: ClusterFacts | undefined
  readonly #namespaces: NamespaceLists
  readonly #loop: ReconcileLoop
  readonly #memory = newExportMemory()
  readonly #conditions: ExportConditions
  readonly #versions: AccessVersions
  readonly #subscriptions = new Subscriptions()
  readonly #leftOut = new KeyedMemo<string | undefined>()
  #reportedLeftOut: string | undefined
  #hasSaidUndecided = false
  #cancelWait: (() => void) | undefined
  /** When the broker was found to have answered this process, monotonic. */
  #answeredMs: number | undefined
  #podPrefixes: { readonly text: string; readonly prefixes: readonly Prefix[] } | undefined
  /** The current plan. Undefined if its input has changed. */
  #plan: ExportPlan | undefined
  #last: ExportPlan | undefined
  /** Maps the key of each record to its export. */
  #exportOf = new Map<string, ServiceKey>()
  /** Exports whose conditions may be outdated. Undefined for all. */
  #unreported: Set<ServiceKey> | undefined

  constructor(deps: PublishLoopDeps, init: PublishLoopInit) {
    this.#deps = deps
    this.#startedMs = deps.clock.monotonic()
    this.#own = init.own
    this.#facts = init.facts
    this.#namespaces = { allowed: init.allowedNamespaces, excluded: init.excludedNamespaces }
    this.#conditions = new ExportConditions(deps)
    this.#versions = deps.versions ?? new AccessVersions()
    this.#loop = new ReconcileLoop(loopDeps(deps, 'publish'), init.loop, (signal) => this.#round(signal))
    const { api, publisher, findings } = deps
    for (const kind of ['Service', 'Endpoint', 'Cluster', 'Membership'] as const) {
      this.#subscriptions.add(api.cache(kind).onChange(() => this.#changed()))
    }
    for (const kind of ['AccessPolicy', 'ClusterAccessPolicy'] as const) {
      const stop = api.cache(kind).onChange((change) => {
        if (change?.type === 'set') this.#versions.see(change.object)
        // The status of a policy that is not valid has the version that counts.
        const isSame = change !== undefined && isStatusAlone(change) && accessProblem(change.object) === undefined
        if (!isSame) this.#changed()
      })
      this.#subscriptions.add(stop)
    }
    const exports = api.cache('ServiceExport').onChange((change) => {
      if (change !== undefined && isStatusAlone(change)) this.#report([keyOf(change.object)])
      else this.#changed()
    })
    const slices = api.cache('EndpointSlice').onChange((change) => {
      // Imported slices are not exported again.
      if (change?.object.metadata.labels?.[LABEL_SOURCE_CLUSTER] === undefined) this.#changed()
    })
    const published = publisher.onChange((keys) => {
      if (keys === undefined) this.#report(undefined)
      else this.#report(keys.flatMap((key) => this.#exportOf.get(key) ?? []))
    })
    for (const stop of [exports, slices, published]) this.#subscriptions.add(stop)
    const held = deps.replica?.onChange(() => {
      if (this.#last !== undefined && this.#last.undecided.size > 0) this.#changed()
    })
    if (held !== undefined) this.#subscriptions.add(held)
    if (deps.stated !== undefined) this.#subscriptions.add(deps.stated.onChange(() => this.#changed()))
    findings.onFindings((keys) => this.#report(keys))
    // Happens at most once in reportMs, and an unchanged export costs little.
    findings.onImporters(() => this.#report(undefined))
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#loop.run(signal)
    this.#cancelWait?.()
    this.#subscriptions.end()
  }

  /** Why nothing can be published yet. Undefined if it can. */
  notReady(): string | undefined {
    const { api } = this.#deps
    for (const kind of KINDS) {
      if (!api.cache(kind).synced) return `${kind} objects are not read yet`
    }
    const unread = POLICY_KINDS.find((kind) => !api.cache(kind).synced)
    if (unread !== undefined && !this.#goesWithoutPolicies()) return `${unread} objects are not read yet`
    return api.cache('Cluster').get(this.#own) === undefined ? `Cluster ${this.#own} does not exist` : undefined
  }

  #goesWithoutPolicies(): boolean {
    const membership = this.#deps.api.cache('Membership').get(MEMBERSHIP_NAME)
    return exposureOf(membership) === 'pods' && this.#deps.clock.monotonic() - this.#startedMs >= POLICIES_MS
  }

  /** The Membership follows the broker a moment later, and the CRD of an earlier release does not keep the default. */
  #defaultOf({ spec }: Membership): AccessDefault | undefined {
    const word = this.#deps.stated?.get()
    return word === 'allow' || word === 'deny' ? word : spec.accessDefault
  }

  /**
   * Whether the broker may state another default in a moment. Publishing what is open to nobody would withdraw from
   * importers what it opens then, and the reverse would open. While it is unreachable, nothing can be published anyway.
   */
  #awaitsDefault(): boolean {
    const { api, clock, stated } = this.#deps
    const spec = api.cache('Membership').get(MEMBERSHIP_NAME)?.spec
    if (stated === undefined || spec?.phase !== 'joined' || spec.accessDefault === 'allow') return false
    const word = stated.get()
    if (word === undefined) return true
    // What is provisional may stay for long beside a replica of an earlier release, so it counts.
    if (word !== 'none' || spec.accessDefault === undefined) return false
    this.#answeredMs ??= clock.monotonic()
    const leftMs = STATED_MS - (clock.monotonic() - this.#answeredMs)
    if (leftMs > 0) this.#cancelWait ??= clock.setTimer(leftMs, () => this.#changed())
    return leftMs > 0
  }

  /** Sets the conditions of every export after this cluster has left. */
  reportLeft(signal: AbortSignal): Promise<void> {
    return this.#conditions.reportLeft(signal)
  }

  #changed(): void {
    this.#plan = undefined
    this.#loop.poke()
  }

  #report(keys: Iterable<ServiceKey> | undefined): void {
    if (keys === undefined) this.#unreported = undefined
    else for (const key of keys) this.#unreported?.add(key)
    this.#loop.poke()
  }

  async #round(signal: AbortSignal): Promise<void> {
    if (this.notReady() !== undefined) return
    // No change is known, so this round checks for drift.
    if (this.#plan !== undefined && this.#unreported?.size === 0) {
      this.#plan = undefined
      this.#unreported = undefined
    }
    const plan = this.#plan ?? this.#planAll()
    if (plan === undefined) return
    const unreported = this.#unreported ?? new Set([...plan.exports.keys(), ...(this.#last?.exports.keys() ?? [])])
    this.#last = plan
    this.#unreported = new Set()
    try {
      await this.#conditions.report(plan, unreported, signal)
    } catch (error) {
      this.#unreported = undefined
      throw error
    }
  }

  #planAll(): ExportPlan | undefined {
    const { publisher, findings } = this.#deps
    const world = this.#world()
    if (world === undefined) return undefined
    const before = this.#last
    const plan = planExports(world, this.#memory)
    this.#plan = plan
    this.#exportOf = new Map()
    for (const [key, { records, recordKeys, valid }] of plan.exports) {
      for (const record of recordKeys) this.#exportOf.set(record, key)
      const old = before?.exports.get(key)
      if (old?.records !== records || old.valid !== valid) this.#unreported?.add(key)
    }
    for (const key of before?.exports.keys() ?? []) if (!plan.exports.has(key)) this.#unreported?.add(key)
    const isDecided = plan.undecided.size === 0
    this.#sayUndecided(plan.undecided)
    if (isDecided && !this.#awaitsDefault()) publisher.setDesired(plan.records)
    // What the broker has shown before counts for other loops. Without any of it, they wait.
    if (isDecided || this.#deps.replica?.synced === true) findings.setExportPlan(plan)
    return plan
  }

  /** How many exports wait for the broker, because of which nothing is published. */
  get undecided(): number {
    return this.#last?.undecided.size ?? 0
  }

  /** Says once which export holds up all others. */
  #sayUndecided(undecided: ExportPlan['undecided']): void {
    const [service] = undecided
    if (service !== undefined && !this.#hasSaidUndecided) {
      this.#deps.logger.warn('nothing is published until the broker has shown what it has of this cluster', {
        ...{ reason: 'ExportsUndecided' satisfies ReasonCode, service, count: undecided.size },
      })
    }
    this.#hasSaidUndecided = service !== undefined
  }

  /** Whether the broker has our record of an export. Its records are read once, and only if something depends on them. */
  #isStored(): NonNullable<ExportWorld['isStored']> {
    const { replica } = this.#deps
    if (replica === undefined) return () => false
    let stored: ReadonlySet<ServiceKey> | undefined
    return (key) => {
      stored ??= new Set(
        [...replica.records()].flatMap(({ key: { cluster, kind, namespace, name } }) => {
          return cluster === this.#own && kind === 'ServiceExport' ? [serviceKey(namespace, name)] : []
        }),
      )
      if (stored.has(key)) return true
      return replica.confirmed && replica.holds(key.slice(0, key.indexOf('/'))) ? false : undefined
    }
  }

  #world(): ExportWorld | undefined {
    const { api } = this.#deps
    const own = api.cache('Cluster').get(this.#own)
    const access = this.#access()
    if (own === undefined || access === undefined) return undefined
    return {
      cluster: this.#own,
      podPrefixes: this.#parsePodPrefixes(own.spec.podCIDRs),
      ipv6LeftOut: this.#ipv6LeftOut(own.spec),
      access,
      isStored: this.#isStored(),
      exports: api.cache('ServiceExport').list(),
      services: api.cache('Service').list(),
      slices: api.cache('EndpointSlice').list(),
      endpoints: api.cache('Endpoint').list(),
    }
  }

  #access(): ExportAccess | undefined {
    const { api } = this.#deps
    const membership = api.cache('Membership').get(MEMBERSHIP_NAME)
    // Without it, all pods would count as exposed. The cluster leaves, or has not joined.
    if (membership === undefined) return undefined
    return {
      exposure: exposureOf(membership),
      clustersetDefault: this.#defaultOf(membership),
      namespaces: this.#namespaces,
      clusterPolicies: this.#versions.clusterPolicies(api.cache('ClusterAccessPolicy').list()),
      policies: this.#versions.policies(api.cache('AccessPolicy').list()),
      clusters: api.cache('Cluster').list(),
    }
  }

  /** Computed again only if a Cluster has changed. Logged once, even if nothing is exported. */
  #ipv6LeftOut(own: ClusterSpec): string | undefined {
    const others = this.#deps.api
      .cache('Cluster')
      .list()
      .map(({ spec }) => spec)
    const why = this.#leftOut.get('', [own, others], () => ipv6LeftOut({ facts: this.#facts, own, others }))
    if (why !== undefined && why !== this.#reportedLeftOut) {
      this.#deps.logger.warn('other clusters reach this cluster by IPv4 only', { reason: 'IPv6NotCarried', why })
    }
    this.#reportedLeftOut = why
    return why
  }

  /** Gives the same object while the CIDRs are unchanged, since the plan's cache compares by identity. */
  #parsePodPrefixes(texts: readonly string[]): readonly Prefix[] {
    const text = texts.join()
    if (this.#podPrefixes?.text === text) return this.#podPrefixes.prefixes
    const prefixes = texts.map((one) => parsePrefix(one, 'podCIDRs'))
    this.#podPrefixes = { text, prefixes }
    return prefixes
  }
}

/** Whether only the status has changed, mostly by our own write. What is published is then the same. */
function isStatusAlone(change: ObjectChange<KubeObject>): boolean {
  const before = change.type === 'set' ? change.previous?.metadata : undefined
  const now = change.object.metadata
  return (
    before?.generation !== undefined &&
    before.generation === now.generation &&
    before.uid === now.uid &&
    before.deletionTimestamp === now.deletionTimestamp
  )
}

function keyOf({ metadata }: ServiceExport): ServiceKey {
  return serviceKey(metadata.namespace ?? '', metadata.name)
}

// Explains why this cluster is not reached by the IPv6 addresses of its pods. Pure.

interface Ipv6World {
  /** The facts that this cluster states about itself. Undefined if only the broker has them. */
  readonly facts: Pick<ClusterFacts, 'podCIDRs' | 'serviceCIDRs'> | undefined
  /** This cluster as the other members know it. */
  readonly own: ClusterSpec
  readonly others: readonly ClusterSpec[]
}

/** Undefined if all stated IPv6 ranges are used. */
export function ipv6LeftOut({ facts, own, others }: Ipv6World): string | undefined {
  const stated = ipv6Among(facts?.podCIDRs ?? [])
  if (facts === undefined || stated.length === 0 || podFamilies(own).includes('IPv6')) return undefined
  const { podCIDRs, serviceCIDRs } = facts
  const all = [{ ...own, podCIDRs, serviceCIDRs }, ...others.filter(({ id }) => id !== own.id)]
  const clash = ipv6Clashes(all).get(own.id)
  // The other cluster's IPv6 may be left out itself, or the broker may have refused the facts.
  if (clash === undefined) return `the broker does not carry ${stated.join(', ')} of this cluster`
  return `${clash.own} of this cluster overlaps ${clash.other} of cluster ${clash.cluster}`
}
