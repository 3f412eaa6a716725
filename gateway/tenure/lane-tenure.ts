/**
 * Holds the Lease of one lane for this node, or waits for it. What to do is plan-tenure.ts's; here it is read and done.
 *
 * The API may be away: a node that serves goes on serving, and one that stands by takes nothing, since a holder that
 * cannot renew is as silent as a dead one. Only what has not changed while it could be read all the time has lapsed,
 * and then the holder is asked after (lapsed-holder.ts).
 */
import type { LeaseStore, StoredLease } from '../../kubeapi/lease-store.ts'
import { laneCandidates, leavingReason } from '../../model/lanes/gateway-node.ts'
import { laneLeaseName } from '../../model/lanes/lane-lease.ts'
import { MEMBERSHIP_NAME, endpointName } from '../../model/objects.ts'
import { DEFAULT_LOOP, ReconcileLoop } from '../../reconcile/loop.ts'
import { laneClaims } from '../../model/lanes/lane-servers.ts'
import { ClusterApiError } from '../../kubeapi/cluster-api.ts'
import { linksUp } from './handing-over.ts'
import { leaseOf, viewOf } from './lane-lease-text.ts'
import { LapsedHolder, type LapsedHolderDeps } from './lapsed-holder.ts'
import { LEASE_MS, type LeaseView, type TenureStep, planTenure, whyOpen } from './plan-tenure.ts'
import { readMembership, whenCachesSynced } from '../read-world.ts'
import { Relief } from './relief.ts'
import { type Tenure, roleIn, tenureText } from './tenure.ts'
import { unlessAborted } from '../../reconcile/until-aborted.ts'
import { messageOf } from '../../runtime/thrown.ts'

export type TenureDeps = LapsedHolderDeps & { readonly leases: LeaseStore }

const LOOK_MS = 2000
/** An offer that no node took for so long is reported. */
const UNTAKEN_MS = 5000
const RELEASE_TRIES = 3

export class LaneTenure {
  readonly node: string
  readonly lane: number
  readonly #deps: TenureDeps
  readonly #loop: ReconcileLoop
  readonly #holder: LapsedHolder
  readonly #listeners = new Set<() => void>()
  #tenure: Tenure = { is: 'unknown', why: 'not read yet' }
  #seen: { readonly lease: StoredLease | undefined; readonly view: LeaseView | undefined } | undefined
  #lost = false
  #openSinceMs: number | undefined
  #writtenMs: number | undefined
  readonly #relief: Relief
  /** Why this node gives the lane away for good. */
  #retired: string | undefined
  #trouble = ''

  constructor(deps: TenureDeps, init: { readonly node: string; readonly lane: number }) {
    this.#deps = deps
    this.node = init.node
    this.lane = init.lane
    this.#holder = new LapsedHolder(deps, init)
    this.#relief = new Relief(deps, { ...init, onDue: () => this.#loop.poke() })
    const pace = { ...DEFAULT_LOOP, resyncMs: LOOK_MS, retryMinMs: 500, retryMaxMs: LOOK_MS, pokedRetryMs: 100 }
    const onError = (error: unknown): void => this.#onError(error)
    this.#loop = new ReconcileLoop({ clock: deps.clock, onError }, pace, (signal) => this.#round(signal))
  }

  get state(): Tenure {
    return this.#tenure
  }

