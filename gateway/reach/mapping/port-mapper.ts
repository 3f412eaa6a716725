/**
 * Gets ports outside from one router, and keeps them. A state machine without a socket.
 *
 *   quiet ──a port is wanted, or to be renewed──► asking ──an answer──► quiet, until half of the lifetime is over
 *     ▲                                            │  │
 *     │                              refused: wait │  │ no answer: the other protocol, then wait
 *     └────────────────────────────────────────────┴──┘
 *
 * A mapping that lives stays in use while its renewal is refused or not answered, as the router still has it.
 *
 * One question is under way at a time. PCP comes first: a router that knows NAT-PMP alone says so at once (RFC 6887
 * appendix A). What a router answers is only a claim: the caller decides whether a place is used, and probes or a
 * handshake through the place prove it.
 */
import { type Address, type AddressPort, formatAddress } from '../../../model/addresses/addresses.ts'
import {
  type MappingAnswer,
  type MappingProtocol,
  decodeMapping,
  encodeNatPmpAddress,
  encodeNatPmpMap,
  encodePcpMap,
} from './mapping-frame.ts'

/** A process that stops leaves its mappings in the router for so long at most. */
export const LIFETIME_SECONDS = 600
/** A router that has restarted has forgotten its mappings; a gateway learns that by its next question. */
export const RENEW_MS = 120_000
/** A place that is gone sooner is of no use to far ends. */
const SHORTEST_LIFETIME_SECONDS = 60
/** The address that NAT-PMP says counts for so long. */
const ADDRESS_MS = 10_000
/** Each lane number has ports of its own outside, so gateways of a cluster behind one router do not meet. */
const PORTS_OF_LANE = 8
/** Where ports outside are sought when others have those that were wanted, and how often. */
const [RANDOM_FIRST, RANDOM_LAST, MOST_MOVES] = [32_768, 65_535, 4]
/** The pauses after a question and its repetitions (RFC 6886 section 3.1, fewer). */
const PAUSES_MS = [250, 500, 1000, 2000] as const
/** More messages than that to one question are no answers, but a flood. */
export const MOST_MESSAGES = 32
/** The pause after a router has not answered, or has refused; it doubles up to the longest. */
export const PAUSE_MS = 60_000
export const LONGEST_PAUSE_MS = 300_000
/** The pause after a renewal that is not answered, while the mapping lives. */
const RENEWAL_PAUSE_MS = 15_000
/** A router that has forgotten its mappings is believed at most once in this time. */
const RESETS_APART_MS = 30_000

const PCP_RESULTS: Readonly<Record<number, string>> = {
  2: 'not authorized',
  3: 'malformed request',
  4: 'MAP is not supported',
  7: 'network failure',
  8: 'no resources',
  9: 'UDP is not supported',
  10: 'too many mappings',
  11: 'the port outside is not to be had',
  12: 'another NAT is between this gateway and the router',
}
const NATPMP_RESULTS: Readonly<Record<number, string>> = {
  2: 'not authorized',
  3: 'network failure',
  4: 'no resources',
  5: 'mappings are not supported',
}

/** Results after which the router has no mapping any more: it does not want this client, or this kind of mapping. */
const FINAL_RESULTS: Readonly<Record<MappingProtocol, readonly number[]>> = { pcp: [2, 4, 9, 12], natPmp: [2, 5] }

export interface PortMapperInit {
  /** NONCE_BYTES octets for the mapping of a port, the same ones after a restart of this process. */
  readonly nonce: (port: number) => Buffer
  /** The lane number of this gateway. */
  readonly lane: number
  /** 0 inclusive to 1 exclusive. */
  readonly random: () => number
}

/** What is known of the router. */
export type RouterState =
  | { readonly is: 'asking' }
  | { readonly is: 'mapped' }
  | { readonly is: 'refused'; readonly why: string }
  | { readonly is: 'silent' }

interface Mapping {
  readonly outside: AddressPort
  /** Until when the router keeps it, and when to ask again. Monotonic milliseconds. */
  readonly untilMs: number
  readonly renewMs: number
  /** The address of this node from which it was asked for. Absent: not known. */
  readonly client?: string
}

