/**
 * A member's copy of everybody's records: a pure fold of watch messages, no clock, no sockets.
 *
 * A snapshot is staged and shown only at `synced`, whole. Then the old copy is compared with it: what the snapshot
 * lacks is dropped only where the broker knows the owner's whole set in this epoch (`complete`) or the owner is gone
 * for good (`departed`). Everything else is kept and remembered as unconfirmed, until a put or a remove names it or a
 * later `synced` lists its owner. A record that was not shown need not be removed.
 *
 * With an interest it is a copy of the records of some namespaces: of its scope. What leaves the scope is dropped,
 * which says nothing about its owner.
 */
import { isDeepStrictEqual } from 'node:util'
import {
  type Interest,
  type RecordKey,
  type StoredRecord,
  bothOf,
  isOfInterest,
  lackingIn,
  recordKeyText,
} from '../../model/model.ts'
import {
  type ListChange,
  MAX_EXPORTED_NAMESPACES,
  type RecordEvent,
  type WatchMessage,
  type WatchRequest,
} from '../protocol.ts'
import { CodecError, decodeRecordEvent } from '../codec/codec.ts'

export type ReplicaChange =
  | { readonly t: 'put'; readonly record: StoredRecord; readonly previous: StoredRecord | undefined }
  | { readonly t: 'removed'; readonly record: StoredRecord }

/** The broker's messages contradict each other: start over with a snapshot. */
export class ReplicaError extends Error {
  constructor(message: string) {
    super(`watch: ${message}`)
    this.name = 'ReplicaError'
  }
}

export interface ReplicaInit {
  readonly epoch: string
  readonly revision: number
  readonly records: Iterable<StoredRecord>
  /** recordKeyText of the records that this epoch has not shown. */
  readonly unconfirmed: Iterable<string>
  readonly complete: Iterable<string>
  readonly departed: Iterable<string>
  /** Namespaces whose records are here. Absent: all. */
  readonly scope?: Iterable<string>
  /** Namespaces in which somebody exports something. Absent: it was not told. */
  readonly exported?: Iterable<string>
}

export class Replica {
  #records = new Map<string, StoredRecord>()
  #unconfirmed = new Set<string>()
  #complete: ReadonlySet<string> = new Set()
  #departed: ReadonlySet<string> = new Set()
  #position: { epoch: string; revision: number } | undefined
  #staging: Staging | undefined
  #displaced: readonly StoredRecord[] = []
  /** Namespaces that are asked for; undefined: all. */
  #interest: Interest | undefined
  /** Those whose records are here, whole as of the position; undefined: all. */
  #scope: Interest | undefined
  /** Of the stream: those whose records come. Undefined: all. */
  #coming: Interest | undefined
  /** Asked for when the stream was begun. */
  #asked: Interest | undefined
  #exported: Set<string> | undefined
  /** A stream has begun and its `reset` has come. */
  #started = false
  #confirmed = false

  /** With `init`, as it was saved. */
  constructor(init?: ReplicaInit) {
    if (init === undefined) return
    for (const record of init.records) this.#records.set(recordKeyText(record.key), record)
    this.#unconfirmed = new Set(init.unconfirmed)
    this.#complete = new Set(init.complete)
    this.#departed = new Set(init.departed)
    this.#position = { epoch: init.epoch, revision: init.revision }
    this.#scope = init.scope === undefined ? undefined : new Set(init.scope)
    this.#exported = init.exported === undefined ? undefined : new Set(init.exported)
  }

  /** By recordKeyText. A record that has not changed stays the same object. */
  get records(): ReadonlyMap<string, StoredRecord> {
    return this.#records
  }

  /** True once a whole snapshot was seen, in whatever epoch; never false again. */
  get synced(): boolean {
    return this.#position !== undefined
  }

  /**
   * True once a `synced` has come since this replica was made: what it holds is the broker's word and not a file's alone,
   * which may be a day old. Never saved.
   */
  get confirmed(): boolean {
    return this.#confirmed
  }

  get epoch(): string | undefined {
    return this.#position?.epoch
  }

  get revision(): number {
    return this.#position?.revision ?? 0
  }

  /** Owners ('' is the broker) whose absent records are gone for certain. */
  get complete(): ReadonlySet<string> {
    return this.#complete
  }

