/** A member of the clusterset that publishes and watches and keeps nothing but numbers. */
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
/** So many unpack whole snapshots, and count. */
const ONE_IN = 50

export interface LeanMemberInit {
  readonly site: Site
  readonly context: SecureContext
  readonly onChange: (ageMs: number) => void
}

export interface ConnectInit {
  /** Of the broker that is called. */
  readonly port: number
  readonly timeoutMs: number
  /** Without what it knew before. */
  readonly fresh: boolean
  /** As a member of the release before does. */
  readonly old: boolean
}

export class LeanMember {
  readonly site: Site
  readonly watching: WatchReader
  readonly #init: LeanMemberInit
  /** By memberKeyText: what the broker is to have. */
  readonly #hashes = new Map<string, Uint8Array>()
  /** By the same: what it has put since, in place of what its site had. */
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

  /** Its set is at the broker, and it has all that the broker has. */
  get inSync(): boolean {
    return this.#published && this.#acknowledged === this.#sequence && this.watching.synced
  }

  /** When it lost its last connection. */
  get wasInSync(): boolean {
    return this.#wasInSync
  }

  get published(): boolean {
    return this.#published && this.#acknowledged === this.#sequence
  }

  /** What a refusal said, for the one who has to mend the benchmark. */
  get refused(): string | undefined {
    return this.#refused
  }

  /** Records that the broker asked for, since zero(). */
  get asked(): number {
    return this.#asked
  }

  /** The longest time without a broker since zero(), of those that are over: from a lost connection to both streams. */
  get outageMs(): number {
    return this.#outageMs
  }

  zero(): void {
    this.#asked = 0
    this.#outageMs = 0
    this.watching.zero()
  }

  /** Opens a connection, and its Publish stream. `onClosed` is called once, when it is over. */
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

  /** Opens a Watch on the connection; several are of several readers. */
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

  /** The broker does not learn of it before the kernel says so. */
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
