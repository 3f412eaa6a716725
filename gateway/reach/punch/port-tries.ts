/**
 * Guesses ports between the ends of relayed links of which one is behind a NAT that maps each destination, and the other
 * behind one that lets in known places only (plan-port-tries.ts). A state machine without a clock.
 *
 *   opens                                                        guesses
 *   a try has failed ──request──► relay ──────────────────────►  reply, and a request of its own
 *   reply, holes ◄──────────────────────── relay ◄────────────── (repeated)
 *          └───reply────► relay ──────────────────────────────►  guesses (Punch.guess)
 *   a guess comes in at one of the holes: that port is the device's for this place (plan-shared-port.ts) ─► Punch.call
 *
 * Both ends send many packets, so each does it only after the other has answered a request of its own just now, and to
 * the address alone at which that end says that a relay sees it, and at which this relay sees it, which has challenged
 * it there. An end says only what relays of two members see. So a member alone cannot name a victim. One attempt at a
 * time on each side. A device has at most one other port for a place, as the table holds no more.
 */
import type { OpenProbeSocket } from '../../../kernel/probing/probing.ts'
import { type AddressPort, formatAddress, sameAddressPort } from '../../../model/addresses/addresses.ts'
import { NatHoles } from './nat-holes.ts'
import {
  ATTEMPT_MS,
  GuessBudget,
  HOLES,
  PortGuesses,
  type PortRole,
  REST_MS,
  type Random,
  attemptsApartMs,
} from './plan-port-tries.ts'
import { type PunchMessage, decodeProbe, encodeProbe } from '../frames/punch-frame.ts'
import type { Punch } from './punch.ts'

/** One relay at which both ends are bound. */
export interface RelayedWay {
  /** Where it takes packets for the far end. */
  readonly at: AddressPort
  /** Where it sees this end. */
  readonly seen: AddressPort
  readonly far: AddressPort
}

/** Packets between a device and one place have another port of this node outside. */
export interface OtherPort {
  /** UDP port of a lane device. */
  readonly device: number
  readonly to: AddressPort
  readonly port: number
}

/** Where a device sends packets of a link. */
export interface UsedPlace {
  readonly remoteLane: number
  readonly at: AddressPort
}

/** A relayed link. */
export interface TriedLink {
  readonly name: string
  readonly remoteLane: number
  /** endId() of this end and of the far one. */
  readonly from: string
  readonly to: string
  /** probeKey(). */
  readonly key: Buffer
  readonly punch: Punch
  readonly role: PortRole | undefined
  readonly ways: readonly RelayedWay[]
}

export interface LanePacket {
  readonly remoteLane: number
  readonly bytes: Buffer
  readonly to: AddressPort
}

export interface Now {
  readonly nowMs: number
  readonly wallMs: number
}

export interface PortTriesDeps {
  readonly openSocket: OpenProbeSocket
  readonly random: Random
  /** Whether a probe may go to this place. */
  readonly mayProbe: (at: AddressPort) => boolean
  readonly now: () => Now
  /** Call look(), and apply others(). */
  readonly onDue: () => void
}

/** A request without a reply is repeated after this time, so often. */
const REPEAT_MS = 1000
const REQUESTS = 5
/** After requests without a reply, and after the loss of a place: the far end may be busy with another link. */
const REQUESTED_APART_MS = 60_000
/** The end that guesses turns to other links for so long after requests without a reply: less than its far end waits. */
const UNREPLIED_APART_MS = 30_000
/** The table that gives the device the port is here after this time, or something is wrong. */
const APPLIED_MS = 20_000

interface Request {
  readonly name: string
  readonly way: RelayedWay
  readonly counters: Set<number>
  dueMs: number
}

/** The end that opens. */
type Opening =
  | { readonly is: 'requesting'; readonly request: Request }
  | { readonly is: 'open'; readonly name: string; readonly way: RelayedWay; readonly holes: NatHoles; untilMs: number }

