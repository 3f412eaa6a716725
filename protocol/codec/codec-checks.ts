/**
 * Checks that all decoders use. A check that fails throws a CodecError with the name of the field, and the rest of the
 * message is not checked.
 */
import { toUSVString } from 'node:util'
import type { ListForm, NumberForm, PairsForm, TextForm, WordForm } from '../../model/grammar/grammar.ts'
import type { Pair } from '../gen/broker.ts'
import { MAX_MESSAGE_BYTES, MAX_NAME, MAX_TEXT } from '../protocol.ts'

/** Data from the network or disk is not an acceptable message. The text may be sent to the peer. */
export class CodecError extends Error {
  static readonly code = 'CODEC'
  /** Path of the invalid value, for example `body.ports[2].protocol`. */
  readonly field: string
  /** The message without the field name. */
  readonly problem: string
  constructor(field: string, problem: string) {
    super(`${field}: ${problem}`)
    this.name = 'CodecError'
    this.field = field
    this.problem = problem
  }
}

/** Runs a generated decoder and converts any error to a CodecError for `what`. */
export function parseWire<W>(what: string, bytes: Uint8Array, maxBytes: number, decode: (bytes: Uint8Array) => W): W {
  if (bytes.length > maxBytes) throw new CodecError(what, `${bytes.length} bytes: expected at most ${maxBytes}`)
  try {
    return decode(bytes)
  } catch (error) {
    throw new CodecError(what, `not a message of this kind: ${error instanceof Error ? error.message : 'unreadable'}`)
  }
}

/** Quotes and shortens a value for error texts. */
export function shown(value: string): string {
  return JSON.stringify(value.length > 80 ? `${toUSVString(value.slice(0, 80))}…` : value)
}

export function text(value: string, field: string, max = MAX_TEXT, min = 0): string {
  if (value.length > max) throw new CodecError(field, `${value.length} characters: expected at most ${max}`)
  if (value.length < min) throw new CodecError(field, 'empty: expected a value')
  if (toUSVString(value) !== value) throw new CodecError(field, 'not valid Unicode text')
  return value
}

/**
 * Checks a part of a record key, which must not contain '/' because keys are joined with it. Admission checks the rest
 * of the syntax.
 */
export function keyPart(value: string, field: string, min: 0 | 1): string {
  if (value.includes('/')) throw new CodecError(field, `${shown(value)}: expected no '/'`)
  return text(value, field, MAX_NAME, min)
}

export function oneOf<T extends string>(value: string, field: string, choices: readonly T[]): T {
  const found = choices.find((choice) => choice === value)
  if (found === undefined) throw new CodecError(field, `${shown(value)}: expected one of ${choices.join(', ')}`)
  return found
}

export function integer(value: number, field: string, min: number, max: number): number {
  if (!Number.isInteger(value) || value < min || value > max) {
    throw new CodecError(field, `${value}: expected a whole number from ${min} to ${max}`)
  }
  return value
}

/** Checks a revision, sequence number or time: an integer that a double represents exactly. */
export function count(value: number, field: string): number {
  return integer(value, field, 0, Number.MAX_SAFE_INTEGER)
}

export function bytes(value: Uint8Array, field: string, max: number, min = 0): Uint8Array {
  if (value.length > max || value.length < min) {
    const wanted = min === max ? `${max}` : min === 0 ? `at most ${max}` : `${min} to ${max}`
    throw new CodecError(field, `${value.length} bytes: expected ${wanted}`)
  }
  return value
}

export function list<W, T>(
  values: readonly W[],
  field: string,
  max: number,
  item: (value: W, field: string) => T,
): T[] {
  if (values.length > max) throw new CodecError(field, `${values.length} entries: expected at most ${max}`)
  return values.map((value, i) => item(value, `${field}[${i}]`))
}

export function texts(values: readonly string[], field: string, max: number, maxText = MAX_TEXT): string[] {
  return list(values, field, max, (value, path) => text(value, path, maxText))
}

export function present<T>(value: T | undefined, field: string): T {
  if (value === undefined) throw new CodecError(field, 'missing')
  return value
}

/**
 * Returns `{ [key]: value }`, or `{}` if the value is undefined, so that absent keys stay absent
 * (exactOptionalPropertyTypes).
 */
export function optional<K extends string, V>(key: K, value: V | undefined): { readonly [P in K]?: V } {
  return value === undefined ? {} : ({ [key]: value } as { readonly [P in K]?: V })
}

// The limits of a form. The rest of it is checked by admission and the importers, which refuse one record alone.

export function textOf({ most, least }: TextForm, value: string, field: string): string {
  return text(value, field, most, least)
}

export function wordOf<T extends string>({ words }: WordForm<T>, value: string, field: string): T {
  return oneOf(value, field, words)
}

export function numberOf({ least, most }: NumberForm, value: number, field: string): number {
  return integer(value, field, least, most)
}

export function textsOf({ most, item }: ListForm<TextForm>, values: readonly string[], field: string): string[] {
  return texts(values, field, most, item.most)
}

/** Decodes labels or annotations. Throws CodecError for a duplicate key. */
export function pairsToRecord(form: PairsForm, pairs: readonly Pair[], field: string): Record<string, string> {
  const entries = list(pairs, field, form.mostRead, (pair, path): [string, string] => [
    textOf(form.key, pair.key, `${path}.key`),
    textOf(form.value, pair.value, `${path}.value`),
  ])
  const seen = new Set<string>()
  for (const [key] of entries) {
    if (seen.has(key)) throw new CodecError(field, `${shown(key)} comes twice`)
    seen.add(key)
  }
  return Object.fromEntries(entries)
}

export function recordToPairs(record: Readonly<Record<string, string>>): Pair[] {
  return Object.keys(record)
    .sort()
    .map((key) => ({ key, value: record[key] ?? '' }))
}

/** Returns the message. Throws CodecError if it is so large that the peer would refuse it. */
export function limited(message: Uint8Array): Uint8Array {
  if (message.length > MAX_MESSAGE_BYTES) {
    throw new CodecError('message', `${message.length} bytes: expected at most ${MAX_MESSAGE_BYTES}`)
  }
  return message
}

/** Returns the same bytes as a Buffer without copying, as the generated code requires. */
export function buffer(content: Uint8Array): Buffer {
  return Buffer.from(content.buffer, content.byteOffset, content.byteLength)
}
