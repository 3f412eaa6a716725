/**
 * Writes of one replica. Each is one transaction of etcd that compares the head with what the replica has seen, so a
 * replica that lost contact or was overtaken writes nothing. A write that is too large for one transaction is first
 * staged in parts beside the log. The new head then makes it valid as a whole, and the first replica that sees this
 * head fills in the rows.
 */
import type { TxnRequest, TxnResponse } from './client/gen/etcd.ts'
import { EtcdError } from './client/etcd-connection.ts'
import type { Change } from '../record-log.ts'
import {
  MAX_OPS,
  hasValue,
  isThere,
  nested,
  onlyIf,
  putOp,
  readAt,
  readOp,
  removeOp,
  wasCreatedAt,
  wasWrittenAt,
} from './etcd-requests.ts'
import type { EtcdReader, Seen } from './etcd-reader.ts'
import type { EtcdStore } from './etcd-store.ts'
import { type Head, REMEMBERED_WRITES, encodeHead, encodeRow, replicaOf, withWrite } from './etcd-rows.ts'

/** Below the request limit of etcd, which is 1.5 MiB. */
const MAX_WRITE_BYTES = 1024 * 1024
const MAX_PART_BYTES = 512 * 1024
const MAX_PART_CHANGES = 2000
/** One transaction can compare this many keys. */
const MAX_PARTS = 60

/**
 * `conflict`: another replica was faster, or swept the staged parts of this write; no row is written. `wants` is the
 * revision of etcd since which the store records that this replica wants to write. Absent if it does not.
 */
export type WriteOutcome =
  { readonly t: 'made'; readonly seen: Seen } | { readonly t: 'conflict'; readonly seen: Seen; readonly wants?: number }

/**
 * The outcome of a write that got no answer. With `made`, `seen` is the current head, which may be of a later write.
 */
export type Finding = WriteOutcome | { readonly t: 'unknown' }

export interface WriteInit {
  /** "REPLICA.NUMBER", unique to this write. */
  readonly id: string
  readonly from: Seen
  /** Their revisions follow the revision of `from`. */
  readonly changes: readonly Change[]
  /** Removals up to this revision are forgotten from now on. */
  readonly compacted: number
  /** Replicas whose wish to write is removed along with this write. */
  readonly served: readonly string[]
}

interface Move {
  readonly ops: TxnRequest['success']
  readonly compare: TxnRequest['compare']
  /**
   * Operations for the case that another replica was faster. They run only if the store is still the one that was
   * opened.
   */
  readonly lost?: TxnRequest['failure']
}

export class EtcdWriter {
  readonly #store: EtcdStore
  readonly #reader: EtcdReader
  readonly #createdAt: number

  /** `createdAt` is OpenedStore.createdAt. */
  constructor(store: EtcdStore, reader: EtcdReader, createdAt: number) {
    this.#store = store
    this.#reader = reader
    this.#createdAt = createdAt
  }

