/**
 * Who may read a console that runs in a cluster: callers whose token a review accepts. Every pod of the cluster reaches
 * its port, so a caller without a token hears nothing, and strangers cannot cause more than a few reviews a second. Each
 * address has its own share of them, because readers come from the addresses of API servers.
 */
import { createHash } from 'node:crypto'
import { type Clock, TokenBucket, type TokenRate } from '../../reconcile/reconcile.ts'
import type { AskedRequest, Reading } from './admission.ts'

/** The API server removes `Authorization` from what it passes on. Another page cannot send this header. */
export const TOKEN_HEADER = 'x-sealane-token'
/** Answers of a console in a cluster have it, so that its 401 and 403 differ from those of the API server. */
export const ANSWER_HEADER = 'x-sealane-console'

export interface ReadersInit {
  readonly clock: Clock
  /** Whether a token states that it is that of a reader. Others are not reviewed. */
  readonly isCandidate: (token: string) => boolean
  /** Whether this token is that of a reader. Rejects if there is no answer. */
  readonly review: (token: string, signal: AbortSignal) => Promise<boolean>
}

/** A token that was accepted is reviewed again after this time: its account may have gone. */
const ACCEPTED_MS = 60_000
const REFUSED_MS = 10_000
const MOST_KNOWN = 256
/** Reviews of tokens that are not known. */
interface ReviewLimits extends TokenRate {
  readonly atOnce: number
}
const OF_ALL: ReviewLimits = { burst: 50, perSecond: 50, atOnce: 16 }
const OF_ONE: ReviewLimits = { burst: 10, perSecond: 10, atOnce: 4 }
const MOST_ADDRESSES = 256
const REVIEW_MS = 5000
/** A JSON Web Token: three parts in base64url. */
const TOKEN = /^[\w-]{1,4096}\.[\w-]{1,4096}\.[\w-]{1,2048}$/

/** The reviews of one address, or of all. */
interface Reviews {
  readonly limits: ReviewLimits
  readonly rate: TokenBucket
  underWay: number
}

interface Known {
  readonly isReader: boolean
  readonly untilMs: number
}

export class Readers {
  readonly #init: ReadersInit
  /** By the hash of the token, oldest first. */
  readonly #known = new Map<string, Known>()
  readonly #underWay = new Map<string, Promise<Reading>>()
  readonly #all: Reviews
  /** The one that was heard of longest ago first. */
  readonly #byAddress = new Map<string, Reviews>()

  constructor(init: ReadersInit) {
    this.#init = init
    this.#all = this.#reviews(OF_ALL)
  }

  /** `address` is the caller's. Never rejects. */
  async read({ headers }: Pick<AskedRequest, 'headers'>, address: string): Promise<Reading> {
    const token = headers[TOKEN_HEADER]
    if (typeof token !== 'string' || !TOKEN.test(token) || !this.#init.isCandidate(token)) return 'stranger'
    const hash = createHash('sha256').update(token).digest('base64')
    const known = this.#known.get(hash)
    const now = this.#init.clock.monotonic()
    if (known !== undefined && now < known.untilMs) return known.isReader ? 'reader' : 'stranger'
    const before = this.#underWay.get(hash)
    if (before !== undefined) return before
    // A reader of a moment ago goes before strangers.
    const isRenewal = known?.isReader === true
    const shares = [this.#all, this.#of(address)]
    if (!isRenewal && shares.some(isUsedUp)) return 'busy'
    for (const share of shares) {
      share.rate.take(1, share.limits, share.limits.burst)
      share.underWay += 1
    }
    const review = this.#review(token, hash).finally(() => {
      for (const share of shares) share.underWay -= 1
      this.#underWay.delete(hash)
    })
    this.#underWay.set(hash, review)
    return review
  }

  #reviews(limits: ReviewLimits): Reviews {
    return { limits, rate: new TokenBucket(this.#init.clock), underWay: 0 }
  }

  #of(address: string): Reviews {
    const found = this.#byAddress.get(address) ?? this.#reviews(OF_ONE)
    this.#byAddress.delete(address)
    this.#byAddress.set(address, found)
    const [oldest] = this.#byAddress.keys()
    if (this.#byAddress.size > MOST_ADDRESSES && oldest !== undefined) this.#byAddress.delete(oldest)
    return found
  }

  async #review(token: string, hash: string): Promise<Reading> {
    const { clock, review } = this.#init
    const late = new AbortController()
    const cancel = clock.setTimer(REVIEW_MS, () => late.abort(new Error('no answer')))
    try {
      const isReader = await review(token, late.signal)
      this.#remember(hash, { isReader, untilMs: clock.monotonic() + (isReader ? ACCEPTED_MS : REFUSED_MS) })
      return isReader ? 'reader' : 'stranger'
    } catch {
      return 'busy'
    } finally {
      cancel()
    }
  }

  /** Strangers are forgotten first: they must not drive out readers. */
  #remember(hash: string, known: Known): void {
    this.#known.delete(hash)
    if (this.#known.size >= MOST_KNOWN) {
      const [stranger] = [...this.#known].find(([, { isReader }]) => !isReader) ?? [...this.#known][0] ?? []
      if (stranger !== undefined) this.#known.delete(stranger)
    }
    this.#known.set(hash, known)
  }
}

function isUsedUp({ limits, rate, underWay }: Reviews): boolean {
  return underWay >= limits.atOnce || !rate.canTake(1, limits)
}
