/**
 * Finds a place at which the far end of one relayed link can be called through the NATs of both ends (RFC 5128 section
 * 3.3). A state machine without a socket; the socket must share the port of the link's device (plan-shared-port.ts).
 *
 *   idle ──a time at which both ends try──► trying ──two answers from one place──► proven ──the link fails there──► idle
 *    ▲ └──────a probe of the far end───────────┘ │                                                  (after a pause)
 *    └────────── no answers in TRY_MS ───────────┘
 *
 * Both ends send a few probes to each place at which a relay sees the other, and to its candidates, at the same times:
 * those since which the relay has both ends bound (tryTimes()). The first probe of an end opens the NAT in front of it for
 * those of the far end. The relay carries the link meanwhile. An end answers each probe of the far end with as many
 * octets, and probes the place from which it came, which may be another one than that which the relay sees.
 *
 * Only a relay's word says that the far end is at a place, so a place that has not answered gets few packets:
 * ProbeBudget.
 */
import {
  type Address,
  type AddressPort,
  formatAddress,
  formatAddressPort,
  sameAddressPort,
} from '../../../model/addresses/addresses.ts'
import type { PunchedPlace } from '../../world/world.ts'
import type { NatMapping } from '../frames/bind-frame.ts'
import type { PortGuesses } from './plan-port-tries.ts'
import { type PunchMessage, decodeProbe, encodeProbe } from '../frames/punch-frame.ts'

/** The first try, since both ends are bound: time in which each learns of what kind the far end's NAT is. */
export const FIRST_TRY_MS = 1000
/** The pause after the first try; each one is twice as long as that before, up to the longest. */
export const TRY_PAUSE_MS = 60_000
export const LONGEST_TRY_PAUSE_MS = 1_800_000
/** How long answers count for a try. A NAT keeps an unanswered mapping for 30 s or more, which is more than enough. */
export const TRY_MS = 5000
/** Whatever relays say, an end begins to try again only after this time. */
const TRIES_APART_MS = 20_000
/** The pauses after the probes to one place: five probes in a try. */
const PAUSES_MS = [150, 250, 500, 900, Infinity] as const
/** A probe of the far end comes from a place: probes to it get through now, and so many are left to prove it. */
const PROBES_LEFT = 2
/** So many answers from a place, and the link moves there. */
const PROOFS = 2
const MOST_PLACES = 8
/** A place that answers, and has to for longer, is probed so often; without an answer for this time the try is over. */
const PROVING_PAUSE_MS = 1000
const PROVING_LOST_MS = 2500

/** The tries around a time, all in milliseconds since both ends are bound. */
export interface TryTimes {
  /** The last one that was due. Undefined before the first. */
  readonly lastMs: number | undefined
  readonly nextMs: number
}

/** When both ends try: after FIRST_TRY_MS, and after pauses that double. */
export function tryTimes(sharedMs: number): TryTimes {
  let [lastMs, nextMs, pauseMs]: [number | undefined, number, number] = [undefined, FIRST_TRY_MS, TRY_PAUSE_MS]
  while (nextMs <= sharedMs) {
    lastMs = nextMs
    nextMs += pauseMs
    pauseMs = Math.min(2 * pauseMs, LONGEST_TRY_PAUSE_MS)
  }
  return { lastMs, nextMs }
}

/** After so long, pauses are the longest. */
const LONG_PAUSES_MS = ((): number => {
  let [ms, pauseMs] = [FIRST_TRY_MS, TRY_PAUSE_MS]
  for (; pauseMs < LONGEST_TRY_PAUSE_MS; pauseMs *= 2) ms += pauseMs
  return ms
})()

/**
 * The time from which tryTimes() is to count, given the time since which this end alone knows that both ends are linked.
 * An end that was away for a moment counts from another time than the far end, which may not have seen that. Thus tries
 * after the longest pause are at multiples of LONGEST_TRY_PAUSE_MS of the time of day. `nowMs` and `sinceMs` are of the
 * monotonic clock, `wallMs` is the time of day at `nowMs`.
 */
export function triesSince(sinceMs: number, nowMs: number, wallMs: number): number {
  if (nowMs - sinceMs < LONG_PAUSES_MS) return sinceMs
  return sinceMs - ((wallMs - nowMs + sinceMs + LONG_PAUSES_MS) % LONGEST_TRY_PAUSE_MS)
}

// Of what kind the NAT in front of this node is, as several relays see this node.

