/** Write into the status of each access and traffic policy whether it is in force, and what its author should know. */
import type { ClusterApi, HeardGateways } from '../../kubeapi/kubeapi.ts'
import { type ClusterValidation, checkRemoteClusters, underlayAddresses } from '../../model/addresses/addresses.ts'
import { AccessVersions, clustersWithoutEgress } from '../../model/access/access.ts'
import { unansweredClusters, usableClusters } from '../../model/lanes/lanes.ts'
import { type Cluster, MEMBERSHIP_NAME, objectKeyText, serviceKey } from '../../model/model.ts'
import { type AnyTrafficPolicy, type TrafficPolicies, TrafficVersions } from '../../model/services/services.ts'
import { type LoopInit, ReconcileLoop, Subscriptions } from '../../reconcile/reconcile.ts'
import { type LoopParts, type MirrorWriter, loopDeps } from '../loop/loop.ts'
import { PolicyConditions } from './plan-policy-conditions.ts'
import { type ReportedShares, planTrafficStatuses, reportShares } from './plan-traffic-conditions.ts'
import { WrittenVersions } from './written-versions.ts'

/** A person reads the condition, and many policies, imports and members change together. */
const LOOK_MS = 500

export interface AccessPolicyLoopDeps extends LoopParts {
  readonly api: ClusterApi
  readonly writer: MirrorWriter
  /** What this process has seen of the access policies. Absent: nothing yet, and no other loop shares it. */
  readonly versions?: AccessVersions
}

export interface AccessPolicyLoopInit {
  /** Id of this cluster. */
  readonly own: string
  readonly loop: LoopInit
}

const ACCESS_KINDS = ['AccessPolicy', 'ClusterAccessPolicy', 'ServiceExport', 'Cluster'] as const

/** Reports in the condition Valid of each access policy whether it is in force, and what its author should know. */
export class AccessPolicyLoop {
  readonly #deps: AccessPolicyLoopDeps
  readonly #own: string
  readonly #loop: ReconcileLoop
  readonly #subscriptions = new Subscriptions()
  readonly #conditions: PolicyConditions
  readonly #versions: AccessVersions
  readonly #kept = new WrittenVersions()

