/**
 * Tells from its probes whether a far end answers.
 *
 *   connecting ──answer──► up ◄──────────── answers in a row ────────── down
 *                          │ ▲                                           ▲
 *                     miss └─┘ answer                                    │
 *                          └─ enough misses: suspected, ── long silence ─┘
 *                             others carry its traffic
 *                             └─ shorter silence: unanswered, until it has answered for a while
 *
 * connecting: nothing was ever received. No traffic is sent on this path.
 * up: the last answers came in time. Later misses are counted, and after a number of them the far end is suspected:
 * callers that have another path use that. It is not down yet, because a path that suddenly becomes slow is silent for
 * as long as its delay, and must not flap.
 * up and unanswered: it was suspected, missed one more question, and was silent for some time. New connections that may
 * as well go elsewhere do so. That lasts until it has answered for a while without being suspected, so that a path with
 * holes does not move connections to and fro.
 * down: it answered earlier but does not now. Answers are counted, so that a single answer does not bring traffic back
 * to a path that loses most packets.
 *
 * A miss is a question of this process without an answer in the usual time. Questions are counted, not time alone: if
 * this process was delayed, it reads the queued answers before the time of the next question ends. The last miss is
 * withheld while the far kernel may still answer, because until then either the path or only the far process may be
 * silent.
 */
import type { ConnectionState } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { LONGEST_ANSWER_MS, type RoundTrip, answerWaitMs } from './answer-wait.ts'

/** `sinceMs` and `answeredMs` (the last answer) are times of the monotonic clock. */
export type HealthState =
  | { readonly is: 'connecting'; readonly sinceMs: number }
  | {
      readonly is: 'up'
      readonly sinceMs: number
      readonly answeredMs: number
      readonly misses: number
      /** When the first of these misses was. Infinity: there is none. */
      readonly missedMs: number
      /** It is unanswered, and since when it has answered without being suspected: Infinity if it is suspected now. */
      readonly calmSinceMs?: number
    }
  | { readonly is: 'down'; readonly sinceMs: number; readonly answers: number }

type UpState = Extract<HealthState, { is: 'up' }>

export interface PeerHealthDeps {
  readonly clock: Clock
  /** Called synchronously, within the event that caused the transition. */
  readonly onTransition: (from: ConnectionState, to: ConnectionState) => void
  /** Called likewise when a far end that is up becomes suspected, and when it stops being suspected. */
  readonly onSuspect?: (suspected: boolean) => void
  /** Called likewise when one that is up becomes unanswered, and when it stops being so. */
  readonly onUnanswered?: (unanswered: boolean) => void
}

export interface PeerHealthInit {
  /** Consecutive misses until a far end that is up is suspected. */
  readonly missesUntilSuspect: number
  /** Silence in milliseconds until a suspected far end is down. */
  readonly downAfterMs: number
  /**
   * The same until it is unanswered. Absent: it never is. Half of this time comes after the first miss, because where
   * questions are rare, most of the silence is before the question. Without that, a moment would do.
   */
  readonly unansweredAfterMs?: number
  /** How long one that is unanswered has to answer until it no longer is. Absent: at once. */
  readonly calmAfterMs?: number
  readonly answersUntilUp: number
  /** Start as up, without a transition, because an earlier process knew the connection to be up. */
  readonly startsUp?: boolean
}

export class PeerHealth {
  readonly #deps: PeerHealthDeps
  readonly #init: PeerHealthInit
  #state: HealthState

  constructor(deps: PeerHealthDeps, init: PeerHealthInit) {
    this.#deps = deps
    this.#init = init
    const sinceMs = deps.clock.monotonic()
    this.#state = init.startsUp === true ? newlyUp(sinceMs) : { is: 'connecting', sinceMs }
  }

  get state(): HealthState {
    return this.#state
  }

  /** True if the far end is up, but has missed so many questions that traffic should use another path. */
  get suspected(): boolean {
    return this.#state.is === 'up' && this.#state.misses >= this.#init.missesUntilSuspect
  }

