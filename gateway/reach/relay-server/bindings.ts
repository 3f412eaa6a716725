/**
 * Which address is bound to which port of a relay: a state machine without sockets, kernel or timers. Everything that
 * happens comes in through one method, apply().
 *
 * A pair of ends has two ports, one for each end, from the first question that proves its sender until nothing has
 * passed for 5 minutes, or for one minute if the far end was never bound. Until that is bound, the pair counts as one of
 * the member that asked first alone, so that members cannot use up each other's pairs. Each of its ends is in one of
 * two states:
 *
 *                    question with a cookie, at the end's port
 *      assigned  ─────────────────────────────────────────────►  bound at address:port
 *         ▲                                                          │  ▲
 *         └───────── 30 s without such a question ───────────────────┘  └─ such a question, also from elsewhere
 *
 * An end has each port once, for one far end. Ends share a port if every one is in use. The kernel distinguishes their
 * packets by the address from which they come, so no two ends are bound at one port from one address: the later one gets
 * another port, by the refusal `wrongPort`, after which ends of all releases ask again.
 *
 * A question proves its sender by its MAC, and its address by a cookie: a MAC over that address, and the port at which
 * the question arrived, with a secret of this process that changes every 2 minutes. The relay remembers nothing of a
 * question without a valid cookie; it answers with a challenge that contains the cookie. So nothing but challenges goes
 * to an address that has not answered one, and of these at most CHALLENGES_TO_ADDRESS in a minute.
 *
 * Packets of the cables never come here: nft forwards them by paths() (plan-relay-table.ts).
 */
import { timingSafeEqual } from 'node:crypto'
import { type AddressPort, classifyAddress, sameAddressPort } from '../../../model/addresses/addresses.ts'
import { PAIRS_OF_RELAY } from '../../../model/model.ts'
import { type Clock, TokenBucket, type TokenRate } from '../../../reconcile/reconcile.ts'
import { AddressCounts, CHALLENGES_TO_ADDRESS, Cookies } from './address-proof.ts'
import {
  type BindAnswer,
  type BindQuestion,
  type NatMapping,
  NO_COOKIE,
  type Refusal,
  bindKey,
  decodeQuestion,
  encodeAnswer,
  endId,
  namedEnds,
} from '../frames/bind-frame.ts'
import { decodeEcho, namedEcho } from '../frames/echo-frame.ts'
import { decodeHold, namedHold } from '../frames/hold-frame.ts'
import { MeasureAnswers } from './measure-answers.ts'
import type { QuestionOutcome, RelayEffect, RelayEnd, RelayEvent } from './relay-events.ts'
import { type PortRange, RelayPorts } from './relay-ports.ts'

export interface BindingLimits {
  readonly mostEnds: number
  readonly mostPairs: number
  /**
   * Of all ends of one member. Absent: a quarter of mostPairs. A pair that has no other way counts up to half of what
   * others leave.
   */
  readonly mostPairsOfMember?: number
  /**
   * Octets that the ends of two members may send each other in a period, in both directions together. Neither quota is
   * for pairs that have no other way.
   */
  readonly pairQuota: number
  /** Octets that the ends of one member may send in a period. */
  readonly memberQuota: number
  readonly periodMs: number
}

export const DEFAULT_LIMITS: BindingLimits = {
  mostEnds: 4096,
  mostPairs: PAIRS_OF_RELAY,
  pairQuota: 1e12,
  memberQuota: 4e12,
  periodMs: 24 * 3_600_000,
}

export interface BindingsInit {
  readonly clock: Pick<Clock, 'monotonic'>
  readonly clusterset: string
  /** Identity of the relay. */
  readonly identity: string
  /** The relay's own address, which ends may not have. */
  readonly address: AddressPort['address']
  /** Where ends ask for the port of a pair. */
  readonly controlPort: number
  /** The ports of pairs. */
  readonly ports: PortRange
  readonly limits: BindingLimits
  /** What the relay's identity and that of an end agree on. Undefined for an identity with which nothing is agreed. */
  readonly agree: (identity: string) => Buffer | undefined
  /** Random octets that others cannot foresee. */
  readonly randomBytes: (count: number) => Buffer
}

