/**
 * Whole snapshots, made once for all streams that start without state. A snapshot belongs to one revision, its floor.
 * It contains every record that was last written at or before the floor and is unchanged when its part is made. Later
 * changes, including removals, have later revisions and follow the snapshot as a delta. So a part that was made earlier
 * is still valid, unless a record in it has become one for some members only: then it is made again. Records that are
 * for some members only come first, for each member apart.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { ClusterId } from '../../model/model.ts'
import type { AskedInterest, WatchMessage } from '../../protocol/protocol.ts'
import { encodeWatchMessage, packQuickly, packWell } from '../../protocol/codec/codec.ts'
import { type Clock, TokenBucket } from '../../reconcile/reconcile.ts'
import { type Change, type RecordLog, parseRecordKey } from '../store/store.ts'
import { type View, type Views, hashOf } from './filter.ts'
import type { Sight } from './sights.ts'

/** Records that are encoded in one turn of the event loop. */
const TURN_EVENTS = 256
const PLAIN_EVENTS = 256
const PLAIN_BYTES = 1024 * 1024
/**
 * Compressed parts have a tenth of the size or less. Larger parts compress better, and a reader processes each in one
 * turn.
 */
const PACKED_EVENTS = 2048
const PACKED_BYTES = 512 * 1024
/** A new snapshot is made after more changes than this, unless they are a small share of all records. */
const MAX_BEHIND = 2000
const BEHIND_SHARE = 0.1
/** A snapshot without readers is dropped after this time. */
const KEEP_MS = 10_000

export interface Part {
  readonly message: WatchMessage
  readonly events: number
  /** Position at which the next part begins. */
  readonly end: number
  /** Revision at which a stream is after this part. 0 if the part does not advance it. */
  readonly revision: number
}

export interface SnapshotsDeps {
  readonly log: RecordLog
  readonly clock: Clock
  readonly encode: (change: Change<'record'>, sight: Sight | undefined) => Uint8Array
  /** Absent if there are no views, and all records are for all members. */
  readonly views?: Views
}

/** What the snapshot shows. */
export interface SnapshotOptions {
  readonly packed: boolean
  /** Absent if the snapshot shows everything. */
  readonly view?: View | undefined
  /** Absent: no member, which is sent what is for all members. */
  readonly member?: string | undefined
  /**
   * The revision of a stream that lacks the records: they are sent as `added`, without those that every view shows.
   * Absent for a stream that starts without state.
   */
  readonly since?: number | undefined
  /**
   * Revision since which the member may see what it sees. With an older floor it would be sent removals of what it could
   * not see then.
   */
  readonly notBefore?: number | undefined
}

/** A snapshot as a stream reads it. */
export interface TakenSnapshot {
  /** Revision of the log when the snapshot was begun. Later changes are sent as changes. */
  readonly floor: number
  /** Whether the snapshot is for a stream that starts without state. */
  readonly isWhole: boolean
  /** Undefined after the last part. Parts are made in order when the first reader requests them. */
  part(i: number): Promise<Part | undefined>
  /** The reader calls it once. */
  release(): void
}

/** How often a part is made again because of records that were narrowed while it was made. */
const MAX_TRIES = 5

/** A namespace with this many records has parts of its own, shared by all views that contain it. */
const OWN_PARTS = 128

export class Snapshots {
  readonly #deps: SnapshotsDeps
  readonly #latest = new Map<string, Snapshot>()

  constructor(deps: SnapshotsDeps) {
    this.#deps = deps
  }

  take({ view, member, ...options }: SnapshotOptions): TakenSnapshot {
    this.#deps.views?.index.follow()
    const own = member === undefined ? undefined : this.#own(member, view, options)
    const all = (): TakenSnapshot => this.#one('all', { ...options, isForMany: true })
    if (view === undefined) return own === undefined ? all() : new ViewSnapshot([own, all()])
    const pieces = this.#pieces(view, options)
    return new ViewSnapshot(own === undefined ? pieces : [own, ...pieces])
  }