  /** True if the far end is up, but new connections should go elsewhere. */
  get unanswered(): boolean {
    return isUnanswered(this.#state)
  }

  /** When it is to be unanswered if it stays silent. Undefined if it is, or if that cannot be. */
  get unansweredAtMs(): number | undefined {
    if (this.#init.unansweredAfterMs === undefined || this.#state.is !== 'up' || this.unanswered) return undefined
    return this.#unansweredAtMs(this.#state)
  }

  onAnswer(): void {
    this.#setState(this.#afterAnswer(this.#state))
  }

  /** `mayYetAnswer`: a TCP probe was also sent, and its answer may still be on the way. */
  onMiss(mayYetAnswer = false): void {
    this.#setState(this.#afterMiss(this.#state, mayYetAnswer))
  }

  #afterAnswer(state: HealthState): HealthState {
    const nowMs = this.#deps.clock.monotonic()
    const up = newlyUp(nowMs)
    switch (state.is) {
      case 'connecting':
        return up
      case 'up':
        return this.#calmed({ ...state, answeredMs: nowMs, misses: 0, missedMs: Infinity })
      case 'down': {
        const answers = state.answers + 1
        return answers < this.#init.answersUntilUp ? { ...state, answers } : up
      }
    }
  }

  #afterMiss(state: HealthState, mayYetAnswer: boolean): HealthState {
    switch (state.is) {
      case 'connecting':
        return state
      case 'up': {
        const { missesUntilSuspect, downAfterMs } = this.#init
        const nowMs = this.#deps.clock.monotonic()
        const missedMs = Math.min(state.missedMs, nowMs)
        if (mayYetAnswer) return { ...state, misses: Math.min(state.misses + 1, missesUntilSuspect - 1), missedMs }
        const misses = state.misses + 1
        const isSuspected = misses >= missesUntilSuspect
        const silentMs = nowMs - state.answeredMs
        if (isSuspected && silentMs >= downAfterMs) return { is: 'down', sinceMs: nowMs, answers: 0 }
        const next = { ...state, misses, missedMs }
        const isAvoided = isUnanswered(state)
          ? isSuspected
          : misses > missesUntilSuspect && nowMs >= this.#unansweredAtMs(next)
        return isAvoided ? { ...next, calmSinceMs: Infinity } : next
      }
      case 'down':
        return { ...state, answers: 0 }
    }
  }

  #unansweredAtMs({ answeredMs, missedMs }: UpState): number {
    const { unansweredAfterMs = Infinity } = this.#init
    return Math.max(answeredMs + unansweredAfterMs, missedMs + unansweredAfterMs / 2)
  }

  /** The state after an answer: one that has answered for long enough is no longer unanswered. */
  #calmed(state: UpState): HealthState {
    const { calmSinceMs, ...rest } = state
    if (calmSinceMs === undefined) return rest
    const sinceMs = Math.min(calmSinceMs, state.answeredMs)
    return state.answeredMs - sinceMs >= (this.#init.calmAfterMs ?? 0) ? rest : { ...rest, calmSinceMs: sinceMs }
  }

  #setState(next: HealthState): void {
    const before = this.#state.is
    const suspectedBefore = this.suspected
    const unansweredBefore = this.unanswered
    this.#state = next
    if (before !== next.is) {
      this.#deps.onTransition(before, next.is)
      return
    }
    if (suspectedBefore !== this.suspected) this.#deps.onSuspect?.(this.suspected)
    if (unansweredBefore !== this.unanswered) this.#deps.onUnanswered?.(this.unanswered)
  }
}

function newlyUp(nowMs: number): UpState {
  return { is: 'up', sinceMs: nowMs, answeredMs: nowMs, misses: 0, missedMs: Infinity }
}

function isUnanswered(state: HealthState): boolean {
  return state.is === 'up' && state.calmSinceMs !== undefined
}

/** What the probes of one peer have measured: round-trip time, jitter and loss. */

/** The round-trip time is absent before the first answer. */
export interface ProbeFigures extends RoundTrip {
  /** Share of recent probes without an answer, 0 to 1, since the path came up. Absent before LEAST_PROBES probes. */
  readonly loss?: number
}

/** Weight of a new sample: 1/8 for the round-trip time (RFC 6298), 1/16 for its variation (RFC 3550). */
const RTT_WEIGHT = 1 / 8
const JITTER_WEIGHT = 1 / 16
const LOSS_WINDOW = 50
/** With fewer probes, a single late answer on a busy machine would weigh too much. */
const LEAST_PROBES = 20
/** A probe without an answer for this long is lost, or for longer where answers take long. */
const LOST_AFTER_MS = 2000
/**
 * A later answer still shows that the path works, and how long it takes, or a path that takes longer than the time above
 * would never be known. After this time it is ignored.
 */
