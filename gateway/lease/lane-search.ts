/**
 * Finds a lane for a node whose label leaves the number open: the lane that the node already holds, or a free one.
 * plan-lease.ts decides; this file reads the Leases. Until it has found a lane, the node is a standby for all of them.
 */
import { ClusterApiError } from '../../kubeapi/kubeapi.ts'
import { LANE_LEASE_PREFIX, laneCandidates, leavingReason, standbys } from '../../model/lanes/lanes.ts'
import { endpointName } from '../../model/model.ts'
import { DEFAULT_LOOP, ReconcileLoop, unlessAborted } from '../../reconcile/reconcile.ts'
import { messageOf } from '../../runtime/runtime.ts'
import { readMembership, whenCachesSynced } from '../lanes/lanes.ts'
import { LeaseWatch, type LeaseWatchDeps } from './lease-watch.ts'
import { RELOOK_MS, planSearch } from './plan-lease.ts'
import { type Turn, TurnChanges } from './lane-role.ts'
import type { FailedLane } from './failed-lane.ts'

export interface LaneSearchInit {
  readonly node: string
  /** How many lane numbers the gateways of the cluster share, from 0. */
  readonly numbers: number
  readonly failedLane: Pick<FailedLane, 'why'>
}

/** `unknown`: the API has not yet said which nodes hold the lanes. */
export type SearchState =
  | { readonly is: 'unknown'; readonly why: string }
  | { readonly is: 'standing by' }
  | { readonly is: 'found'; readonly watch: LeaseWatch }

export class LaneSearch {
  readonly #deps: LeaseWatchDeps
  readonly #init: LaneSearchInit
  readonly #watches: readonly LeaseWatch[]
  readonly #loop: ReconcileLoop
  readonly #turns: TurnChanges
  #state: SearchState = { is: 'unknown', why: 'not read yet' }
  #trouble = ''

  constructor(deps: LeaseWatchDeps, init: LaneSearchInit) {
    this.#deps = deps
    this.#init = init
    const { node } = init
    this.#watches = Array.from({ length: init.numbers }, (_, lane) => new LeaseWatch(deps, { node, lane }))
    this.#turns = new TurnChanges(() => roleWhile(this.#state))
    const timing = { ...DEFAULT_LOOP, resyncMs: RELOOK_MS, retryMinMs: 500, retryMaxMs: RELOOK_MS, pokedRetryMs: 100 }
    const onError = (error: unknown): void => this.#onError(error)
    this.#loop = new ReconcileLoop({ clock: deps.clock, onError }, timing, (signal) => this.#round(signal))
  }

  get state(): SearchState {
    return this.#state
  }

  whileTurn(): Turn {
    return this.#turns.whileTurn()
  }

  /** Runs until the signal. */
  async run(signal: AbortSignal): Promise<void> {
    const { api } = this.#deps
    if (!(await unlessAborted(whenCachesSynced(api, signal), signal))) return
    const poke = (): void => this.#loop.poke()
    const ends = [
      api.cache('Lease').onChange((change) => {
        if (change?.object.metadata.name.startsWith(LANE_LEASE_PREFIX)) poke()
      }),
      ...(['Node', 'Membership'] as const).map((kind) => api.cache(kind).onChange(poke)),
    ]
    try {
      await this.#loop.run(signal)
    } finally {
      for (const end of ends) end()
    }
  }

  async #round(signal: AbortSignal): Promise<void> {
    if (this.#state.is === 'found') return
    const phase = readMembership(this.#deps.api)?.spec.phase
    if (phase !== 'joined') {
      // As a standby, the node removes what is left on it.
      if (phase === 'leaving') this.#become({ is: 'standing by' })
      else if (this.#state.is === 'unknown') this.#state = { is: 'unknown', why: 'this cluster has not joined yet' }
      return
    }
    // The check of a dead holder takes two seconds; the other lanes do not wait for it.
    await Promise.all(this.#watches.map((watch) => watch.look(() => this.#turn() === 0, signal)))
    this.#trouble = ''
    const found = this.#plan()
    this.#become(found === undefined ? { is: 'standing by' } : { is: 'found', watch: found })
  }

  #plan(): LeaseWatch | undefined {
    const { clock, api } = this.#deps
    const { node, failedLane } = this.#init
    const own = api.cache('Node').get(node)
    const nodes = api.cache('Node').list()
    const lane = planSearch({
      node,
      nowMs: clock.monotonic(),
      turn: this.#turn(),
      away: (own !== undefined && leavingReason(own) !== undefined) || failedLane.why() !== undefined,
      lanes: this.#watches.map((watch) => ({
        lane: watch.lane,
        holder: watch.view?.holder ?? '',
        openSinceMs: watch.openSinceMs,
        isNew: watch.view === undefined,
        offered: watch.open === 'offered',
        pinned: laneCandidates(nodes, watch.lane).filter((name) => name !== watch.view?.holder).length,
        reported: this.#isReported(watch.lane),
      })),
    })
    return this.#watches.find((watch) => watch.lane === lane)
  }

  /** How many nodes come before this one. The holder of a lapsed Lease is no standby and does not count. */
  #turn(): number {
    const holders = new Set(this.#watches.flatMap(({ view }) => view?.holder || []))
    return Math.max(0, standbys(this.#deps.api.cache('Node').list(), holders).indexOf(this.#init.node))
  }

  #isReported(lane: number): boolean {
    const { api } = this.#deps
    const clusterId = readMembership(api)?.spec.clusterId
    if (clusterId === undefined) return false
    return api.cache('Endpoint').get(endpointName(clusterId, this.#init.node, lane)) !== undefined
  }

  #become(state: SearchState): void {
    const before = this.#state
    this.#state = state
    if (JSON.stringify(roleWhile(before)) === JSON.stringify(roleWhile(state))) return
    const isMember = readMembership(this.#deps.api)?.spec.phase === 'joined'
    if (state.is === 'standing by' && isMember)
      this.#deps.logger.info('every lane has a gateway; this node is on standby')
    this.#turns.changed()
  }

  #onError(error: unknown): void {
    if (error instanceof ClusterApiError && error.code === 'Conflict') return
    for (const watch of this.#watches) watch.forget()
    const why = messageOf(error)
    if (why !== this.#trouble) {
      this.#deps.logger.warn('no answer about the leases of the lanes', { reason: 'LeaseNotRenewed', why })
    }
    this.#trouble = why
    if (this.#state.is !== 'unknown') return
    // The kernel may still carry the lane that this node last reported, so the node serves that lane again.
    const served = this.#watches.find(({ lane }) => this.#isReported(lane))
    this.#become(served === undefined ? { is: 'unknown', why } : { is: 'found', watch: served })
  }
}

function roleWhile({ is }: SearchState): 'serve' | 'stand by' | 'wait' {
  if (is === 'found') return 'serve'
  return is === 'unknown' ? 'wait' : 'stand by'
}
