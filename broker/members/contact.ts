/**
 * Stores which members are in contact, for processes that read the database beside the broker. Contact has rows of its
 * own: it changes all the time, and each change of a member's row triggers a review of the whole clusterset.
 */
import type { ClusterId } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import {
  type ContactRow,
  type LogView,
  type MemberRow,
  type RecordLog,
  type Transaction,
  isLive,
} from '../store/store.ts'

/** Interval at which the broker stores which members are in contact. */
export const NOTE_CONTACT_MS = 60_000
/** How long a stored contact is valid: a broker that was killed cannot withdraw it. */
const CONTACT_COUNTS_MS = 2.5 * NOTE_CONTACT_MS

/** The contact of a live member. Earlier releases stored it in the member's row. */
export function contactOf(view: LogView, cluster: string, row: MemberRow): ContactRow {
  const { lastSeenMs, connectedSinceMs } = row
  const noted = view.get('contact', cluster)
  if (noted !== undefined) return { ...noted, lastSeenMs: Math.max(noted.lastSeenMs, lastSeenMs) }
  return connectedSinceMs === undefined ? { lastSeenMs } : { lastSeenMs, connectedSinceMs }
}

/** Stores whether the member has a stream open now. */
export function noteContact(tx: Transaction, cluster: string, connected: boolean, nowMs: number): void {
  const row = tx.get('member', cluster)
  if (!isLive(row)) return
  const before = contactOf(tx, cluster, row)
  if (connected) {
    const since = isInContact(before, nowMs) ? before.connectedSinceMs : undefined
    tx.put('contact', cluster, { lastSeenMs: nowMs, connectedSinceMs: since ?? nowMs })
  } else if (before.connectedSinceMs !== undefined) tx.put('contact', cluster, { lastSeenMs: before.lastSeenMs })
}

/** As noteContact(), when a stream begins or ends: the member was connected at `nowMs` in both cases. */
export function noteSeen(tx: Transaction, cluster: string, connected: boolean, nowMs: number): void {
  const row = tx.get('member', cluster)
  if (!isLive(row)) return
  const before = contactOf(tx, cluster, row)
  const since = connected ? ((isInContact(before, nowMs) ? before.connectedSinceMs : undefined) ?? nowMs) : undefined
  tx.put('contact', cluster, { lastSeenMs: nowMs, ...(since === undefined ? {} : { connectedSinceMs: since }) })
}

/** For a member that joins again or departs. */
export function forgetContact(tx: Transaction, cluster: string): void {
  tx.remove('contact', cluster)
}

export function isInContact({ connectedSinceMs, lastSeenMs }: ContactRow, nowMs: number): boolean {
  return connectedSinceMs !== undefined && nowMs - lastSeenMs <= CONTACT_COUNTS_MS
}

/** Number of members whose contact is stored in one transaction. */
const NOTED_AT_ONCE = 100
const NOTE_SOON_MS = 1000

interface ContactNotesDeps {
  readonly log: RecordLog
  readonly clock: Clock
  readonly logger: Logger
}

interface ContactNotesInit {
  /** Whether the member has a stream open at this broker. */
  readonly isHere: (cluster: ClusterId) => boolean
  /** Whether the member has a stream open at another broker of the same store, which stores that itself. */
  readonly isElsewhere: (cluster: ClusterId) => boolean
}

/**
 * Stores which members have a stream open. Changes are collected for a second, since all members connect at once after
 * a restart, and written in several transactions, so that other transactions can run in between.
 */
export class ContactNotes {
  readonly #deps: ContactNotesDeps
  readonly #init: ContactNotesInit
  /** Members whose streams have begun or ended, with the wall-clock time. */
  readonly #seen = new Map<ClusterId, number>()
  #cancel: (() => void) | undefined

  constructor(deps: ContactNotesDeps, init: ContactNotesInit) {
    this.#deps = deps
    this.#init = init
  }

  /** A stream of this member has begun or ended. */
  seen(cluster: ClusterId): void {
    const { clock, logger } = this.#deps
    this.#seen.set(cluster, clock.now())
    const failed = (error: unknown): void =>
      logger.debug('cannot store the last contact of a member', { why: String(error) })
    this.#cancel ??= clock.setTimer(NOTE_SOON_MS, () => void this.#noteSeen().catch(failed))
  }

  /** Stores the contact of all members, for processes that read the store beside the broker. Throws StateError. */
  async noteAll(members: readonly string[]): Promise<void> {
    const { clock } = this.#deps
    const { isHere, isElsewhere } = this.#init
    await this.#noteSeen()
    await this.#inParts(members, (tx, member) => {
      const cluster = member as ClusterId
      if (isHere(cluster) || !isElsewhere(cluster)) noteContact(tx, cluster, isHere(cluster), clock.now())
    })
  }

  close(): void {
    this.#cancel?.()
  }

  async #noteSeen(): Promise<void> {
    this.#cancel?.()
    this.#cancel = undefined
    const seen = [...this.#seen]
    this.#seen.clear()
    const { isHere, isElsewhere } = this.#init
    const isConnected = (cluster: ClusterId): boolean => isHere(cluster) || isElsewhere(cluster)
    await this.#inParts(seen, (tx, [cluster, atMs]) => noteSeen(tx, cluster, isConnected(cluster), atMs))
  }

  async #inParts<T>(all: readonly T[], write: (tx: Transaction, one: T) => void): Promise<void> {
    for (let i = 0; i < all.length; i += NOTED_AT_ONCE) {
      await this.#deps.log.transact((tx) => {
        for (const one of all.slice(i, i + NOTED_AT_ONCE)) write(tx, one)
      })
    }
  }
}

interface SilentMember {
  readonly cluster: ClusterId
  /** How long it has been silent, in whole milliseconds. */
  readonly forMs: number
}

/**
 * When each member was last connected, by the monotonic clock: time during which this broker did not run is not
 * counted.
 */
export class HeardMembers {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #startedAt: number
  readonly #heard = new Map<string, number>()

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock
    this.#startedAt = clock.monotonic()
  }

  note(cluster: string): void {
    this.#heard.set(cluster, this.#clock.monotonic())
  }

  /**
   * The members of `live` that are not connected, and for how long. Notes the connected ones as of now, and forgets all
   * members that are not in `live`.
   */
  silent(live: readonly ClusterId[], isConnected: (cluster: ClusterId) => boolean): readonly SilentMember[] {
    const now = this.#clock.monotonic()
    const members = new Set<string>(live)
    for (const cluster of this.#heard.keys()) if (!members.has(cluster)) this.#heard.delete(cluster)
    for (const cluster of live) if (isConnected(cluster)) this.#heard.set(cluster, now)
    return live
      .filter((cluster) => !isConnected(cluster))
      .map((cluster) => ({ cluster, forMs: Math.floor(now - (this.#heard.get(cluster) ?? this.#startedAt)) }))
  }
}

/** The other brokers of the same store. */
export interface Replicas {
  /** Whether a member has a stream open at one of the other brokers. */
  isConnectedElsewhere(cluster: string): boolean
  /** Reports the members that have a stream open at this broker. */
  report(members: readonly string[]): void
  /** Whether all brokers of the store give records only to members to which they are offered. */
  keepToOffers(): boolean
  /** Brokers of an earlier release, which give members records of all others, whatever the topology is. */
  withoutTopology(): readonly string[]
}
