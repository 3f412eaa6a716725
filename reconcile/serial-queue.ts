/** Runs actions one at a time, in the order of the calls: for loops that change the same part of the world. */

export class SerialQueue {
  #last: Promise<unknown> = Promise.resolve()

  /** Runs `action` when all before it have ended, however they did. Resolves or rejects as it does. */
  run<T>(action: () => Promise<T>): Promise<T> {
    const done = this.#last.then(action)
    this.#last = done.catch(() => undefined)
    return done
  }

  /** Resolves when all that were queued by now have ended. */
  async settled(): Promise<void> {
    await this.#last
  }
}

/** Writes: one after another for the same object, a bounded number at once over all. */

export class WriteQueue {
  readonly #limit: number
  readonly #tails = new Map<string, Promise<unknown>>()
  readonly #turns: (() => void)[] = []
  #running = 0

  constructor(limit: number) {
    this.#limit = limit
  }

  /** Runs after everything that was queued under the same id. Gives or throws what `write` does. */
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
      // The place goes to the next in line, or becomes free.
      const next = this.#turns.shift()
      if (next === undefined) this.#running -= 1
      else next()
    }
  }
}
