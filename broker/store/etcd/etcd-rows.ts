/**
 * Keys of a store, and their values as JSON. A value that cannot be read is damage, and the error names its key. Only
 * the beginning and the end of a record are parsed here, as in the SQLite driver (decision 57).
 */
import { messageOf } from '../../../runtime/runtime.ts'
import { AS_WRITTEN, type Change, type RowPacking, StateError } from '../record-log.ts'
import type { Scope, Scopes } from '../rows.ts'

/**
 * The keys below the prefix of a store:
 *
 *   PREFIX/log/format            which clusterset the store is of, written once
 *   PREFIX/log/head              the state of the log: every write compares and replaces it
 *   PREFIX/log/row/SCOPE/KEY     a row, or that it was removed
 *   PREFIX/log/want/ID           a replica that was overtaken and wants to write
 *   PREFIX/staged/ID/NUMBER      parts of a write that is too large for one request
 *   PREFIX/authority/FINGERPRINT a key that all replicas sign with
 *   PREFIX/replica/ID            a replica that runs, held by its lease
 *   PREFIX/clustersets/NAME/…    the same keys for another clusterset of this broker (broker/other-clustersets.ts)
 */
export class EtcdKeys {
  readonly prefix: string
  readonly format: Buffer
  readonly head: Buffer
  readonly #row: string

  /** The prefix begins with '/' and does not end with one. */
  constructor(prefix: string) {
    this.prefix = prefix
    this.format = Buffer.from(`${prefix}/log/format`)
    this.head = Buffer.from(`${prefix}/log/head`)
    this.#row = `${prefix}/log/row/`
  }

