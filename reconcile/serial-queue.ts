/** Runs actions one at a time, in the order of the calls: for loops that change the same state. */

export class SerialQueue {
  #last: Promise<unknown> = Promise.resolve()

  /** Runs `action` when all previous ones have ended or failed. Resolves or rejects as it does. */
  run<T>(action: () => Promise<T>): Promise<T> {
    const done = this.#last.then(action)
    this.#last = done.catch(() => undefined)
    return done
  }

  /** Resolves when all actions queued so far have ended. */
  async settled(): Promise<void> {
    await this.#last
  }
}

/**
 * Queues writes: those of the same object run one after another, and the total number of concurrent writes is limited.
 */

export class WriteQueue {
  readonly #limit: number
  readonly #tails = new Map<string, Promise<unknown>>()
  readonly #turns: (() => void)[] = []
  #running = 0

  constructor(limit: number) {
    this.#limit = limit
  }

  /** Runs after all writes that were queued under the same id. Returns or throws what `write` does. */
  run<T>(id: string, write: () => Promise<T>): Promise<T> {
    const previous = this.#tails.get(id) ?? Promise.resolve()
    const own = previous.then(() => this.#limited(write))
    const tail = own.catch(() => undefined)
    this.#tails.set(id, tail)
    void tail.then(() => {
      if (this.#tails.get(id) === tail) this.#tails.delete(id)
    })
    return own
  }

  async settled(): Promise<void> {
    while (this.#tails.size > 0) await Promise.all(this.#tails.values())
  }

  async #limited<T>(write: () => Promise<T>): Promise<T> {
    if (this.#running >= this.#limit) await new Promise<void>((resolve) => this.#turns.push(resolve))
    else this.#running += 1
    try {
      return await write()
    } finally {
      // The slot goes to the next waiting write, or becomes free.
      const next = this.#turns.shift()
      if (next === undefined) this.#running -= 1
      else next()
    }
  }
}
