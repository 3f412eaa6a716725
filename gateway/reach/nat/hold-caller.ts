/**
 * One measurement of one wait: does an answer of a relay that comes after this time without packets still get through
 * the NAT in front of this node? A state machine without a socket; each has a port of its own, which nothing else uses.
 *
 *   asking ──held──► settling ──after 2.5 s──► asking ──held──► waiting ──the late answer──────────────► over: answered
 *      │                                         │                │ └────nothing in time──────────────► over: silent
 *      │                                         │                └──────any other packet, too early──► over: spoilt
 *      └─────────────no answer, or no room───────┴─────────────────────────────────────────────────────► over: unserved
 *
 * Linux keeps a mapping that is older than 2 s for longer than one of which all packets passed at its very beginning
 * (nf_conntrack_udp_timeout_stream, nf_conntrack_udp_timeout). Links have mappings that are older, so the wait counts
 * from a second question. The relay forgets the wait of the first one, which came from the same port.
 *
 * A relay that lies can make a wait seem answered or silent, so the result never counts for more than how often this
 * node sends keepalives.
 */
import { type AddressPort, sameAddressPort } from '../../../model/addresses/addresses.ts'
import { NO_COOKIE, decodeAnswer } from '../frames/bind-frame.ts'
import { decodeHoldAnswer, encodeHold } from '../frames/hold-frame.ts'

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
  /** Gives a counter that is greater than all before, and than `newest`: one of them for all questions to a relay. */
  readonly nextCounter: (newest: number) => number
}

export type HoldResult = 'answered' | 'silent' | 'spoilt' | 'unserved'

export type HoldState =
  | { readonly is: 'asking' }
  /** The first question is answered, and the mapping gets older. */
  | { readonly is: 'settling' }
  /** `seen`: where the relay sees the port. */
  | { readonly is: 'waiting'; readonly sinceMs: number; readonly counter: number; readonly seen: AddressPort }
  /** `seen` is absent if the relay did not say it. */
  | { readonly is: 'over'; readonly result: HoldResult; readonly seen?: AddressPort }

const ASK_AGAIN_MS = 1000
/** Including the one after the challenge. */
const MOST_QUESTIONS = 6
/** After so long the first question is asked again. */
export const SETTLES_MS = 2500
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
  #isSettled = false
  /** The greatest counter that the relay says it has had. */
  #newest = -1
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
      case 'settling':
        this.#isSettled = true
        this.#asked = 0
        this.#state = { is: 'asking' }
        return this.next(nowMs)
      case 'asking':
        if (this.#asked >= MOST_QUESTIONS) {
          this.#end('unserved')
          return undefined
        }
        this.#asked += 1
        this.#dueMs = nowMs + ASK_AGAIN_MS
        this.#counter = nextCounter(this.#newest)
        return encodeHold({ from, to, counter: this.#counter, cookie: this.#cookie, waitMs }, key)
    }
  }

  /** Takes a packet that has come to the port. */
  take(bytes: Buffer, from: AddressPort, nowMs: number): void {
    const state = this.#state
    if (state.is === 'asking') this.#takeAnswer(bytes, from, nowMs)
    if (state.is === 'waiting')
      this.#end(this.#isLate(bytes, from, state.counter, nowMs - state.sinceMs) ? 'answered' : 'spoilt', state.seen)
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
    if (answer?.type === 'stale') {
      // The clock of this node has gone back, or another run of this process has asked.
      this.#newest = Math.max(this.#newest, answer.newest ?? -1)
      this.#dueMs = nowMs
    }
    if (answer?.type !== 'held' || answer.waitMs !== waitMs) return
    if (!this.#isSettled) {
      this.#state = { is: 'settling' }
      this.#dueMs = nowMs + SETTLES_MS
      return
    }
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
