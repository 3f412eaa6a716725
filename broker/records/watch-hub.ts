/**
 * Gives every watcher what it has not seen. A watcher is a cursor into the log, nothing more: who is slow skips to
 * the latest state, who falls behind compaction starts anew. Each event is encoded once for all.
 */
import { isDeepStrictEqual } from 'node:util'
import type { ClusterId } from '../../model/ids.ts'
import type { MemberQuota } from '../../model/quota/member-quota.ts'
import type { Peer, RecordEvent, SilentMember, WatchMessage, WatchRequest } from '../../protocol/broker-api.ts'
import { encodeRecordEvent } from '../../protocol/codec/records-codec.ts'
import type { Clock } from '../../reconcile/clock.ts'
import { orAborted } from '../../reconcile/until-aborted.ts'
import type { Change, RecordLog } from '../log/record-log.ts'
import { completeness } from '../members/membership.ts'
import { isOfMembership, requireMember } from '../members/membership-check.ts'
import type { BrokerMetrics } from '../metrics.ts'
import { type OpenWatch, WatchPlaces } from '../quota/watch-places.ts'
import { parseRecordKey, storedRecord } from '../state/state.ts'

/** Bounds of one batch: what a watcher is handed at once. */
const MAX_BATCH_EVENTS = 256
const MAX_BATCH_BYTES = 1024 * 1024

export interface WatchHubDeps {
  readonly log: RecordLog
  readonly clock: Clock
  readonly metrics: BrokerMetrics
}

type ContactMessage = Extract<WatchMessage, { t: 'contact' }>
type AuthoritiesMessage = Extract<WatchMessage, { t: 'authorities' }>

interface Cursor {
  /** Everything up to here has been handed over. */
  revision: number
  /** Removals from here on are needed: a snapshot begun at this revision cannot hold what was removed before. */
  floor: number
  reported: ReturnType<typeof completeness> | undefined
  contact: ContactMessage | undefined
  authorities: AuthoritiesMessage | undefined
}

export class WatchHub {
  readonly #deps: WatchHubDeps
  readonly #addresses: readonly string[]
  readonly #encoded = new WeakMap<Change<'record'>, Uint8Array>()
  readonly #sleepers = new Set<() => void>()
  readonly #places: WatchPlaces
  /** The same for all watchers until a membership changes. */
  #lists: ReturnType<typeof completeness> | undefined
  /** The latest; each watcher gets it once, and only the latest. */
  #contact: ContactMessage | undefined
  /** As it is now; each watcher gets it, also one that comes later. */
  #authorities: AuthoritiesMessage | undefined

  /**
   * `quota`: of a member that has no other. `addresses`: host:port, where members find the broker now; they may have
   * joined when it had one address.
   */
  constructor(
    deps: WatchHubDeps,
    { quota, addresses }: { readonly quota: MemberQuota; readonly addresses: readonly string[] },
  ) {
    this.#deps = deps
    this.#addresses = addresses
    this.#places = new WatchPlaces(deps, quota)
  }

