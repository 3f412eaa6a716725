/**
 * Whole snapshots, made once for all who start from nothing. A snapshot is of one revision, its floor: it holds every
 * record that was last written up to there and is still so when its part is made. Whatever has changed since then has a
 * later revision, removals too, and comes after the snapshot as a delta. So a part that was made a while ago is as good
 * as one that is made now.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { WatchMessage } from '../../protocol/broker-api.ts'
import { encodeWatchMessage } from '../../protocol/codec/messages-codec.ts'
import { packWell } from '../../protocol/codec/watch/pack.ts'
import type { Clock } from '../../reconcile/clock.ts'
import type { Change, RecordLog } from '../log/record-log.ts'
import type { View, Views } from './view.ts'

/** Records that are encoded in one turn of the event loop. */
const TURN_EVENTS = 256
const PLAIN_EVENTS = 256
const PLAIN_BYTES = 1024 * 1024
/** Packed, it is a tenth of that or less; larger parts pack better, and a reader takes each in one turn. */
const PACKED_EVENTS = 2048
const PACKED_BYTES = 512 * 1024
/** Of more changes since then a new one is made, unless they are few beside what there is. */
const MAX_BEHIND = 2000
const BEHIND_SHARE = 0.1
/** One that nobody reads is let go. */
const KEEP_MS = 10_000

export interface Part {
  readonly message: WatchMessage
  readonly events: number
  /** Where the next one begins. */
  readonly end: number
  /** As a stream says where it stands. */
  readonly revision: number
}

export interface SnapshotsDeps {
  readonly log: RecordLog
  readonly clock: Clock
  readonly encode: (change: Change<'record'>) => Uint8Array
  /** Absent: there are none. */
  readonly views?: Views
}

/** What is to be shown. */
export interface SnapshotOptions {
  readonly packed: boolean
  /** Absent: everything. */
  readonly view?: View | undefined
  /**
   * What a stream lacks that stands at this revision, as `added` and without what every view shows. Absent: a stream that
   * begins from nothing.
   */
  readonly since?: number
}

export class Snapshots {
  readonly #deps: SnapshotsDeps
  readonly #latest = new Map<string, Snapshot>()

  constructor(deps: SnapshotsDeps) {
    this.#deps = deps
  }

  /** To be given back by release(). */
  take(options: SnapshotOptions): Snapshot {
    const { log } = this.#deps
    const kind = `${options.packed ? 'packed' : 'plain'} ${options.since === undefined ? '' : 'added'} ${options.view?.id ?? ''}`
    const known = this.#latest.get(kind)
    // Of what was removed up to `since` the stream would not hear again.
    if (known !== undefined && known.floor >= (options.since ?? 0) && this.#isGood(known)) return known.taken()
    const made = new Snapshot(this.#deps, log.revision, options)
    this.#latest.set(kind, made)
    return made.taken()
  }

  release(snapshot: Snapshot): void {
    if (snapshot.released() > 0) return
    this.#deps.clock.setTimer(KEEP_MS, () => {
      if (snapshot.readers > 0) return
      for (const [kind, one] of this.#latest) if (one === snapshot) this.#latest.delete(kind)
    })
  }

  #isGood({ floor }: Snapshot): boolean {
    const { log } = this.#deps
    const behind = Math.max(MAX_BEHIND, log.count('record') * BEHIND_SHARE)
    return floor >= log.compactedRevision && log.revision - floor <= behind
  }
}

export class Snapshot {
  /** Of the log when it was begun. */
  readonly floor: number
  readers = 0
  readonly #deps: SnapshotsDeps
  readonly #options: SnapshotOptions
  readonly #parts: Promise<Part | undefined>[] = []
  /** Of a view, as it was when the first part was made: whatever came later comes as a change. */
  #keys: readonly string[] | undefined

  constructor(deps: SnapshotsDeps, floor: number, options: SnapshotOptions) {
    this.#deps = deps
    this.floor = floor
    this.#options = options
  }

  /** For who starts from nothing. */
  get isWhole(): boolean {
    return this.#options.since === undefined
  }

  taken(): this {
    this.readers += 1
    return this
  }

  /** Gives how many readers are left. */
  released(): number {
    return (this.readers -= 1)
  }

  /** Undefined after the last. Parts are made in their order, when the first reader asks. */
  part(i: number): Promise<Part | undefined> {
    return (this.#parts[i] ??= this.#make(i))
  }

  async #make(i: number): Promise<Part | undefined> {
    const before = i === 0 ? undefined : await this.part(i - 1)
    if (i > 0 && before === undefined) return undefined
    const events: Uint8Array[] = []
    const end = await this.#collect(before?.end ?? 0, events)
    if (events.length === 0) return undefined
    const { packed, since, view } = this.#options
    // Records of a view do not come in the order of their revisions.
    const revision = view === undefined ? end : this.floor
    const plain: WatchMessage = since === undefined ? { t: 'batch', events, revision } : { t: 'added', events }
    const message: WatchMessage = packed ? { t: 'packed', zstd: await packWell(encodeWatchMessage(plain)) } : plain
    return { message, events: events.length, end, revision }
  }

  /** Adds the events of one part, and gives how far it goes. */
  async #collect(from: number, events: Uint8Array[]): Promise<number> {
    const [maxEvents, maxBytes] = this.#options.packed ? [PACKED_EVENTS, PACKED_BYTES] : [PLAIN_EVENTS, PLAIN_BYTES]
    let end = from
    let bytes = 0
    for (;;) {
      const page = this.#page(end)
      if (page.length === 0) return end
      for (const { change, at } of page) {
        // A removal says nothing to somebody who starts from nothing.
        if (change?.value !== undefined) {
          const event = this.#deps.encode(change)
          if (events.length > 0 && bytes + event.length > maxBytes) return end
          events.push(event)
          bytes += event.length
        }
        end = at
        if (events.length === maxEvents) return end
      }
      await nextTurn()
    }
  }

  /** What is looked at in one turn; empty: that was all. */
  #page(from: number): { readonly change: Change<'record'> | undefined; readonly at: number }[] {
    const { log, views } = this.#deps
    const { view, since } = this.#options
    if (view === undefined) {
      const changes = log.recordsAfter(from, TURN_EVENTS).filter(({ revision }) => revision <= this.floor)
      return changes.map((change) => ({ change, at: change.revision }))
    }
    this.#keys ??= views?.index(view.audience).keys(view.interest, since === undefined) ?? []
    return this.#keys.slice(from, from + TURN_EVENTS).map((key, i) => {
      const row = log.row('record', key)
      const isOld = row !== undefined && row.revision <= this.floor
      return { change: isOld ? { scope: 'record', ...row } : undefined, at: from + i + 1 }
    })
  }
}
