/** A list of callbacks. */

export class Listeners<A extends readonly unknown[] = []> {
  readonly #all = new Set<{ readonly call: (...args: A) => void }>()

  /** Adds a callback; the same function may be added twice. Returns the function that removes this one. */
  add(listener: (...args: A) => void): () => void {
    const entry = { call: listener }
    this.#all.add(entry)
    return () => void this.#all.delete(entry)
  }

  /** Calls each callback that existed at the start and has not been removed since, in the order of addition. */
  call(...args: A): void {
    for (const entry of [...this.#all]) if (this.#all.has(entry)) entry.call(...args)
  }

  clear(): void {
    this.#all.clear()
  }
}

/** Subscriptions that end with the loop that registered them: an agent may run again in the same process. */

export class Subscriptions {
  readonly #stops: (() => void)[] = []

  add(stop: () => void): void {
    this.#stops.push(stop)
  }

  end(): void {
    for (const stop of this.#stops.splice(0)) stop()
  }
}
