/**
 * Keeps what relays show of the NAT in front of this node (sight-caller.ts): measured when there are relays, again after
 * hours, and soon after the address outside has changed. Relays of earlier releases are silent: then the next ones are
 * asked, and nothing is known if there are no others.
 */
import { randomBytes } from 'node:crypto'
import type { ProbeSocket } from '../../../kernel/probing/probing.ts'
import { type AddressPort, formatAddress, parseAddress } from '../../../model/addresses/addresses.ts'
import { RELAY_PORT } from '../../../model/model.ts'
import { WakeTimer } from '../../../reconcile/reconcile.ts'
import type { Logger } from '../../../runtime/logging/logging.ts'
import { bindKey, endId } from '../frames/bind-frame.ts'
import type { MeasureDeps, MeasureFacts, MeasureRelay, NatMeasure } from './measure-facts.ts'
import { LIFE_APART_MS, LIFE_COUNTS_MS, LIFE_EVERY_MS, NatLife, lifeOrder, stretched } from './nat-life.ts'
import {
  type NatSights,
  PORTS,
  SightCaller,
  type SightPacket,
  type SightPort,
  type SightRelay,
} from './sight-caller.ts'

/** Relays that are tried before the measurement is put off. */
const MOST_TRIED = 4
const NONCE_BYTES = 32

/** Measurements do not begin together with those of NatLife: packets of one must not fill the bursts of another. */
export const SIGHTS_AFTER_MS = 20_000
/**
 * Waits are longer by up to this share, which differs for each node: a relay, and its kernel, count what all nodes behind
 * one address send together, so bursts of many nodes that begin at one time would look as if the NAT dropped them.
 */
const SIGHTS_SPREAD = 3

export interface NatWatchInit extends MeasureDeps {
  /** Whether this node may send packets to a place at which a relay says that it is seen. */
  readonly mayProbe: (at: AddressPort) => boolean
  /** How long the first measurement waits, without its spread. Default: SIGHTS_AFTER_MS. */
  readonly afterMs?: number
}

interface Measurement {
  readonly caller: SightCaller
  readonly sockets: ReadonlyMap<SightPort, ProbeSocket>
  /** Ports that are open. */
  readonly ready: Set<SightPort>
}

export class NatWatch implements NatMeasure {
  readonly #init: NatWatchInit
  readonly #wake: WakeTimer
  #facts: MeasureFacts | undefined
  #sights: NatSights = {}
  #knownMs = -Infinity
  #nextMs = -Infinity
  #begunMs = -Infinity
  #now: Measurement | undefined
  #count = 0
  #tried = 0
  #outside: ReadonlySet<string> = new Set()
  /** For all relays: each of them takes any counter. */
  #counter = 0

  constructor(init: NatWatchInit) {
    this.#init = init
    this.#wake = new WakeTimer(init.clock, () => this.#go())
  }

  /** What is known of the NAT. */
  get sights(): NatSights {
    return this.#sights
  }

