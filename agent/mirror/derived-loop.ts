/** Keeps derived Services and their slices equal to the imports whose annotations ask for them. */
import { type ClusterApi, ClusterApiError, type HeardGateways, type ObjectChange } from '../../kubeapi/kubeapi.ts'
import {
  type Cluster,
  type KubeObject,
  LABEL_SERVICE_NAME,
  type Namespace,
  MEMBERSHIP_NAME,
  findCondition,
  setCondition,
} from '../../model/model.ts'
import {
  type ClusterValidation,
  checkRemoteClusters,
  podFamilies,
  underlayAddresses,
} from '../../model/addresses/addresses.ts'
import { AccessVersions, clustersWithoutEgress } from '../../model/access/access.ts'
import { unansweredClusters, usableClusters } from '../../model/lanes/lanes.ts'
import { TrafficVersions, isDerived } from '../../model/services/services.ts'
import { KeyedMemo, type LoopInit, ReconcileLoop, Subscriptions } from '../../reconcile/reconcile.ts'
import {
  type DerivedFinding,
  type DerivedMemory,
  type DerivedWorld,
  derivedAmong,
  planDerived,
} from '../import/import.ts'
import { type LoopParts, type MirrorWriter, loopDeps } from '../loop/loop.ts'

export interface DerivedLoopDeps extends LoopParts {
  readonly api: ClusterApi
  readonly writer: MirrorWriter
  readonly gateways: HeardGateways
  /** What this process has seen of the access policies. Absent: nothing yet, and no other loop shares it. */
  readonly versions?: AccessVersions
  /** The same of the traffic policies. */
  readonly trafficVersions?: TrafficVersions
}

export interface DerivedLoopInit {
  /** Id of this cluster. */
  readonly own: string
  /** Set on a site without Kubernetes, which has no consumers of Services. */
  readonly removesOrphans: boolean
  readonly loop: LoopInit
}

const KINDS = [
  'ServiceImport',
  'EndpointSlice',
  'Service',
  'Namespace',
  'Cluster',
  'Gateway',
  'Node',
  'Membership',
  'TrafficPolicy',
  'ClusterTrafficPolicy',
  'ClusterAccessPolicy',
] as const
/** Many slices change together, and a round reads all of them. */
const LOOK_MS = 200

export class DerivedLoop {
  readonly #deps: DerivedLoopDeps
  readonly #init: DerivedLoopInit
  readonly #loop: ReconcileLoop
  readonly #subscriptions = new Subscriptions()
  readonly #memory: DerivedMemory = new KeyedMemo()
  /** Whether the last round found nothing that is derived or asked for. */
  #isIdle = false
  readonly #traffic: TrafficVersions
  readonly #access: AccessVersions

  constructor(deps: DerivedLoopDeps, init: DerivedLoopInit) {
    this.#deps = deps
    this.#init = init
    this.#access = deps.versions ?? new AccessVersions()
    this.#traffic = deps.trafficVersions ?? new TrafficVersions()
    const timing = { ...init.loop, minMs: Math.max(init.loop.minMs, LOOK_MS) }
    this.#loop = new ReconcileLoop(loopDeps(deps, 'derived-services'), timing, (signal) => this.#round(signal))
    for (const kind of KINDS) {
      const source = kind === 'Gateway' ? deps.gateways : deps.api.cache(kind)
      this.#subscriptions.add(source.onChange((change?: ObjectChange<KubeObject>) => this.#note(change)))
    }
  }

  /** Runs until the signal ends it. */
  async run(signal: AbortSignal): Promise<void> {
    await this.#loop.run(signal)
    this.#subscriptions.end()
  }

  /** Removes all derived objects. Called when this cluster leaves. Can be repeated after a failure. */
  async removeAll(signal: AbortSignal): Promise<void> {
    const { api, writer } = this.#deps
    const all = [...api.cache('Service').list(), ...api.cache('EndpointSlice').list()]
    const [failure] = await writer.remove(derivedAmong(all), signal)
    if (failure !== undefined) throw failure
  }

  #note(change: ObjectChange<KubeObject> | undefined): void {
    if (change?.type === 'set') this.#see(change.object)
    if (change?.type === 'removed' && change.object.kind === 'Service') this.#deps.writer.forget(change.object)
    if (change === undefined || this.#isConcerned(change)) this.#loop.poke()
  }

