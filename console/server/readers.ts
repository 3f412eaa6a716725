/**
 * Who may read a console that runs in a cluster: callers whose token a review accepts. Every pod of the cluster reaches
 * its port, so a caller without a token hears nothing, and strangers cannot cause more than a few reviews a second.
 */
import { createHash } from 'node:crypto'
import { type Clock, TokenBucket } from '../../reconcile/reconcile.ts'
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
/** Reviews of tokens that are not known, of all callers together. */
const MOST_REVIEWS = 4
const REVIEW_RATE = { burst: 10, perSecond: 20 }
const REVIEW_MS = 5000
/** A JSON Web Token: three parts in base64url. */
const TOKEN = /^[\w-]{1,4096}\.[\w-]{1,4096}\.[\w-]{1,2048}$/

interface Known {
  readonly isReader: boolean
  readonly untilMs: number
}

export class Readers {
  readonly #init: ReadersInit
  /** By the hash of the token, oldest first. */
  readonly #known = new Map<string, Known>()
  readonly #underWay = new Map<string, Promise<Reading>>()
  readonly #rate: TokenBucket

  constructor(init: ReadersInit) {
    this.#init = init
    this.#rate = new TokenBucket(init.clock)
  }

  /** Never rejects. */
  async read({ headers }: Pick<AskedRequest, 'headers'>): Promise<Reading> {
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
    const isTooMuch = this.#underWay.size >= MOST_REVIEWS || !this.#rate.canTake(1, REVIEW_RATE)
    if (!isRenewal && isTooMuch) return 'busy'
    this.#rate.take(1, REVIEW_RATE, REVIEW_RATE.burst)
    const review = this.#review(token, hash).finally(() => this.#underWay.delete(hash))
    this.#underWay.set(hash, review)
    return review
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
