/**
 * Sends every watcher what it has not seen. A watcher is a cursor into the log: a slow one skips to the latest state,
 * and one that falls behind the compaction starts again. Messages for several watchers are made once: parts of a
 * snapshot (snapshots.ts), changes (live-batches.ts), lists of members (member-lists.ts). The view of a stream
 * (filter.ts) selects its records, of those that its member may see: by the topology (sights.ts) and by offers
 * (readers.ts). A stream that resumes is first sent the records that it lacks of the namespaces that it newly asks for.
 *
 *   start ──reset──► snapshot ──parts──► live ──batch, synced, contact──► asleep
 *                 └──────resumed────────►│  ▲                              │
 *                                        │  └──────────wake()──────────────┘
 *                   start again ◄────────┘ behind the compacted revision, or the topology has changed
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import type { AccessDefault } from '../../model/access/access.ts'
import type { ClusterId, Interest, MemberQuota } from '../../model/model.ts'
import type { Peer, SilentMember, WatchMessage, WatchRequest } from '../../protocol/protocol.ts'
import { type Clock, orAborted } from '../../reconcile/reconcile.ts'
import type { BrokerMetrics } from '../config/config.ts'
import { requireMember } from '../identity/identity.ts'
import type { RecordLog } from '../store/store.ts'
import type { ExportedMessage, ReportedNamespaces } from './exported-namespaces.ts'
import { type View, Views } from './filter.ts'
import { LiveBatches, WakeOrder } from './live-batches.ts'
import { Sights } from './sights.ts'
import { type Lists, MemberLists, type OwnersMessage, ownersMessage } from './member-lists.ts'
import { type Part, SnapshotRateLimiter, Snapshots, type TakenSnapshot, startCost } from './snapshots.ts'
import { type OpenWatch, WatchPlaces } from './watch-slots.ts'

export interface WatchHubDeps {
  readonly log: RecordLog
  readonly clock: Clock
  readonly metrics: BrokerMetrics
}

/** After this time, the message without the broker's clock is sent: the time in it would be wrong. */
const LATE_MS = 1000
/** Batches of which nothing is for the member that a stream skips in one turn of the event loop. */
const MOST_SKIPPED = 16

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
  readonly #sights: Sights
  readonly #snapshotLimiter: SnapshotRateLimiter
  /** By the lists that were sent before. The messages lead to the lists in `#reportsOf`. */
  readonly #reports = new Map<Lists | undefined, OwnersMessage>()
  #reportsOf: Lists | undefined
  /** The latest contact message. Each watcher gets it once. */
  #contact: ContactMessage | undefined
  /** The same without the time, for watchers that get it later than LATE_MS. */
  #contactLate: { readonly afterMs: number; readonly message: ContactMessage } | undefined
  /** The current message. Each watcher gets it, including later ones. */
  #authorities: AuthoritiesMessage | undefined
  /** The default of the clusterset, as the latest message. Undefined if it was never set. */
  #access: AccessMessage | undefined
  #relays: RelaysMessage | undefined

  /**
   * `quota`: the default for members without one of their own. `addresses`: host:port at which members find the broker
   * now. They may have joined when it had another address.
   */
  constructor(
    deps: WatchHubDeps,
    { quota, addresses }: { readonly quota: MemberQuota; readonly addresses: readonly string[] },
  ) {
    const { log, clock, metrics } = deps
    this.#deps = deps
    this.#addresses = addresses
    this.#places = new WatchPlaces(deps, quota)
    this.#views = new Views(log)
    this.#sights = new Sights(log, clock, () => this.#wakeAll())
    const batches = new LiveBatches(log, metrics, this.#views.index)
    this.#batches = batches
    this.#snapshotLimiter = new SnapshotRateLimiter(clock)
    this.#snapshots = new Snapshots({
      log,
      clock,
      encode: (change, sight) => batches.encode(change, sight),
      views: this.#views,
    })
    this.#order = new WakeOrder(clock)
    this.#lists = new MemberLists(log, clock, () => this.#wakeAll())
  }

  /** The caller runs it after every commit that has changed records or these memberships. */
  wake(recordsChanged: boolean, members: readonly ClusterId[]): void {
    if (members.length > 0) this.#lists.changed()
    // The other members learn of a changed membership by the lists.
    for (const watch of members.flatMap((cluster) => [...this.#places.of(cluster)])) {
      watch.isUnchecked = true
      if (!recordsChanged) this.#order.wake([watch.wake])
    }
    if (recordsChanged) this.#wakeWhoIsShown()
  }

  /** Wakes the streams that show a change. The other streams sleep on. */
  #wakeWhoIsShown(): void {
    this.#order.wake(this.#sleepers)
    for (const { sleepers } of this.#views.withNews()) this.#order.wake(sleepers)
  }

  #wakeAll(): void {
    this.#order.wake(this.#sleepers)
    for (const view of this.#views.all) this.#order.wake(view.sleepers)
  }

  /** Sends every watcher which members have no connection to the broker, and the broker's time. */
  reportContact(silent: readonly SilentMember[]): void {
    const { clock } = this.#deps
    this.#contact = { t: 'contact', silent, nowMs: clock.now() }
    this.#contactLate = { afterMs: clock.monotonic() + LATE_MS, message: { t: 'contact', silent } }
    // A certificate may have expired.
    for (const watch of this.#places.all()) watch.isUnchecked = true
    this.#wakeAll()
  }

  close(): void {
    this.#sights.close()
    this.#lists.close()
    this.#order.close()
  }

  /** Sends every watcher which authorities are in use. Undefined if there has never been more than one. */
  reportAuthorities(message: AuthoritiesMessage | undefined): void {
    if (isDeepStrictEqual(message, this.#authorities)) return
    this.#authorities = message
    // The authority of a certificate may no longer be accepted.
    for (const watch of this.#places.all()) watch.isUnchecked = true
    this.#wakeAll()
  }

  /** Sends every watcher the default of the clusterset for services without a policy, if it has changed. */
  reportAccess(accessDefault: AccessDefault | undefined): void {
    if (accessDefault === this.#access?.accessDefault) return
    this.#access = accessDefault === undefined ? undefined : { t: 'access', accessDefault }
    this.#wakeAll()
  }

  /** Sends every watcher the relays on port 443, if they have changed. Undefined if none were ever set. */
  reportRelays(relays: readonly string[] | undefined): void {
    if (relays?.join() === this.#relays?.relays.join() && (relays === undefined) === (this.#relays === undefined))
      return
    this.#relays = relays === undefined ? undefined : { t: 'relays', relays }
    this.#wakeAll()
  }

  /**
   * Whether access policies let all members know that the service is exported, or that anything of the namespace is.
   * `name` is empty for the whole namespace, `cluster` for any exporter.
   */
  isPublic(service: { readonly cluster: string; readonly namespace: string; readonly name: string }): boolean {
    const { index } = this.#views
    index.follow()
    return index.isPublic(service)
  }

  /**
   * Counts watches of the current membership only: a peer that does not read keeps its stream open beyond an eviction.
   */
  openWatches(cluster: ClusterId): number {
    return this.#places.count(cluster)
  }

  /**
   * Ends the watches of peers that are no longer members, even if such a peer reads nothing and so never requests its
   * next message. The caller runs it with the members whose rows have changed.
   */
  endDeparted(clusters?: Iterable<ClusterId>): void {
    this.#places.endDeparted(clusters)
  }

  /**
   * Yields messages until the signal. Throws RefusedError if the peer is not a member, or no longer is. `end` is called
   * with the same error as soon as the membership ends.
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
    const sleep = this.#sleeper(watch, () => cursor.view?.sleepers ?? this.#sleepers, signal)
    try {
      if (cursor.view !== undefined) await this.#pause(peer, startCost(request.interest), signal)
      yield this.#start(cursor, request)
      while (!signal.aborted) {
        if (watch.ended !== undefined) throw watch.ended
        this.#check(watch)
        this.#skip(cursor)
        this.#views.index.follow()
        // The stream is behind the compacted revision, so it may have missed removals. Or its member may see others now.
        const isOfOldTopology = cursor.sightsVersion !== this.#sights.version
        if (isOfOldTopology || !this.#isKnown(cursor, Math.max(cursor.revision, cursor.floor))) {
          yield this.#start(cursor, {})
          continue
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
        if (message === 'nothing for it') await nextTurn()
        else if (message === undefined) await sleep()
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
   * Waits for recent writes of other brokers of the same store. Otherwise a member could be refused, start without
   * state, or be sent an outdated state as the current one. An agent that takes over would then undo what its
   * predecessor wrote on the word of another broker. Throws StateError if the store cannot be read.
   */
  async #catchUp(signal: AbortSignal): Promise<void> {
    await orAborted(this.#deps.log.refresh(), signal)
  }

  #newCursor({ cluster }: Peer, { takes = [], interest }: WatchRequest): Cursor {
    const asked = interest?.namespaces
    const view = this.#views.take(asked, this.#sights.of(cluster))
    this.#deps.metrics.interests.set(this.#views.size)
    return {
      ...{ asked, view, sightsVersion: this.#sights.version },
      member: cluster,
      exported: interest === undefined ? undefined : { waiting: [], at: undefined, own: undefined },
      hasSkipped: false,
      access: undefined,
      relays: undefined,
      said: 0,
      takesPacked: takes.includes('zstd'),
      takesOwners: takes.includes('owners'),
      ...{ revision: 0, floor: 0, snapshot: undefined, reported: undefined },
      // Contact that was reported before the watch began is old.
      contact: this.#contact,
      authorities: undefined,
    }
  }

  /** Skips changes that came during the sleep and are not shown: the log may no longer have them. */
  #skip(cursor: Cursor): void {
    if (cursor.view === undefined || cursor.snapshot !== undefined) return
    cursor.revision = cursor.view.quiet.skip(cursor.revision)
  }

  /** Whether the log has all that has changed for the member since the revision. */
  #isKnown({ member }: Cursor, revision: number): boolean {
    const { compactedRevision } = this.#deps.log
    return revision >= compactedRevision && this.#views.index.readers.isKnown(member, revision)
  }

  /** Up to a thousand watchers wake for each change, so each checks its membership only when that may have changed. */
  #check(watch: OpenWatch): void {
    if (!watch.isUnchecked) return
    requireMember(this.#deps.log, watch.peer, this.#deps.clock.now())
    watch.isUnchecked = false
  }

  #start(cursor: Cursor, { resume, interest }: Pick<WatchRequest, 'resume' | 'interest'>): WatchMessage {
    this.#views.index.follow()
    this.#lookAgain(cursor)
    const { epoch, revision } = this.#deps.log
    const resumed =
      resume !== undefined &&
      resume.epoch === epoch &&
      resume.revision <= revision &&
      resume.revision >= this.#sights.changedAt &&
      this.#isKnown(cursor, resume.revision)
    this.#leaveSnapshot(cursor)
    cursor.revision = resumed ? resume.revision : 0
    cursor.snapshot = resumed ? this.#lacking(cursor, interest?.missing) : this.#whole(cursor)
    cursor.floor = resumed ? cursor.revision : (cursor.snapshot?.of.floor ?? 0)
    cursor.said = cursor.revision
    cursor.reported = undefined
    if (cursor.exported !== undefined) {
      cursor.exported.at = resumed ? cursor.revision : undefined
      cursor.exported.own = undefined
      cursor.exported.waiting.length = 0
    }
    this.#deps.metrics.snapshots.inc({ from: resumed ? 'resumed' : 'snapshot' })
    cursor.access = this.#access
    cursor.relays = this.#relays
    return {
      ...{ t: 'reset', epoch, resumed },
      ...(this.#addresses.length === 0 ? {} : { addresses: this.#addresses }),
      ...(cursor.exported === undefined ? {} : { keepsToInterest: true }),
      ...(cursor.access === undefined ? {} : { accessDefault: cursor.access.accessDefault }),
      ...(cursor.relays === undefined ? {} : { relays: cursor.relays.relays }),
    }
  }

  /** Takes the view by the topology that counts now. */
  #lookAgain(cursor: Cursor): void {
    if (cursor.sightsVersion === this.#sights.version) return
    const { view } = cursor
    cursor.view = this.#views.take(cursor.asked, this.#sights.of(cursor.member))
    cursor.sightsVersion = this.#sights.version
    this.#views.release(view)
    this.#deps.metrics.interests.set(this.#views.size)
  }

  #whole({ takesPacked: packed, view, member }: Cursor): Cursor['snapshot'] {
    return { of: this.#snapshots.take({ packed, view, member, notBefore: this.#sights.changedAt }), next: 0 }
  }

  /** A snapshot of the namespaces that a stream asks for and lacks at its revision. */
  #lacking(cursor: Cursor, missing: Interest = new Set()): Cursor['snapshot'] {
    const { takesPacked: packed, view, member, revision: since } = cursor
    if (view === undefined || missing.size === 0) return undefined
    const lacking = this.#views.take(missing, view.sight)
    const of = this.#snapshots.take({ packed, view: lacking, member, since })
    // The parts are made from the object. No stream sleeps on this view.
    this.#views.release(lacking)
    return { of, next: 0 }
  }

  /** The message on namespaces with exports, sent before the records of that moment. */
  #exported({ exported, takesPacked, member, view }: Cursor): WatchMessage | undefined {
    if (exported === undefined) return undefined
    const { index } = this.#views
    if (exported.waiting.length === 0) {
      const sight = view?.sight
      const news =
        sight === undefined ? index.exportedFor(member, exported) : index.exportedForSight(member, sight, exported)
      exported.waiting.push(...news)
    }
    const message = exported.waiting.shift()
    return message !== undefined && takesPacked ? this.#batches.packedMessage(message) : message
  }

  /** The next part of the snapshot. After the last one, the stream is at the floor. */
  async #nextPart(cursor: Cursor): Promise<Part | undefined> {
    const { snapshot } = cursor
    const part = await snapshot?.of.part(snapshot.next)
    if (snapshot === undefined || part === undefined) {
      // For lacking namespaces, the floor is the revision at which the stream was before.
      cursor.revision = cursor.floor
      this.#leaveSnapshot(cursor)
      return undefined
    }
    snapshot.next += 1
    if (snapshot.of.isWhole) cursor.said = cursor.revision = part.revision
    this.#count(cursor, part.events)
    return part
  }

  /** Pauses by the rate limiter: records for a stream with a view may have been made for this member alone. */
  async #pause({ cluster }: Peer, given: number, signal: AbortSignal): Promise<void> {
    const pauseMs = this.#snapshotLimiter.takes(cluster, given, this.#deps.log.count('record'))
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

  /** The next batch, or another message if there is none. */
  #next(cursor: Cursor): WatchMessage | 'nothing for it' | undefined {
    let batch = this.#batches.after(cursor.revision, cursor.view, cursor.member)
    for (let skipped = 1; batch?.events === 0; skipped += 1) {
      cursor.revision = batch.revision
      cursor.hasSkipped = true
      if (skipped === MOST_SKIPPED) return 'nothing for it'
      batch = this.#batches.after(cursor.revision, cursor.view, cursor.member)
    }
    if (batch !== undefined) {
      cursor.hasSkipped = false
      cursor.said = cursor.revision = batch.revision
      this.#count(cursor, batch.events)
      return cursor.takesPacked ? this.#batches.packed(batch) : batch.plain
    }
    return this.#owners(cursor) ?? this.#news(cursor)
  }

  /** The whole lists the first time, then changes if the member accepts them. */
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

  /** For a watcher that has all records up to `revision`, which may skip to a later one. */
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
    if (cursor.access !== this.#access) {
      cursor.access = this.#access
      if (this.#access !== undefined) return this.#access
    }
    if (cursor.relays !== this.#relays) {
      cursor.relays = this.#relays
      if (this.#relays !== undefined) return this.#relays
    }
    if (cursor.contact === this.#contact) return undefined
    // At the same interval, the stream is told that it may skip changes that were not for it, so that it resumes from
    // there.
    if ((cursor.view !== undefined || cursor.hasSkipped) && cursor.said < cursor.revision) {
      cursor.hasSkipped = false
      cursor.said = cursor.revision
      return this.#batches.nothingUpTo(cursor.revision)
    }
    cursor.contact = this.#contact
    const late = this.#contactLate
    return late !== undefined && this.#deps.clock.monotonic() > late.afterMs ? late.message : this.#contact
  }

  /** Waits until the stream is woken or has ended. One listener serves all sleeps. */
  #sleeper(watch: OpenWatch, among: () => Set<() => void>, signal: AbortSignal): () => Promise<void> {
    let resolve: () => void = () => undefined
    // It sleeps among those with the same view, which may be another one the next time.
    let sleepers = among()
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
        sleepers = among()
        sleepers.add(watch.wake)
        if (signal.aborted) watch.wake()
      })
  }
}

