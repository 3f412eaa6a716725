/**
 * Tracks which records a member wants published, which the broker has, which are in flight, and which were refused. It
 * has no timers and no I/O; publish-session.ts moves the messages.
 *
 * A refused record counts as not wanted until its content changes: it is not sent again, the declared set omits it, and
 * an earlier version at the broker is removed. A record that was refused for lack of quota waits instead, even if its
 * content changes: the broker keeps an earlier version, and the record is sent again when it fits
 * (waiting-for-quota.ts).
 */
import {
  type MemberRecord,
  type QuotaReason,
  type QuotaReport,
  isQuotaReason,
  quotaProblem,
} from '../../model/model.ts'
import type { ReasonCode, RefusalReason } from '../../model/reasons/reasons.ts'
import type { MemberKey } from '../protocol.ts'
import {
  CodecError,
  canonicalJson,
  checkMemberRecord,
  contentHash,
  memberKey,
  memberKeyText,
  setHash,
} from '../codec/codec.ts'
import { type WaitingRecord, WaitingRoom, serviceKeyOf } from './waiting-for-quota.ts'

/** Prefix of memberKeyText() for gateways. */
const LANES = 'Endpoint/'

/** Keys of records to compare, in order of arrival. Gateways come first, so that no lane waits for services. */
class DirtyKeys {
  readonly #lanes = new Set<string>()
  readonly #others = new Set<string>()

  get size(): number {
    return this.#lanes.size + this.#others.size
  }

  add(key: string): void {
    this.#of(key).add(key)
  }

  delete(key: string): void {
    this.#of(key).delete(key)
  }

  clear(): void {
    this.#lanes.clear()
    this.#others.clear()
  }

  *[Symbol.iterator](): Generator<string, void, undefined> {
    yield* this.#lanes
    yield* this.#others
  }

  #of(key: string): Set<string> {
    return key.startsWith(LANES) ? this.#lanes : this.#others
  }
}

export interface Refusal {
  readonly field: string
  readonly reason: RefusalReason
  readonly message: string
}

export type RecordState =
  /** The record was not sent yet, or not answered yet. */
  | { readonly t: 'pending' }
  /** The broker has durably stored this content. */
  | { readonly t: 'stored' }
  /** The broker refuses the present content. */
  | ({ readonly t: 'refused' } & Refusal)

export type Change =
  | { readonly t: 'put'; readonly sequence: number; readonly record: MemberRecord }
  | { readonly t: 'remove'; readonly sequence: number; readonly key: MemberKey }

export interface Declaration {
  readonly setHash: Uint8Array
  readonly count: number
  readonly entries: readonly { readonly key: MemberKey; readonly hash: Uint8Array }[]
}

/** A content hash in hexadecimal, so that hashes compare by value. */
type Hash = string

/**
 * The broker may have an earlier version or none. The value equals no hash, so a refused put is followed by a remove.
 */
const UNKNOWN: Hash = 'unknown'

interface Wanted {
  readonly record: MemberRecord
  readonly hash: Hash
}

interface InFlight {
  readonly sequence: number
  readonly key: string
  /** What the broker has before and after this change. Undefined if it has no such record. */
  before: Hash | undefined
  readonly after: Hash | undefined
}

export class PublishLedger {
  #wanted = new Map<string, Wanted>()
  /** The broker gives records only to members to which they are offered. */
  #keepsToOffers = true
  /** `final` is true if this member's own limits refuse the record, and not the broker. */
  readonly #refused = new Map<string, Refusal & { readonly hash: Hash; readonly final: boolean }>()
  readonly #room = new WaitingRoom()
  /** Number of records that wait for quota. */
  #waiting = 0
  /** What the broker has once everything in flight has arrived. */
  #held = new Map<string, Hash>()
  /** What the broker has for certain. */
  #stored = new Map<string, Hash>()
  /** Keys of all records that the broker ever had, because a removal must name its record. */
  readonly #keys = new Map<string, MemberKey>()
  readonly #inFlight: InFlight[] = []
  /** Keys for which the two sides may differ. Removals come last: records are added before others are deleted. */
  readonly #dirty = new DirtyKeys()
  readonly #removals = new Set<string>()

