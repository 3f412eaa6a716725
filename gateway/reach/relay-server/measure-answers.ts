/**
 * What a relay answers to ends that measure their NAT: at once, and once more later (hold-frame.ts) or by another way
 * (echo-frame.ts). It takes questions whose end and address are proven. Answers that are held are lost if the process
 * ends: the end asks again.
 */
import { type AddressPort, formatAddressPort } from '../../../model/addresses/addresses.ts'
import { type Clock, TokenBucket, type TokenRate } from '../../../reconcile/reconcile.ts'
import { AddressCounts } from './address-proof.ts'
import { type EchoAnswer, type EchoQuestion, encodeEchoAnswer } from '../frames/echo-frame.ts'
import { type HoldAnswer, type HoldQuestion, encodeHoldAnswer } from '../frames/hold-frame.ts'
import type { RelayEffect, RelayEnd, SecondAnswer } from './relay-events.ts'

/** Answers to an end that measures its NAT: four waits, each asked twice of this relay, with two answers for a question. */
const HELD_OF_END: TokenRate = { burst: 40, perSecond: 2 }
/**
 * Questions with a cookie of an end that measures whom its NAT lets in: ten at once, ten more one by one, and a few before
 * them. Each is as long as its answers, so one that is sent again by somebody who has copied it gains nothing.
 */
const ECHOES_OF_END: TokenRate = { burst: 40, perSecond: 2 }
/**
 * Of these, answers to another port than the one that asks: three in a measurement. Behind the NAT of a carrier that may be
 * the port of a stranger, whom nobody has asked.
 */
const PLACES_OF_END: TokenRate = { burst: 6, perSecond: 0.02 }
/** And to other ports of one address in a minute, for all ends together. */
export const PLACES_AT_ADDRESS = 60

/** An end that has proven itself and its address. */
export interface MeasuringEnd {
  readonly end: RelayEnd & { readonly id: string }
  /** bindKey(). */
  readonly key: Buffer
  readonly at: AddressPort
  readonly nowMs: number
}

interface MeasureAnswersInit {
  readonly clock: Pick<Clock, 'monotonic'>
  /** Whether the address may get as much as a challenge. */
  readonly mayChallenge: (one: MeasuringEnd) => boolean
  /** The end answers at its address, so challenges to that count no more. */
  readonly onProven: (at: AddressPort) => void
}

/** What is known of an end that has measured. */
interface Measured {
  readonly held: TokenBucket
  readonly echoes: TokenBucket
  readonly places: TokenBucket
  /** The greatest counter of a question with a late answer: one that is sent again gets none. */
  newestHold: number
}

export class MeasureAnswers {
  readonly #init: MeasureAnswersInit
  /** An end that may not use the relay any more, and may again, is another object. */
  readonly #ends = new WeakMap<RelayEnd, Measured>()
  readonly #placed = new AddressCounts(PLACES_AT_ADDRESS)
  readonly #held = new HeldAnswers()

  constructor(init: MeasureAnswersInit) {
    this.#init = init
  }

  /** When an answer is due, on the monotonic clock. Infinity: none is. */
  get dueMs(): number {
    return this.#held.dueMs
  }

  /** Removes, and returns, the answers that are due. */
  takeDue(nowMs: number): readonly HeldAnswer[] {
    return this.#held.takeDue(nowMs)
  }

  /** Forgets the answers for ends that may not use the relay any more. */
  keepOnly(mayUse: (end: string, member: string) => boolean): void {
    this.#held.keepOnly(mayUse)
  }

