/** What is a node's to do, for as long as that does not change. */
import { Listeners } from '../../reconcile/listeners.ts'

export interface Turn {
  readonly role: 'serve' | 'stand by' | 'wait'
  /** Aborts when it is something else. */
  readonly signal: AbortSignal
  readonly close: () => void
}

export class TurnChanges {
  readonly #role: () => Turn['role']
  readonly #listeners = new Listeners()

  constructor(role: () => Turn['role']) {
    this.#role = role
  }

  /** Calls back at each changed(). Gives the function that ends it. */
  onChange(listener: () => void): () => void {
    return this.#listeners.add(listener)
  }

  changed(): void {
    this.#listeners.call()
  }

  whileTurn(): Turn {
    const role = this.#role()
    const over = new AbortController()
    const close = this.onChange(() => {
      if (this.#role() !== role) over.abort()
    })
    return { role, signal: over.signal, close }
  }
}
