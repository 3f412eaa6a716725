/**
 * Values of the log's keys, as JSON. What cannot be read is damage, and is named. Of a record only its beginning and its
 * end are looked at here, as of those in SQLite (decision 57).
 */
import type { Scope, Scopes } from '../../state/state.ts'
import { messageOf } from '../../../runtime/thrown.ts'
import { type Change, StateError } from '../record-log.ts'
import { AS_WRITTEN, type RowPacking } from '../row-packing.ts'
import type { EtcdKeys } from './etcd-keys.ts'

interface RowName<S extends Scope = Scope> {
  readonly scope: S
  readonly key: string
}

/** How encodeRow() begins a row that has a value. */
const RECORD = /^{"r":(\d{1,15}),"v":(?={)/

/** Of the keys below a prefix. A broker of a later release may raise it; one of an earlier release then stops. */
export const FORMAT_VERSION = 1

export interface Format {
  readonly sealane: 'broker'
  readonly format: number
  /** Made with the store: revisions of different epochs cannot be compared. */
  readonly epoch: string
  readonly clusterset: string
}

export interface Staged {
  readonly id: string
  readonly parts: number
}

export interface Head {
  /** Of the last write. */
  readonly revision: number
  /** Removals up to here are forgotten. */
  readonly compacted: number
  /** The latest write of each replica that wrote lately, newest first: "REPLICA.NUMBER". */
  readonly writes: readonly string[]
  /** The last write is here, and not in its rows yet. */
  readonly staged?: Staged
}

/** Replicas whose latest write the head remembers. */
export const REMEMBERED_WRITES = 16

export function encodeHead(head: Head): Buffer {
  return Buffer.from(JSON.stringify(head))
}

/** The head's writes with one more, that of a replica taking the place of its write before. */
export function withWrite(writes: readonly string[], id: string): readonly string[] {
  const replica = replicaOf(id)
  return [id, ...writes.filter((one) => replicaOf(one) !== replica)].slice(0, REMEMBERED_WRITES)
}

export function replicaOf(writeId: string): string {
  return writeId.slice(0, writeId.lastIndexOf('.'))
}

/** Reads values of one store; `where` names it in messages. Each method throws StateError (Damaged). */
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

  /** Undefined: the key is none of a row. */
  row(key: Buffer, value: Buffer, packing = AS_WRITTEN): Change | undefined {
    const name = this.#keys.parseRow(key)
    if (name === undefined) return undefined
    const { scope } = name
    if (scope === 'record') return this.#record({ ...name, scope }, key, value, packing)
    return this.#row(name, key, value)
  }

  /** Of a record only the revision is read here: a broker that starts has a hundred thousand of them. */
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

  /** Of one part of a staged write. */
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

/** A row as it is stored; without a value it is gone. */
export function encodeRow({ revision, value }: Change): Buffer {
  return Buffer.from(JSON.stringify({ r: revision, v: value }))
}