  /** All keys below the prefix, including those of other programs. */
  get all(): KeyRange {
    return below(`${this.prefix}/`)
  }
  /**
   * The keys of a store except its format and its head. Stores with longer prefixes below this one are not included.
   */
  get content(): readonly KeyRange[] {
    return [this.rows, this.wants, this.allStaged, below(`${this.prefix}/authority/`), this.replicas]
  }
  /** The keys that replicas watch: the head, the rows, and the replicas that want to write. */
  get log(): KeyRange {
    return below(`${this.prefix}/log/`)
  }
  get rows(): KeyRange {
    return below(this.#row)
  }
  get wants(): KeyRange {
    return below(`${this.prefix}/log/want/`)
  }
  get replicas(): KeyRange {
    return below(`${this.prefix}/replica/`)
  }
  get allStaged(): KeyRange {
    return below(`${this.prefix}/staged/`)
  }

  row(scope: Scope, key: string): Buffer {
    return Buffer.from(`${this.#row}${scope}/${key}`)
  }

  /** Scope and key of a row. Undefined if the key is not of a row. */
  parseRow(key: Buffer): { readonly scope: Scope; readonly key: string } | undefined {
    const text = key.toString()
    if (!text.startsWith(this.#row)) return undefined
    const slash = text.indexOf('/', this.#row.length)
    return slash < 0 ? undefined : { scope: text.slice(this.#row.length, slash) as Scope, key: text.slice(slash + 1) }
  }

  want(replica: string): Buffer {
    return Buffer.from(`${this.prefix}/log/want/${replica}`)
  }
  /** The replica that wants to write. Undefined if the key is not of a wish to write. */
  parseWant(key: Buffer): string | undefined {
    const text = key.toString()
    const beginning = `${this.prefix}/log/want/`
    return text.startsWith(beginning) ? text.slice(beginning.length) : undefined
  }

  staged(id: string): KeyRange {
    return below(`${this.prefix}/staged/${id}/`)
  }
  stagedPart(id: string, number: number): Buffer {
    return Buffer.from(`${this.prefix}/staged/${id}/${String(number).padStart(4, '0')}`)
  }
  /** The id of the write that a part belongs to. */
  parseStaged(key: Buffer): string {
    return key.toString().slice(`${this.prefix}/staged/`.length).split('/')[0] ?? ''
  }

  /** `fingerprint` is that of its certificate. */
  authority(fingerprint: string): Buffer {
    return Buffer.from(`${this.prefix}/authority/${fingerprint}`)
  }

  replica(id: string): Buffer {
    return Buffer.from(`${this.prefix}/replica/${id}`)
  }
  parseReplica(key: Buffer): string {
    return key.toString().slice(`${this.prefix}/replica/`.length)
  }
}

export interface KeyRange {
  readonly key: Buffer
  readonly rangeEnd: Buffer
}

/** All keys with this beginning, which must end with '/': its last octet can be incremented. */
function below(beginning: string): KeyRange {
  const key = Buffer.from(beginning)
  const rangeEnd = Buffer.from(key)
  const last = rangeEnd.length - 1
  rangeEnd.writeUInt8(rangeEnd.readUInt8(last) + 1, last)
  return { key, rangeEnd }
}

interface RowName<S extends Scope = Scope> {
  readonly scope: S
  readonly key: string
}

/** The beginning of a row with a value, as encodeRow() writes it. */
const RECORD = /^{"r":(\d{1,15}),"v":(?={)/

/**
 * Format of the keys below a prefix. A broker of a later release may raise it, and one of an earlier release then
 * stops.
 */
export const FORMAT_VERSION = 1

export interface Format {
  readonly sealane: 'broker'
  readonly format: number
  /** Chosen when the store is created. Revisions of different epochs cannot be compared. */
  readonly epoch: string
  readonly clusterset: string
}

export interface Staged {
  readonly id: string
  readonly parts: number
}

export interface Head {
  /** Revision of the last write. */
  readonly revision: number
  /** Removals up to this revision are forgotten. */
  readonly compacted: number
  /** The latest write of each replica that wrote recently, newest first: "REPLICA.NUMBER". */
  readonly writes: readonly string[]
  /** The last write is staged, and its rows are not yet filled in. */
  readonly staged?: Staged
}

/** The head remembers the latest write of this many replicas. */
export const REMEMBERED_WRITES = 16

export function encodeHead(head: Head): Buffer {
  return Buffer.from(JSON.stringify(head))
}

/** The head's writes after one more write, which replaces the earlier one of the same replica. */
export function withWrite(writes: readonly string[], id: string): readonly string[] {
  const replica = replicaOf(id)
  return [id, ...writes.filter((one) => replicaOf(one) !== replica)].slice(0, REMEMBERED_WRITES)
}

export function replicaOf(writeId: string): string {
  return writeId.slice(0, writeId.lastIndexOf('.'))
}

/** Parses values of one store. `where` names the store in messages. Each method throws StateError (Damaged). */
export class ValueReader {
  readonly #where: string
  readonly #keys: EtcdKeys
  constructor(where: string, keys: EtcdKeys) {
    this.#where = where
    this.#keys = keys
  }

  head(value: Buffer): Head {
    const head = this.#json(this.#keys.head, value) as Partial<Head>
    const { revision, compacted, writes } = head
    if (Number.isSafeInteger(revision) && Number.isSafeInteger(compacted) && Array.isArray(writes)) return head as Head
    throw this.#damaged(this.#keys.head, 'it has no revision')
  }

  format(value: Buffer): Format {
    const format = this.#json(this.#keys.format, value) as Partial<Format>
    const { epoch, clusterset, format: version, sealane } = format
    if (sealane === 'broker' && typeof epoch === 'string' && typeof clusterset === 'string' && version !== undefined)
      return format as Format
    throw this.#damaged(this.#keys.format, 'it does not say whose store this is')
  }

  /** Returns undefined if the key is not of a row. */
  row(key: Buffer, value: Buffer, packing = AS_WRITTEN): Change | undefined {
    const name = this.#keys.parseRow(key)
    if (name === undefined) return undefined
    const { scope } = name
    if (scope === 'record') return this.#record({ ...name, scope }, key, value, packing)
    return this.#row(name, key, value)
  }

  /** Reads only the revision of a record here: a broker loads a hundred thousand of them at its start. */
  #record(name: RowName<'record'>, key: Buffer, value: Buffer, packing: RowPacking): Change {
    const text = value.toString()
    const [beginning = '', revision] = RECORD.exec(text) ?? []
    if (revision === undefined || !text.endsWith('}')) return this.#row(name, key, value)
    try {
      const row = packing.fromText(text.slice(beginning.length, -1))
      return { scope: name.scope, key: name.key, revision: Number(revision), value: row }
    } catch {
      return this.#row(name, key, value)
    }
  }

  #row(name: RowName, key: Buffer, value: Buffer): Change {
    const row = this.#json(key, value) as { readonly r?: unknown; readonly v?: Scopes[Scope] }
    if (!Number.isSafeInteger(row.r)) throw this.#damaged(key, 'it has no revision')
    return { ...name, revision: row.r as number, value: row.v }
  }

  /** Parses one part of a staged write. */
  changes(key: Buffer, value: Buffer): readonly Change[] {
    const changes = this.#json(key, value)
    if (Array.isArray(changes)) return changes as readonly Change[]
    throw this.#damaged(key, 'it is no list of changes')
  }

  #json(key: Buffer, value: Buffer): object {
    try {
      const parsed: unknown = JSON.parse(value.toString())
      if (typeof parsed === 'object' && parsed !== null) return parsed
    } catch (error) {
      throw this.#damaged(key, messageOf(error))
    }
    throw this.#damaged(key, 'it is no object')
  }

  #damaged(key: Buffer, why: string): StateError {
    const text = `${this.#where}: key ${key.toString()} is damaged (${why}): restore etcd from a backup`
    return new StateError('Damaged', this.#where, text)
  }
}

/** Encodes a row. A row without a value was removed. */
export function encodeRow({ revision, value }: Change): Buffer {
  return Buffer.from(JSON.stringify({ r: revision, v: value }))
}
