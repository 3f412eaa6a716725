/** The members of one generator process. main.ts calls each method by its name. */
import { createSecureContext } from 'node:tls'
import { setTimeout as sleep } from 'node:timers/promises'
import { Backoff } from '../../reconcile/retry.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { DEFAULT_CLIENT_LIMITS } from '../../protocol/transport/grpc-client.ts'
import { BrokerBusyError } from '../../protocol/broker-client.ts'
import { reconnectMs, reconnectSpreadMs } from '../../protocol/sessions/session-timing.ts'
import { comeBackMs } from '../../protocol/transport/handshake-rate-limiter.ts'
import { DEFAULT_WATCH_SESSION } from '../../protocol/sessions/watch-session.ts'
import { NO_FACTS, joinWith } from '../../test/hostile/support/raw-join.ts'
import { eventually } from '../../test/support/eventually.ts'
import { type Counts, Histogram } from './histogram.ts'
import { LeanMember } from './lean/lean-member.ts'
import { changedExport, interestOf, largeSlice, podCIDR } from './lean/records.ts'
import { WatchReader } from './lean/watch-reader.ts'
import { mark } from './mark.ts'

export interface FleetInit {
  readonly broker: { readonly address: string; readonly ports: readonly number[]; readonly state: string }
  readonly services: number
  readonly namespaces: number
  /** The number of clusters in all processes. */
  readonly clusters: number
}

export interface JoinAsk {
  readonly cluster: string
  readonly index: number
  readonly secret: string
}

export interface FleetState {
  readonly inSync: number
  readonly published: number
  /**
   * Since the last zero(): the records that all members got, those that one fully counting member got, and those that
   * the broker requested.
   */
  readonly events: number
  readonly eventsOfOne: number
  readonly askedInAll: number
  /**
   * Since the last zero(): the members that lost their broker and are back, and the longest time that one of them took.
   */
  readonly lost: number
  readonly outageMs: number
  readonly messageBytes: number
  readonly eventBytes: number
  readonly bytesRead: number
  readonly failedConnects: number
  /** The lost members that a broker asked to try again later. */
  readonly sentAway: number
  readonly reasons: readonly string[]
  readonly refused: string | undefined
}

const JOINS_AT_ONCE = 4

export class Fleet {
  readonly #init: FleetInit
  readonly #members: LeanMember[] = []
  readonly #ages = new Histogram()
  readonly #clock = new SystemClock()
  #failed = 0
  #sentAway = 0
  readonly #reasons = new Map<string, number>()
  /** Whether the members should stay connected. */
  #keeping = false

  constructor(init: FleetInit) {
    this.#init = init
  }

  async join({ asks }: { readonly asks: readonly JoinAsk[] }): Promise<void> {
    const waiting = [...asks]
    const work = async (): Promise<void> => {
      for (let ask = waiting.shift(); ask !== undefined; ask = waiting.shift()) await this.#join(ask)
    }
    await Promise.all(Array.from({ length: JOINS_AT_ONCE }, work))
    this.#members.sort((a, b) => a.site.index - b.site.index)
  }

