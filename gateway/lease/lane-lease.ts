/**
 * Holds the Lease of one lane for this node, or waits for it. plan-lease.ts decides; this file reads and writes.
 *
 * The API may be unavailable. A serving node then keeps serving, and a standby takes nothing, because a holder that
 * cannot renew looks like a dead one. A Lease has lapsed only if it did not change while every read succeeded; then the
 * holder is checked (lease-watch.ts).
 */
import { type ClusterApi, ClusterApiError } from '../../kubeapi/kubeapi.ts'
import {
  ANY_LANE_VALUE,
  LABEL_GATEWAY,
  LANE_LEASE_MS,
  laneCandidates,
  laneClaims,
  laneHolders,
  laneLeaseName,
  leavingReason,
  standbys,
} from '../../model/lanes/lanes.ts'
import { type Gateway, MEMBERSHIP_NAME, endpointName } from '../../model/model.ts'
import { DEFAULT_LOOP, ReconcileLoop, unlessAborted } from '../../reconcile/reconcile.ts'
import { messageOf } from '../../runtime/runtime.ts'
import { readMembership, whenCachesSynced } from '../lanes/lanes.ts'
import type { GatewayDeps } from '../world/world.ts'
import type { FailedLane } from './failed-lane.ts'
import { type LeaseState, type Turn, TurnChanges, roleIn, leaseStateText } from './lane-role.ts'
import { LeaseWatch, type LeaseWatchDeps } from './lease-watch.ts'
import { type LeaseView, RELOOK_MS, type LeaseStep, isRelieved, linksUp, planLease } from './plan-lease.ts'

interface ReliefInit {
  readonly node: string
  readonly lane: number
  /** Called when isDue() may give true and no other event triggers a check. */
  readonly onDue: () => void
}

/**
 * Routes of the other nodes change after the new holder reports. Until then, this node forwards to it what still
 * arrives.
 */
const LINGER_MS = 2000

/** Decides when a node that serves beside the holder of its lane is no longer needed. */
class Relief {
  readonly #deps: Pick<GatewayDeps, 'clock' | 'api'>
  readonly #init: ReliefInit
  #relievedMs: number | undefined
  #handing: { readonly holder: string; readonly sinceMs: number; readonly needed: Set<string> } | undefined

  constructor(deps: Pick<GatewayDeps, 'clock' | 'api'>, init: ReliefInit) {
    this.#deps = deps
    this.#init = init
  }