  #see(object: KubeObject): void {
    if (object.kind === 'ClusterAccessPolicy') this.#access.see(object)
    if (object.kind === 'TrafficPolicy' || object.kind === 'ClusterTrafficPolicy') this.#traffic.see(object)
  }

  /** Slices, gateways and Services change often, and mostly where nothing is derived. */
  #isConcerned(change: ObjectChange<KubeObject>): boolean {
    const { object } = change
    if (object.kind === 'ServiceImport' || object.kind === 'Namespace' || isDerived(object)) return true
    if (change.type === 'set' && change.previous !== undefined && isDerived(change.previous)) return true
    if (this.#isIdle) return false
    return object.kind !== 'EndpointSlice' || object.metadata.labels?.[LABEL_SERVICE_NAME] !== undefined
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { api, writer } = this.#deps
    // An import that is not read yet would count as withdrawn.
    if (!KINDS.every((kind) => api.cache(kind).synced)) return
    const plan = planDerived(this.#world(), this.#memory)
    this.#isIdle = plan.findings.length === 0 && plan.remove.length === 0
    const failures = await writer.apply(plan.objects, signal)
    failures.push(...(await writer.remove(plan.remove, signal)))
    for (const finding of plan.findings) await this.#say(finding, signal)
    if (failures[0] !== undefined) throw failures[0]
  }

  #world(): DerivedWorld {
    const { api } = this.#deps
    const { own, removesOrphans } = this.#init
    // Each version of a policy is looked at, also while nothing is derived.
    const policies = this.#traffic.look(api.cache('TrafficPolicy').list(), api.cache('ClusterTrafficPolicy').list())
    const access = this.#access.clusterPolicies(api.cache('ClusterAccessPolicy').list())
    const shares = (): DerivedWorld['shares'] => this.#shares(policies, access)
    let known: DerivedWorld['shares'] | undefined
    return {
      imports: api.cache('ServiceImport').list(),
      namespaces: liveNamespaces(api.cache('Namespace').list()),
      services: api.cache('Service').list(),
      slices: api.cache('EndpointSlice').list(),
      serviceFamilies: podFamilies({ podCIDRs: api.cache('Cluster').get(own)?.spec.serviceCIDRs ?? [] }),
      isOffered: !removesOrphans,
      // Read only if something is derived.
      get shares() {
        return (known ??= shares())
      },
    }
  }

  #shares(
    policies: DerivedWorld['shares']['policies'],
    access: ReturnType<AccessVersions['clusterPolicies']>,
  ): DerivedWorld['shares'] {
    const { api, gateways } = this.#deps
    const { own } = this.#init
    const clusters = new Map(
      api
        .cache('Cluster')
        .list()
        .map((one) => [one.spec.id, one] as const),
    )
    return {
      self: own,
      clusterset: api.cache('Membership').get(MEMBERSHIP_NAME)?.spec.clusterset,
      clusters,
      reachable: usableClusters(own, gateways.list(), this.#validation(clusters)),
      unanswered: unansweredClusters(gateways.list()),
      policies,
      withoutEgress: clustersWithoutEgress(access, [...clusters.values()], own),
    }
  }

  /** Route agents refuse the same clusters. Undefined until the own Cluster is known. */
  #validation(clusters: ReadonlyMap<string, Cluster>): ClusterValidation | undefined {
    const own = clusters.get(this.#init.own)
    const underlay = underlayAddresses(this.#deps.api.cache('Node').list())
    return own && checkRemoteClusters({ own, clusters: [...clusters.values()], underlay })
  }

  /** Writes the condition by itself: the rest of the status is written by the mirror. */
  async #say({ serviceImport, finding, service }: DerivedFinding, signal: AbortSignal): Promise<void> {
    const { api, writer, clock } = this.#deps
    const { name, namespace, generation } = serviceImport.metadata
    const said =
      service !== undefined && writer.isRefused(service)
        ? ({
            ...finding,
            status: 'False',
            reason: 'ObjectNotWritten',
            message: `the API server refuses Service ${namespace ?? ''}/${service.metadata.name}; the log says why`,
          } as const)
        : finding
    const wanted = generation === undefined ? said : { ...said, observedGeneration: generation }
    const before = serviceImport.status?.conditions ?? []
    const conditions = setCondition(before, wanted, clock.now())
    const condition = findCondition(conditions, wanted.type)
    if (conditions === before || condition === undefined) return
    try {
      await api.setCondition({ kind: 'ServiceImport', name, namespace }, condition, signal)
    } catch (error) {
      // The import is gone, and the cache will show that.
      if (!(error instanceof ClusterApiError) || error.code !== 'NotFound') throw error
    }
  }
}

function liveNamespaces(all: readonly Namespace[]): ReadonlyMap<string, Namespace> {
  const live = all.filter(
    ({ metadata, status }) => metadata.deletionTimestamp === undefined && status?.phase !== 'Terminating',
  )
  return new Map(live.map((one) => [one.metadata.name, one]))
}
