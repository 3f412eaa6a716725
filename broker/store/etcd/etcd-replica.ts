/**
 * What one replica knows of the log: the rows as of the last head that it has seen. The state moves from commit to
 * commit, and each commit counts once, whether this replica wrote it or the watch delivered it.
 */
import { Backoff, type Clock, orAborted } from '../../../reconcile/reconcile.ts'
import { errorOf, messageOf } from '../../../runtime/runtime.ts'
import type { Logger } from '../../../runtime/logging/logging.ts'
import type { LogState } from '../log-state.ts'
import { type Change, type ChangesFrom, StateError } from '../record-log.ts'
import { EtcdError } from './client/etcd-connection.ts'
import { type Commit, type EtcdReader, type Listing, type Seen, isCompacted } from './etcd-reader.ts'
import { type Head, replicaOf } from './etcd-rows.ts'
import type { EtcdStore } from './etcd-store.ts'
import type { WriteTurns } from './write-order.ts'

export interface ReplicaStateInit {
  readonly store: EtcdStore
  /** The first part of the ids of this replica's writes. */
  readonly replica: string
  readonly onChanges: (changes: readonly Change[], from: ChangesFrom) => void
  /** Called with each new head. */
  readonly onHead: (head: Head) => void
}

export class ReplicaState {
  readonly rows: LogState
  readonly #init: ReplicaStateInit
  readonly #leftovers = new Map<string, Change>()
  readonly #waiters = new Set<() => void>()
  #seen: Seen
  #asOf: number

  /** `rows` must be empty, and gets the rows of the listing, which must be whole. */
  constructor(init: ReplicaStateInit, rows: LogState, listing: Listing) {
    this.#init = init
    this.rows = rows
    this.#seen = listing.seen
    this.#asOf = listing.asOf
    rows.apply(listing.changes)
    rows.revision = Math.max(rows.revision, listing.seen.head.revision)
    rows.forgetRemoved(listing.seen.head.compacted)
    this.#addLeftovers(listing.leftovers)
  }

  get seen(): Seen {
    return this.#seen
  }

  /** Revision of etcd up to which everything is known. The watch begins after it. */
  get asOf(): number {
    return this.#asOf
  }