  /** True some time after the holder has every link that this node had. Call it in every round. */
  isDue(holder: string | undefined): boolean {
    const { clock, api } = this.#deps
    const { node, lane, onDue } = this.#init
    if (holder === undefined || holder === '' || holder === node) {
      this.#handing = undefined
      this.#relievedMs = undefined
      return false
    }
    const nowMs = clock.monotonic()
    if (this.#handing?.holder !== holder) this.#handing = { holder, sinceMs: nowMs, needed: new Set() }
    const { needed, sinceMs } = this.#handing
    const gateways = api.cache('Gateway')
    const own = gateways.get(node)
    for (const other of linksUp(own, lane)) needed.add(other)
    const relieved = isRelieved({ lane, holder: gateways.get(holder), own, needed, elapsedMs: nowMs - sinceMs })
    if (relieved && this.#relievedMs === undefined) clock.setTimer(LINGER_MS, onDue)
    this.#relievedMs = relieved ? (this.#relievedMs ?? nowMs) : undefined
    return this.#relievedMs !== undefined && nowMs - this.#relievedMs >= LINGER_MS
  }
}

export interface LaneLeaseInit {
  readonly node: string
  readonly lane: number
  /** The Lease as this node has seen it, if the node chose the lane itself. It then need not wait for its turn. */
  readonly chosen?: LeaseWatch
  /** How many lane numbers the gateways of the cluster share. Nodes whose label names no number search below it. */
  readonly numbers: number
  readonly failedLane: FailedLane
  /** Duration of its Leases. Default: LANE_LEASE_MS. */
  readonly leaseMs?: number
}

/** An offer is reported if no node takes it for this long. */
const UNTAKEN_MS = 5000
/**
 * Time that a leaving gateway needs to publish this, the gateways of all clusters to avoid it, and their nodes to
 * change their routes.
 */
export const DRAIN_LEAD_MS = 2000

export class LaneLease {
  readonly node: string
  readonly lane: number
  readonly #deps: LeaseWatchDeps
  readonly #loop: ReconcileLoop
  readonly #watch: LeaseWatch
  readonly #isChosen: boolean
  readonly #turns = new TurnChanges(() => roleIn(this.#laneLease))
  #laneLease: LeaseState = { is: 'unknown', why: 'not read yet' }
  readonly #relief: Relief
  readonly #failedLane: FailedLane
  readonly #numbers: number
  readonly #leaseMs: number
  #awaySinceMs: number | undefined
  /** Why this node gives the lane away permanently. */
  #retired: string | undefined
  #trouble = ''

  constructor(deps: LeaseWatchDeps, init: LaneLeaseInit) {
    this.#deps = deps
    this.node = init.node
    this.lane = init.lane
    this.#watch = init.chosen ?? new LeaseWatch(deps, init)
    this.#isChosen = init.chosen !== undefined
    this.#failedLane = init.failedLane
    this.#numbers = init.numbers
    this.#leaseMs = init.leaseMs ?? LANE_LEASE_MS
    this.#relief = new Relief(deps, { ...init, onDue: () => this.#loop.poke() })
    const timing = {
      ...DEFAULT_LOOP,
      resyncMs: Math.min(RELOOK_MS, (RELOOK_MS * this.#leaseMs) / LANE_LEASE_MS),
      retryMinMs: 500,
      retryMaxMs: RELOOK_MS,
      pokedRetryMs: 100,
    }
    const onError = (error: unknown): void => this.#onError(error)
    this.#loop = new ReconcileLoop({ clock: deps.clock, onError }, timing, (signal) => this.#round(signal))
  }

  get state(): LeaseState {
    return this.#laneLease
  }

  /** Links, by healthKey(), that the node which took the lane has up. Empty unless this node is handing over. */
  handedOver(): ReadonlySet<string> {
    if (this.#laneLease.is !== 'handing over') return new Set()
    return linksUp(this.#deps.api.cache('Gateway').get(this.#laneLease.holder), this.lane)
  }

  tried(failure: string | undefined): void {
    this.#failedLane.tried(failure)
  }

  leaving(): boolean {
    return this.#away() !== undefined
  }

  /** Other nodes that may take the lane. */
  others(): readonly string[] {
    const { api } = this.#deps
    const nodes = api.cache('Node').list()
    const searching = this.lane < this.#numbers ? standbys(nodes, laneHolders(api.cache('Lease').list())) : []
    return [...laneCandidates(nodes, this.lane), ...searching].filter((name) => name !== this.node)
  }

  /**
   * Calls back after each change of the state, and of the result of handedOver(). Returns the function that ends this.
   */
  onChange(listener: () => void): () => void {
    return this.#turns.onChange(listener)
  }

  whileTurn(): Turn {
    return this.#turns.whileTurn()
  }

  /** From now on, this node offers the lane if it holds it, and no longer takes it. */
  retire(why: string): void {
    this.#retired ??= why
    this.#turns.changed()
    this.#loop.poke()
  }

  /** Runs until the signal. */
  async run(signal: AbortSignal): Promise<void> {
    const { api } = this.#deps
    // The first decision needs the Endpoints that this node has published and the Membership.
    if (!(await unlessAborted(whenCachesSynced(api, signal), signal))) return
    const poke = (): void => this.#loop.poke()
    const name = laneLeaseName(this.lane)
    const ends = [
      api.cache('Lease').onChange((change) => {
        if (change?.object.metadata.name === name) poke()
      }),
      api.cache('Gateway').onChange(() => {
        if (this.#laneLease.is === 'handing over') poke()
      }),
      ...(['Node', 'Endpoint', 'Membership'] as const).map((kind) => api.cache(kind).onChange(poke)),
    ]
    try {
      await this.#loop.run(signal)
    } finally {
      for (const end of ends) end()
    }
  }

  /** Releases the Lease, so that the next node need not wait until it lapses. Best effort. */
  async release(signal: AbortSignal): Promise<void> {
    try {
      await this.#watch.giveUp(this.#terms(), signal)
    } catch (error) {
      this.#deps.logger.info('cannot release the lease of the lane; it expires by itself', {
        lane: this.lane,
        why: messageOf(error),
      })
    }
  }

  async #round(signal: AbortSignal): Promise<void> {
    if (!this.#isMember() && this.#laneLease.is === 'unknown') {
      this.#laneLease = { is: 'unknown', why: 'this cluster has not joined yet' }
      if (readMembership(this.#deps.api) === undefined) return
    }
    await this.#watch.look((view) => this.#turn(view) === 0, signal)
    this.#trouble = ''
    const step = this.#plan()
    const before = this.#watch.view
    if (step.write !== undefined && this.#isMember()) {
      await this.#watch.write(step.write, { ...this.#terms(), offer: this.#toOffer() }, signal)
      if (step.write === 'take') reportTaken(this.#deps.api, this, before)
    }
    this.#become(step)
    this.#reportFailedLane()
    this.#reportUntaken()
  }

  #plan(): LeaseStep {
    const { clock } = this.#deps
    const { view, lost, openSinceMs, writtenMs } = this.#watch
    const nowMs = clock.monotonic()
    return planLease({
      node: this.node,
      nowMs,
      lease: view,
      lost,
      openSinceMs,
      away: this.#toOffer(),
      never: this.#retired !== undefined || !this.#isMember(),
      turn: this.#turn(view),
      reported: this.#isReported(),
      relieved: this.#relief.isDue(view?.holder),
      writtenMs,
      leaseMs: this.#leaseMs,
    })
  }

  /**
   * How many nodes come before this one. If there is no Lease but gateways have published Endpoints, the node of the
   * newest one comes first, because the other clusters call it.
   */
  #turn(view: LeaseView | undefined): number {
    if (this.#isChosen) return 0
    const { api } = this.#deps
    const place = laneCandidates(api.cache('Node').list(), this.lane)
      .filter((name) => name !== view?.holder)
      .indexOf(this.node)
    const own = api
      .cache('Endpoint')
      .list()
      .filter(({ spec }) => spec.lane === this.lane && this.#isOwn(spec.cluster))
    const [last] = [...laneClaims(own).values()][0] ?? []
    if (view !== undefined || last === undefined) return Math.max(0, place)
    return last.spec.node === this.node ? 0 : 1 + Math.max(0, place)
  }

  #isOwn(clusterId: string): boolean {
    return readMembership(this.#deps.api)?.spec.clusterId === clusterId
  }

  #become(step: LeaseStep): void {
    const holder = this.#watch.view?.holder ?? ''
    const mine = holder === this.node
    const next: LeaseState =
      step.role === 'stand by'
        ? { is: 'standing by', holder }
        : mine || holder === ''
          ? { is: 'serving' }
          : { is: 'handing over', holder }
    const changed = JSON.stringify(next) !== JSON.stringify(this.#laneLease)
    if (changed) this.#deps.logger.info(`lane ${this.lane}: ${leaseStateText(next)}`)
    if (changed && next.is === 'handing over') reportHandedOver(this.#deps.api, this, holder)
    this.#laneLease = next
    if (changed || next.is === 'handing over') this.#turns.changed()
  }

  #away(): string | undefined {
    const node = this.#deps.api.cache('Node').get(this.node)
    const leaving = this.#retired ?? (node === undefined ? undefined : leavingReason(node))
    const holdsAlone = this.#watch.view?.holder === this.node && this.others().length === 0
    // No other node can do better.
    return leaving ?? (holdsAlone ? undefined : this.#failedLane.why())
  }

  /**
   * Why another node should have the lane now. If other gateways carry traffic beside this one, it is offered only
   * after traffic has moved to them: what the far ends send over a lane during its handover is lost for a moment.
   */
  #toOffer(): string | undefined {
    const away = this.#away()
    const nowMs = this.#deps.clock.monotonic()
    this.#awaySinceMs = away === undefined ? undefined : (this.#awaySinceMs ?? nowMs)
    const isLed = this.#watch.view?.holder === this.node && this.othersServe()
    return isLed && nowMs - (this.#awaySinceMs ?? nowMs) < DRAIN_LEAD_MS ? undefined : away
  }

  /** False once the cluster leaves: the Lease is deleted with the Membership and must not be created again. */
  #isMember(): boolean {
    return readMembership(this.#deps.api)?.spec.phase === 'joined'
  }

  #isReported(): boolean {
    const { api } = this.#deps
    const clusterId = readMembership(api)?.spec.clusterId
    if (clusterId === undefined) return false
    return api.cache('Endpoint').get(endpointName(clusterId, this.node, this.lane)) !== undefined
  }

  #terms() {
    return { durationMs: this.#leaseMs, membership: this.#deps.api.cache('Membership').get(MEMBERSHIP_NAME) }
  }

  #reportFailedLane(): void {
    const why = this.#failedLane.report()
    if (why === undefined) return
    const { api, logger } = this.#deps
    logger.warn('cannot set up the lane on this node', { reason: 'LaneNotMade', lane: this.lane, why })
    const next = this.others().length === 0 ? 'no other node is on standby' : 'a standby node takes it over'
    const note = `lane ${this.lane}: ${why}; ${next}`
    api.report({ regarding: { kind: 'Node', name: this.node }, type: 'Warning', reason: 'LaneNotMade', note })
  }

  #reportUntaken(): void {
    const { clock, api, logger } = this.#deps
    const away = this.#away()
    const openMs = clock.monotonic() - (this.#watch.openSinceMs ?? Infinity)
    if (away === undefined || this.#laneLease.is !== 'serving' || openMs < UNTAKEN_MS || this.othersServe()) return
    // The failed lane was already reported, and it carries no traffic to hand over.
    if (this.#failedLane.why() !== undefined) return
    const note =
      `${away}, and no other node takes lane ${this.lane}: when this node stops, the lane is down. ` +
      `Label another node ${LABEL_GATEWAY}=${ANY_LANE_VALUE}`
    if (this.#trouble !== note) logger.warn(note, { reason: 'LaneNotHandedOver' })
    this.#trouble = note
    api.report({ regarding: { kind: 'Node', name: this.node }, type: 'Warning', reason: 'LaneNotHandedOver', note })
  }

  /** True if another gateway of this cluster serves and is not about to leave, so that it can carry the traffic. */
  othersServe(): boolean {
    const { api } = this.#deps
    return [...laneHolders(api.cache('Lease').list())].some((name) => {
      const node = api.cache('Node').get(name)
      return name !== this.node && node !== undefined && leavingReason(node) === undefined
    })
  }

  /**
   * Returns a function that tells whether other gateways of this cluster reach every cluster that this one reaches now.
   * They may do so together: nodes choose gateways for each cluster, and a gateway without a link to it hands on to one
   * that has a link, which ends there. It counts only a status written after this call: an older one may come from a
   * process that has ended.
   */
  othersCarry(): () => boolean {
    const cache = this.#deps.api.cache('Gateway')
    const before = new Map(cache.list().map((one) => [one.metadata.name, one.status?.heartbeatTime]))
    const own = reachedBy(cache.list().filter(({ metadata }) => metadata.name === this.node))
    return () => {
      const said = cache.list().filter(({ metadata: { name }, status }) => {
        const node = this.#deps.api.cache('Node').get(name)
        const stays = name !== this.node && node !== undefined && leavingReason(node) === undefined
        return stays && status !== undefined && status.heartbeatTime !== before.get(name)
      })
      const reached = reachedBy(said)
      return said.length > 0 && [...own].every((cluster) => reached.has(cluster))
    }
  }

  #onError(error: unknown): void {
    if (isConflict(error)) return
    this.#watch.forget()
    const why = messageOf(error)
    if (why !== this.#trouble) {
      const { lane } = this
      this.#deps.logger.warn('no answer about the lease of the lane', { reason: 'LeaseNotRenewed', lane, why })
    }
    this.#trouble = why
    if (this.#laneLease.is !== 'unknown') return
    const isForbidden = error instanceof ClusterApiError && error.code === 'Forbidden'
    // A release without Leases granted no rights to them. The label alone then decides which node serves.
    const next: LeaseState = isForbidden || this.#isReported() ? { is: 'serving' } : { is: 'unknown', why }
    this.#laneLease = next
    this.#turns.changed()
  }
}

function isConflict(error: unknown): boolean {
  return error instanceof ClusterApiError && error.code === 'Conflict'
}

/** Clusters to which at least one of these gateways reports a link that is up. */
function reachedBy(gateways: readonly Gateway[]): ReadonlySet<string> {
  const connections = gateways.flatMap(({ status }) => status?.connections ?? [])
  return new Set(connections.filter(({ state }) => state === 'up').map(({ cluster }) => cluster))
}

// Events on the Nodes when a lane changes its holder.

interface LaneOfNode {
  readonly node: string
  readonly lane: number
}

/** This node has taken the lane. `before` is the Lease before that. */
function reportTaken(api: ClusterApi, { node, lane }: LaneOfNode, before: LeaseView | undefined): void {
  const holder = before?.holder ?? ''
  const isGiven = before?.offer !== undefined
  const why =
    holder === ''
      ? 'the lane had no gateway'
      : isGiven
        ? `${holder} hands it over: ${before.offer}`
        : `${holder} is no longer available`
  const note = `this node is now the gateway of lane ${lane}; ${why}`
  api.report({ regarding: { kind: 'Node', name: node }, type: 'Normal', reason: 'LaneTaken', note })
  if (holder === '' || isGiven) return
  const lost = `this node has lost lane ${lane}; ${node} takes it over`
  api.report({ regarding: { kind: 'Node', name: holder }, type: 'Warning', reason: 'LaneHolderLost', note: lost })
}

/** Another node has the lane, and this one serves until that node carries the traffic. */
function reportHandedOver(api: ClusterApi, { node, lane }: LaneOfNode, holder: string): void {
  const note = `${holder} now has lane ${lane}; this node carries the traffic until ${holder} does`
  api.report({ regarding: { kind: 'Node', name: node }, type: 'Normal', reason: 'LaneHandedOver', note })
}
