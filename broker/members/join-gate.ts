/**
 * How many joins of one address may fail. Many clusters may come from one address, so a caller that shows a known token
 * passes all the same: only strangers lose by what strangers do.
 */
import { RefusedError } from '../../protocol/broker-api.ts'
import type { Clock } from '../../reconcile/clock.ts'

/** Failures at once, and one more in each of these. */
const BURST = 20
const REFILL_MS = 3000
const MAX_ADDRESSES = 4096

interface Failures {
  left: number
  atMs: number
}

export class JoinGate {
  readonly #clock: Clock
  /** In the order of their last failure. */
  readonly #addresses = new Map<string, Failures>()

  readonly #says: (address: string) => string

  /** `says` names what there was too much of. */
  constructor(
    clock: Clock,
    says = (address: string) => `not known to this broker, and too many joins from ${address} have failed`,
  ) {
    this.#clock = clock
    this.#says = says
  }

  /** Throws RefusedError (ResourceExhausted) for an address of which too many failed. */
  check(address: string): void {
    const left = this.#left(address)
    if (left >= 1) return
    const seconds = Math.ceil(((1 - left) * REFILL_MS) / 1000)
    const message = `token: ${this.#says(address)}: try again in ${seconds} s`
    throw new RefusedError('TooManyAttempts', 'token', message)
  }

  /** One more failure of this address. */
  count(address: string): void {
    const left = Math.max(0, this.#left(address) - 1)
    this.#addresses.delete(address)
    this.#addresses.set(address, { left, atMs: this.#clock.monotonic() })
    const oldest = this.#addresses.size > MAX_ADDRESSES ? this.#addresses.keys().next().value : undefined
    if (oldest !== undefined) this.#addresses.delete(oldest)
  }

  #left(address: string): number {
    const failures = this.#addresses.get(address)
    if (failures === undefined) return BURST
    return Math.min(BURST, failures.left + (this.#clock.monotonic() - failures.atMs) / REFILL_MS)
  }
}