  /** To be called after every commit. */
  wake(membersChanged: boolean): void {
    if (membersChanged) this.#lists = undefined
    for (const sleeper of [...this.#sleepers]) sleeper()
  }

  /** Sends every watcher which members have no connection to the broker. */
  reportContact(silent: readonly SilentMember[]): void {
    this.#contact = { t: 'contact', silent }
    for (const sleeper of [...this.#sleepers]) sleeper()
  }

  /** Sends every watcher which authorities count; undefined: there was never more than one. */
  reportAuthorities(message: AuthoritiesMessage | undefined): void {
    if (isDeepStrictEqual(message, this.#authorities)) return
    this.#authorities = message
    for (const sleeper of [...this.#sleepers]) sleeper()
  }

  /** Of the present membership: a peer that does not read holds its stream open beyond an eviction. */
  openWatches(cluster: ClusterId): number {
    return this.#places.count(cluster)
  }

  /**
   * To be called with the members whose rows have changed: ends the watches of who is none any more, also of one that
   * takes nothing and so never comes for its next message.
   */
  endDeparted(clusters?: Iterable<ClusterId>): void {
    this.#places.endDeparted(clusters)
  }

  /**
   * Yields until the signal. Throws RefusedError when the peer is no member, or none any more; `end` is called with the
   * same as soon as it is none.
   */
  async *watch(
    peer: Peer,
    request: WatchRequest,
    signal: AbortSignal,
    end?: (reason: Error) => void,
  ): AsyncGenerator<WatchMessage, void, undefined> {
    await this.#catchUp(peer, request.resume, signal)
    requireMember(this.#deps.log, peer, this.#deps.clock.now())
    const watch = this.#places.open(peer, end)
    try {
      // What was said before the watch began is old news.
      const started = { contact: this.#contact, authorities: undefined }
      const cursor: Cursor = { revision: 0, floor: 0, reported: undefined, ...started }
      yield this.#start(cursor, request.resume)
      while (!signal.aborted) {
        if (watch.ended !== undefined) throw watch.ended
        requireMember(this.#deps.log, peer, this.#deps.clock.now())
        // Behind what has been forgotten: removals may have been missed.
        if (this.#deps.log.compactedRevision > Math.max(cursor.revision, cursor.floor)) {
          yield this.#start(cursor, undefined)
        }
        const message = this.#next(cursor)
        if (message === undefined) await this.#sleep(watch, signal)
        else yield message
      }
    } finally {
      this.#places.close(watch)
    }
  }

  /**
   * What another broker of the same store has written a moment ago may not be here yet: nobody is refused, and nobody
   * begins from nothing, because of that. Throws StateError where it cannot be found out.
   */
  async #catchUp(peer: Peer, resume: WatchRequest['resume'], signal: AbortSignal): Promise<void> {
    const { log, clock } = this.#deps
    const isAhead = resume !== undefined && resume.epoch === log.epoch && resume.revision > log.revision
    if (isAhead || !isOfMembership(log, peer, clock.now())) await orAborted(log.refresh(), signal)
  }

  #start(cursor: Cursor, resume: WatchRequest['resume']): WatchMessage {
    const { epoch, revision, compactedRevision } = this.#deps.log
    const resumed =
      resume !== undefined &&
      resume.epoch === epoch &&
      resume.revision <= revision &&
      resume.revision >= compactedRevision
    cursor.revision = resumed ? resume.revision : 0
    cursor.floor = resumed ? resume.revision : revision
    cursor.reported = undefined
    this.#deps.metrics.snapshots.inc({ from: resumed ? 'resumed' : 'snapshot' })
    return { t: 'reset', epoch, resumed, ...(this.#addresses.length === 0 ? {} : { addresses: this.#addresses }) }
  }

  /** The next batch; when there is none, `synced` if it would say something new. */
  #next(cursor: Cursor): WatchMessage | undefined {
    const { log, metrics } = this.#deps
    const changes = log.recordsAfter(cursor.revision, MAX_BATCH_EVENTS)
    const events: Uint8Array[] = []
    let bytes = 0
    let { revision } = cursor
    for (const change of changes) {
      // A removal from before the snapshot began says nothing to somebody who starts from nothing.
      const event = change.value === undefined && change.revision <= cursor.floor ? undefined : this.#bytesOf(change)
      if (event !== undefined && events.length > 0 && bytes + event.length > MAX_BATCH_BYTES) break
      revision = change.revision
      if (event === undefined) continue
      events.push(event)
      bytes += event.length
    }
    if (changes.length > 0) {
      cursor.revision = revision
      if (events.length === 0) return this.#next(cursor)
      metrics.delivered.inc({}, events.length)
      return { t: 'batch', events, revision }
    }
    cursor.revision = log.revision
    return this.#synced(cursor) ?? this.#news(cursor)
  }

  #synced(cursor: Cursor): WatchMessage | undefined {
    const lists = (this.#lists ??= completeness(this.#deps.log))
    if (cursor.reported !== undefined && (cursor.reported === lists || isDeepStrictEqual(cursor.reported, lists)))
      return undefined
    cursor.reported = lists
    return { t: 'synced', revision: cursor.revision, ...lists }
  }

  #news(cursor: Cursor): WatchMessage | undefined {
    if (cursor.authorities !== this.#authorities) {
      cursor.authorities = this.#authorities
      if (this.#authorities !== undefined) return this.#authorities
    }
    if (cursor.contact === this.#contact) return undefined
    cursor.contact = this.#contact
    return this.#contact
  }

  #bytesOf(change: Change<'record'>): Uint8Array {
    let bytes = this.#encoded.get(change)
    if (bytes === undefined) {
      bytes = encodeRecordEvent(eventOf(change))
      this.#encoded.set(change, bytes)
      this.#deps.metrics.encoded.inc()
    }
    return bytes
  }

  #sleep(watch: OpenWatch, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        this.#sleepers.delete(wake)
        signal.removeEventListener('abort', wake)
        resolve()
      }
      watch.wake = wake
      this.#sleepers.add(wake)
      signal.addEventListener('abort', wake, { once: true })
      if (signal.aborted) wake()
    })
  }
}

function eventOf(change: Change<'record'>): RecordEvent {
  if (change.value === undefined) return { t: 'remove', key: parseRecordKey(change.key), revision: change.revision }
  return { t: 'put', record: storedRecord(change.key, change.revision, change.value) }
}