/** A mapping outside this machine: until when the router keeps it, in monotonic milliseconds. */
export interface LivingMapping {
  readonly inside: number
  readonly outside: AddressPort
  readonly untilMs: number
}

type Topic = { readonly is: 'address' } | { readonly is: 'map' | 'release'; readonly port: number }

interface Question {
  readonly topic: Topic
  sent: number
  messages: number
  dueMs: number
  /** The address of this node from which it was sent last. */
  client: string
}

export class PortMapper {
  readonly #init: PortMapperInit
  #wanted: readonly number[] = []
  readonly #mappings = new Map<number, Mapping>()
  /** What is added to a port of this node for the first suggestion. */
  #distance: number
  /** Ports whose mappings end, because others have a distance that these cannot get. */
  readonly #moving = new Set<number>()
  #moves = 0
  #protocol: MappingProtocol = 'pcp'
  /** The protocols that have not been answered since the last answer. */
  #silent = new Set<MappingProtocol>()
  #question: Question | undefined
  /** Ports that the router has refused: when to ask again, and the pause after the next refusal. */
  readonly #refusals = new Map<number, { readonly untilMs: number; readonly pauseMs: number }>()
  /** NAT-PMP alone: the router's address outside, and when it was said. */
  #address: { readonly is: Address; readonly atMs: number } | undefined
  #epoch: { readonly seconds: number; readonly atMs: number } | undefined
  #state: RouterState = { is: 'asking' }
  #resetMs = -Infinity
  /** Until when no port is asked for, because those that were granted were of no use. */
  #restUntilMs = -Infinity
  #quietUntilMs = -Infinity
  #pauseMs = PAUSE_MS

  constructor(init: PortMapperInit) {
    this.#init = init
    this.#distance = PORTS_OF_LANE * init.lane
  }

  get state(): RouterState {
    return this.#state
  }

  /** The protocol that is spoken with it now. */
  get protocol(): MappingProtocol {
    return this.#protocol
  }

  /** A question is under way, so messages of the router count. */
  get isAsking(): boolean {
    return this.#question !== undefined
  }

  /** All questions that are due have been answered, or are put off. */
  isSettled(nowMs: number): boolean {
    return this.#question === undefined && this.dueMs(nowMs) > nowMs
  }

