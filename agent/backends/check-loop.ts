/**
 * Checks the backends of slices that have a check, and writes what it finds into their status. A stopped agent changes
 * nothing: the last state stays until another agent has results of its own.
 */
import { isDeepStrictEqual } from 'node:util'
import type { ClusterApi, ObjectChange } from '../../kubeapi/kubeapi.ts'
import type { EndpointSlice } from '../../model/model.ts'
import { type Clock, type LoopInit, ReconcileLoop, Subscriptions } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { Metrics } from '../../runtime/metrics/metrics.ts'
import { type AgentMetrics, type BackendMetrics, type MirrorWriter, backendMetrics, loopDeps } from '../loop/loop.ts'
import type { CheckBackend } from './check-backend.ts'
import {
  type BackendState,
  type CheckTarget,
  isFirstFailure,
  knownState,
  planHealth,
  planTargets,
  recheckMs,
  stateAfter,
} from './plan-checks.ts'

export interface BackendCheckLoopDeps {
  readonly api: ClusterApi
  readonly writer: MirrorWriter
  readonly check: CheckBackend
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: AgentMetrics
  /** Declares the loop's own metrics, so that they exist only where this loop runs. */
  readonly registry: Metrics
}

/** Enough for 1,000 dead backends with the default times; each check has a socket for at most its timeout. */
export const MAX_CHECKS_AT_ONCE = 512
/** Results that arrive together are written together. */
const WRITE_EVERY_MS = 20

interface RunningTarget {
  readonly target: CheckTarget
  readonly title: string
  state: BackendState | undefined
  cancel: () => void
}

export class BackendCheckLoop {
  readonly #deps: BackendCheckLoopDeps
  readonly #own: BackendMetrics
  readonly #loop: ReconcileLoop
  readonly #subscriptions = new Subscriptions()
  readonly #running = new Map<string, RunningTarget>()
  /** Targets whose time has come while MAX_CHECKS_AT_ONCE checks run. */
  readonly #waiting = new Set<RunningTarget>()
  #checking = 0
  /** The targets of slices, by the object in the cache. */
  readonly #planned = new WeakMap<EndpointSlice, readonly CheckTarget[]>()
  #stop: AbortSignal = AbortSignal.abort()

  constructor(deps: BackendCheckLoopDeps, { loop }: { readonly loop: LoopInit }) {
    this.#deps = deps
    this.#own = backendMetrics(deps.registry)
    const init = { ...loop, minMs: WRITE_EVERY_MS }
    this.#loop = new ReconcileLoop(loopDeps(deps, 'backends'), init, (signal) => this.#round(signal))
    const stop = deps.api.cache('EndpointSlice').onChange((change) => {
      if (change === undefined || this.#isConcerned(change)) this.#loop.poke()
    })
    this.#subscriptions.add(stop)
  }

  async run(signal: AbortSignal): Promise<void> {
    this.#stop = signal
    await this.#loop.run(signal)
    this.#subscriptions.end()
    for (const running of this.#running.values()) running.cancel()
    this.#running.clear()
    this.#waiting.clear()
    this.#own.backends.reset()
  }

  /** Follows the slices, and writes the statuses that differ from what the checks have found. */
  async #round(signal: AbortSignal): Promise<void> {
    const { api, writer } = this.#deps
    const cache = api.cache('EndpointSlice')
    if (!cache.synced) return
    const slices = cache.list()
    this.#follow(slices)
    const changes = slices.flatMap((slice) => {
      if (this.#targets(slice).length === 0) return []
      const health = planHealth(slice, ({ key }) => this.#running.get(key)?.state)
      return health === undefined || isDeepStrictEqual(health, slice.status) ? [] : [{ ...slice, status: health }]
    })
    this.#count()
    const [failure] = await writer.applyStatuses(changes, signal)
    // The user has removed a slice meanwhile: there is nothing to write to.
    if (failure !== undefined && failure.code !== 'NotFound') throw failure
  }

  /** Most slices have no check, and a round looks at all of them. */
  #isConcerned(change: ObjectChange<EndpointSlice>): boolean {
    const before = change.type === 'set' ? change.previous : undefined
    return this.#targets(change.object).length > 0 || (before !== undefined && this.#targets(before).length > 0)
  }

  #targets(slice: EndpointSlice): readonly CheckTarget[] {
    const known = this.#planned.get(slice)
    if (known !== undefined) return known
    const targets = planTargets(slice)
    this.#planned.set(slice, targets)
    return targets
  }

  #follow(slices: readonly EndpointSlice[]): void {
    const present = new Set<string>()
    for (const slice of slices) {
      for (const target of this.#targets(slice)) {
        present.add(target.key)
        if (!this.#running.has(target.key)) this.#start(target, slice)
      }
    }
    for (const [key, running] of this.#running) {
      if (present.has(key)) continue
      running.cancel()
      this.#running.delete(key)
      this.#waiting.delete(running)
    }
  }

  /** The first checks are spread over an interval, so that many backends are not checked at the same moment. */
  #start(target: CheckTarget, slice: EndpointSlice): void {
    const { name, namespace = '' } = slice.metadata
    const state = knownState(slice, target.address)
    const running: RunningTarget = { target, title: `${namespace}/${name}`, state, cancel: () => undefined }
    this.#running.set(target.key, running)
    this.#schedule(running, this.#deps.clock.random() * target.check.intervalMs)
  }

