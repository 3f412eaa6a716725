/**
 * One measurement of one wait: does an answer of a relay that comes after this time without packets still get through
 * the NAT in front of this node? A state machine without a socket; each has a port of its own, which nothing else uses.
 *
 *   asking ──held──► waiting ──the late answer──────────────► over: answered
 *      │                │ └────nothing in time──────────────► over: silent
 *      │                └──────any other packet, too early──► over: spoilt
 *      └──no answer, or no room─────────────────────────────► over: unserved
 *
 * A relay that lies can make a wait seem answered or silent, so the result never counts for more than how often this
 * node sends keepalives.
 */
import { type AddressPort, sameAddressPort } from '../../../model/addresses/addresses.ts'
import { NO_COOKIE, decodeAnswer } from './bind-frame.ts'
import { decodeHoldAnswer, encodeHold } from './hold-frame.ts'

export interface HoldCallerInit {
  /** endId() of this end, and of the relay. */
  readonly from: string
  readonly to: string
  /** bindKey() of this end and the relay. */
  readonly key: Buffer
  /** The control port of the relay. */
  readonly relay: AddressPort
  /** How long the relay is to wait, in milliseconds. */
  readonly waitMs: number
  /** Gives a counter that is greater than all before: one of them for all questions to a relay. */
  readonly nextCounter: () => number
}

export type HoldResult = 'answered' | 'silent' | 'spoilt' | 'unserved'

export type HoldState =
  | { readonly is: 'asking' }
  /** `seen`: where the relay sees the port. */
  | { readonly is: 'waiting'; readonly sinceMs: number; readonly counter: number; readonly seen: AddressPort }
  /** `seen` is absent if the relay did not say it. */
  | { readonly is: 'over'; readonly result: HoldResult; readonly seen?: AddressPort }

const ASK_AGAIN_MS = 1000
/** Including the one after the challenge. */
const MOST_QUESTIONS = 6
/** An answer that comes so much before its time came by a quicker way than the one before. */
const EARLY_MS = 500
/** So long after its time an answer is not waited for any more. */
const LATE_MS = 4000

export class HoldCaller {
  readonly #init: HoldCallerInit
  #state: HoldState = { is: 'asking' }
  #cookie = NO_COOKIE
  #counter = -1
  #asked = 0
  #dueMs = -Infinity

  constructor(init: HoldCallerInit) {
    this.#init = init
  }

  get state(): HoldState {
    return this.#state
  }

  /** When next() should be called again, in milliseconds of the monotonic clock. */
  get dueMs(): number {
    return this.#dueMs
  }

  /** The question to send now. Undefined: none. */
  next(nowMs: number): Buffer | undefined {
    if (nowMs < this.#dueMs) return undefined
    const { from, to, key, waitMs, nextCounter } = this.#init
    switch (this.#state.is) {
      case 'over':
        return undefined
      case 'waiting':
        this.#end('silent', this.#state.seen)
        return undefined
      case 'asking':
        if (this.#asked >= MOST_QUESTIONS) {
          this.#end('unserved')
          return undefined
        }
        this.#asked += 1
        this.#dueMs = nowMs + ASK_AGAIN_MS
        this.#counter = nextCounter()
        return encodeHold({ from, to, counter: this.#counter, cookie: this.#cookie, waitMs }, key)
    }
  }

  /** Takes a packet that has come to the port. */
  take(bytes: Buffer, from: AddressPort, nowMs: number): void {
    const state = this.#state
    if (state.is === 'over') return
    if (state.is === 'asking') this.#takeAnswer(bytes, from, nowMs)
    else this.#end(this.#isLate(bytes, from, state.counter, nowMs - state.sinceMs) ? 'answered' : 'spoilt', state.seen)
  }

  #takeAnswer(bytes: Buffer, from: AddressPort, nowMs: number): void {
    const { relay, key, from: own, to, waitMs } = this.#init
    if (!sameAddressPort(from, relay)) return
    const challenge = decodeAnswer(bytes, key)
    const answer = decodeHoldAnswer(bytes, key)
    const head = challenge ?? answer
    if (head?.from !== own || head.to !== to || head.counter !== this.#counter) return
    if (challenge?.type === 'challenge') {
      this.#cookie = challenge.cookie
      this.#dueMs = nowMs
    }
    if (answer?.type === 'full') this.#end('unserved', answer.seen)
    if (answer?.type !== 'held' || answer.waitMs !== waitMs) return
    this.#state = { is: 'waiting', sinceMs: nowMs, counter: answer.counter, seen: answer.seen }
    this.#dueMs = nowMs + waitMs + LATE_MS
  }

  /** Any other packet may have made the NAT keep the mapping for longer. */
  #isLate(bytes: Buffer, from: AddressPort, counter: number, sinceMs: number): boolean {
    const { relay, key, from: own, to, waitMs } = this.#init
    const answer = sameAddressPort(from, relay) ? decodeHoldAnswer(bytes, key) : undefined
    const isMine = answer?.from === own && answer.to === to && answer.counter === counter
    return isMine && answer.type === 'late' && sinceMs >= waitMs - EARLY_MS
  }

  #end(result: HoldResult, seen?: AddressPort): void {
    this.#state = { is: 'over', result, ...(seen === undefined ? {} : { seen }) }
    this.#dueMs = Infinity
  }
}
