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
