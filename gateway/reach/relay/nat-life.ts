/**
 * Measures for how long the NAT in front of this node keeps the mapping of a UDP port without packets: relays answer
 * after each of WAITS_SECONDS, to ports that nothing else uses (hold-caller.ts). All waits are measured at one time, the
 * failed ones twice, so that one lost packet does not count. Relays of earlier releases are silent: then nothing is
 * known.
 */
import type { OpenProbeSocket, ProbeSocket } from '../../../kernel/probing/probing.ts'
import { type Address, formatAddress, parseAddress } from '../../../model/addresses/addresses.ts'
import { RELAY_PORT } from '../../../model/model.ts'
import { type Clock, WakeTimer } from '../../../reconcile/reconcile.ts'
import { bindKey, endId } from './bind-frame.ts'
import { HoldCaller, type HoldResult } from './hold-caller.ts'
import type { OwnEnd } from './relay-calls.ts'

export const WAITS_SECONDS = [10, 30, 60, 120] as const
/** The relay waits somewhat longer: a mapping that has lived for a wait is not to be at its very end. */
export const WAIT_MARGIN_MS = 1000
/** A measurement is repeated after this time, or when the address outside has changed, but not at once. */
export const LIFE_EVERY_MS = 6 * 3_600_000
export const LIFE_APART_MS = 600_000
const ATTEMPTS = 2

export interface LifeFacts {
  /** Undefined: this node cannot prove itself to relays yet. */
  readonly own: OwnEnd | undefined
  readonly relays: readonly { readonly identity: string; readonly address: Address }[]
  /** Addresses at which relays see this node now. */
  readonly seen: readonly string[]
  /** Addresses that this node has itself. */
  readonly ownAddresses: ReadonlySet<string>
}

export interface NatLifeDeps {
  readonly clock: Clock
  readonly openSocket: OpenProbeSocket
  /** `seconds` has changed. */
  readonly onChange: () => void
}

interface WaitMeasured {
  readonly seconds: number
  readonly results: readonly HoldResult[]
  /** The attempt that is under way. Undefined: there will be no other one. */
  readonly attempt: Attempt | undefined
}

interface Attempt {
  readonly caller: HoldCaller
  readonly relay: Address
  readonly socket: ProbeSocket
  isReady: boolean
}

export class NatLife {
  readonly #deps: NatLifeDeps
  readonly #wake: WakeTimer
  #facts: LifeFacts | undefined
  #seconds: number | undefined
  #waits: readonly WaitMeasured[] = []
  #begunMs = -Infinity
  #nextMs = -Infinity
  /** Where relays saw the ports of the last measurement. */
  #outside: ReadonlySet<string> = new Set()
  #counter = 0

  constructor(deps: NatLifeDeps) {
    this.#deps = deps
    this.#wake = new WakeTimer(deps.clock, () => this.#go())
  }

  /**
   * The longest of WAITS_SECONDS for which a mapping has lived; 0: for none of them. Undefined: it is not known, or
   * there is no NAT.
   */
  get seconds(): number | undefined {
    return this.#seconds
  }

