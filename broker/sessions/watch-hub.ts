/**
 * Gives every watcher what it has not seen. A watcher is a cursor into the log, nothing more: who is slow skips to
 * the latest state, who falls behind compaction starts anew. What several need is made once: parts of a snapshot
 * (snapshots.ts), changes (live-batches.ts), lists of members (member-lists.ts). What a stream is shown of all records
 * is its view (filter.ts); one that resumes is given first what it lacks of the namespaces that it has begun to ask for.
 *
 *   start ──reset──► snapshot ──parts──► live ──batch, synced, contact──► asleep
 *                 └──────resumed────────►│  ▲                              │
 *                                        │  └──────────wake()──────────────┘
 *                    start anew ◄────────┘ behind what the log remembers
 */
import { isDeepStrictEqual } from 'node:util'
import type { ClusterId, Interest, MemberQuota } from '../../model/model.ts'
import type { Peer, SilentMember, WatchMessage, WatchRequest } from '../../protocol/protocol.ts'
import { type Clock, orAborted } from '../../reconcile/reconcile.ts'
import type { BrokerMetrics } from '../config/config.ts'
import { requireMember } from '../identity/identity.ts'
import type { RecordLog } from '../store/store.ts'
import { audienceOf } from './authorization.ts'
import type { ExportedMessage } from './exported-namespaces.ts'
import { type View, Views } from './filter.ts'
import { LiveBatches, WakeOrder } from './live-batches.ts'
import { type Lists, MemberLists, type OwnersMessage, ownersMessage } from './member-lists.ts'
import { type Part, SnapshotPace, Snapshots, type TakenSnapshot, startCost } from './snapshots.ts'
import { type OpenWatch, WatchPlaces } from './watch-slots.ts'

export interface WatchHubDeps {
  readonly log: RecordLog
  readonly clock: Clock
  readonly metrics: BrokerMetrics
}

/** After so long the time that was to be said is another one. */
const LATE_MS = 1000

