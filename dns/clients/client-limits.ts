/**
 * Token buckets in a table of fixed size. Each hash has four slots. A new key replaces the one of them that has not
 * been used for longest. A bucket that is created again starts full.
 */
import { randomInt } from 'node:crypto'

export interface BucketInit {
  /** Maximum number of buckets; a power of two. */
  readonly places: number
  /** Tokens added per second. */
  readonly perSecond: number
  /** Maximum number of tokens, which can be taken at once after a pause. */
  readonly burst: number
}

const WAYS = 4

export class TokenBuckets {
  readonly #init: BucketInit
  readonly #sets: number
  readonly #keys: Uint32Array
  readonly #tokens: Float32Array
  /** Time in milliseconds of the last token count; below 0 for a slot that was never used. */
  readonly #counted: Float64Array

  constructor(init: BucketInit) {
    this.#init = init
    this.#sets = init.places / WAYS
    this.#keys = new Uint32Array(init.places)
    this.#tokens = new Float32Array(init.places)
    this.#counted = new Float64Array(init.places).fill(-1)
  }

  /**
   * Takes one token from the bucket `key`, a number of 32 bits. Returns false if it has none. `nowMs` must not go back.
   */
  take(key: number, nowMs: number): boolean {
    const { perSecond, burst } = this.#init
    const at = this.#find(key)
    const counted = this.#counted[at] ?? -1
    const isNew = counted < 0 || this.#keys[at] !== key
    const grown = isNew ? burst : (this.#tokens[at] ?? 0) + ((nowMs - counted) * perSecond) / 1000
    const tokens = Math.min(burst, grown)
    this.#keys[at] = key
    this.#counted[at] = nowMs
    this.#tokens[at] = tokens < 1 ? tokens : tokens - 1
    return tokens >= 1
  }

  /** Returns the slot of the key, or the slot that the key may take. */
  #find(key: number): number {
    const first = (mixed(key, 0, 0, 0) & (this.#sets - 1)) * WAYS
    let oldest = first
    for (let at = first; at < first + WAYS; at += 1) {
      if (this.#keys[at] === key && (this.#counted[at] ?? -1) >= 0) return at
      if ((this.#counted[at] ?? 0) < (this.#counted[oldest] ?? 0)) oldest = at
    }
    return oldest
  }
}

/** Random for each process, so that no client can tell which keys share a slot. */
const SEED = randomInt(2 ** 32)

/**
 * Hashes four numbers to 32 bits, unsigned. Not for secrets. Applies the last step of MurmurHash3 after each number.
 */
export function mixed(a: number, b: number, c: number, d: number): number {
  return step(step(step(step(SEED, a), b), c), d)
}

/** Hashes a short text in the same way. */
export function textHash(text: string): number {
  let hash = SEED
  for (let i = 0; i < text.length; i += 1) hash = step(hash, text.charCodeAt(i))
  return hash
}

function step(hash: number, word: number): number {
  let next = hash ^ word
  next = Math.imul(next ^ (next >>> 16), 0x85eb_ca6b)
  next = Math.imul(next ^ (next >>> 13), 0xc2b2_ae35)
  return (next ^ (next >>> 16)) >>> 0
}

/**
 * Slots that several clients share. Each client may hold as many as are still free: one client alone gets at most half
 * of them, and a new client gets one as long as any is free. Only clients that hold a slot are stored.
 */
export class Places {
  readonly #most: number
  readonly #taken = new Map<string, number>()
  #all = 0

  constructor(most: number) {
    this.#most = most
  }

  /** Number of slots that are taken. */
  get size(): number {
    return this.#all
  }

  /** Returns `taken` if all slots are taken, `own` if the client has its share. */
  refuses(client: string): 'taken' | 'own' | undefined {
    const free = this.#most - this.#all
    if (free <= 0) return 'taken'
    return (this.#taken.get(client) ?? 0) < free ? undefined : 'own'
  }

  take(client: string): void {
    this.#all += 1
    this.#taken.set(client, (this.#taken.get(client) ?? 0) + 1)
  }

  giveBack(client: string): void {
    const left = (this.#taken.get(client) ?? 0) - 1
    this.#all -= 1
    if (left > 0) this.#taken.set(client, left)
    else this.#taken.delete(client)
  }
}
