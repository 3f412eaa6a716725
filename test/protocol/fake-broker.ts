/** A small BrokerApi in memory that follows broker-api.ts, for the tests of the sessions and the transport. */
import { randomUUID } from 'node:crypto'
import type { MemberStatus } from '../../model/member-status.ts'
import { type MemberRecord, type StoredRecord, recordKeyText } from '../../model/records.ts'
import {
  type BrokerApi,
  type ClusterFacts,
  type JoinLook,
  type JoinRequest,
  type JoinResponse,
  type MemberKey,
  type Peer,
  type PublishMessage,
  type PublishReply,
  type PublishSession,
  type RecordEvent,
  RefusedError,
  type WatchMessage,
  type WatchRequest,
} from '../../protocol/broker-api.ts'
import { memberKeyText, setHash, storedContentHash } from '../../protocol/codec/content-hash.ts'
import { encodeRecordEvent } from '../../protocol/codec/records-codec.ts'
import type { RefusalReason } from '../../model/reasons/reasons.ts'

export class FakeBroker implements BrokerApi {
  epoch: string = randomUUID()
  revision = 0
  records = new Map<string, StoredRecord>()
  log: { revision: number; event: RecordEvent }[] = []
  /** A watch cannot resume from revisions up to this one. */
  compacted = 0
  complete = new Set<string>()
  departed = new Set<string>()
  readonly received: PublishMessage[] = []
  readonly facts: ClusterFacts[] = []
  readonly statuses: MemberStatus[] = []
  /** False: the broker is of an earlier release and does not accept statuses. */
  takesStatus = true
  /** False: the broker is of an earlier release and gives all records to all members. */
  keepsToOffers = true
  /** The epoch for which the broker asks each member what it still holds. */
  asksHeld: string | undefined
  readonly held: StoredRecord[] = []
  readonly peers: Peer[] = []
  refuse: (record: MemberRecord) => { field: string; reason: RefusalReason; message: string } | undefined = () =>
    undefined
  joinAnswer: (request: JoinRequest, peerAddress: string) => JoinResponse = () => {
    throw new RefusedError('TokenUnknown', 'token', 'the join token is not known')
  }
  watchers = new Set<() => void>()
  openStreams = 0

  lookAtJoin(): Promise<JoinLook> {
    return Promise.resolve({ globalCIDRs: [], renumbered: [] })
  }

  join(request: JoinRequest, peerAddress: string): Promise<JoinResponse> {
    return Promise.resolve().then(() => this.joinAnswer(request, peerAddress))
  }

  renew(peer: Peer, csr: Uint8Array): Promise<{ certificate: Uint8Array; caBundle: Uint8Array[] }> {
    this.peers.push(peer)
    return Promise.resolve({ certificate: csr, caBundle: [csr] })
  }

  leave(peer: Peer): Promise<void> {
    for (const record of [...this.records.values()]) if (record.key.cluster === peer.cluster) this.#remove(record)
    this.departed.add(peer.cluster)
    this.poke()
    return Promise.resolve()
  }

  /** Makes this a broker that has lost its disk. */
  forgetAll(): void {
    this.epoch = randomUUID()
    this.revision = 0
    this.records.clear()
    this.log = []
    this.compacted = 0
    this.complete.clear()
  }

  put(cluster: string, record: MemberRecord): void {
    this.revision += 1
    const { namespace, name, body } = record
    const key = { cluster: cluster as Peer['cluster'], kind: body.kind, namespace, name }
    const stored: StoredRecord = { key, revision: this.revision, createdAtMs: 1, body }
    this.records.set(recordKeyText(key), stored)
    this.log.push({ revision: this.revision, event: { t: 'put', record: stored } })
    this.poke()
  }