  /** Throws EtcdError. After the failure `unknown`, findOut() determines the outcome. */
  async write(init: WriteInit, signal: AbortSignal): Promise<WriteOutcome> {
    const { id, from, changes, compacted, served } = init
    const { keys } = this.#store
    const had = served.map((replica) => removeOp({ key: keys.want(replica) }))
    const wants = putOp(keys.want(replicaOf(id)), Buffer.alloc(0))
    const head: Head = {
      revision: from.head.revision + changes.length,
      compacted,
      writes: withWrite(from.head.writes, id),
    }
    const rows = changes.map((change) => ({ key: keys.row(change.scope, change.key), value: encodeRow(change) }))
    const bytes = rows.reduce((sum, { key, value }) => sum + key.length + value.length, 0)
    const action = `write of ${changes.length} rows`
    if (rows.length + had.length <= MAX_OPS && bytes <= MAX_WRITE_BYTES) {
      const ops = nested([...rows.map(({ key, value }) => putOp(key, value)), ...had])
      return this.#move(from, head, { ops, compare: [], lost: [wants] }, { action, signal })
    }
    const parts = await this.#stage(id, changes, signal)
    const compare = parts.map((key) => isThere(key))
    const staged = { id, parts: parts.length }
    return this.#move(
      from,
      { ...head, staged },
      { ops: had, compare, lost: [wants, removeOp(keys.staged(id))] },
      { action, signal },
    )
  }

  /**
   * Determines the outcome of a write that got no answer. If the head has not moved, this moves it, so that a delayed
   * write finds another head and fails. Throws EtcdError while the outcome cannot be determined.
   */
  async findOut(id: string, fenceId: string, from: Seen, signal: AbortSignal): Promise<Finding> {
    const fence = { ...from.head, writes: withWrite(from.head.writes, fenceId) }
    const action = 'look whether a write was made'
    try {
      const { t, seen } = await this.#move(from, fence, { ops: [], compare: [] }, { action, signal })
      return t === 'made' ? { t: 'conflict', seen } : this.#finding(id, seen)
    } catch (error) {
      // Without space the head cannot move, but a write that was made is visible in it.
      if (!(error instanceof EtcdError && error.failure === 'noSpace')) throw error
      const seen = await this.#reader.head(signal)
      if (seen.revision === from.revision) throw error
      return this.#finding(id, seen)
    }
  }

  /** Fills in the rows of a staged write and removes its parts. */
  async complete(id: string, from: Seen, signal: AbortSignal): Promise<WriteOutcome> {
    const { client, keys } = this.#store
    const { staged, ...rest } = from.head
    if (staged === undefined) return { t: 'made', seen: from }
    const changes = await this.#reader.staged(from.head, 0, signal).catch((error: unknown) => {
      // Another replica has completed it. The watch delivers that soon.
      if (error instanceof EtcdError && error.failure === 'compacted') return undefined
      throw error
    })
    const action = 'completion of a large write'
    for (const part of changes === undefined ? [] : inParts(changes)) {
      const success = nested(part.map((change) => putOp(keys.row(change.scope, change.key), encodeRow(change))))
      const request = { compare: this.#unmoved(from), success, failure: [readOp(keys.head)] }
      const answer = await client.txn(request, { action, signal })
      if (!answer.succeeded) return this.#conflict(answer)
    }
    const head = { ...rest, writes: withWrite(rest.writes, id) }
    return this.#move(from, head, { ops: [removeOp(keys.staged(staged.id))], compare: [] }, { action, signal })
  }

  /** Deletes rows whose removals are forgotten as of `from`. */
  async sweep(rows: readonly Change[], from: Seen, signal: AbortSignal): Promise<WriteOutcome> {
    const { client, keys } = this.#store
    const success = nested(rows.map(({ scope, key }) => removeOp({ key: keys.row(scope, key) })))
    const request = { compare: this.#unmoved(from), success, failure: [readOp(keys.head)] }
    const answer = await client.txn(request, { action: `sweep of ${rows.length} removed rows`, signal })
    return answer.succeeded ? { t: 'made', seen: from } : this.#conflict(answer)
  }

  /** Removes a replica's wish to write from the store. */
  async forgetWant(replica: string, signal: AbortSignal): Promise<void> {
    const { client, keys } = this.#store
    const request = { compare: [this.#isOurs()], success: [removeOp({ key: keys.want(replica) })], failure: [] }
    await client.txn(request, { action: 'take back of a turn', signal })
  }

  /** Removes parts that no head names. Their replica was killed before it could make them valid. */
  async sweepStaged(from: Seen, signal: AbortSignal): Promise<void> {
    const { client, keys } = this.#store
    const action = 'sweep of parts of large writes'
    const { kvs } = await client.range({ ...keys.allStaged, keysOnly: true }, { action, signal })
    const ids = new Set(kvs.map(({ key }) => keys.parseStaged(key)))
    if (from.head.staged !== undefined) ids.delete(from.head.staged.id)
    const success = nested([...ids].slice(0, MAX_OPS).map((id) => removeOp(keys.staged(id))))
    if (success.length === 0) return
    await client.txn({ compare: this.#unmoved(from), success, failure: [] }, { action, signal })
  }

  async #stage(id: string, changes: readonly Change[], signal: AbortSignal): Promise<Buffer[]> {
    const { client, keys } = this.#store
    const parts = inParts(changes)
    if (parts.length > MAX_PARTS) {
      const text = `a write of ${changes.length} rows has ${parts.length} parts: expected at most ${MAX_PARTS}`
      throw new EtcdError('tooLarge', text)
    }
    const names: Buffer[] = []
    for (const [number, part] of parts.entries()) {
      const key = keys.stagedPart(id, number)
      const action = `part ${number + 1} of ${parts.length} of a large write`
      await client.put(key, Buffer.from(JSON.stringify(part)), { action, signal })
      names.push(key)
    }
    return names
  }

  async #move(
    from: Seen,
    head: Head,
    { ops, compare, lost = [] }: Move,
    init: { readonly action: string; readonly signal: AbortSignal },
  ): Promise<WriteOutcome> {
    const { client, keys } = this.#store
    const value = encodeHead(head)
    const request: TxnRequest = {
      compare: [...this.#unmoved(from), ...compare],
      success: [putOp(keys.head, value), ...ops],
      failure: [readOp(keys.head), ...(lost.length === 0 ? [] : [onlyIf(this.#isOurs(), lost)])],
    }
    const answer = await client.txn(request, init)
    const revision = answer.header?.revision ?? 0
    if (!answer.succeeded) return { ...this.#conflict(answer), ...(lost.length === 0 ? {} : { wants: revision }) }
    return { t: 'made', seen: { head, value, revision } }
  }

  /** Compares the content as well: an etcd that was restored from a backup assigns the same revisions again. */
  #unmoved({ revision, value }: Seen): TxnRequest['compare'] {
    const { keys } = this.#store
    return [this.#isOurs(), wasWrittenAt(keys.head, revision), hasValue(keys.head, value)]
  }

  /** The store is the one that was opened. Nothing may be written to another one. */
  #isOurs(): TxnRequest['compare'][number] {
    return wasCreatedAt(this.#store.keys.format, this.#createdAt)
  }

  #conflict(answer: TxnResponse): WriteOutcome {
    return { t: 'conflict', seen: this.#reader.seen(readAt(answer, 0)?.kvs[0]) }
  }

  #finding(id: string, seen: Seen): Finding {
    const { writes } = seen.head
    if (writes.includes(id)) return { t: 'made', seen }
    const isForgotten = writes.length >= REMEMBERED_WRITES && !writes.some((one) => replicaOf(one) === replicaOf(id))
    return isForgotten ? { t: 'unknown' } : { t: 'conflict', seen }
  }
}

/** Splits the changes so that each part fits into one request, also as rows. */
function inParts(changes: readonly Change[]): Change[][] {
  const parts: Change[][] = []
  let part: Change[] = []
  let bytes = 0
  for (const change of changes) {
    const size = JSON.stringify(change).length * 2
    if (part.length > 0 && (bytes + size > MAX_PART_BYTES || part.length >= MAX_PART_CHANGES)) {
      parts.push(part)
      part = []
      bytes = 0
    }
    part.push(change)
    bytes += size
  }
  if (part.length > 0) parts.push(part)
  return parts
}
