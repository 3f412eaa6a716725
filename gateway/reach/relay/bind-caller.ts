/**
 * The end of a link that wants a relay: asks it for the port of the pair, binds this end's address there, and keeps the
 * binding. A state machine without a socket; the socket must share the port of the link's device (plan-shared-port.ts).
 *
 *   asking ──assigned──► binding ──bound──► bound ──no answer for the lifetime──► asking
 *     ▲ └──────refused, wrong port─────┘ │
 *     └──────── refused, after a pause ──┘
 */
import { type AddressPort, formatAddressPort, sameAddressPort } from '../../../model/addresses/addresses.ts'
import {
  type BindAnswer,
  NO_COOKIE,
  type NatMapping,
  type Refusal,
  type SeenFarEnd,
  decodeAnswer,
  encodeQuestion,
  namedQuestion,
} from '../frames/bind-frame.ts'

export interface BindCallerInit {
  /** endId() of this end and of the far one. */
  readonly from: string
  readonly to: string
  /** bindKey() of this end and the relay. */
  readonly key: Buffer
  /** Where the relay takes questions about new pairs. */
  readonly relay: AddressPort
}

/** The far end as the relay sees it. */
export interface FarEndSeen {
  readonly at: AddressPort
  /** What the far end knows of the NAT in front of it. */
  readonly mapping: NatMapping
  /** Since when both ends are bound where they are now, in milliseconds of the monotonic clock. Undefined: for too long. */
  readonly sharedSinceMs: number | undefined
  /** It was bound there before this end. */
  readonly wasThere: boolean
}

export type CallerState =
  | { readonly is: 'asking' }
  /** The pair has a port. */
  | { readonly is: 'binding'; readonly port: number }
  /** Packets sent to `at` get to the far end, once that is bound too. */
  | {
      readonly is: 'bound'
      readonly port: number
      readonly at: AddressPort
      /** Where the relay sees this end. */
      readonly seen: AddressPort
      /** Undefined: the far end is not bound. */
      readonly far: FarEndSeen | undefined
      readonly untilMs: number
    }
  | { readonly is: 'refused'; readonly why: Refusal; readonly untilMs: number }

interface OpenQuestion {
  readonly counter: number
  /** In milliseconds of the monotonic clock. */
  readonly sentMs: number
}

/** A question that gets no answer is repeated after this time, then after twice the time, up to the longest. */
const FIRST_WAIT_MS = 250
const LONGEST_WAIT_MS = 4000
/** How often a binding is renewed. Three questions may get lost before it ends. NATs forget after 30 s or more. */
const RENEW_MS = 8000
/** While the far end is not bound, or has just been, so that what is known of it is seen soon. */
const RENEW_SOON_MS = 1000
/** The first pauses while the far end is not bound. */
const LONELY_MS = [150, 250, 500]
const JUST_SHARED_MS = 2000
/** A binding counts for so long at least, or a relay that lets it end at once would be asked as often as packets travel. */
const SHORTEST_LIFE_MS = 3 * RENEW_SOON_MS
/**
 * An end whose link does not work asks before its time, but no more often than so many times in a minute: the far end may
 * be the one at fault, and some of the first silences are none.
 */
const RENEWALS_A_MINUTE = 4
const REFUSED_MS = 10_000
/**
 * A relay may learn of a new far end, or of a new topology, a moment after this end: the first pause, which doubles up
 * to the longest one.
 */
const NOT_ALLOWED_MS = 200
/** So many questions without an answer, and the relay is asked again for the port: it may have been started again. */
const UNANSWERED = 4
/** Answers that make this end ask again at once. More of them in a row are those of a relay that is not well. */
const MOST_AT_ONCE = 8

export class BindCaller {
  readonly #init: BindCallerInit
  #state: CallerState = { is: 'asking' }
  #cookie = NO_COOKIE
  #counter = 0
  #waitMs = FIRST_WAIT_MS
  #dueMs = -Infinity
  #unanswered = 0
  #open: readonly OpenQuestion[] = []
  /** When this end has asked before its time in the last minute. */
  #renewals: readonly number[] = []
  #atOnce = 0
  #notAllowed = 0
  #answers = 0
  /** How often in a row the far end was not bound. */
  #lonely = 0
  #rttMs: number | undefined

  constructor(init: BindCallerInit) {
    this.#init = init
  }

  get state(): CallerState {
    return this.#state
  }

  /** From the last question that was answered to its answer, in milliseconds. Undefined: none was answered yet. */
  get rttMs(): number | undefined {
    return this.#rttMs
  }

  /** A question has been sent. */
  get hasAsked(): boolean {
    return this.#counter > 0
  }