/** One relay sees packets of one port of this node come from a place. */
export interface Observation {
  readonly lane: number
  readonly relay: Address
  readonly seen: AddressPort
}

/**
 * Two relays at different addresses that see one port at one place: endpoint-independent; at two places:
 * address-dependent. Unknown with a single relay.
 */
export function observedMapping(observations: readonly Observation[]): NatMapping {
  let mapping: NatMapping = 'unknown'
  for (const of of Map.groupBy(observations, ({ lane }) => lane).values()) {
    const [first, ...others] = of
    if (first === undefined) continue
    // Two ports of one relay say less: a NAT may keep a mapping for each address.
    const elsewhere = others.filter(({ relay }) => formatAddress(relay) !== formatAddress(first.relay))
    if (elsewhere.some(({ seen }) => !sameAddressPort(seen, first.seen))) return 'addressDependent'
    if (elsewhere.length > 0) mapping = 'endpointIndependent'
  }
  return mapping
}

/** Two NATs that give each destination another place: each end would have to guess the other's port. */
export function isHopeless({ own, far, isMapped }: Pick<PunchFacts, 'own' | 'far' | 'isMapped'>): boolean {
  return isMapped !== true && own === 'addressDependent' && far === 'addressDependent'
}

/**
 * The places of the far end, best first. A try has room for few, and an address gets few probes. What a relay sees of a
 * symmetric NAT is of no use, and `led`, the place to which the far end's router leads calls, is. Other places that the
 * far end states come last: through a NAT only that which a relay sees is of use.
 */
export function placesToTry({
  led,
  seen,
  stated,
}: Record<'seen' | 'stated', readonly AddressPort[]> & {
  readonly led: AddressPort | undefined
}): readonly AddressPort[] {
  return led === undefined ? [...seen, ...stated] : [led, ...seen, ...stated.filter((at) => !sameAddressPort(at, led))]
}

/** Packets to an address that has not answered yet, from all links of this node. */
export const PROBES_TO_ADDRESS = 10
const MOST_ADDRESSES = 4096

/**
 * How many probes addresses get. One that does not answer gets PROBES_TO_ADDRESS in a time that begins with a minute and
 * doubles each time, up to half an hour: nobody can make this node send more to a third party.
 */
export class ProbeBudget {
  readonly #sent = new Map<string, { count: number; sinceMs: number; forMs: number }>()

  /** Takes one probe. Returns false if the address may get none now. */
  take(at: AddressPort, nowMs: number): boolean {
    return this.#take(formatAddress(at.address), nowMs)
  }

  /**
   * The same for an answer. They count apart, as an end that tries late still depends on the answers of one that has
   * spent its probes.
   */
  takeAnswer(at: AddressPort, nowMs: number): boolean {
    return this.#take(answersTo(at), nowMs)
  }

  #take(text: string, nowMs: number): boolean {
    const known = this.#sent.get(text)
    if (known === undefined) {
      if (this.#sent.size >= MOST_ADDRESSES) this.#forget(nowMs)
      if (this.#sent.size >= MOST_ADDRESSES) return false
      this.#sent.set(text, { count: 1, sinceMs: nowMs, forMs: TRY_PAUSE_MS })
      return true
    }
    if (nowMs - known.sinceMs >= known.forMs) {
      known.sinceMs = nowMs
      known.count = 0
      known.forMs = Math.min(2 * known.forMs, LONGEST_TRY_PAUSE_MS)
    }
    known.count += 1
    return known.count <= PROBES_TO_ADDRESS
  }

  /** The address has answered a probe: its far end wants them. */
  answered(at: AddressPort): void {
    this.#sent.delete(formatAddress(at.address))
    this.#sent.delete(answersTo(at))
  }

  #forget(nowMs: number): void {
    for (const [key, { sinceMs }] of this.#sent) if (nowMs - sinceMs >= LONGEST_TRY_PAUSE_MS) this.#sent.delete(key)
  }
}

function answersTo({ address }: AddressPort): string {
  return `answers ${formatAddress(address)}`
}

/** Counters that are this much older than the newest are refused, in milliseconds, as they begin with the time of day. */
const REPLAY_MS = 3000
const MOST_COUNTERS = 64

/** Accepts each counter once, in nearly any order, and none that is much older than the newest (RFC 4303 section 3.4.3). */
export class ReplayWindow {
  readonly #seen = new Set<number>()
  #newest = -Infinity
  #oldest = -Infinity

