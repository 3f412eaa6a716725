/** Broker addresses, such as `192.0.2.1:7443` or `[2001:db8::1]:7443`, and the choice of the address to call next. */
import { isIPv6 } from 'node:net'
import { isDnsSubdomain } from '../model/model.ts'
import type { Clock } from '../reconcile/reconcile.ts'
import { BrokerUnreachableError } from './broker-client.ts'

export const DEFAULT_BROKER_PORT = 7443

export interface BrokerAddress {
  readonly host: string
  readonly port: number
}

export class BrokerAddressError extends Error {
  constructor(field: string, value: string) {
    super(
      `${field} ${JSON.stringify(value.slice(0, 300))}: expected host:port, such as 192.0.2.1:7443 or [2001:db8::1]:7443`,
    )
    this.name = 'BrokerAddressError'
  }
}

/** Parses `host:port`. The port defaults to DEFAULT_BROKER_PORT. Throws BrokerAddressError. */
export function parseBrokerAddress(text: string, field = 'broker address'): BrokerAddress {
  const match = /^(?:\[([^\]]+)\]|([^:[\]]+))(?::(\d{1,5}))?$/.exec(text)
  const [, bracketed, plain, portText] = match ?? []
  const port = portText === undefined ? DEFAULT_BROKER_PORT : Number(portText)
  const hostFits = bracketed !== undefined ? isIPv6(bracketed) : isDnsSubdomain((plain ?? '').toLowerCase())
  if (match === null || !hostFits || port < 1 || port > 65_535) throw new BrokerAddressError(field, text)
  return { host: bracketed ?? plain ?? '', port }
}

