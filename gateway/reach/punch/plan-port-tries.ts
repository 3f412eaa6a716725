/**
 * Ports that are guessed between a NAT that maps each destination (the end behind it opens) and one that maps alike and
 * lets in known places only (the end behind that guesses). Pure.
 *
 *   opens: HOLES sockets send to the far end's place, so its NAT has a port at random for each of them
 *   guesses: sends to GUESSES ports at random; one that is among those of the far end opens its own NAT for that port
 *
 * The chance that one guess is right is HOLES of 64,512: after 1,024 guesses one was, with 98 of 100.
 */
import { type Address, type AddressPort, formatAddress } from '../../../model/addresses/addresses.ts'
import type { NatMapping } from '../frames/bind-frame.ts'

export const HOLES = 256
/** Packets to guessed ports of one address in TRIES_APART_MS, as long as nothing answers there. */
export const GUESSES = 2048
/** The NATs of both ends, and what is on the way, get so many packets at once, and none in the time after that. */
export const BATCH = 20
export const BATCH_MS = 200
/** How long ports are guessed, and stay open for that: a NAT keeps an unanswered mapping for 30 s or more. */
export const ATTEMPT_MS = (GUESSES / BATCH) * BATCH_MS + 2000
/** Between the first two attempts for a link that found nothing. Each pause is twice as long, up to the longest. */
export const TRIES_APART_MS = 600_000
export const LONGEST_TRIES_APART_MS = 3_600_000
/**
 * After guesses that found nothing no others are made for so long: a small router has room for few thousand mappings, and
 * keeps those without an answer.
 */
export const REST_MS = 30_000

/** The pause after so many attempts in a row that found nothing. */
export function attemptsApartMs(count: number): number {
  return Math.min(TRIES_APART_MS * 2 ** (count - 1), LONGEST_TRIES_APART_MS)
}

export interface Ports {
  readonly first: number
  readonly last: number
}

/** The ports that NATs give (RFC 4787 section 4.2.1 keeps those below for themselves). */
export const NAT_PORTS: Ports = { first: 1024, last: 65_535 }
/** The own ports that are opened: those that no service is registered for (RFC 6335 section 6). */
export const OWN_PORTS: Ports = { first: 49_152, last: 65_535 }

export type PortRole = 'opens' | 'guesses'

/** Undefined: ports are not guessed. */
export function portRole({ own, far }: Record<'own' | 'far', NatMapping>): PortRole | undefined {
  if (own === 'addressDependent' && far === 'endpointIndependent') return 'opens'
  if (own === 'endpointIndependent' && far === 'addressDependent') return 'guesses'
  return undefined
}

/** A whole number from 0 that is less than `below`, each as likely as the others. */
export type Random = (below: number) => number

/** Each port once, in an order that `random` draws. */
export function* portsAtRandom({ first, last }: Ports, random: Random): Generator<number, undefined> {
  const count = last - first + 1
  // What Fisher and Yates would have moved to these places.
  const moved = new Map<number, number>()
  for (let i = 0; i < count; i += 1) {
    const j = i + random(count - i)
    const drawn = moved.get(j) ?? j
    moved.set(j, moved.get(i) ?? i)
    moved.delete(i)
    yield first + drawn
  }
  return undefined
}

/** Says how many of `count` are due: at most BATCH at once, and none for BATCH_MS after that, however late it is. */
export class Batches {
  #left: number
  #dueMs: number

  constructor(count: number, nowMs: number) {
    this.#left = count
    this.#dueMs = nowMs
  }

  /** Infinity: nothing is left. */
  get dueMs(): number {
    return this.#left === 0 ? Infinity : this.#dueMs
  }

  next(nowMs: number): number {
    if (nowMs < this.dueMs) return 0
    const count = Math.min(BATCH, this.#left)
    this.#left -= count
    this.#dueMs = nowMs + BATCH_MS
    return count
  }
}

const MOST_ADDRESSES = 256

/** Addresses of far ends get GUESSES packets in TRIES_APART_MS, from all links of this node and for both roles. */
export class GuessBudget {
  readonly #guessed = new Map<string, { count: number; readonly sinceMs: number }>()

  /** How many packets the address may still get. */
  left(address: Address, nowMs: number): number {
    for (const [key, { sinceMs }] of this.#guessed) if (nowMs - sinceMs >= TRIES_APART_MS) this.#guessed.delete(key)
    const known = this.#guessed.get(formatAddress(address))
    if (known === undefined) return this.#guessed.size < MOST_ADDRESSES ? GUESSES : 0
    return GUESSES - known.count
  }

  /** Takes up to `count` packets. Returns how many the address gets. */
  take(address: Address, count: number, nowMs: number): number {
    const taken = Math.min(count, this.left(address, nowMs))
    if (taken === 0) return 0
    const known = this.#guessed.get(formatAddress(address)) ?? { count: 0, sinceMs: nowMs }
    known.count += taken
    this.#guessed.set(formatAddress(address), known)
    return taken
  }

  /** The far end has answered there. */
  answered(address: Address): void {
    this.#guessed.delete(formatAddress(address))
  }
}

export interface PortGuessesInit {
  readonly address: Address
  readonly budget: GuessBudget
  readonly random: Random
  readonly nowMs: number
}

/** The places of one address at which a far end is guessed. */
export class PortGuesses {
  readonly address: Address
  readonly untilMs: number
  readonly #budget: GuessBudget
  readonly #ports: Generator<number, undefined>
  readonly #batches: Batches

  constructor({ address, budget, random, nowMs }: PortGuessesInit) {
    this.address = address
    this.untilMs = nowMs + ATTEMPT_MS
    this.#budget = budget
    this.#ports = portsAtRandom(NAT_PORTS, random)
    this.#batches = new Batches(GUESSES, nowMs)
  }

  get dueMs(): number {
    return this.#batches.dueMs
  }

  next(nowMs: number): readonly AddressPort[] {
    const count = this.#budget.take(this.address, this.#batches.next(nowMs), nowMs)
    return Array.from({ length: count }, () => this.#ports.next().value).flatMap((port) => {
      return port === undefined ? [] : [{ address: this.address, port }]
    })
  }

  answered(): void {
    this.#budget.answered(this.address)
  }
}
