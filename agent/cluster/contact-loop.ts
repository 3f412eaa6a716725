/** Keeps the Leases of the other clusters and reports which of these clusters are dead. */
import type { ClusterApi, HeardGateways } from '../../kubeapi/kubeapi.ts'
import { type Gateway, type Lease, objectKeyText } from '../../model/model.ts'
import { type Clock, type LoopInit, ReconcileLoop, Subscriptions } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { ContactView } from '../link/link.ts'
import { type AgentMetrics, type MirrorWriter, type SharedFindings, loopDeps } from '../loop/loop.ts'
import { clusterEvents, planClusterStatus } from './plan-cluster-status.ts'
import { isOurs, planContact } from './plan-contact.ts'

export interface ContactLoopDeps {
  readonly api: ClusterApi
  readonly contact: ContactView
  readonly gateways: HeardGateways
  readonly writer: MirrorWriter
  readonly findings: SharedFindings
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: AgentMetrics
}

export interface ContactLoopInit {
  /** Id of this cluster. */
  readonly own: string
  readonly leaseNamespace: string
  readonly leaseMs: number
  readonly loop: LoopInit
}

/** A running gateway writes its status every few seconds. A status older than this says nothing about the present. */
const FRESH_MS = 60_000
/** After this time, the import no longer waits for objects that cannot be read. */
const PATIENCE_MS = 5000
/** How often Leases are checked within their lifetime. */
const LOOKS_PER_LIFETIME = 20

const KINDS = ['Cluster', 'Lease', 'Gateway'] as const

export class ContactLoop {
  readonly #deps: ContactLoopDeps
  readonly #init: ContactLoopInit
  readonly #loop: ReconcileLoop
  readonly #subscriptions = new Subscriptions()
  /** When the status of each gateway last changed, by the monotonic clock. */
  readonly #changedAt = new Map<string, number>()
  /** The state of the lanes after the last change of a gateway. */
  #lanes = ''

