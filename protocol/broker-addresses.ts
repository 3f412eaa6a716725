/** Where a broker listens: `host:port`, `192.0.2.1:7443` or `[2001:db8::1]:7443`. */
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

/** Throws BrokerAddressError. Without a port, DEFAULT_BROKER_PORT. */
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

// The addresses of one clusterset's broker, and which of them a member calls next. Two kinds:
// - own: of the join token. They are never lost.
// - named: the list that a broker sent on a watch. Whoever is in it counts once a connection to it has worked; until
// then it is tried only where the attempt before it did not fail, so that a list of nonsense costs one attempt at a
// time.
// Every choice is by chance, so that members spread over the replicas. An address that failed rests for a while, longer
// each time, and another one is called at once. Own addresses that the broker does not name any more come after those
// that it names and that have worked.

/** What a list may have; the rest of it is not looked at. */
export const MAX_NAMED_ADDRESSES = 16

/** An address that failed rests so long: between half and all of it, times the square of its failures. */
const REST_MS = 1000
const MAX_REST_MS = 15_000

interface AddressBookInit {
  /** host:port, at least one. */
  readonly own: readonly string[]
  /** Named by the broker earlier, each one with a connection that had worked. */
  readonly proven?: readonly string[]
  /** To be called first, one of `own`: it has just answered. */
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
  /** The attempt before failed: nothing is tried that was never seen to work. */
  #isCareful = false

  /** Throws BrokerAddressError for an own address that is none, and BrokerUnreachableError without any. */
  constructor({ own, proven = [], first, clock }: AddressBookInit) {
    this.#clock = clock
    for (const text of own) this.#add(parseBrokerAddress(text), { isOwn: true, isProven: false })
    if (this.#entries.size === 0) throw new BrokerUnreachableError('no broker address is known')
    this.#first = first === undefined ? undefined : formatBrokerAddress(parseBrokerAddress(first))
    this.learn(proven)
    for (const entry of this.#entries.values()) entry.isProven ||= entry.isNamed
  }

  get size(): number {
    return this.#entries.size
  }

  /** At how many the last attempt failed. */
  get failing(): number {
    return this.#texts(({ failures }) => failures > 0).length
  }

  /** Named addresses that a connection has worked to. */
  get proven(): readonly string[] {
    return this.#texts(({ isNamed, isProven }) => isNamed && isProven)
  }

  /** All that are called, host:port. */
  get all(): readonly string[] {
    return this.#texts(() => true)
  }

  /** Whether these are its own addresses. Throws BrokerAddressError. */
  has(own: readonly string[]): boolean {
    const given = new Set(own.map((text) => formatBrokerAddress(parseBrokerAddress(text))))
    const known = this.#texts(({ isOwn }) => isOwn)
    return given.size === known.length && known.every((text) => given.has(text))
  }

  /** The address for the next connection. */
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

  /** A connection to it was made, by TLS and under the clusterset's authority. */
  worked(address: BrokerAddress): void {
    const entry = this.#entries.get(formatBrokerAddress(address))
    if (entry === undefined) return
    entry.isProven = true
    entry.failures = 0
    entry.restsUntilMs = 0
    this.#isCareful = false
  }

  /** Nobody answered there, or not as a broker does. */
  failed(address: BrokerAddress): void {
    this.#isCareful = true
    const entry = this.#entries.get(formatBrokerAddress(address))
    if (entry === undefined) return
    entry.failures += 1
    this.#rest(entry, Math.min(MAX_REST_MS, REST_MS * entry.failures ** 2))
  }

  /** A connection that had worked is over: its broker may be about to stop, or has sent this member elsewhere. */
  ended(address: BrokerAddress): void {
    const entry = this.#entries.get(formatBrokerAddress(address))
    if (entry !== undefined) this.#rest(entry, REST_MS)
  }

  /**
   * A broker's own list, of whatever length and content. What is no address is left out; a list without any changes
   * nothing.
   */
  learn(texts: readonly string[]): void {
    const named = new Map(brokerAddresses(texts).map((address) => [formatBrokerAddress(address), address] as const))
    if (named.size === 0) return
    for (const [text, entry] of this.#entries) {
      entry.isNamed = named.has(text)
      // What is in use must not make way before something else has worked.
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

  /** Best first. */
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

  /** Proven ones that no list names any more go, the oldest first, beyond a bound. */
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

/** Those of the first sixteen that are addresses. */
export function brokerAddresses(texts: readonly unknown[]): readonly BrokerAddress[] {
  return texts.slice(0, MAX_NAMED_ADDRESSES).flatMap((text) => {
    try {
      return typeof text === 'string' ? [parseBrokerAddress(text)] : []
    } catch {
      return []
    }
  })
}
