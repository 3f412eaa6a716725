/** Reports in the condition Valid of each access policy whether it is in force, and what its author should know. */
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import { MEMBERSHIP_NAME, serviceKey } from '../../model/model.ts'
import { type LoopInit, ReconcileLoop, Subscriptions } from '../../reconcile/reconcile.ts'
import { type LoopParts, type MirrorWriter, loopDeps } from '../loop/loop.ts'
import { PolicyConditions } from './plan-policy-conditions.ts'

export interface AccessPolicyLoopDeps extends LoopParts {
  readonly api: ClusterApi
  readonly writer: MirrorWriter
}

export interface AccessPolicyLoopInit {
  /** Id of this cluster. */
  readonly own: string
  readonly loop: LoopInit
}

const KINDS = ['AccessPolicy', 'ClusterAccessPolicy', 'ServiceExport', 'Cluster'] as const
/** A person reads the condition, and many policies and members change together. */
const LOOK_MS = 500

export class AccessPolicyLoop {
  readonly #deps: AccessPolicyLoopDeps
  readonly #own: string
  readonly #loop: ReconcileLoop
  readonly #subscriptions = new Subscriptions()
  readonly #conditions = new PolicyConditions()

  constructor(deps: AccessPolicyLoopDeps, { own, loop }: AccessPolicyLoopInit) {
    this.#deps = deps
    this.#own = own
    const timing = { ...loop, minMs: Math.max(loop.minMs, LOOK_MS) }
    this.#loop = new ReconcileLoop(loopDeps(deps, 'access-policies'), timing, (signal) => this.#round(signal))
    const { api } = deps
    const poke = (): void => this.#loop.poke()
    for (const kind of KINDS) this.#subscriptions.add(api.cache(kind).onChange(poke))
    this.#subscriptions.add(api.cache('Membership').onChange(poke))
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#loop.run(signal)
    this.#subscriptions.end()
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { api, writer, clock } = this.#deps
    // Members and exports that are not read yet would be reported as missing.
    if (!KINDS.every((kind) => api.cache(kind).synced)) return
    const exports = api.cache('ServiceExport').list()
    const changed = this.#conditions.plan(
      {
        self: this.#own,
        clustersetDefault: api.cache('Membership').get(MEMBERSHIP_NAME)?.spec.accessDefault,
        policies: api.cache('AccessPolicy').list(),
        clusterPolicies: api.cache('ClusterAccessPolicy').list(),
        clusters: api.cache('Cluster').list(),
        exports: new Set(exports.map(({ metadata }) => serviceKey(metadata.namespace ?? '', metadata.name))),
      },
      clock.now(),
    )
    const failures = await writer.applyStatuses(changed, signal)
    const failure = failures.find(({ code }) => code !== 'NotFound')
    if (failure !== undefined) throw failure
  }
}
