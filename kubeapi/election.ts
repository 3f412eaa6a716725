/**
 * Elects one leader among several processes with a Lease (coordination.k8s.io/v1), as client-go does.
 *
 *   following ─► (free, or not renewed for its duration) ─► leading ─► following …
 *        ▲                                                     │
 *        └──────── not renewed within renewWithinMs ◄──────────┘      stop: the Lease is released
 *
 * Two processes never lead at once if their clocks run at the same speed: a leader gives up renewWithinMs after it
 * *began* its last successful renewal, and a follower takes over only when it has *seen* no renewal for the whole
 * duration. Both use their own monotonic clocks; the times in the Lease are ignored.
 */
import { type Clock, abortReason } from '../reconcile/reconcile.ts'
import type { Logger } from '../runtime/logging/logging.ts'
import type { Gauge } from '../runtime/metrics/metrics.ts'
import { type ElectionTiming, LANE_LEASE_MS, electionTiming } from '../model/lanes/lanes.ts'
import { messageOf } from '../runtime/runtime.ts'
import type { LeaseStore, StoredLease } from './cluster-api.ts'

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

export class Election {
  readonly #deps: ElectionDeps
  readonly #init: Required<ElectionInit>
  #isFirst = true
  /** The Lease as last read, and when its present content was first seen. */
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
   * Calls `lead` each time this process becomes leader, with a signal that aborts when it loses the lead. The next
   * candidacy waits until `lead` has ended. Resolves when `signal` is aborted and the Lease is released, or when `lead`
   * ends by itself. Rejects with what `lead` throws while it is leader.
   */
  async run(lead: (signal: AbortSignal) => Promise<void>, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const since = await this.#acquire(signal)
      if (since === undefined) return
      if (!(await this.#term(lead, since, signal))) return
    }
  }

  /** Returns the monotonic time at which the successful renewal began; undefined if `signal` was aborted first. */
  async #acquire(signal: AbortSignal): Promise<number | undefined> {
    const { clock } = this.#deps
    const { retryMs } = this.#init
    while (!signal.aborted) {
      const began = clock.monotonic()
      if (await this.#attempt(() => this.#tryToTake(signal), signal)) return began
      // Random pauses, so that two candidates do not collide repeatedly.
      await clock.sleep(retryMs / 2 + (retryMs / 2) * clock.random(), signal).catch(() => undefined)
    }
    return undefined
  }

  /** Leads once. Returns true if it may become leader again. */
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
        logger.warn('this process has lost its leadership', {
          reason: 'LeaseNotRenewed',
          lease: name,
          identity,
          why: this.#trouble,
        })
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
  async #renewUntilLost(since: number, signal: AbortSignal): Promise<boolean> {
    const { clock } = this.#deps
    const { renewWithinMs, retryMs } = this.#init
    let renewed = since
    while (!signal.aborted) {
      const left = renewed + renewWithinMs - clock.monotonic()
      if (left <= 0) return true
      const limit = new AbortController()
      const cancel = clock.setTimer(left, () => limit.abort(new Error('the lease was not renewed in time')))
      try {
        const limited = AbortSignal.any([signal, limit.signal])
        await clock.sleep(Math.min(retryMs, left), limited)
        const began = clock.monotonic()
        if (await this.#attempt(() => this.#write(this.#renewal(), limited), limited)) renewed = began
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
    const cancel = this.#deps.clock.setTimer(RELEASE_MS, () =>
      limit.abort(new Error('the lease was not released in time')),
    )
    try {
      if (await this.#attempt(() => this.#giveBack(limit.signal), limit.signal)) return
      // A renewal that was pending when the term ended may still have arrived; the last read is outdated then.
      await this.#read(limit.signal)
      await this.#giveBack(limit.signal)
    } catch (error) {
      this.#note(error)
    } finally {
      cancel()
    }
  }

  /** Does nothing if another process holds the Lease, as last read. */
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

  /** Writes with the version that was read, so that the later of two candidates is rejected. */
  async #write(lease: StoredLease, signal: AbortSignal): Promise<void> {
    this.#notice(await this.#deps.leases.write(lease, signal))
  }

  #notice(lease: StoredLease): void {
    const content = JSON.stringify(lease.spec ?? {})
    const at = this.#seen?.content === content ? this.#seen.at : this.#deps.clock.monotonic()
    this.#seen = { lease, content, at }
  }

  /** Returns true if `run` succeeded. */
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
    else this.#deps.logger.warn('cannot renew the lease; retrying', { reason: 'LeaseNotRenewed', lease, why })
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
