/**
 * Measures for how long the NAT in front of this node keeps the mapping of a UDP port without packets: relays answer
 * after each of WAITS_SECONDS, to ports that nothing else uses (hold-caller.ts). All waits are measured at one time, the
 * failed ones twice, so that one lost packet does not count. Relays of earlier releases are silent: then nothing is
 * known.
 *
 * A relay can keep a mapping alive by packets that get through the NAT and not to this process, so that a wait seems
 * answered. A wait of more than the shortest one is answered only if relays of two members say so, if there are two
 * that answer at all. Each measurement begins with another relay, in an order of this node's own.
 */
import { createHash } from 'node:crypto'
import type { ProbeSocket } from '../../../kernel/probing/probing.ts'
import { formatAddress, parseAddress } from '../../../model/addresses/addresses.ts'
import { RELAY_PORT } from '../../../model/model.ts'
import { WakeTimer } from '../../../reconcile/reconcile.ts'
import { bindKey, endId } from '../frames/bind-frame.ts'
import { HoldCaller, type HoldResult } from './hold-caller.ts'
import type { MeasureDeps, MeasureFacts, MeasureRelay, NatMeasure } from './measure-facts.ts'

export const WAITS_SECONDS = [10, 30, 60, 120] as const
/** The relay waits somewhat longer: a mapping that has lived for a wait is not to be at its very end. */
export const WAIT_MARGIN_MS = 1000
/** A measurement is repeated after this time, or when the address outside has changed, but not at once. */
export const LIFE_EVERY_MS = 6 * 3_600_000
export const LIFE_APART_MS = 600_000
/** Both times are longer by up to this share, so that the nodes of a member do not measure together for ever. */
export const LIFE_JITTER = 0.2
/** What was measured counts for no longer, for example because there is no relay any more. */
export const LIFE_COUNTS_MS = 2 * LIFE_EVERY_MS
/** So many attempts without the late answer, and the wait has failed. */
const ATTEMPTS = 2
/** Relays of an earlier release serve no measurement, so their attempts do not count. There are no more than these. */
const MOST_ATTEMPTS = 6

interface WaitMeasured {
  readonly seconds: number
  readonly results: readonly { readonly result: HoldResult; readonly cluster: string }[]
  /** The attempt that is under way. Undefined: there will be no other one. */
  readonly attempt: Attempt | undefined
}

interface Attempt {
  readonly caller: HoldCaller
  readonly relay: MeasureRelay
  readonly socket: ProbeSocket
  isReady: boolean
}

export class NatLife implements NatMeasure {
  readonly #deps: MeasureDeps
  readonly #wake: WakeTimer
  #facts: MeasureFacts | undefined
  #seconds: number | undefined
  #waits: readonly WaitMeasured[] = []
  #begunMs = -Infinity
  #nextMs = -Infinity
  /** When `seconds` was measured last. */
  #knownMs = -Infinity
  /** Measurements that have begun. */
  #count = 0
  /** Where relays saw this node at the last measurement. While one is under way: when it began. */
  #outside: ReadonlySet<string> = new Set()
  /** Where they see the ports of the measurement under way. */
  #met: ReadonlySet<string> = new Set()
  /** The greatest counter for each relay, by its identity: one that lies must not spoil those of others. */
  readonly #counters = new Map<string, number>()

