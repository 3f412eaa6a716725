/** A member of the clusterset that publishes and watches, and keeps only numbers. */
import type { SecureContext } from 'node:tls'
import type { MemberRecord } from '../../../model/records.ts'
import type { PublishReply } from '../../../protocol/broker-api.ts'
import { contentHash, memberKey, memberKeyText, setHash } from '../../../protocol/codec/content-hash.ts'
import { decodePublishReply, encodePublishMessage, encodeWatchRequest } from '../../../protocol/codec/messages-codec.ts'
import { BrokerService } from '../../../protocol/gen/broker.ts'
import { SERVER_NAME } from '../../../protocol/identity/certificates.ts'
import { type LeanCall, LeanChannel } from './lean-channel.ts'
import { type Site, interestOf, siteRecords } from './records.ts'
import { type Watching, WatchReader } from './watch-reader.ts'

const ACK_EVERY = 256
/** One member in so many unpacks whole snapshots and counts their records. */
const ONE_IN = 50

export interface LeanMemberInit {
  readonly site: Site
  readonly context: SecureContext
  readonly onChange: (ageMs: number) => void
}

export interface ConnectInit {
  /** The port of the broker that is called. */
  readonly port: number
  readonly timeoutMs: number
  /** Whether the watch starts without the earlier state. */
  readonly fresh: boolean
  /** Whether it behaves as a member of the previous release. */
  readonly old: boolean
}

export class LeanMember {
  readonly site: Site
  readonly watching: WatchReader
  readonly #init: LeanMemberInit
  /** The hashes of the records that the broker should have, by memberKeyText. */
  readonly #hashes = new Map<string, Uint8Array>()
  /** The records it has published in place of those of its site, by the same key. */
  readonly #changed = new Map<string, MemberRecord>()
  #channel: LeanChannel | undefined
  #publish: LeanCall | undefined
  #sequence = 0
  #acknowledged = 0
  #published = false
  #wasInSync = false
  #asked = 0
  #lostAt: number | undefined
  #outageMs = 0
  #refused: string | undefined
  #onClosed: (why: string) => void = () => undefined

  constructor(init: LeanMemberInit) {
    this.#init = init
    this.site = init.site
    this.watching = new WatchReader(init.onChange, init.site.index % ONE_IN === 0, interestOf(init.site))
    this.watching.onSynced = () => this.#settled()
    for (const record of siteRecords(init.site)) this.#remember(record)
  }

  get bytesRead(): number {
    return this.#channel?.bytesRead ?? 0
  }

  /** Whether the broker has its whole set, and it has all that the broker has. */
  get inSync(): boolean {
    return this.#published && this.#acknowledged === this.#sequence && this.watching.synced
  }

  /** Whether it was in sync when it lost its last connection. */
  get wasInSync(): boolean {
    return this.#wasInSync
  }

  get published(): boolean {
    return this.#published && this.#acknowledged === this.#sequence
  }

  /** The text of a refusal, for repairing the benchmark. */
  get refused(): string | undefined {
    return this.#refused
  }

  /** The number of records that the broker requested, since zero(). */
  get asked(): number {
    return this.#asked
  }

  /** The longest outage that ended since zero(): from a lost connection until both streams work. */
  get outageMs(): number {
    return this.#outageMs
  }

  zero(): void {
    this.#asked = 0
    this.#outageMs = 0
    this.watching.zero()
  }

