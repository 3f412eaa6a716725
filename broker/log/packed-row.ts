/**
 * Records as the log holds them: of exports and slices, which are nearly all, only bytes, and those in a string: the
 * smallest thing that V8 has for them. A body as objects is six times as large, and is looked at when it changes. A row
 * that was read from the store stays the text that it was there until a watcher needs it: a broker that starts has a
 * hundred thousand to read, and members that wait.
 */
import { bodyFromBytes, bodyToBytes } from '../../protocol/codec/records-codec.ts'
import type { RecordBody } from '../../model/records.ts'
import type { RecordRow } from '../state/state.ts'
import type { RowPacking } from './row-packing.ts'

type Kept = { readonly text: string } | { readonly bytes: string }

class PackedRow implements RecordRow {
  readonly createdAtMs: number
  declare readonly hash?: string
  declare readonly bytes?: number
  /** Bytes are Latin-1: a character is a byte. */
  #kept: Kept

  constructor({ createdAtMs, hash, bytes }: Omit<RecordRow, 'body'>, kept: Kept) {
    this.createdAtMs = createdAtMs
    if (hash !== undefined) this.hash = hash
    if (bytes !== undefined) this.bytes = bytes
    this.#kept = kept
  }

  /** Decoded each time. */
  get body(): RecordBody {
    const kept = this.#kept
    return 'text' in kept ? (JSON.parse(kept.text) as RecordRow).body : bodyFromBytes(this.bodyBytes)
  }

  get bodyBytes(): Uint8Array {
    if ('text' in this.#kept) this.#kept = keptBytes(this.body)
    return Buffer.from('bytes' in this.#kept ? this.#kept.bytes : '', 'latin1')
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
  const { body } = row
  return body.kind === 'EndpointSlice' || body.kind === 'ServiceExport' ? new PackedRow(row, keptBytes(body)) : row
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
  return new PackedRow({ createdAtMs: Number(head[1]), hash: tail[1], bytes: Number(tail[2]) }, { text })
}

export const PACKED: RowPacking = {
  pack: (change) => {
    if (change.value === undefined) return change
    const value = packedRow(change.value)
    return value === change.value ? change : { ...change, value }
  },
  fromText: rowFromText,
}

/** The body's bytes where it is kept so. */
export function packedBody(row: RecordRow): Uint8Array | undefined {
  return row instanceof PackedRow ? row.bodyBytes : undefined
}

function keptBytes(body: RecordBody): Kept {
  const bytes = bodyToBytes(body)
  return { bytes: Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1') }
}
