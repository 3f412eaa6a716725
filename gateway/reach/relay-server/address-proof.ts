/**
 * How a relay makes sure that a sender gets packets at its address: it answers with a cookie, which the sender has to send
 * back. The relay remembers nothing for that but its secrets, and how much went to each address.
 */
import { createHmac } from 'node:crypto'
import { type AddressPort, formatAddress, formatAddressPort } from '../../../model/addresses/addresses.ts'
import { type BindQuestion, COOKIE_BYTES } from '../frames/bind-frame.ts'

/** A cookie is valid for one to two of these. */
const COOKIE_SECRET_MS = 120_000
/** Challenges to one address in a minute, so that nobody can use a relay against a third party. */
export const CHALLENGES_TO_ADDRESS = 10
const ADDRESS_WINDOW_MS = 60_000
/** Addresses with a count. If there are more at one time, there is nothing for further ones. */
const MOST_COUNTED = 4096

/** A cookie is a MAC over the two ends, and over where a question comes from and arrives. */
export class Cookies {
  readonly #randomBytes: (count: number) => Buffer
  /** Newest first. */
  #secrets: readonly { readonly secret: Buffer; readonly sinceMs: number }[] = []

  /** `randomBytes`: octets that others cannot foresee. */
  constructor(randomBytes: (count: number) => Buffer) {
    this.#randomBytes = randomBytes
  }

  /** The valid cookies for a sender at an address, newest first. */
  valid(
    { from, to }: Pick<BindQuestion, 'from' | 'to'>,
    at: AddressPort,
    port: number,
    generation: string | undefined,
    nowMs: number,
  ): readonly Buffer[] {
    const [newest] = this.#secrets
    if (newest === undefined || nowMs - newest.sinceMs >= COOKIE_SECRET_MS) {
      this.#secrets = [{ secret: this.#randomBytes(32), sinceMs: nowMs }, ...this.#secrets.slice(0, 1)]
    }
    const valid = this.#secrets.filter(({ sinceMs }) => nowMs - sinceMs < 2 * COOKIE_SECRET_MS)
    const text = [formatAddressPort(at), port, from, to, generation ?? 'none'].join(' ')
    return valid.map(({ secret }) => createHmac('sha256', secret).update(text).digest().subarray(0, COOKIE_BYTES))
  }
}

/** Counts what goes to each address in ADDRESS_WINDOW_MS, `most` at most. */
export class AddressCounts {
  readonly #most: number
  readonly #counts = new Map<string, { count: number; readonly sinceMs: number }>()

  constructor(most: number) {
    this.#most = most
  }

  /** Counts one more if there is room for it and, asked last, `mayTake` says so. Returns whether it did. */
  take({ address }: Pick<AddressPort, 'address'>, nowMs: number, mayTake: () => boolean): boolean {
    const text = formatAddress(address)
    const known = this.#counts.get(text)
    if (known !== undefined && nowMs - known.sinceMs < ADDRESS_WINDOW_MS) {
      if (known.count >= this.#most || !mayTake()) return false
      known.count += 1
      return true
    }
    if (known === undefined && this.#counts.size >= MOST_COUNTED) {
      for (const [key, { sinceMs }] of this.#counts) if (nowMs - sinceMs >= ADDRESS_WINDOW_MS) this.#counts.delete(key)
      if (this.#counts.size >= MOST_COUNTED) return false
    }
    if (!mayTake()) return false
    this.#counts.set(text, { count: 1, sinceMs: nowMs })
    return true
  }

  forget({ address }: Pick<AddressPort, 'address'>): void {
    this.#counts.delete(formatAddress(address))
  }
}
