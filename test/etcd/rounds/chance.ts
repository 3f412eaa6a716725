/** A random number generator that gives the same numbers for the same seed (mulberry32). */
export class Chance {
  #state: number

  constructor(seed: number) {
    this.#state = seed >>> 0
  }

  /** Returns a number from 0 up to, but not including, 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0
    let mixed = this.#state
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }

  /** Returns a whole number from 0 up to, but not including, `end`. */
  below(end: number): number {
    return Math.floor(this.next() * end)
  }

  pick<T>(all: readonly T[]): T {
    return all[this.below(all.length)] as T
  }

  shuffled<T>(all: readonly T[]): T[] {
    const left = [...all]
    return all.map(() => left.splice(this.below(left.length), 1)[0] as T)
  }

  /** Returns another generator, whose numbers do not depend on later calls of this one. */
  branch(): Chance {
    return new Chance(this.below(2 ** 32))
  }
}