  constructor(deps: MeasureDeps) {
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

  look(facts: MeasureFacts | undefined): void {
    this.#facts = facts
    const isElsewhere =
      facts !== undefined && facts.seen.length > 0 && !facts.seen.some((address) => this.#outside.has(address))
    if (facts === undefined || (isElsewhere && this.#outside.size > 0)) {
      // What is known holds for another NAT.
      this.#stop()
      this.#outside = new Set()
      this.#nextMs = Math.min(this.#nextMs, this.#begunMs + this.#stretched(LIFE_APART_MS))
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
    const { own, relays, seen } = this.#facts
    if (this.#waits.length === 0) {
      if (nowMs - this.#knownMs >= LIFE_COUNTS_MS) this.#suspect()
      if (own === undefined || relays.length === 0) return
      if (nowMs < this.#nextMs) {
        this.#wake.at(this.#nextMs)
        return
      }
      this.#begunMs = nowMs
      this.#count += 1
      this.#nextMs = nowMs + this.#stretched(LIFE_APART_MS)
      // A NAT may have several addresses outside, one for each destination: those that its ports get now are no change.
      this.#outside = new Set(seen)
      this.#met = new Set()
      this.#waits = WAITS_SECONDS.map((seconds) => ({ seconds, results: [], attempt: this.#attempt(seconds, []) }))
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
    if (question !== undefined) socket.send(question, formatAddress(relay.address), RELAY_PORT)
  }

  /** A wait after its attempt, if that is over: another relay may be well, and another packet may not be lost. */
  #after(one: WaitMeasured): WaitMeasured {
    const { seconds, attempt } = one
    if (attempt?.caller.state.is !== 'over') return one
    const { result, seen } = attempt.caller.state
    attempt.socket.close()
    if (seen !== undefined) this.#met = new Set([...this.#met, formatAddress(seen.address)])
    const results = [...one.results, { result, cluster: attempt.relay.cluster }]
    const isOver = counted(results).length >= ATTEMPTS || failed(results).length >= MOST_ATTEMPTS
    const isDone = isOver || this.#isAnswered({ seconds, results })
    return { seconds, results, attempt: isDone ? undefined : this.#attempt(seconds, results) }
  }

  /** Whether as many members as are needed say so. */
  #isAnswered({ seconds, results }: Pick<WaitMeasured, 'seconds' | 'results'>): boolean {
    const members = new Set(this.#facts?.relays.map(({ cluster }) => cluster))
    const needed = seconds === WAITS_SECONDS[0] ? 1 : Math.min(2, Math.max(1, members.size))
    return answeredBy(results).size >= needed
  }

  #conclude(): void {
    const answered = this.#waits.filter((one) => {
      // Where the relays of all other members serve no measurement, one member has to suffice.
      const isServed = failed(one.results).some(({ result }) => result !== 'unserved')
      return this.#isAnswered(one) || (answeredBy(one.results).size > 0 && !isServed)
    })
    const shortest = counted(this.#waits[0]?.results ?? [])
    const isSilent = shortest.length >= ATTEMPTS && shortest.every(({ result }) => result === 'silent')
    const met = [...this.#met]
    this.#waits = []
    const { ownAddresses = new Set<string>(), seen = [] } = this.#facts ?? {}
    const isNat = met.some((address) => !ownAddresses.has(address))
    this.#outside = new Set([...this.#outside, ...met, ...seen])
    if (answered.length === 0 && !isSilent) {
      this.#suspect()
      return
    }
    this.#knownMs = this.#begunMs
    this.#nextMs = this.#begunMs + this.#stretched(LIFE_EVERY_MS)
    this.#set(isNat ? Math.max(0, ...answered.map(({ seconds }) => seconds)) : undefined)
  }

  /** With a relay of a member that has not answered this wait yet, and after each failure with the next one. */
  #attempt(seconds: number, results: WaitMeasured['results']): Attempt | undefined {
    const { own, relays = [] } = this.#facts ?? {}
    const asked = answeredBy(results)
    const others = lifeOrder(own?.identity ?? '', relays, this.#count).filter(({ cluster }) => !asked.has(cluster))
    const relay = others[failed(results).length % others.length]
    const secret = relay === undefined ? undefined : own?.agree(relay.identity)
    if (own === undefined || relay === undefined || secret === undefined) return undefined
    const { clock, openSocket } = this.#deps
    const { clusterset, identity } = own
    const caller = new HoldCaller({
      ...{ from: endId(clusterset, identity), to: endId(clusterset, relay.identity) },
      key: bindKey({ secret, clusterset, relay: relay.identity, end: identity }),
      relay: { address: relay.address, port: RELAY_PORT },
      waitMs: seconds * 1000 + WAIT_MARGIN_MS,
      nextCounter: (newest) => {
        const last = Math.max(this.#counters.get(relay.identity) ?? 0, newest)
        const counter = Math.max(last + 1, Math.floor(clock.now()))
        this.#counters.set(relay.identity, counter)
        return counter
      },
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
    const attempt: Attempt = { caller, relay, socket, isReady: false }
    return attempt
  }

  /** Longer by a share that this node draws for each measurement. */
  #stretched(ms: number): number {
    return stretched(ms, `${this.#facts?.own?.identity ?? ''} ${this.#count}`)
  }

  #stop(): void {
    for (const { attempt } of this.#waits) attempt?.socket.close()
    this.#waits = []
  }

  /**
   * What was measured before may be of another NAT. That there is one, and that it may forget within the shortest wait,
   * still counts.
   */
  #suspect(): void {
    this.#set(this.#seconds === undefined ? undefined : Math.min(this.#seconds, WAITS_SECONDS[0]))
  }

  #set(seconds: number | undefined): void {
    if (seconds === this.#seconds) return
    this.#seconds = seconds
    this.#deps.onChange()
  }
}

/** Longer by up to the share `most`, by the name. */
export function stretched(ms: number, name: string, most = LIFE_JITTER): number {
  return ms * (1 + most * (createHash('sha256').update(name).digest().readUInt32BE(0) / 2 ** 32))
}

/**
 * The relays in an order of this node's own, from another one at each measurement: members in turn, each with its next
 * relay, so that the relays of one member do not follow each other if there are others.
 */
export function lifeOrder<R extends Pick<MeasureRelay, 'cluster' | 'identity'>>(
  own: string,
  relays: readonly R[],
  count: number,
): readonly R[] {
  const rank = (name: string): string => createHash('sha256').update(`${own} ${name}`).digest('hex')
  const sorted = relays.toSorted((a, b) => (rank(a.identity) < rank(b.identity) ? -1 : 1))
  const members = [...Map.groupBy(sorted, ({ cluster }) => cluster)].sort(([a], [b]) => (rank(a) < rank(b) ? -1 : 1))
  // After a whole turn of the members it is the next relay of each.
  const turns = members.map((_, i) => {
    const [, ofMember = []] = members[(count + i) % members.length] ?? []
    const first = Math.floor(count / members.length) % ofMember.length
    return [...ofMember.slice(first), ...ofMember.slice(0, first)]
  })
  const most = Math.max(0, ...turns.map(({ length }) => length))
  return Array.from({ length: most }, (_, i) => turns.flatMap((ofMember) => ofMember[i] ?? [])).flat()
}

function answeredBy(results: WaitMeasured['results']): ReadonlySet<string> {
  return new Set(results.flatMap(({ result, cluster }) => (result === 'answered' ? [cluster] : [])))
}

/** Failed attempts that say something of the NAT. */
function counted(results: WaitMeasured['results']): WaitMeasured['results'] {
  return failed(results).filter(({ result }) => result !== 'unserved')
}

function failed(results: WaitMeasured['results']): WaitMeasured['results'] {
  return results.filter(({ result }) => result !== 'answered')
}
