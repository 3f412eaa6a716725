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

/** Bounds of one batch: what a stream is handed at once. */
const MAX_EVENTS = 256
const MAX_BYTES = 1024 * 1024
/** Below that packing gains less than it costs. */
const PACK_BYTES = 4096
/** Events and messages that are kept for the next stream. */
const KEPT_EVENTS = 2048
const KEPT_BATCHES = 64

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
  readonly #events = new Map<Change<'record'>, Uint8Array>()

  constructor(log: RecordLog, metrics: Pick<BrokerMetrics, 'encoded'>) {
    this.#log = log
    this.#metrics = metrics
  }

  /** Undefined when nothing has changed since. */
  after(revision: number): LiveBatch | undefined {
    const [first] = this.#log.recordsAfter(revision, 1)
    if (first === undefined) return undefined
    const known = this.#kept.get(first.revision)
    if (known?.madeAt === this.#log.revision) return known
    const made = this.#make(revision)
    bounded(this.#kept, first.revision, made, KEPT_BATCHES)
    return made
  }

  /** The message for one that unpacks. */
  packed(batch: LiveBatch): WatchMessage {
    const kept = batch as Kept
    if (kept.bytes < PACK_BYTES) return kept.plain
    return (kept.packed ??= { t: 'packed', zstd: pack(encodeWatchMessage(kept.plain)) })
  }

  /** For a snapshot: one of all records would push out what is needed again. */
  encode(change: Change<'record'>): Uint8Array {
    this.#metrics.encoded.inc()
    const { key, revision, value } = change
    const body = value === undefined ? undefined : packedBody(value)
    if (value === undefined || body === undefined) return encodeRecordEvent(eventOf(change))
    return encodePut({ key: parseRecordKey(key), revision, createdAtMs: value.createdAtMs }, body)
  }

  #make(after: number): Kept {
    const events: Uint8Array[] = []
    let bytes = 0
    let revision = after
    for (const change of this.#log.recordsAfter(after, MAX_EVENTS)) {
      const event = this.#event(change)
      if (events.length > 0 && bytes + event.length > MAX_BYTES) break
      revision = change.revision
      events.push(event)
      bytes += event.length
    }
    const plain: WatchMessage = { t: 'batch', events, revision }
    return { plain, events: events.length, revision, madeAt: this.#log.revision, bytes, packed: undefined }
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
