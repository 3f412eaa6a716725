/**
 * The MemberStatus record of each member: what it reports about itself, under its own id. The broker writes it, so it
 * is not part of the set that the member declares, and a member cannot name another one.
 */
import { isDeepStrictEqual } from 'node:util'
import { type ClusterId, type MemberStatus, recordKeyText } from '../../model/model.ts'
import type { Peer } from '../../protocol/protocol.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { LogView, Transaction } from '../store/store.ts'

/** Writes the record if it differs. */
export function writeStatusRecord(tx: Transaction, cluster: ClusterId, status: MemberStatus, nowMs: number): void {
  const key = statusRecordKey(cluster)
  const body = { kind: 'MemberStatus' as const, ...status }
  const old = tx.get('record', key)
  if (isDeepStrictEqual(old?.body, body)) return
  tx.put('record', key, { createdAtMs: old?.createdAtMs ?? nowMs, body })
}

export function removeStatusRecord(tx: Transaction, cluster: ClusterId): void {
  if (hasStatusRecord(tx, cluster)) tx.remove('record', statusRecordKey(cluster))
}

export function hasStatusRecord(view: LogView, cluster: ClusterId): boolean {
  return view.get('record', statusRecordKey(cluster)) !== undefined
}

/** The last report of the member. Undefined if it has not reported. */
export function statusOf(view: LogView, cluster: string): MemberStatus | undefined {
  const body = view.get('record', statusRecordKey(cluster))?.body
  return body?.kind === 'MemberStatus' ? body : undefined
}

function statusRecordKey(cluster: string): string {
  return recordKeyText({ cluster: cluster as ClusterId, kind: 'MemberStatus', namespace: '', name: cluster })
}

const STATUS_EVERY_MS = 5000

interface Held {
  readonly peer: Peer
  readonly status: MemberStatus
}

interface Interval {
  held: Held | undefined
  readonly cancel: () => void
}

/**
 * Rate limiter for statuses, since each is sent to every other member: the last status of each five seconds is written.
 * A waiting status is not durable, but a member sends it again on each stream.
 */
export class StatusRateLimiter {
  readonly #clock: Clock
  readonly #write: (peer: Peer, status: MemberStatus) => void
  /** Members whose status was written in the last five seconds. */
  readonly #members = new Map<ClusterId, Interval>()

  /** `write` is called for held statuses. */
  constructor(clock: Clock, write: (peer: Peer, status: MemberStatus) => void) {
    this.#clock = clock
    this.#write = write
  }

  /** Whether the member's status may be written at once. */
  isDue(cluster: ClusterId): boolean {
    return !this.#members.has(cluster)
  }

  /** The caller runs it after a write. */
  wrote(cluster: ClusterId): void {
    this.#members.get(cluster)?.cancel()
    const cancel = this.#clock.setTimer(STATUS_EVERY_MS, () => this.#over(cluster))
    this.#members.set(cluster, { held: undefined, cancel })
  }

  /** Holds the status until its time, in place of one held before. */
  hold(peer: Peer, status: MemberStatus): void {
    const interval = this.#members.get(peer.cluster)
    if (interval === undefined) this.#write(peer, status)
    else interval.held = { peer, status }
  }

  /** Drops the held status of a member that no longer reports. */
  withdraw(cluster: ClusterId): void {
    const interval = this.#members.get(cluster)
    if (interval !== undefined) interval.held = undefined
  }

  close(): void {
    for (const { cancel } of this.#members.values()) cancel()
    this.#members.clear()
  }

  #over(cluster: ClusterId): void {
    const held = this.#members.get(cluster)?.held
    this.#members.delete(cluster)
    if (held === undefined) return
    this.wrote(cluster)
    this.#write(held.peer, held.status)
  }
}