  /** Takes what is known now. Undefined: this node is not behind NAT. */
  look(facts: LifeFacts | undefined): void {
    this.#facts = facts
    const isElsewhere =
      facts !== undefined && facts.seen.length > 0 && !facts.seen.some((address) => this.#outside.has(address))
    if (facts === undefined || (isElsewhere && this.#outside.size > 0)) {
      // What is known holds for another NAT.
      this.#stop()
      this.#outside = new Set()
      this.#nextMs = Math.min(this.#nextMs, this.#begunMs + LIFE_APART_MS)
      this.#set(undefined)
    }
    this.#go()
  }

  close(): void {
    this.#facts = undefined
    this.#stop()
    this.#wake.close()
  }

  #go(): void {
    if (this.#facts === undefined) return
    const nowMs = this.#deps.clock.monotonic()
    const { own, relays } = this.#facts
    if (this.#waits.length === 0) {
      if (own === undefined || relays.length === 0) return
      if (nowMs < this.#nextMs) {
        this.#wake.at(this.#nextMs)
        return
      }
      this.#begunMs = nowMs
      this.#nextMs = nowMs + LIFE_APART_MS
      this.#outside = new Set()
      this.#waits = WAITS_SECONDS.map((seconds) => ({ seconds, results: [], attempt: this.#attempt(seconds, 0) }))
    }
    for (const { attempt } of this.#waits) if (attempt !== undefined) this.#send(attempt, nowMs)
    this.#waits = this.#waits.map((one) => this.#after(one))
    if (this.#waits.every(({ attempt }) => attempt === undefined)) {
      this.#conclude()
      this.#wake.at(this.#nextMs)
      return
    }
    const dues = this.#waits.map(({ attempt }) => (attempt?.isReady === true ? attempt.caller.dueMs : Infinity))
    const dueMs = Math.min(...dues)
    if (dueMs !== Infinity) this.#wake.at(dueMs)
  }

  #send({ caller, relay, socket, isReady }: Attempt, nowMs: number): void {
    const question = isReady ? caller.next(nowMs) : undefined
    if (question !== undefined) socket.send(question, formatAddress(relay), RELAY_PORT)
  }

  /** A wait after its attempt, if that is over: another relay may be well, and another packet may not be lost. */
  #after(one: WaitMeasured): WaitMeasured {
    const { seconds, attempt } = one
    if (attempt?.caller.state.is !== 'over') return one
    const { result, seen } = attempt.caller.state
    attempt.socket.close()
    if (seen !== undefined) this.#outside = new Set([...this.#outside, formatAddress(seen.address)])
    const results = [...one.results, result]
    const isDone = result === 'answered' || results.length >= ATTEMPTS
    return { seconds, results, attempt: isDone ? undefined : this.#attempt(seconds, results.length) }
  }

  #conclude(): void {
    const answered = this.#waits.filter(({ results }) => results.includes('answered'))
    const isSilent = this.#waits[0]?.results.every((result) => result === 'silent') === true
    const outside = [...this.#outside]
    this.#waits = []
    const { ownAddresses = new Set<string>(), seen = [] } = this.#facts ?? {}
    const isNat = outside.some((address) => !ownAddresses.has(address))
    if (answered.length === 0 && !isSilent) return
    // A NAT may have several addresses outside, one for each destination.
    this.#outside = new Set([...outside, ...seen])
    this.#nextMs = this.#begunMs + LIFE_EVERY_MS
    this.#set(isNat ? Math.max(0, ...answered.map(({ seconds }) => seconds)) : undefined)
  }

  #attempt(seconds: number, count: number): Attempt | undefined {
    const { own, relays } = this.#facts ?? {}
    const relay = relays?.[count % relays.length]
    const secret = relay === undefined ? undefined : own?.agree(relay.identity)
    if (own === undefined || relay === undefined || secret === undefined) return undefined
    const { clock, openSocket } = this.#deps
    const { clusterset, identity } = own
    const caller = new HoldCaller({
      ...{ from: endId(clusterset, identity), to: endId(clusterset, relay.identity) },
      key: bindKey({ secret, clusterset, relay: relay.identity, end: identity }),
      relay: { address: relay.address, port: RELAY_PORT },
      waitMs: seconds * 1000 + WAIT_MARGIN_MS,
      nextCounter: () => (this.#counter = Math.max(this.#counter + 1, Math.floor(clock.now()))),
    })
    const ready = (): void => {
      attempt.isReady = true
      this.#go()
    }
    const socket = openSocket('0.0.0.0', 0, {
      // Not within openSocket(), which may call back at once.
      onReady: () => void clock.setTimer(0, ready),
      onMessage: (bytes, from) => {
        caller.take(bytes, { address: parseAddress(from.address), port: from.port }, clock.monotonic())
        this.#go()
      },
      // A port that does not open is asked from no more, and ends as one without an answer.
      onError: () => void clock.setTimer(0, ready),
    })
    const attempt: Attempt = { caller, relay: relay.address, socket, isReady: false }
    return attempt
  }

  #stop(): void {
    for (const { attempt } of this.#waits) attempt?.socket.close()
    this.#waits = []
  }

  #set(seconds: number | undefined): void {
    if (seconds === this.#seconds) return
    this.#seconds = seconds
    this.#deps.onChange()
  }
}