  /** Opens a connection with its Publish stream. `onClosed` is called once, when the connection has ended. */
  connect(
    { port, timeoutMs, fresh, old }: ConnectInit,
    streams: 'both' | 'publish',
    onClosed: (why: string) => void,
  ): void {
    const { context } = this.#init
    this.#onClosed = onClosed
    this.#published = false
    this.#sequence = 0
    this.#acknowledged = 0
    const channel = new LeanChannel({ port, servername: SERVER_NAME, context, timeoutMs }, (why) => {
      if (this.#channel !== channel) return
      this.#channel = undefined
      this.#wasInSync = this.watching.synced
      if (this.#wasInSync) this.#lostAt = performance.now()
      this.#published = false
      this.watching.closed()
      this.#onClosed(why)
    })
    this.#channel = channel
    this.#openPublish(channel)
    if (streams === 'both') this.watch(this.watching, { fresh, old })
  }

  /** Opens a Watch on the connection; each of several belongs to a reader of its own. */
  watch(reader: WatchReader, { fresh, old }: Watching): LeanCall {
    const channel = this.#channel
    if (channel === undefined) throw new Error(`${this.site.cluster} is not connected`)
    const request = encodeWatchRequest(reader.begin({ fresh, old }))
    const onEnd = (): void => (this.#channel === channel ? channel.close() : undefined)
    const call = channel.call(BrokerService.watch.path, (bytes) => reader.take(bytes), onEnd)
    call.send(request)
    call.end()
    return call
  }

  put(record: MemberRecord): void {
    this.#remember(record)
    this.#changed.set(memberKeyText(memberKey(record)), record)
    this.#sequence += 1
    this.#publish?.send(encodePublishMessage({ t: 'put', sequence: this.#sequence, record }))
  }

  /** Closes the connection; the broker learns of it only from the kernel. */
  close(): void {
    this.#onClosed = () => undefined
    this.#channel?.close()
  }

  pause(): void {
    this.#channel?.pause()
  }

  #openPublish(channel: LeanChannel): void {
    const onEnd = (): void => (this.#channel === channel ? channel.close() : undefined)
    const publish = channel.call(BrokerService.publish.path, (bytes) => this.#onReply(decodePublishReply(bytes)), onEnd)
    this.#publish = publish
    const set = setHash(this.#hashes.values())
    publish.send(encodePublishMessage({ t: 'declare', setHash: set, count: this.#hashes.size }))
  }

  #onReply(reply: PublishReply | undefined): void {
    switch (reply?.t) {
      case 'inSync':
        this.#published = true
        this.#settled()
        return
      case 'sendDigest':
        this.#sendDigest()
        return
      case 'need':
        this.#asked += reply.keys.length
        this.#sendAll(new Set(reply.keys.map(memberKeyText)))
        return
      case 'ack':
        this.#acknowledged = reply.sequence
        return
      case 'refused':
        this.#refused ??= `${this.site.cluster}: ${reply.field}: ${reply.message}`
        return
      case 'quota':
      case undefined:
    }
  }

  #sendDigest(): void {
    const known = this.#records()
    const entries = [...this.#hashes].flatMap(([key, hash]) => {
      const record = known.get(key)
      return record === undefined ? [] : [{ key: memberKey(record), hash }]
    })
    this.#publish?.send(encodePublishMessage({ t: 'digest', entries, last: true }))
  }

  #sendAll(needed: ReadonlySet<string>): void {
    for (const [key, record] of this.#records()) {
      if (!needed.has(key)) continue
      this.#sequence += 1
      this.#publish?.send(encodePublishMessage({ t: 'put', sequence: this.#sequence, record }))
      if (this.#sequence % ACK_EVERY === 0 && this.#refused !== undefined) return
    }
    this.#published = true
    this.#settled()
  }

  #records(): ReadonlyMap<string, MemberRecord> {
    const first = siteRecords(this.site).map((record) => [memberKeyText(memberKey(record)), record] as const)
    return new Map([...first, ...this.#changed])
  }

  #settled(): void {
    if (this.#lostAt === undefined || !this.#published || !this.watching.synced) return
    this.#outageMs = Math.max(this.#outageMs, performance.now() - this.#lostAt)
    this.#lostAt = undefined
  }

  #remember(record: MemberRecord): void {
    this.#hashes.set(memberKeyText(memberKey(record)), contentHash(record))
  }
}
