/**
 * Whether the far end of one link answers, by its probes.
 *
 *   connecting ──answer──► up ◄──answers in a row── down
 *                          │ ▲                       ▲
 *                     miss └─┘ answer                │
 *                          └────misses in a row──────┘
 *
 * connecting: nothing has ever been received; traffic is not sent this way.
 * up:         the last answers came in time; counts the misses since.
 * down:       it answered once and does not now; counts the answers since, so that one lucky packet does not bring
 *             traffic back to a path that loses most.
 *
 * A miss is one probe interval of this process without an answer. Intervals are counted, not time: when this process
 * itself was held up, the answers that have piled up are read before the next interval ends. The last miss waits while
 * the far kernel's answer may still be on its way: up to then, nobody knows whether it is the lane that is silent, or a
 * process.
 */
import type { ConnectionState } from '../../model/objects.ts'
import type { Clock } from '../../reconcile/clock.ts'

/** `sinceMs` is of the monotonic clock. */
export type HealthState =
  | { readonly is: 'connecting'; readonly sinceMs: number }
  | { readonly is: 'up'; readonly sinceMs: number; readonly misses: number }
  | { readonly is: 'down'; readonly sinceMs: number; readonly answers: number }

export interface PeerHealthDeps {
  readonly clock: Clock
  /** Called at once, from within the event that caused it. */
  readonly onTransition: (from: ConnectionState, to: ConnectionState) => void
}

export interface PeerHealthInit {
  readonly missesUntilDown: number
  readonly answersUntilUp: number
  /** Start as up, without a transition: this process takes over a connection that an earlier one knew to be up. */
  readonly startsUp?: boolean
}

export class PeerHealth {
  readonly #deps: PeerHealthDeps
  readonly #init: PeerHealthInit
  #state: HealthState

  constructor(deps: PeerHealthDeps, init: PeerHealthInit) {
    this.#deps = deps
    this.#init = init
    const sinceMs = deps.clock.monotonic()
    this.#state = init.startsUp === true ? { is: 'up', sinceMs, misses: 0 } : { is: 'connecting', sinceMs }
  }

  get state(): HealthState {
    return this.#state
  }

  onAnswer(): void {
    this.#setState(this.#afterAnswer(this.#state))
  }

  /** `mayYetAnswer`: it was asked in another way too, and cannot have answered yet. */
  onMiss(mayYetAnswer = false): void {
    this.#setState(this.#afterMiss(this.#state, mayYetAnswer))
  }

  #afterAnswer(state: HealthState): HealthState {
    const up: HealthState = { is: 'up', sinceMs: this.#deps.clock.monotonic(), misses: 0 }
    switch (state.is) {
      case 'connecting':
        return up
      case 'up':
        return { ...state, misses: 0 }
      case 'down': {
        const answers = state.answers + 1
        return answers < this.#init.answersUntilUp ? { ...state, answers } : up
      }
    }
  }

  #afterMiss(state: HealthState, mayYetAnswer: boolean): HealthState {
    switch (state.is) {
      case 'connecting':
        return state
      case 'up': {
        const misses = state.misses + 1
        if (misses < this.#init.missesUntilDown || mayYetAnswer) return { ...state, misses }
        return { is: 'down', sinceMs: this.#deps.clock.monotonic(), answers: 0 }
      }
      case 'down':
        return { ...state, answers: 0 }
    }
  }

  #setState(next: HealthState): void {
    const before = this.#state.is
    this.#state = next
    if (before !== next.is) this.#deps.onTransition(before, next.is)
  }
}
