/**
 * One measurement of whom the NAT in front of this node lets in, whether it leads packets back inside, and whether packets
 * that follow each other closely are dropped (RFC 4787 sections 5 and 6). A state machine without sockets: it has two
 * ports, `near` and `far`, which nothing else uses.
 *
 *   step     from   to             what it shows
 *   meet     near   first relay    where `near` is seen
 *   port     near   first relay    does an answer from another port of the relay get in?
 *   meet     far    second relay   where `far` is seen
 *   place    far    second relay   does an answer from a relay to which `near` has sent nothing get in there?
 *   hairpin  both   each other     does the NAT lead a packet to the place of the other port back inside?
 *   burst    near   first relay    how many of BURST questions at one time are answered?
 *   spaced   near   first relay    and how many one by one? Only if many of the burst were not.
 *   burst    far    second relay   the same as at the first relay, so that it is not the relay that drops them
 *
 * A step ends when it has its answer or its time is over; without the relay's word that it has sent the answer in question
 * nothing follows from its absence, nor from that of a packet back inside unless answers come after it. A relay that lies
 * can change what is shown, and nothing else: nothing depends on it.
 *
 * Both ports are of this node, so a NAT that lets in at all ports of a node whomever one of them has sent to counts as one
 * that lets in anyone. Firewalls of this node itself are measured along with the NAT.
 *
 * Loss by chance and a limit of the rate look alike in a single burst. It counts as a limit only if MANY_LOST or more of
 * each of two bursts, at relays of two members, are lost, and none of as many that go one by one: at any rate of
 * independent loss less than one measurement in two hundred. A limit that lets BURST through at once is not seen.
 */
import { type AddressPort, formatAddress, sameAddressPort } from '../../../model/addresses/addresses.ts'
import { NO_COOKIE, decodeAnswer } from '../frames/bind-frame.ts'
import { type EchoWay, decodeEchoAnswer, encodeEcho } from '../frames/echo-frame.ts'

/** Whom the NAT lets in at a port that has sent: anyone, addresses to which it has sent, or ports as well. */
export type NatFilter = 'anyone' | 'address' | 'port'

/** What a measurement has shown. What is absent is not known. */
export interface NatSights {
  readonly filter?: NatFilter
  /** The NAT leads packets to its own address outside back inside. */
  readonly hairpins?: boolean
  /** Whether packets in a burst are dropped, and single ones are not. */
  readonly bursts?: 'pass' | 'limited'
}

export interface SightRelay {
  /** endId() of the relay. */
  readonly id: string
  /** bindKey() of this end and the relay. */
  readonly key: Buffer
  /** Its control port. */
  readonly at: AddressPort
}

export interface SightCallerInit {
  /** endId() of this end. */
  readonly from: string
  readonly first: SightRelay
  /** Of another member and at another address. Absent: there is none. */
  readonly second?: SightRelay
  readonly nextCounter: () => number
  /** Octets that others cannot foresee: what goes from one port to the other. */
  readonly nonce: Buffer
  /** Whether this node may send a few packets to a place at which a relay says that it is seen. */
  readonly mayProbe: (at: AddressPort) => boolean
}

export const PORTS = ['near', 'far'] as const
export type SightPort = (typeof PORTS)[number]

export interface SightPacket {
  readonly port: SightPort
  readonly to: AddressPort
  readonly bytes: Buffer
}

/** Packets in a burst, each of which is a question of 176 octets. */
export const BURST = 10
/** Of a burst that is limited, and of one that passes. */
const MANY_LOST = 4
const FEW_LOST = 1
/** Time for answers to the last packet of a step. */
const ANSWERS_MS = 2500
const ASK_AGAIN_MS = 1000
const TRIES = 3
/** A limit that counts by time has room again after this time. */
const REST_MS = 3000
const SPACED_MS = 1000

/** An answer that is promised so often, and does not come, does not get in. */
const PROMISES = 2

type StepName = 'meet' | 'port' | 'place' | 'hairpin' | 'burst' | 'spaced'

interface Step {
  readonly name: StepName
  readonly port: SightPort
  /** When packets are due, in milliseconds since the step began. */
  readonly dues: readonly number[]
}

/** What became of the step under way. */
interface Progress {
  readonly step: Step
  readonly sinceMs: number
  sent: number
  /** Counters of questions that are not answered yet. */
  readonly asked: Set<number>
  answered: number
  challenged: number
  isDone: boolean
}

const AGAIN = Array.from({ length: TRIES }, (_, i) => i * ASK_AGAIN_MS)
const AT_ONCE = Array.from({ length: BURST }, () => 0)
const ONE_BY_ONE = Array.from({ length: BURST }, (_, i) => REST_MS + i * SPACED_MS)

