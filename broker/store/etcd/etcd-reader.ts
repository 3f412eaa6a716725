/** Reads a store: its head, all its rows as of one moment, and the commits after that moment. */
import { EtcdError } from './client/etcd-connection.ts'
import type { Event, KeyValue, RangeRequest, RangeResponse } from './client/gen/etcd.ts'
import type { Change, RowPacking } from '../record-log.ts'
import { readAt, readOp } from './etcd-requests.ts'
import type { EtcdStore } from './etcd-store.ts'
import type { Head } from './etcd-rows.ts'
import type { Want, WriteTurns } from './write-order.ts'

/**
 * Rows in the first page, octets to aim for in the next ones, and the maximum of rows in a page. For each page etcd
 * goes through all remaining keys: in pages of 500, a hundred thousand rows took each replica ten seconds.
 */
const PAGE = 500
const PAGE_BYTES = 2 << 20
const MAX_PAGE = 10_000
/** Growth of the limit from page to page, since the next rows may be larger. */
const PAGE_GROWTH = 4
/** Tries of a list. A list starts again if etcd has compacted the revision that it reads. */
const MAX_LISTS = 5
const DELETED = 1

/** A head as it was read. A write that compares with it applies to exactly that state. */
export interface Seen {
  readonly head: Head
  readonly value: Buffer
  /** Revision of etcd at which the head was written. */
  readonly revision: number
}

export interface Commit {
  readonly seen: Seen
  /** In order of revisions. */
  readonly changes: readonly Change[]
}

export interface Listing extends Commit {
  /** The changes are all rows of the store, not only those after the known revision. */
  readonly whole: boolean
  /** Revision of etcd of the list. The watch begins after it. */
  readonly asOf: number
  /** Rows of forgotten removals that are not yet deleted. */
  readonly leftovers: readonly Change[]
}

export class EtcdReader {
  readonly #store: EtcdStore
  readonly #epoch: string
  readonly #packing: RowPacking | undefined

  constructor(store: EtcdStore, epoch: string, packing?: RowPacking) {
    this.#store = store
    this.#epoch = epoch
    this.#packing = packing
  }

  /** Reads the current head, whichever member answers. Throws EtcdError, and StateError if the store is gone. */
  async head(signal: AbortSignal): Promise<Seen> {
    const { client, keys } = this.#store
    const { kvs } = await client.range({ key: keys.head }, { action: 'look at the head of the log', signal })
    return this.seen(kvs[0])
  }

