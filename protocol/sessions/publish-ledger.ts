/**
 * Who has what: the set that a member wants published, what the broker holds of it, what is on its way, and what was
 * refused. Pure bookkeeping, no time and no wire; publish-session.ts moves the messages.
 *
 * A refused record counts as not wanted until its content changes: it is not sent again, the declared set leaves it
 * out, and an earlier version that the broker still holds is withdrawn.
 */
import type { MemberRecord } from '../../model/records.ts'
import type { MemberKey } from '../broker-api.ts'
import { CodecError } from '../codec/codec-checks.ts'
import { contentHash, memberKey, memberKeyText } from '../codec/content-hash.ts'
import { checkMemberRecord } from '../codec/records-codec.ts'
import { setHash } from '../codec/set-hash.ts'
import type { RefusalReason } from '../../model/reasons/reasons.ts'

export interface Refusal {
  readonly field: string
  readonly reason: RefusalReason
  readonly message: string
}

export type RecordState =
  /** Not sent to the broker yet, or no answer yet. */
  | { readonly t: 'pending' }
  /** The broker has exactly this, durably. */
  | { readonly t: 'stored' }
  /** The broker does not take it as it is now. */
  | ({ readonly t: 'refused' } & Refusal)

export type Change =
  | { readonly t: 'put'; readonly sequence: number; readonly record: MemberRecord }
  | { readonly t: 'remove'; readonly sequence: number; readonly key: MemberKey }

export interface Declaration {
  readonly setHash: Uint8Array
  readonly count: number
  readonly entries: readonly { readonly key: MemberKey; readonly hash: Uint8Array }[]
}

/** Content hashes as hex: compared by value. */
type Hash = string

/**
 * The broker may hold an earlier version, or none: equal to no content, so that a refused put is followed by a remove.
 */
const UNKNOWN: Hash = 'unknown'

interface Wanted {
  readonly record: MemberRecord
  readonly hash: Hash
}

interface InFlight {
  readonly sequence: number
  readonly key: string
  /** What the broker held before, and holds once it has taken this. */
  before: Hash | undefined
  readonly after: Hash | undefined
}

export class PublishLedger {
  #wanted = new Map<string, Wanted>()
  /** `final`: by our own limits, not by the broker's rules. */
  readonly #refused = new Map<string, Refusal & { readonly hash: Hash; readonly final: boolean }>()
  /** On the broker once everything in flight has arrived. */
  #held = new Map<string, Hash>()
  /** On the broker for certain. */
  #stored = new Map<string, Hash>()
  /** Keys of everything ever held, so that a removal can name them. */
  readonly #keys = new Map<string, MemberKey>()
  readonly #inFlight: InFlight[] = []
  /** Keys where the two sides may differ. Removals come last: add before delete. */
  readonly #dirty = new Set<string>()
  readonly #removals = new Set<string>()

  get size(): number {
    return this.#wanted.size
  }

  get inFlight(): number {
    return this.#inFlight.length
  }

  get settled(): boolean {
    return this.#inFlight.length === 0 && this.#dirty.size === 0 && this.#removals.size === 0
  }

