/** The role of a node for a lane that it may serve. */
import { Listeners } from '../../reconcile/reconcile.ts'

/** `unknown`: the API has not yet said which node holds the lane. */
export type LeaseState =
  | { readonly is: 'unknown'; readonly why: string }
  | { readonly is: 'serving' }
  | { readonly is: 'handing over'; readonly holder: string }
  | { readonly is: 'standing by'; readonly holder: string }

/** The role that follows from the state. */
export function roleIn({ is }: LeaseState): 'serve' | 'stand by' | 'wait' {
  if (is === 'unknown') return 'wait'
  return is === 'standing by' ? 'stand by' : 'serve'
}

/** Text for the log. */
export function leaseStateText(state: LeaseState): string {
  switch (state.is) {
    case 'unknown':
      return 'its holder is unknown'
    case 'serving':
      return 'this node serves it'
    case 'handing over':
      return `handing over to ${state.holder}`
    case 'standing by':
      return `on standby, ${state.holder === '' ? 'no node' : state.holder} holds it`
  }
}

export interface Turn {
  readonly role: 'serve' | 'stand by' | 'wait'
  /** Aborts when the role changes. */
  readonly signal: AbortSignal
  readonly close: () => void
}

/** Gives the role of a node with a signal that aborts when it changes. */
export class TurnChanges {
  readonly #role: () => Turn['role']
  readonly #listeners = new Listeners()

  constructor(role: () => Turn['role']) {
    this.#role = role
  }

  /** Calls back at each changed(). Returns the function that ends this. */
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
