/**
 * Elects one leader among several processes with a Lease (coordination.k8s.io/v1), as client-go does.
 *
 *   following ─► (free, or not renewed for its duration) ─► leading ─► following …
 *        ▲                                                     │
 *        └──────── not renewed within renewWithinMs ◄──────────┘      stop: the Lease is released
 *
 * Two processes never lead at once if their clocks run at the same speed: a leader gives up renewWithinMs after it
 * *began* its last successful renewal, and a follower takes over only when it has *seen* no renewal for the whole
 * duration. Since a leader ends that cannot renew, a follower may count the time in which it could not read.
 */
import { type Clock, abortReason, withDeadline } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { Gauge } from '../../runtime/metrics/metrics.ts'
import { type ElectionTiming, LANE_LEASE_MS, electionTiming } from '../../model/lanes/lanes.ts'
import { messageOf } from '../../runtime/runtime.ts'
import type { LeaseStore } from '../kubeapi.ts'
import { LeaseHold } from './lease-hold.ts'
import { candidatePauseMs, timeToRenewMs, whyVacant } from './plan-hold.ts'

/** Default: electionTiming() of LANE_LEASE_MS. A follower takes over from a leader that died within 12 s. */
export interface ElectionInit extends Partial<ElectionTiming> {
  /** Name of the Lease in our namespace. */
  readonly name: string
  /** Must differ from that of every other candidate: the pod's name. */
  readonly identity: string
  /**
   * Whether this process replaces a holder that is known to have ended. Its first attempt of all does not wait for such
   * a holder.
   */
  readonly replaces?: (holder: string) => boolean
}

export interface ElectionDeps {
  readonly clock: Clock
  readonly logger: Logger
  /** 1 while this process leads. */
  readonly leader: Pick<Gauge, 'set'>
  readonly leases: LeaseStore
}

/** Time limit for the release when stopping. */
const RELEASE_MS = 3000
/** Others that follow the conventions of client-go do not wait for the former holder. */
const RELEASED_MS = 1000

/** `renewedMs`: when the last successful renewal began. Monotonic milliseconds. */
type ElectionState =
  { readonly is: 'following' } | { readonly is: 'leading'; readonly renewedMs: number } | { readonly is: 'lost' }

export class Election {
  readonly #deps: ElectionDeps
  readonly #init: Required<ElectionInit>
  readonly #hold: LeaseHold
  #isFirst = true
  #state: ElectionState = { is: 'following' }
  #trouble: string | undefined

  constructor(deps: ElectionDeps, init: ElectionInit) {
    this.#deps = deps
    this.#init = { ...electionTiming(LANE_LEASE_MS), replaces: nobody, ...init }
    const { name, identity, durationMs } = this.#init
    this.#hold = new LeaseHold(deps, { name, identity, unstatedMs: durationMs })
    this.#deps.leader.set(0, { lease: name })
  }

  /**
   * Calls `lead` each time this process becomes leader, with a signal that aborts when it loses the lead. The next
   * candidacy waits until `lead` has ended. Resolves when `signal` is aborted and the Lease is released, or when `lead`
   * ends by itself. Rejects with what `lead` throws while it is leader.
   */
  async run(lead: (signal: AbortSignal) => Promise<void>, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const renewedMs = await this.#acquire(signal)
      if (renewedMs === undefined) return
      this.#become({ is: 'leading', renewedMs })
      if (!(await this.#term(lead, signal))) return
    }
  }

  /** Returns the monotonic time at which the successful attempt began; undefined if `signal` was aborted first. */
  async #acquire(signal: AbortSignal): Promise<number | undefined> {
    const { clock } = this.#deps
    while (!signal.aborted) {
      const began = clock.monotonic()
      if (await this.#attempt(() => this.#tryToTake(signal), signal)) return began
      await clock.sleep(candidatePauseMs(this.#init.retryMs, clock.random()), signal).catch(() => undefined)
    }
    return undefined
  }

  /** Leads once. Returns true if it may become leader again. */
  async #term(lead: (signal: AbortSignal) => Promise<void>, signal: AbortSignal): Promise<boolean> {
    const office = new AbortController()
    const over = new AbortController()
    const renewing = this.#renewUntilLost(AbortSignal.any([signal, over.signal])).then((lost) => {
      this.#become({ is: lost ? 'lost' : 'following' })
      office.abort(lost ? new Error('this process has lost its leadership') : abortReason(signal))
      return lost
    })
    try {
      await lead(office.signal)
      return office.signal.aborted && !signal.aborted
    } catch (error) {
      if (!office.signal.aborted) throw error
      return !signal.aborted
    } finally {
      over.abort(new Error('the leadership has ended'))
      // Released only after `lead` has ended, so that no other process leads at the same time.
      if (!(await renewing)) await this.#release()
    }
  }

