/**
 * What a member holds of an earlier epoch, for a broker that was restored and asks. Its own watch has to have seen the
 * new snapshot first: only then it is known what the broker has forgotten.
 */
import type { StoredRecord } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { MAX_HELD_RECORDS, type PublishReply, type PublishStream } from '../protocol.ts'
import type { Replica } from '../replica/replica.ts'
import { orAborted } from './session-timing.ts'

/** What the member holds beside that epoch. Rejects with the signal's reason. */
export type GivesHeld = (epoch: string, signal: AbortSignal) => Promise<readonly StoredRecord[]>

/** Before the digest, where the reply asks for it: what is published anew may need what is held. */
export async function answerHeld(
  reply: PublishReply,
  held: GivesHeld | undefined,
  stream: PublishStream,
  signal: AbortSignal,
): Promise<void> {
  if ((reply.t !== 'inSync' && reply.t !== 'sendDigest') || reply.asksHeld === undefined) return
  const records = (await held?.(reply.asksHeld, signal)) ?? []
  // One part at least: it carries `last`.
  for (let i = 0; i === 0 || i < records.length; i += MAX_HELD_RECORDS) {
    const last = i + MAX_HELD_RECORDS >= records.length
    await stream.send({ t: 'held', records: records.slice(i, i + MAX_HELD_RECORDS), last })
  }
}

/** The snapshot of a large clusterset takes seconds. After this the member says what it knows. */
const WAIT_MS = 15_000

export class HeldRecords {
  readonly #clock: Clock
  readonly #replica: Pick<Replica, 'displaced' | 'epoch'>
  readonly #waiters = new Set<() => void>()

  constructor(clock: Clock, replica: Pick<Replica, 'displaced' | 'epoch'>) {
    this.#clock = clock
    this.#replica = replica
  }

  /** To be called when the watch of the same replica has come to another state. */
  onWatch(): void {
    for (const wake of [...this.#waiters]) wake()
  }

  /** What the snapshot of this epoch lacked, or had otherwise. Rejects with the signal's reason. */
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
