/**
 * One leader among several processes, by a Lease (coordination.k8s.io/v1) as client-go uses it.
 *
 *   following ─► (free, or not renewed for its duration) ─► leading ─► following …
 *        ▲                                                     │
 *        └──────── not renewed within renewWithinMs ◄──────────┘      stop: the lease is given back
 *
 * No two lead at once as long as their clocks run at the same speed: a leader gives up renewWithinMs after it *began*
 * the last renewal that went through, a follower takes over only when it has *seen* no renewal for the whole duration,
 * both by their own monotonic clocks. What the other's wall clock says is not looked at.
 */
import { type Clock, abortReason } from '../reconcile/reconcile.ts'
import type { Logger } from '../runtime/logging/logging.ts'
import type { Gauge } from '../runtime/metrics/metrics.ts'
import { type ElectionTiming, LANE_LEASE_MS, electionTiming } from '../model/lanes/lanes.ts'
import { messageOf } from '../runtime/runtime.ts'
import type { LeaseStore, StoredLease } from './cluster-api.ts'

/** Default: electionTiming() of LANE_LEASE_MS. A follower takes over from a leader that died within 12 s of it. */
export interface ElectionInit extends Partial<ElectionTiming> {
  /** Name of the Lease in our namespace. */
  readonly name: string
  /** Unlike every other candidate's: the pod's name. */
  readonly identity: string
  /** Whom this process replaces: a holder that is known to have ended is not waited for, at the first try of all. */
  readonly replaces?: (holder: string) => boolean
}

export interface ElectionDeps {
  readonly clock: Clock
  readonly logger: Logger
  /** 1 while this process leads. */
  readonly leader: Pick<Gauge, 'set'>
  readonly leases: LeaseStore
}

/** How long giving back may take when stopping. */
const RELEASE_MS = 3000

export class Election {
  readonly #deps: ElectionDeps
  readonly #init: Required<ElectionInit>
  #isFirst = true
  /** The lease as last read, and when its present content was first seen. */
  #seen: { readonly lease: StoredLease; readonly content: string; readonly at: number } | undefined
  #trouble: string | undefined

