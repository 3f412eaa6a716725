/** Keyed difference of desired and observed items, in stable order. */

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
  /** Whether the observed item is already as desired. */
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
 * Remembers one result per key and returns it while the inputs are the same objects. Ten thousand services then cost a
 * lookup each instead of a plan each, and later steps recognise an unchanged result by identity.
 */
export class KeyedMemo<V> {
  #entries = new Map<string, { readonly inputs: readonly unknown[]; readonly value: V }>()
  #used = new Map<string, { readonly inputs: readonly unknown[]; readonly value: V }>()

  /** Returns the remembered value, or that of `make` if any input is another object than last time. */
  get(key: string, inputs: readonly unknown[], make: () => V): V {
    const known = this.#used.get(key) ?? this.#entries.get(key)
    const entry = known !== undefined && sameItems(known.inputs, inputs) ? known : { inputs, value: make() }
    this.#used.set(key, entry)
    return entry.value
  }

  /** Ends a round: forgets every key that was not requested since the last one. */
  endRound(): void {
    this.#entries = this.#used
    this.#used = new Map()
  }
}

/** Compares nested lists as well: each round creates new groups, but their members are the same objects. */
function sameItems(a: readonly unknown[], b: readonly unknown[]): boolean {
  return (
    a.length === b.length &&
    a.every(
      (item, i) => item === b[i] || (Array.isArray(item) && Array.isArray(b[i]) && sameItems(item, b[i] as unknown[])),
    )
  )
}

/**
 * An immutable map: `with()` returns another one that shares the unchanged part. A change costs about the square root
 * of the size: it copies the differences from a shared base, and merges them when they become that many. Keys are
 * ordered by their last change.
 */
export class ValueMap<K, V> implements ReadonlyMap<K, V> {
  readonly #base: ReadonlyMap<K, V>
  /** Undefined for a removed key. */
  readonly #changes: ReadonlyMap<K, V | undefined>
  readonly size: number

  /** Keeps `base`, which must not be changed afterwards; `changes` and `size` are for with(). */
  constructor(
    base: ReadonlyMap<K, V> = new Map<K, V>(),
    changes: ReadonlyMap<K, V | undefined> = new Map<K, V | undefined>(),
    size = base.size,
  ) {
    this.#base = base
    this.#changes = changes
    this.size = size
  }

  /** Returns this map with `changes`; undefined removes a key. Returns the same map if nothing changes. */
  with(changes: ReadonlyMap<K, V | undefined>): ValueMap<K, V> {
    const all = new Map(this.#changes)
    let size = this.size
    let isOther = false
    for (const [key, value] of changes) {
      const wasThere = this.has(key)
      if (value === undefined && !wasThere) continue
      isOther = true
      size += Number(value !== undefined) - Number(wasThere)
      // The key that was set last is the last in order.
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
    // The key that was set last is the last in order.
    all.delete(key)
    if (value !== undefined) all.set(key, value)
  }
  return all
}

/**
 * The number of changes that a map keeps beside its base: each later change copies them, and merging them copies the
 * base.
 */
const MIN_CHANGES = 32
const CHANGES_PER_ROOT = 4
