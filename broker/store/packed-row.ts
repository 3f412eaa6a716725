/**
 * Records as the log holds them in memory. Nearly all are exports and slices, and a body of these is kept as bytes in a
 * string, the smallest form that V8 has. A body as objects takes six times as much memory, and is read only when it
 * changes. A row from the store stays text until a watcher needs it: a broker reads a hundred thousand rows at its
 * start, while members wait.
 */
import type { RecordBody } from '../../model/model.ts'
import { bodyFromBytes, bodyToBytes } from '../../protocol/codec/codec.ts'
import type { RowPacking } from './record-log.ts'
import type { RecordRow } from './rows.ts'

/** A hash of 32 bytes as hexadecimal digits. PackedRow keeps each byte as one character. */
const HASH = /^[0-9a-f]{64}$/

class PackedRow implements RecordRow {
  readonly createdAtMs: number
  readonly bytes: number | undefined
  readonly readers: readonly string[] | undefined
  readonly #hash: string | undefined
  /** The body's bytes in Latin-1, one character for each byte. If #isText is true, the whole row as stored. */
  #kept: string
  #isText: boolean

  constructor({ createdAtMs, hash, bytes, readers }: Omit<RecordRow, 'body'>, kept: string, isText: boolean) {
    this.createdAtMs = createdAtMs
    this.bytes = bytes
    this.readers = readers
    this.#hash = hash === undefined ? undefined : Buffer.from(hash, 'hex').toString('latin1')
    this.#kept = kept
    this.#isText = isText
  }

  get hash(): string | undefined {
    return this.#hash === undefined ? undefined : Buffer.from(this.#hash, 'latin1').toString('hex')
  }

  /** Decoded on each access. */
  get body(): RecordBody {
    return this.#isText ? (JSON.parse(this.#kept) as RecordRow).body : bodyFromBytes(this.bodyBytes)
  }

  get bodyBytes(): Uint8Array {
    if (this.#isText) {
      this.#kept = keptBytes(this.body)
      this.#isText = false
    }
    return Buffer.from(this.#kept, 'latin1')
  }

  /** The store writes the row in the form in which it was given. */
  toJSON(): RecordRow {
    const { createdAtMs, body, hash, bytes, readers } = this
    return {
      createdAtMs,
      body,
      ...(hash === undefined ? {} : { hash }),
      ...(bytes === undefined ? {} : { bytes }),
      ...(readers === undefined ? {} : { readers }),
    }
  }
}

/** Packs a row if its kind and hash allow it. */
export function packedRow(row: RecordRow): RecordRow {
  if (row instanceof PackedRow) return row
  const { body, hash } = row
  // A hash in another form is kept unpacked.
  if (hash !== undefined && !HASH.test(hash)) return row
  return body.kind === 'EndpointSlice' || body.kind === 'ServiceExport'
    ? new PackedRow(row, keptBytes(body), false)
    : row
}

/** The form in which putRecord() writes rows of records for all members. Text in the body cannot match TAIL, since a body ends with a brace. */
const HEAD = /^{"createdAtMs":(\d{1,16}),"body":{"kind":"(?:EndpointSlice|ServiceExport)",/
const TAIL = /},"hash":"([0-9a-f]{64})","bytes":(\d{1,10})}$/
const TAIL_CHARACTERS = 120

/** Parses the stored text of a row. Throws SyntaxError. */
export function rowFromText(text: string): RecordRow {
  const head = HEAD.exec(text)
  const tail = TAIL.exec(text.slice(-TAIL_CHARACTERS))
  if (head?.[1] === undefined || tail?.[1] === undefined) return JSON.parse(text) as RecordRow
  return new PackedRow({ createdAtMs: Number(head[1]), hash: tail[1], bytes: Number(tail[2]) }, text, true)
}

export const PACKED: RowPacking = {
  pack: (change) => {
    if (change.value === undefined) return change
    const value = packedRow(change.value)
    if (value === change.value) return change
    const { scope, key, revision } = change
    // Fields are listed, since a copy made by spreading keeps its properties in a separate list, which takes 40 bytes
    // more for each record.
    return { scope, key, revision, value }
  },
  fromText: rowFromText,
}

/** The body's bytes, if the row is packed. */
export function packedBody(row: RecordRow): Uint8Array | undefined {
  return row instanceof PackedRow ? row.bodyBytes : undefined
}

function keptBytes(body: RecordBody): string {
  const bytes = bodyToBytes(body)
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1')
}
