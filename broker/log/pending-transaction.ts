/** A transaction that waits for its turn: it may be run several times before it is settled. */
import { errorOf } from '../../runtime/thrown.ts'
import type { Transaction } from './record-log.ts'
import { WriteLayer } from './write-layer.ts'

export interface PendingTransaction {
  /** Decides on what the group has, and adds to it what was written; nothing where it throws. */
  run(group: WriteLayer): void
  /** The group of the last run is durable. */
  settle(): void
  fail(error: unknown): void
}

/** Gives also the promise that settle() and fail() settle. */
export function pendingTransaction<T>(decide: (transaction: Transaction) => T): {
  readonly pending: PendingTransaction
  readonly outcome: Promise<T>
} {
  const { promise, resolve, reject } = Promise.withResolvers<T>()
  let last: { readonly ok: true; readonly value: T } | { readonly ok: false; readonly error: unknown } | undefined
  const pending: PendingTransaction = {
    run: (group) => {
      const layer = new WriteLayer(group)
      try {
        last = { ok: true, value: decide(layer) }
        group.absorb(layer)
      } catch (error) {
        last = { ok: false, error }
      }
    },
    settle: () => {
      if (last?.ok === true) resolve(last.value)
      else reject(errorOf(last?.error))
    },
    fail: (error) => reject(errorOf(error)),
  }
  return { pending, outcome: promise }
}

export function closedLog(): Error {
  return new Error('the log is closed')
}
