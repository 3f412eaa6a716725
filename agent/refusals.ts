/**
 * What the API has refused to write. Some refusals last (a user's own object, a schema), some pass by themselves: an
 * admission policy or a role that the server has not read yet. So each is offered again after a time that grows, and
 * at once when something about it has changed.
 */
import { isDeepStrictEqual } from 'node:util'
import type { KubeObject } from '../model/objects.ts'
import type { Clock } from '../reconcile/clock.ts'

/** What was asked, and what the caches showed then. */
export interface Offer {
  readonly desired: KubeObject
  readonly present: KubeObject | undefined
  readonly namespace: KubeObject | undefined
}

interface Refusal {
  readonly offer: Offer
  readonly times: number
  /** Monotonic. */
  readonly againAt: number
}

const FIRST_MS = 1000
const LONGEST_MS = 30_000
/** Beyond this many the oldest are forgotten, so they may be tried again. */
const MOST = 2000

export class Refusals {
  readonly #clock: Clock
  readonly #refused = new Map<string, Refusal>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** `key` names what was asked, and of which object. */
  note(key: string, offer: Offer): void {
    const last = this.#refused.get(key)
    const times = last !== undefined && isSameOffer(last.offer, offer) ? last.times + 1 : 1
    const againAt = this.#clock.monotonic() + Math.min(LONGEST_MS, FIRST_MS * times ** 2)
    this.#refused.delete(key)
    this.#refused.set(key, { offer, times, againAt })
    const [oldest] = this.#refused.keys()
    if (this.#refused.size > MOST && oldest !== undefined) this.#refused.delete(oldest)
  }

  forget(key: string): void {
    this.#refused.delete(key)
  }

  /** True while the same offer would be too early. */
  holds(key: string, offer: Offer): boolean {
    const last = this.#refused.get(key)
    return last !== undefined && this.#clock.monotonic() < last.againAt && isSameOffer(last.offer, offer)
  }

  /** Milliseconds until the next of those that are held may be offered again; undefined when none is. */
  nextInMs(): number | undefined {
    const now = this.#clock.monotonic()
    let next: number | undefined
    for (const { againAt } of this.#refused.values()) {
      if (againAt > now && (next === undefined || againAt < next)) next = againAt
    }
    return next === undefined ? undefined : next - now
  }
}

function isSameOffer(a: Offer, b: Offer): boolean {
  return a.present === b.present && a.namespace === b.namespace && isDeepStrictEqual(a.desired, b.desired)
}
