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
