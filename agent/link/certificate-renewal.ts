/**
 * Renews this cluster's certificate after two thirds of its lifetime, with the same key: writing one file is atomic,
 * writing a key and its certificate is not. A failed renewal is tried again.
 *
 * The store is authoritative: a certificate is used once it is stored. If another agent of this cluster or a later join
 * stores a later certificate there, that one is used. The broker refuses a replaced certificate after a short overlap.
 * A wrong clock is logged. It causes neither an endless series of renewals nor a renewal that comes too late.
 */
import { X509Certificate } from 'node:crypto'
import {
  type Authorities,
  type BrokerClient,
  CertificateError,
  ProtocolError,
  RefusedError,
} from '../../protocol/protocol.ts'
import {
  type CertificateFacts,
  certificateProblem,
  createCsr,
  fingerprint,
  readCertificate,
} from '../../protocol/identity/identity.ts'
import type { IdentityStore, MemberIdentity } from '../../protocol/membership/membership.ts'
import { reasonField } from '../../protocol/transport/transport.ts'
import { Backoff, type Clock } from '../../reconcile/reconcile.ts'
import { messageOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { AgentMetrics } from '../loop/loop.ts'
import { clockSuspicion, isPremature, renewalDueInMs } from './plan-renewal.ts'

export interface CertificateRenewalDeps {
  readonly clock: Clock
  readonly logger: Logger
  readonly agentMetrics: AgentMetrics
  /** Gives the client in use. */
  readonly client: () => BrokerClient
  /** Gives the addresses to store with the next certificate: those that the broker named and that have worked. */
  readonly learned?: () => readonly string[]
  /** Called after the new identity is stored. The caller must use it from then on. */
  readonly onRenewed: (identity: MemberIdentity) => void
}

export interface CertificateRenewalInit {
  /** Where the identity is stored. */
  readonly store: IdentityStore
  readonly identity: MemberIdentity
}

/** The clock is checked this often, so that a suspended machine or a changed clock does not make the renewal late. */
const LOOK_EVERY_MS = 60_000
/** Pause between two renewals if the second is due at once, because this machine's clock is ahead of the broker's. */
const AGAIN = { minMs: 10 * 60_000, maxMs: 4 * 3_600_000 }
/** Pause between two renewals if the authorities still differ from those that the broker announces. */
const BEHIND = { minMs: 5000, maxMs: 10 * 60_000 }
/** Caps the delay that the broker may announce. */
const MAX_WITHIN_MS = 3_600_000
/** The store is checked this often while the certificate cannot be used. */
const LOOK_AT_STORE_MS = 5000

export class CertificateRenewal {
  readonly #deps: CertificateRenewalDeps
  readonly #store: IdentityStore
  #identity: MemberIdentity
  #facts: CertificateFacts
  /** When this process got the certificate, by the monotonic clock. Undefined if it was loaded at the start. */
  #gotAtMs: number | undefined
  #failure: string | undefined
  #isRefused = false
  /** Why the broker refused the renewal itself. Undefined if it did not. */
  #denied: string | undefined
  /** The broker has answered since the last try, though it refused the certificate. */
  #hasAnswered = false
  /** As the broker announced them last. */
  #authorities: Authorities | undefined
  /** The monotonic time to renew because of the authorities. Undefined if this member has the announced ones. */
  #followAtMs: number | undefined
  /**
   * The earliest monotonic time for that renewal, after one that did not help. Later announcements do not shorten it.
   */
  #followNotBeforeMs = 0
  readonly #behind: Backoff
  #wake = new AbortController()

  constructor(deps: CertificateRenewalDeps, init: CertificateRenewalInit) {
    this.#deps = deps
    this.#store = init.store
    this.#identity = init.identity
    this.#facts = readCertificate(init.identity.certificate)
    this.#behind = new Backoff(deps.clock, BEHIND)
  }

  /** Why the certificate was not renewed in time. Undefined if there is no problem. */
  problem(): string | undefined {
    return this.#failure
  }

  /**
   * Why the broker does not renew the certificate. Undefined as long as a renewal may still succeed: a certificate that
   * expired while this member was off can be renewed for a while.
   */
  denied(): string | undefined {
    return this.#denied
  }

  /** When the certificate expires, in milliseconds since 1970. */
  get endsMs(): number {
    return this.#facts.notAfterMs
  }

  /** Takes whether the broker refuses the certificate. If it does, the store is checked for another one. */
  takeRefusal(isRefused: boolean): void {
    this.#isRefused = isRefused
    this.#hasAnswered ||= isRefused
    if (isRefused) this.#wake.abort(new Error('the certificate is refused'))
  }

  /** Takes the authorities that the broker announces. If they differ, the member renews within the announced time. */
  takeAuthorities(authorities: Authorities): void {
    const { clock } = this.#deps
    this.#authorities = authorities
    if (!isBehind(this.#identity, authorities)) {
      this.#followAtMs = undefined
      return
    }
    const atMs = clock.monotonic() + Math.min(authorities.withinMs, MAX_WITHIN_MS) * clock.random()
    this.#followAtMs = Math.max(this.#followNotBeforeMs, Math.min(this.#followAtMs ?? atMs, atMs))
    this.#wake.abort(new Error('the authorities have changed'))
  }

  /** Runs until the signal. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { agentMetrics, clock } = this.#deps
    const backoff = new Backoff(clock, { minMs: 5000, maxMs: 10 * 60_000 })
    const again = new Backoff(clock, AGAIN)
    while (!signal.aborted) {
      await this.#adopt()
      const { notBeforeMs, notAfterMs } = this.#facts
      agentMetrics.certificateStart.set(Math.floor(notBeforeMs / 1000))
      agentMetrics.certificateExpiry.set(Math.floor(notAfterMs / 1000))
      const dueInMs = this.#dueInMs()
      if (dueInMs > 0) {
        await this.#sleep(Math.min(dueInMs, this.#isRefused ? LOOK_AT_STORE_MS : LOOK_EVERY_MS), signal)
      } else if (await this.#renew(notAfterMs, signal)) {
        backoff.reset()
        if (this.#dueInMs() > 0) again.reset()
        else await this.#pause(again.next(), signal)
      } else {
        await this.#pause(backoff.next(), signal)
      }
    }
  }

  #dueInMs(): number {
    const { clock } = this.#deps
    const monotonicMs = clock.monotonic()
    const due = renewalDueInMs(this.#facts, { nowMs: clock.now(), monotonicMs, gotAtMs: this.#gotAtMs })
    return this.#followAtMs === undefined ? due : Math.min(due, this.#followAtMs - monotonicMs)
  }

  /**
   * Decides again whether the authorities require a renewal. The new identity may still be behind, if one replica of
   * the broker knows more than another.
   */
  #follow(): void {
    if (this.#authorities !== undefined && isBehind(this.#identity, this.#authorities)) {
      this.#followNotBeforeMs = this.#deps.clock.monotonic() + this.#behind.next()
      this.#followAtMs = this.#followNotBeforeMs
      return
    }
    this.#followNotBeforeMs = 0
    this.#behind.reset()
    this.#followAtMs = undefined
  }

  /** Ends early if the broker refuses the certificate or announces other authorities. */
  async #sleep(ms: number, signal: AbortSignal): Promise<void> {
    if (this.#wake.signal.aborted) this.#wake = new AbortController()
    await this.#deps.clock.sleep(ms, AbortSignal.any([signal, this.#wake.signal])).catch(() => undefined)
  }

  /**
   * Ends early if another process has stored another identity, and if the certificate has expired and the broker
   * answers again.
   */
  async #pause(ms: number, signal: AbortSignal): Promise<void> {
    const { clock } = this.#deps
    const end = clock.monotonic() + ms
    for (let left = ms; left > 0 && !signal.aborted; left = end - clock.monotonic()) {
      if (await this.#adopt()) return
      const isOver = this.#facts.notAfterMs <= clock.now()
      if (isOver && this.#hasAnswered && this.#denied === undefined) return
      await clock.sleep(Math.min(left, LOOK_AT_STORE_MS), signal).catch(() => undefined)
    }
  }

  async #adopt(): Promise<boolean> {
    const { clock, logger, onRenewed } = this.#deps
    // A store that cannot be read is read again at the next check.
    const stored = await this.#store.read().catch(() => undefined)
    if (stored === undefined || stored.cluster !== this.#identity.cluster) return false
    if (stored.clusterset !== this.#identity.clusterset) return false
    const { serial, notBeforeMs, notAfterMs, renews } = readCertificate(stored.certificate)
    if (serial === this.#facts.serial || notAfterMs <= clock.now()) return false
    // An earlier certificate, such as one from a backup of the store, is used only if the present one is unusable.
    const isOfUse = this.#facts.notAfterMs > clock.now() && !this.#isRefused
    if (isOfUse && notBeforeMs < this.#facts.notBeforeMs) return false
    this.#use(stored)
    const what =
      renews === undefined
        ? 'the cluster has joined again'
        : 'another agent of this cluster has renewed the certificate'
    logger.info(what, { until: endOf(this.#facts.notAfterMs) })
    onRenewed(stored)
    return true
  }

  #use(identity: MemberIdentity): void {
    this.#identity = identity
    this.#facts = readCertificate(identity.certificate)
    this.#gotAtMs = undefined
    this.#failure = undefined
    this.#isRefused = false
    this.#denied = undefined
    this.#follow()
  }

  async #renew(notAfterMs: number, signal: AbortSignal): Promise<boolean> {
    const { client, clock, logger, learned, onRenewed } = this.#deps
    const askedMs = clock.now()
    this.#hasAnswered = false
    try {
      const { certificate, caBundle } = await client().renew(await createCsr(this.#identity.key), signal)
      // "sealane leave" removes the identity, which must not be written again.
      signal.throwIfAborted()
      // Checks the answer first, since the stored identity cannot be restored once it is replaced.
      const { caBundle: trusted } = this.#identity
      const firstAuthority = this.#identity.firstAuthority ?? trusted.slice(0, 1).map(fingerprint).join()
      const problem = certificateProblem({ ...this.#identity, trusted }, { certificate, caBundle }, clock.now())
      if (problem !== undefined) throw new ProtocolError(`the broker's answer cannot be used: ${problem}`)
      const next = readCertificate(certificate)
      const time = { nowMs: clock.now(), monotonicMs: clock.monotonic(), gotAtMs: this.#gotAtMs }
      if (isPremature(next, this.#facts, time))
        throw new ProtocolError(
          `the new certificate is valid from ${endOf(next.notBeforeMs)}: check the clocks of the brokers`,
        )
      const renewed = {
        ...this.#identity,
        certificate,
        caBundle,
        firstAuthority,
        ...(learned === undefined ? {} : { learnedAddresses: learned() }),
      }
      await this.#store.write(renewed)
      this.#use(renewed)
      this.#gotAtMs = clock.monotonic()
      logger.info('certificate renewed', { until: endOf(this.#facts.notAfterMs) })
      this.#failure = clockSuspicion(this.#facts, askedMs, clock.now())
      if (this.#failure !== undefined)
        logger.warn('check the clock of this machine', { reason: 'ClockDiffers', why: this.#failure })
      onRenewed(renewed)
      return true
    } catch (error) {
      if (signal.aborted) return false
      const ended = clock.now() >= notAfterMs
      this.#denied = isAboutMember(error) ? messageOf(error) : undefined
      const advice =
        this.#denied === undefined ? 'it is renewed when the broker answers' : 'join again with a new token'
      const state = ended ? `expired at ${endOf(notAfterMs)}; ${advice}` : `expires at ${endOf(notAfterMs)}`
      this.#failure = `the certificate ${state}: ${messageOf(error)}`
      const fields = { reason: reasonField(error).reason ?? 'CertificateNotRenewed', why: this.#failure }
      if (ended) logger.error('certificate renewal failed and the certificate has expired', fields)
      else logger.warn('certificate renewal failed; retrying', fields)
      return false
    }
  }
}

/** These refusals concern this member's identity, or the broker's. All other refusals are temporary. */
export function isAboutMember(error: unknown): error is RefusedError | CertificateError {
  if (error instanceof CertificateError) return true
  return error instanceof RefusedError && (error.code === 'PermissionDenied' || error.code === 'Unauthenticated')
}

function endOf(ms: number): string {
  return new Date(ms).toISOString()
}

// Compares this member's authorities with those that the broker announces. Pure.

/**
 * Whether the member must renew: it trusts other authorities, or the signing authority did not issue its certificate.
 */
export function isBehind(
  { caBundle, certificate }: Pick<MemberIdentity, 'caBundle' | 'certificate'>,
  { bundle, signing }: Authorities,
): boolean {
  const own = caBundle.map((der) => fingerprint(der))
  const isSame = own.length === bundle.length && bundle.every((one) => own.includes(one))
  const signer = caBundle[own.indexOf(signing)]
  return !isSame || signer === undefined || !isSignedBy(certificate, signer)
}

function isSignedBy(certificate: Uint8Array, authority: Uint8Array): boolean {
  return new X509Certificate(certificate).verify(new X509Certificate(authority).publicKey)
}
