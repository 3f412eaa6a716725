/**
 * What has changed since a revision, as one message for all streams that stand there: it is encoded once, however many
 * they are. Slow streams stand further back, so there are several at a time.
 */
import type { RecordEvent, WatchMessage } from '../../protocol/broker-api.ts'
import { encodeWatchMessage } from '../../protocol/codec/messages-codec.ts'
import { encodePut, encodeRecordEvent } from '../../protocol/codec/records-codec.ts'
import { pack } from '../../protocol/codec/watch/pack.ts'
import { packedBody } from '../log/packed-row.ts'
import type { Change, RecordLog } from '../log/record-log.ts'
import type { BrokerMetrics } from '../metrics.ts'
import { parseRecordKey, storedRecord } from '../state/state.ts'
import type { View } from './view.ts'

/**
 * Bounds of one batch: what a stream is handed at once. As much as is packed well in the turn of one stream (pack()):
 * of slices that is two thirds of what the same in one piece would be, packed quickly.
 */
const MAX_EVENTS = 256
const MAX_BYTES = 112 * 1024
/** Below that packing gains less than it costs. */
const PACK_BYTES = 4096
/** Events and messages that are kept for the next stream. */
const KEPT_EVENTS = 2048
const KEPT_BATCHES = 64
const KEPT_OF_VIEW = 4
/** Changes that are looked at for one batch of a view, shown or not. */
const MOST_LOOKED_AT = 4096

export interface LiveBatch {
  readonly plain: WatchMessage
  readonly events: number
  /** Where a stream stands that has it. */
  readonly revision: number
}

interface Kept extends LiveBatch {
  /** Of the log when it was made. */
  readonly madeAt: number
  readonly bytes: number
  packed: WatchMessage | undefined
}

export class LiveBatches {
  readonly #log: RecordLog
  readonly #metrics: Pick<BrokerMetrics, 'encoded'>
  /** By the revision of the first change in it. */
  readonly #kept = new Map<number, Kept>()
  readonly #keptOf = new WeakMap<View, Map<number, Kept>>()
  readonly #events = new Map<Change<'record'>, Uint8Array>()
  readonly #packed = new WeakMap<WatchMessage, WatchMessage>()
  #empty: Extract<WatchMessage, { t: 'batch' }> | undefined

  constructor(log: RecordLog, metrics: Pick<BrokerMetrics, 'encoded'>) {
    this.#log = log
    this.#metrics = metrics
  }

  /** Undefined when nothing has changed since that the view shows; without a view, nothing at all. */
  after(revision: number, view?: View): LiveBatch | undefined {
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

  /** Says nothing but where the stream stands: what came since was not for it. */
  nothingUpTo(revision: number): WatchMessage {
    if (this.#empty?.revision !== revision) this.#empty = { t: 'batch', events: [], revision }
    return this.#empty
  }

  /** The message for one that unpacks. */
  packed(batch: LiveBatch): WatchMessage {
    const kept = batch as Kept
    if (kept.bytes < PACK_BYTES) return kept.plain
    return (kept.packed ??= { t: 'packed', zstd: pack(encodeWatchMessage(kept.plain)) })
  }

  /** Of any message: small ones stay as they are. */
  packedMessage(message: WatchMessage): WatchMessage {
    const known = this.#packed.get(message)
    if (known !== undefined) return known
    const bytes = encodeWatchMessage(message)
    const packed: WatchMessage = bytes.length < PACK_BYTES ? message : { t: 'packed', zstd: pack(bytes) }
    this.#packed.set(message, packed)
    return packed
  }

  /** For a snapshot: one of all records would push out what is needed again. */
  encode(change: Change<'record'>): Uint8Array {
    this.#metrics.encoded.inc()
    const { key, revision, value } = change
    const body = value === undefined ? undefined : packedBody(value)
    if (value === undefined || body === undefined) return encodeRecordEvent(eventOf(change))
    return encodePut({ key: parseRecordKey(key), revision, createdAtMs: value.createdAtMs }, body)
  }

  #make(after: number, view: View | undefined): Kept | undefined {
    const events: Uint8Array[] = []
    let bytes = 0
    let revision = after
    let looked = 0
    for (let isOver = false; !isOver;) {
      const changes = this.#log.recordsAfter(revision, MAX_EVENTS)
      for (const change of changes) {
        if (view?.shows(change.key) !== false) {
          const event = this.#event(change)
          isOver = events.length === MAX_EVENTS || (events.length > 0 && bytes + event.length > MAX_BYTES)
          if (isOver) break
          events.push(event)
          bytes += event.length
        }
        revision = change.revision
      }
      looked += changes.length
      if (changes.length < MAX_EVENTS && events.length === 0) return undefined
      isOver ||= view === undefined || changes.length < MAX_EVENTS || looked >= MOST_LOOKED_AT
    }
    const plain: WatchMessage = { t: 'batch', events, revision }
    return { plain, events: events.length, revision, madeAt: this.#log.revision, bytes, packed: undefined }
  }

  #ofView(view: View): Map<number, Kept> {
    const kept = this.#keptOf.get(view) ?? new Map<number, Kept>()
    this.#keptOf.set(view, kept)
    return kept
  }

  #event(change: Change<'record'>): Uint8Array {
    const known = this.#events.get(change)
    if (known !== undefined) return known
    const bytes = this.encode(change)
    bounded(this.#events, change, bytes, KEPT_EVENTS)
    return bytes
  }
}

/** Keeps the latest. */
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