/** One direction of a pair whose ends are both bound. */
export interface RelayPath {
  readonly from: AddressPort
  /** The port at which packets arrive. */
  readonly port: number
  readonly to: AddressPort
  /** The port from which they leave. */
  readonly leaves: number
  /** A number of the member that sends, from 1, for its rate. It stays the same as long as the relay runs. */
  readonly member: number
  /**
   * A number of this direction, from 1 to twice the most pairs, for its rate and its octets. No other direction of a
   * pair has it at the same time.
   */
  readonly number: number
}

/** A binding without a further question ends after this time. */
export const BIND_LIFE_MS = 30_000
/** A pair that carries nothing for this time loses its ports. */
export const PAIR_IDLE_MS = 300_000
/** A pair of which only one end has ever been bound ends after this time. That end may ask again. */
export const PAIR_ALONE_MS = 60_000
/**
 * What one end gets: answers to questions with a cookie, and challenges. Whoever has copied a question of an end can use
 * up its challenges alone; an end that is bound needs none, since each answer has the next cookie.
 */
const ANSWERS_OF_END: TokenRate = { burst: 40, perSecond: 10 }
const CHALLENGES_OF_END: TokenRate = { burst: 60, perSecond: 1 }
/** An end with more pairs has more to ask: each further one adds to the rates of the end. */
const PAIRS_OF_RATES = 8
const ANSWERS_OF_PAIR: TokenRate = { burst: 4, perSecond: 1 }
const CHALLENGES_OF_PAIR: TokenRate = { burst: 2, perSecond: 0.25 }
/** How often one side may move: each time the table changes. A NAT moves an end seldom, and a restart of the end once. */
const MOVES_OF_SIDE: TokenRate = { burst: 4, perSecond: 0.5 }

interface KnownEnd extends RelayEnd {
  readonly id: string
  /** Computed when the end first asks. */
  key: Buffer | undefined
  readonly answers: TokenBucket
  readonly challenges: TokenBucket
}

type SideState =
  { readonly is: 'assigned' } | { readonly is: 'bound'; readonly at: AddressPort; readonly untilMs: number }

interface Side {
  readonly end: KnownEnd
  /** Another one if another end is bound at this port from the same address. */
  port: number
  /** RelayPath.number of what the end sends. */
  readonly number: number
  state: SideState
  /** The greatest counter that has bound this side. */
  newest: number
  /** What the end said last about the NAT in front of it. */
  mapping: NatMapping
  readonly moves: TokenBucket
}

interface Pair {
  readonly key: string
  /** First the end that has asked for the pair. */
  readonly sides: readonly [Side, Side]
  /** Cookies of a pair that had the same ends before are not valid for this one. */
  readonly generation: string
  /** When packets passed last, or when the pair got its ports. */
  usedMs: number
  /** Since when both sides are bound where they are now. */
  sharedSinceMs: number
}

/** How the questions of a measurement are read. */
interface Measuring<Q> {
  readonly named: Pick<BindQuestion, 'from' | 'to'>
  readonly decode: (bytes: Buffer, key: Buffer) => Q | undefined
}

/** Where and when a question has arrived. */
interface Arrived {
  readonly at: AddressPort
  readonly port: number
  readonly nowMs: number
}

export class Bindings {
  readonly #init: BindingsInit
  #ends: ReadonlyMap<string, KnownEnd> = new Map()
  #mayLink: (a: string, b: string) => boolean = () => false
  #isTransit: (a: string, b: string) => boolean = () => false
  readonly #pairs = new Map<string, Pair>()
  /** The side that has a number, with its pair. */
  readonly #byNumber = new Map<number, { readonly pair: Pair; readonly side: Side }>()
  readonly #ports: RelayPorts<KnownEnd>
  readonly #spentByMember = new Map<string, number>()
  /** By membersOf(). A pair that begins again has spent what it had. */
  readonly #spentByPair = new Map<string, number>()
  readonly #mostPairs: number
  readonly #mostPairsOfMember: number
  /** Of members whose ends had a pair. */
  readonly #numbers = new Map<string, number>()
  readonly #challenged = new AddressCounts(CHALLENGES_TO_ADDRESS)
  readonly #measures: MeasureAnswers
  readonly #cookies: Cookies
  readonly #ownId: string
  #periodSinceMs = -Infinity
  #nextNumber = 1
  #sweptMs = -Infinity