  /**
   * The whole set, by memberKeyText. A record that is the same object as before is taken as unchanged. Gives those
   * that are beyond the limits of the wire, refused here and now.
   */
  setWanted(records: ReadonlyMap<string, MemberRecord>): { readonly key: string; readonly refusal: Refusal }[] {
    const old = this.#wanted
    const refusals: { key: string; refusal: Refusal }[] = []
    this.#wanted = new Map()
    for (const [key, record] of records) {
      const known = old.get(key)
      if (known?.record === record) {
        this.#wanted.set(key, known)
        continue
      }
      const hash = hex(contentHash(record))
      this.#wanted.set(key, { record, hash })
      if (known?.hash === hash) continue
      const refusal = refusalOf(record)
      if (refusal !== undefined) {
        this.#refused.set(key, { ...refusal, hash, final: true })
        refusals.push({ key, refusal })
      }
      this.#dirty.add(key)
    }
    for (const key of old.keys()) if (!this.#wanted.has(key)) this.#dirty.add(key)
    for (const key of this.#refused.keys()) if (!this.#wanted.has(key)) this.#refused.delete(key)
    return refusals
  }

  state(key: string): RecordState {
    const wanted = this.#wanted.get(key)
    if (wanted === undefined) return { t: 'pending' }
    const refused = this.#refused.get(key)
    if (refused?.hash === wanted.hash) {
      const { field, reason, message } = refused
      return { t: 'refused', field, reason, message }
    }
    return this.#stored.get(key) === wanted.hash ? { t: 'stored' } : { t: 'pending' }
  }

  /**
   * Gives records that the broker refused another chance, for example after an operator has changed its rules. What is
   * beyond the limits of the wire stays refused until its content changes: sending it would end the stream.
   */
  forgetRefusals(): void {
    for (const [key, { final }] of this.#refused) {
      if (final) continue
      this.#dirty.add(key)
      this.#refused.delete(key)
    }
  }

  /** What to send the broker first on a new stream. */
  declare(): Declaration {
    const entries = [...this.#wanted]
      .filter(([key]) => this.#acceptable(key) !== undefined)
      .map(([, { record, hash }]) => ({ key: memberKey(record), hash: Buffer.from(hash, 'hex') }))
    return { setHash: setHash(entries.map(({ hash }) => hash)), count: entries.length, entries }
  }

  /** The broker holds the declared set, except `needed`. Forgets what an earlier stream had on its way. */
  begin(declaration: Declaration, needed: readonly MemberKey[]): void {
    this.#held = new Map(declaration.entries.map(({ key, hash }) => [memberKeyText(key), hex(hash)]))
    for (const key of [...declaration.entries.map((entry) => entry.key), ...needed])
      this.#keys.set(memberKeyText(key), key)
    this.#inFlight.length = 0
    this.#dirty.clear()
    this.#removals.clear()
    this.#stored = new Map(this.#held)
    for (const key of needed) {
      this.#held.set(memberKeyText(key), UNKNOWN)
      this.#stored.delete(memberKeyText(key))
    }
    for (const key of new Set([...this.#wanted.keys(), ...this.#held.keys()])) this.#dirty.add(key)
  }

  /** The broker lacks these after all. */
  need(keys: readonly MemberKey[]): void {
    for (const key of keys) {
      const text = memberKeyText(key)
      // What is on its way arrives all the same.
      if (this.#inFlight.some((item) => item.key === text)) continue
      this.#held.set(text, UNKNOWN)
      this.#keys.set(text, key)
      this.#stored.delete(text)
      this.#dirty.add(text)
    }
  }

  /** The next thing to send, now taken as on its way; undefined when both sides agree. */
  next(sequence: number): Change | undefined {
    for (const key of this.#dirty) {
      this.#dirty.delete(key)
      const wanted = this.#acceptable(key)
      if (wanted?.hash === this.#held.get(key)) continue
      if (wanted === undefined) {
        this.#removals.add(key)
        continue
      }
      this.#keys.set(key, memberKey(wanted.record))
      this.#send(sequence, key, wanted.hash)
      return { t: 'put', sequence, record: wanted.record }
    }
    for (const key of this.#removals) {
      this.#removals.delete(key)
      const name = this.#keys.get(key)
      if (name === undefined || this.#acceptable(key) !== undefined || !this.#held.has(key)) continue
      this.#send(sequence, key, undefined)
      return { t: 'remove', sequence, key: name }
    }
    return undefined
  }

  /** Everything up to `sequence` is stored, unless it was refused before. Gives the keys of what was. */
  acknowledge(sequence: number): string[] {
    const keys: string[] = []
    for (let item = this.#inFlight[0]; item !== undefined && item.sequence <= sequence; item = this.#inFlight[0]) {
      this.#inFlight.shift()
      keys.push(item.key)
      setOrDelete(this.#stored, item.key, item.after)
      // Taken in between: what was refused before it may be asked again.
      if (item.after !== undefined && this.#wanted.get(item.key)?.hash === item.after) this.#refused.delete(item.key)
      if (item.after === undefined && !this.#held.has(item.key)) this.#keys.delete(item.key)
    }
    return keys
  }

  /** The broker did not take what `sequence` brought. Gives the record's key, undefined when it was none of these. */
  refuse(sequence: number, refusal: Refusal): string | undefined {
    const at = this.#inFlight.findIndex((item) => item.sequence === sequence)
    const item = this.#inFlight[at]
    if (item === undefined) return undefined
    this.#inFlight.splice(at, 1)
    const later = this.#inFlight.find((other) => other.key === item.key && other.sequence > sequence)
    if (later !== undefined) later.before = item.before
    else setOrDelete(this.#held, item.key, item.before)
    if (item.after !== undefined) this.#refused.set(item.key, { ...refusal, hash: item.after, final: false })
    // Add before delete does not matter here: what is left to do is to withdraw the earlier version.
    if (item.after !== undefined) this.#dirty.add(item.key)
    return item.key
  }

  /** The wanted content of a key, unless it was refused. */
  #acceptable(key: string): Wanted | undefined {
    const wanted = this.#wanted.get(key)
    return wanted !== undefined && this.#refused.get(key)?.hash !== wanted.hash ? wanted : undefined
  }

  #send(sequence: number, key: string, after: Hash | undefined): void {
    this.#inFlight.push({ sequence, key, before: this.#held.get(key), after })
    setOrDelete(this.#held, key, after)
  }
}

function refusalOf(record: MemberRecord): Refusal | undefined {
  try {
    checkMemberRecord(record)
    return undefined
  } catch (error) {
    if (error instanceof CodecError) return { field: error.field, reason: 'InvalidValue', message: error.problem }
    throw error
  }
}

function setOrDelete(map: Map<string, Hash>, key: string, value: Hash | undefined): void {
  if (value === undefined) map.delete(key)
  else map.set(key, value)
}

function hex(bytes: Uint8Array): Hash {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex')
}
