/**
 * When relayed links are called at the far ends' own addresses again: at once for each list of addresses, when one of
 * the two ends can be called from outside at last, and then after pauses that grow, because the path may have been
 * interrupted for a short time only. Ends that nothing can call from outside may reach each other all the same, for
 * example by private addresses. A try costs the link packets if nothing answers there.
 */

export interface ReturningLink {
  /** linkKey(). */
  readonly key: string
  /** Its packets go through a relay. */
  readonly isRelayed: boolean
  readonly isUp: boolean
  /** LinkInUse.asleep. */
  readonly isAsleep?: boolean
  /** One of the two ends can be called from outside, as far as is known. */
  readonly isCallable: boolean
  /** The far end has addresses to try. */
  readonly hasPlaces: boolean
  /** Where the far end may be called: any text that differs if that does. */
  readonly where: string
}

/** How long a try lasts: longer than silence that makes a link count as down, so that a failure shows. */
export const RETURN_TRY_MS = 2500
/** A link is tried at most once in this time. */
export const RETURN_APART_MS = 60_000
/** The pause doubles with each try at the same addresses, up to this one. */
export const RETURN_LONGEST_MS = 1_800_000

interface Try {
  readonly where: string
  /** Since when the link waits for its next try. */
  readonly sinceMs: number
  readonly pauseMs: number
  /** When the last try began. -Infinity: there was none. */
  readonly triedMs: number
}

export class ReturnTries {
  readonly #tries = new Map<string, Try>()

  /** Takes all links. Returns those, by linkKey(), that are being tried. */
  look(links: readonly ReturningLink[], nowMs: number): ReadonlySet<string> {
    const known = new Set(links.map(({ key }) => key))
    for (const key of this.#tries.keys()) if (!known.has(key)) this.#tries.delete(key)
    for (const link of links) {
      const next = nextTry(link, this.#tries.get(link.key), nowMs)
      if (next === undefined) this.#tries.delete(link.key)
      else this.#tries.set(link.key, next)
    }
    return this.#within(RETURN_TRY_MS, nowMs)
  }

  /** Links, by linkKey(), that were tried a short time ago: they keep their bindings, to which they may have to return. */
  recent(nowMs: number): ReadonlySet<string> {
    return this.#within(RETURN_APART_MS, nowMs)
  }

  #within(ms: number, nowMs: number): ReadonlySet<string> {
    return new Set([...this.#tries].flatMap(([key, { triedMs }]) => (nowMs - triedMs < ms ? [key] : [])))
  }
}

/** What is remembered of a link after a look at it. Undefined: nothing. */
function nextTry(
  { isRelayed, isUp, isAsleep, isCallable, hasPlaces, where }: ReturningLink,
  last: Try | undefined,
  nowMs: number,
): Try | undefined {
  const waitedMs = nowMs - (last?.sinceMs ?? -Infinity)
  // A link that has been up without a relay for the time of the pause begins with short pauses again.
  if (!isRelayed) return last !== undefined && isUp && waitedMs >= last.pauseMs ? undefined : last
  // One that went down and came back waits for its pause again: a try that was due in the meantime would interrupt it.
  if (!isUp) return last === undefined ? undefined : { ...last, sinceMs: nowMs }
  if (!hasPlaces) return last
  // It would seem to be up at any address. A try that was due would interrupt the traffic that wakes it.
  if (isAsleep === true) return last === undefined ? undefined : { ...last, sinceMs: nowMs }
  // The addresses of an end that cannot be called were tried just before the relay.
  if (last === undefined && !isCallable) {
    return { where, sinceMs: nowMs, pauseMs: RETURN_APART_MS, triedMs: -Infinity }
  }
  const isOther = isCallable && last?.where !== where
  const isDue = isOther ? nowMs - (last?.triedMs ?? -Infinity) >= RETURN_APART_MS : waitedMs >= (last?.pauseMs ?? 0)
  if (!isDue) return last
  const pauseMs = isOther || last === undefined ? RETURN_APART_MS : Math.min(2 * last.pauseMs, RETURN_LONGEST_MS)
  return { where, sinceMs: nowMs, pauseMs, triedMs: nowMs }
}
