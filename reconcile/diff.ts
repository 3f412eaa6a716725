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
