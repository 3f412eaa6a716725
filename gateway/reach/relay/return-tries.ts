/**
 * When relayed links are called at the far ends' own addresses again: once for each list of addresses, when one of the
 * two ends can be called from outside at last. The try costs the link packets if nothing answers there.
 */

export interface ReturningLink {
  /** linkKey(). */
  readonly key: string
  /** Its packets go through a relay. */
  readonly isRelayed: boolean
  readonly isUp: boolean
  /** One of the two ends can be called from outside, as far as is known. */
  readonly isCallable: boolean
  /** Where the far end may be called: any text that differs if that does. */
  readonly where: string
}

/** How long a try lasts: longer than silence that makes a link count as down, so that a failure shows. */
export const RETURN_TRY_MS = 2500
/** A link is tried at most once in this time. */
export const RETURN_APART_MS = 60_000

interface Try {
  readonly where: string
  readonly sinceMs: number
}

export class ReturnTries {
  readonly #tries = new Map<string, Try>()

  /** Takes all links. Returns those, by linkKey(), that are being tried. */
  look(links: readonly ReturningLink[], nowMs: number): ReadonlySet<string> {
    const known = new Set(links.map(({ key }) => key))
    for (const key of this.#tries.keys()) if (!known.has(key)) this.#tries.delete(key)
    for (const { key, isRelayed, isUp, isCallable, where } of links) {
      const last = this.#tries.get(key)
      const isOver = last === undefined || nowMs - last.sinceMs >= RETURN_APART_MS
      if (isRelayed && isUp && isCallable && isOver && last?.where !== where) {
        this.#tries.set(key, { where, sinceMs: nowMs })
      }
    }
    return this.#within(RETURN_TRY_MS, nowMs)
  }

  /** Links, by linkKey(), that were tried a short time ago: they keep their bindings, to which they may have to return. */
  recent(nowMs: number): ReadonlySet<string> {
    return this.#within(RETURN_APART_MS, nowMs)
  }

  #within(ms: number, nowMs: number): ReadonlySet<string> {
    return new Set([...this.#tries].flatMap(([key, { sinceMs }]) => (nowMs - sinceMs < ms ? [key] : [])))
  }
}
