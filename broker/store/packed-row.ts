/**
 * Records as the log holds them: of exports and slices, which are nearly all, only bytes, and those in a string: the
 * smallest thing that V8 has for them. A body as objects is six times as large, and is looked at when it changes. A row
 * that was read from the store stays the text that it was there until a watcher needs it: a broker that starts has a
 * hundred thousand to read, and members that wait.
 */
import type { RecordBody } from '../../model/model.ts'
import { bodyFromBytes, bodyToBytes } from '../../protocol/codec/codec.ts'
import type { RowPacking } from './record-log.ts'
import type { RecordRow } from './rows.ts'

/** A hash of 32 bytes as hexadecimal digits; kept, each byte is one character. */
const HASH = /^[0-9a-f]{64}$/

class PackedRow implements RecordRow {
  readonly createdAtMs: number
  readonly bytes: number | undefined
  readonly #hash: string | undefined
  /** The body's bytes in Latin-1: a character is a byte. Or the whole row as the store has it, if it is text. */
  #kept: string
  #isText: boolean

  constructor({ createdAtMs, hash, bytes }: Omit<RecordRow, 'body'>, kept: string, isText: boolean) {
    this.createdAtMs = createdAtMs
    this.bytes = bytes
    this.#hash = hash === undefined ? undefined : Buffer.from(hash, 'hex').toString('latin1')
    this.#kept = kept
    this.#isText = isText
  }

  get hash(): string | undefined {
    return this.#hash === undefined ? undefined : Buffer.from(this.#hash, 'latin1').toString('hex')
  }

  /** Decoded each time. */
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

  /** A store writes a row as it was given. */
  toJSON(): RecordRow {
    const { createdAtMs, body, hash, bytes } = this
    return {
      createdAtMs,
      body,
      ...(hash === undefined ? {} : { hash }),
      ...(bytes === undefined ? {} : { bytes }),
    }
  }
}

/** The row as it is kept. */
export function packedRow(row: RecordRow): RecordRow {
  if (row instanceof PackedRow) return row
  const { body, hash } = row
  // One that is none stays as it is.
  if (hash !== undefined && !HASH.test(hash)) return row
  return body.kind === 'EndpointSlice' || body.kind === 'ServiceExport'
    ? new PackedRow(row, keptBytes(body), false)
    : row
}

/** As putRecord() has it written: what is in the body cannot look like this, since a body ends with a brace. */
const HEAD = /^{"createdAtMs":(\d{1,16}),"body":{"kind":"(?:EndpointSlice|ServiceExport)",/
const TAIL = /},"hash":"([0-9a-f]{64})","bytes":(\d{1,10})}$/
const TAIL_CHARACTERS = 120

/** The row that a store has as this text. Throws SyntaxError. */
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
    // Written out: a copy by spreading has its properties in a list of their own, 40 bytes more for each record.
    return { scope, key, revision, value }
  },
  fromText: rowFromText,
}

/** The body's bytes where it is kept so. */
export function packedBody(row: RecordRow): Uint8Array | undefined {
  return row instanceof PackedRow ? row.bodyBytes : undefined
}

function keptBytes(body: RecordBody): string {
  const bytes = bodyToBytes(body)
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1')
}
