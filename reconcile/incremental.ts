/** Keyed difference of what should be and what is, in stable order. */

export interface KeyedDiff<D, O> {
  readonly add: readonly D[]
  readonly change: readonly { readonly desired: D; readonly observed: O }[]
  readonly remove: readonly O[]
}

export interface DiffInit<D, O> {
  readonly desired: Iterable<D>
  readonly observed: Iterable<O>
  readonly desiredKey: (item: D) => string
  readonly observedKey: (item: O) => string
  /** True when the observed item already is what is desired. */
  readonly equal: (desired: D, observed: O) => boolean
}

export function keyedDiff<D, O>(init: DiffInit<D, O>): KeyedDiff<D, O> {
  const observed = new Map([...init.observed].map((item) => [init.observedKey(item), item]))
  const add: D[] = []
  const change: { desired: D; observed: O }[] = []
  const wanted = new Map([...init.desired].map((item) => [init.desiredKey(item), item]))
  for (const key of [...wanted.keys()].sort()) {
    const desired = wanted.get(key) as D
    if (!observed.has(key)) add.push(desired)
    else if (!init.equal(desired, observed.get(key) as O)) change.push({ desired, observed: observed.get(key) as O })
  }
  const remove = [...observed.keys()]
    .filter((key) => !wanted.has(key))
    .sort()
    .map((key) => observed.get(key) as O)
  return { add, change, remove }
}

/**
 * Remembers one result per key and hands it out again while the inputs are the very same objects. Ten thousand
 * services then cost a look each, not a plan each, and an unchanged result is recognised by identity downstream.
 */
export class KeyedMemo<V> {
  #entries = new Map<string, { readonly inputs: readonly unknown[]; readonly value: V }>()
  #used = new Map<string, { readonly inputs: readonly unknown[]; readonly value: V }>()

  /** The remembered value, or that of `make` when any input is another one than last time. */
  get(key: string, inputs: readonly unknown[], make: () => V): V {
    const known = this.#used.get(key) ?? this.#entries.get(key)
    const entry = known !== undefined && sameItems(known.inputs, inputs) ? known : { inputs, value: make() }
    this.#used.set(key, entry)
    return entry.value
  }

  /** Ends a round: forgets every key that was not asked for since the last one. */
  endRound(): void {
    this.#entries = this.#used
    this.#used = new Map()
  }
}

/** Deep enough for lists of lists: groups are made anew in each round, their members are not. */
function sameItems(a: readonly unknown[], b: readonly unknown[]): boolean {
  return (
    a.length === b.length &&
    a.every(
      (item, i) => item === b[i] || (Array.isArray(item) && Array.isArray(b[i]) && sameItems(item, b[i] as unknown[])),
    )
  )
}

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
