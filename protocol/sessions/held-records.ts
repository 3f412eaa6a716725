/**
 * Supplies a restored broker with the records that this member received in an earlier epoch. The member's watch must
 * first receive the new snapshot, because only then is it known which records the broker has lost.
 */
import type { StoredRecord } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { MAX_HELD_RECORDS, type PublishReply, type PublishStream } from '../protocol.ts'
import type { Replica } from '../replica/replica.ts'
import { orAborted } from './session-timing.ts'

/** Returns the records from before `epoch`. Rejects with the signal's reason. */
export type GivesHeld = (epoch: string, signal: AbortSignal) => Promise<readonly StoredRecord[]>

/** Sends `held` before the digest if the reply asks for it, because the records to be published may depend on it. */
export async function answerHeld(
  reply: PublishReply,
  held: GivesHeld | undefined,
  stream: PublishStream,
  signal: AbortSignal,
): Promise<void> {
  if ((reply.t !== 'inSync' && reply.t !== 'sendDigest') || reply.asksHeld === undefined) return
  const records = (await held?.(reply.asksHeld, signal)) ?? []
  // At least one part is sent, because the last part carries `last`.
  for (let i = 0; i === 0 || i < records.length; i += MAX_HELD_RECORDS) {
    const last = i + MAX_HELD_RECORDS >= records.length
    await stream.send({ t: 'held', records: records.slice(i, i + MAX_HELD_RECORDS), last })
  }
}

/**
 * Longest wait for the snapshot, which takes seconds in a large clusterset. After that the member sends what it has.
 */
const WAIT_MS = 15_000

export class HeldRecords {
  readonly #clock: Clock
  readonly #replica: Pick<Replica, 'displaced' | 'epoch'>
  readonly #waiters = new Set<() => void>()

  constructor(clock: Clock, replica: Pick<Replica, 'displaced' | 'epoch'>) {
    this.#clock = clock
    this.#replica = replica
  }

  /** Called when the watch of the same replica has changed its state. */
  onWatch(): void {
    for (const wake of [...this.#waiters]) wake()
  }

  /** Returns the records that the snapshot of `epoch` lacked or changed. Rejects with the signal's reason. */
  async records(epoch: string, signal: AbortSignal): Promise<readonly StoredRecord[]> {
    let overdue = false
    const cancel = this.#clock.setTimer(WAIT_MS, () => {
      overdue = true
      this.onWatch()
    })
    const isDue = (): boolean => overdue || this.#replica.epoch === epoch
    try {
      while (!isDue()) await this.#woken(signal)
      return this.#replica.displaced
    } finally {
      cancel()
    }
  }

  async #woken(signal: AbortSignal): Promise<void> {
    let wake = (): void => undefined
    const woken = new Promise<void>((resolve) => (wake = resolve))
    this.#waiters.add(wake)
    try {
      await orAborted(woken, signal)
      signal.throwIfAborted()
    } finally {
      this.#waiters.delete(wake)
    }
  }
}