  /** Connects all members as ones that have lost the broker; each retries until it is in. */
  start({ fresh, old, streams }: { fresh: boolean; old: boolean; streams: 'both' | 'publish' }): void {
    this.#keeping = true
    for (const member of this.#members) this.#keep(member, { fresh, old, streams })
  }

  stop(): void {
    this.#keeping = false
    for (const member of this.#members) member.close()
  }

  /** The present state. Members that are lost from now on reconnect by themselves, and resume. */
  state(): FleetState {
    const sum = (of: (member: LeanMember) => number): number => this.#members.reduce((all, one) => all + of(one), 0)
    return {
      inSync: sum((one) => Number(one.inSync)),
      published: sum((one) => Number(one.published)),
      events: sum(({ watching }) => watching.events),
      eventsOfOne: this.#members.find(({ watching }) => watching.countsAll)?.watching.events ?? 0,
      askedInAll: sum(({ asked }) => asked),
      lost: sum(({ outageMs }) => Number(outageMs > 0)),
      outageMs: Math.max(0, ...this.#members.map(({ outageMs }) => outageMs)),
      messageBytes: sum(({ watching }) => watching.bytes),
      eventBytes: sum(({ watching }) => watching.eventBytes),
      bytesRead: sum((one) => one.bytesRead),
      failedConnects: this.#failed,
      sentAway: this.#sentAway,
      reasons: [...this.#reasons].map(([why, count]) => `${count} ${why.trim().slice(-60)}`),
      refused: this.#members.find(({ refused }) => refused !== undefined)?.refused,
    }
  }

  zero(): void {
    this.#failed = 0
    this.#sentAway = 0
    this.#reasons.clear()
    for (const member of this.#members) member.zero()
  }

  live({ on }: { readonly on: boolean }): void {
    for (const { watching } of this.#members) watching.isLive = on
    this.#ages.take()
  }

  /** The ages of changes on arrival, since the last call. */
  ages(): Counts {
    return this.#ages.take()
  }

  change({ member, record }: { readonly member: number; readonly record: number }): void {
    const one = this.#members[member % this.#members.length]
    one?.put(changedExport(one.site, record % one.site.services, mark()))
  }

  /**
   * Publishes this many changes a second, of these many members in turn, each time of another record. Returns how many.
   */
  async burst({ perSecond, seconds, publishers }: Record<'perSecond' | 'seconds' | 'publishers', number>) {
    const from = performance.now()
    const total = Math.round(perSecond * seconds)
    for (let sent = 0; sent < total;) {
      const due = Math.min(total, Math.floor(((performance.now() - from) / 1000) * perSecond))
      for (; sent < due; sent += 1) this.change({ member: sent % publishers, record: Math.floor(sent / publishers) })
      await sleep(2)
    }
    return total
  }

  /** This many members open one more watch each, from nothing, on their present connections. */
  async snapshots({ count, old }: { readonly count: number; readonly old: boolean }) {
    const opened = this.#members.slice(0, count).map((member) => {
      const reader = new WatchReader(() => undefined, false, interestOf(member.site))
      return { reader, call: member.watch(reader, { fresh: true, old }) }
    })
    const over = (): boolean => opened.every(({ reader }) => reader.synced)
    await eventually(over, { deadlineMs: 120_000, intervalMs: 20, say: 'snapshots' })
    for (const { call } of opened) call.cancel()
    return opened.map(({ reader: { bytes, eventBytes, events } }) => ({ bytes, eventBytes, events }))
  }

  /** One member publishes this many slices of a hundred endpoints. */
  async largeSlices({ count }: { readonly count: number }): Promise<void> {
    const member = this.#members[0]
    if (member === undefined) return
    for (let i = 0; i < count; i += 1) member.put(largeSlice(member.site, i))
    await eventually(() => member.published, { deadlineMs: 30_000, say: 'large slices' })
  }

  async #join({ cluster, index, secret }: JoinAsk): Promise<void> {
    const { broker, services, namespaces } = this.#init
    const facts = { ...NO_FACTS, podCidrs: [podCIDR(index)], serviceCidrs: ['172.20.0.0/16'] }
    const { identity } = await joinWith(broker, secret, cluster, { facts })
    const { key, cert, ca } = identity
    const context = createSecureContext({ key, cert, ca })
    const onChange = (ageMs: number): void => this.#ages.add(ageMs)
    const site = { cluster, index, services, namespaces }
    this.#members.push(new LeanMember({ site, context, onChange }))
  }

  /** The wait before the next attempt, as the sessions of an agent choose it. */
  #waitMs(why: string, wasLive: boolean, backoff: Backoff): number {
    const busyMs = comeBackMs(why)
    if (busyMs !== undefined) this.#sentAway += 1
    const error = busyMs === undefined ? undefined : new BrokerBusyError('', busyMs)
    const spreadMs = reconnectSpreadMs(this.#init.clusters)
    return reconnectMs({ wasLive, error, backoffMs: backoff.next(), spreadMs }, this.#clock)
  }

  #portBesides(failed: number | undefined): number {
    const { ports } = this.#init.broker
    const others = ports.length === 1 ? ports : ports.filter((one) => one !== failed)
    return others[Math.floor(this.#clock.random() * others.length)] ?? 0
  }

  #keep(member: LeanMember, init: { fresh: boolean; old: boolean; streams: 'both' | 'publish' }): void {
    const { retryMinMs: minMs, retryMaxMs: maxMs } = DEFAULT_WATCH_SESSION
    const backoff = new Backoff(this.#clock, { minMs, maxMs })
    let port: number | undefined
    const connect = (fresh: boolean): void => {
      if (!this.#keeping) return
      const timeoutMs = DEFAULT_CLIENT_LIMITS.connectTimeoutMs
      // The choice is that of an agent's address book: a random one, and not the one that just failed.
      port = this.#portBesides(port)
      member.connect({ port, timeoutMs, fresh, old: init.old }, init.streams, (why) => again(why))
    }
    const again = (why: string): void => {
      if (!this.#keeping) return
      const { wasInSync: wasLive } = member
      if (wasLive) backoff.reset()
      else {
        this.#failed += 1
        this.#reasons.set(why, (this.#reasons.get(why) ?? 0) + 1)
      }
      setTimeout(() => connect(false), this.#waitMs(why, wasLive, backoff)).unref()
    }
    connect(init.fresh)
  }
}