  constructor(deps: ContactLoopDeps, init: ContactLoopInit) {
    this.#deps = deps
    this.#init = init
    const resyncMs = Math.min(init.loop.resyncMs, init.leaseMs / LOOKS_PER_LIFETIME)
    this.#loop = new ReconcileLoop(loopDeps(deps, 'contact'), { ...init.loop, resyncMs }, (signal) =>
      this.#round(signal),
    )
    const poke = (): void => this.#loop.poke()
    const { api } = deps
    for (const kind of ['Cluster', 'Endpoint'] as const) this.#subscriptions.add(api.cache(kind).onChange(poke))
    const stop = api.cache('Lease').onChange((change) => {
      if (change?.type === 'removed') deps.writer.forget(change.object)
      poke()
    })
    this.#subscriptions.add(stop)
    const gateways = deps.gateways.onChange((change) => {
      if (change?.type === 'removed') this.#changedAt.delete(change.object.metadata.name)
      else this.#gatewayChanged(change?.object)
    })
    this.#subscriptions.add(gateways)
    this.#subscriptions.add(deps.contact.onChange(poke))
  }

  async run(signal: AbortSignal): Promise<void> {
    const patience = this.#deps.clock.setTimer(PATIENCE_MS, () => this.#giveUpWaiting())
    this.#subscriptions.add(patience)
    await this.#loop.run(signal)
    this.#subscriptions.end()
  }

  notReady(): string | undefined {
    const missing = KINDS.find((kind) => !this.#deps.api.cache(kind).synced)
    return missing === undefined ? undefined : `${missing} objects are not read yet`
  }

  /** Removes the agent's own Leases. Called when this cluster leaves. */
  async removeAll(signal: AbortSignal): Promise<void> {
    const leases = this.#deps.api.cache('Lease').list().filter(isOurs)
    const [failure] = await this.#deps.writer.remove(leases, signal)
    if (failure !== undefined) throw failure
  }

  /** Imports without knowing the dead clusters: their endpoints do less harm than no import at all. */
  #giveUpWaiting(): void {
    const { findings, logger } = this.#deps
    if (findings.expired !== undefined) return
    const why = this.notReady() ?? 'the last contact of the clusters is not known yet'
    logger.warn('the last contact of the clusters is unknown; no cluster is treated as lost', {
      reason: 'ContactUnknown',
      why,
    })
    findings.setExpired(new Set())
  }

  #gatewayChanged(gateway: Gateway | undefined): void {
    const { gateways, clock, findings } = this.#deps
    if (gateway !== undefined) this.#changedAt.set(gateway.metadata.name, clock.monotonic())
    // A gateway writes its status every few seconds. A round is due only until the first result, and when a lane
    // changes.
    const lanes = laneText(gateways)
    if (findings.expired === undefined || lanes !== this.#lanes) this.#loop.poke()
    this.#lanes = lanes
  }

  async #round(signal: AbortSignal): Promise<void> {
    if (this.notReady() !== undefined) return
    const { api, contact, writer, findings, clock, metrics } = this.#deps
    const { own, leaseMs, leaseNamespace } = this.#init
    const clusters = api
      .cache('Cluster')
      .list()
      .filter(({ spec }) => spec.id !== own)
    const [nowMs, silent] = [clock.now(), contact.silent()]
    const plan = planContact({
      nowMs,
      durationMs: leaseMs,
      namespace: leaseNamespace,
      clusters: clusters.map(({ spec }) => spec.id),
      leases: api.cache('Lease').list(),
      silent,
      connected: this.#connected(),
    })
    this.#report(new Set(plan.expired))
    findings.setExpired(new Set(plan.expired))
    metrics.silent.set(plan.expired.length)
    const gateways = api.cache('Gateway').list()
    const leases = new Map(plan.apply.map((lease: Lease) => [objectKeyText(lease), lease]))
    const [withGateway, stale] = [this.#withGateway(), this.#deps.gateways.stale()]
    const statuses = planClusterStatus({ nowMs, clusters, silent, gateways, withGateway, stale })
    const failures = [
      ...(await writer.apply(leases, signal)),
      ...(await writer.remove(plan.remove, signal)),
      ...(await writer.applyStatuses(statuses, signal)).filter(({ code }) => code !== 'NotFound'),
    ]
    for (const event of clusterEvents(clusters, statuses)) api.report(event)
    if (failures[0] !== undefined) throw failures[0]
  }

  #withGateway(): ReadonlySet<string> | undefined {
    const endpoints = this.#deps.api.cache('Endpoint')
    return endpoints.synced ? new Set(endpoints.list().map(({ spec }) => spec.cluster)) : undefined
  }

  #connected(): ReadonlySet<string> {
    const { api, gateways, clock } = this.#deps
    const now = clock.monotonic()
    const up = new Set<string>()
    for (const { metadata, status } of api.cache('Gateway').list()) {
      if (gateways.liveness(metadata.name) !== 'fresh') continue
      if (now - (this.#changedAt.get(metadata.name) ?? -Infinity) > FRESH_MS) continue
      for (const one of status?.connections ?? []) if (one.state === 'up') up.add(one.cluster)
    }
    return up
  }

  #report(expired: ReadonlySet<string>): void {
    const { api, logger, findings } = this.#deps
    const before = findings.expired ?? new Set<string>()
    const minutes = Math.round(this.#init.leaseMs / 6000) / 10
    for (const id of expired) {
      if (before.has(id)) continue
      const note = `no contact with cluster ${id} for ${minutes} min: its endpoints are removed until contact returns`
      logger.warn('contact with the cluster is lost', { cluster: id, reason: 'ContactLost', minutes })
      api.report({ regarding: { kind: 'Cluster', name: id }, type: 'Warning', reason: 'ContactLost', note })
    }
    for (const id of before) {
      if (expired.has(id) || api.cache('Cluster').get(id) === undefined) continue
      logger.info('contact with the cluster has returned', { cluster: id })
      const note = `contact with cluster ${id} has returned: its endpoints are restored`
      api.report({ regarding: { kind: 'Cluster', name: id }, type: 'Normal', reason: 'ContactRestored', note })
    }
  }
}

/** The state of all lanes as text, without the fields that change with every report. */
function laneText(gateways: HeardGateways): string {
  const lanes = gateways.list().flatMap(({ metadata: { name }, status }) => {
    const liveness = gateways.liveness(name)
    return (status?.connections ?? []).map(({ cluster, lane, remoteLane, state }) =>
      [name, liveness, cluster, lane, remoteLane, state].join(' '),
    )
  })
  return lanes.join('\n')
}