  /** What is for some members only, this one among them. Undefined if there is nothing. */
  #own(
    member: string,
    view: View | undefined,
    options: Omit<SnapshotOptions, 'view' | 'member'>,
  ): TakenSnapshot | undefined {
    const restricted = this.#deps.views?.index.readers.keysOf(member) ?? []
    const keys = view === undefined ? restricted : restricted.filter((key) => view.shows(key))
    if (keys.length === 0) return undefined
    const { revision } = this.#deps.log
    return new Snapshot(
      this.#deps,
      revision,
      { ...options, member, keys: () => keys, isForMany: false },
      () => undefined,
    )
  }

  /**
   * Members may all ask for different namespaces, and most of what they are sent is still made once: large namespaces
   * are shared.
   */
  #pieces(view: View, options: Omit<SnapshotOptions, 'view' | 'member'>): [TakenSnapshot, ...TakenSnapshot[]] {
    const index = this.#deps.views?.index
    const names = index?.namesOf(view.interest, options.since === undefined) ?? []
    const { sight } = view
    // A sight is that of one member: what it shows has no other readers.
    const isLarge = (name: string): boolean => sight === undefined && (index?.sizeOf(name) ?? 0) >= OWN_PARTS
    const large = names.filter(isLarge)
    const rest = names.filter((name) => !isLarge(name))
    const keys = (of: readonly string[]) => (): string[] =>
      (sight === undefined ? index?.keys(of) : index?.keysFor(sight, of)) ?? []
    const ofNamespace = (name: string): Snapshot =>
      this.#one(`namespace ${name}`, { ...options, sight, keys: keys([name]), isForMany: true })
    const apart = { ...options, sight, keys: keys(rest), isForMany: false }
    const others = this.#one(`${view.id} without ${hashOf(large)}`, apart)
    return [others, ...large.map(ofNamespace)]
  }

  #one(what: string, options: OneOptions): Snapshot {
    const { log } = this.#deps
    const { packed, since = 0, notBefore = 0 } = options
    const kind = `${packed ? 'packed' : 'plain'} ${options.since === undefined ? 'whole' : 'added'} ${what}`
    const known = this.#latest.get(kind)
    // An older snapshot would lack removals up to `since`, which the stream would not be sent again.
    if (known !== undefined && known.floor >= Math.max(since, notBefore) && this.#isGood(known)) return known.taken()
    const made = new Snapshot(this.#deps, log.revision, options, () => this.#released(made))
    this.#latest.set(kind, made)
    return made.taken()
  }

  #released(snapshot: Snapshot): void {
    this.#deps.clock.setTimer(KEEP_MS, () => {
      if (snapshot.readers > 0) return
      for (const [kind, one] of this.#latest) if (one === snapshot) this.#latest.delete(kind)
    })
  }

  #isGood({ floor }: Snapshot): boolean {
    const { log, views } = this.#deps
    // Its parts may have what only some members may see now, and a later one would not be sent the removal.
    if (floor < (views?.index.readers.narrowedAt ?? 0)) return false
    const behind = Math.max(MAX_BEHIND, log.count('record') * BEHIND_SHARE)
    return floor >= log.compactedRevision && log.revision - floor <= behind
  }
}

/** Several snapshots in sequence. */
class ViewSnapshot implements TakenSnapshot {
  readonly floor: number
  readonly isWhole: boolean
  readonly #pieces: readonly [TakenSnapshot, ...TakenSnapshot[]]
  #piece = 0
  #next = 0

  constructor(pieces: readonly [TakenSnapshot, ...TakenSnapshot[]]) {
    this.#pieces = pieces
    this.floor = Math.min(...pieces.map(({ floor }) => floor))
    this.isWhole = pieces[0].isWhole
  }