  constructor(deps: ElectionDeps, init: ElectionInit) {
    this.#deps = deps
    this.#init = {
      ...electionTiming(LANE_LEASE_MS),
      replaces: nobody,
      ...init,
    }
    this.#deps.leader.set(0, { lease: init.name })
  }

  /**
   * Calls `lead` each time this process becomes leader; its signal is aborted when it is leader no longer, and the next
   * candidacy waits until it has ended. Resolves when `signal` is aborted and the lease is given back, or when `lead`
   * ends by itself. Rejects with what `lead` throws while it is leader.
   */
  async run(lead: (signal: AbortSignal) => Promise<void>, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const since = await this.#acquire(signal)
      if (since === undefined) return
      if (!(await this.#term(lead, since, signal))) return
    }
  }

  /** When the renewal that won began, monotonic; undefined when stopped first. */
  async #acquire(signal: AbortSignal): Promise<number | undefined> {
    const { clock } = this.#deps
    const { retryMs } = this.#init
    while (!signal.aborted) {
      const began = clock.monotonic()
      if (await this.#attempt(() => this.#tryToTake(signal), signal)) return began
      // Spread, so that two candidates do not meet again and again.
      await clock.sleep(retryMs / 2 + (retryMs / 2) * clock.random(), signal).catch(() => undefined)
    }
    return undefined
  }

  /** One term of office. True when another one may follow. */
  async #term(lead: (signal: AbortSignal) => Promise<void>, since: number, signal: AbortSignal): Promise<boolean> {
    const { logger, leader } = this.#deps
    const { name, identity } = this.#init
    const office = new AbortController()
    const over = new AbortController()
    logger.info('leading', { lease: name, identity })
    leader.set(1, { lease: name })
    const renewing = this.#renewUntilLost(since, AbortSignal.any([signal, over.signal])).then((lost) => {
      leader.set(0, { lease: name })
      if (lost)
        logger.warn('leading no longer', { reason: 'LeaseNotRenewed', lease: name, identity, why: this.#trouble })
      office.abort(lost ? new Error('this process is leader no longer') : abortReason(signal))
      return lost
    })
    try {
      await lead(office.signal)
      return office.signal.aborted && !signal.aborted
    } catch (error) {
      if (!office.signal.aborted) throw error
      return !signal.aborted
    } finally {
      over.abort(new Error('the term is over'))
      // Given back only after `lead` has ended: nobody leads beside it.
      if (!(await renewing)) await this.#release()
    }
  }

  /** True when the lease was lost, false when the signal ended it. */
  async #renewUntilLost(since: number, signal: AbortSignal): Promise<boolean> {
    const { clock } = this.#deps
    const { renewWithinMs, retryMs } = this.#init
    let renewed = since
    while (!signal.aborted) {
      const left = renewed + renewWithinMs - clock.monotonic()
      if (left <= 0) return true
      const limit = new AbortController()
      const cancel = clock.setTimer(left, () => limit.abort(new Error('not renewed in time')))
      try {
        const limited = AbortSignal.any([signal, limit.signal])
        await clock.sleep(Math.min(retryMs, left), limited)
        const began = clock.monotonic()
        if (await this.#attempt(() => this.#write(this.#renewal(), limited), limited)) renewed = began
        else if (await this.#isAnothers(limited)) return true
      } catch {
        // Out of time, or stopped: the loop finds out which.
      } finally {
        cancel()
      }
    }
    return false
  }

  async #tryToTake(signal: AbortSignal): Promise<void> {
    const { clock } = this.#deps
    const { identity, durationMs, replaces } = this.#init
    const lease = await this.#read(signal)
    const isFirst = this.#isFirst
    this.#isFirst = false
    if (lease === undefined) return this.#write(this.#taking(undefined), signal)
    const holder = lease.spec?.holderIdentity ?? ''
    const duration = (lease.spec?.leaseDurationSeconds ?? 0) * 1000 || durationMs
    const quiet = clock.monotonic() - (this.#seen?.at ?? clock.monotonic())
    const isReplaced = isFirst && replaces(holder)
    if (holder !== '' && holder !== identity && !isReplaced && quiet < duration) throw new HeldError(holder)
    return this.#write(this.#taking(lease), signal)
  }

  async #isAnothers(signal: AbortSignal): Promise<boolean> {
    let holder: string | undefined
    await this.#attempt(async () => {
      holder = (await this.#read(signal))?.spec?.holderIdentity
    }, signal)
    return holder !== undefined && holder !== '' && holder !== this.#init.identity
  }

  async #release(): Promise<void> {
    const limit = new AbortController()
    const cancel = this.#deps.clock.setTimer(RELEASE_MS, () => limit.abort(new Error('not given back in time')))
    try {
      if (await this.#attempt(() => this.#giveBack(limit.signal), limit.signal)) return
      // A renewal that was under way when the term ended may have arrived all the same: what was seen last is old then.
      await this.#read(limit.signal)
      await this.#giveBack(limit.signal)
    } catch (error) {
      this.#note(error)
    } finally {
      cancel()
    }
  }

  /** Does nothing where the lease, as last seen, is another's. */
  async #giveBack(signal: AbortSignal): Promise<void> {
    const lease = this.#seen?.lease
    if (lease?.spec?.holderIdentity !== this.#init.identity) return
    const spec = { ...lease.spec, holderIdentity: '', leaseDurationSeconds: 1, renewTime: this.#microTime() }
    await this.#write({ ...lease, spec }, signal)
  }

  #taking(lease: StoredLease | undefined): StoredLease {
    const { name, identity, durationMs } = this.#init
    const now = this.#microTime()
    return {
      ...KIND,
      metadata: lease?.metadata ?? { name },
      spec: {
        holderIdentity: identity,
        leaseDurationSeconds: Math.ceil(durationMs / 1000),
        acquireTime: now,
        renewTime: now,
        leaseTransitions: lease === undefined ? 0 : (lease.spec?.leaseTransitions ?? 0) + 1,
      },
    }
  }

  #renewal(): StoredLease {
    const lease = this.#seen?.lease ?? this.#taking(undefined)
    return { ...lease, spec: { ...lease.spec, holderIdentity: this.#init.identity, renewTime: this.#microTime() } }
  }

  async #read(signal: AbortSignal): Promise<StoredLease | undefined> {
    const lease = await this.#deps.leases.read(this.#init.name, signal)
    if (lease === undefined) this.#seen = undefined
    else this.#notice(lease)
    return lease
  }

  /** With the version that was read: the slower candidate is refused. */
  async #write(lease: StoredLease, signal: AbortSignal): Promise<void> {
    this.#notice(await this.#deps.leases.write(lease, signal))
  }

  #notice(lease: StoredLease): void {
    const content = JSON.stringify(lease.spec ?? {})
    const at = this.#seen?.content === content ? this.#seen.at : this.#deps.clock.monotonic()
    this.#seen = { lease, content, at }
  }

  /** True when it went through. */
  async #attempt(run: () => Promise<void>, signal: AbortSignal): Promise<boolean> {
    try {
      await run()
      this.#trouble = undefined
      return true
    } catch (error) {
      if (!signal.aborted) this.#note(error)
      return false
    }
  }

  #note(error: unknown): void {
    const why = messageOf(error)
    if (why === this.#trouble) return
    this.#trouble = why
    const { name: lease } = this.#init
    if (error instanceof HeldError) this.#deps.logger.info(why, { lease })
    else this.#deps.logger.warn('lease not renewed', { reason: 'LeaseNotRenewed', lease, why })
  }

  /** metav1.MicroTime. */
  #microTime(): string {
    return new Date(this.#deps.clock.now()).toISOString().replace('Z', '000Z')
  }
}

const KIND = { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease' } as const
const nobody = (): boolean => false

class HeldError extends Error {
  constructor(holder: string) {
    super(`${holder} is leading`)
  }
}
