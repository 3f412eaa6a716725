/**
 * Whether a far end answers, by its probes.
 *
 *   connecting ──answer──► up ◄──────────── answers in a row ────────── down
 *                          │ ▲                                           ▲
 *                     miss └─┘ answer                                    │
 *                          └─ as many misses that it is doubted, ─ long ─┘
 *                             others carry what it carried         silent
 *
 * connecting: nothing has ever been received; traffic is not sent this way.
 * up:         the last answers came in time; counts the misses since. After some it is doubted: whoever has another
 *             way takes that. It is not yet down: a way that has become slow all at once is silent for as long as it
 *             is slow, and must not flap.
 * down:       it answered once and does not now; counts the answers since, so that one lucky packet does not bring
 *             traffic back to a path that loses most.
 *
 * A miss is a question of this process that got no answer in the time that answers take. Questions are counted, not
 * time alone: when this process itself was held up, the answers that have piled up are read before the next question's
 * time is over. The last miss waits while the far kernel's answer may still be on its way: up to then, nobody knows
 * whether it is the way that is silent, or a process.
 */
import type { ConnectionState } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'

/** `sinceMs` and `answeredMs` (the last answer) are of the monotonic clock. */
export type HealthState =
  | { readonly is: 'connecting'; readonly sinceMs: number }
  | { readonly is: 'up'; readonly sinceMs: number; readonly answeredMs: number; readonly misses: number }
  | { readonly is: 'down'; readonly sinceMs: number; readonly answers: number }

export interface PeerHealthDeps {
  readonly clock: Clock
  /** Called at once, from within the event that caused it. */
  readonly onTransition: (from: ConnectionState, to: ConnectionState) => void
  /** The same when it is doubted, and when it is no longer doubted but up. */
  readonly onDoubt?: (doubted: boolean) => void
}

export interface PeerHealthInit {
  /** Misses in a row until a far end that is up is doubted. */
  readonly missesUntilDoubt: number
  /** Silence, in milliseconds, until a far end that is doubted is down. */
  readonly downAfterMs: number
  readonly answersUntilUp: number
  /** Start as up, without a transition: this process takes over a connection that an earlier one knew to be up. */
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
    this.#state =
      init.startsUp === true ? { is: 'up', sinceMs, answeredMs: sinceMs, misses: 0 } : { is: 'connecting', sinceMs }
  }

  get state(): HealthState {
    return this.#state
  }

  /** It is up, and silent for so many questions that traffic had better go another way. */
  get doubted(): boolean {
    return this.#state.is === 'up' && this.#state.misses >= this.#init.missesUntilDoubt
  }

  onAnswer(): void {
    this.#setState(this.#afterAnswer(this.#state))
  }

  /** `mayYetAnswer`: it was asked in another way too, and cannot have answered yet. */
  onMiss(mayYetAnswer = false): void {
    this.#setState(this.#afterMiss(this.#state, mayYetAnswer))
  }

  #afterAnswer(state: HealthState): HealthState {
    const nowMs = this.#deps.clock.monotonic()
    const up: HealthState = { is: 'up', sinceMs: nowMs, answeredMs: nowMs, misses: 0 }
    switch (state.is) {
      case 'connecting':
        return up
      case 'up':
        return { ...state, answeredMs: nowMs, misses: 0 }
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
        const { missesUntilDoubt, downAfterMs } = this.#init
        const nowMs = this.#deps.clock.monotonic()
        if (mayYetAnswer) return { ...state, misses: Math.min(state.misses + 1, missesUntilDoubt - 1) }
        const misses = state.misses + 1
        const isDown = misses >= missesUntilDoubt && nowMs - state.answeredMs >= downAfterMs
        return isDown ? { is: 'down', sinceMs: nowMs, answers: 0 } : { ...state, misses }
      }
      case 'down':
        return { ...state, answers: 0 }
    }
  }

  #setState(next: HealthState): void {
    const before = this.#state.is
    const doubtedBefore = this.doubted
    this.#state = next
    if (before !== next.is) this.#deps.onTransition(before, next.is)
    else if (doubtedBefore !== this.doubted) this.#deps.onDoubt?.(this.doubted)
  }
}

/** What the probes of one peer measured: round trip, jitter, loss. */

export interface ProbeFigures {
  /** Smoothed; absent before the first answer. */
  readonly rttMs?: number
  readonly jitterMs?: number
  /** Share of the last probes without an answer, 0 to 1, since the way came up; absent before there are LEAST_PROBES. */
  readonly loss?: number
}

/** Weight of a new sample: 1/8 for the round trip (RFC 6298), 1/16 for its variation (RFC 3550). */
const RTT_WEIGHT = 1 / 8
const JITTER_WEIGHT = 1 / 16
const LOSS_WINDOW = 50
/** Of fewer probes, a single one that is late on a busy machine would be a tenth. */
const LEAST_PROBES = 20
/** A probe without an answer for this long is lost; an answer after that is not counted. */
const LOST_AFTER_MS = 2000
const MAX_OUTSTANDING = 256
/** The first answers wait for a handshake, or in a queue: of so many, the soonest counts. */
const FIRST_SAMPLES = 5

interface Outstanding {
  readonly sentMs: number
  /** Without an answer, it is a loss. */
  counts: boolean
}

export class ProbeStats {
  /** By sequence, oldest first. */
  readonly #outstanding = new Map<number, Outstanding>()
  #window: boolean[] = []
  /** An answer has come since the way came up: before, a probe found nobody, and says nothing of the way. */
  #heard = false
  #rttMs: number | undefined
  #jitterMs = 0
  #samples = 0

  onSent(sequence: number, nowMs: number): void {
    this.#forget(nowMs)
    this.#outstanding.set(sequence, { sentMs: nowMs, counts: this.#heard })
  }

  /** True when the answer belongs to a probe that waits for one: not a copy, not an invention. */
  onAnswer(sequence: number, nowMs: number): boolean {
    const sent = this.#outstanding.get(sequence)
    if (sent === undefined) return false
    this.#outstanding.delete(sequence)
    this.#heard = true
    this.#validate(true)
    const sample = nowMs - sent.sentMs
    const before = this.#rttMs
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
   * The way is new, or has come back: what its first answers took says nothing about those to come, and what was lost
   * before is no loss of the way that is up now.
   */
  restart(): void {
    this.#samples = 0
    this.#jitterMs = 0
    this.#window = []
    this.#heard = false
    this.#excuseOutstanding()
  }

  /** The far process is silent, and not the way: the probes that it has not answered since it fell silent are no loss. */
  excuse(): void {
    this.#window = this.#window.slice(0, this.#window.lastIndexOf(true) + 1)
    this.#excuseOutstanding()
  }

  figures(): ProbeFigures {
    const lost = this.#window.filter((answered) => !answered).length
    return {
      ...(this.#rttMs === undefined ? {} : { rttMs: this.#rttMs, jitterMs: this.#jitterMs }),
      ...(this.#window.length < LEAST_PROBES ? {} : { loss: lost / this.#window.length }),
    }
  }

  #forget(nowMs: number): void {
    for (const [sequence, { sentMs, counts }] of this.#outstanding) {
      if (nowMs - sentMs < LOST_AFTER_MS && this.#outstanding.size < MAX_OUTSTANDING) return
      this.#outstanding.delete(sequence)
      if (counts) this.#validate(false)
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