const FORGOTTEN_AFTER_MS = 2 * LONGEST_ANSWER_MS
const MAX_OUTSTANDING = 256
/** The first answers may wait for a handshake or in a queue, so the minimum of this many samples counts. */
const FIRST_SAMPLES = 5

interface Outstanding {
  readonly sentMs: number
  /** True if the probe counts as lost without an answer. */
  counts: boolean
  /** It has been counted as lost. */
  isLost: boolean
}

export class ProbeStats {
  /** By sequence number, oldest first. */
  readonly #outstanding = new Map<number, Outstanding>()
  #window: boolean[] = []
  /**
   * True if an answer has come since the path came up. Until then, a probe without an answer says nothing about the
   * path.
   */
  #heard = false
  /** The last answer came later than any on this path usually does. */
  #wasLate = false
  #rttMs: number | undefined
  #jitterMs = 0
  #samples = 0

  onSent(sequence: number, nowMs: number): void {
    this.#forget(nowMs)
    this.#outstanding.set(sequence, { sentMs: nowMs, counts: this.#heard, isLost: false })
  }

  /** Returns true if the answer belongs to an outstanding probe, and is neither a copy nor forged. */
  onAnswer(sequence: number, nowMs: number): boolean {
    const sent = this.#outstanding.get(sequence)
    if (sent === undefined) return false
    this.#outstanding.delete(sequence)
    this.#heard = true
    if (!sent.isLost) this.#validate(true)
    const sample = nowMs - sent.sentMs
    const before = this.#rttMs
    const wasLate = this.#wasLate
    this.#wasLate = sample >= answerWaitMs(this.#roundTrip(), LOST_AFTER_MS)
    // A late answer may have waited: a single one for this process, others for the far one, or for the path to come back.
    // Its time would make a dead path be noticed later.
    if (this.#wasLate && before !== undefined && !(wasLate && sent.counts)) return true
    this.#samples += 1
    if (before === undefined) this.#rttMs = sample
    else if (this.#samples <= FIRST_SAMPLES) this.#rttMs = Math.min(before, sample)
    else {
      this.#jitterMs += (Math.abs(sample - before) - this.#jitterMs) * JITTER_WEIGHT
      this.#rttMs = before + (sample - before) * RTT_WEIGHT
    }
    return true
  }

  /**
   * Starts again for a path that is new or has come back. Earlier times do not predict later ones, and earlier losses
   * do not belong to the path that is up now.
   */
  restart(): void {
    this.#samples = 0
    this.#jitterMs = 0
    this.#window = []
    this.#heard = false
    this.#excuseOutstanding()
  }

  /** The far process is silent, not the path: probes without an answer since its last one do not count as lost. */
  excuse(): void {
    this.#window = this.#window.slice(0, this.#window.lastIndexOf(true) + 1)
    this.#excuseOutstanding()
  }

  figures(): ProbeFigures {
    const lost = this.#window.filter((answered) => !answered).length
    return {
      ...this.#roundTrip(),
      ...(this.#window.length < LEAST_PROBES ? {} : { loss: lost / this.#window.length }),
    }
  }

  #roundTrip(): RoundTrip {
    return this.#rttMs === undefined ? {} : { rttMs: this.#rttMs, jitterMs: this.#jitterMs }
  }

  #forget(nowMs: number): void {
    const lostAfterMs = answerWaitMs(this.#roundTrip(), LOST_AFTER_MS)
    for (const [sequence, sent] of this.#outstanding) {
      const ageMs = nowMs - sent.sentMs
      const isFull = this.#outstanding.size >= MAX_OUTSTANDING
      if (ageMs < lostAfterMs && !isFull) return
      if (ageMs >= FORGOTTEN_AFTER_MS || isFull) this.#outstanding.delete(sequence)
      if (!sent.counts || sent.isLost) continue
      sent.isLost = true
      this.#validate(false)
    }
  }

  #excuseOutstanding(): void {
    for (const sent of this.#outstanding.values()) sent.counts = false
  }

  #validate(answered: boolean): void {
    this.#window.push(answered)
    if (this.#window.length > LOSS_WINDOW) this.#window.shift()
  }
}