  get departed(): ReadonlySet<string> {
    return this.#departed
  }

  /** recordKeyText of the records that are kept although this epoch has not shown them. */
  get unconfirmed(): ReadonlySet<string> {
    return this.#unconfirmed
  }

  /**
   * Records of the broker's own (Cluster, ClusterSetIP) as an earlier epoch had them and the present one does not: what a
   * broker that was restored from an older backup may have forgotten. Not kept across restarts of this process.
   */
  get displaced(): readonly StoredRecord[] {
    return this.#displaced
  }

  /** Namespaces whose records are here, as of the position; undefined: all. */
  get scope(): Interest | undefined {
    return this.#scope
  }

  /** Namespaces in which somebody exports something; undefined: nobody has told, and the records are all here. */
  get exported(): ReadonlySet<string> | undefined {
    return this.#exported
  }

  /** Whether a record of the namespace that is not here is not at the broker either. */
  holds(namespace: string): boolean {
    return this.#scope === undefined || this.#scope.has(namespace)
  }

  /**
   * What to ask for from the next stream on; undefined: everything. Gives what is dropped at once: whose namespace is
   * not asked for any more. Drops nothing while records of all namespaces come from a broker of an earlier release.
   */
  setInterest(interest: Interest | undefined): ReplicaChange[] {
    this.#interest = interest
    if (interest === undefined) return []
    this.#coming = this.#coming && bothOf(this.#coming, interest)
    if (this.#scope === undefined) return []
    this.#scope = bothOf(this.#scope, interest)
    return this.#dropOutside(interest)
  }

  /** What to ask the broker for. Ends a stream: what was staged is forgotten. */
  begin(): WatchRequest {
    this.#staging = undefined
    this.#started = false
    this.#coming = this.#scope
    this.#asked = this.#interest
    const interest = this.#asked
    const at = this.#position
    // Who has a part, and asks for all, has to be sent all.
    const isPart = interest === undefined && this.#scope !== undefined
    const resume = at === undefined || at.epoch === '' || isPart ? undefined : { ...at }
    if (interest === undefined) return resume === undefined ? {} : { resume }
    const missing = resume === undefined ? undefined : this.#scope && lackingIn(interest, this.#scope)
    const asked = { interest: { namespaces: interest, missing: missing ?? new Set<string>() } }
    return resume === undefined ? asked : { resume, ...asked }
  }

  /** Next time ask for a snapshot. The records stay. */
  forgetPosition(): void {
    if (this.#position !== undefined) this.#position = { epoch: '', revision: 0 }
  }

  /**
   * Folds one message in and gives what changed for the reader. Events that cannot be decoded are passed to
   * `onInvalid` and skipped: one bad record does not hide the others. Throws ReplicaError.
   */
  apply(message: WatchMessage, onInvalid: (error: CodecError) => void = () => undefined): ReplicaChange[] {
    switch (message.t) {
      case 'reset':
        return this.#reset(message.epoch, message.resumed, message.keepsToInterest === true)
      case 'batch':
        return this.#batch(decodeEvents(message.events, onInvalid), message.revision)
      case 'synced':
        return this.#synced(message.revision, message.complete, message.departed)
      case 'ownersChanged':
        return this.#ownersChanged(message.revision, message.complete, message.departed)
      case 'added':
        return this.#added(decodeEvents(message.events, onInvalid))
      case 'exportedNamespaces':
        this.#noteExported(message)
        return []
      case 'packed':
        throw new ReplicaError('a message came packed to one that does not unpack')
      case 'contact':
      case 'authorities':
        // About the present moment: nothing to keep.
        return []
    }
  }

  #reset(epoch: string, resumed: boolean, keepsToInterest: boolean): ReplicaChange[] {
    if (resumed && epoch !== this.#position?.epoch) {
      throw new ReplicaError(
        `epoch "${epoch}" cannot be resumed: the last one seen is "${this.#position?.epoch ?? ''}"`,
      )
    }
    if (resumed && !keepsToInterest && this.#scope !== undefined) {
      throw new ReplicaError('a broker that keeps to no interest resumed a copy of some namespaces')
    }
    if (keepsToInterest && this.#asked === undefined)
      throw new ReplicaError('an interest is kept to that was not stated')
    this.#staging = resumed ? undefined : { epoch, records: new Map(), removed: new Set(), revision: 0 }
    this.#started = true
    this.#coming = keepsToInterest ? stillAsked(this.#asked, this.#interest) : undefined
    return resumed && this.#coming !== undefined ? this.#narrow(this.#coming) : []
  }

  /** From now on changes of these namespaces come, and of no others. */
  #narrow(coming: Interest): ReplicaChange[] {
    // Until the broker tells: what is known of the namespaces that are about to be forgotten.
    this.#exported ??= exportedIn(this.#records.values())
    this.#scope = this.#scope === undefined ? coming : bothOf(this.#scope, coming)
    return this.#dropOutside(coming)
  }

  #dropOutside(interest: Interest): ReplicaChange[] {
    const changes: ReplicaChange[] = []
    for (const [key, record] of this.#records) {
      if (isOfInterest(interest, record.key)) continue
      this.#records.delete(key)
      this.#unconfirmed.delete(key)
      changes.push({ t: 'removed', record })
    }
    return changes
  }

