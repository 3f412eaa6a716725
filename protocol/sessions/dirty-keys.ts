/** Keys of records to look at, in the order in which they came; gateways first, so that no lane waits for a service. */

/** As memberKeyText() begins. */
const LANES = 'Endpoint/'

export class DirtyKeys {
  readonly #lanes = new Set<string>()
  readonly #others = new Set<string>()

  get size(): number {
    return this.#lanes.size + this.#others.size
  }

  add(key: string): void {
    this.#of(key).add(key)
  }

  delete(key: string): void {
    this.#of(key).delete(key)
  }

  clear(): void {
    this.#lanes.clear()
    this.#others.clear()
  }

  *[Symbol.iterator](): Generator<string, void, undefined> {
    yield* this.#lanes
    yield* this.#others
  }

  #of(key: string): Set<string> {
    return key.startsWith(LANES) ? this.#lanes : this.#others
  }
}
