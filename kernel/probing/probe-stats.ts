/** What the probes of one peer measured: round trip, jitter, loss. */

export interface ProbeFigures {
  /** Smoothed; absent before the first answer. */
  readonly rttMs?: number
  readonly jitterMs?: number
  /** Share of the last probes without an answer, 0 to 1; absent before the first probe is due. */
  readonly loss?: number
}

/** Weight of a new sample: 1/8 for the round trip (RFC 6298), 1/16 for its variation (RFC 3550). */
const RTT_WEIGHT = 1 / 8
const JITTER_WEIGHT = 1 / 16
const LOSS_WINDOW = 50
/** A probe without an answer for this long is lost; an answer after that is not counted. */
const LOST_AFTER_MS = 2000
const MAX_OUTSTANDING = 256
/** The first answers wait for a handshake, or in a queue: of so many, the soonest counts. */
const FIRST_SAMPLES = 5

export class ProbeStats {
  /** Sequence to the time when it was sent, oldest first. */
  readonly #outstanding = new Map<number, number>()
  readonly #window: boolean[] = []
  #rttMs: number | undefined
  #jitterMs = 0
  #samples = 0

  onSent(sequence: number, nowMs: number): void {
    this.#forget(nowMs)
    this.#outstanding.set(sequence, nowMs)
  }

  /** True when the answer belongs to a probe that waits for one: not a copy, not an invention. */
  onAnswer(sequence: number, nowMs: number): boolean {
    const sentMs = this.#outstanding.get(sequence)
    if (sentMs === undefined) return false
    this.#outstanding.delete(sequence)
    this.#validate(true)
    const sample = nowMs - sentMs
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

  /** The way is new, or has come back: what its first answers took says nothing about those to come. */
  restart(): void {
    this.#samples = 0
    this.#jitterMs = 0
  }

  figures(): ProbeFigures {
    const lost = this.#window.filter((answered) => !answered).length
    return {
      ...(this.#rttMs === undefined ? {} : { rttMs: this.#rttMs, jitterMs: this.#jitterMs }),
      ...(this.#window.length === 0 ? {} : { loss: lost / this.#window.length }),
    }
  }

  #forget(nowMs: number): void {
    for (const [sequence, sentMs] of this.#outstanding) {
      if (nowMs - sentMs < LOST_AFTER_MS && this.#outstanding.size < MAX_OUTSTANDING) return
      this.#outstanding.delete(sequence)
      this.#validate(false)
    }
  }

  #validate(answered: boolean): void {
    this.#window.push(answered)
    if (this.#window.length > LOSS_WINDOW) this.#window.shift()
  }
}
