/** What a member says that it holds, on its Publish stream. */
import type { Peer, PublishMessage } from '../../protocol/broker-api.ts'
import type { Clock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import type { Transaction } from '../log/record-log.ts'
import type { WriteRules } from '../records/record-writes.ts'
import type { WritePace } from '../records/write-pace.ts'
import { asksHeld, noteAnswered } from './settling.ts'
import { takeHeld } from './take-held.ts'

export interface ReceiveHeldInit {
  readonly peer: Peer
  readonly rules: WriteRules
  readonly clock: Clock
  readonly logger: Logger
  /** One for all streams of the member: what it says here is work as its records are. */
  readonly pace: WritePace
  /** As the member, while it is one. */
  readonly transact: <T>(decide: (tx: Transaction) => T) => Promise<T>
  readonly signal: AbortSignal
}

/**
 * What was not asked for is skipped: it was asked by a stream before this one, and has been said since. Throws what
 * `transact` throws, and the signal's reason.
 */
export async function receiveHeld(
  { records, last }: Extract<PublishMessage, { t: 'held' }>,
  bytes: number,
  { peer, rules, clock, logger, pace, transact, signal }: ReceiveHeldInit,
): Promise<void> {
  const { cluster } = peer
  let tookMs = 0
  const taken = await transact((tx) => {
    const nowMs = clock.now()
    if (!asksHeld(tx, cluster, nowMs)) return undefined
    if (last) noteAnswered(tx, cluster)
    const begunMs = clock.monotonic()
    const result = takeHeld(tx, records, { cluster, rules, nowMs })
    tookMs = clock.monotonic() - begunMs
    return result
  })
  const pauseMs = pace.used(tookMs, bytes)
  if (pauseMs > 0) await clock.sleep(pauseMs, signal)
  if (taken === undefined || records.length === 0) return
  const { services, members, left } = taken
  logger.info('a member holds what the backup lacks', { cluster, services, members: members.join(), left })
}
