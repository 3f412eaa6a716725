/**
 * The MemberStatus record of each member: what it reports about itself, under its own id. The broker writes it, so that
 * it is no part of the set that the member declares, and nobody can name another member.
 */
import { isDeepStrictEqual } from 'node:util'
import { type ClusterId, type MemberStatus, recordKeyText } from '../../model/model.ts'
import type { Peer } from '../../protocol/protocol.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { LogView, Transaction } from '../store/store.ts'

/** Writes it where it differs. */
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

/** What the member reported last; undefined where it reports nothing. */
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

interface Pace {
  held: Held | undefined
  readonly cancel: () => void
}

/**
 * What a member reports about itself goes to every other member, so each status is written at most once in five
 * seconds: the last one of that time. A status that waits is no durable promise; a member sends it anew on each stream.
 */
export class StatusPace {
  readonly #clock: Clock
  readonly #write: (peer: Peer, status: MemberStatus) => void
  /** Of those that wrote one in the last five seconds. */
  readonly #members = new Map<ClusterId, Pace>()

  /** `write` is called for what was held. */
  constructor(clock: Clock, write: (peer: Peer, status: MemberStatus) => void) {
    this.#clock = clock
    this.#write = write
  }

  /** Whether the member's status may be written at once. */
  isDue(cluster: ClusterId): boolean {
    return !this.#members.has(cluster)
  }

  /** To be called after a write. */
  wrote(cluster: ClusterId): void {
    this.#members.get(cluster)?.cancel()
    const cancel = this.#clock.setTimer(STATUS_EVERY_MS, () => this.#over(cluster))
    this.#members.set(cluster, { held: undefined, cancel })
  }

  /** Keeps it until its time; what was kept before is forgotten. */
  hold(peer: Peer, status: MemberStatus): void {
    const pace = this.#members.get(peer.cluster)
    if (pace === undefined) this.#write(peer, status)
    else pace.held = { peer, status }
  }

  /** Forgets what waits of the member: it reports nothing any more. */
  withdraw(cluster: ClusterId): void {
    const pace = this.#members.get(cluster)
    if (pace !== undefined) pace.held = undefined
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
