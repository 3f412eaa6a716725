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