  accept(counter: number): boolean {
    if (counter <= this.#oldest || counter <= this.#newest - REPLAY_MS || this.#seen.has(counter)) return false
    this.#newest = Math.max(this.#newest, counter)
    this.#seen.add(counter)
    if (this.#seen.size <= MOST_COUNTERS) return true
    this.#oldest = Math.min(...this.#seen)
    this.#seen.delete(this.#oldest)
    return true
  }
}

/** What relays and the Endpoint say about the far end. */
export interface PunchFacts {
  /** Where the far end may be, best first: where relays see it, and its candidates. */
  readonly places: readonly AddressPort[]
  readonly far: NatMapping
  readonly own: NatMapping
  /** Since when both ends are bound at a relay. Undefined: they are not. */
  readonly sharedSinceMs: number | undefined
  /** A router leads calls to one of the two ends, whatever its NAT does otherwise. Absent: none does. */
  readonly isMapped?: boolean
}

export interface PunchInit {
  /** endId() of this end and of the far one. */
  readonly own: string
  readonly far: string
  /** probeKey(). */
  readonly key: Buffer
  readonly budget: ProbeBudget
  /** Whether a probe may go to this place. */
  readonly mayProbe: (at: AddressPort) => boolean
  /** For how long a place has to answer before it is proven, in milliseconds. Default: PROOFS answers suffice. */
  readonly provesMs?: number
}

interface ProbedPlace {
  readonly at: AddressPort
  /** When the next probe is due. Infinity: none. */
  dueMs: number
  sent: number
  answers: number
  /** When the first answer came. Undefined: none has. */
  answeredMs: number | undefined
}

export type PunchState =
  | { readonly is: 'idle' }
  | {
      readonly is: 'trying'
      readonly untilMs: number
      readonly places: Map<string, ProbedPlace>
      /** Ports at which the far end may be, until it has answered. Absent: none are guessed. */
      readonly guesses?: PortGuesses | undefined
    }
  /** Packets pass in both directions. */
  | { readonly is: 'proven'; readonly at: AddressPort; readonly sinceMs: number }

export interface PunchPacket {
  readonly bytes: Buffer
  readonly to: AddressPort
}

export class Punch {
  readonly #init: PunchInit
  readonly #window = new ReplayWindow()
  /** Where probes went whose answers count, by counter. */
  readonly #asked = new Map<number, AddressPort>()
  #state: PunchState = { is: 'idle' }
  #facts: PunchFacts = { places: [], far: 'unknown', own: 'unknown', sharedSinceMs: undefined }
  #counter = 0
  /** The last time that was used for a try, as tryTimes() and the relay have it, and when a try began here. */
  #usedMs = -Infinity
  #triedMs = -Infinity
  /** After a loss: when to try again, and the pause after the next one. */
  #againMs = Infinity
  #pauseMs = TRY_PAUSE_MS

  constructor(init: PunchInit) {
    this.#init = init
  }

  get state(): PunchState {
    return this.#state
  }

  /** Where the far end can be called. Undefined: nowhere, as far as is known. */
  get place(): PunchedPlace | undefined {
    if (this.#state.is !== 'proven') return undefined
    const { at, sinceMs } = this.#state
    return { ...at, sinceMs }
  }

  /** A try is over, and nothing has answered. */
  get hasFailed(): boolean {
    return this.#state.is === 'idle' && this.#triedMs > -Infinity
  }

  /** Takes what is known now. */
  know(facts: PunchFacts): void {
    // Another way may be open since, so the next try does not wait for its time.
    if (facts.isMapped === true && this.#facts.isMapped !== true) {
      this.#againMs = Math.min(this.#againMs, this.#triedMs + TRIES_APART_MS)
    }
    this.#facts = facts
  }

  /** When next() should be called again, in milliseconds of the monotonic clock. */
  dueMs(nowMs: number): number {
    if (this.#state.is === 'proven') return Infinity
    if (this.#state.is === 'trying') {
      const { untilMs, guesses, places } = this.#state
      return Math.min(untilMs, guesses?.dueMs ?? Infinity, ...[...places.values()].map(({ dueMs }) => dueMs))
    }
    const { sharedSinceMs } = this.#facts
    if (sharedSinceMs === undefined || this.#isHopeless()) return Infinity
    const sharedMs = nowMs - sharedSinceMs
    const isUnused = this.#isUnused(sharedSinceMs, sharedMs)
    const apartMs = this.#triedMs + TRIES_APART_MS
    return Math.min(this.#againMs, Math.max(isUnused ? nowMs : sharedSinceMs + tryTimes(sharedMs).nextMs, apartMs))
  }

  /** The probes to send now. `wallMs` is the time of day: counters begin there. */
  next(nowMs: number, wallMs: number): readonly PunchPacket[] {
    if (this.#state.is === 'trying' && nowMs >= this.#state.untilMs) this.#enter({ is: 'idle' })
    if (this.#state.is === 'idle' && this.#isDue(nowMs)) this.#begin(nowMs, this.#facts.places)
    if (this.#state.is !== 'trying') return []
    const guesses = (this.#state.guesses?.next(nowMs) ?? []).filter((at) => this.#init.mayProbe(at))
    const guessed = guesses.map((at) => this.#probe(at, wallMs))
    const probes = [...this.#state.places.values()].flatMap((place) => {
      if (nowMs < place.dueMs) return []
      place.dueMs = nowMs + (place.answers >= PROOFS ? PROVING_PAUSE_MS : (PAUSES_MS[place.sent] ?? Infinity))
      place.sent += 1
      if (!this.#init.budget.take(place.at, nowMs)) return []
      return [this.#probe(place.at, wallMs)]
    })
    return [...guessed, ...probes]
  }

  /**
   * Tries the place now, whatever was tried before: an authenticated message of the far end has come from there, where a
   * relay sees it, too. So earlier tries without an answer do not count against the address.
   */
  call(at: AddressPort, nowMs: number): void {
    if (this.#state.is === 'proven') return
    this.#init.budget.answered(at)
    this.#begin(nowMs, [at])
  }

  /** Looks for the far end at all ports that `guesses` gives. */
  guess(guesses: PortGuesses, nowMs: number): void {
    if (this.#state.is === 'proven') return
    this.#begin(nowMs, [])
    this.#enter({ is: 'trying', untilMs: guesses.untilMs, places: new Map(), guesses })
  }

  /** Takes a message of the far end. `packets` are to be sent; `isChanged`: another place is proven. */
  take(
    bytes: Buffer,
    from: AddressPort,
    { nowMs, wallMs }: { readonly nowMs: number; readonly wallMs: number },
  ): { readonly packets: readonly PunchPacket[]; readonly isChanged: boolean } {
    const none = { packets: [], isChanged: false }
    const message = decodeProbe(bytes, this.#init.key)
    if (message === undefined) return none
    const { own, far } = this.#init
    if (message.type === 'answer') {
      const isMine = message.from === own && message.to === far
      return { packets: [], isChanged: isMine && this.#answered(message, from, nowMs) }
    }
    if (message.from !== far || message.to !== own || !this.#window.accept(message.counter)) return none
    const packets = this.#mayAnswer(from, nowMs) ? [this.#answer(message, from)] : []
    this.#heard(from, nowMs)
    return { packets: [...packets, ...this.next(nowMs, wallMs)], isChanged: false }
  }

  /** The link does not come up at the proven place, or no longer works there. */
  lost(nowMs: number): void {
    if (this.#state.is !== 'proven') return
    // A path that has worked for long is worth a try soon.
    if (nowMs - this.#state.sinceMs >= 10 * this.#pauseMs) this.#pauseMs = TRY_PAUSE_MS
    this.#againMs = nowMs + this.#pauseMs
    this.#pauseMs = Math.min(2 * this.#pauseMs, LONGEST_TRY_PAUSE_MS)
    this.#triedMs = nowMs
    this.#enter({ is: 'idle' })
  }

  #isHopeless(): boolean {
    return isHopeless(this.#facts)
  }

  #isDue(nowMs: number): boolean {
    const { sharedSinceMs } = this.#facts
    if (sharedSinceMs === undefined || this.#isHopeless() || nowMs - this.#triedMs < TRIES_APART_MS) return false
    return nowMs >= this.#againMs || this.#isUnused(sharedSinceMs, nowMs - sharedSinceMs)
  }

  /** Whether no try has begun for the last time that the relay's clock gives. Its answers differ by their way. */
  #isUnused(sharedSinceMs: number, sharedMs: number): boolean {
    const atMs = tryTimes(sharedMs).lastMs
    return atMs !== undefined && sharedSinceMs + atMs > this.#usedMs + TRIES_APART_MS / 2
  }

  #begin(nowMs: number, places: readonly AddressPort[]): void {
    const { sharedSinceMs = nowMs } = this.#facts
    const atMs = tryTimes(nowMs - sharedSinceMs).lastMs
    if (atMs !== undefined) this.#usedMs = sharedSinceMs + atMs
    this.#triedMs = nowMs
    this.#againMs = Infinity
    this.#enter({ is: 'trying', untilMs: nowMs + TRY_MS, places: new Map() })
    for (const at of places) this.#add(at, nowMs)
  }

  /** A probe of the far end has come from there, so it may be the way back. */
  #heard(from: AddressPort, nowMs: number): void {
    if (this.#state.is === 'proven' || this.#isHopeless()) return
    if (this.#state.is === 'idle') {
      if (nowMs - this.#triedMs < TRIES_APART_MS) return
      this.#begin(nowMs, [from, ...this.#facts.places])
      return
    }
    this.#add(from, nowMs)
    const place = this.#state.places.get(formatAddressPort(from))
    if (place === undefined || place.sent < PAUSES_MS.length - PROBES_LEFT) return
    // Two ends that prove a place for longer would answer each probe by another one.
    if (place.answers >= PROOFS) return
    place.sent = PAUSES_MS.length - PROBES_LEFT
    place.dueMs = nowMs
  }

  /** Whoever forwards a probe may put any source on it, so a place that has not answered gets few answers. */
  #mayAnswer(from: AddressPort, nowMs: number): boolean {
    if (this.place !== undefined && sameAddressPort(this.place, from)) return true
    return this.#init.mayProbe(from) && this.#init.budget.takeAnswer(from, nowMs)
  }

  #answer(probe: PunchMessage, from: AddressPort): PunchPacket {
    return { bytes: encodeProbe({ ...probe, type: 'answer', place: from }, this.#init.key), to: from }
  }

  #add(at: AddressPort, nowMs: number): void {
    if (this.#state.is !== 'trying' || !this.#init.mayProbe(at)) return
    const { places } = this.#state
    const text = formatAddressPort(at)
    if (!places.has(text) && places.size < MOST_PLACES) places.set(text, newPlace(at, nowMs))
  }

  /** A guess was right, so no other port is. */
  #guessed(at: AddressPort, nowMs: number): void {
    if (this.#state.is !== 'trying' || this.#state.guesses === undefined) return
    const { guesses, places } = this.#state
    if (formatAddress(at.address) !== formatAddress(guesses.address)) return
    guesses.answered()
    this.#state = { is: 'trying', untilMs: nowMs + TRY_MS, places }
  }

  #answered({ counter }: PunchMessage, from: AddressPort, nowMs: number): boolean {
    const at = this.#asked.get(counter)
    if (at === undefined || !sameAddressPort(at, from)) return false
    this.#asked.delete(counter)
    this.#init.budget.answered(at)
    if (this.#state.is !== 'trying') return false
    if (this.#state.guesses !== undefined) {
      this.#add(at, nowMs)
      this.#guessed(at, nowMs)
    }
    const place = this.#state.places.get(formatAddressPort(at))
    if (place === undefined) return false
    place.answers += 1
    place.answeredMs ??= nowMs
    if (place.answers < PROOFS) return false
    if (nowMs - place.answeredMs < (this.#init.provesMs ?? 0)) {
      place.dueMs = nowMs + PROVING_PAUSE_MS
      this.#state = { ...this.#state, untilMs: Math.max(this.#state.untilMs, nowMs + PROVING_LOST_MS) }
      return false
    }
    this.#enter({ is: 'proven', at, sinceMs: nowMs })
    return true
  }

  #probe(at: AddressPort, wallMs: number): PunchPacket {
    const { own, far, key } = this.#init
    this.#counter = Math.max(this.#counter + 1, Math.floor(wallMs))
    this.#asked.set(this.#counter, at)
    const message: PunchMessage = { type: 'probe', from: own, to: far, counter: this.#counter, place: at }
    return { bytes: encodeProbe(message, key), to: at }
  }

  #enter(state: PunchState): void {
    this.#state = state
    this.#asked.clear()
  }
}

function newPlace(at: AddressPort, nowMs: number): ProbedPlace {
  return { at, dueMs: nowMs, sent: 0, answers: 0, answeredMs: undefined }
}
