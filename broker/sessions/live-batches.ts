/**
 * The changes since a revision, as one message for all streams at that revision: it is encoded once for all of them.
 * Slow streams are further behind, so several messages are kept. If some of the changes are for some members only, there
 * is one message for all streams that are sent the same of them.
 */
import type { RecordEvent, WatchMessage } from '../../protocol/protocol.ts'
import { encodePut, encodeRecordEvent, encodeWatchMessage, pack } from '../../protocol/codec/codec.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { asTheRowSays } from '../addresses/addresses.ts'
import type { BrokerMetrics } from '../config/config.ts'
import { type Change, type RecordLog, type Row, packedBody, parseRecordKey, storedRecord } from '../store/store.ts'
import type { NamespaceIndex } from './exported-namespaces.ts'
import type { Readers, Sent } from './readers.ts'
import type { View } from './filter.ts'
import type { Sight } from './sights.ts'

/**
 * Limits of a batch, the unit in which a stream is sent changes. pack() can compress this much well in the turn of one
 * stream. For slices, the result is two thirds of what quick compression of the same data in one piece gives.
 */
const MAX_EVENTS = 256
const MAX_BYTES = 112 * 1024
/** Below this size, compression gains less than it costs. */
const PACK_BYTES = 4096
/** Events and messages that are kept for the next stream. */
const KEPT_EVENTS = 2048
const KEPT_BATCHES = 64
const KEPT_OF_VIEW = 4
/** Limit of changes that are checked for one batch of a view, shown or not. */
const MOST_LOOKED_AT = 4096

export interface LiveBatch {
  readonly plain: WatchMessage
  readonly events: number
  /** The revision of a stream that has received the batch. */
  readonly revision: number
}

/** A change that is not the same for all members. */
interface Case {
  readonly change: Change<'record'>
  /** Records of its service that may have other readers since. */
  readonly dependents: readonly string[]
  /** The members of the view may not have the record itself. */
  readonly isHidden: boolean
}

interface Kept extends LiveBatch {
  /** Revision of the log when the batch was made. */
  readonly madeAt: number
  readonly bytes: number
  packed: WatchMessage | undefined
  /** Absent if the batch is the same for all members. */
  readonly apart?: { readonly slots: readonly (Uint8Array | Case)[]; readonly variants: Map<string, Kept> }
}

export class LiveBatches {
  readonly #log: RecordLog
  readonly #metrics: Pick<BrokerMetrics, 'encoded'>
  /** Batches without a view, by the revision of the first change in them. */
  readonly #kept = new Map<number, Kept>()
  readonly #keptOf = new WeakMap<View, Map<number, Kept>>()
  readonly #events = new Map<Change<'record'>, Uint8Array>()
  readonly #rows = new WeakMap<object, { readonly revision: number; readonly event: Uint8Array }>()
  readonly #packed = new WeakMap<WatchMessage, WatchMessage>()
  #empty: Extract<WatchMessage, { t: 'batch' }> | undefined

  readonly #index: NamespaceIndex | undefined
  readonly #readers: Readers | undefined

  /** Without `index`, all records are for all members. The caller keeps it up to date. */
  constructor(log: RecordLog, metrics: Pick<BrokerMetrics, 'encoded'>, index?: NamespaceIndex) {
    this.#log = log
    this.#metrics = metrics
    this.#index = index
    this.#readers = index?.readers
  }

  /**
   * Undefined if nothing has changed that the view shows, or nothing at all without a view. Without events if none of the
   * changes is for the member.
   */
  after(revision: number, view?: View, member = ''): LiveBatch | undefined {
    const kept = this.#all(revision, view)
    return kept?.apart === undefined ? kept : this.#variant(kept, kept.apart, member, revision)
  }