/** The port at which the far end has got through. */
interface KeptPort {
  readonly port: number
  readonly remoteLane: number
  readonly to: AddressPort
  readonly close: () => void
  readonly sinceMs: number
  /** The device has the port. */
  isApplied: boolean
  wasProven: boolean
}

export class PortTries {
  readonly #deps: PortTriesDeps
  readonly #budget = new GuessBudget()
  #links: ReadonlyMap<string, TriedLink> = new Map()
  #opening: Opening | undefined
  /** Of the end that guesses. */
  #request: Request | undefined
  #guessing: string | undefined
  /** The relay through which that was agreed. */
  #guessedBy: AddressPort | undefined
  readonly #kept = new Map<string, KeptPort>()
  /** When links may be tried again. */
  readonly #againMs = new Map<string, number>()
  /** When links were tried last by this end as the one that opens. */
  readonly #begunMs = new Map<string, number>()
  /** How many attempts in a row have found nothing. */
  readonly #vain = new Map<string, number>()
  /** Until when no ports are guessed. */
  #restsUntilMs = -Infinity
  /** The greatest counters of requests of far ends. */
  readonly #taken = new Map<string, number>()
  #counter = 0

  constructor(deps: PortTriesDeps) {
    this.#deps = deps
  }

  /** The ports that devices have for far ends. `deviceOf`: the port of a lane's device. */
  others(deviceOf: (remoteLane: number) => number | undefined): readonly OtherPort[] {
    return [...this.#kept.values()].flatMap(({ port, remoteLane, to }) => {
      const device = deviceOf(remoteLane)
      return device === undefined ? [] : [{ device, port, to }]
    })
  }

  /** The remote lanes whose devices have other ports. */
  lanes(): readonly number[] {
    return [...this.#kept.values()].map(({ remoteLane }) => remoteLane)
  }

  /** A device has the port since an earlier run of this process: it stays as long as a link uses the place. */
  adopt(remoteLane: number, { port, to }: Pick<OtherPort, 'port' | 'to'>): void {
    const none = (): void => undefined
    const socket = this.#deps.openSocket('0.0.0.0', port, { onReady: none, onMessage: none, onError: none })
    const close = (): void => socket.close()
    const sinceMs = this.#deps.now().nowMs
    this.#kept.set(`${port}`, { port, remoteLane, to, close, sinceMs, isApplied: true, wasProven: false })
  }

  /** The devices have these ports. */
  applied(others: readonly OtherPort[]): void {
    for (const [name, kept] of this.#kept) {
      if (kept.isApplied || !others.some(({ port }) => port === kept.port)) continue
      kept.isApplied = true
      this.#links.get(name)?.punch.call(kept.to, this.#deps.now().nowMs)
    }
  }

  /** The table was refused. It may be that the kernel does not take ports that no device has yet, so they are given up. */
  refused(): void {
    const { nowMs } = this.#deps.now()
    for (const [name, kept] of this.#kept) {
      if (kept.isApplied) continue
      kept.close()
      this.#kept.delete(name)
      this.#failed(name, nowMs)
    }
  }

  /** Closes the holes once their time is over, also while nothing calls look(). */
  expire(): void {
    this.#lookAtOpening(this.#deps.now().nowMs)
  }

  /** Takes all links, and where packets of links go. Returns the packets to send. */
  look(links: readonly TriedLink[], used: readonly UsedPlace[]): readonly LanePacket[] {
    const now = this.#deps.now()
    this.#links = new Map(links.map((link) => [link.name, link]))
    for (const known of [this.#againMs, this.#begunMs, this.#taken, this.#vain])
      for (const name of known.keys()) if (!this.#links.has(name)) known.delete(name)
    this.#lookAtKept(used, now.nowMs)
    this.#lookAtOpening(now.nowMs)
    this.#lookAtGuessing(now.nowMs)
    if (this.#opening === undefined) this.#begin(now.nowMs)
    if (this.#opening?.is === 'open') this.#opening.holes.open(now.nowMs)
    const own = this.#opening?.is === 'requesting' ? this.#opening.request : undefined
    return [own, this.#request].flatMap((one) => (one === undefined ? [] : this.#repeat(one, now)))
  }

  /** When look() should be called again, in milliseconds of the monotonic clock. */
  get dueMs(): number {
    const opening = this.#opening
    const openingMs = opening?.is === 'open' ? Math.min(opening.holes.dueMs, opening.untilMs) : opening?.request.dueMs
    const kept = [...this.#kept.values()].map((one) => (one.isApplied ? Infinity : one.sinceMs + APPLIED_MS))
    return Math.min(openingMs ?? Infinity, this.#request?.dueMs ?? Infinity, ...kept)
  }

  /** Takes a message of the far end of a link that look() knows. It came through a relay. */
  take(name: string, bytes: Buffer, from: AddressPort): readonly LanePacket[] {
    const link = this.#links.get(name)
    const way = link?.ways.find(({ at }) => sameAddressPort(at, from))
    const message = way && link && decodeProbe(bytes, link.key)
    if (link === undefined || way === undefined || message === undefined) return []
    const now = this.#deps.now()
    if (message.type === 'reply') {
      if (message.from === link.from && message.to === link.to) this.#takeReply(link, way, message, now.nowMs)
      return []
    }
    if (message.type !== 'request' || message.from !== link.to || message.to !== link.from) return []
    if (message.counter <= (this.#taken.get(link.name) ?? -Infinity)) return []
    this.#taken.set(link.name, message.counter)
    return this.#takeRequest(link, way, message, now)
  }

  /** A probe of the far end came from this place to the device's own port: one of the guesses was that. */
  heard(name: string, from: AddressPort): void {
    const opening = this.#opening
    if (opening?.is !== 'open' || opening.name !== name || !sameAddressPort(opening.way.far, from)) return
    opening.holes.close()
    this.#opening = undefined
    this.#againMs.set(name, this.#deps.now().nowMs + REQUESTED_APART_MS)
    this.#links.get(name)?.punch.call(from, this.#deps.now().nowMs)
    this.#deps.onDue()
  }

  close(): void {
    if (this.#opening?.is === 'open') this.#opening.holes.close()
    for (const { close } of this.#kept.values()) close()
    this.#kept.clear()
    this.#opening = undefined
  }

  /** A port is the device's as long as a link is at the place, or may be there soon. */
  #lookAtKept(used: readonly UsedPlace[], nowMs: number): void {
    for (const [name, kept] of this.#kept) {
      const state = this.#links.get(name)?.punch.state
      const isProven = state?.is === 'proven' && sameAddressPort(state.at, kept.to)
      if (isProven && !kept.wasProven) this.#budget.answered(kept.to.address)
      if (isProven) kept.wasProven = true
      const isUsed = used.some(({ remoteLane, at }) => remoteLane === kept.remoteLane && sameAddressPort(at, kept.to))
      const isSoon = kept.isApplied ? isProven || state?.is === 'trying' : nowMs - kept.sinceMs < APPLIED_MS
      if (isUsed || isSoon) continue
      kept.close()
      this.#kept.delete(name)
      if (kept.wasProven) this.#lost(name, nowMs)
      else this.#failed(name, nowMs)
      this.#deps.onDue()
    }
  }

  #lookAtOpening(nowMs: number): void {
    const opening = this.#opening
    if (opening === undefined) return
    const name = opening.is === 'open' ? opening.name : opening.request.name
    const isAway = !this.#isWanted(name, 'opens')
    const isSpent =
      opening.is === 'open'
        ? nowMs >= opening.untilMs
        : opening.request.counters.size >= REQUESTS && nowMs >= opening.request.dueMs
    if (!isAway && !isSpent) return
    this.#opening = undefined
    if (opening.is === 'open') opening.holes.close()
    if (opening.is === 'open' && isSpent) this.#failed(name, nowMs)
    else this.#againMs.set(name, nowMs + REQUESTED_APART_MS)
  }

  #failed(name: string, nowMs: number): void {
    const count = (this.#vain.get(name) ?? 0) + 1
    this.#vain.set(name, count)
    this.#againMs.set(name, nowMs + attemptsApartMs(count))
  }

  #lost(name: string, nowMs: number): void {
    this.#vain.delete(name)
    this.#againMs.set(name, nowMs + REQUESTED_APART_MS)
  }

  #lookAtGuessing(nowMs: number): void {
    if (this.#guessing !== undefined) {
      const state = this.#links.get(this.#guessing)?.punch.state
      if (state?.is !== 'trying' || state.guesses === undefined) this.#guessing = undefined
      if (state === undefined || state.is === 'idle') this.#restsUntilMs = nowMs + REST_MS
    }
    const request = this.#request
    if (request === undefined) return
    const isSpent = request.counters.size >= REQUESTS && nowMs >= request.dueMs
    if (!isSpent && this.#isWanted(request.name, 'guesses')) return
    this.#request = undefined
    this.#againMs.set(request.name, nowMs + UNREPLIED_APART_MS)
  }

  #isWanted(name: string, role: PortRole): boolean {
    const link = this.#links.get(name)
    return link !== undefined && link.role === role && link.punch.place === undefined && link.ways.length > 0
  }

  #begin(nowMs: number): void {
    const begunMs = ({ name }: TriedLink): number => this.#begunMs.get(name) ?? -Infinity
    const isEarlier = (a: TriedLink, b: TriedLink): number =>
      begunMs(a) < begunMs(b) ? -1 : begunMs(a) > begunMs(b) ? 1 : 0
    for (const link of [...this.#links.values()].sort(isEarlier)) {
      const { name, punch } = link
      const [way] = link.ways
      if (way === undefined || !punch.hasFailed || !this.#isWanted(name, 'opens')) continue
      if (nowMs < (this.#againMs.get(name) ?? -Infinity) || !this.#mayOpen(link, way, nowMs)) continue
      this.#begunMs.set(name, nowMs)
      this.#opening = { is: 'requesting', request: { name, way, counters: new Set(), dueMs: nowMs } }
      return
    }
  }

  /** Whether holes may be opened towards the far end, wherever a relay has put it. */
  #mayOpen({ name, remoteLane }: TriedLink, { far }: RelayedWay, nowMs: number): boolean {
    // One of an earlier run has no name of a link; and another far end may be said to be there, too.
    const isKept = [...this.#kept.values()].some((kept) => {
      return kept.remoteLane === remoteLane && sameAddressPort(kept.to, far)
    })
    return (
      !isKept && !this.#kept.has(name) && this.#deps.mayProbe(far) && this.#budget.left(far.address, nowMs) >= HOLES
    )
  }

  #repeat(request: Request, { nowMs, wallMs }: Now): readonly LanePacket[] {
    const link = this.#links.get(request.name)
    if (link === undefined || nowMs < request.dueMs || request.counters.size >= REQUESTS) return []
    this.#counter = Math.max(this.#counter + 1, Math.floor(wallMs))
    request.counters.add(this.#counter)
    request.dueMs = nowMs + REPEAT_MS
    const { from, to } = link
    return [packet(link, request.way, { type: 'request', from, to, counter: this.#counter })]
  }

  #takeRequest(link: TriedLink, way: RelayedWay, message: PunchMessage, now: Now): readonly LanePacket[] {
    const { from, to, counter } = message
    const reply = packet(link, way, { type: 'reply', from, to, counter })
    if (link.role === 'opens') return this.#isOpening(link.name) ? [reply] : []
    // The first reply was lost.
    if (this.#guessing === link.name && sameAddressPort(way.at, this.#guessedBy)) return [reply]
    if (!this.#mayGuess(link, way, message, now.nowMs)) return []
    if (this.#request === undefined) {
      this.#request = { name: link.name, way, counters: new Set(), dueMs: now.nowMs }
      this.#deps.onDue()
    }
    return [reply, ...this.#repeat(this.#request, now)]
  }

  #isOpening(name: string): boolean {
    return (
      this.#opening !== undefined && name === (this.#opening.is === 'open' ? this.#opening : this.#opening.request).name
    )
  }

  /** Whether this end may guess for the link, and is free for that. */
  #mayGuess(link: TriedLink, way: RelayedWay, { place }: PunchMessage, nowMs: number): boolean {
    const isFree = this.#guessing === undefined && (this.#request === undefined || this.#request.name === link.name)
    if (!isFree || nowMs < this.#restsUntilMs || !this.#isWanted(link.name, 'guesses')) return false
    if (nowMs < (this.#againMs.get(link.name) ?? -Infinity)) return false
    if (formatAddress(place.address) !== formatAddress(way.far.address)) return false
    return this.#deps.mayProbe(way.far) && this.#budget.left(way.far.address, nowMs) > 0
  }

  #takeReply(link: TriedLink, way: RelayedWay, { counter, place }: PunchMessage, nowMs: number): void {
    const opening = this.#opening
    if (opening?.is === 'requesting' && opening.request.name === link.name) {
      // Its NAT maps alike, so all see it at one place.
      const isReply = opening.request.counters.has(counter) && sameAddressPort(place, way.far)
      if (isReply && this.#mayOpen(link, way, nowMs)) this.#openHoles(link, way, nowMs)
      return
    }
    const isSame = formatAddress(place.address) === formatAddress(way.far.address)
    if (this.#request?.name !== link.name || !this.#request.counters.has(counter) || !isSame) return
    this.#request = undefined
    // The reply may have come through another relay than the request of the far end.
    if (!this.#isWanted(link.name, 'guesses') || !this.#deps.mayProbe(way.far)) return
    this.#guessing = link.name
    this.#guessedBy = way.at
    const { random } = this.#deps
    link.punch.guess(new PortGuesses({ address: way.far.address, budget: this.#budget, random, nowMs }), nowMs)
    this.#deps.onDue()
  }

  #openHoles(link: TriedLink, way: RelayedWay, nowMs: number): void {
    const { openSocket, random, now, onDue } = this.#deps
    this.#budget.take(way.far.address, HOLES, nowMs)
    const bytes = (): Buffer => {
      this.#counter = Math.max(this.#counter + 1, Math.floor(now().wallMs))
      const { from, to, key } = link
      return encodeProbe({ type: 'probe', from, to, counter: this.#counter, place: way.far }, key)
    }
    const onMessage = (received: Buffer, port: number): void => this.#heard(link.name, received, port)
    const holes = new NatHoles({ openSocket, random, to: way.far, bytes, onMessage, nowMs })
    this.#opening = { is: 'open', name: link.name, way, holes, untilMs: nowMs + ATTEMPT_MS }
    onDue()
  }

  /**
   * The first guess of the far end that gets through is answered from the port where it came in, so the far end stops.
   * Its other probes wait for the device to have that port.
   */
  #heard(name: string, bytes: Buffer, port: number): void {
    const [link, opening] = [this.#links.get(name), this.#opening]
    if (link === undefined || opening?.is !== 'open' || opening.name !== name) return
    const message = decodeProbe(bytes, link.key)
    if (message?.type !== 'probe' || message.from !== link.to || message.to !== link.from) return
    const { nowMs, wallMs } = this.#deps.now()
    const { holes, way } = opening
    const { packets } = link.punch.take(bytes, way.far, { nowMs, wallMs })
    for (const one of packets) if (sameAddressPort(one.to, way.far)) holes.send(port, one.bytes)
    holes.keep(port)
    this.#opening = undefined
    const { remoteLane } = link
    const close = (): void => holes.close()
    this.#kept.set(name, { port, remoteLane, to: holes.to, close, sinceMs: nowMs, isApplied: false, wasProven: false })
    this.#deps.onDue()
  }
}

function packet(
  { remoteLane, key }: TriedLink,
  { at, seen }: RelayedWay,
  message: Omit<PunchMessage, 'place'>,
): LanePacket {
  return { remoteLane, bytes: encodeProbe({ ...message, place: seen }, key), to: at }
}
