/** Follows one Watch stream by its numbers: its position, and how much arrived. */
import type { WatchRequest } from '../../../protocol/broker-api.ts'
import { unpack } from '../../../protocol/codec/watch-codec.ts'
import { MAX_MESSAGE_BYTES } from '../../../protocol/limits.ts'
import { agesOf } from '../mark.ts'
import { Reader, readBatch, readWatchMessage } from './watch-message.ts'

const [RESET, BATCH, SYNCED, PACKED] = [1, 2, 3, 5]
const WATCH_SKILLS: WatchRequest['takes'] & object = ['zstd', 'owners']

type Interest = ReadonlySet<string> | undefined

export interface Watching {
  readonly fresh: boolean
  readonly old: boolean
}

export class WatchReader {
  readonly #onChange: (ageMs: number) => void
  readonly #unpacksAll: boolean
  readonly #interest: Interest
  #isFresh = true
  #position: { epoch: string; revision: number } | undefined
  /** The epoch of the snapshot that is arriving; it counts only when it is complete. */
  #epoch = ''
  synced = false
  /** The bytes of the messages on the wire. */
  bytes = 0
  events = 0
  /** The bytes of the events without compression. */
  eventBytes = 0
  /** Whether the ages of changes are reported; those in a snapshot are old. */
  isLive = false
  /** Is called for each `synced`. */
  onSynced: () => void = () => undefined

  /** Only a reader that counts records unpacks whole snapshots, because the machine should be left to the broker. */
  constructor(onChange: (ageMs: number) => void, unpacksAll: boolean, interest: Interest) {
    this.#interest = interest
    this.#onChange = onChange
    this.#unpacksAll = unpacksAll
  }

  begin({ fresh, old }: Watching): WatchRequest {
    this.synced = false
    if (fresh) this.#position = undefined
    this.#isFresh = this.#position === undefined
    const namespaces = this.#interest
    const interest = namespaces === undefined ? {} : { interest: { namespaces, missing: new Set<string>() } }
    const takes = old ? {} : { takes: WATCH_SKILLS, ...interest }
    return this.#position === undefined ? takes : { ...takes, resume: { ...this.#position } }
  }

  /** Whether it unpacks everything, so that its counts are complete. */
  get countsAll(): boolean {
    return this.#unpacksAll
  }

  closed(): void {
    this.synced = false
  }

  /** Resets the counts. */
  zero(): void {
    this.bytes = 0
    this.events = 0
    this.eventBytes = 0
  }

  take(bytes: Buffer): void {
    this.bytes += bytes.length
    this.#take(bytes)
  }

  #take(bytes: Buffer): void {
    const { kind, body } = readWatchMessage(bytes)
    if (kind === RESET) this.#epoch = readEpoch(body)
    else if (kind === BATCH) this.#batch(body)
    else if (kind === PACKED) this.#packed(body)
    else if (kind === SYNCED) {
      this.#position = { epoch: this.#epoch, revision: readRevision(body) }
      this.synced = true
      this.onSynced()
    }
  }

  #packed(body: Buffer): void {
    if (this.#isFresh && !this.synced && !this.#unpacksAll) return
    const reader = new Reader(body)
    reader.varint()
    this.#take(Buffer.from(unpack(reader.bytes(), MAX_MESSAGE_BYTES)))
  }

  #batch(body: Buffer): void {
    const { events, bytes, revision } = readBatch(body)
    this.events += events
    this.eventBytes += bytes
    if (!this.synced) return
    if (this.#position !== undefined) this.#position.revision = revision
    if (this.isLive) for (const age of agesOf(body)) this.#onChange(age)
  }
}

function readEpoch(body: Buffer): string {
  const reader = new Reader(body)
  reader.varint()
  return reader.bytes().toString()
}

/** The first field; it is absent if it is 0. */
function readRevision(body: Buffer): number {
  const reader = new Reader(body)
  return reader.over || reader.varint() >> 3 !== 1 ? 0 : reader.varint()
}