// The position of a stream, and what it has been sent.

type ContactMessage = Extract<WatchMessage, { t: 'contact' }>
type AccessMessage = Extract<WatchMessage, { t: 'access' }>
type RelaysMessage = Extract<WatchMessage, { t: 'relays' }>
type AuthoritiesMessage = Extract<WatchMessage, { t: 'authorities' }>

interface Cursor {
  readonly takesPacked: boolean
  readonly takesOwners: boolean
  readonly member: ClusterId
  /** All changes up to here have been sent. */
  revision: number
  /** Removals from here on are needed: a snapshot begun at this revision has no records that were removed before. */
  floor: number
  /** The snapshot that is being sent, and its next part. */
  snapshot: { readonly of: TakenSnapshot; next: number } | undefined
  /** Undefined if the stream gets all records. */
  view: View | undefined
  /** The namespaces that it asks for. Undefined for all. */
  readonly asked: Interest | undefined
  /** Sights.version by which it has its view. */
  sightsVersion: number
  /**
   * For a stream with an interest: messages on namespaces with exports that are still to be sent, and their revision.
   */
  readonly exported: ({ readonly waiting: ExportedMessage[] } & ReportedNamespaces) | undefined
  /** The latest revision that the member was told. */
  said: number
  /** Since then, it has skipped changes that were not for its member. */
  hasSkipped: boolean
  reported: Lists | undefined
  contact: ContactMessage | undefined
  authorities: AuthoritiesMessage | undefined
  access: AccessMessage | undefined
  relays: RelaysMessage | undefined
}
