/**
 * A map that is a value: `with()` gives another one that shares what has not changed, and leaves this one as it is. A
 * change costs about the square root of the size: the differences from a shared base are copied, and are taken in when
 * they have become that many. Keys come in the order in which they were put last.
 */
export class ValueMap<K, V> implements ReadonlyMap<K, V> {
  readonly #base: ReadonlyMap<K, V>
  /** undefined: not there any more. */
  readonly #changes: ReadonlyMap<K, V | undefined>
  readonly size: number

  /** Keeps `base`, which must not be changed any more; `changes` and `size` are for with(). */
  constructor(
    base: ReadonlyMap<K, V> = new Map<K, V>(),
    changes: ReadonlyMap<K, V | undefined> = new Map<K, V | undefined>(),
    size = base.size,
  ) {
    this.#base = base
    this.#changes = changes
    this.size = size
  }

  /**
   * This map with what `changes` puts and, where it has undefined, removes. The same map where that changes nothing.
   */
  with(changes: ReadonlyMap<K, V | undefined>): ValueMap<K, V> {
    const all = new Map(this.#changes)
    let size = this.size
    let isOther = false
    for (const [key, value] of changes) {
      const wasThere = this.has(key)
      if (value === undefined && !wasThere) continue
      isOther = true
      size += Number(value !== undefined) - Number(wasThere)
      // Put last is last in order.
      all.delete(key)
      if (value !== undefined || this.#base.has(key)) all.set(key, value)
    }
    if (!isOther) return this
    const changed = new ValueMap(this.#base, all, size)
    return all.size > MIN_CHANGES + CHANGES_PER_ROOT * Math.sqrt(this.#base.size)
      ? new ValueMap(flat(this.#base, all))
      : changed
  }

  get(key: K): V | undefined {
    return this.#changes.has(key) ? this.#changes.get(key) : this.#base.get(key)
  }

  has(key: K): boolean {
    return this.get(key) !== undefined
  }

  *entries(): MapIterator<[K, V]> {
    for (const entry of this.#base) if (!this.#changes.has(entry[0])) yield entry
    for (const [key, value] of this.#changes) if (value !== undefined) yield [key, value]
  }

  *keys(): MapIterator<K> {
    for (const [key] of this.entries()) yield key
  }

  *values(): MapIterator<V> {
    for (const [, value] of this.entries()) yield value
  }

  [Symbol.iterator](): MapIterator<[K, V]> {
    return this.entries()
  }

  forEach(callback: (value: V, key: K, map: ReadonlyMap<K, V>) => void): void {
    for (const [key, value] of this.entries()) callback(value, key, this)
  }
}

function flat<K, V>(base: ReadonlyMap<K, V>, changes: ReadonlyMap<K, V | undefined>): Map<K, V> {
  const all = new Map(base)
  for (const [key, value] of changes) {
    // Put last is last in order.
    all.delete(key)
    if (value !== undefined) all.set(key, value)
  }
  return all
}

/** So many changes a map keeps beside its base: each later one copies them, and taking them in copies the base. */
const MIN_CHANGES = 32
const CHANGES_PER_ROOT = 4