  /** Applies a commit, unless it is known. Throws EtcdError (compacted) if an earlier commit is missing. */
  take({ seen, changes }: Commit): void {
    this.#asOf = Math.max(this.#asOf, seen.revision)
    if (seen.revision <= this.#seen.revision) return
    const { rows } = this
    const before = rows.revision
    this.#checkForward(seen)
    const fresh = changes.filter(({ revision }) => revision > before)
    if (fresh.length !== seen.head.revision - before)
      throw new EtcdError('compacted', `revisions ${before + 1} to ${seen.head.revision}: ${fresh.length} of them came`)
    rows.apply(fresh)
    this.#see(seen)
    if (fresh.length > 0) this.#init.onChanges(fresh, 'commit')
  }

  /** Applies a list, which may be older than the current state. */
  takeListing({ seen, changes, whole, asOf, leftovers }: Listing): void {
    this.#asOf = Math.max(this.#asOf, asOf)
    if (seen.revision <= this.#seen.revision) return
    const { rows } = this
    this.#checkForward(seen)
    // Removals may have been missed, and only a full list shows which rows are gone.
    const missed = whole && seen.head.compacted > rows.revision
    if (missed) rows.clear()
    const before = missed ? 0 : rows.revision
    const fresh = changes.filter(({ revision }) => revision > before)
    rows.apply(fresh)
    rows.revision = Math.max(rows.revision, seen.head.revision)
    this.#addLeftovers(leftovers)
    this.#see(seen)
    if (fresh.length > 0) this.#init.onChanges(fresh, 'listing')
  }

  /** Resolves once a head with this revision of etcd, or a later one, is seen. Rejects with the signal's reason. */
  async reach(revision: number, signal: AbortSignal): Promise<void> {
    while (this.#seen.revision < revision) {
      const { promise, resolve } = Promise.withResolvers<undefined>()
      const wake = (): void => resolve(undefined)
      this.#waiters.add(wake)
      try {
        await orAborted(promise, signal)
      } finally {
        this.#waiters.delete(wake)
      }
    }
  }

  /** Rows of forgotten removals that may be deleted now, at most `limit`. */
  leftovers(limit: number): Change[] {
    const found: Change[] = []
    for (const [id, row] of this.#leftovers) {
      if (found.length >= limit) break
      // A row that was written again stays.
      if (this.rows.isForgotten(row.scope, row.key)) found.push(row)
      else this.#leftovers.delete(id)
    }
    return found
  }

  swept(rows: readonly Change[]): void {
    for (const { scope, key } of rows) this.#leftovers.delete(`${scope} ${key}`)
  }

  #see(seen: Seen): void {
    const { compacted, writes } = seen.head
    if (compacted > this.rows.compactedRevision) {
      const [latest = ''] = writes
      // The replica that compacted deletes the rows. If it is killed first, the next replica that starts deletes them.
      if (replicaOf(latest) === this.#init.replica) this.#addLeftovers(this.rows.removedUpTo(compacted))
      this.rows.forgetRemoved(compacted)
    }
    this.rows.revision = Math.max(this.rows.revision, seen.head.revision)
    this.#seen = seen
    this.#init.onHead(seen.head)
    for (const wake of [...this.#waiters]) wake()
  }

  #addLeftovers(rows: readonly Change[]): void {
    for (const row of rows) this.#leftovers.set(`${row.scope} ${row.key}`, row)
  }

  #checkForward({ head }: Seen): void {
    const { revision } = this.rows
    if (head.revision >= revision) return
    throw this.#init.store.gone(`it went back from revision ${revision} to ${head.revision}, as by a restore of etcd`)
  }
}

const BACKOFF = { minMs: 50, maxMs: 3000 }

interface FollowerDeps {
  readonly reader: EtcdReader
  readonly state: ReplicaState
  readonly turns: WriteTurns
  readonly clock: Clock
  readonly logger: Logger
}

/**
 * Keeps a replica's state current: a watch delivers what other replicas write. If the watch ends, it starts again where
 * it ended, or from a list.
 *
 *   watching ──fails──► waiting (back-off) ──► watching from there
 *      └──that is compacted──► listing ──► watching from the list
 *   any ──the store is gone, or signal──► ended
 */
export class EtcdFollower {
  readonly #deps: FollowerDeps
  readonly #backoff: Backoff
  #needsList = false
  #isFailing = false

  constructor(deps: FollowerDeps) {
    this.#deps = deps
    this.#backoff = new Backoff(deps.clock, BACKOFF)
  }

  /**
   * Resolves after the signal. Rejects with a StateError if the store is gone or damaged, since it cannot be watched
   * any more.
   */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        await this.#follow(signal)
      } catch (error) {
        if (isAborted(signal)) return
        if (error instanceof StateError) throw error
        // A list that failed stays due: the missed commits come from nowhere else.
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

  /** Resolves with false if the signal ended the pause. */
  async #pause(signal: AbortSignal): Promise<boolean> {
    // The first back-off is the shortest, so that a list follows soon.
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
    if (isCompacted(error)) this.#deps.logger.info('reading the whole store again', { why })
    else if (!this.#isFailing)
      this.#deps.logger.warn('cannot watch the store; retrying', { reason: 'StateUnreachable', why })
    this.#isFailing ||= !isCompacted(error)
  }

  #reportFollowing(): void {
    this.#backoff.reset()
    if (this.#isFailing) this.#deps.logger.info('watching the store again')
    this.#isFailing = false
  }
}

/** Reads the signal again: the compiler assumes that it is unchanged since the last check. */
function isAborted(signal: AbortSignal): boolean {
  return signal.aborted
}