export class WatchHub {
  readonly #deps: WatchHubDeps
  readonly #addresses: readonly string[]
  readonly #batches: LiveBatches
  readonly #snapshots: Snapshots
  readonly #lists: MemberLists
  readonly #order: WakeOrder
  readonly #sleepers = new Set<() => void>()
  readonly #places: WatchPlaces
  readonly #views: Views
  readonly #pace: SnapshotPace
  /** By what was told before; of the lists that `#reportsOf` is. */
  readonly #reports = new Map<Lists | undefined, OwnersMessage>()
  #reportsOf: Lists | undefined
  /** The latest; each watcher gets it once, and only the latest. */
  #contact: ContactMessage | undefined
  /** The same for whom it waited for: without a time that is no longer so. */
  #contactLate: { readonly afterMs: number; readonly message: ContactMessage } | undefined
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
    const { log, clock, metrics } = deps
    this.#deps = deps
    this.#addresses = addresses
    this.#places = new WatchPlaces(deps, quota)
    const batches = new LiveBatches(log, metrics)
    this.#batches = batches
    this.#views = new Views(log)
    this.#pace = new SnapshotPace(clock)
    this.#snapshots = new Snapshots({ log, clock, encode: (change) => batches.encode(change), views: this.#views })
    this.#order = new WakeOrder(clock)
    this.#lists = new MemberLists(log, clock, () => this.#wakeAll())
  }

  /** To be called after every commit that has changed records, or these memberships. */
  wake(recordsChanged: boolean, members: readonly ClusterId[]): void {
    if (members.length > 0) this.#lists.changed()
    // Of another member's membership the others hear by the lists.
    for (const watch of members.flatMap((cluster) => [...this.#places.of(cluster)])) {
      watch.isUnchecked = true
      if (!recordsChanged) this.#order.wake([watch.wake])
    }
    if (recordsChanged) this.#wakeWhoIsShown()
  }

  /** Streams that wait for something else than what has changed sleep on. */
  #wakeWhoIsShown(): void {
    this.#order.wake(this.#sleepers)
    for (const { sleepers } of this.#views.withNews()) this.#order.wake(sleepers)
  }

  #wakeAll(): void {
    this.#order.wake(this.#sleepers)
    for (const view of this.#views.all) this.#order.wake(view.sleepers)
  }

  /** Sends every watcher which members have no connection to the broker, and what time it is here. */
  reportContact(silent: readonly SilentMember[]): void {
    const { clock } = this.#deps
    this.#contact = { t: 'contact', silent, nowMs: clock.now() }
    this.#contactLate = { afterMs: clock.monotonic() + LATE_MS, message: { t: 'contact', silent } }
    // The time of a certificate may be over.
    for (const watch of this.#places.all()) watch.isUnchecked = true
    this.#wakeAll()
  }

  close(): void {
    this.#lists.close()
    this.#order.close()
  }

  /** Sends every watcher which authorities count; undefined: there was never more than one. */
  reportAuthorities(message: AuthoritiesMessage | undefined): void {
    if (isDeepStrictEqual(message, this.#authorities)) return
    this.#authorities = message
    // The one that signed a certificate may count no more.
    for (const watch of this.#places.all()) watch.isUnchecked = true
    this.#wakeAll()
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
    await this.#catchUp(signal)
    requireMember(this.#deps.log, peer, this.#deps.clock.now())
    const watch = this.#places.open(peer, end)
    const cursor = this.#newCursor(peer, request)
    const sleep = this.#sleeper(watch, cursor.view?.sleepers ?? this.#sleepers, signal)
    try {
      if (cursor.view !== undefined) await this.#pause(peer, startCost(request.interest), signal)
      yield this.#start(cursor, request)
      while (!signal.aborted) {
        if (watch.ended !== undefined) throw watch.ended
        this.#check(watch)
        this.#skip(cursor)
        // Behind what has been forgotten: removals may have been missed.
        if (this.#deps.log.compactedRevision > Math.max(cursor.revision, cursor.floor)) {
          yield this.#start(cursor, {})
        }
        const exported = this.#exported(cursor)
        if (exported !== undefined) {
          yield exported
          continue
        }
        if (cursor.snapshot !== undefined) {
          const part = await this.#nextPart(cursor)
          if (part === undefined) continue
          yield part.message
          if (cursor.view !== undefined) await this.#pause(peer, part.events, signal)
          continue
        }
        const message = this.#next(cursor)
        if (message === undefined) await sleep()
        else yield message
      }
    } finally {
      this.#leaveSnapshot(cursor)
      this.#views.release(cursor.view)
      this.#deps.metrics.interests.set(this.#views.size)
      this.#places.close(watch)
    }
  }

  /**
   * What another broker of the same store has written a moment ago may not be here yet: nobody is refused because of
   * that, nobody begins from nothing, and nobody is told an older state as the present one. An agent that takes over
   * would undo what the one before it has written from the word of another broker. Throws StateError where it cannot be
   * found out.
   */
  async #catchUp(signal: AbortSignal): Promise<void> {
    await orAborted(this.#deps.log.refresh(), signal)
  }

  #newCursor({ cluster }: Peer, { takes = [], interest }: WatchRequest): Cursor {
    const view = this.#views.take(audienceOf(cluster), interest?.namespaces)
    this.#deps.metrics.interests.set(this.#views.size)
    return {
      view,
      exported: interest === undefined ? undefined : { waiting: [], at: undefined },
      said: 0,
      takesPacked: takes.includes('zstd'),
      takesOwners: takes.includes('owners'),
      ...{ revision: 0, floor: 0, snapshot: undefined, reported: undefined },
      // What was said before the watch began is old news.
      contact: this.#contact,
      authorities: undefined,
    }
  }

  /** What came while it slept, and was not for it, may be forgotten by now. */
  #skip(cursor: Cursor): void {
    if (cursor.view === undefined || cursor.snapshot !== undefined) return
    cursor.revision = cursor.view.quiet.skip(cursor.revision)
  }

  /** A thousand watchers wake for each change: each looks at its membership when that may have changed. */
  #check(watch: OpenWatch): void {
    if (!watch.isUnchecked) return
    requireMember(this.#deps.log, watch.peer, this.#deps.clock.now())
    watch.isUnchecked = false
  }

  #start(cursor: Cursor, { resume, interest }: Pick<WatchRequest, 'resume' | 'interest'>): WatchMessage {
    const { epoch, revision, compactedRevision } = this.#deps.log
    const resumed =
      resume !== undefined &&
      resume.epoch === epoch &&
      resume.revision <= revision &&
      resume.revision >= compactedRevision
    this.#leaveSnapshot(cursor)
    cursor.revision = resumed ? resume.revision : 0
    cursor.snapshot = resumed ? this.#lacking(cursor, interest?.missing) : this.#whole(cursor)
    cursor.floor = resumed ? cursor.revision : (cursor.snapshot?.of.floor ?? 0)
    cursor.said = cursor.revision
    cursor.reported = undefined
    if (cursor.exported !== undefined) {
      cursor.exported.at = resumed ? cursor.revision : undefined
      cursor.exported.waiting.length = 0
    }
    this.#deps.metrics.snapshots.inc({ from: resumed ? 'resumed' : 'snapshot' })
    return {
      ...{ t: 'reset', epoch, resumed },
      ...(this.#addresses.length === 0 ? {} : { addresses: this.#addresses }),
      ...(cursor.exported === undefined ? {} : { keepsToInterest: true }),
    }
  }

  #whole({ takesPacked: packed, view }: Cursor): Cursor['snapshot'] {
    return { of: this.#snapshots.take({ packed, view }), next: 0 }
  }

  /** Of the namespaces that a stream asks for and does not have, where it stands. */
  #lacking({ takesPacked: packed, view, revision: since }: Cursor, missing: Interest = new Set()): Cursor['snapshot'] {
    if (view === undefined || missing.size === 0) return undefined
    const lacking = this.#views.take(view.audience, missing)
    const of = this.#snapshots.take({ packed, view: lacking, since })
    // The parts are made of the object; nobody is to be woken for it.
    this.#views.release(lacking)
    return { of, next: 0 }
  }

  /** In which namespaces something is exported: told before the records of that moment. */
  #exported({ view, exported, takesPacked }: Cursor): WatchMessage | undefined {
    if (view === undefined || exported === undefined) return undefined
    if (exported.waiting.length === 0) {
      exported.waiting.push(...this.#views.index(view.audience).exportedSince(exported.at))
      exported.at = this.#deps.log.revision
    }
    const message = exported.waiting.shift()
    return message !== undefined && takesPacked ? this.#batches.packedMessage(message) : message
  }

  /** The next part of the snapshot; after the last one the watcher stands at its floor. */
  async #nextPart(cursor: Cursor): Promise<Part | undefined> {
    const { snapshot } = cursor
    const part = await snapshot?.of.part(snapshot.next)
    if (snapshot === undefined || part === undefined) {
      // Of what was lacking that is where it stood before.
      cursor.revision = cursor.floor
      this.#leaveSnapshot(cursor)
      return undefined
    }
    snapshot.next += 1
    if (snapshot.of.isWhole) cursor.said = cursor.revision = part.revision
    this.#count(cursor, part.events)
    return part
  }

  /** A stream with a view was given so many records: perhaps they were made for this member alone. */
  async #pause({ cluster }: Peer, given: number, signal: AbortSignal): Promise<void> {
    const pauseMs = this.#pace.takes(cluster, given, this.#deps.log.count('record'))
    if (pauseMs > 0) await this.#deps.clock.sleep(pauseMs, signal).catch(() => undefined)
  }

  #count({ view }: Cursor, events: number): void {
    this.#deps.metrics.delivered.inc({}, events)
    if (view !== undefined) this.#deps.metrics.deliveredByInterest.inc({}, events)
  }

  #leaveSnapshot(cursor: Cursor): void {
    cursor.snapshot?.of.release()
    cursor.snapshot = undefined
  }

  /** The next batch; when there is none, what else there is to say. */
  #next(cursor: Cursor): WatchMessage | undefined {
    const batch = this.#batches.after(cursor.revision, cursor.view)
    if (batch !== undefined) {
      cursor.said = cursor.revision = batch.revision
      this.#count(cursor, batch.events)
      return cursor.takesPacked ? this.#batches.packed(batch) : batch.plain
    }
    return this.#owners(cursor) ?? this.#news(cursor)
  }

  /** The first time whole, then what has changed, to who takes that. */
  #owners(cursor: Cursor): WatchMessage | undefined {
    const { reported, takesOwners, revision } = cursor
    const lists = reported === undefined ? this.#lists.current : this.#lists.reported
    if (reported !== undefined && lists.version <= reported.version) {
      cursor.revision = this.#deps.log.revision
      return undefined
    }
    const report = this.#reportFrom(takesOwners ? reported : undefined, lists, revision)
    cursor.reported = lists
    cursor.said = cursor.revision = report.revision
    return report
  }

  /** For a watcher that has all records, and stands at `revision` or could as well stand at a later one. */
  #reportFrom(from: Lists | undefined, to: Lists, revision: number): OwnersMessage {
    if (this.#reportsOf !== to) this.#reports.clear()
    this.#reportsOf = to
    const known = this.#reports.get(from)
    const { log } = this.#deps
    if (known !== undefined && known.revision >= revision && log.recordsAfter(known.revision, 1).length === 0)
      return known
    const made = ownersMessage(from, to, log.revision)
    this.#reports.set(from, made)
    return made
  }

  #news(cursor: Cursor): WatchMessage | undefined {
    if (cursor.authorities !== this.#authorities) {
      cursor.authorities = this.#authorities
      if (this.#authorities !== undefined) return this.#authorities
    }
    if (cursor.contact === this.#contact) return undefined
    // As often as that, it is told that what came meanwhile was not for it: it then resumes from there.
    if (cursor.view !== undefined && cursor.said < cursor.revision) {
      cursor.said = cursor.revision
      return this.#batches.nothingUpTo(cursor.revision)
    }
    cursor.contact = this.#contact
    const late = this.#contactLate
    return late !== undefined && this.#deps.clock.monotonic() > late.afterMs ? late.message : this.#contact
  }

  /** Waits until the stream is woken or over: one listener for all the times that it sleeps. */
  #sleeper(watch: OpenWatch, sleepers: Set<() => void>, signal: AbortSignal): () => Promise<void> {
    let resolve: () => void = () => undefined
    watch.wake = () => {
      sleepers.delete(watch.wake)
      resolve()
    }
    const over = (): void => {
      this.#order.forget(watch.wake)
      watch.wake()
    }
    signal.addEventListener('abort', over, { once: true })
    return () =>
      new Promise((done) => {
        resolve = done
        sleepers.add(watch.wake)
        if (signal.aborted) watch.wake()
      })
  }
}

// Where one stream stands, and what it has heard.

type ContactMessage = Extract<WatchMessage, { t: 'contact' }>
type AuthoritiesMessage = Extract<WatchMessage, { t: 'authorities' }>

interface Cursor {
  readonly takesPacked: boolean
  readonly takesOwners: boolean
  /** Everything up to here has been handed over. */
  revision: number
  /** Removals from here on are needed: a snapshot begun at this revision cannot hold what was removed before. */
  floor: number
  /** What is being handed over, and its next part. */
  snapshot: { readonly of: TakenSnapshot; next: number } | undefined
  /** Undefined: everything. */
  readonly view: View | undefined
  /** Of a stream with an interest: what is to be said of where something is exported, and as of when it was said. */
  readonly exported: { readonly waiting: ExportedMessage[]; at: number | undefined } | undefined
  /** The revision that the member has heard of last. */
  said: number
  reported: Lists | undefined
  contact: ContactMessage | undefined
  authorities: AuthoritiesMessage | undefined
}
