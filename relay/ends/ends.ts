/**
 * The gateways that are connected to a relay, and who exchanges datagrams with whom: two of one clusterset that both want
 * it. So nobody sends to an end that has not asked for it. Knows no sockets.
 */
import { type Clock, TokenBucket, type TokenRate } from '../../reconcile/reconcile.ts'
import { MAX_DATAGRAM_BYTES, type RelayRefusal } from '../../runtime/datagrams/datagrams.ts'

export interface EndLimits {
  /** Gateways in all, and of one member. */
  readonly ends: number
  readonly endsOfMember: number
  /** Octets in a second that one pair sends in one direction, and that all gateways of one member send. */
  readonly pairBytesPerSecond: number
  readonly memberBytesPerSecond: number
  /**
   * What all gateways send. Absent: no limit, for a relay that shares its process with nothing else. With it, each
   * member that sends has a share that the others cannot take.
   */
  readonly totalBytesPerSecond?: number
}

export const DEFAULT_END_LIMITS: EndLimits = {
  ends: 4096,
  endsOfMember: 64,
  pairBytesPerSecond: 62_500_000,
  memberBytesPerSecond: 125_000_000,
}

/** What a limit lets pass at once: a tenth of a second. */
const BURST_PARTS = 10
/** How often a member may connect, and how often in a row. */
const CONNECTS: TokenRate = { perSecond: 2, burst: 32 }
/** How often a gateway's wants count, and how often in a row. Between, only the newest are kept. */
const WANTS: TokenRate = { perSecond: 5, burst: 10 }
/** What a datagram or a frame costs besides its octets, so that many small ones are not free. */
const COST_BYTES = 64
/** The same where the process has more to do: its time goes into datagrams more than into octets. */
const SHARED_COST_BYTES = 512
/** A member that has sent nothing for so long has no share: its share goes to the others. */
const SHARE_MS = 1000
/** A share lets pass at least this at once: the largest datagram. */
const LEAST_BURST_BYTES = MAX_DATAGRAM_BYTES + SHARED_COST_BYTES
/** Members that are remembered for their rates although they have no gateway here. */
const MOST_MEMBERS = 4096

/** A gateway that has proven itself. */
export interface ProvenEnd {
  readonly clusterset: string
  readonly cluster: string
  /** endName(). */
  readonly name: string
}

export interface EndPort {
  /** Forwards a datagram of another end to this one. */
  readonly deliver: (from: string, bytes: Buffer) => void
  readonly present: (ends: readonly string[]) => void
  /** Another connection of the same gateway has taken its place. */
  readonly replaced: () => void
}

export type ForwardOutcome = 'forwarded' | 'notPaired' | 'pairRate' | 'memberRate' | 'relayRate'

interface Connected extends ProvenEnd {
  readonly key: string
  readonly port: EndPort
  wants: ReadonlySet<string>
  readonly wantsRate: TokenBucket
  /** Wants that came too soon, until they count. */
  later: { ends: readonly string[]; readonly cancel: () => void } | undefined
  /** The names of those last said to be present. */
  readonly present: Set<string>
  /** Rates of pairs, by the name of the far end. */
  readonly rates: Map<string, TokenBucket>
}

interface Member {
  readonly bytes: TokenBucket
  /** Its share of the total. */
  readonly share: TokenBucket
  readonly connects: TokenBucket
  readonly ends: Set<string>
}

export class Ends {
  readonly #clock: Pick<Clock, 'monotonic' | 'setTimer'>
  readonly #limits: EndLimits
  /** By clusterset and name. */
  readonly #ends = new Map<string, Connected>()
  readonly #members = new Map<string, Member>()
  readonly #total: Total | undefined
  readonly #costBytes: number

  constructor(clock: Pick<Clock, 'monotonic' | 'setTimer'>, limits: EndLimits) {
    this.#clock = clock
    this.#limits = limits
    const { totalBytesPerSecond: total } = limits
    this.#total = total === undefined ? undefined : new Total(clock, total)
    this.#costBytes = total === undefined ? COST_BYTES : SHARED_COST_BYTES
  }

  get count(): number {
    return this.#ends.size
  }