  async part(): Promise<Part | undefined> {
    for (let piece = this.#pieces[this.#piece]; piece !== undefined; piece = this.#pieces[this.#piece]) {
      const part = await piece.part(this.#next)
      this.#next += 1
      if (part !== undefined) return part
      this.#piece += 1
      this.#next = 0
    }
    return undefined
  }

  release(): void {
    for (const piece of this.#pieces) piece.release()
  }
}

interface OneOptions extends Omit<SnapshotOptions, 'view'> {
  /** Absent if it shows everything, in the order of revisions. */
  readonly keys?: () => string[]
  /** Undefined if the members of its streams link with all. */
  readonly sight?: Sight | undefined
  /** Whether many streams get it, so that slow compression is worth it. */
  readonly isForMany: boolean
}

class Snapshot implements TakenSnapshot {
  readonly floor: number
  readers = 0
  readonly #deps: SnapshotsDeps
  readonly #options: OneOptions
  readonly #onReleased: () => void
  readonly #parts: { readonly narrowedAt: number; readonly part: Promise<Part | undefined> }[] = []
  /** Keys as of the first part. Later records are sent as changes. */
  #keys: readonly string[] | undefined

  constructor(deps: SnapshotsDeps, floor: number, options: OneOptions, onReleased: () => void) {
    this.#deps = deps
    this.floor = floor
    this.#options = options
    this.#onReleased = onReleased
  }

  get isWhole(): boolean {
    return this.#options.since === undefined
  }

  taken(): this {
    this.readers += 1
    return this
  }

  release(): void {
    this.readers -= 1
    if (this.readers === 0) this.#onReleased()
  }

  async part(i: number): Promise<Part | undefined> {
    const { views } = this.#deps
    for (let tries = 0; ; tries += 1) {
      const narrowedAt = views?.index.readers.narrowedAt ?? 0
      const known = this.#parts[i]
      const part = known?.narrowedAt === narrowedAt ? known.part : this.#make(i, known?.part)
      this.#parts[i] = { narrowedAt, part }
      const made = await part
      // A record may have been narrowed while the part was made.
      if (narrowedAt === (views?.index.readers.narrowedAt ?? 0) || tries === MAX_TRIES) return made
    }
  }

  /** `former` is the same part as it was made before. */
  async #make(i: number, former: Promise<Part | undefined> | undefined): Promise<Part | undefined> {
    const before = i === 0 ? undefined : await (this.#parts[i - 1]?.part ?? this.part(i - 1))
    if (i > 0 && before === undefined) return undefined
    const again = await former
    if (former !== undefined && again === undefined) return undefined
    const events: Uint8Array[] = []
    const end = await this.#collect(before?.end ?? 0, events, again?.end)
    if (events.length === 0 && again === undefined) return undefined
    const { packed, since, keys, isForMany } = this.#options
    // Records by namespace are not in the order of revisions, so they do not advance the stream.
    const revision = keys === undefined ? end : 0
    const plain: WatchMessage = since === undefined ? { t: 'batch', events, revision } : { t: 'added', events }
    const packing = isForMany ? packWell : packQuickly
    const message: WatchMessage = packed ? { t: 'packed', zstd: await packing(encodeWatchMessage(plain)) } : plain
    return { message, events: events.length, end, revision }
  }

  /** Adds the events of one part and returns the position at its end, which is `until` if given. */
  async #collect(from: number, events: Uint8Array[], until?: number): Promise<number> {
    const [maxEvents, maxBytes] = this.#options.packed ? [PACKED_EVENTS, PACKED_BYTES] : [PLAIN_EVENTS, PLAIN_BYTES]
    let end = from
    let bytes = 0
    for (;;) {
      const page = this.#page(end)
      if (page.length === 0) return until ?? end
      for (const { change, at } of page) {
        if (until !== undefined && at > until) return until
        // Removals are of no use to a stream that starts without state.
        if (change?.value !== undefined && this.#isShown(change.key)) {
          const event = this.#deps.encode(change, this.#options.sight)
          if (until === undefined && events.length > 0 && bytes + event.length > maxBytes) return end
          events.push(event)
          bytes += event.length
        }
        end = at
        if (until === undefined && events.length === maxEvents) return end
      }
      await nextTurn()
    }
  }

  #isShown(key: string): boolean {
    const readers = this.#deps.views?.index.readers
    const { member, sight } = this.#options
    if (sight?.shows(parseRecordKey(key)) === false) return false
    if (readers === undefined) return true
    return member === undefined ? !readers.isRestricted(key) : readers.isShown(key, member)
  }

  /** The records of one turn. Empty at the end. */
  #page(from: number): { readonly change: Change<'record'> | undefined; readonly at: number }[] {
    const { log } = this.#deps
    const { keys } = this.#options
    if (keys === undefined) {
      const changes = log.recordsAfter(from, TURN_EVENTS).filter(({ revision }) => revision <= this.floor)
      return changes.map((change) => ({ change, at: change.revision }))
    }
    this.#keys ??= keys()
    return this.#keys.slice(from, from + TURN_EVENTS).map((key, i) => {
      const row = log.row('record', key)
      const isOld = row !== undefined && row.revision <= this.floor
      return { change: isOld ? { scope: 'record', ...row } : undefined, at: from + i + 1 }
    })
  }
}

// Rate limiter for what is made for one member alone. Streams that ask for everything share parts. A stream that asks
// for some namespaces may be the only one with that set, and each set is made separately. So a member may be sent
// everything a few times at once, and then at a rate. All streams of a member share the limiter.

/** Records that a member is sent at once, or twice the number of all records if that is more. */
const BURST = 100_000
const PER_SECOND = 10_000
/** Cost of the start of a stream, in addition to one for each namespace that it names. */
const START = 1000
/** Limit of one pause: a member takes a broker that does not answer for longer for dead. */
const MAX_PAUSE_MS = 5000

/** The cost of the start of a stream. */
export function startCost(interest: AskedInterest | undefined): number {
  return START + (interest?.namespaces.size ?? 0)
}

export class SnapshotRateLimiter {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #used = new Map<ClusterId, TokenBucket>()

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock
  }

  /**
   * Takes how many records a member was sent and how many exist, and returns the pause before the next ones in
   * milliseconds.
   */
  takes(cluster: ClusterId, count: number, records: number): number {
    const bucket = this.#used.get(cluster) ?? new TokenBucket(this.#clock)
    this.#used.set(cluster, bucket)
    const pauseMs = bucket.take(count, { burst: Math.max(BURST, 2 * records), perSecond: PER_SECOND })
    return Math.min(MAX_PAUSE_MS, pauseMs)
  }
}