  constructor(deps: AccessPolicyLoopDeps, { own, loop }: AccessPolicyLoopInit) {
    this.#deps = deps
    this.#own = own
    this.#versions = deps.versions ?? new AccessVersions()
    this.#conditions = new PolicyConditions(this.#versions)
    const timing = { ...loop, minMs: Math.max(loop.minMs, LOOK_MS) }
    this.#loop = new ReconcileLoop(loopDeps(deps, 'access-policies'), timing, (signal) => this.#round(signal))
    const { api } = deps
    const poke = (): void => this.#loop.poke()
    for (const kind of ['ServiceExport', 'Cluster'] as const) this.#subscriptions.add(api.cache(kind).onChange(poke))
    for (const kind of ['AccessPolicy', 'ClusterAccessPolicy'] as const) {
      const stop = api.cache(kind).onChange((change) => {
        if (change?.type === 'set') this.#versions.see(change.object)
        poke()
      })
      this.#subscriptions.add(stop)
    }
    this.#subscriptions.add(api.cache('Membership').onChange(poke))
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#loop.run(signal)
    this.#subscriptions.end()
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { api, writer, clock } = this.#deps
    // Members and exports that are not read yet would be reported as missing.
    if (!ACCESS_KINDS.every((kind) => api.cache(kind).synced)) return
    const exports = api.cache('ServiceExport').list()
    const policies = api.cache('AccessPolicy').list()
    const clusterPolicies = api.cache('ClusterAccessPolicy').list()
    this.#kept.look([...policies, ...clusterPolicies], clock.monotonic())
    const changed = this.#conditions.plan(
      {
        self: this.#own,
        clustersetDefault: api.cache('Membership').get(MEMBERSHIP_NAME)?.spec.accessDefault,
        ...{ policies, clusterPolicies, kept: this.#kept.known, lost: this.#kept.lost },
        clusters: api.cache('Cluster').list(),
        exports: new Set(exports.map(({ metadata }) => serviceKey(metadata.namespace ?? '', metadata.name))),
      },
      clock.now(),
    )
    const failures = await writer.applyStatuses(changed, signal)
    const failure = failures.find(({ code }) => code !== 'NotFound')
    if (failure !== undefined) throw failure
    this.#kept.note(changed, clock.monotonic())
    if (await this.#kept.readAgain(this.#deps, signal)) this.#loop.poke()
  }
}

export interface TrafficPolicyLoopDeps extends LoopParts {
  readonly api: ClusterApi
  readonly writer: MirrorWriter
  /** As of AccessPolicyLoop. */
  readonly versions?: AccessVersions
  /** The same of the traffic policies. */
  readonly trafficVersions?: TrafficVersions
  readonly gateways: HeardGateways
}

export interface TrafficPolicyLoopInit {
  /** Id of this cluster. */
  readonly own: string
  readonly loop: LoopInit
}

/** Kinds on which conditions depend. */
const STATED = ['TrafficPolicy', 'ClusterTrafficPolicy', 'ServiceImport', 'Cluster'] as const
const TRAFFIC_KINDS = [...STATED, 'EndpointSlice', 'Node'] as const
/** Readiness may flip all the time: shares are planned, and the status of a policy is written, at most this often. */
const SHARES_MS = 5000

interface Written {
  /** By writtenSpec(). */
  readonly spec: string
  /** Monotonic. */
  readonly at: number
}

/**
 * Names what a user has written: other text for another spec. A policy that was deleted and created again has the
 * generation of the one before.
 */
function writtenSpec(policy: AnyTrafficPolicy): string {
  const { uid = '', generation = '' } = policy.metadata
  return `${objectKeyText(policy)} ${uid} ${generation}`
}

/** Also writes which cluster gets which share of the services of a traffic policy. */
export class TrafficPolicyLoop {
  readonly #deps: TrafficPolicyLoopDeps
  readonly #own: string
  readonly #loop: ReconcileLoop
  /** Says when shares may be planned again. */
  readonly #shares: ReconcileLoop
  readonly #subscriptions = new Subscriptions()
  readonly #traffic: TrafficVersions
  #reports: ReadonlyMap<string, ReportedShares> = new Map()
  /** The policies that the reports are about: a policy that a user has changed is reported at once. */
  #reported = ''
  #isStale = true
  readonly #written = new Map<string, Written>()
  readonly #kept = new WrittenVersions()
  readonly #access: AccessVersions