  /**
   * Takes a gateway that has proven itself. A new connection of the same gateway replaces the one before, which may be
   * dead without anybody knowing. Returns its handle, or why there is no room.
   */
  enter(proven: ProvenEnd, port: EndPort): ConnectedEnd | Extract<RelayRefusal, 'full' | 'memberFull' | 'tooFast'> {
    const member = this.#member(proven)
    if (member === undefined) return 'full'
    if (!member.connects.takeIfLeft(1, CONNECTS)) return 'tooFast'
    const key = keyOf(proven.clusterset, proven.name)
    const before = this.#ends.get(key)
    if (before === undefined) {
      if (this.#ends.size >= this.#limits.ends) return 'full'
      if (member.ends.size >= this.#limits.endsOfMember) return 'memberFull'
    }
    const end: Connected = {
      ...{ ...proven, key, port, wants: new Set(), later: undefined, present: new Set(), rates: new Map() },
      wantsRate: new TokenBucket(this.#clock),
    }
    this.#ends.set(key, end)
    // A cluster that has left may have joined under another id since.
    if (before !== undefined) this.#members.get(keyOf(before.clusterset, before.cluster))?.ends.delete(key)
    member.ends.add(key)
    if (before !== undefined) {
      before.port.replaced()
      this.#sayTo(before.wants, end)
    }
    return {
      want: (ends) => this.#want(end, ends),
      charge: (entries) => this.#charge(member, entries),
      forward: (to, bytes) => this.#forward(end, to, bytes),
      leave: () => this.#leave(end),
    }
  }

  #want(end: Connected, ends: readonly string[]): void {
    if (this.#ends.get(end.key) !== end) return
    if (end.later !== undefined) {
      end.later.ends = ends
      return
    }
    const wants = new Set(ends)
    if (wants.size === end.wants.size && [...wants].every((name) => end.wants.has(name))) return
    const waitMs = end.wantsRate.take(1, WANTS)
    if (waitMs === 0) {
      this.#setWants(end, wants)
      return
    }
    const cancel = this.#clock.setTimer(waitMs, () => {
      const { ends: newest = [] } = end.later ?? {}
      end.later = undefined
      if (this.#ends.get(end.key) === end) this.#setWants(end, new Set(newest))
    })
    end.later = { ends, cancel }
  }

  #setWants(end: Connected, wants: ReadonlySet<string>): void {
    const before = end.wants
    const changed = [...before, ...wants].filter((name) => !before.has(name) || !wants.has(name))
    end.wants = wants
    for (const name of end.rates.keys()) if (!wants.has(name)) end.rates.delete(name)
    let isChanged = false
    for (const name of changed) isChanged = this.#pair(end, name) || isChanged
    if (isChanged) end.port.present([...end.present])
    this.#sayTo(changed, end)
  }

  #charge({ bytes }: Member, entries: number): number {
    const rate = rateOf(this.#limits.memberBytesPerSecond)
    // It is lent, as what has arrived is already paid for in time. A debt is never longer than a second.
    return bytes.take((1 + entries) * this.#costBytes, rate, rate.burst + rate.perSecond)
  }

  #forward(end: Connected, to: string, bytes: Buffer): ForwardOutcome {
    const { pairBytesPerSecond, memberBytesPerSecond } = this.#limits
    // First of all: datagrams to ends that are not there cost the relay time too.
    const member = this.#members.get(keyOf(end.clusterset, end.cluster))
    const cost = bytes.length + this.#costBytes
    if (member === undefined || !member.bytes.takeIfLeft(cost, rateOf(memberBytesPerSecond))) return 'memberRate'
    const far = this.#ends.get(keyOf(end.clusterset, to))
    if (far === undefined || this.#ends.get(end.key) !== end || !arePaired(end, far)) return 'notPaired'
    const rate = end.rates.get(to) ?? new TokenBucket(this.#clock)
    end.rates.set(to, rate)
    if (!rate.takeIfLeft(bytes.length, rateOf(pairBytesPerSecond))) return 'pairRate'
    // Only what is forwarded counts against the others.
    if (this.#total?.takes(member.share, cost) === false) return 'relayRate'
    far.port.deliver(end.name, bytes)
    return 'forwarded'
  }

  #leave(end: Connected): void {
    end.later?.cancel()
    // Another connection may have taken its place.
    if (this.#ends.get(end.key) !== end) return
    this.#ends.delete(end.key)
    this.#members.get(keyOf(end.clusterset, end.cluster))?.ends.delete(end.key)
    this.#sayTo(end.wants, end)
  }

  /** Says to the ends of these names whether this one is there, where that has changed. */
  #sayTo(names: Iterable<string>, { clusterset, name }: ProvenEnd): void {
    for (const one of names) {
      const far = this.#ends.get(keyOf(clusterset, one))
      if (far !== undefined && this.#pair(far, name)) far.port.present([...far.present])
    }
  }

  /** Looks whether the far end of this name is present to this one. Returns whether that has changed. */
  #pair(end: Connected, name: string): boolean {
    const far = this.#ends.get(keyOf(end.clusterset, name))
    const isPresent = far !== undefined && arePaired(end, far)
    if (isPresent === end.present.has(name)) return false
    if (isPresent) end.present.add(name)
    else end.present.delete(name)
    return true
  }

  #member({ clusterset, cluster }: ProvenEnd): Member | undefined {
    const key = keyOf(clusterset, cluster)
    const known = this.#members.get(key)
    if (known !== undefined) return known
    if (this.#members.size >= MOST_MEMBERS) {
      const [idle] = [...this.#members].find(([, { ends }]) => ends.size === 0) ?? []
      if (idle === undefined) return undefined
      this.#members.delete(idle)
    }
    const member: Member = {
      bytes: new TokenBucket(this.#clock),
      share: new TokenBucket(this.#clock),
      connects: new TokenBucket(this.#clock),
      ends: new Set(),
    }
    this.#members.set(key, member)
    return member
  }
}

/**
 * What all members send. A member that sends no more than its share, an equal part for each of those that send, always
 * gets through. What they leave over is for any of the others, but for half of the burst: that is kept for shares.
 */
class Total {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #perSecond: number
  readonly #used: TokenBucket
  /** Those that have sent in this period, and how many did in the one before. By the buckets of their shares. */
  readonly #senders = new Set<TokenBucket>()
  #sendersBefore = 0
  #sinceMs: number

  constructor(clock: Pick<Clock, 'monotonic'>, perSecond: number) {
    this.#clock = clock
    this.#perSecond = perSecond
    this.#used = new TokenBucket(clock)
    this.#sinceMs = clock.monotonic()
  }

  takes(share: TokenBucket, cost: number): boolean {
    const perSecond = this.#perSecond
    const { burst } = rateOf(perSecond)
    const count = this.#count(share)
    const part = { perSecond: perSecond / count, burst: Math.max(burst / 2 / count, LEAST_BURST_BYTES) }
    if (!share.canTake(cost, part)) return this.#used.takeIfLeft(cost, { perSecond, burst: burst / 2 })
    if (!this.#used.takeIfLeft(cost, { perSecond, burst })) return false
    share.take(cost, part)
    return true
  }

  /** How many members send, this one included. */
  #count(sender: TokenBucket): number {
    const nowMs = this.#clock.monotonic()
    const passedMs = nowMs - this.#sinceMs
    if (passedMs >= SHARE_MS) {
      this.#sendersBefore = passedMs < 2 * SHARE_MS ? this.#senders.size : 0
      this.#senders.clear()
      this.#sinceMs = nowMs
    }
    this.#senders.add(sender)
    return Math.max(this.#senders.size, this.#sendersBefore)
  }
}

/** What a connection may do. Nothing has an effect once another one has taken its place. */
export interface ConnectedEnd {
  want(ends: readonly string[]): void
  /**
   * Charges the member for a frame with so many entries that are not datagrams. Returns for how many milliseconds it
   * has to wait, because it sends more than it may: 0 if it does not.
   */
  charge(entries: number): number
  forward(to: string, bytes: Buffer): ForwardOutcome
  leave(): void
}

function rateOf(perSecond: number): TokenRate {
  return { perSecond, burst: perSecond / BURST_PARTS }
}

/** Two gateways of one cluster reach each other without a relay. */
function arePaired(a: Connected, b: Connected): boolean {
  return a.cluster !== b.cluster && a.wants.has(b.name) && b.wants.has(a.name)
}

function keyOf(clusterset: string, name: string): string {
  return `${clusterset} ${name}`
}
