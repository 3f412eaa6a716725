/**
 * Which of several heartbeats have stopped, for a process that only watches. Clocks of two machines are never compared:
 * a heartbeat is a text that changes, and what counts is when this process saw it change.
 *
 * A process that sees nothing knows nothing. So time counts against a heartbeat only while the view is known to be
 * live: a heartbeat moved, or the store was asked and answered. When proof of that is missing for longer than `gapMs`,
 * counting begins anew with the next one, and those who write get the whole time again. What has stopped stays so until
 * it moves.
 */
import type { Clock } from './clock.ts'
import { Backoff, type BackoffInit } from './retry.ts'

export interface HeartbeatsInit {
  /** A live view for so long, and no move: it has stopped. */
  readonly staleMs: number
  /** Without a move for so long, the view is to be proved. */
  readonly doubtMs: number
  /** Proofs that are further apart say nothing about the time between them. Longer than the pause between proofs. */
  readonly gapMs: number
}

interface Beat {
  readonly text: string
  /** Monotonic. */
  readonly movedMs: number
  stopped: boolean
}

export class Heartbeats {
  readonly #clock: Clock
  readonly #init: HeartbeatsInit
  readonly #beats = new Map<string, Beat>()
  /** The view was live from here, */
  #liveSinceMs = 0
  /** to here; monotonic. */
  #liveAtMs = -Infinity

  constructor(deps: { readonly clock: Clock }, init: HeartbeatsInit) {
    this.#clock = deps.clock
    this.#init = init
  }

  /**
   * The heartbeat that `name` shows now. One that shows none is never taken as stopped. A move proves the view. True
   * where it is another one than before; the first is none.
   */
  saw(name: string, text: string | undefined): boolean {
    if (text === undefined) {
      this.#beats.delete(name)
      return false
    }
    const before = this.#beats.get(name)?.text
    if (before === text) return false
    this.#beats.set(name, { text, movedMs: this.#clock.monotonic(), stopped: false })
    this.viewIsLive()
    return before !== undefined
  }

  /** There is no such thing any more. */
  forget(name: string): void {
    this.#beats.delete(name)
  }

  /** The store was asked just now, and saw() has been called with what it said. */
  viewIsLive(): void {
    const now = this.#clock.monotonic()
    if (now - this.#liveAtMs > this.#init.gapMs) this.#liveSinceMs = now
    this.#liveAtMs = now
    for (const beat of this.#beats.values()) {
      beat.stopped ||= now - Math.max(beat.movedMs, this.#liveSinceMs) >= this.#init.staleMs
    }
  }

  hasStopped(name: string): boolean {
    return this.#beats.get(name)?.stopped ?? false
  }

  /** Those that have stopped, sorted. */
  stopped(): readonly string[] {
    return this.#names(({ stopped }) => stopped)
  }

  /** Those that are late and not yet known to have stopped, sorted: to be asked for. */
  doubtful(): readonly string[] {
    const now = this.#clock.monotonic()
    return this.#names(({ stopped, movedMs }) => !stopped && now - movedMs >= this.#init.doubtMs)
  }

  #names(chosen: (beat: Beat) => boolean): readonly string[] {
    return [...this.#beats].flatMap(([name, beat]) => (chosen(beat) ? [name] : [])).sort()
  }
}

/** Whether a machine answers at this address. Resolves within a second or so; never rejects. */
export type Knock = (address: string) => Promise<boolean>

interface Machine {
  readonly address: string
  /** It has answered, and its gateway has not been found silent since. */
  answered: boolean
  /** It did not answer the last time. */
  missed: boolean
  nextMs: number
  /** Until the next knock, while they are missed. */
  readonly pause: Backoff
}

/** Pause between two knocks at a machine whose gateway is well. */
const TEND_MS = 180_000
/** After a knock that was missed: a busy machine, and a busy asker, miss one. In the end as seldom as the others. */
const MISSED: BackoffInit = { minMs: 5000, maxMs: 2 * TEND_MS }

/**
 * Which machines are known to answer a knock. Firewalls swallow it in many clusters, so silence proves something only
 * about a machine that has answered before, from here, and since nothing has changed: it is asked now and then while
 * its gateway is well.
 */
export class KnownMachines {
  readonly #clock: Clock
  readonly #knock: Knock
  /** By the name of the gateway. */
  readonly #machines = new Map<string, Machine>()

  constructor(deps: { readonly clock: Clock; readonly knock: Knock }) {
    this.#clock = deps.clock
    this.#knock = deps.knock
  }

  /** The gateway is well: its machine is knocked at where that is due. Does not wait for the answer. */
  tend(name: string, address: string): void {
    const machine = this.#at(name, address)
    if (this.#clock.monotonic() < machine.nextMs) return
    machine.nextMs = this.#clock.monotonic() + machine.pause.next()
    void this.#ask(machine)
  }

  /** A word came from it. Who speaks and did not answer a moment ago cannot be knocked at: asked anew, once. */
  spoke(name: string): void {
    const machine = this.#machines.get(name)
    if (machine?.missed !== true) return
    if (machine.answered) {
      machine.nextMs = this.#clock.monotonic()
      machine.pause.reset()
    }
    machine.answered = false
    machine.missed = false
  }

  /** Knocks now. True where the machine does not answer and is known to. */
  async isDead(name: string, address: string): Promise<boolean> {
    const machine = this.#at(name, address)
    const answers = await this.#ask(machine)
    return !answers && machine.answered
  }

  forget(name: string): void {
    this.#machines.delete(name)
  }

  #at(name: string, address: string): Machine {
    const known = this.#machines.get(name)
    if (known?.address === address) return known
    const pause = new Backoff(this.#clock, MISSED)
    const machine = { address, answered: false, missed: false, nextMs: this.#clock.monotonic(), pause }
    this.#machines.set(name, machine)
    return machine
  }

  async #ask(machine: Machine): Promise<boolean> {
    // One packet may be lost.
    const answers = (await this.#knock(machine.address)) || (await this.#knock(machine.address))
    machine.missed = !answers
    if (!answers) return false
    machine.answered = true
    machine.pause.reset()
    machine.nextMs = this.#clock.monotonic() + TEND_MS
    return true
  }
}
