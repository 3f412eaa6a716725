/**
 * A bounded set of items by their owners. When it is full, the owner of the most gives up its oldest: so one that
 * floods takes places from itself, and a newcomer always gets one.
 */
export interface FairPoolInit {
  readonly total: number
  /** Default: as many as there are in all. */
  readonly perKey?: number
}

export class FairPool<T> {
  readonly #init: FairPoolInit
  /** Keys in the order in which their turn comes; items oldest first. */
  readonly #byKey = new Map<string, Set<T>>()
  #size = 0

  constructor(init: FairPoolInit) {
    this.#init = init
  }

  get size(): number {
    return this.#size
  }

  count(key: string): number {
    return this.#byKey.get(key)?.size ?? 0
  }

  /** Gives the item that has lost its place by this, if one has; it is in the pool no more. */
  add(key: string, item: T): T | undefined {
    const items = this.#byKey.get(key) ?? new Set<T>()
    if (items.has(item)) return undefined
    this.#byKey.set(key, items.add(item))
    this.#size += 1
    if (items.size > (this.#init.perKey ?? Infinity)) return this.#takeOldest(key)
    return this.#size > this.#init.total ? this.#takeOldest(this.#largest()) : undefined
  }

  delete(key: string, item: T): boolean {
    const items = this.#byKey.get(key)
    if (items?.delete(item) !== true) return false
    this.#size -= 1
    if (items.size === 0) this.#byKey.delete(key)
    return true
  }

  /** Takes the oldest item of the key whose turn it is: one of each in turn. */
  take(): T | undefined {
    const key = this.#byKey.keys().next()
    if (key.done === true) return undefined
    const item = this.#takeOldest(key.value)
    const rest = this.#byKey.get(key.value)
    this.#byKey.delete(key.value)
    if (rest !== undefined) this.#byKey.set(key.value, rest)
    return item
  }

  /** The owner of most gives up its oldest. */
  shed(): T | undefined {
    return this.#takeOldest(this.#largest())
  }

  #takeOldest(key: string): T | undefined {
    const oldest = this.#byKey.get(key)?.values().next()
    if (oldest === undefined || oldest.done === true) return undefined
    this.delete(key, oldest.value)
    return oldest.value
  }

  #largest(): string {
    let largest = ''
    let most = 0
    for (const [key, items] of this.#byKey) {
      if (items.size <= most) continue
      largest = key
      most = items.size
    }
    return largest
  }
}
