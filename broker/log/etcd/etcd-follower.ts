/**
 * Keeps a replica's state up with the store: what others write is pushed by a watch. Where the watch ends it begins anew,
 * from where it ended or from a list.
 *
 *   watching ──fails──► waiting (back-off) ──► watching from there
 *      └──that is compacted──► listing ──► watching from the list
 *   any ──the store is gone, or signal──► ended
 */
import { Backoff } from '../../../reconcile/backoff.ts'
import type { Clock } from '../../../reconcile/clock.ts'
import type { Logger } from '../../../runtime/logging/logger.ts'
import { errorOf, messageOf } from '../../../runtime/thrown.ts'
import { StateError } from '../record-log.ts'
import { type EtcdReader, isCompacted } from './etcd-reader.ts'
import type { ReplicaState } from './replica-state.ts'
import type { WriteTurns } from './write-turns.ts'

const BACKOFF = { minMs: 50, maxMs: 3000 }

export interface FollowerDeps {
  readonly reader: EtcdReader
  readonly state: ReplicaState
  readonly turns: WriteTurns
  readonly clock: Clock
  readonly logger: Logger
}

export class EtcdFollower {
  readonly #deps: FollowerDeps
  readonly #backoff: Backoff
  #needsList = false
  #isFailing = false

  constructor(deps: FollowerDeps) {
    this.#deps = deps
    this.#backoff = new Backoff(deps.clock, BACKOFF)
  }

  /** Resolves after the signal. Rejects with a StateError when the store is gone or damaged: nothing can follow it. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        await this.#follow(signal)
      } catch (error) {
        if (isAborted(signal)) return
        if (error instanceof StateError) throw error
        // A list that failed is still due: without it what was missed is missed for good.
        this.#needsList ||= isCompacted(error)
        this.#reportFailing(error)
        if (!(await this.#pause(signal))) return
      }
    }
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const { reader, state, turns } = this.#deps
    turns.forget()
    for (const want of await reader.wants(signal)) turns.see(want)
    if (this.#needsList) state.takeListing(await reader.list(state.seen, signal))
    this.#needsList = false
    for await (const commit of reader.follow(state.asOf, signal, turns)) {
      state.take(commit)
      this.#reportFollowing()
    }
  }

  /** False: the signal has ended it. */
  async #pause(signal: AbortSignal): Promise<boolean> {
    // A list is due at once, the first time.
    const ms = this.#backoff.next()
    try {
      await this.#deps.clock.sleep(ms, signal)
      return true
    } catch (error) {
      if (isAborted(signal)) return false
      throw errorOf(error)
    }
  }

  #reportFailing(error: unknown): void {
    const why = messageOf(error)
    if (isCompacted(error)) this.#deps.logger.info('the store is listed anew', { why })
    else if (!this.#isFailing)
      this.#deps.logger.warn('the store is not followed, trying again', { reason: 'StateUnreachable', why })
    this.#isFailing ||= !isCompacted(error)
  }

  #reportFollowing(): void {
    this.#backoff.reset()
    if (this.#isFailing) this.#deps.logger.info('the store is followed again')
    this.#isFailing = false
  }
}

/** Also where it was aborted during a call. */
function isAborted(signal: AbortSignal): boolean {
  return signal.aborted
}
