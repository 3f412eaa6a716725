/**
 * Detects which of several heartbeats have stopped, for a process that only watches. It never compares the clocks of
 * two machines: a heartbeat is a text that changes, and only the time at which this process saw it change counts.
 *
 * A process whose view has stalled cannot judge others. So time counts against a heartbeat only while the view is known
 * to be live: a heartbeat changed, or the store answered a read. If there is no such proof for longer than `gapMs`,
 * counting starts again with the next one, and every heartbeat has the whole time again. A stopped heartbeat stays
 * stopped until it changes.
 */
import type { Clock } from './clock.ts'
import { Backoff, type BackoffInit } from './retry.ts'

export interface HeartbeatsInit {
  /** A heartbeat that does not change over this time of a live view has stopped. */
  readonly staleMs: number
  /** After this time without a change, the caller has to prove that the view is live. */
  readonly suspectMs: number
  /** Two proofs that are further apart do not prove the time between them. Must exceed the pause between proofs. */
  readonly gapMs: number
}

interface Beat {
  readonly text: string
  /** Time of the last change, monotonic. */
  readonly movedMs: number
  stopped: boolean
}

export class Heartbeats {
  readonly #clock: Clock
  readonly #init: HeartbeatsInit
  readonly #beats = new Map<string, Beat>()
  /** Start of the period in which the view was live, monotonic. */
  #liveSinceMs = 0
  /** End of that period, monotonic. */
  #liveAtMs = -Infinity

  constructor(deps: { readonly clock: Clock }, init: HeartbeatsInit) {
    this.#clock = deps.clock
    this.#init = init
  }

  /**
   * Records the heartbeat that `name` shows now. A name without a heartbeat never counts as stopped. A change proves
   * that the view is live. Returns true if the heartbeat changed; the first one is not a change.
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

  /** Removes a name that no longer exists. */
  forget(name: string): void {
    this.#beats.delete(name)
  }

  /** Records that the store has just answered a read; saw() must have been called with the answer. */
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

  /** Returns the names whose heartbeat has stopped, sorted. */
  stopped(): readonly string[] {
    return this.#names(({ stopped }) => stopped)
  }

  /** Returns the names whose heartbeat is late but not known to have stopped, sorted. The caller should read them. */
  doubtful(): readonly string[] {
    const now = this.#clock.monotonic()
    return this.#names(({ stopped, movedMs }) => !stopped && now - movedMs >= this.#init.suspectMs)
  }

  #names(chosen: (beat: Beat) => boolean): readonly string[] {
    return [...this.#beats].flatMap(([name, beat]) => (chosen(beat) ? [name] : [])).sort()
  }
}

/** TCP probe: whether a machine answers at this address. Resolves within about a second; never rejects. */
export type TcpProbe = (address: string) => Promise<boolean>

interface Machine {
  readonly address: string
  /** Whether it has answered a probe, and has not missed one since while its gateway reported. */
  answered: boolean
  /** Whether it missed the last probe. */
  missed: boolean
  nextMs: number
  /** Delay until the next probe while probes fail. */
  readonly pause: Backoff
}

/** Pause between two probes of a machine whose gateway is fresh. */
const TEND_MS = 180_000
/**
 * Pause after a missed probe: a busy machine, or a busy prober, misses one. It grows until probes are about as rare as
 * those of other machines.
 */
const MISSED: BackoffInit = { minMs: 5000, maxMs: 2 * TEND_MS }

/**
 * Tracks which machines answer a TCP probe. In many clusters firewalls drop it, so a missing answer proves something
 * only about a machine that has answered this process before, and under the same conditions. So machines are probed
 * occasionally while their gateways are fresh.
 */
export class KnownMachines {
  readonly #clock: Clock
  readonly #tcpProbe: TcpProbe
  /** By name of the gateway. */
  readonly #machines = new Map<string, Machine>()

  constructor(deps: { readonly clock: Clock; readonly tcpProbe: TcpProbe }) {
    this.#clock = deps.clock
    this.#tcpProbe = deps.tcpProbe
  }

  /** Probes the machine of a fresh gateway if a probe is due. Does not wait for the answer. */
  tend(name: string, address: string): void {
    const machine = this.#at(name, address)
    if (this.#clock.monotonic() < machine.nextMs) return
    machine.nextMs = this.#clock.monotonic() + machine.pause.next()
    void this.#ask(machine)
  }

  /**
   * Records that the gateway has reported. If its machine missed the last probe, probes evidently do not reach it: the
   * machine no longer counts as known to answer, and is soon probed again.
   */
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

  /** Probes now. Returns true if the machine does not answer but is known to answer probes. */
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
    // A single packet may be lost.
    const answers = (await this.#tcpProbe(machine.address)) || (await this.#tcpProbe(machine.address))
    machine.missed = !answers
    if (!answers) return false
    machine.answered = true
    machine.pause.reset()
    machine.nextMs = this.#clock.monotonic() + TEND_MS
    return true
  }
}