  /** Returns true if the Lease was lost, false if the signal was aborted. */
  async #renewUntilLost(signal: AbortSignal): Promise<boolean> {
    const { clock } = this.#deps
    const { renewWithinMs, retryMs, durationMs } = this.#init
    while (!signal.aborted && this.#state.is === 'leading') {
      const left = timeToRenewMs(this.#state.renewedMs, clock.monotonic(), renewWithinMs)
      if (left <= 0) return true
      const limit = new AbortController()
      const cancel = clock.setTimer(left, () => limit.abort(new Error('the lease was not renewed in time')))
      try {
        const limited = AbortSignal.any([signal, limit.signal])
        await clock.sleep(Math.min(retryMs, left), limited)
        const renewedMs = clock.monotonic()
        const isRenewed = await this.#attempt(() => this.#hold.renew({ durationMs }, limited), limited)
        if (isRenewed) this.#become({ is: 'leading', renewedMs })
        else if (await this.#isAnothers(limited)) return true
      } catch {
        // Either the time is up or the signal is aborted; the loop decides which.
      } finally {
        cancel()
      }
    }
    return false
  }

  async #tryToTake(signal: AbortSignal): Promise<void> {
    const { durationMs, replaces } = this.#init
    const state = await this.#hold.read(signal)
    const isFirst = this.#isFirst
    this.#isFirst = false
    if (state.is === 'others' && whyVacant(state, this.#deps.clock.monotonic()) === undefined) {
      if (!isFirst || !replaces(state.holder)) throw new HeldError(state.holder)
    }
    await this.#hold.take({ durationMs }, signal)
  }

  async #isAnothers(signal: AbortSignal): Promise<boolean> {
    await this.#attempt(() => this.#hold.read(signal), signal)
    return this.#hold.state.is === 'others'
  }

  async #release(): Promise<void> {
    const release = { durationMs: RELEASED_MS, begins: false }
    try {
      await withDeadline(this.#deps.clock, RELEASE_MS, (signal) => this.#hold.giveUp(release, signal))
    } catch (error) {
      this.#note(error)
    }
  }

  /** Returns true if `run` succeeded. */
  async #attempt(run: () => Promise<unknown>, signal: AbortSignal): Promise<boolean> {
    try {
      await run()
      this.#trouble = undefined
      return true
    } catch (error) {
      if (!signal.aborted) this.#note(error)
      return false
    }
  }

  #become(state: ElectionState): void {
    const was = this.#state.is
    this.#state = state
    if (state.is === was) return
    const { logger, leader } = this.#deps
    const { name: lease, identity } = this.#init
    if (state.is === 'leading') logger.info('leading', { lease, identity })
    leader.set(state.is === 'leading' ? 1 : 0, { lease })
    if (state.is !== 'lost') return
    logger.warn('this process has lost its leadership', {
      reason: 'LeaseNotRenewed',
      lease,
      identity,
      why: this.#trouble,
    })
  }

  #note(error: unknown): void {
    const why = messageOf(error)
    if (why === this.#trouble) return
    this.#trouble = why
    const { name: lease } = this.#init
    if (error instanceof HeldError) this.#deps.logger.info(why, { lease })
    else this.#deps.logger.warn('cannot renew the lease; retrying', { reason: 'LeaseNotRenewed', lease, why })
  }
}

const nobody = (): boolean => false

class HeldError extends Error {
  constructor(holder: string) {
    super(`${holder} is leading`)
  }
}