  #schedule(running: RunningTarget, ms: number): void {
    running.cancel = this.#deps.clock.setTimer(Math.max(0, ms), () => {
      this.#waiting.add(running)
      this.#checkNext()
    })
  }

  #checkNext(): void {
    for (const running of this.#waiting) {
      if (this.#checking >= MAX_CHECKS_AT_ONCE || this.#stop.aborted) return
      this.#waiting.delete(running)
      this.#checking += 1
      void this.#check(running).finally(() => {
        this.#checking -= 1
        this.#checkNext()
      })
    }
  }

  async #check(running: RunningTarget): Promise<void> {
    const { check, clock } = this.#deps
    const { target } = running
    const started = clock.monotonic()
    const outcome = await check(target, this.#stop)
    // The slice or its check has changed meanwhile.
    if (this.#stop.aborted || this.#running.get(target.key) !== running) return
    this.#own.checks.inc({ result: outcome === undefined ? 'not_run' : outcome.passed ? 'passed' : 'failed' })
    const before = running.state?.up
    if (outcome !== undefined) {
      running.state = stateAfter(running.state, outcome, target.check, timeText(clock.now()))
    }
    const isFirst = outcome?.passed === false && isFirstFailure(running.state)
    const nextMs = started + target.check.intervalMs - clock.monotonic()
    this.#schedule(running, isFirst ? Math.min(nextMs, recheckMs(target.check)) : nextMs)
    if (outcome === undefined || running.state === undefined) return
    if (running.state.up === before) return
    this.#report(running, before)
    this.#loop.poke()
  }

  #report({ target, title, state }: RunningTarget, before: boolean | undefined): void {
    const { logger } = this.#deps
    const fields = { slice: title, backend: target.address, port: target.port }
    if (state?.up === false) {
      logger.warn('a backend is down', { reason: 'BackendDown', ...fields, why: state.message ?? '' })
    } else if (before === false) {
      logger.info('a backend is up again', fields)
    }
  }

  #count(): void {
    const counts = { up: 0, down: 0, unchecked: 0 }
    for (const { state } of this.#running.values()) {
      counts[state?.up === undefined ? 'unchecked' : state.up ? 'up' : 'down'] += 1
    }
    for (const [state, count] of Object.entries(counts)) this.#own.backends.set(count, { state })
  }
}

function timeText(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+Z$/, 'Z')
}
