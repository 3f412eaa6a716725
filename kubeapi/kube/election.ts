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
import { type Clock, abortReason } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import { messageOf } from '../../runtime/thrown.ts'
import { resourcePath } from './kinds.ts'
import { KubeError } from './kube-error.ts'
import type { KubeMetrics } from './metrics.ts'
import type { HttpRequest, HttpClient } from './http/http-client.ts'

export interface ElectionInit {
  /** Name of the Lease in our namespace. */
  readonly name: string
  /** Unlike every other candidate's: the pod's name. */
  readonly identity: string
  readonly durationMs?: number
  readonly renewWithinMs?: number
  readonly retryMs?: number
}

export interface ElectionDeps {
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: KubeMetrics
  readonly http: HttpClient
  readonly namespace: string
}

/** A follower needs at most duration + retry to take over from a leader that died: 12 s. */
const DURATION_MS = 10_000
const RENEW_WITHIN_MS = 7000
const RETRY_MS = 2000
/** How long giving back may take when stopping. */
const RELEASE_MS = 3000

interface LeaseObject {
  readonly metadata: { readonly resourceVersion?: string; readonly name: string; readonly namespace: string }
  readonly spec?: {
    readonly holderIdentity?: string
    readonly leaseDurationSeconds?: number
    readonly acquireTime?: string
    readonly renewTime?: string
    readonly leaseTransitions?: number
  }
}

export class Election {
  readonly #deps: ElectionDeps
  readonly #init: Required<ElectionInit>
  /** The lease as last read, and when its present content was first seen. */
  #seen: { readonly lease: LeaseObject; readonly content: string; readonly at: number } | undefined
  #trouble: string | undefined

  constructor(deps: ElectionDeps, init: ElectionInit) {
    this.#deps = deps
    this.#init = { durationMs: DURATION_MS, renewWithinMs: RENEW_WITHIN_MS, retryMs: RETRY_MS, ...init }
    this.#deps.metrics.leader.set(0, { lease: init.name })
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
    const { logger, metrics } = this.#deps
    const { name, identity } = this.#init
    const office = new AbortController()
    const over = new AbortController()
    logger.info('leading', { lease: name, identity })
    metrics.leader.set(1, { lease: name })
    const renewing = this.#renewUntilLost(since, AbortSignal.any([signal, over.signal])).then((lost) => {
      metrics.leader.set(0, { lease: name })
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
    const { identity, durationMs } = this.#init
    const lease = await this.#read(signal)
    if (lease === undefined) return this.#write(this.#taking(undefined), signal)
    const holder = lease.spec?.holderIdentity ?? ''
    const duration = (lease.spec?.leaseDurationSeconds ?? 0) * 1000 || durationMs
    const quiet = clock.monotonic() - (this.#seen?.at ?? clock.monotonic())
    if (holder !== '' && holder !== identity && quiet < duration) throw new HeldError(holder)
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

  #taking(lease: LeaseObject | undefined): LeaseObject {
    const { name, identity, durationMs } = this.#init
    const now = this.#microTime()
    return {
      metadata: lease?.metadata ?? { name, namespace: this.#deps.namespace },
      spec: {
        holderIdentity: identity,
        leaseDurationSeconds: Math.ceil(durationMs / 1000),
        acquireTime: now,
        renewTime: now,
        leaseTransitions: lease === undefined ? 0 : (lease.spec?.leaseTransitions ?? 0) + 1,
      },
    }
  }

  #renewal(): LeaseObject {
    const lease = this.#seen?.lease ?? this.#taking(undefined)
    return { ...lease, spec: { ...lease.spec, holderIdentity: this.#init.identity, renewTime: this.#microTime() } }
  }

  async #read(signal: AbortSignal): Promise<LeaseObject | undefined> {
    try {
      const { body } = await this.#deps.http.ask<LeaseObject>(this.#question('get', 'GET'), signal)
      this.#notice(body)
      return body
    } catch (error) {
      if (!(error instanceof KubeError && error.status === 404)) throw error
      this.#seen = undefined
      return undefined
    }
  }

  /** With the version that was read: the slower candidate is refused. */
  async #write(lease: LeaseObject, signal: AbortSignal): Promise<void> {
    const isNew = lease.metadata.resourceVersion === undefined
    const question = isNew ? this.#question('create', 'POST') : this.#question('update', 'PUT')
    const body = { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', ...lease }
    this.#notice((await this.#deps.http.ask<LeaseObject>({ ...question, body }, signal)).body)
  }

  #notice(lease: LeaseObject): void {
    const content = JSON.stringify(lease.spec ?? {})
    const at = this.#seen?.content === content ? this.#seen.at : this.#deps.clock.monotonic()
    this.#seen = { lease, content, at }
  }

  #question(verb: string, method: HttpRequest['method']): HttpRequest {
    const { name, retryMs } = this.#init
    const { namespace } = this.#deps
    const place = { apiVersion: 'coordination.k8s.io/v1', plural: 'leases' }
    const path = resourcePath(place, namespace, method === 'POST' ? undefined : name)
    return { verb, title: `Lease ${namespace}/${name}`, method, path, again: false, timeoutMs: retryMs * 1.5 }
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

class HeldError extends Error {
  constructor(holder: string) {
    super(`${holder} is leading`)
  }
}