  /** Throws StateError if the head does not exist or cannot be read. */
  seen(head: KeyValue | undefined): Seen {
    if (head === undefined) throw this.#store.gone('the head of the log is gone')
    return { head: this.#store.values.head(head.value), value: head.value, revision: head.modRevision }
  }

  /**
   * Lists all rows as of one moment. With `known`, lists only later changes, unless removals since then are forgotten.
   */
  async list(known: Seen | undefined, signal: AbortSignal): Promise<Listing> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.#list(known, signal)
      } catch (error) {
        if (!isCompacted(error) || tries >= MAX_LISTS) throw error
      }
    }
  }

  /**
   * Yields each commit after a revision of etcd, and reports to `turns` which replicas want to write. Throws EtcdError
   * (compacted) if a list must come first, and StateError if the store was removed.
   */
  async *follow(
    after: number,
    signal: AbortSignal,
    turns?: Pick<WriteTurns, 'see' | 'seeServed'>,
  ): AsyncGenerator<Commit & { readonly asOf: number }, void> {
    const { client, keys } = this.#store
    for await (const { events } of client.watch({ ...keys.log, startRevision: after + 1 }, signal)) {
      for (const [asOf, group] of byRevision(events)) {
        for (const { type, kv } of group) {
          const replica = kv === undefined ? undefined : keys.parseWant(kv.key)
          if (kv === undefined || replica === undefined) continue
          if (type === DELETED) turns?.seeServed(replica)
          else turns?.see({ replica, since: kv.createRevision })
        }
        const commit = await this.#commit(group, asOf, signal)
        if (commit !== undefined) yield { ...commit, asOf }
      }
    }
  }

  /** The replicas that want to write now. Throws EtcdError. */
  async wants(signal: AbortSignal): Promise<readonly Want[]> {
    const { client, keys } = this.#store
    const range = { ...keys.wants, limit: PAGE, keysOnly: true }
    const { kvs } = await client.range(range, { action: 'look at who wants to write', signal })
    return kvs.map(({ key, createRevision }) => ({ replica: keys.parseWant(key) ?? '', since: createRevision }))
  }

  /** The changes of a staged write whose rows are not yet filled in, as of a revision of etcd (0: now). */
  async staged({ staged }: Head, asOf: number, signal: AbortSignal): Promise<Change[]> {
    if (staged === undefined) return []
    const { client, keys, values } = this.#store
    const range = { ...keys.staged(staged.id), revision: asOf }
    const { kvs } = await client.range(range, { action: 'read of a large write', signal })
    if (kvs.length !== staged.parts)
      throw new EtcdError('compacted', `a large write has ${kvs.length} of ${staged.parts} parts`)
    return kvs.flatMap(({ key, value }) => values.changes(key, value))
  }

  async #list(known: Seen | undefined, signal: AbortSignal): Promise<Listing> {
    const { client, keys, values } = this.#store
    const request = { compare: [], success: [readOp(keys.format), readOp(keys.head)], failure: [] }
    // The transaction writes nothing, so the next call of the reader may repeat it.
    const first = await client.txn(request, { action: 'look at the head of the log', signal }).catch(asRead)
    const [format] = readAt(first, 0)?.kvs ?? []
    if (format === undefined) throw this.#store.gone('it is gone')
    if (values.format(format.value).epoch !== this.#epoch) throw this.#store.gone('it is another one now')
    const seen = this.seen(readAt(first, 1)?.kvs[0])
    const asOf = first.header?.revision ?? seen.revision
    const since = known !== undefined && seen.head.compacted <= known.head.revision ? known : undefined
    const rows = new Map<string, Change>()
    const leftovers: Change[] = []
    const minModRevision = since === undefined ? 0 : since.revision + 1
    const range = { ...keys.rows, revision: asOf, minModRevision }
    for await (const kvs of this.#pages(range, signal)) {
      for (const kv of kvs) {
        const row = values.row(kv.key, kv.value, this.#packing)
        if (row === undefined) continue
        if (row.value === undefined && row.revision <= seen.head.compacted) leftovers.push(row)
        else if (row.revision > (since?.head.revision ?? 0)) rows.set(kv.key.toString(), row)
      }
    }
    for (const change of await this.staged(seen.head, asOf, signal))
      rows.set(keys.row(change.scope, change.key).toString(), change)
    return { seen, asOf, changes: inOrder([...rows.values()]), whole: since === undefined, leftovers }
  }

  /** Yields all pages of a range, in order of keys. */
  async *#pages(
    range: Partial<RangeRequest> & Pick<RangeRequest, 'key'>,
    signal: AbortSignal,
  ): AsyncGenerator<readonly KeyValue[], void> {
    let limit = PAGE
    for (let { key } = range; ;) {
      const answer = await this.#page({ ...range, key, limit }, signal)
      if (answer !== undefined) yield answer.kvs
      const last = answer?.kvs.at(-1)
      if (answer !== undefined && (!answer.more || last === undefined)) return
      limit = answer === undefined ? Math.ceil(limit / PAGE_GROWTH) : nextLimit(limit, answer.kvs)
      if (last !== undefined) key = Buffer.concat([last.key, Buffer.of(0)])
    }
  }

  /** Returns undefined if the page is too large for an answer, or too large to arrive in time. */
  async #page(
    page: Partial<RangeRequest> & Pick<RangeRequest, 'key' | 'limit'>,
    signal: AbortSignal,
  ): Promise<RangeResponse | undefined> {
    try {
      return await this.#store.client.range(page, { action: 'list', signal })
    } catch (error) {
      if (!(error instanceof EtcdError) || page.limit <= 1) throw error
      const isLate = page.limit > PAGE / PAGE_GROWTH && error.isLate
      if (error.failure === 'tooLarge' || isLate) return undefined
      throw error
    }
  }

  /**
   * Returns undefined if the events belong to no commit: a staged write is filled in, or forgotten rows are deleted.
   */
  async #commit(events: readonly Event[], asOf: number, signal: AbortSignal): Promise<Commit | undefined> {
    const { keys, values } = this.#store
    const head = events.find(({ kv }) => kv?.key.equals(keys.head))
    if (head?.kv === undefined) return undefined
    if (head.type === DELETED) throw this.#store.gone('the head of the log was taken away')
    const seen = this.seen(head.kv)
    const changes = events.flatMap(({ kv, type }) => {
      const row = kv === undefined || type === DELETED ? undefined : values.row(kv.key, kv.value, this.#packing)
      return row === undefined ? [] : [row]
    })
    return { seen, changes: inOrder([...changes, ...(await this.staged(seen.head, asOf, signal))]) }
  }
}

function nextLimit(limit: number, kvs: readonly KeyValue[]): number {
  const bytes = kvs.reduce((sum, { key, value }) => sum + key.length + value.length, 0)
  const wanted = Math.floor((PAGE_BYTES * kvs.length) / Math.max(1, bytes))
  return Math.max(1, Math.min(wanted, limit * PAGE_GROWTH, MAX_PAGE))
}

export function isCompacted(error: unknown): boolean {
  return error instanceof EtcdError && error.failure === 'compacted'
}

function asRead(error: unknown): never {
  if (error instanceof EtcdError && error.failure === 'unknown')
    throw new EtcdError('unreachable', error.message, error)
  throw error
}

/** etcd sends all events of one revision together, and revisions in their order. */
function byRevision(events: readonly Event[]): Map<number, Event[]> {
  const groups = new Map<number, Event[]>()
  for (const event of events) {
    const revision = event.kv?.modRevision ?? 0
    const group = groups.get(revision)
    if (group === undefined) groups.set(revision, [event])
    else group.push(event)
  }
  return groups
}

function inOrder(changes: Change[]): Change[] {
  return changes.sort((a, b) => a.revision - b.revision)
}
