/**
 * Where what lies below the prefix of a store:
 *
 *   PREFIX/log/format            whose store it is, written once
 *   PREFIX/log/head              how far the log has come: every write compares and moves it
 *   PREFIX/log/row/SCOPE/KEY     a row, or that it is gone
 *   PREFIX/log/want/ID           a replica that was overtaken and wants to write
 *   PREFIX/staged/ID/NUMBER      parts of a write that is too large for one request
 *   PREFIX/authority/FINGERPRINT a key that all replicas sign with
 *   PREFIX/replica/ID            a replica that runs, held by its lease
 *   PREFIX/clustersets/NAME/…    the same of another clusterset of this broker (broker/other-clustersets.ts)
 */
import type { Scope } from '../../state/state.ts'

export class EtcdKeys {
  readonly prefix: string
  readonly format: Buffer
  readonly head: Buffer
  readonly #row: string

  /** The prefix begins with '/' and ends without one. */
  constructor(prefix: string) {
    this.prefix = prefix
    this.format = Buffer.from(`${prefix}/log/format`)
    this.head = Buffer.from(`${prefix}/log/head`)
    this.#row = `${prefix}/log/row/`
  }

  /** All that is below the prefix, also what is of somebody else. */
  get all(): KeyRange {
    return below(`${this.prefix}/`)
  }
  /** What a store has beside its format and its head; a store whose prefix begins with this one is not in it. */
  get content(): readonly KeyRange[] {
    return [this.rows, this.wants, this.allStaged, below(`${this.prefix}/authority/`), this.replicas]
  }
  /** What is watched: the head, the rows, and who wants to write. */
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

  /** Scope and key of a row; undefined: the key is none of a row. */
  parseRow(key: Buffer): { readonly scope: Scope; readonly key: string } | undefined {
    const text = key.toString()
    if (!text.startsWith(this.#row)) return undefined
    const slash = text.indexOf('/', this.#row.length)
    return slash < 0 ? undefined : { scope: text.slice(this.#row.length, slash) as Scope, key: text.slice(slash + 1) }
  }

  want(replica: string): Buffer {
    return Buffer.from(`${this.prefix}/log/want/${replica}`)
  }
  /** The replica that wants to write; undefined: the key says nothing of that. */
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

  /** `fingerprint` of its certificate. */
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

/** All keys that begin so. The beginning ends with '/', so its last octet can grow by one. */
function below(beginning: string): KeyRange {
  const key = Buffer.from(beginning)
  const rangeEnd = Buffer.from(key)
  const last = rangeEnd.length - 1
  rangeEnd.writeUInt8(rangeEnd.readUInt8(last) + 1, last)
  return { key, rangeEnd }
}