  constructor(init: BindingsInit) {
    this.#init = init
    this.#ports = new RelayPorts(init.ports)
    this.#cookies = new Cookies(init.randomBytes)
    this.#measures = new MeasureAnswers({
      clock: init.clock,
      mayChallenge: ({ end, at, nowMs }) => {
        const known = this.#ends.get(end.id)
        return known !== undefined && this.#mayChallenge(known, at, nowMs)
      },
      onProven: (at) => this.#challenged.forget(at),
    })
    this.#ownId = endId(init.clusterset, init.identity)
    const { mostPairs, mostPairsOfMember } = init.limits
    this.#mostPairs = mostPairs
    this.#mostPairsOfMember = mostPairsOfMember ?? Math.max(1, Math.floor(mostPairs / 4))
  }

  /** The only method that changes anything. */
  apply(event: RelayEvent): RelayEffect {
    const nowMs = this.#init.clock.monotonic()
    const isSwept = this.#sweep(nowMs, event.kind === 'time')
    switch (event.kind) {
      case 'ends':
        return { isChanged: this.#takeEnds(event) || isSwept }
      case 'carried':
        return { isChanged: this.#count(event.octets, nowMs) || isSwept }
      case 'time':
        return { isChanged: isSwept }
      case 'late':
        return { isChanged: isSwept, late: this.#measures.takeDue(nowMs) }
      case 'question': {
        const effect = this.#question(event.bytes, event.from, event.port, nowMs)
        return { ...effect, isChanged: effect.isChanged || isSwept }
      }
    }
  }

  /** Both directions of each pair whose ends are bound. */
  paths(): readonly RelayPath[] {
    const nowMs = this.#init.clock.monotonic()
    return [...this.#pairs.values()].flatMap(({ sides: [a, b] }) => {
      const [atA, atB] = [boundAt(a, nowMs), boundAt(b, nowMs)]
      if (atA === undefined || atB === undefined) return []
      return [
        { from: atA, port: a.port, to: atB, leaves: b.port, member: this.#memberNumber(a.end), number: a.number },
        { from: atB, port: b.port, to: atA, leaves: a.port, member: this.#memberNumber(b.end), number: b.number },
      ]
    })
  }

  /** Each bound end with its port: its questions are taken also while strangers flood the relay. */
  known(): readonly { readonly at: AddressPort; readonly port: number }[] {
    const nowMs = this.#init.clock.monotonic()
    return [...this.#byNumber.values()].flatMap(({ side }) => {
      const at = boundAt(side, nowMs)
      return at === undefined ? [] : [{ at, port: side.port }]
    })
  }

  /** When an answer to an end that measures its NAT is due, on the monotonic clock. Infinity: none is. */
  get lateDueMs(): number {
    return this.#measures.dueMs
  }

  /** Pairs that have ports now. */
  get pairCount(): number {
    return this.#pairs.size
  }

  /** The ports at which questions of pairs arrive, each once. */
  openPorts(): readonly number[] {
    return this.#ports.all()
  }

  #takeEnds({ ends, mayLink, isTransit = () => false }: Extract<RelayEvent, { readonly kind: 'ends' }>): boolean {
    const { clusterset, limits, identity } = this.#init
    const known = new Map<string, KnownEnd>()
    for (const { member, identity: of } of ends) {
      if (known.size >= limits.mostEnds) break
      const id = endId(clusterset, of)
      // The relay itself is no end, and the first of two members that state one identity has it.
      if (of === identity || known.has(id)) continue
      const before = this.#ends.get(id)
      const isSame = before !== undefined && before.identity === of && before.member === member
      known.set(id, isSame ? before : this.#newEnd({ member, identity: of }, id))
    }
    this.#ends = known
    this.#mayLink = mayLink
    this.#isTransit = isTransit
    const gone = [...this.#pairs.values()].filter(({ sides: [a, b] }) => {
      return known.get(a.end.id) !== a.end || known.get(b.end.id) !== b.end || !this.#arePartners(a.end, b.end)
    })
    for (const pair of gone) this.#end(pair)
    this.#measures.keepOnly((id, member) => known.get(id)?.member === member)
    return gone.length > 0
  }

  #newEnd(end: RelayEnd, id: string): KnownEnd {
    const { clock } = this.#init
    return { ...end, id, key: undefined, answers: new TokenBucket(clock), challenges: new TokenBucket(clock) }
  }

  /** Two gateways of one cluster never need a relay. */
  #arePartners(a: KnownEnd, b: KnownEnd): boolean {
    return a.member !== b.member && this.#mayLink(a.member, b.member) && this.#mayLink(b.member, a.member)
  }

  /**
   * The question of an end that measures its NAT, if it and its address are proven, or else what to do with the octets.
   * Such an end gets no port, and needs no far end.
   */
  #measuring<Q extends Pick<BindQuestion, 'from' | 'to' | 'counter' | 'cookie'>>(
    bytes: Buffer,
    { named, decode }: Measuring<Q>,
    { at, port, nowMs }: Arrived,
  ): { readonly end: KnownEnd; readonly key: Buffer; readonly question: Q } | RelayEffect {
    const silent = (outcome: QuestionOutcome): RelayEffect => ({ isChanged: false, outcome })
    if (named.to !== this.#ownId || port !== this.#init.controlPort) return silent('malformed')
    if (!this.#mayBeEnd(at)) return silent('badSource')
    const end = this.#ends.get(named.from)
    const key = end === undefined ? undefined : this.#keyOf(end)
    if (end === undefined || key === undefined) return silent('unknownEnd')
    const question = decode(bytes, key)
    if (question === undefined) return silent('wrongMac')
    const cookies = this.#cookies.valid(question, at, port, undefined, nowMs)
    if (cookies.some((cookie) => timingSafeEqual(cookie, question.cookie))) return { end, key, question }
    const [cookie] = cookies
    if (cookie === undefined || !this.#mayChallenge(end, at, nowMs)) return silent('tooMany')
    const { from, to, counter } = question
    return answered({ from, to, counter, type: 'challenge', cookie }, key)
  }

  #question(bytes: Buffer, at: AddressPort, port: number, nowMs: number): RelayEffect {
    const [ofHold, ofEcho] = [namedHold(bytes), namedEcho(bytes)]
    const arrived = { at, port, nowMs }
    if (ofHold !== undefined) {
      const proven = this.#measuring(bytes, { named: ofHold, decode: decodeHold }, arrived)
      return 'question' in proven ? this.#measures.hold(proven.question, { ...proven, at, nowMs }) : proven
    }
    if (ofEcho !== undefined) {
      const proven = this.#measuring(bytes, { named: ofEcho, decode: decodeEcho }, arrived)
      return 'question' in proven ? this.#measures.echo(proven.question, { ...proven, at, nowMs }) : proven
    }
    const silent = (outcome: QuestionOutcome): RelayEffect => ({ isChanged: false, outcome })
    const named = namedEnds(bytes)
    if (named === undefined) return silent('malformed')
    if (!this.#mayBeEnd(at)) return silent('badSource')
    const end = this.#ends.get(named.from)
    const key = end === undefined ? undefined : this.#keyOf(end)
    if (end === undefined || key === undefined) return silent('unknownEnd')
    const question = decodeQuestion(bytes, key)
    if (question === undefined) return silent('wrongMac')
    const pair = this.#pairs.get(pairKey(question.from, question.to))
    const cookies = this.#cookies.valid(question, at, port, pair?.generation, nowMs)
    if (!cookies.some((cookie) => timingSafeEqual(cookie, question.cookie))) {
      const [cookie] = cookies
      if (cookie === undefined || !this.#mayChallenge(end, at, nowMs)) return silent('tooMany')
      return answered({ ...echo(question), type: 'challenge', cookie }, key)
    }
    if (!end.answers.takeIfLeft(1, this.#rateOf(end, ANSWERS_OF_END, ANSWERS_OF_PAIR))) return silent('tooMany')
    this.#challenged.forget(at)
    return this.#proven(question, { end, key, at, port, pair, cookie: cookies[0] ?? NO_COOKIE }, nowMs)
  }

  /** For a question whose sender and address are proven. */
  #proven(question: BindQuestion, asked: ProvenQuestion, nowMs: number): RelayEffect {
    const { end, key, at, port, cookie } = asked
    let { pair } = asked
    const refused = (why: Refusal, side?: Side): RelayEffect => {
      const [own, newest] = [side?.port ?? 0, side?.newest ?? 0]
      return answered({ ...echo(question), type: 'refused', why, port: own, newest }, key)
    }
    const far = this.#ends.get(question.to)
    // The same answer for an unknown end and for one with which no link is permitted, so that nothing is learnt.
    if (far === undefined || !this.#arePartners(end, far)) return refused('notAllowed')
    if (this.#isSpent(end, far)) return refused('quotaSpent')
    if (pair !== undefined && !this.#mayJoin(pair, end)) return refused('memberFull')
    if (port === this.#init.controlPort) {
      const isNew = pair === undefined
      const made = pair ?? this.#begin(end, far, at, nowMs)
      if (typeof made === 'string') return refused(made)
      pair = made
      const assigned = { ...echo(question), type: 'assigned', port: sideOf(pair, end).port } as const
      return { ...answered(assigned, key), isChanged: isNew }
    }
    const side = pair === undefined ? undefined : sideOf(pair, end)
    if (pair === undefined || side === undefined || side.port !== port) return refused('wrongPort', side)
    if (question.counter <= side.newest) return refused('stale', side)
    const other = pair.sides[0] === side ? pair.sides[1] : pair.sides[0]
    const otherAt = boundAt(other, nowMs)
    const before = boundAt(side, nowMs)
    const isMoved = !sameAddressPort(before, at)
    if (isMoved && otherAt !== undefined && this.#isTaken(at, otherAt, pair, nowMs)) return refused('sameAddress', side)
    if (isMoved) {
      if (!side.moves.takeIfLeft(1, MOVES_OF_SIDE)) return { isChanged: false, outcome: 'tooMany' }
      const taken = this.#portsAt(at, side, nowMs)
      if (taken.has(port)) {
        // The two ports of a pair differ.
        if (!this.#movePort(side, new Set([...taken, other.port]))) return refused('full', side)
        return { ...refused('wrongPort', side), isChanged: true }
      }
    }
    side.newest = question.counter
    side.state = { is: 'bound', at, untilMs: nowMs + BIND_LIFE_MS }
    side.mapping = question.mapping
    if (isMoved) pair.sharedSinceMs = nowMs
    const sharedMs = Math.floor(nowMs - pair.sharedSinceMs)
    const seenFar = otherAt === undefined ? {} : { far: { at: otherAt, mapping: other.mapping, sharedMs } }
    const bound = { type: 'bound', port, seen: at, ...seenFar, lifeMs: BIND_LIFE_MS, cookie } as const
    return { ...answered({ ...echo(question), ...bound }, key), isChanged: isMoved }
  }

  /**
   * Packets leave by a map from both addresses, so no two pairs may have both in common. A pair with one address at both
   * sides would send packets in a circle.
   */
  #isTaken(at: AddressPort, otherAt: AddressPort, own: Pair, nowMs: number): boolean {
    if (sameAddressPort(at, otherAt)) return true
    return [...this.#pairs.values()].some((pair) => {
      if (pair === own) return false
      const [a, b] = [boundAt(pair.sides[0], nowMs), boundAt(pair.sides[1], nowMs)]
      if (a === undefined || b === undefined) return false
      return (
        (sameAddressPort(a, at) && sameAddressPort(b, otherAt)) ||
        (sameAddressPort(b, at) && sameAddressPort(a, otherAt))
      )
    })
  }

  /** The ports at which other sides are bound from this address. */
  #portsAt(at: AddressPort, own: Side | undefined, nowMs: number): ReadonlySet<number> {
    const ports = new Set<number>()
    for (const { side } of this.#byNumber.values())
      if (side !== own && sameAddressPort(boundAt(side, nowMs), at)) ports.add(side.port)
    return ports
  }

  /** Gives the side a port that is none of these. It has to be bound again there. Returns false if there is none. */
  #movePort(side: Side, taken: ReadonlySet<number>): boolean {
    const port = this.#ports.free(side.end, taken)
    if (port === undefined) return false
    this.#ports.drop(side.end, side.port)
    side.port = port
    side.state = { is: 'assigned' }
    this.#ports.hold(side.end, side.port)
    return true
  }

  /** Only IPv4, since links have IPv4 outside. */
  #mayBeEnd({ address, port }: AddressPort): boolean {
    const isOwn = address.value === this.#init.address.value
    return address.family === 4 && port > 0 && !isOwn && classifyAddress(address) === 'usable'
  }

  #keyOf(end: KnownEnd): Buffer | undefined {
    const { agree, clusterset, identity } = this.#init
    if (end.key !== undefined) return end.key
    const secret = agree(end.identity)
    if (secret !== undefined) end.key = bindKey({ secret, clusterset, relay: identity, end: end.identity })
    return end.key
  }

  #mayChallenge(end: KnownEnd, at: AddressPort, nowMs: number): boolean {
    // What the address does not get costs the end nothing: it asks for many pairs at once after a restart of the relay.
    return this.#challenged.take(at, nowMs, () =>
      end.challenges.takeIfLeft(1, this.#rateOf(end, CHALLENGES_OF_END, CHALLENGES_OF_PAIR)),
    )
  }

  /** For the first end, which asks from this address. */
  #begin(a: KnownEnd, b: KnownEnd, at: AddressPort, nowMs: number): Pair | Refusal {
    if (this.#pairs.size >= this.#mostPairs) return 'full'
    if (this.#isMemberFull(a, b)) return 'memberFull'
    const portA = this.#ports.free(a, this.#portsAt(at, undefined, nowMs))
    // The two ports of a pair differ, also where ports are shared.
    const portB = portA === undefined ? undefined : this.#ports.free(b, new Set([portA]))
    if (portA === undefined || portB === undefined) return 'full'
    const side = (end: KnownEnd, port: number): Side => ({
      ...{ end, port, number: this.#freeNumber(), newest: 0, moves: new TokenBucket(this.#init.clock) },
      state: { is: 'assigned' },
      mapping: 'unknown',
    })
    const pair: Pair = {
      key: pairKey(a.id, b.id),
      sides: [side(a, portA), side(b, portB)],
      generation: this.#init.randomBytes(8).toString('hex'),
      usedMs: nowMs,
      sharedSinceMs: nowMs,
    }
    this.#pairs.set(pair.key, pair)
    for (const { member } of [a, b]) if (!this.#numbers.has(member)) this.#numbers.set(member, this.#numbers.size + 1)
    for (const one of pair.sides) {
      this.#byNumber.set(one.number, { pair, side: one })
      this.#ports.hold(one.end, one.port)
    }
    return pair
  }

  /** Whether the end may be bound, which makes the pair one of its member's as well if another one has asked for it. */
  #mayJoin({ sides: [asker, other] }: Pair, end: KnownEnd): boolean {
    return asker.end === end || other.newest > 0 || !this.#isMemberFull(end, asker.end)
  }

  /** Whether the member of the end may have no further pair with the far one. */
  #isMemberFull({ member }: RelayEnd, far: RelayEnd): boolean {
    const own = [...this.#pairs.values()].filter(({ sides: [asker, other] }) => {
      return asker.end.member === member || (other.end.member === member && other.newest > 0)
    })
    if (own.length < this.#mostPairsOfMember) return false
    const leftByOthers = this.#mostPairs - (this.#pairs.size - own.length)
    return !this.#isTransit(member, far.member) || own.length >= Math.floor(leftByOthers / 2)
  }

  #memberNumber({ member }: RelayEnd): number {
    return this.#numbers.get(member) ?? 0
  }

  /** The rate of an end, by how many pairs it has. */
  #rateOf(end: KnownEnd, base: TokenRate, ofPair: TokenRate): TokenRate {
    const further = Math.max(0, this.#ports.countOf(end) - PAIRS_OF_RATES)
    return {
      burst: base.burst + further * ofPair.burst,
      perSecond: base.perSecond + further * ofPair.perSecond,
    }
  }

  /** One that no side has. There are two for each pair, so one is left as long as a further pair may begin. */
  #freeNumber(): number {
    for (;;) {
      const number = this.#nextNumber
      this.#nextNumber = number >= 2 * this.#mostPairs ? 1 : number + 1
      if (!this.#byNumber.has(number)) return number
    }
  }

  #end(pair: Pair): void {
    this.#pairs.delete(pair.key)
    for (const side of pair.sides) {
      this.#byNumber.delete(side.number)
      this.#ports.drop(side.end, side.port)
    }
  }

  /** Ends what is over. Without `isDue` at most once a second, since paths() and known() look at the time themselves. */
  #sweep(nowMs: number, isDue: boolean): boolean {
    if (nowMs - this.#periodSinceMs >= this.#init.limits.periodMs) {
      this.#periodSinceMs = nowMs
      this.#spentByMember.clear()
      this.#spentByPair.clear()
    }
    if (!isDue && nowMs - this.#sweptMs < 1000) return false
    this.#sweptMs = nowMs
    let isChanged = false
    for (const pair of this.#pairs.values()) {
      for (const side of pair.sides) {
        const isOver = side.state.is === 'bound' && boundAt(side, nowMs) === undefined
        if (isOver) side.state = { is: 'assigned' }
        isChanged ||= isOver
      }
      const isOver = nowMs - pair.usedMs >= unusedLifeMs(pair)
      if (isOver) this.#end(pair)
      isChanged ||= isOver
    }
    return isChanged
  }

  #count(octets: ReadonlyMap<number, number>, nowMs: number): boolean {
    let isChanged = false
    for (const [number, count] of octets) {
      const known = this.#byNumber.get(number)
      if (known === undefined || count <= 0) continue
      const { pair, side } = known
      pair.usedMs = nowMs
      if (this.#isTransit(pair.sides[0].end.member, pair.sides[1].end.member)) continue
      const members = membersOf(pair.sides[0].end, pair.sides[1].end)
      this.#spentByPair.set(members, (this.#spentByPair.get(members) ?? 0) + count)
      this.#spentByMember.set(side.end.member, (this.#spentByMember.get(side.end.member) ?? 0) + count)
    }
    for (const pair of this.#pairs.values()) {
      if (!this.#isSpent(pair.sides[0].end, pair.sides[1].end)) continue
      for (const side of pair.sides) {
        isChanged ||= side.state.is === 'bound'
        side.state = { is: 'assigned' }
      }
    }
    return isChanged
  }

  #isSpent(a: RelayEnd, b: RelayEnd): boolean {
    const { pairQuota, memberQuota } = this.#init.limits
    if (this.#isTransit(a.member, b.member)) return false
    const isMemberSpent = ({ member }: RelayEnd): boolean => (this.#spentByMember.get(member) ?? 0) >= memberQuota
    return (this.#spentByPair.get(membersOf(a, b)) ?? 0) >= pairQuota || isMemberSpent(a) || isMemberSpent(b)
  }
}

/** How long a pair that carries nothing has its ports. If it was never bound, no longer than a binding lasts. */
function unusedLifeMs({ sides }: Pair): number {
  if (sides.every(({ newest }) => newest > 0)) return PAIR_IDLE_MS
  return sides.some(({ newest }) => newest > 0) ? PAIR_ALONE_MS : BIND_LIFE_MS
}

function membersOf(a: RelayEnd, b: RelayEnd): string {
  return [a.member, b.member].sort().join(' ')
}

interface ProvenQuestion {
  readonly end: KnownEnd
  readonly key: Buffer
  readonly at: AddressPort
  readonly port: number
  readonly pair: Pair | undefined
  /** For the next question. */
  readonly cookie: Buffer
}

function boundAt({ state }: Side, nowMs: number): AddressPort | undefined {
  return state.is === 'bound' && nowMs < state.untilMs ? state.at : undefined
}

function sideOf({ sides: [a, b] }: Pair, end: KnownEnd): Side {
  return a.end === end ? a : b
}

function pairKey(a: string, b: string): string {
  return a < b ? `${a} ${b}` : `${b} ${a}`
}

function echo({ from, to, counter }: BindQuestion): Pick<BindQuestion, 'from' | 'to' | 'counter'> {
  return { from, to, counter }
}

function answered(answer: BindAnswer, key: Buffer): RelayEffect {
  return { answer: encodeAnswer(answer, key), isChanged: false, outcome: answer.type }
}
