/**
 * Which machines are known to answer a knock. Firewalls swallow it in many clusters, so silence proves something only
 * about a machine that has answered before, from here, and since nothing has changed: it is asked now and then while
 * its gateway is well.
 */
import { Backoff, type BackoffInit } from '../reconcile/backoff.ts'
import type { Clock } from '../reconcile/clock.ts'

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
