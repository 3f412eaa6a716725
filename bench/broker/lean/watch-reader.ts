/** Follows one Watch stream by its numbers: where it stands, and what came. */
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
  /** Of the snapshot that comes: it counts once it is whole. */
  #epoch = ''
  synced = false
  /** Messages on the wire, in bytes. */
  bytes = 0
  events = 0
  /** Of the events as they are without compression. */
  eventBytes = 0
  /** Changes' ages are reported: what a snapshot holds is old. */
  isLive = false
  /** Called for each `synced`. */
  onSynced: () => void = () => undefined

  /** Whole snapshots are unpacked only by one that counts what is in them: the machine is for the broker. */
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

  /** It unpacks everything: what it has counted is all that came. */
  get countsAll(): boolean {
    return this.#unpacksAll
  }

  closed(): void {
    this.synced = false
  }

  /** Forgets what was counted. */
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

/** The first field; absent where it is 0. */
function readRevision(body: Buffer): number {
  const reader = new Reader(body)
  return reader.over || reader.varint() >> 3 !== 1 ? 0 : reader.varint()
}