export class SightCaller {
  readonly #init: SightCallerInit
  readonly #cookies = new Map<SightPort, Buffer>()
  /** Where relays see the ports. */
  readonly #seen = new Map<SightPort, AddressPort>()
  #left: readonly Step[]
  #now: Progress | undefined
  #sights: NatSights = {}
  /** Whether answers of these kinds get in. Undefined: not known. */
  readonly #getsIn = new Map<'port' | 'place', boolean>()
  /** No packet came back inside. */
  #isHairpinMissed = false
  #lostAtFirst = 0
  #isOver = false
  #isServed = false

  constructor(init: SightCallerInit) {
    this.#init = init
    const step = (name: StepName, port: SightPort, dues: readonly number[]): Step => ({ name, port, dues })
    const others = [step('meet', 'far', AGAIN), step('place', 'far', AGAIN), step('hairpin', 'far', AGAIN)]
    this.#left = [
      ...[step('meet', 'near', AGAIN), step('port', 'near', AGAIN)],
      ...(init.second === undefined ? [] : others),
      step('burst', 'near', AT_ONCE),
    ]
  }

  /** All steps are over. */
  get isOver(): boolean {
    return this.#isOver
  }

  /** The first relay serves such measurements. */
  get isServed(): boolean {
    return this.#isServed
  }

  get sights(): NatSights {
    return this.#sights
  }

  /** The addresses at which relays see the ports. */
  get seen(): readonly string[] {
    return [...this.#seen.values()].map(({ address }) => formatAddress(address))
  }

  /** When next() is to be called, in milliseconds of the monotonic clock. */
  get dueMs(): number {
    const { isDone, sent, step, sinceMs } = this.#now ?? { isDone: true, sent: 0, step: undefined, sinceMs: 0 }
    if (this.#isOver) return Infinity
    if (step === undefined || isDone) return -Infinity
    return sinceMs + (step.dues[sent] ?? endMs(step))
  }

  /** The packets to send now. */
  next(nowMs: number): readonly SightPacket[] {
    const packets: SightPacket[] = []
    while (!this.#isOver && this.dueMs <= nowMs) {
      const now = this.#now
      if (now === undefined || now.isDone || now.sent >= now.step.dues.length) {
        if (now !== undefined) this.#end(now)
        this.#begin(nowMs)
        continue
      }
      now.sent += 1
      packets.push(...this.#packetsOf(now))
    }
    return packets
  }

  /** Takes a packet that has come to a port. */
  take(port: SightPort, bytes: Buffer, from: AddressPort): readonly SightPacket[] {
    const now = this.#now
    if (now === undefined || now.isDone) return []
    if (now.step.name === 'hairpin') {
      now.isDone ||= bytes.equals(this.#init.nonce)
      return []
    }
    const relay = this.#relayOf(now.step.port)
    if (relay === undefined || formatAddress(from.address) !== formatAddress(relay.at.address)) return []
    const isFromControl = sameAddressPort(from, relay.at)
    const challenge = isFromControl && port === now.step.port ? decodeAnswer(bytes, relay.key) : undefined
    if (challenge?.type === 'challenge') return this.#challenged(now, challenge)
    const answer = decodeEchoAnswer(bytes, relay.key)
    if (answer?.from !== this.#init.from || answer.to !== relay.id || !now.asked.has(answer.counter)) return []
    if (answer.type === 'second') {
      // From where and at which port it arrives is the whole measurement.
      now.isDone ||= now.step.name === 'port' ? port === 'near' && !isFromControl : port === 'near' && isFromControl
      return []
    }
    if (!isFromControl || port !== now.step.port) return []
    this.#answered(now, answer.type, answer.counter)
    this.#seen.set(port, answer.seen)
    return []
  }

  #challenged(
    now: Progress,
    { counter, cookie }: { readonly counter: number; readonly cookie: Buffer },
  ): readonly SightPacket[] {
    if (!now.asked.delete(counter)) return []
    this.#cookies.set(now.step.port, cookie)
    now.challenged += 1
    if (now.step.name === 'burst' || now.step.name === 'spaced') {
      // The relay has just begun again. The packet has passed all the same.
      this.#passed(now)
      return []
    }
    // A relay that sends nothing but challenges gets no more than it would get if it sent none.
    return now.step.name === 'meet' && now.challenged <= TRIES ? this.#packetsOf(now) : []
  }

  #answered(now: Progress, type: 'echo' | 'single', counter: number): void {
    switch (now.step.name) {
      case 'meet':
        now.isDone = true
        return
      case 'port':
      case 'place':
        // The counter stays: the second answer may come after this one.
        if (type === 'echo') now.answered += 1
        return
      case 'burst':
      case 'spaced':
        now.asked.delete(counter)
        this.#passed(now)
        return
      case 'hairpin':
    }
  }

  #passed(now: Progress): void {
    now.answered += 1
    now.isDone = now.answered === BURST
  }

  #begin(nowMs: number): void {
    const [step, ...left] = this.#left
    this.#left = left
    this.#isOver = step === undefined
    const none = { sent: 0, answered: 0, challenged: 0, isDone: false }
    this.#now = step === undefined ? undefined : { step, sinceMs: nowMs, asked: new Set(), ...none }
  }

  #end({ step: { name, port }, isDone, answered }: Progress): void {
    switch (name) {
      case 'meet':
        if (port === 'near') this.#isServed = isDone
        // A port without an answer can measure nothing.
        if (!isDone) this.#left = port === 'near' ? [] : this.#left.filter((one) => one.port === 'near')
        return
      case 'port':
      case 'place':
        if (isDone || answered >= PROMISES) this.#getsIn.set(name, isDone)
        this.#knowFilter()
        return
      case 'hairpin':
        if (isDone) this.#sights = { ...this.#sights, hairpins: true }
        else this.#isHairpinMissed = this.#hairpinPlaces() !== undefined
        return
      case 'burst':
      case 'spaced':
        this.#knowBursts(name, port, BURST - answered)
    }
  }

  #knowFilter(): void {
    const [port, place] = [this.#getsIn.get('port'), this.#getsIn.get('place')]
    const filter: NatFilter | undefined =
      place === true ? 'anyone' : port === false ? 'port' : port === true && place === false ? 'address' : undefined
    const { filter: _, ...sights } = this.#sights
    this.#sights = filter === undefined ? sights : { ...sights, filter }
  }

  #knowBursts(name: 'burst' | 'spaced', port: SightPort, lost: number): void {
    const isMet = this.#seen.has('far')
    if (name === 'spaced') {
      if (lost === 0 && isMet) this.#left = [{ name: 'burst', port: 'far', dues: AT_ONCE }]
      return
    }
    if (port === 'near') {
      this.#lostAtFirst = lost
      // Otherwise the network itself may have been away.
      if (this.#isHairpinMissed && lost < BURST) this.#sights = { ...this.#sights, hairpins: false }
      if (lost <= FEW_LOST) this.#sights = { ...this.#sights, bursts: 'pass' }
      if (lost >= MANY_LOST && isMet) this.#left = [{ name: 'spaced', port: 'near', dues: ONE_BY_ONE }]
      return
    }
    if (lost >= MANY_LOST && this.#lostAtFirst >= MANY_LOST) this.#sights = { ...this.#sights, bursts: 'limited' }
  }

  #packetsOf({ step, asked }: Progress): readonly SightPacket[] {
    if (step.name === 'hairpin') return this.#hairpinPackets()
    const relay = this.#relayOf(step.port)
    const place = step.name === 'place' ? this.#seen.get('near') : undefined
    if (relay === undefined || (step.name === 'place' && place === undefined)) return []
    const counter = this.#init.nextCounter()
    asked.add(counter)
    const way: EchoWay = step.name === 'port' || step.name === 'place' ? step.name : 'none'
    const question = {
      ...{ from: this.#init.from, to: relay.id, counter, cookie: this.#cookies.get(step.port) ?? NO_COOKIE, way },
      ...(place === undefined ? {} : { place }),
    }
    return [{ port: step.port, to: relay.at, bytes: encodeEcho(question, relay.key) }]
  }

  #hairpinPackets(): readonly SightPacket[] {
    const places = this.#hairpinPlaces()
    if (places === undefined) return []
    return PORTS.map((port) => ({ port, to: places[port], bytes: this.#init.nonce }))
  }

  /** Where each port is to send. Two relays have to see both at one address, so that no relay alone can choose it. */
  #hairpinPlaces(): Readonly<Record<SightPort, AddressPort>> | undefined {
    const [near, far] = [this.#seen.get('near'), this.#seen.get('far')]
    if (near === undefined || far === undefined || near.address.value !== far.address.value) return undefined
    if (!this.#init.mayProbe(near) || !this.#init.mayProbe(far)) return undefined
    return { near: far, far: near }
  }

  #relayOf(port: SightPort): SightRelay | undefined {
    return port === 'near' ? this.#init.first : this.#init.second
  }
}

function endMs({ dues }: Step): number {
  return (dues.at(-1) ?? 0) + ANSWERS_MS
}
