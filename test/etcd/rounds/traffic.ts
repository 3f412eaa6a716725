/**
 * The random actions of members and the operator. Clusters join (sometimes two with one token), put and withdraw
 * records, renew, restart, leave, are evicted and join again.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { parseClusterId } from '../../../model/ids.ts'
import { RefusedError } from '../../../protocol/broker-api.ts'
import { createKey } from '../../../protocol/identity/keys.ts'
import type { MemberIdentity } from '../../../protocol/membership/member-files.ts'
import { parseJoinToken } from '../../../protocol/identity/token.ts'
import { askToJoin, joinedIdentity } from '../../../protocol/membership/join.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { facts } from '../../broker/support/harness.ts'
import { eventually } from '../../support/eventually.ts'
import type { Chance } from './chance.ts'
import { Member } from './member.ts'
import type { Operator } from './operator.ts'
import type { Recorder } from './recorder.ts'

const clock = new SystemClock()
/** A few names, so that the same set of records occurs often. */
const NAMES = ['web', 'db', 'cache']
const JOIN_ATTEMPTS = 3
const JOIN_MS = 4000
const PAUSE_MS = 60

export interface TrafficInit {
  readonly operator: Operator
  readonly recorder: Recorder
  readonly chance: Chance
  /** The number of clusters, apart from the rivals that join for a moment. */
  readonly seats: number
}

export class Traffic {
  readonly #init: TrafficInit
  readonly #seats: Seat[]
  #isOn = false
  #running: Promise<unknown> = Promise.resolve()

  constructor(init: TrafficInit) {
    this.#init = init
    this.#seats = Array.from({ length: init.seats }, (_, i) => new Seat(init, `c${i}`, init.chance.branch()))
  }

  start(): void {
    this.#isOn = true
    this.#running = Promise.all(this.#seats.map((seat) => seat.run(() => this.#isOn)))
  }

  /** Resolves when each call has its answer or is late. */
  async stop(): Promise<void> {
    this.#isOn = false
    await this.#running
  }

  /** Repeats each leave and eviction whose result is unknown. Call it after stop(). Rejects after `withinMs`. */
  async finishEndings(withinMs: number): Promise<void> {
    const pending = this.#seats.filter((seat) => seat.isEnding)
    await Promise.all(pending.map((seat) => seat.finishEnding(withinMs)))
  }

  get members(): readonly Member[] {
    return this.#seats.flatMap(({ member }) => member ?? [])
  }

  async close(): Promise<void> {
    await this.stop()
    await Promise.all(this.members.map((member) => member.close()))
    await this.#init.operator.close()
  }
}

class Seat {
  member: Member | undefined
  readonly #init: TrafficInit
  readonly #chance: Chance
  readonly #name: string
  #cluster: string
  #clusters = 0
  #life = 0
  #version = 0
  /** The way in which the member is leaving. Until that has succeeded, the member takes no other action. */
  #ending: 'leave' | 'evict' | undefined

  constructor(init: TrafficInit, name: string, chance: Chance) {
    this.#init = init
    this.#name = name
    this.#cluster = name
    this.#chance = chance
  }

  get isEnding(): boolean {
    return this.#ending !== undefined
  }

  async finishEnding(withinMs: number): Promise<void> {
    const say = `${this.#cluster} is sent away`
    const isOver = async (): Promise<boolean> => {
      if (this.member !== undefined) await this.#end(this.member)
      return !this.isEnding
    }
    await eventually(isOver, { say, deadlineMs: withinMs, intervalMs: PAUSE_MS })
  }

  async run(isOn: () => boolean): Promise<void> {
    while (isOn()) {
      await this.#step()
      await sleep(this.#chance.below(PAUSE_MS))
    }
  }

  async #step(): Promise<void> {
    const { member } = this
    if (member === undefined) return this.#join()
    if (this.#ending !== undefined) return this.#end(member)
    const dice = this.#chance.below(100)
    if (dice < 55) return this.#write(member, 'put')
    if (dice < 85) return this.#write(member, 'remove')
    if (dice < 91) return member.renew()
    if (dice < 95) {
      await member.halt()
      member.start()
      return
    }
    this.#ending = dice < 98 ? 'evict' : 'leave'
    // In half of the cases the membership ends while the member writes.
    if (this.#chance.below(2) === 0) await Promise.all([this.#write(member, 'put'), this.#end(member)])
    else await this.#end(member)
  }

  #write(member: Member, what: 'put' | 'remove'): Promise<void> {
    return member.write(this.#chance.pick(NAMES), what, (this.#version += 1))
  }

  async #end(member: Member): Promise<void> {
    const { cluster, life } = member
    const isOver = this.#ending === 'leave' ? await member.leave() : await this.#init.operator.evict(cluster, life)
    if (!isOver) return
    this.member = undefined
    this.#ending = undefined
    await member.close()
    // The cluster joins again under the same name or under a new one.
    if (this.#chance.below(3) > 0) return
    this.#clusters += 1
    this.#cluster = `${this.#name}-${this.#clusters}`
    this.#life = 0
  }

  async #join(): Promise<void> {
    const { operator } = this.#init
    const token = await operator.token()
    if (token === undefined) return
    this.#life += 1
    const own = this.#tryToken(token, this.#cluster, this.#life)
    if (this.#chance.below(3) > 0) {
      this.#take(await own)
      return
    }
    // Another cluster uses the same token at the same time.
    this.#clusters += 1
    const rival = `${this.#name}-rival-${this.#clusters}`
    const [mine, theirs] = await Promise.all([own, this.#tryToken(token, rival, 1)])
    this.#take(mine)
    if (theirs !== undefined) await operator.evict(rival, 1)
  }

  #take(identity: MemberIdentity | undefined): void {
    if (identity === undefined) return
    this.member = new Member({ identity, life: this.#life, recorder: this.#init.recorder })
  }

  /**
   * Joins, and repeats the request with the same key while no answer comes. Returns undefined when it is not certain
   * that the cluster has joined.
   */
  async #tryToken(
    { id, text }: { readonly id: string; readonly text: string },
    cluster: string,
    life: number,
  ): Promise<MemberIdentity | undefined> {
    const answered = this.#init.recorder.begin({ t: 'join', token: id, cluster, life })
    const ask = { token: parseJoinToken(text, clock.now()), cluster: parseClusterId(cluster), key: createKey() }
    const logger = new CapturingLogger()
    for (let attempt = 0, isUnknown = false; ; attempt += 1) {
      const asked = { is: false }
      const onAsking = (): void => void (asked.is = true)
      try {
        const all = { ...ask, facts: facts(['10.42.0.0/20']), onAsking }
        const answer = await askToJoin(all, { clock, logger }, AbortSignal.timeout(JOIN_MS))
        answered('ok', { index: answer.clusterIndex, blocks: answer.globalCIDRs })
        return joinedIdentity(all, answer)
      } catch (error) {
        isUnknown ||= asked.is && !(error instanceof RefusedError)
        if (error instanceof RefusedError || attempt + 1 >= JOIN_ATTEMPTS) {
          answered(isUnknown ? 'unknown' : 'failed')
          return undefined
        }
      }
    }
  }
}