  /** Links, by healthKey(), that the node which took the lane from this one has up; empty while nobody has. */
  handedOver(): ReadonlySet<string> {
    if (this.#tenure.is !== 'handing over') return new Set()
    return linksUp(this.#deps.api.cache('Gateway').get(this.#tenure.holder), this.lane)
  }

  /** Other nodes that may take the lane. */
  others(): readonly string[] {
    return laneCandidates(this.#deps.api.cache('Node').list(), this.lane).filter((name) => name !== this.node)
  }

  /** Calls back after each change of the state, and of what handedOver() gives. Gives the function that ends it. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** What is this node's to do now, and a signal for when that is something else. */
  whileTurn(): {
    readonly role: 'serve' | 'stand by' | 'wait'
    readonly signal: AbortSignal
    readonly close: () => void
  } {
    const role = roleIn(this.#tenure)
    const over = new AbortController()
    const close = this.onChange(() => {
      if (roleIn(this.#tenure) !== role) over.abort()
    })
    return { role, signal: over.signal, close }
  }

  /** From now on this node offers the lane if it holds it, and takes it no more. */
  retire(why: string): void {
    this.#retired ??= why
    this.#loop.poke()
  }

  /** Until the signal. */
  async run(signal: AbortSignal): Promise<void> {
    const { api } = this.#deps
    // What this node has published, and whether the cluster is a member, decides what it does at first.
    if (!(await unlessAborted(whenCachesSynced(api, signal), signal))) return
    const poke = (): void => this.#loop.poke()
    const name = laneLeaseName(this.lane)
    const ends = [
      api.cache('Lease').onChange((change) => {
        if (change?.object.metadata.name === name) poke()
      }),
      api.cache('Gateway').onChange(() => {
        if (this.#tenure.is === 'handing over') poke()
      }),
      ...(['Node', 'Endpoint', 'Membership'] as const).map((kind) => api.cache(kind).onChange(poke)),
    ]
    try {
      await this.#loop.run(signal)
    } finally {
      for (const end of ends) end()
    }
  }

  /** Gives the Lease back, so that the next one need not wait until it lapses. Best effort. */
  async release(signal: AbortSignal): Promise<void> {
    const { leases, logger } = this.#deps
    try {
      for (let tries = 1; ; tries += 1) {
        const lease = await leases.read(laneLeaseName(this.lane), signal)
        if (lease === undefined || viewOf(lease, 0).holder !== this.node) return
        try {
          await leases.write(leaseOf(this.#terms(lease, ''), lease), signal)
          return
        } catch (error) {
          // This node's own offer may be on its way.
          if (!isConflict(error) || tries === RELEASE_TRIES) throw error
        }
      }
    } catch (error) {
      logger.info('the lane was not given back; it lapses', { lane: this.lane, why: messageOf(error) })
    }
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { clock, leases } = this.#deps
    if (!this.#isMember() && this.#tenure.is === 'unknown') {
      this.#tenure = { is: 'unknown', why: 'this cluster has not joined yet' }
      if (readMembership(this.#deps.api) === undefined) return
    }
    const lease = await leases.read(laneLeaseName(this.lane), signal)
    this.#trouble = ''
    this.#notice(lease)
    const view = this.#seen?.view
    this.#lost = await this.#holder.isLost(view, this.#turn(view) === 0)
    this.#reckonOpen()
    const step = this.#plan()
    if (step.write !== undefined && this.#isMember()) {
      const away = this.#away()
      this.#notice(await leases.write(leaseOf({ ...this.#terms(lease, this.node), offer: away }, lease), signal))
      this.#writtenMs = clock.monotonic()
    }
    this.#become(step)
    this.#reportUntaken()
  }

  #plan(): TenureStep {
    const { clock } = this.#deps
    const view = this.#seen?.view
    const nowMs = clock.monotonic()
    return planTenure({
      node: this.node,
      nowMs,
      lease: view,
      lost: this.#lost,
      openSinceMs: this.#openSinceMs,
      away: this.#away(),
      never: this.#retired !== undefined || !this.#isMember(),
      turn: this.#turn(view),
      reported: this.#isReported(),
      relieved: this.#relief.isDue(view?.holder),
      writtenMs: this.#writtenMs,
    })
  }

  /** Where there was never a Lease, but gateways: the other clusters call the newest one. */
  #turn(view: LeaseView | undefined): number {
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

  #notice(lease: StoredLease | undefined): void {
    const nowMs = this.#deps.clock.monotonic()
    const before = this.#seen
    const same = before !== undefined && JSON.stringify(before.lease?.spec) === JSON.stringify(lease?.spec)
    const changedMs = same ? (before.view?.changedMs ?? nowMs) : nowMs
    const view = lease === undefined ? undefined : viewOf(lease, changedMs)
    this.#seen = { lease, view }
    this.#reckonOpen()
    if (view !== undefined && view.holder !== this.node) this.#writtenMs = undefined
  }

  #reckonOpen(): void {
    const nowMs = this.#deps.clock.monotonic()
    const isOpen = whyOpen(this.#seen?.view, nowMs, this.#lost) !== undefined
    this.#openSinceMs = isOpen ? (this.#openSinceMs ?? nowMs) : undefined
  }

  #become(step: TenureStep): void {
    const holder = this.#seen?.view?.holder ?? ''
    const mine = holder === this.node
    const next: Tenure =
      step.role === 'stand by'
        ? { is: 'standing by', holder }
        : mine || holder === ''
          ? { is: 'serving' }
          : { is: 'handing over', holder }
    const changed = JSON.stringify(next) !== JSON.stringify(this.#tenure)
    if (changed) this.#deps.logger.info(`lane ${this.lane}: ${tenureText(next)}`)
    this.#tenure = next
    if (changed || next.is === 'handing over') for (const listener of this.#listeners) listener()
  }

  #away(): string | undefined {
    const node = this.#deps.api.cache('Node').get(this.node)
    return this.#retired ?? (node === undefined ? undefined : leavingReason(node))
  }

  /** Once the cluster leaves, the Lease goes with the Membership and is not made anew. */
  #isMember(): boolean {
    return readMembership(this.#deps.api)?.spec.phase === 'joined'
  }

  #isReported(): boolean {
    const { api } = this.#deps
    const clusterId = readMembership(api)?.spec.clusterId
    if (clusterId === undefined) return false
    return api.cache('Endpoint').get(endpointName(clusterId, this.node, this.lane)) !== undefined
  }

  #terms(lease: StoredLease | undefined, holder: string) {
    const { clock, api } = this.#deps
    const membership = api.cache('Membership').get(MEMBERSHIP_NAME)
    return { lane: this.lane, holder, nowMs: clock.now(), durationMs: LEASE_MS, membership, before: lease?.spec }
  }

  #reportUntaken(): void {
    const { clock, api, logger } = this.#deps
    const away = this.#away()
    const openMs = clock.monotonic() - (this.#openSinceMs ?? Infinity)
    if (away === undefined || this.#tenure.is !== 'serving' || openMs < UNTAKEN_MS) return
    const note =
      `${away}, and no other node takes lane ${this.lane}: when this node goes, the lane does. ` +
      `Label another node sealane.io/gateway=${this.lane}`
    if (this.#trouble !== note) logger.warn(note, { reason: 'LaneNotHandedOver' })
    this.#trouble = note
    api.report({ regarding: { kind: 'Node', name: this.node }, type: 'Warning', reason: 'LaneNotHandedOver', note })
  }

  #onError(error: unknown): void {
    if (isConflict(error)) return
    // What was seen before says nothing about now: a silent holder may have been unable to renew as well.
    this.#seen = undefined
    this.#openSinceMs = undefined
    const why = messageOf(error)
    if (why !== this.#trouble) {
      const { lane } = this
      this.#deps.logger.warn('the lease of the lane: no answer', { reason: 'LeaseNotRenewed', lane, why })
    }
    this.#trouble = why
    if (this.#tenure.is !== 'unknown') return
    const isForbidden = error instanceof ClusterApiError && error.code === 'Forbidden'
    // A release without Leases gave no rights to them; then the label alone says who serves.
    const next: Tenure = isForbidden || this.#isReported() ? { is: 'serving' } : { is: 'unknown', why }
    this.#tenure = next
    for (const listener of this.#listeners) listener()
  }
}

function isConflict(error: unknown): boolean {
  return error instanceof ClusterApiError && error.code === 'Conflict'
}
