/**
 * Places that several clients share: each may have as many as are still free, so that one alone has half of them at
 * most, and a newcomer finds one as long as any is left. Remembers only clients that have a place.
 */
export class Places {
  readonly #most: number
  readonly #taken = new Map<string, number>()
  #all = 0

  constructor(most: number) {
    this.#most = most
  }

  /** Places that are taken. */
  get size(): number {
    return this.#all
  }

  /** `taken`: all places are; `own`: the client has its share. */
  refuses(client: string): 'taken' | 'own' | undefined {
    const free = this.#most - this.#all
    if (free <= 0) return 'taken'
    return (this.#taken.get(client) ?? 0) < free ? undefined : 'own'
  }

  take(client: string): void {
    this.#all += 1
    this.#taken.set(client, (this.#taken.get(client) ?? 0) + 1)
  }

  giveBack(client: string): void {
    const left = (this.#taken.get(client) ?? 0) - 1
    this.#all -= 1
    if (left > 0) this.#taken.set(client, left)
    else this.#taken.delete(client)
  }
}