  #remove(record: StoredRecord): void {
    this.revision += 1
    this.records.delete(recordKeyText(record.key))
    this.log.push({ revision: this.revision, event: { t: 'remove', key: record.key, revision: this.revision } })
    this.poke()
  }

  removeKey(cluster: string, key: MemberKey): void {
    const stored = this.records.get(`${cluster}/${memberKeyText(key)}`)
    if (stored !== undefined) this.#remove(stored)
  }

  poke(): void {
    for (const watcher of this.watchers) watcher()
  }

  recordsOf(cluster: string): Map<string, StoredRecord> {
    const own = [...this.records.values()].filter((record) => record.key.cluster === cluster)
    return new Map(own.map((record) => [memberKeyText(record.key as MemberKey), record]))
  }

  openPublish(peer: Peer, reply: (message: PublishReply) => void): PublishSession {
    this.peers.push(peer)
    this.openStreams += 1
    const digest = new Map<string, string>()
    return {
      onMessage: (message) => {
        this.received.push(message)
        this.#handle(peer, message, digest, reply)
        return Promise.resolve()
      },
      onLast: () => Promise.resolve(),
      onEnd: () => {
        this.openStreams -= 1
      },
    }
  }

  #handle(peer: Peer, message: PublishMessage, digest: Map<string, string>, reply: (m: PublishReply) => void): void {
    if (message.t === 'declare') {
      const own = this.recordsOf(peer.cluster)
      const same = Buffer.from(setHash([...own.values()].map(storedContentHash))).equals(message.setHash)
      if (same) this.#completed(peer)
      const asks = this.asksHeld === undefined ? {} : { asksHeld: this.asksHeld }
      const offers = this.keepsToOffers ? { keepsToOffers: true as const } : {}
      const status = this.takesStatus ? { takesStatus: true as const } : {}
      reply({ t: same ? 'inSync' : 'sendDigest', ...status, ...offers, ...asks })
      return
    }
    if (message.t === 'digest') {
      const keys = new Map<string, MemberKey>()
      for (const { key, hash } of message.entries) {
        digest.set(memberKeyText(key), Buffer.from(hash).toString('hex'))
        keys.set(memberKeyText(key), key)
      }
      this.#digestKeys = new Map([...this.#digestKeys, ...keys])
      if (!message.last) return
      const own = this.recordsOf(peer.cluster)
      for (const [text, record] of own) if (!digest.has(text)) this.#remove(record)
      const need = [...digest].filter(([text, hash]) => {
        const stored = own.get(text)
        return stored === undefined || Buffer.from(storedContentHash(stored)).toString('hex') !== hash
      })
      reply({ t: 'need', keys: need.map(([text]) => this.#digestKeys.get(text) as MemberKey) })
      this.#completed(peer)
      return
    }
    if (message.t === 'held') {
      this.held.push(...message.records)
      return
    }
    if (message.t === 'facts') this.facts.push(message.facts)
    if (message.t === 'status') this.statuses.push(message.status)
    if (message.t === 'remove') this.removeKey(peer.cluster, message.key)
    if (message.t === 'put') {
      const refusal = this.refuse(message.record)
      if (refusal === undefined) this.put(peer.cluster, message.record)
      else {
        const { namespace, name, body } = message.record
        reply({ t: 'refused', sequence: message.sequence, key: { kind: body.kind, namespace, name }, ...refusal })
      }
    }
    reply({ t: 'ack', sequence: message.sequence })
  }
  #digestKeys = new Map<string, MemberKey>()

  #completed(peer: Peer): void {
    this.complete.add(peer.cluster)
    this.poke()
  }

  async *watch(peer: Peer, request: WatchRequest, signal: AbortSignal): AsyncGenerator<WatchMessage> {
    this.peers.push(peer)
    let poked = (): void => undefined
    const watcher = (): void => poked()
    this.watchers.add(watcher)
    this.openStreams += 1
    try {
      const { resume } = request
      const resumed =
        resume?.epoch === this.epoch && resume.revision >= this.compacted && resume.revision <= this.revision
      let at = resumed ? resume.revision : 0
      yield { t: 'reset', epoch: this.epoch, resumed }
      if (!resumed) {
        const events = [...this.records.values()].map((record) => encodeRecordEvent({ t: 'put', record }))
        at = this.revision
        yield { t: 'batch', events, revision: at }
      }
      let reported = ''
      while (!signal.aborted) {
        const woken = new Promise<void>((resolve) => (poked = resolve))
        const due = this.log.filter((entry) => entry.revision > at)
        if (due.length > 0) {
          at = this.revision
          yield { t: 'batch', events: due.map(({ event }) => encodeRecordEvent(event)), revision: at }
          continue
        }
        const synced: WatchMessage = {
          t: 'synced',
          revision: at,
          complete: [...this.complete].sort(),
          departed: [...this.departed].sort(),
        }
        const text = JSON.stringify([synced.complete, synced.departed])
        if (text !== reported) {
          reported = text
          yield synced
          continue
        }
        await new Promise<void>((resolve) => {
          signal.addEventListener('abort', () => resolve(), { once: true })
          void woken.then(resolve)
        })
      }
    } finally {
      this.openStreams -= 1
      this.watchers.delete(watcher)
    }
  }
}
