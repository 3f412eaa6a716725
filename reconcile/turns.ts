/** One at a time, in the order of asking: for loops that change the same part of the world. */
export class Turns {
  #last: Promise<unknown> = Promise.resolve()

  /** Resolves or rejects as `action` does, which begins when all before it have ended, however they did. */
  take<T>(action: () => Promise<T>): Promise<T> {
    const turn = this.#last.then(action)
    this.#last = turn.catch(() => undefined)
    return turn
  }
}
