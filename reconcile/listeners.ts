/** Callbacks of those that want to know of something. */

export class Listeners<A extends readonly unknown[] = []> {
  readonly #all = new Set<{ readonly call: (...args: A) => void }>()

  /** The same function may be added twice. Gives the function that ends this one. */
  add(listener: (...args: A) => void): () => void {
    const entry = { call: listener }
    this.#all.add(entry)
    return () => void this.#all.delete(entry)
  }

  /** Calls each that was there when it began and has not been ended since, in the order in which they were added. */
  call(...args: A): void {
    for (const entry of [...this.#all]) if (this.#all.has(entry)) entry.call(...args)
  }

  /** Ends all of them. */
  clear(): void {
    this.#all.clear()
  }
}

/** Listeners that end with the loop that registered them: an agent may run again in the same process. */

export class Subscriptions {
  readonly #stops: (() => void)[] = []

  add(stop: () => void): void {
    this.#stops.push(stop)
  }

  end(): void {
    for (const stop of this.#stops.splice(0)) stop()
  }
}
