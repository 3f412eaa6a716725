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