  #all(revision: number, view: View | undefined): Kept | undefined {
    const from = view === undefined ? revision : view.quiet.skip(revision)
    const [first] = this.#log.recordsAfter(from, 1)
    if (first === undefined) return undefined
    const kept = view === undefined ? this.#kept : this.#ofView(view)
    const known = kept.get(first.revision)
    if (known?.madeAt === this.#log.revision) return known
    const made = this.#make(from, view)
    if (made === undefined) view?.quiet.note(from, this.#log.revision)
    else bounded(kept, first.revision, made, view === undefined ? KEPT_BATCHES : KEPT_OF_VIEW)
    return made
  }

  /** An empty batch that advances the stream to the revision: no change since was for it. */
  nothingUpTo(revision: number): WatchMessage {
    if (this.#empty?.revision !== revision) this.#empty = { t: 'batch', events: [], revision }
    return this.#empty
  }

  /** The message for a stream that accepts compression. */
  packed(batch: LiveBatch): WatchMessage {
    const kept = batch as Kept
    if (kept.bytes < PACK_BYTES) return kept.plain
    return (kept.packed ??= { t: 'packed', zstd: pack(encodeWatchMessage(kept.plain)) })
  }

  /** Compresses any message. Small ones are returned as they are. */
  packedMessage(message: WatchMessage): WatchMessage {
    const known = this.#packed.get(message)
    if (known !== undefined) return known
    const bytes = encodeWatchMessage(message)
    const packed: WatchMessage = bytes.length < PACK_BYTES ? message : { t: 'packed', zstd: pack(bytes) }
    this.#packed.set(message, packed)
    return packed
  }

  /**
   * Encodes an event for a snapshot without keeping it: all records of a snapshot would displace the events that are
   * needed again. A status is encoded as members of the sight may read it.
   */
  encode(change: Change<'record'>, sight?: Sight): Uint8Array {
    this.#metrics.encoded.inc()
    const { key, revision, value } = sight === undefined ? change : this.#asSeen(change, sight)
    const body = value === undefined ? undefined : packedBody(value)
    if (value === undefined) return encodeRecordEvent(eventOf(change))
    if (body === undefined)
      return encodeRecordEvent(
        eventOf({ key, revision, scope: change.scope, value: asTheRowSays(this.#log, key, value) }),
      )
    return encodePut({ key: parseRecordKey(key), revision, createdAtMs: value.createdAtMs }, body)
  }

  #asSeen(change: Change<'record'>, sight: Sight): Change<'record'> {
    const { value } = change
    if (!isStatus(change.key) || value?.body.kind !== 'MemberStatus' || this.#index === undefined) return change
    return { ...change, value: { ...value, body: this.#index.asSeen(value.body, sight) } }
  }

  /** Statuses that say more to the members of the sight since the change, as of its revision. */
  #statusEvents(change: Change<'record'>, sight: Sight | undefined): Uint8Array[] {
    if (sight === undefined) return []
    let bytes = 0
    return (this.#index?.statusesAfter(change, sight) ?? []).flatMap((id) => {
      const row = this.#log.row('record', `${id}/MemberStatus//${id}`)
      // A later status is a change of its own.
      if (row === undefined || row.revision > change.revision) return []
      const { key, value } = row
      const { body } = value
      if (body.kind !== 'MemberStatus') return []
      const { notImported, leftOut } = body
      // Of many, the rest say that they do not say it all, until they change.
      const short = { kind: 'MemberStatus' as const, notImported: [], leftOut: leftOut + notImported.length }
      const sent = bytes > MAX_BYTES ? { ...value, body: short } : value
      const event = this.encode({ scope: 'record', key, value: sent, revision: change.revision }, sight)
      bytes += event.length
      return [event]
    })
  }

  #make(after: number, view: View | undefined): Kept | undefined {
    const events: (Uint8Array | Case)[] = []
    let isApart = false
    let bytes = 0
    let revision = after
    let looked = 0
    for (let isOver = false; !isOver;) {
      const changes = this.#log.recordsAfter(revision, MAX_EVENTS)
      for (const change of changes) {
        const event = view?.concerns(change.key) === false ? undefined : this.#eventOrCase(change, view?.sight)
        if (event !== undefined) {
          const size = event instanceof Uint8Array ? event.length : (change.value?.bytes ?? 0)
          isOver = events.length >= MAX_EVENTS || (events.length > 0 && bytes + size > MAX_BYTES)
          if (isOver) break
          events.push(event)
          isApart ||= !(event instanceof Uint8Array)
          bytes += size
          for (const status of this.#statusEvents(change, view?.sight)) {
            events.push(status)
            bytes += status.length
          }
        }
        revision = change.revision
      }
      looked += changes.length
      if (changes.length < MAX_EVENTS && events.length === 0) return undefined
      isOver ||= view === undefined || changes.length < MAX_EVENTS || looked >= MOST_LOOKED_AT
    }
    const shared = isApart ? [] : (events as Uint8Array[])
    const plain: WatchMessage = { t: 'batch', events: shared, revision }
    const kept = { plain, events: shared.length, revision, madeAt: this.#log.revision, bytes, packed: undefined }
    return isApart ? { ...kept, apart: { slots: events, variants: new Map() } } : kept
  }

  /**
   * Undefined: the members of the sight may have nothing of it. The readers of a clusterset IP depend on all exports of
   * the service, also on those that they may not see.
   */
  #eventOrCase(change: Change<'record'>, sight: Sight | undefined): Uint8Array | Case | undefined {
    const isShown = (key: string): boolean => sight?.shows(parseRecordKey(key)) !== false
    const dependents = (this.#readers?.dependents(change.key) ?? []).filter(isShown)
    if (!isShown(change.key)) return dependents.length === 0 ? undefined : { change, dependents, isHidden: true }
    if (dependents.length > 0 || this.#readers?.isApart(change.key) === true)
      return { change, dependents, isHidden: false }
    return this.#event(change, sight)
  }

  /** Streams that are sent the same of each case share a message. */
  #variant(kept: Kept, { slots, variants }: NonNullable<Kept['apart']>, member: string, after: number): Kept {
    const sent = slots.flatMap((slot) => (slot instanceof Uint8Array ? [] : [this.#sent(slot, member, after)]))
    const id = sent.map((one) => one.map((word) => word.charAt(0)).join('')).join()
    const known = variants.get(id)
    if (known !== undefined) return known
    let at = 0
    const events = slots.flatMap((slot) => {
      if (slot instanceof Uint8Array) return [slot]
      at += 1
      return this.#eventsOf(slot, sent[at - 1] ?? [])
    })
    const bytes = events.reduce((sum, { length }) => sum + length, 0)
    const { revision, madeAt } = kept
    const plain: WatchMessage = { t: 'batch', events, revision }
    const made: Kept = { plain, events: events.length, revision, madeAt, bytes, packed: undefined }
    variants.set(id, made)
    return made
  }

  /** What a stream is sent of the record itself, and of each dependent. */
  #sent({ change, dependents, isHidden }: Case, member: string, after: number): readonly Sent[] {
    const readers = this.#readers
    if (readers === undefined) return []
    return [
      isHidden ? 'nothing' : readers.sent(change.key, member, after),
      ...dependents.map((key) => readers.sentOfDependent(key, member, after)),
    ]
  }

  /** In one batch, so that no reader sees a part of it: what a service consists of comes before its export. */
  #eventsOf({ change, dependents }: Case, [own = 'nothing', ...sent]: readonly Sent[]): Uint8Array[] {
    const { revision } = change
    const removal = (key: string): Uint8Array => encodeRecordEvent({ t: 'remove', key: parseRecordKey(key), revision })
    const parts = dependents.flatMap((key, i) => {
      const row = sent[i] === 'put' ? this.#log.row('record', key) : undefined
      if (row !== undefined) return [this.#rowEvent(row)]
      return sent[i] === 'remove' ? [removal(key)] : []
    })
    if (own === 'put' && change.value !== undefined) return [...parts, this.#event(change)]
    return [...(own === 'nothing' ? [] : [removal(change.key)]), ...parts]
  }

  /** Streams find the same row each time, so its event is kept by its value. */
  #rowEvent({ key, revision, value }: Row<'record'>): Uint8Array {
    const known = this.#rows.get(value)
    if (known?.revision === revision) return known.event
    const event = this.encode({ scope: 'record', key, revision, value })
    this.#rows.set(value, { revision, event })
    return event
  }

  #ofView(view: View): Map<number, Kept> {
    const kept = this.#keptOf.get(view) ?? new Map<number, Kept>()
    this.#keptOf.set(view, kept)
    return kept
  }

  #event(change: Change<'record'>, sight?: Sight): Uint8Array {
    if (sight !== undefined && isStatus(change.key)) return this.encode(change, sight)
    const known = this.#events.get(change)
    if (known !== undefined) return known
    const bytes = this.encode(change)
    bounded(this.#events, change, bytes, KEPT_EVENTS)
    return bytes
  }
}

function isStatus(key: string): boolean {
  return parseRecordKey(key).kind === 'MemberStatus'
}

/** Keeps the latest entries. */
function bounded<K, V>(map: Map<K, V>, key: K, value: V, most: number): void {
  map.delete(key)
  map.set(key, value)
  const oldest = map.size > most ? map.keys().next() : undefined
  if (oldest?.done === false) map.delete(oldest.value)
}

function eventOf(change: Change<'record'>): RecordEvent {
  if (change.value === undefined) return { t: 'remove', key: parseRecordKey(change.key), revision: change.revision }
  return { t: 'put', record: storedRecord(change.key, change.revision, change.value) }
}

/** Time that one turn of the event loop should take. */
const TURN_MS = 5
const FEWEST = 16
const MOST = 512
/** Timers have no finer resolution than this. */
const SHORTEST_REST_MS = 2
/** Limit of the rest after a round of any length, so that changes are still sent in time. */
const LONGEST_REST_MS = 100

/**
 * Wakes streams in slices and returns to the event loop between two slices: a thousand streams that write at once would
 * delay publishers, handshakes and pings until all have written. A round wakes each stream once. Streams that are to be
 * woken during a round wait for the next one, which begins after a rest as long as the last round. The changes of that
 * time are one message per stream, and half of the time is left for other work. The first change after a pause is sent
 * at once.
 */
export class WakeOrder {
  readonly #clock: Pick<Clock, 'monotonic' | 'setTimer'>
  /** Streams of this round, and of the next one. */
  #due = new Set<() => void>()
  #later = new Set<() => void>()
  #slice = 64
  #roundAt = 0
  #roundSize = 0
  #turnAt = 0
  #turn: NodeJS.Immediate | undefined
  #cancelRest: (() => void) | undefined

  constructor(clock: Pick<Clock, 'monotonic' | 'setTimer'>) {
    this.#clock = clock
  }

  /** Each stream is called once, soon. Streams that are due already keep their position. */
  wake(streams: Iterable<() => void>): void {
    for (const stream of streams) if (!this.#due.has(stream)) this.#later.add(stream)
    if (this.#turn === undefined && this.#cancelRest === undefined) this.#begin()
  }

  forget(stream: () => void): void {
    this.#due.delete(stream)
    this.#later.delete(stream)
  }

  close(): void {
    clearImmediate(this.#turn)
    this.#cancelRest?.()
    this.#turn = undefined
    this.#cancelRest = undefined
    this.#due.clear()
    this.#later.clear()
  }

  #begin(): void {
    if (this.#later.size === 0) return
    ;[this.#due, this.#later] = [this.#later, this.#due]
    this.#roundSize = this.#due.size
    this.#roundAt = this.#clock.monotonic()
    this.#run(this.#roundAt)
  }

  #run(now: number): void {
    this.#turnAt = now
    let left = this.#slice
    for (const stream of this.#due) {
      this.#due.delete(stream)
      stream()
      if ((left -= 1) === 0) break
    }
    this.#turn = setImmediate(() => this.#next())
  }

  #next(): void {
    const now = this.#clock.monotonic()
    // The time includes the work of the last slice's streams and all events in between.
    this.#adapt(now - this.#turnAt)
    if (this.#due.size > 0) this.#run(now)
    else this.#over(now)
  }

  #over(now: number): void {
    this.#turn = undefined
    const restMs = Math.min(now - this.#roundAt, LONGEST_REST_MS)
    // Few streams do not delay others, whatever else took the time.
    if (restMs < SHORTEST_REST_MS || this.#roundSize <= FEWEST) this.#begin()
    else
      this.#cancelRest = this.#clock.setTimer(restMs, () => {
        this.#cancelRest = undefined
        this.#begin()
      })
  }

  #adapt(tookMs: number): void {
    if (tookMs > TURN_MS) this.#slice = Math.max(FEWEST, this.#slice >> 1)
    else if (tookMs < TURN_MS / 2) this.#slice = Math.min(MOST, this.#slice + FEWEST)
  }
}