  get size(): number {
    return this.#wanted.size
  }

  get inFlight(): number {
    return this.#inFlight.length
  }

  /** Number of records that wait for quota. */
  get waiting(): number {
    return this.#waiting
  }

  get settled(): boolean {
    return this.#inFlight.length === 0 && this.#dirty.size === 0 && this.#removals.size === 0
  }

  /**
   * Sets the whole set of wanted records, by memberKeyText(). A record that is the same object as before counts as
   * unchanged. Returns the records that exceed the limits of the protocol and are refused here.
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
      const refusal = refusalOf(record) ?? this.#offerRefusal(record)
      const before = this.#refused.get(key)
      if (refusal !== undefined) {
        this.#refuseAs(key, { ...refusal, hash, final: true })
        refusals.push({ key, refusal })
      } else if (before !== undefined && isQuotaReason(before.reason) && !this.#held.has(key)) {
        // Other content frees no room. Whether it fits is checked below.
        this.#refused.set(key, { ...before, hash })
        continue
      }
      this.#dirty.add(key)
    }
    for (const key of old.keys()) if (!this.#wanted.has(key)) this.#dirty.add(key)
    for (const key of this.#refused.keys()) if (!this.#wanted.has(key)) this.#forget(key)
    this.#offerWaiting(({ isHeld }) => !isHeld)
    return refusals
  }

  /**
   * Takes whether the broker gives records only to members to which they are offered. If it does not, records that are
   * not for all members count as refused, and an earlier version at the broker is removed. Returns those.
   */
  setKeepsToOffers(keeps: boolean): { readonly key: string; readonly refusal: Refusal }[] {
    if (keeps === this.#keepsToOffers) return []
    this.#keepsToOffers = keeps
    const refusals: { key: string; refusal: Refusal }[] = []
    for (const [key, { record, hash }] of this.#wanted) {
      const refusal = this.#offerRefusal(record)
      if (refusal !== undefined) {
        this.#refuseAs(key, { ...refusal, hash, final: true })
        refusals.push({ key, refusal })
      } else if (this.#refused.get(key)?.reason === 'OffersNotSupported') this.#forget(key)
      else continue
      this.#dirty.add(key)
    }
    return refusals
  }

  #offerRefusal({ body }: MemberRecord): Refusal | undefined {
    const offeredTo = body.kind === 'Endpoint' ? undefined : body.offeredTo
    if (this.#keepsToOffers || offeredTo === undefined) return undefined
    const message =
      'the broker, or a replica of it, is of an earlier release, which would give the record to all members'
    return { field: 'offeredTo', reason: 'OffersNotSupported', message }
  }

  /** Takes the quota report of the broker. Returns the keys of records whose state changes. */
  takeQuota(report: QuotaReport, cluster: string): string[] {
    const before = this.#room.report?.limit
    this.#room.take(report)
    const changed = this.#offerWaiting()
    const { records, bytes } = report.limit
    if (before === undefined || (before.records === records && before.bytes === bytes)) return changed
    for (const [key, refused] of this.#refused) {
      if (!isQuotaReason(refused.reason)) continue
      this.#refused.set(key, { ...refused, message: quotaProblem(refused.reason, cluster, report) })
      changed.push(key)
    }
    return changed
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
   * Sends records that the broker refused again, for example after an operator has changed its rules. Records that
   * exceed the limits of the protocol stay refused until their content changes, because sending them would end the
   * stream. Records that wait for quota keep waiting, because the broker reports when there is room.
   */
  forgetRefusals(): void {
    for (const [key, { final, reason }] of this.#refused) {
      if (final || isQuotaReason(reason)) continue
      this.#dirty.add(key)
      this.#refused.delete(key)
    }
  }

  /** Returns what to send first on a new stream. */
  declare(): Declaration {
    const entries = [...this.#wanted]
      .filter(([key]) => this.#acceptable(key) !== undefined || (this.#waits(key) && this.#held.has(key)))
      .map(([key, { record, hash }]) => {
        // A record that waits is declared with the content that the broker has, or else the broker would remove it.
        const declared = this.#waits(key) ? (this.#stored.get(key) ?? hash) : hash
        return { key: memberKey(record), hash: Buffer.from(declared, 'hex') }
      })
    return { setHash: setHash(entries.map(({ hash }) => hash)), count: entries.length, entries }
  }

  /**
   * Starts a stream: the broker has the declared set except `needed`. Discards what was in flight on an earlier stream.
   */
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
      // The broker asks for this record, so it is sent once more.
      if (this.#waits(memberKeyText(key))) this.#forget(memberKeyText(key))
    }
    for (const key of new Set([...this.#wanted.keys(), ...this.#held.keys()])) this.#dirty.add(key)
  }

  /** Records that the broker lacks after all. */
  need(keys: readonly MemberKey[]): void {
    for (const key of keys) {
      const text = memberKeyText(key)
      // A record that is in flight will arrive anyway.
      if (this.#inFlight.some((item) => item.key === text)) continue
      this.#held.set(text, UNKNOWN)
      this.#keys.set(text, key)
      this.#stored.delete(text)
      if (this.#waits(text)) this.#forget(text)
      this.#dirty.add(text)
    }
  }

  /** Returns the next change to send, which then counts as in flight. Undefined if both sides agree. */
  next(sequence: number): Change | undefined {
    for (const key of this.#dirty) {
      this.#dirty.delete(key)
      if (this.#waits(key)) continue
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
      const isWanted = this.#acceptable(key) !== undefined || this.#waits(key)
      if (name === undefined || isWanted || !this.#held.has(key)) continue
      this.#send(sequence, key, undefined)
      return { t: 'remove', sequence, key: name }
    }
    return undefined
  }

  /** Everything up to `sequence` is stored, unless it was refused before. Returns the keys of the stored records. */
  acknowledge(sequence: number): string[] {
    const keys: string[] = []
    for (let item = this.#inFlight[0]; item !== undefined && item.sequence <= sequence; item = this.#inFlight[0]) {
      this.#inFlight.shift()
      keys.push(item.key)
      setOrDelete(this.#stored, item.key, item.after)
      // The broker has stored this content since, so an earlier refusal no longer applies.
      if (item.after !== undefined && this.#wanted.get(item.key)?.hash === item.after) this.#forget(item.key)
      if (item.after === undefined && !this.#held.has(item.key)) this.#keys.delete(item.key)
    }
    return keys
  }

  /**
   * The broker refused the change with this sequence number. If `kept`, it still has the previous version. Returns the
   * key of the record, or undefined if the change was not a record.
   */
  refuse(sequence: number, refusal: Refusal, kept = false): string | undefined {
    const at = this.#inFlight.findIndex((item) => item.sequence === sequence)
    const item = this.#inFlight[at]
    if (item === undefined) return undefined
    this.#inFlight.splice(at, 1)
    const later = this.#inFlight.find((other) => other.key === item.key && other.sequence > sequence)
    // If the broker had no room and no earlier version, it has nothing of this record that would have to be removed.
    const before = isQuotaReason(refusal.reason) && !kept ? undefined : item.before
    if (later !== undefined) later.before = before
    else setOrDelete(this.#held, item.key, before)
    if (item.after !== undefined) this.#refuseAs(item.key, { ...refusal, hash: item.after, final: false })
    if (isQuotaReason(refusal.reason) && !kept) this.#noRoomFor(item, refusal.reason)
    // The order of adding and deleting does not matter here, because only the earlier version remains to be removed.
    if (item.after !== undefined) this.#dirty.add(item.key)
    return item.key
  }

  /** The wanted content of a key, unless it was refused. */
  #acceptable(key: string): Wanted | undefined {
    const wanted = this.#wanted.get(key)
    return wanted !== undefined && this.#refused.get(key)?.hash !== wanted.hash ? wanted : undefined
  }

  /** Returns whether the present content was refused for lack of quota. */
  #waits(key: string): boolean {
    const refused = this.#refused.get(key)
    return isQuotaReason(refused?.reason) && this.#wanted.get(key)?.hash === refused.hash
  }

  #refuseAs(key: string, refusal: Refusal & { readonly hash: Hash; readonly final: boolean }): void {
    this.#forget(key)
    this.#refused.set(key, refusal)
    if (isQuotaReason(refusal.reason)) this.#waiting += 1
  }

  #forget(key: string): void {
    if (isQuotaReason(this.#refused.get(key)?.reason)) this.#waiting -= 1
    this.#refused.delete(key)
  }

  #noRoomFor({ key, after }: InFlight, reason: QuotaReason): void {
    const wanted = this.#wanted.get(key)
    if (wanted === undefined || wanted.hash !== after) return
    const service = serviceKeyOf(wanted.record)
    this.#room.refused(wanted.record, reason, service !== undefined && this.#held.has(service))
  }

  /** Marks waiting records that fit now for sending, and returns their keys. */
  #offerWaiting(which: (one: WaitingRecord) => boolean = () => true): string[] {
    if (this.#waiting === 0) return []
    const waiting = [...this.#wanted].flatMap(([key, { record }]) =>
      this.#waits(key) ? [{ key, record, isHeld: this.#held.has(key) }] : [],
    )
    const offered = this.#room.offer(waiting.filter(which), (key) => this.#held.has(key))
    for (const key of offered) {
      this.#forget(key)
      this.#dirty.add(key)
    }
    return offered
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

/** State of a record before the broker's first answer: nothing counts as stored, whatever an earlier process did. */
export function refusedOrPending(state: RecordState): RecordState {
  return state.t === 'refused' ? state : { t: 'pending' }
}

// Tracks which facts of the cluster the broker has. It has no timers and no I/O, as PublishLedger.

interface FactsRefusal {
  readonly sequence: number
  readonly reason: ReasonCode
}

/** `T` is the type of the cluster's facts, or of its status. */
export class FactsLedger<T extends object> {
  #facts: T | undefined
  #text: string | undefined
  /** The last value that the broker answered, whether stored or refused. */
  #reported: string | undefined
  #refusal: FactsRefusal | undefined
  #inFlight: { readonly sequence: number; readonly text: string } | undefined

  set(facts: T): void {
    this.#facts = facts
    this.#text = canonicalJson(facts)
  }

  get inFlight(): number {
    return this.#inFlight === undefined ? 0 : 1
  }

  get settled(): boolean {
    return this.#text === this.#reported
  }

  /** Returns the facts to send, which then count as in flight. Undefined if there is nothing to send. */
  next(sequence: number): T | undefined {
    if (this.#text === undefined || this.#text === this.#reported || this.#inFlight !== undefined) return undefined
    this.#inFlight = { sequence, text: this.#text }
    return this.#facts
  }

  acknowledge(sequence: number): void {
    if (this.#inFlight === undefined || this.#inFlight.sequence > sequence) return
    if (this.#refusal !== undefined && this.#refusal.sequence < this.#inFlight.sequence) this.#refusal = undefined
    this.#reported = this.#inFlight.text
    this.#inFlight = undefined
  }

  /** Returns whether `sequence` carried these facts. */
  isInFlight(sequence: number): boolean {
    return this.#inFlight?.sequence === sequence
  }

  /** The broker refuses these facts if `sequence` carried them. Its acknowledgement follows. */
  refuse(sequence: number, reason: ReasonCode): void {
    if (this.isInFlight(sequence)) this.#refusal = { sequence, reason }
  }

  /** Why the broker refuses the last facts. Undefined if it does not, or has not answered yet. */
  get refused(): ReasonCode | undefined {
    return this.#refusal?.reason
  }

  /** The stream has ended: what was in flight is sent again. */
  forgetInFlight(): void {
    this.#inFlight = undefined
  }

  /** Sends everything once more. */
  forgetReported(): void {
    this.#reported = undefined
  }
}