  look(facts: MeasureFacts | undefined): void {
    const nowMs = this.#init.clock.monotonic()
    const isFirst = this.#facts?.own === undefined && facts?.own !== undefined
    this.#facts = facts
    if (isFirst) this.#nextMs = Math.max(this.#nextMs, nowMs + this.#afterMs())
    const isElsewhere = facts?.seen.some((address) => this.#outside.has(address)) === false && facts.seen.length > 0
    if (facts === undefined || (isElsewhere && this.#outside.size > 0)) {
      // What is known holds for another NAT.
      this.#stop()
      this.#outside = new Set()
      this.#nextMs = Math.min(
        this.#nextMs,
        Math.max(nowMs + this.#afterMs(), this.#begunMs + this.#stretched(LIFE_APART_MS)),
      )
      this.#set({})
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
    const nowMs = this.#init.clock.monotonic()
    if (this.#now === undefined) {
      if (nowMs - this.#knownMs >= LIFE_COUNTS_MS) this.#set({})
      if (nowMs < this.#nextMs) {
        this.#wake.at(this.#nextMs)
        return
      }
      this.#now = this.#begin()
      if (this.#now === undefined) return
      this.#begunMs = nowMs
      this.#nextMs = nowMs + this.#stretched(LIFE_APART_MS)
      // What is shown from now on is of the NAT that is there now.
      this.#outside = new Set(this.#facts.seen)
    }
    const { caller, ready } = this.#now
    if (ready.size < PORTS.length) return
    this.#send(caller.next(nowMs))
    if (caller.isOver) this.#conclude(caller, nowMs)
    const dueMs = caller.isOver ? this.#nextMs : caller.dueMs
    this.#wake.at(Math.max(dueMs, nowMs))
  }

  #send(packets: readonly SightPacket[]): void {
    for (const { port, to, bytes } of packets)
      this.#now?.sockets.get(port)?.send(bytes, formatAddress(to.address), to.port)
  }

  #conclude(caller: SightCaller, nowMs: number): void {
    this.#stop()
    this.#tried += 1
    if (!caller.isServed && this.#tried < MOST_TRIED) {
      // No burst has been sent, so the next relay may be asked at once.
      this.#nextMs = nowMs
      return
    }
    this.#tried = 0
    if (!caller.isServed) return
    this.#knownMs = nowMs
    this.#nextMs = nowMs + this.#stretched(LIFE_EVERY_MS)
    const { ownAddresses = new Set<string>(), seen = [] } = this.#facts ?? {}
    this.#outside = new Set([...seen, ...caller.seen])
    const isNat = caller.seen.some((address) => !ownAddresses.has(address))
    this.#set(isNat ? caller.sights : {})
  }

  #begin(): Measurement | undefined {
    const { own, relays = [] } = this.#facts ?? {}
    if (own === undefined) return undefined
    const order = lifeOrder(own.identity, relays, this.#count)
    const [first] = order
    if (first === undefined) return undefined
    const second = order.find(({ cluster, address }) => {
      return cluster !== first.cluster && address.value !== first.address.value
    })
    const [near, far] = [this.#known(first), second === undefined ? undefined : this.#known(second)]
    this.#count += 1
    if (near === undefined) return undefined
    const caller = new SightCaller({
      ...{ from: endId(own.clusterset, own.identity), first: near, ...(far === undefined ? {} : { second: far }) },
      nextCounter: () => (this.#counter = Math.max(this.#counter + 1, Math.floor(this.#init.clock.now()))),
      ...{ nonce: randomBytes(NONCE_BYTES), mayProbe: this.#init.mayProbe },
    })
    const ready = new Set<SightPort>()
    const sockets = new Map(PORTS.map((port) => [port, this.#open(port, caller, ready)] as const))
    return { caller, sockets, ready }
  }

  #known({ identity, address }: MeasureRelay): SightRelay | undefined {
    const { own } = this.#facts ?? {}
    const secret = own?.agree(identity)
    if (own === undefined || secret === undefined) return undefined
    const key = bindKey({ secret, clusterset: own.clusterset, relay: identity, end: own.identity })
    return { id: endId(own.clusterset, identity), key, at: { address, port: RELAY_PORT } }
  }

  #open(port: SightPort, caller: SightCaller, ready: Set<SightPort>): ProbeSocket {
    const { clock, openSocket } = this.#init
    // Not within openSocket(), which may call back at once. A port that does not open gets no answer.
    const opened = (): void => {
      void clock.setTimer(0, () => {
        if (this.#now?.caller !== caller) return
        ready.add(port)
        this.#go()
      })
    }
    return openSocket('0.0.0.0', 0, {
      onReady: opened,
      onMessage: (bytes, from) => {
        if (this.#now?.caller !== caller) return
        this.#send(caller.take(port, bytes, { address: parseAddress(from.address), port: from.port }))
        this.#go()
      },
      onError: opened,
    })
  }

  #afterMs(): number {
    return this.#stretched(this.#init.afterMs ?? SIGHTS_AFTER_MS, SIGHTS_SPREAD)
  }

  #stretched(ms: number, most?: number): number {
    return stretched(ms, `sights ${this.#facts?.own?.identity ?? ''} ${this.#count}`, most)
  }

  #stop(): void {
    for (const socket of this.#now?.sockets.values() ?? []) socket.close()
    this.#now = undefined
  }

  #set(sights: NatSights): void {
    if (sightsText(sights) === sightsText(this.#sights)) return
    this.#sights = sights
    this.#init.onChange()
  }
}

function sightsText({ filter, hairpins, bursts }: NatSights): string {
  return [filter, hairpins, bursts].join()
}

/** All measurements of the NAT in front of this node, as one for the relays of the gateway. */
export interface NatMeasuresInit extends MeasureDeps {
  readonly logger: Logger
  /** NatWatchInit.mayProbe. */
  readonly mayProbe: (at: AddressPort) => boolean
}

export class NatMeasures implements NatMeasure {
  readonly #init: NatMeasuresInit
  readonly #life: NatLife
  readonly #watch: NatWatch

  constructor(init: NatMeasuresInit) {
    const { clock, openSocket, mayProbe, onChange } = init
    this.#init = init
    this.#life = new NatLife({ clock, openSocket, onChange: () => this.#measured() })
    this.#watch = new NatWatch({ clock, openSocket, mayProbe, onChange })
  }

  /** For how many seconds a mapping lives without packets, at least. Undefined: not known, or there is no NAT. */
  get lifeSeconds(): number | undefined {
    return this.#life.seconds
  }

  /** What relays have shown of the NAT. */
  get sights(): NatSights {
    return this.#watch.sights
  }

  look(facts: MeasureFacts | undefined): void {
    this.#life.look(facts)
    this.#watch.look(facts)
  }

  close(): void {
    this.#life.close()
    this.#watch.close()
  }

  #measured(): void {
    const { seconds } = this.#life
    if (seconds !== undefined) {
      const life = seconds === 0 ? 'less than 10 s' : `${seconds} s or more`
      this.#init.logger.info(`the NAT in front of this node keeps a mapping without packets for ${life}`)
    }
    this.#init.onChange()
  }
}
