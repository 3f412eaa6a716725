/**
 * One Lease as one process holds it: reads, takes, renews and gives it up. plan-hold.ts decides; this file asks the
 * store. Callers choose when, and what they do while the Lease is theirs: election.ts, gateway/lease/.
 */
import type { Clock } from '../../reconcile/reconcile.ts'
import type { LeaseStore } from '../kubeapi.ts'
import {
  type HoldFacts,
  type HoldEvent,
  type HoldState,
  type LeaseMarks,
  holdAfter,
  knownIn,
  leaseAfter,
} from './plan-hold.ts'

export interface LeaseHoldDeps {
  readonly clock: Pick<Clock, 'now' | 'monotonic'>
  readonly leases: LeaseStore
}

export interface LeaseHoldInit extends HoldFacts {
  /** Name of the Lease in our namespace. */
  readonly name: string
}

/** What a write puts into the Lease beside its holder. */
export interface LeaseWrite {
  readonly durationMs: number
  /** Changes its metadata. Default: they stay. */
  readonly marks?: LeaseMarks
}

export interface LeaseRelease extends LeaseWrite {
  /** Whether the absence of a holder is counted as a change of holder. */
  readonly begins: boolean
}

/** A request to a store that takes longer is of no use to a holder that has to renew in time. */
export const LEASE_REQUEST_MS = 3000
const RELEASE_TRIES = 3

export class LeaseHold {
  readonly #deps: LeaseHoldDeps
  readonly #init: LeaseHoldInit
  #state: HoldState = { is: 'unread', writtenMs: undefined }

  constructor(deps: LeaseHoldDeps, init: LeaseHoldInit) {
    this.#deps = deps
    this.#init = init
  }

  get state(): HoldState {
    return this.#state
  }

  /** Reads the Lease past all caches. The state stays if the store does not answer. Throws ClusterApiError. */
  async read(signal: AbortSignal): Promise<HoldState> {
    const lease = await this.#deps.leases.read(this.#init.name, signal)
    return this.#become({ is: 'read', lease, nowMs: this.#deps.clock.monotonic() })
  }

  /**
   * Makes this process the holder, as of now. The write names the version that was read, so that the later one of two
   * candidates is rejected. Throws ClusterApiError.
   */
  async take(write: LeaseWrite, signal: AbortSignal): Promise<void> {
    await this.#write({ ...write, holder: this.#init.identity, begins: true }, signal)
  }

  /** Like take(), for the holder. A Lease that was removed is created again. Throws ClusterApiError. */
  async renew(write: LeaseWrite, signal: AbortSignal): Promise<void> {
    const begins = knownIn(this.#state) === undefined
    await this.#write({ ...write, holder: this.#init.identity, begins }, signal)
  }

  /**
   * Empties the Lease, so that others need not wait until it lapses. Does nothing if this process does not hold it, as
   * last read. Reads it again if the write fails: an earlier write of this process, which was still pending, may have
   * been first. Throws ClusterApiError.
   */
  async giveUp(release: LeaseRelease, signal: AbortSignal): Promise<void> {
    for (let tries = 1; this.#state.is === 'own'; tries += 1) {
      try {
        await this.#write({ ...release, holder: '' }, signal)
        return
      } catch (error) {
        if (tries === RELEASE_TRIES || signal.aborted) throw error
        await this.read(signal)
      }
    }
  }

  /**
   * Discards what was seen. For a Lease whose holder goes on while it cannot renew: such a holder is not to be counted
   * out by the time in which this process could not read.
   */
  forget(): void {
    this.#become({ is: 'forgotten' })
  }

  async #write(terms: LeaseRelease & { readonly holder: string }, signal: AbortSignal): Promise<void> {
    const { clock, leases } = this.#deps
    const next = leaseAfter(knownIn(this.#state)?.stored, { ...terms, name: this.#init.name, nowMs: clock.now() })
    const lease = await leases.write(next, signal)
    this.#become({ is: 'written', lease, nowMs: clock.monotonic() })
  }

  #become(event: HoldEvent): HoldState {
    this.#state = holdAfter(this.#state, event, this.#init)
    return this.#state
  }
}