  /** Of namespaces that were missing: the position says nothing about them until `synced`. */
  #added(events: readonly RecordEvent[]): ReplicaChange[] {
    if (!this.#started || this.#staging !== undefined || this.#coming === undefined) {
      throw new ReplicaError('records were added to no copy of some namespaces')
    }
    return events.flatMap((event) => this.#live(event))
  }

  #noteExported({ whole, added, removed }: Extract<WatchMessage, { t: 'exportedNamespaces' }>): void {
    if (whole || this.#exported === undefined) this.#exported = new Set()
    for (const name of removed) this.#exported.delete(name)
    for (const name of added) if (this.#exported.size < MAX_EXPORTED_NAMESPACES) this.#exported.add(name)
  }

  #batch(events: readonly RecordEvent[], revision: number): ReplicaChange[] {
    if (!this.#started) throw new ReplicaError('a batch came before the first reset')
    const at = this.#staging ?? this.#position
    if (at === undefined || revision < at.revision) {
      throw new ReplicaError(`revision ${revision} came after ${at?.revision ?? 0}`)
    }
    at.revision = revision
    if (this.#staging === undefined) return events.flatMap((event) => this.#live(event))
    for (const event of events) if (isOfInterest(this.#coming, keyOf(event))) stage(this.#staging, event)
    return []
  }

  #live(event: RecordEvent): ReplicaChange[] {
    if (!isOfInterest(this.#coming, keyOf(event))) return []
    const key = recordKeyText(event.t === 'put' ? event.record.key : event.key)
    const previous = this.#records.get(key)
    // The revision of a kept record is of another epoch and says nothing.
    const kept = this.#unconfirmed.delete(key)
    if (event.t === 'remove') {
      if (previous === undefined || (!kept && previous.revision > event.revision)) return []
      this.#records.delete(key)
      return [{ t: 'removed', record: previous }]
    }
    if (previous !== undefined && !kept && previous.revision >= event.record.revision) return []
    this.#records.set(key, event.record)
    return [{ t: 'put', record: event.record, previous }]
  }

  #synced(revision: number, complete: readonly string[], departed: readonly string[]): ReplicaChange[] {
    if (!this.#started) throw new ReplicaError('a synced came before the first reset')
    const changes = this.#staging === undefined ? [] : this.#show(this.#staging)
    const position = this.#position
    if (position === undefined || revision < position.revision) {
      throw new ReplicaError(`synced at revision ${revision} came after ${position?.revision ?? 0}`)
    }
    position.revision = revision
    this.#confirmed = true
    // Also what was missing is whole now.
    this.#scope = this.#coming
    this.#complete = new Set(complete)
    this.#departed = new Set(departed)
    return [...changes, ...this.#dropUnconfirmed()]
  }

  /** The lists are those of the last `synced` of this stream, with what has changed since. */
  #ownersChanged(revision: number, complete: ListChange, departed: ListChange): ReplicaChange[] {
    const position = this.#position
    if (!this.#started || this.#staging !== undefined || position === undefined || revision < position.revision) {
      throw new ReplicaError(`a change of owners at revision ${revision} came before the first synced`)
    }
    position.revision = revision
    this.#complete = changedSet(this.#complete, complete)
    this.#departed = changedSet(this.#departed, departed)
    return this.#dropUnconfirmed()
  }

  /** The staged snapshot becomes the copy; what only the old copy had is unconfirmed. */
  #show(staging: Staging): ReplicaChange[] {
    const sameEpoch = staging.epoch === this.#position?.epoch
    const changes: ReplicaChange[] = []
    this.#staging = undefined
    if (this.#coming !== undefined) changes.push(...this.#narrow(this.#coming))
    else this.#exported = undefined
    const old = this.#records
    if (!sameEpoch) this.#displaced = displacedBy(staging, old)
    this.#records = new Map()
    for (const [key, record] of staging.records) {
      // No longer asked for since it came.
      if (!isOfInterest(this.#coming, record.key)) continue
      const previous = old.get(key)
      const unchanged = sameEpoch && previous?.revision === record.revision && !this.#unconfirmed.has(key)
      this.#records.set(key, unchanged ? previous : record)
      if (!unchanged) changes.push({ t: 'put', record, previous })
    }
    this.#unconfirmed = new Set()
    for (const [key, record] of old) {
      if (staging.records.has(key)) continue
      if (staging.removed.has(key)) {
        changes.push({ t: 'removed', record })
      } else {
        this.#records.set(key, record)
        this.#unconfirmed.add(key)
      }
    }
    this.#position = { epoch: staging.epoch, revision: staging.revision }
    return changes
  }

  #dropUnconfirmed(): ReplicaChange[] {
    const changes: ReplicaChange[] = []
    for (const key of this.#unconfirmed) {
      const record = this.#records.get(key)
      if (record === undefined || !(this.#complete.has(record.key.cluster) || this.#departed.has(record.key.cluster))) {
        continue
      }
      this.#unconfirmed.delete(key)
      this.#records.delete(key)
      changes.push({ t: 'removed', record })
    }
    return changes
  }
}

function changedSet(before: ReadonlySet<string>, { added, removed }: ListChange): ReadonlySet<string> {
  const after = new Set(before)
  for (const one of removed) after.delete(one)
  for (const one of added) after.add(one)
  return after
}

/** What was asked for and still is. Undefined: everything. */
function stillAsked(asked: Interest | undefined, interest: Interest | undefined): Interest | undefined {
  return asked === undefined || interest === undefined ? asked : bothOf(asked, interest)
}

function exportedIn(records: Iterable<StoredRecord>): Set<string> {
  const found = new Set<string>()
  for (const { key } of records) if (key.kind === 'ServiceExport') found.add(key.namespace)
  return found
}

// A snapshot that is on its way: shown when it is whole. And events as they come in batches.

/** What has come of it. */
interface Staging {
  readonly epoch: string
  readonly records: Map<string, StoredRecord>
  /** Named as removed while the snapshot came: gone, whichever member is the owner. */
  readonly removed: Set<string>
  revision: number
}

/** Folds one event in. */
function stage(staging: Staging, event: RecordEvent): void {
  const key = recordKeyText(keyOf(event))
  if (event.t === 'put') {
    staging.records.set(key, event.record)
    staging.removed.delete(key)
  } else {
    staging.records.delete(key)
    staging.removed.add(key)
  }
}

/** Of the record that the event is about. */
function keyOf(event: RecordEvent): RecordKey {
  return event.t === 'put' ? event.record.key : event.key
}

/**
 * Records of the broker's own that the new epoch lacks or has otherwise. What was removed in the new epoch is gone, and
 * not forgotten.
 */
function displacedBy({ records, removed }: Staging, old: ReadonlyMap<string, StoredRecord>): StoredRecord[] {
  return [...old].flatMap(([key, record]) => {
    const { kind } = record.key
    if ((kind !== 'Cluster' && kind !== 'ClusterSetIP') || removed.has(key)) return []
    return isDeepStrictEqual(records.get(key)?.body, record.body) ? [] : [record]
  })
}

/** Events that cannot be decoded are passed to `onInvalid` and left out. */
function decodeEvents(events: readonly Uint8Array[], onInvalid: (error: CodecError) => void): RecordEvent[] {
  const decoded: RecordEvent[] = []
  for (const bytes of events) {
    try {
      const event = decodeRecordEvent(bytes)
      if (event !== undefined) decoded.push(event)
    } catch (error) {
      if (!(error instanceof CodecError)) throw error
      onInvalid(error)
    }
  }
  return decoded
}
