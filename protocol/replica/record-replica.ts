/**
 * A member's copy of all members' records, built from watch messages. It has no timers and no I/O.
 *
 * A snapshot is staged, and replaces the visible records at `synced`. A record that the snapshot lacks is removed only
 * if the broker knows its owner completely in this epoch (`complete`), or the owner has left (`departed`). All other
 * records are kept and marked as unconfirmed, until an event names them or a later `synced` lists their owner.
 *
 * With an interest, the replica holds only the records of some namespaces, its scope. Records that leave the scope are
 * dropped, which says nothing about their owner.
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

/** The broker's messages contradict each other. The caller requests a new snapshot. */
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
  /** recordKeyText() of the records that the broker has not sent in this epoch. */
  readonly unconfirmed: Iterable<string>
  readonly complete: Iterable<string>
  readonly departed: Iterable<string>
  /** Namespaces whose records are present. Absent for all. */
  readonly scope?: Iterable<string>
  /** Namespaces in which a member exports a service. Absent if the broker has not reported them. */
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
  /** Namespaces to request. Undefined for all. */
  #interest: Interest | undefined
  /** Namespaces whose records are present and complete at `#position`. Undefined for all. */
  #scope: Interest | undefined
  /** Namespaces whose records arrive on the current stream. Undefined for all. */
  #coming: Interest | undefined
  /** The interest that the request of the current stream contains. */
  #asked: Interest | undefined
  #exported: Set<string> | undefined
  /** True after the `reset` of the current stream. */
  #started = false
  #confirmed = false

  /** Restores a saved replica if `init` is given. */
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

  /** Records by recordKeyText(). An unchanged record stays the same object. */
  get records(): ReadonlyMap<string, StoredRecord> {
    return this.#records
  }

  /** True after the first complete snapshot, of any epoch. Never becomes false again. */
  get synced(): boolean {
    return this.#position !== undefined
  }

  /**
   * True after the first `synced` since this object was created. Until then the records come only from a file, which
   * may be a day old. Not saved.
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

  /** Owners ('' is the broker) whose whole set is known: a record of theirs that is missing here does not exist. */
  get complete(): ReadonlySet<string> {
    return this.#complete
  }

  get departed(): ReadonlySet<string> {
    return this.#departed
  }

  /** recordKeyText() of the records that are kept although the broker has not sent them in this epoch. */
  get unconfirmed(): ReadonlySet<string> {
    return this.#unconfirmed
  }

  /**
   * Records of the broker itself (Cluster, ClusterSetIP) that an earlier epoch had and the present one lacks or
   * changed. A broker that was restored from an older backup may have lost them. Not kept across restarts of this
   * process.
   */
  get displaced(): readonly StoredRecord[] {
    return this.#displaced
  }

  /** Namespaces whose records are present at the current position. Undefined for all. */
  get scope(): Interest | undefined {
    return this.#scope
  }

  /**
   * Namespaces in which a member exports a service. Undefined if the broker has not reported them, because the replica
   * has the records of all namespaces.
   */
  get exported(): ReadonlySet<string> | undefined {
    return this.#exported
  }

  /**
   * Returns whether all records of the namespace are present. If so, a record that is missing here does not exist at
   * the broker.
   */
  holds(namespace: string): boolean {
    return this.#scope === undefined || this.#scope.has(namespace)
  }

  /**
   * Sets the namespaces to request from the next stream on; undefined for all. Returns the records that are dropped
   * immediately, because their namespace is no longer requested. Drops nothing while a broker of an earlier release
   * sends the records of all namespaces.
   */
  setInterest(interest: Interest | undefined): ReplicaChange[] {
    this.#interest = interest
    if (interest === undefined) return []
    this.#coming = this.#coming && bothOf(this.#coming, interest)
    if (this.#scope === undefined) return []
    this.#scope = bothOf(this.#scope, interest)
    return this.#dropOutside(interest)
  }

  /** Returns the request for a new stream, and discards a staged snapshot of the previous one. */
  begin(): WatchRequest {
    this.#staging = undefined
    this.#started = false
    this.#coming = this.#scope
    this.#asked = this.#interest
    const interest = this.#asked
    const at = this.#position
    // A replica of some namespaces that needs all must request a snapshot.
    const isPart = interest === undefined && this.#scope !== undefined
    const resume = at === undefined || at.epoch === '' || isPart ? undefined : { ...at }
    if (interest === undefined) return resume === undefined ? {} : { resume }
    const missing = resume === undefined ? undefined : this.#scope && lackingIn(interest, this.#scope)
    const asked = { interest: { namespaces: interest, missing: missing ?? new Set<string>() } }
    return resume === undefined ? asked : { resume, ...asked }
  }

  /** Makes the next stream request a snapshot. The records stay. */
  forgetPosition(): void {
    if (this.#position !== undefined) this.#position = { epoch: '', revision: 0 }
  }

  /**
   * Applies one message and returns the visible changes. Events that cannot be decoded go to `onInvalid` and are
   * skipped, so that one bad record does not hide the others. Throws ReplicaError.
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
        throw new ReplicaError('received a compressed message without support for it')
      case 'contact':
      case 'authorities':
      case 'access':
      case 'relays':
        // These messages concern only the present moment, so nothing is stored.
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
      throw new ReplicaError('a broker without support for namespace selection resumed a copy of some namespaces')
    }
    if (keepsToInterest && this.#asked === undefined)
      throw new ReplicaError('the broker applies a namespace selection that was not requested')
    this.#staging = resumed ? undefined : { epoch, records: new Map(), removed: new Set(), revision: 0 }
    this.#started = true
    this.#coming = keepsToInterest ? stillAsked(this.#asked, this.#interest) : undefined
    return resumed && this.#coming !== undefined ? this.#narrow(this.#coming) : []
  }

  /** Only changes of these namespaces arrive from now on. */
  #narrow(coming: Interest): ReplicaChange[] {
    // The exports of the namespaces that are dropped now are recorded until the broker reports them.
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

  /** Records of namespaces that were missing. The position does not cover them until `synced`. */
  #added(events: readonly RecordEvent[]): ReplicaChange[] {
    if (!this.#started || this.#staging !== undefined || this.#coming === undefined) {
      throw new ReplicaError('received additional records without a copy of some namespaces')
    }
    return events.flatMap((event) => this.#live(event))
  }

  #noteExported({ whole, added, removed }: Extract<WatchMessage, { t: 'exportedNamespaces' }>): void {
    if (whole || this.#exported === undefined) this.#exported = new Set()
    for (const name of removed) this.#exported.delete(name)
    for (const name of added) if (this.#exported.size < MAX_EXPORTED_NAMESPACES) this.#exported.add(name)
  }

  #batch(events: readonly RecordEvent[], revision: number): ReplicaChange[] {
    if (!this.#started) throw new ReplicaError('received a batch before the first reset')
    const at = this.#staging ?? this.#position
    if (at === undefined || revision < at.revision) {
      throw new ReplicaError(`received revision ${revision} after ${at?.revision ?? 0}`)
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
    // The revision of an unconfirmed record belongs to another epoch and cannot be compared.
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
    if (!this.#started) throw new ReplicaError('received "synced" before the first reset')
    const changes = this.#staging === undefined ? [] : this.#show(this.#staging)
    const position = this.#position
    if (position === undefined || revision < position.revision) {
      throw new ReplicaError(`received "synced" of revision ${revision} after ${position?.revision ?? 0}`)
    }
    position.revision = revision
    this.#confirmed = true
    // The records of the missing namespaces are now complete too.
    this.#scope = this.#coming
    this.#complete = new Set(complete)
    this.#departed = new Set(departed)
    return [...changes, ...this.#dropUnconfirmed()]
  }

  /** The changes apply to the lists of the last `synced` of this stream. */
  #ownersChanged(revision: number, complete: ListChange, departed: ListChange): ReplicaChange[] {
    const position = this.#position
    if (!this.#started || this.#staging !== undefined || position === undefined || revision < position.revision) {
      throw new ReplicaError(`received a change of owners at revision ${revision} before the first "synced"`)
    }
    position.revision = revision
    this.#complete = changedSet(this.#complete, complete)
    this.#departed = changedSet(this.#departed, departed)
    return this.#dropUnconfirmed()
  }

  /** Makes the staged snapshot visible. Records that only the old copy has become unconfirmed. */
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
      // The interest has changed since the record arrived.
      if (!isOfInterest(this.#coming, record.key)) continue
      const previous = old.get(key)
      const isSame = sameEpoch && previous?.revision === record.revision && !this.#unconfirmed.has(key)
      // What of a status this member may read changes with the topology, at the same revision.
      const unchanged = isSame && record.body.kind !== 'MemberStatus'
      this.#records.set(key, unchanged ? previous : record)
      if (!unchanged) changes.push({ t: 'put', record, previous })
    }
    const before = this.#unconfirmed
    this.#unconfirmed = new Set()
    for (const [key, record] of old) {
      if (staging.records.has(key)) continue
      if (sameEpoch && isTopology(record) && !before.has(key)) {
        // A broker of an earlier release lacks it, and none ever removes it: what it forbids stays forbidden.
        this.#records.set(key, record)
      } else if (staging.removed.has(key)) {
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

function isTopology({ key }: StoredRecord): boolean {
  return key.cluster === '' && key.kind === 'Topology'
}

function changedSet(before: ReadonlySet<string>, { added, removed }: ListChange): ReadonlySet<string> {
  const after = new Set(before)
  for (const one of removed) after.delete(one)
  for (const one of added) after.add(one)
  return after
}

/** Returns the part of the requested interest that is still wanted. Undefined for all. */
function stillAsked(asked: Interest | undefined, interest: Interest | undefined): Interest | undefined {
  return asked === undefined || interest === undefined ? asked : bothOf(asked, interest)
}

function exportedIn(records: Iterable<StoredRecord>): Set<string> {
  const found = new Set<string>()
  for (const { key } of records) if (key.kind === 'ServiceExport') found.add(key.namespace)
  return found
}

// The staging of a snapshot until it is complete, and the decoding of events.

/** The snapshot as received so far. */
interface Staging {
  readonly epoch: string
  readonly records: Map<string, StoredRecord>
  /** Records that were removed while the snapshot arrived. They are dropped, whoever owns them. */
  readonly removed: Set<string>
  revision: number
}

/** Applies one event to the staged snapshot. */
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

/** Returns the key of the record that the event concerns. */
function keyOf(event: RecordEvent): RecordKey {
  return event.t === 'put' ? event.record.key : event.key
}

/**
 * Returns records of the broker itself that the new epoch lacks or changed. Records that were removed in the new epoch
 * do not count.
 */
function displacedBy({ records, removed }: Staging, old: ReadonlyMap<string, StoredRecord>): StoredRecord[] {
  return [...old].flatMap(([key, record]) => {
    const { kind } = record.key
    if ((kind !== 'Cluster' && kind !== 'ClusterSetIP') || removed.has(key)) return []
    return isDeepStrictEqual(records.get(key)?.body, record.body) ? [] : [record]
  })
}

/** Passes events that cannot be decoded to `onInvalid` and omits them. */
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