  hold(question: HoldQuestion, one: MeasuringEnd): RelayEffect {
    const silent = (outcome: 'tooMany'): RelayEffect => ({ isChanged: false, outcome })
    const { end, key, at, nowMs } = one
    const measured = this.#measured(end)
    const { from, to, counter, waitMs } = question
    const answer = (type: HoldAnswer['type'], newest = 0): Buffer =>
      encodeHoldAnswer({ type, from, to, counter, waitMs, seen: at, newest }, key)
    if (counter <= measured.newestHold) {
      // Somebody may have copied the question, and uses up no more than challenges.
      if (!this.#init.mayChallenge(one)) return silent('tooMany')
      return { answer: answer('stale', measured.newestHold), isChanged: false, outcome: 'stale' }
    }
    // One for each of its two answers.
    if (!measured.held.takeIfLeft(1, HELD_OF_END)) return silent('tooMany')
    measured.newestHold = counter
    this.#init.onProven(at)
    const { id, member } = end
    const isHeld =
      measured.held.takeIfLeft(1, HELD_OF_END) &&
      this.#held.add({ end: id, member, to: at, answer: answer('late'), dueMs: nowMs + waitMs })
    const outcome = isHeld ? 'held' : 'full'
    return { answer: answer(outcome), isChanged: false, outcome }
  }

  /** The second answer shows whom the NAT in front of the end lets in. It goes to the address that is proven alone. */
  echo(question: EchoQuestion, { end, key, at, nowMs }: MeasuringEnd): RelayEffect {
    const { echoes, places } = this.#measured(end)
    if (!echoes.takeIfLeft(1, ECHOES_OF_END)) return { isChanged: false, outcome: 'tooMany' }
    this.#init.onProven(at)
    const { from, to, counter, way, place } = question
    const answer = (type: EchoAnswer['type']): Buffer => encodeEchoAnswer({ type, from, to, counter, seen: at }, key)
    const target = way === 'none' ? undefined : (place ?? at)
    if (target?.address.value !== at.address.value || !this.#mayPlace(target, at, places, nowMs))
      return { answer: answer('single'), isChanged: false, outcome: 'single' }
    const leaves = way === 'port' ? 'other port' : 'control port'
    const second: SecondAnswer = { leaves, to: target, answer: answer('second') }
    return { answer: answer('echo'), second, isChanged: false, outcome: 'echo' }
  }

  /** The port that asks is proven. Any other one may belong to somebody else. */
  #mayPlace(target: AddressPort, at: AddressPort, places: TokenBucket, nowMs: number): boolean {
    return target.port === at.port || this.#placed.take(target, nowMs, () => places.takeIfLeft(1, PLACES_OF_END))
  }

  #measured(end: RelayEnd): Measured {
    const known = this.#ends.get(end)
    if (known !== undefined) return known
    const { clock } = this.#init
    const [held, echoes, places] = [new TokenBucket(clock), new TokenBucket(clock), new TokenBucket(clock)]
    const made = { held, echoes, places, newestHold: -1 }
    this.#ends.set(end, made)
    return made
  }
}

/** An answer that is due at a time of the monotonic clock, in milliseconds. */
interface HeldAnswer {
  /** endId() of the end that gets it. */
  readonly end: string
  readonly member: string
  readonly to: AddressPort
  readonly answer: Buffer
  readonly dueMs: number
}

/** Eight gateways of a member may measure four waits each at one time. */
export const MOST_HELD_OF_MEMBER = 32
export const MOST_HELD = 1024

class HeldAnswers {
  readonly #held = new Map<string, HeldAnswer>()

  /** Takes one answer; it replaces that for the same port of the same end. Returns false if there is no room. */
  add(one: HeldAnswer): boolean {
    const key = `${one.end} ${formatAddressPort(one.to)}`
    if (!this.#held.has(key)) {
      const ofMember = [...this.#held.values()].filter(({ member }) => member === one.member)
      if (this.#held.size >= MOST_HELD || ofMember.length >= MOST_HELD_OF_MEMBER) return false
    }
    this.#held.set(key, one)
    return true
  }

  /** When the next answer is due. Infinity: there is none. */
  get dueMs(): number {
    return Math.min(Infinity, ...[...this.#held.values()].map(({ dueMs }) => dueMs))
  }

  /** Removes, and returns, those that are due. */
  takeDue(nowMs: number): readonly HeldAnswer[] {
    const due = [...this.#held].filter(([, { dueMs }]) => nowMs >= dueMs)
    for (const [key] of due) this.#held.delete(key)
    return due.map(([, one]) => one)
  }

  /** Forgets those of ends that may not use the relay any more. */
  keepOnly(mayUse: (end: string, member: string) => boolean): void {
    for (const [key, { end, member }] of this.#held) if (!mayUse(end, member)) this.#held.delete(key)
  }
}