  /** How many questions have been answered. */
  get answers(): number {
    return this.#answers
  }

  /** When next() should be called again, in milliseconds of the monotonic clock. */
  get dueMs(): number {
    return this.#dueMs
  }

  /** The relay will challenge the next question: it has not proven this end at its port yet. */
  get isUnproven(): boolean {
    return this.#cookie === NO_COOKIE
  }

  /** Since when a question to be challenged has no answer, in milliseconds of the monotonic clock. Undefined: none has. */
  get unprovenSinceMs(): number | undefined {
    return this.isUnproven && this.#unanswered > 0 ? this.#open.at(-1)?.sentMs : undefined
  }

  /** Lets go of a binding, or a refusal, that is over. next() does so as well. */
  look(monotonicMs: number): void {
    const state = this.#state
    const isOver = (state.is === 'bound' || state.is === 'refused') && monotonicMs >= state.untilMs
    const isSilent = state.is !== 'asking' && this.#unanswered >= UNANSWERED && monotonicMs >= this.#dueMs
    if (isOver || isSilent) this.#enter({ is: 'asking' }, monotonicMs)
  }

  /**
   * The question to send now; undefined if none is due. `wallMs` is the time of day: counters begin there, so that those
   * of an earlier run of this process are smaller. A clock that went back costs one question.
   */
  next(
    monotonicMs: number,
    wallMs: number,
    mapping: NatMapping = 'unknown',
  ): { readonly bytes: Buffer; readonly to: AddressPort } | undefined {
    this.look(monotonicMs)
    if (monotonicMs < this.#dueMs) return undefined
    this.#unanswered += 1
    this.#counter = Math.max(this.#counter + 1, Math.floor(wallMs))
    this.#open = [...this.#open, { counter: this.#counter, sentMs: monotonicMs }].slice(-UNANSWERED)
    this.#dueMs = monotonicMs + this.#waitMs
    this.#waitMs = Math.min(LONGEST_WAIT_MS, 2 * this.#waitMs)
    const { from, to, key, relay } = this.#init
    const bytes = encodeQuestion({ from, to, counter: this.#counter, cookie: this.#cookie, mapping }, key)
    return { bytes, to: { address: relay.address, port: this.#port } }
  }

  /**
   * The link does not work through the relay. A NAT may have given this end another place since the last question, and
   * the relay forwards nothing to or from it before it has been asked from there.
   */
  renew(nowMs: number): void {
    if (this.#state.is !== 'bound' || this.#open.length > 0 || this.#dueMs <= nowMs) return
    const recent = this.#renewals.filter((ms) => nowMs - ms < 60_000)
    if (recent.length >= RENEWALS_A_MINUTE) return
    this.#renewals = [...recent, nowMs]
    this.#dueMs = nowMs
  }

  /** The socket was not open yet when this end asked last, so the relay has not got the question: it is due again. */
  notSent(nowMs: number): void {
    if (this.#open.length === 0) return
    this.#open = []
    this.#unanswered = 0
    this.#waitMs = this.#firstWaitMs()
    this.#dueMs = nowMs
  }

  /**
   * Takes a message. Returns true if the state has changed. Messages of others, and old ones, are ignored. One question
   * may be repeated before its answer is here, so the answer to each of the last ones counts, and only the first of all:
   * whoever sent one again and again could otherwise put off the next question until the relay forgets.
   */
  take(bytes: Buffer, from: AddressPort, monotonicMs: number): boolean {
    const { relay, key, from: own, to } = this.#init
    if (!sameAddressPort(from, { address: relay.address, port: this.#port })) return false
    // What is cheap comes first: anyone can send octets of this form.
    const named = namedQuestion(bytes)
    if (named?.from !== own || named.to !== to) return false
    const question = this.#open.find(({ counter }) => counter === named.counter)
    const answer = question && decodeAnswer(bytes, key)
    if (question === undefined || answer === undefined) return false
    const before = this.#state
    this.#rttMs = Math.max(0, monotonicMs - question.sentMs)
    this.#open = []
    this.#unanswered = 0
    this.#answers += 1
    this.#takeAnswer(answer, monotonicMs)
    return JSON.stringify(summary(before)) !== JSON.stringify(summary(this.#state))
  }

  get #port(): number {
    return this.#state.is === 'binding' || this.#state.is === 'bound' ? this.#state.port : this.#init.relay.port
  }

  #takeAnswer(answer: BindAnswer, nowMs: number): void {
    switch (answer.type) {
      case 'challenge':
        this.#cookie = answer.cookie
        this.#askAtOnce(nowMs)
        return
      case 'assigned':
        if (this.#state.is === 'asking') this.#enter({ is: 'binding', port: answer.port }, nowMs)
        return
      case 'bound': {
        const { port, seen, far, cookie } = answer
        if (port !== this.#port) return
        const lifeMs = Math.max(SHORTEST_LIFE_MS, answer.lifeMs)
        this.#cookie = cookie
        const at = { address: this.#init.relay.address, port }
        const farSeen = far && {
          ...{ at: far.at, mapping: far.mapping },
          ...{ sharedSinceMs: this.#sharedSince(far, nowMs), wasThere: this.#wasThere() },
        }
        this.#state = { is: 'bound', port, at, seen, far: farSeen, untilMs: nowMs + lifeMs }
        this.#waitMs = this.#firstWaitMs()
        this.#atOnce = 0
        this.#notAllowed = 0
        this.#lonely = far === undefined ? this.#lonely + 1 : 0
        this.#dueMs = nowMs + this.#renewsAfterMs(far, lifeMs)
        return
      }
      case 'refused':
        this.#refused(answer.why, answer.newest, nowMs)
    }
  }

  #renewsAfterMs(far: SeenFarEnd | undefined, lifeMs: number): number {
    // Usually the far end is about to be bound as well.
    if (far === undefined) return LONELY_MS[this.#lonely - 1] ?? RENEW_SOON_MS
    return (far.sharedMs ?? Infinity) < JUST_SHARED_MS ? RENEW_SOON_MS : Math.min(RENEW_MS, lifeMs / 3)
  }

  /** A time without a bound says nothing of when both try. What was known of the same place before still holds. */
  #sharedSince({ at, sharedMs }: SeenFarEnd, nowMs: number): number | undefined {
    if (sharedMs !== undefined) return nowMs - sharedMs
    const known = this.#state.is === 'bound' ? this.#state.far : undefined
    return known !== undefined && sameAddressPort(known.at, at) ? known.sharedSinceMs : undefined
  }

  /** Whether the far end was bound before this one: no answer since this end asked has lacked it. */
  #wasThere(): boolean {
    return this.#lonely === 0 && (this.#state.is !== 'bound' || this.#state.far?.wasThere === true)
  }

  #refused(why: Refusal, newest: number, nowMs: number): void {
    switch (why) {
      case 'stale':
        // The clock of this node has gone back, or the relay has seen another run of this process.
        this.#counter = Math.max(this.#counter, newest)
        this.#askAtOnce(nowMs)
        return
      case 'wrongPort':
        // The relay has given the port of the pair to another one, for example after a restart.
        this.#enter({ is: 'asking' }, nowMs)
        return
      case 'notAllowed':
        this.#pause(why, Math.min(REFUSED_MS, NOT_ALLOWED_MS * 2 ** this.#notAllowed++), nowMs)
        return
      case 'full':
      case 'memberFull':
      case 'quotaSpent':
      case 'sameAddress':
        this.#pause(why, REFUSED_MS, nowMs)
    }
  }

  #pause(why: Refusal, ms: number, nowMs: number): void {
    this.#enter({ is: 'refused', why, untilMs: nowMs + ms }, nowMs)
    this.#atOnce = 0
    this.#dueMs = nowMs + ms
  }

  /** A cookie is valid for one port of the relay. */
  #enter(state: CallerState, nowMs: number): void {
    this.#state = state
    if (state.is === 'asking') this.#lonely = 0
    this.#cookie = NO_COOKIE
    this.#unanswered = 0
    this.#open = []
    this.#askAtOnce(nowMs)
  }

  /** A relay that never comes to an end must not make this end ask as often as packets travel. */
  #askAtOnce(nowMs: number): void {
    this.#atOnce += 1
    if (this.#atOnce > MOST_AT_ONCE) return
    this.#waitMs = this.#firstWaitMs()
    this.#dueMs = nowMs
  }

  /** A relay that is known to answer late is given the time, as it answers questions without a cookie seldom. */
  #firstWaitMs(): number {
    return Math.min(LONGEST_WAIT_MS, Math.max(FIRST_WAIT_MS, 2 * (this.#rttMs ?? 0)))
  }
}

/** What a change of state is, for those who look at it: not the time that is left. */
function summary(state: CallerState): unknown {
  if (state.is !== 'bound') return { ...state, untilMs: 0 }
  const { at, seen, far } = state
  const farText = far === undefined ? '' : `${formatAddressPort(far.at)} ${far.mapping}`
  return { ...state, at: formatAddressPort(at), seen: formatAddressPort(seen), far: farText, untilMs: 0 }
}