  constructor(deps: TrafficPolicyLoopDeps, { own, loop }: TrafficPolicyLoopInit) {
    this.#deps = deps
    this.#own = own
    this.#access = deps.versions ?? new AccessVersions()
    this.#traffic = deps.trafficVersions ?? new TrafficVersions()
    const timing = { ...loop, minMs: Math.max(loop.minMs, LOOK_MS) }
    this.#loop = new ReconcileLoop(loopDeps(deps, 'traffic-policies'), timing, (signal) => this.#round(signal))
    this.#shares = new ReconcileLoop(loopDeps(deps, 'traffic-shares'), { ...loop, minMs: SHARES_MS }, () => {
      this.#isStale = true
      this.#loop.poke()
      return Promise.resolve()
    })
    const pokeShares = (): void => this.#shares.poke()
    for (const kind of ['ServiceImport', 'Cluster'] as const)
      this.#subscriptions.add(deps.api.cache(kind).onChange(() => this.#loop.poke()))
    for (const kind of ['TrafficPolicy', 'ClusterTrafficPolicy'] as const) {
      const stop = deps.api.cache(kind).onChange((change) => {
        if (change?.type === 'set') this.#traffic.see(change.object)
        this.#loop.poke()
      })
      this.#subscriptions.add(stop)
    }
    const seen = deps.api.cache('ClusterAccessPolicy').onChange((change) => {
      if (change?.type === 'set') this.#access.see(change.object)
    })
    this.#subscriptions.add(seen)
    for (const kind of ['ServiceImport', 'Cluster', 'EndpointSlice', 'ClusterAccessPolicy'] as const)
      this.#subscriptions.add(deps.api.cache(kind).onChange(pokeShares))
    this.#subscriptions.add(deps.gateways.onChange(pokeShares))
  }

  /** Runs until the signal ends it. */
  async run(signal: AbortSignal): Promise<void> {
    const { api } = this.#deps
    // Members and imports that are not read yet would be reported as missing.
    const isRead = await Promise.all(TRAFFIC_KINDS.map((kind) => api.cache(kind).whenSynced(signal))).then(
      () => true,
      () => false,
    )
    if (isRead) await Promise.all([this.#loop.run(signal), this.#shares.run(signal)])
    this.#subscriptions.end()
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { api, writer, clock } = this.#deps
    const named = api.cache('TrafficPolicy').list()
    const clusterPolicies = api.cache('ClusterTrafficPolicy').list()
    const inForce = this.#traffic.look(named, clusterPolicies)
    const policies: AnyTrafficPolicy[] = [...named, ...clusterPolicies]
    this.#forget(policies)
    if (policies.length === 0) return
    this.#planShares(policies, inForce)
    const imports = api.cache('ServiceImport').list()
    const members = api.cache('Cluster').list()
    const world = {
      policies: inForce,
      reports: this.#reports,
      kept: this.#kept.known,
      lost: this.#kept.lost,
      members: new Set([this.#own, ...members.map(({ spec }) => spec.id)]),
      imports: new Map(
        imports.map(({ metadata, spec }) => [serviceKey(metadata.namespace ?? '', metadata.name), spec.type] as const),
      ),
    }
    const changed = planTrafficStatuses(policies, world, clock.now())
    const due = changed.filter((policy) => !this.#isEarly(policy))
    // The next round of the shares looks at those that are left, which may be as they were by then.
    if (due.length < changed.length) this.#shares.poke()
    for (const policy of due)
      this.#written.set(objectKeyText(policy), { spec: writtenSpec(policy), at: clock.monotonic() })
    const failures = await writer.applyStatuses(due, signal)
    const failure = failures.find(({ code }) => code !== 'NotFound')
    if (failure !== undefined) throw failure
    this.#kept.note(due, clock.monotonic())
    if (await this.#kept.readAgain(this.#deps, signal)) this.#loop.poke()
  }

  #forget(policies: readonly AnyTrafficPolicy[]): void {
    const present = new Set(policies.map(objectKeyText))
    for (const key of this.#written.keys()) if (!present.has(key)) this.#written.delete(key)
    this.#kept.look(policies, this.#deps.clock.monotonic())
  }

  /** A policy that a user has changed is not made to wait. */
  #isEarly(policy: AnyTrafficPolicy): boolean {
    const last = this.#written.get(objectKeyText(policy))
    if (last === undefined || last.spec !== writtenSpec(policy)) return false
    return this.#deps.clock.monotonic() - last.at < SHARES_MS
  }

  #planShares(policies: readonly AnyTrafficPolicy[], inForce: TrafficPolicies): void {
    const { api, gateways } = this.#deps
    const about = policies.map(writtenSpec).join()
    if (!this.#isStale && about === this.#reported) return
    this.#isStale = false
    this.#reported = about
    const clusters = api.cache('Cluster').list()
    this.#reports = reportShares({
      self: this.#own,
      clusterset: api.cache('Membership').get(MEMBERSHIP_NAME)?.spec.clusterset,
      clusters: new Map(clusters.map((cluster) => [cluster.spec.id, cluster])),
      reachable: usableClusters(this.#own, gateways.list(), this.#validation(clusters)),
      unanswered: unansweredClusters(gateways.list()),
      policies: inForce,
      withoutEgress: clustersWithoutEgress(
        this.#access.clusterPolicies(api.cache('ClusterAccessPolicy').list()),
        clusters,
        this.#own,
      ),
      imports: api.cache('ServiceImport').list(),
      slices: api.cache('EndpointSlice').list(),
    })
  }

  /** Route agents refuse the same clusters. Undefined until the own Cluster is known. */
  #validation(clusters: readonly Cluster[]): ClusterValidation | undefined {
    const own = clusters.find(({ spec }) => spec.id === this.#own)
    const nodes = this.#deps.api.cache('Node').list()
    return own && checkRemoteClusters({ own, clusters, underlay: underlayAddresses(nodes) })
  }
}