  /** Takes the ports of this node that are to be reached from outside. */
  want(ports: readonly number[]): void {
    const wanted = [...new Set(ports)].sort((a, b) => a - b)
    if (wanted.join() !== this.#wanted.join()) this.#moves = 0
    this.#wanted = wanted
  }

  /** Takes what an earlier run had, before the first question. It is renewed at once, and counts meanwhile. */
  restore(protocol: MappingProtocol, before: readonly LivingMapping[], nowMs: number): void {
    this.#protocol = protocol
    const [first] = before
    if (first !== undefined) this.#distance = first.outside.port - first.inside
    for (const { inside, outside, untilMs } of before) {
      const mostMs = Math.min(untilMs, nowMs + LIFETIME_SECONDS * 1000)
      if (nowMs < mostMs) this.#mappings.set(inside, { outside, untilMs: mostMs, renewMs: nowMs })
    }
  }

  /** What is to outlive this process. */
  get living(): readonly LivingMapping[] {
    return [...this.#mappings].map(([inside, { outside, untilMs }]) => ({ inside, outside, untilMs }))
  }

  /** The places outside, by the port of this node. */
  mapped(nowMs: number): ReadonlyMap<number, AddressPort> {
    return new Map([...this.#mappings].flatMap(([port, one]) => (nowMs < one.untilMs ? [[port, one.outside]] : [])))
  }

  /** What is granted is of no use: it ends, and is asked for again after the longest pause, or after wake(). */
  rest(nowMs: number): void {
    this.#restUntilMs = nowMs + LONGEST_PAUSE_MS
    for (const port of this.#mappings.keys()) this.#moving.add(port)
  }

  isResting(nowMs: number): boolean {
    return nowMs < this.#restUntilMs
  }

  /** The same answers may be of use now. */
  wake(): void {
    this.#restUntilMs = -Infinity
  }

  /** The question to send now, from the address `client`. Undefined: none is due. */
  next(nowMs: number, client: Address): Buffer | undefined {
    if (this.#question !== undefined && nowMs >= this.#question.dueMs && this.#question.sent >= PAUSES_MS.length)
      this.unanswered(nowMs)
    this.#lookAtMappings(nowMs, formatAddress(client))
    if (this.#question === undefined) {
      const topic = this.#topic(nowMs)
      if (topic === undefined) return undefined
      this.#question = { topic, sent: 0, messages: 0, dueMs: nowMs, client: '' }
    }
    const question = this.#question
    if (nowMs < question.dueMs) return undefined
    question.client = formatAddress(client)
    question.dueMs = nowMs + (PAUSES_MS[question.sent] ?? 0)
    question.sent += 1
    return this.#encode(question.topic, client)
  }

  /** When next() is to be called again, in milliseconds of the monotonic clock. */
  dueMs(nowMs: number): number {
    if (this.#question !== undefined) return this.#question.dueMs
    const renewals = this.#wanted.map((port) => Math.max(this.#portDueMs(port) ?? nowMs, this.#restUntilMs))
    const dueMs = Math.min(...renewals, this.#leaving() === undefined ? Infinity : nowMs)
    return Math.max(dueMs, this.#quietUntilMs)
  }

  /** Takes a message of the router. Returns whether something has changed. */
  take(bytes: Buffer, nowMs: number): boolean {
    const question = this.#question
    if (question === undefined) return false
    const answer = decodeMapping(bytes)
    if (answer === undefined || !this.#fits(answer, question.topic)) {
      question.messages += 1
      if (question.messages < MOST_MESSAGES) return false
      this.unanswered(nowMs)
      return true
    }
    this.#question = undefined
    if (answer.is === 'unknownVersion') {
      this.#silence(answer.of, nowMs)
      return true
    }
    this.#silent.clear()
    const isReset = this.#isReset(answer.epoch, nowMs)
    if (isReset) this.#forget()
    if (answer.result === 0) this.#granted(answer, question, nowMs)
    else this.#refused(answer, question.topic, nowMs)
    if (isReset) this.#renewAll(nowMs)
    return true
  }

  /** The router does not answer the question that is under way. */
  unanswered(nowMs: number): void {
    if (this.#question === undefined) return
    const { topic } = this.#question
    this.#question = undefined
    if (topic.is === 'release') this.#ended(topic.port)
    // A message was lost, or the router restarts. What it speaks is known.
    else if (this.#hasLiving(nowMs)) this.#wait({ is: 'silent' }, nowMs)
    else this.#silence(this.#protocol, nowMs)
  }

  /** Nothing listens at the router, or there is no way to it. */
  unreachable(nowMs: number): void {
    if (this.#question === undefined) this.#wait({ is: 'silent' }, nowMs)
    else this.unanswered(nowMs)
  }

  /** Messages that end all mappings. Nothing is mapped after this, as far as this side knows. */
  release(client: Address): readonly Buffer[] {
    const ports = [...this.#mappings.keys()]
    const messages = ports.map((port) => this.#encode({ is: 'release', port }, client))
    this.#mappings.clear()
    this.#question = undefined
    this.#wanted = []
    return messages
  }

  #topic(nowMs: number): Topic | undefined {
    const leaving = this.#leaving()
    if (nowMs < this.#quietUntilMs) return undefined
    if (leaving !== undefined) return { is: 'release', port: leaving }
    if (this.isResting(nowMs)) return undefined
    const port = this.#wanted.find((one) => nowMs >= (this.#portDueMs(one) ?? -Infinity))
    if (port === undefined) return undefined
    const isOld = nowMs - (this.#address?.atMs ?? -Infinity) >= ADDRESS_MS
    return this.#protocol === 'natPmp' && isOld ? { is: 'address' } : { is: 'map', port }
  }

  /** A port whose mapping is to end. */
  #leaving(): number | undefined {
    return [...this.#mappings.keys()].find((port) => !this.#wanted.includes(port) || this.#moving.has(port))
  }

  /** Undefined: at once. */
  #portDueMs(port: number): number | undefined {
    return this.#refusals.get(port)?.untilMs ?? this.#mappings.get(port)?.renewMs
  }

  #encode(topic: Topic, client: Address): Buffer {
    if (topic.is === 'address') return encodeNatPmpAddress()
    const { port } = topic
    const lifetimeSeconds = topic.is === 'release' ? 0 : LIFETIME_SECONDS
    const question = { inside: port, outside: this.#outside(port), lifetimeSeconds }
    if (this.#protocol === 'natPmp') return encodeNatPmpMap(question)
    return encodePcpMap(question, { client, nonce: this.#init.nonce(port) })
  }

  /** All ports are to have the same distance to those outside: far ends know one number (linkPort()). */
  #outside(port: number): number {
    const [first] = [...this.#mappings].sort(([a], [b]) => a - b)
    const known = this.#mappings.get(port)?.outside.port
    const wanted = known ?? port + (first === undefined ? this.#distance : first[1].outside.port - first[0])
    return wanted >= 1 && wanted <= 0xffff ? wanted : port
  }

  /** A router keeps a mapping as it is, whatever is wanted at its renewal. So all of them end, and begin elsewhere. */
  #align(): void {
    const distances = new Set([...this.#mappings].map(([port, { outside }]) => outside.port - port))
    const [first = 0, last = first] = [this.#wanted[0], this.#wanted.at(-1)]
    if (distances.size < 2 || this.#moves >= MOST_MOVES) return
    this.#moves += 1
    const room = RANDOM_LAST - RANDOM_FIRST - (last - first)
    this.#distance = RANDOM_FIRST + Math.floor(this.#init.random() * room) - first
    for (const port of this.#mappings.keys()) this.#moving.add(port)
  }

  #hasLiving(nowMs: number): boolean {
    return [...this.#mappings.values()].some(({ untilMs }) => nowMs < untilMs)
  }

  /** Forgets those that are over, and renews those of an address that this node had before. */
  #lookAtMappings(nowMs: number, own: string): void {
    for (const [port, one] of this.#mappings) {
      if (one.client !== undefined && one.client !== own) this.#mappings.set(port, { ...one, renewMs: nowMs })
      if (nowMs < one.untilMs) continue
      // It is wanted again where it was.
      this.#distance = one.outside.port - port
      this.#ended(port)
    }
  }

  #renewAll(nowMs: number): void {
    for (const [port, one] of this.#mappings) this.#mappings.set(port, { ...one, renewMs: nowMs })
  }

  #ended(port: number): void {
    this.#mappings.delete(port)
    this.#moving.delete(port)
  }

  #fits(answer: MappingAnswer, topic: Topic): boolean {
    switch (answer.is) {
      case 'unknownVersion':
        return answer.of === this.#protocol
      case 'natPmpAddress':
        return this.#protocol === 'natPmp' && topic.is === 'address'
      case 'natPmp':
        return this.#protocol === 'natPmp' && topic.is !== 'address' && answer.inside === topic.port
      case 'pcp':
        if (this.#protocol !== 'pcp' || topic.is === 'address' || answer.inside !== topic.port) return false
        return answer.nonce.equals(this.#init.nonce(topic.port))
    }
  }

  /** A router whose seconds do not go as those here has lost its mappings (RFC 6887 section 8.5). */
  #isReset(seconds: number, nowMs: number): boolean {
    const before = this.#epoch
    this.#epoch = { seconds, atMs: nowMs }
    if (before === undefined || nowMs - this.#resetMs < RESETS_APART_MS) return false
    const [there, here] = [seconds - before.seconds, (nowMs - before.atMs) / 1000]
    const isAlike = there >= -1 && here + 2 >= there - there / 16 && there + 2 >= here - here / 16
    if (!isAlike) this.#resetMs = nowMs
    return !isAlike
  }

  /** The address outside counts until it is said again, so that the answer which showed the reset is not lost. */
  #forget(): void {
    if (this.#address !== undefined) this.#address = { ...this.#address, atMs: -Infinity }
    this.#moves = 0
  }

  #granted(
    answer: Exclude<MappingAnswer, { is: 'unknownVersion' }>,
    { topic, client }: Pick<Question, 'topic' | 'client'>,
    nowMs: number,
  ): void {
    this.#pauseMs = PAUSE_MS
    if (answer.is === 'natPmpAddress') {
      this.#address = { is: answer.address, atMs: nowMs }
      return
    }
    if (topic.is === 'address') return
    if (topic.is === 'release') {
      this.#ended(topic.port)
      return
    }
    const address = answer.is === 'pcp' ? answer.address : this.#address?.is
    if (address === undefined || answer.lifetimeSeconds === 0 || answer.outside === 0) {
      this.#refusedPort(topic.port, 'it grants no port', nowMs)
      return
    }
    if (answer.lifetimeSeconds < SHORTEST_LIFETIME_SECONDS) {
      this.#refusedPort(topic.port, `lifetime too short: ${answer.lifetimeSeconds} s`, nowMs)
      return
    }
    const lifetimeMs = answer.lifetimeSeconds * 1000
    const renewMs = nowMs + Math.min(RENEW_MS, lifetimeMs / 2)
    const isElsewhere = [...this.#mappings.values()].some(({ outside }) => !isSame(outside.address, address))
    if (isElsewhere && this.#moves < MOST_MOVES) {
      // The router has another address outside, so what it has said of the other ports is over.
      this.#moves += 1
      this.#renewAll(nowMs)
    }
    this.#mappings.set(topic.port, {
      outside: { address, port: answer.outside },
      // It is not used for longer than it was asked for, whatever the router says.
      untilMs: nowMs + Math.min(lifetimeMs, LIFETIME_SECONDS * 1000),
      renewMs,
      client,
    })
    this.#refusals.delete(topic.port)
    this.#state = { is: 'mapped' }
    this.#align()
  }

  #refused(answer: { readonly result: number }, topic: Topic, nowMs: number): void {
    const known = this.#protocol === 'pcp' ? PCP_RESULTS : NATPMP_RESULTS
    const why = known[answer.result] ?? `result ${answer.result}`
    if (topic.is === 'address') this.#wait({ is: 'refused', why }, nowMs)
    else if (topic.is === 'release') this.#ended(topic.port)
    else if (FINAL_RESULTS[this.#protocol].includes(answer.result)) this.#refusedPort(topic.port, why, nowMs)
    else this.#putOff(topic.port, why, nowMs)
  }

  /** The router has no mapping for this port. */
  #refusedPort(port: number, why: string, nowMs: number): void {
    this.#ended(port)
    this.#putOff(port, why, nowMs)
  }

  /** Another time. The other ports are renewed meanwhile. */
  #putOff(port: number, why: string, nowMs: number): void {
    const pauseMs = this.#mappings.has(port) ? PAUSE_MS : (this.#refusals.get(port)?.pauseMs ?? PAUSE_MS)
    this.#refusals.set(port, { untilMs: nowMs + pauseMs, pauseMs: Math.min(2 * pauseMs, LONGEST_PAUSE_MS) })
    this.#state = { is: 'refused', why }
  }

  /** The other protocol is next. A router that answers neither is asked again later. */
  #silence(protocol: MappingProtocol, nowMs: number): void {
    this.#silent.add(protocol)
    const other = protocol === 'pcp' ? 'natPmp' : 'pcp'
    this.#address = undefined
    this.#protocol = other
    if (!this.#silent.has(other)) return
    this.#protocol = 'pcp'
    this.#silent = new Set()
    this.#wait({ is: 'silent' }, nowMs)
  }

  #wait(state: RouterState, nowMs: number): void {
    this.#state = state
    if (this.#hasLiving(nowMs)) {
      this.#quietUntilMs = nowMs + RENEWAL_PAUSE_MS
      return
    }
    this.#quietUntilMs = nowMs + this.#pauseMs
    this.#pauseMs = Math.min(2 * this.#pauseMs, LONGEST_PAUSE_MS)
  }
}

function isSame(a: Address, b: Address): boolean {
  return formatAddress(a) === formatAddress(b)
}