export function formatBrokerAddress({ host, port }: BrokerAddress): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`
}

// A member knows two kinds of addresses of its broker:
// - Own addresses come from the join token and are never removed.
// - Named addresses come from the list that the broker sends on a watch. A named address is trusted after a connection
//   to it has succeeded. Until then it is avoided right after a failed attempt, so that a list of wrong addresses does
//   not cause a series of failures.
// The choice is random, so that members spread over the replicas. After a failure, an address is not used for a time
// that grows with each failure, and the member calls another address immediately. Own addresses that the broker no
// longer names are used only if no named address that has worked is available.

/** Longest list that is accepted from a broker. The rest of a longer list is ignored. */
export const MAX_NAMED_ADDRESSES = 16

/** Base of the back-off of a failed address: a random 50 to 100 % of REST_MS times the square of its failure count. */
const REST_MS = 1000
const MAX_REST_MS = 15_000

interface AddressBookInit {
  /** At least one `host:port`. */
  readonly own: readonly string[]
  /** Addresses that the broker named earlier and to which a connection has succeeded. */
  readonly proven?: readonly string[]
  /** The address to call first: one of `own` that has just answered. */
  readonly first?: string
  readonly clock: Pick<Clock, 'monotonic' | 'random'>
}

interface Entry {
  readonly address: BrokerAddress
  readonly isOwn: boolean
  isNamed: boolean
  isProven: boolean
  failures: number
  restsUntilMs: number
}

export class AddressBook {
  readonly #clock: AddressBookInit['clock']
  readonly #entries = new Map<string, Entry>()
  #first: string | undefined
  /** True after a failed attempt: the next attempt prefers addresses that are own or have worked. */
  #isCareful = false

  /** Throws BrokerAddressError for an invalid own address, and BrokerUnreachableError if there is no own address. */
  constructor({ own, proven = [], first, clock }: AddressBookInit) {
    this.#clock = clock
    for (const text of own) this.#add(parseBrokerAddress(text), { isOwn: true, isProven: false })
    if (this.#entries.size === 0) throw new BrokerUnreachableError('no address of the broker is known')
    this.#first = first === undefined ? undefined : formatBrokerAddress(parseBrokerAddress(first))
    this.learn(proven)
    for (const entry of this.#entries.values()) entry.isProven ||= entry.isNamed
  }

  get size(): number {
    return this.#entries.size
  }

  /** Number of addresses at which the last attempt failed. */
  get failing(): number {
    return this.#texts(({ failures }) => failures > 0).length
  }

  /** Named addresses to which a connection has succeeded. */
  get proven(): readonly string[] {
    return this.#texts(({ isNamed, isProven }) => isNamed && isProven)
  }

  /** All addresses in use, as `host:port`. */
  get all(): readonly string[] {
    return this.#texts(() => true)
  }

  /** Returns whether `own` equals the own addresses of this book. Throws BrokerAddressError. */
  has(own: readonly string[]): boolean {
    const given = new Set(own.map((text) => formatBrokerAddress(parseBrokerAddress(text))))
    const known = this.#texts(({ isOwn }) => isOwn)
    return given.size === known.length && known.every((text) => given.has(text))
  }

  /** Returns the address for the next connection. */
  next(): BrokerAddress {
    const first = this.#first === undefined ? undefined : this.#entries.get(this.#first)
    this.#first = undefined
    if (first !== undefined) return first.address
    const now = this.#clock.monotonic()
    const isAwake = ({ restsUntilMs }: Entry): boolean => restsUntilMs <= now
    for (const pool of this.#pools()) {
      const awake = pool.filter(isAwake)
      const chosen = awake[Math.floor(this.#clock.random() * awake.length)]
      if (chosen !== undefined) return chosen.address
    }
    return this.#soonest().address
  }

  /** Reports that a TLS connection to the address succeeded, with a certificate of the clusterset's authority. */
  worked(address: BrokerAddress): void {
    const entry = this.#entries.get(formatBrokerAddress(address))
    if (entry === undefined) return
    entry.isProven = true
    entry.failures = 0
    entry.restsUntilMs = 0
    this.#isCareful = false
  }

  /** Reports that no broker answered at the address. */
  failed(address: BrokerAddress): void {
    this.#isCareful = true
    const entry = this.#entries.get(formatBrokerAddress(address))
    if (entry === undefined) return
    entry.failures += 1
    this.#rest(entry, Math.min(MAX_REST_MS, REST_MS * entry.failures ** 2))
  }

  /** Reports the end of a connection that had worked: its broker may be stopping, or may want the member elsewhere. */
  ended(address: BrokerAddress): void {
    const entry = this.#entries.get(formatBrokerAddress(address))
    if (entry !== undefined) this.#rest(entry, REST_MS)
  }

  /**
   * Takes the list that a broker sent, of any length and content. Invalid addresses are ignored. A list without a valid
   * address changes nothing.
   */
  learn(texts: readonly string[]): void {
    const named = new Map(brokerAddresses(texts).map((address) => [formatBrokerAddress(address), address] as const))
    if (named.size === 0) return
    for (const [text, entry] of this.#entries) {
      entry.isNamed = named.has(text)
      // An address that has worked is kept, because none of the new addresses has to work.
      if (!entry.isNamed && !entry.isOwn && !entry.isProven) this.#entries.delete(text)
    }
    for (const [text, address] of named) {
      if (!this.#entries.has(text)) this.#add(address, { isOwn: false, isProven: false })
      const entry = this.#entries.get(text)
      if (entry !== undefined) entry.isNamed = true
    }
    this.#forgetOld()
  }

  #add(address: BrokerAddress, known: Pick<Entry, 'isOwn' | 'isProven'>): void {
    const text = formatBrokerAddress(address)
    this.#entries.set(text, { address, ...known, isNamed: false, failures: 0, restsUntilMs: 0 })
  }

  /** Groups of addresses to choose from, best group first. */
  #pools(): readonly (readonly Entry[])[] {
    const entries = [...this.#entries.values()]
    const trusted = entries.filter(({ isOwn, isProven }) => isOwn || isProven)
    const current = trusted.filter(({ isNamed }) => isNamed)
    const untried = entries.filter(({ isNamed, isProven }) => isNamed && !isProven)
    const best = current.some(({ isProven }) => isProven) ? current : trusted
    return [this.#isCareful ? best : [...new Set([...best, ...untried])], trusted, untried]
  }

  #soonest(): Entry {
    const trusted = [...this.#entries.values()].filter(({ isOwn, isProven }) => isOwn || isProven)
    return trusted.reduce((a, b) => (b.restsUntilMs < a.restsUntilMs ? b : a))
  }

  /** Removes proven addresses that the broker no longer names beyond MAX_NAMED_ADDRESSES, oldest first. */
  #forgetOld(): void {
    const old = [...this.#entries].filter(([, { isOwn, isNamed }]) => !isOwn && !isNamed)
    for (const [text] of old.slice(0, -MAX_NAMED_ADDRESSES)) this.#entries.delete(text)
  }

  #rest(entry: Entry, full: number): void {
    entry.restsUntilMs = this.#clock.monotonic() + full / 2 + (full / 2) * this.#clock.random()
  }

  #texts(isMeant: (entry: Entry) => boolean): readonly string[] {
    return [...this.#entries].filter(([, entry]) => isMeant(entry)).map(([text]) => text)
  }
}

/** Returns the valid addresses among the first MAX_NAMED_ADDRESSES texts. */
export function brokerAddresses(texts: readonly unknown[]): readonly BrokerAddress[] {
  return texts.slice(0, MAX_NAMED_ADDRESSES).flatMap((text) => {
    try {
      return typeof text === 'string' ? [parseBrokerAddress(text)] : []
    } catch {
      return []
    }
  })
}
