/**
 * To which members each record may be sent. A record without an entry here is for all members, and costs nothing more.
 * Entries exist for what is offered to some members only, and for a while for what was: a member that has such a record
 * and may no longer have it is sent its removal, and no other member learns its name.
 *
 * A ServiceExport is for the members to which it is offered. An EndpointSlice is for those to which both it and its
 * export are offered. A ClusterSetIP is for those to which any export of its service is offered. Members always get
 * their own. So the readers of a record may change with another record, its export; the change is then sent with it.
 */
import { type RecordKey, followsInterest, recordKeyText } from '../../model/model.ts'
import { type Change, type RecordLog, SETTINGS_KEY, parseRecordKey } from '../store/store.ts'

/** Members that may see the same records. Undefined stands for all members. */
export interface Group {
  readonly id: string
  readonly members: ReadonlySet<string>
  readonly keys: Set<string>
  /** Namespaces of its exports, with their number. */
  readonly namespaces: Map<string, number>
}

interface Loss {
  readonly revision: number
  /** Who had the record before. */
  readonly from: Group | undefined
}

interface Entry {
  group: Group | undefined
  /** The latest last. */
  readonly losses: Loss[]
  /** Revision at which the readers changed last. */
  changedAt: number
}

/** What a stream is sent of a record: the record, its removal, or nothing. */
export type Sent = 'put' | 'remove' | 'nothing'

export interface TakenChange {
  readonly key: string
  /** Whether the record was there before the change. */
  readonly wasThere: boolean
}

export interface ReadersDeps {
  readonly log: RecordLog
  /** The keys of all records of a namespace. */
  readonly keysIn: (namespace: string) => Iterable<string>
}

const NOBODY: Group = { id: '', members: new Set(), keys: new Set(), namespaces: new Map() }
const NONE: ReadonlySet<string> = new Set()
/** Losses that are remembered of one record, and entries that are remembered of records that are for all or are gone. */
const MAX_LOSSES = 32
const MAX_FADING = 20_000
/** Changes before the start of the broker that are remembered. */
const MAX_EARLIER = 20_000

export class Readers {
  readonly #deps: ReadersDeps
  readonly #groups = new Map<string, Group>()
  /** The same by member, because thousands of streams ask for theirs after one change. */
  readonly #groupsOfMember = new Map<string, Set<Group>>()
  readonly #entries = new Map<string, Entry>()
  /** The groups of restricted exports, by service and by cluster. */
  readonly #exports = new Map<string, Map<string, Group>>()
  /** Slices by service, of each cluster and namespace in which something is or was restricted. */
  readonly #slices = new Map<string, Map<string, Set<string>>>()
  readonly #serviceOf = new Map<string, string>()
  /** Keys of entries that only matter for streams that are behind, oldest first. */
  readonly #fading = new Map<string, number>()
  /** Records that were for all members when they were removed: they may come back for some members only. */
  readonly #removed = new Map<string, number>()
  /** Changes up to here happened before the index was made, so who had a record then is not known. */
  #knownFrom = 0
  #earlier: { readonly revision: number; readonly slice: string | undefined }[] = []
  /** A stream before this revision starts again. */
  #forgotten = 0
  #narrowedAt = 0
  #exportsChangedAt = 0

  constructor(deps: ReadersDeps) {
    this.#deps = deps
  }

  /** Revision at which a record that was for all members became restricted last: older messages may contain it. */
  get narrowedAt(): number {
    return this.#narrowedAt
  }

  /** Revision at which the readers of an export changed last. */
  get exportsChangedAt(): number {
    return this.#exportsChangedAt
  }

  /** Begins with the state of the log. `changes` has all its records and removals, in order. */
  reset(changes: readonly Change<'record'>[]): void {
    const { log } = this.#deps
    for (const map of [this.#groups, this.#entries, this.#exports, this.#slices, this.#serviceOf]) map.clear()
    for (const map of [this.#fading, this.#removed, this.#groupsOfMember]) map.clear()
    for (const { key, revision, value } of changes) if (value === undefined) this.#removed.set(key, revision)
    this.#earlier = []
    this.#knownFrom = log.revision
    this.#narrowedAt = this.#exportsChangedAt = log.revision
    const restricted = changes.filter(({ value }) => value?.readers !== undefined)
    const wasUsed = restricted.length > 0 || log.get('settings', SETTINGS_KEY)?.offers === true
    if (!wasUsed) return
    for (const { key, revision, value } of changes) {
      const { kind } = parseRecordKey(key)
      if (!followsInterest(kind)) continue
      const slice = kind === 'EndpointSlice' && value !== undefined ? key : undefined
      this.#earlier.push({ revision, slice })
    }
    const excess = this.#earlier.length - MAX_EARLIER
    if (excess > 0) this.#forget(this.#earlier[excess - 1]?.revision ?? 0)
    if (excess > 0) this.#earlier = this.#earlier.slice(excess)
    // Nobody is known to have had a record that is restricted now.
    this.#take(
      restricted.map(({ key }) => key),
      () => false,
    )
  }

  /** Takes the changes of the log since the last call, each record once. */
  take(changes: readonly TakenChange[]): void {
    const concerned = changes.flatMap(({ key }) => (this.#isConcerned(key) ? [key] : []))
    if (concerned.length > 0) {
      const before = new Map(changes.map(({ key, wasThere }) => [key, wasThere]))
      this.#take(concerned, (key) => before.get(key) ?? this.#deps.log.get('record', key) !== undefined)
    }
    for (const { key, wasThere } of changes) {
      if (this.#entries.has(key) || this.#deps.log.get('record', key) !== undefined) this.#removed.delete(key)
      else if (wasThere) this.#removed.set(key, this.#deps.log.revision)
    }
    this.#fade()
  }

  /** Whether all that has changed for the member since the revision is known. Otherwise it starts without state. */
  isKnown(member: string, revision: number): boolean {
    if (revision < this.#forgotten) return false
    if (revision >= this.#knownFrom) return true
    for (let i = this.#earlier.length - 1; i >= 0; i -= 1) {
      const one = this.#earlier[i]
      if (one === undefined || one.revision <= revision) return true
      if (one.slice === undefined || !this.isShown(one.slice, member)) return false
    }
    return true
  }

  /** Whether the record is for some members only. */
  isRestricted(key: string): boolean {
    return this.#entries.get(key)?.group !== undefined
  }

  isShown(key: string, member: string): boolean {
    return this.#entries.get(key)?.group?.members.has(member) !== false
  }

  /** Whether what a stream is sent of a change of this record depends on the member. */
  isApart(key: string): boolean {
    return this.#entries.has(key)
  }

  /** Records whose readers may have changed with this one: those of its service. */
  dependents(key: string): readonly string[] {
    if (this.#entries.size === 0) return []
    const record = parseRecordKey(key)
    if (record.kind !== 'ServiceExport') return []
    return this.#partsOf(record).filter((one) => this.#entries.has(one))
  }

  /** What a stream at `revision` is sent of a record that has changed since. */
  sent(key: string, member: string, revision: number): Sent {
    const entry = this.#entries.get(key)
    if (entry === undefined) return 'put'
    if (entry.group === undefined || entry.group.members.has(member)) return 'put'
    const had = entry.losses.some((loss) => loss.revision > revision && loss.from?.members.has(member) !== false)
    return had ? 'remove' : 'nothing'
  }

  /** The same for a record whose readers alone may have changed. */
  sentOfDependent(key: string, member: string, revision: number): Sent {
    const entry = this.#entries.get(key)
    return entry === undefined || entry.changedAt <= revision ? 'nothing' : this.sent(key, member, revision)
  }

  /** Keys of the restricted records that the member may see. */
  keysOf(member: string): string[] {
    return this.#groupsOf(member).flatMap(({ keys }) => [...keys])
  }

  /** Namespaces with a restricted export that the member may see. */
  namespacesOf(member: string): ReadonlySet<string> {
    const groups = this.#groupsOf(member)
    return groups.length === 0 ? NONE : new Set(groups.flatMap(({ namespaces }) => [...namespaces.keys()]))
  }

  /** Namespaces with an export that the member could see after the revision and cannot see now. */
  lostNamespaces(member: string, revision: number): ReadonlySet<string> {
    const lost = new Set<string>()
    for (const key of this.#entries.keys()) {
      const { kind, namespace } = parseRecordKey(key)
      if (kind === 'ServiceExport' && this.sent(key, member, revision) === 'remove') lost.add(namespace)
    }
    return lost
  }

  #groupsOf(member: string): Group[] {
    return [...(this.#groupsOfMember.get(member) ?? [])]
  }

  /** False for nearly all changes of a clusterset in which everything is offered to all. */
  #isConcerned(key: string): boolean {
    const row = this.#deps.log.get('record', key)
    if (row?.readers !== undefined || this.#entries.has(key)) return true
    if (this.#entries.size === 0) return false
    const { cluster, kind, namespace, name } = parseRecordKey(key)
    if (kind !== 'EndpointSlice' && this.#exports.has(`${namespace}/${name}`)) return true
    return (kind === 'EndpointSlice' || kind === 'ServiceExport') && this.#slices.has(`${cluster}/${namespace}`)
  }

  /** Exports and slices are noted first: the readers of a record depend on records of the same commit. */
  #take(keys: readonly string[], wasThere: (key: string) => boolean): void {
    const due = new Set(keys)
    for (const key of keys) {
      const record = parseRecordKey(key)
      if (record.kind === 'ServiceExport') this.#noteExport(key, record)
      else if (record.kind === 'EndpointSlice') this.#noteSlice(key, record)
    }
    for (const key of keys) {
      const record = parseRecordKey(key)
      if (record.kind === 'ServiceExport') for (const part of this.#partsOf(record)) due.add(part)
    }
    for (const key of due) this.#apply(key, wasThere(key))
  }

  #noteExport(key: string, { cluster, namespace, name }: RecordKey): void {
    const service = `${namespace}/${name}`
    const readers = this.#deps.log.get('record', key)?.readers
    const of = this.#exports.get(service) ?? new Map<string, Group>()
    if (readers === undefined) of.delete(cluster)
    else of.set(cluster, this.#group([...readers, cluster]))
    if (of.size > 0) this.#exports.set(service, of)
    else this.#exports.delete(service)
    if (readers !== undefined) this.#slicesIn(cluster, namespace)
  }

  #noteSlice(key: string, { cluster, namespace }: RecordKey): void {
    const slices = this.#slicesIn(cluster, namespace)
    const former = this.#serviceOf.get(key)
    const body = this.#deps.log.get('record', key)?.body
    const service = body?.kind === 'EndpointSlice' ? body.service : undefined
    if (former !== undefined && former !== service) slices.get(former)?.delete(key)
    if (service === undefined) this.#serviceOf.delete(key)
    else {
      this.#serviceOf.set(key, service)
      slices.set(service, (slices.get(service) ?? new Set()).add(key))
    }
  }

  /** Slices are read once, when something of their cluster and namespace is restricted for the first time. */
  #slicesIn(cluster: string, namespace: string): Map<string, Set<string>> {
    const known = this.#slices.get(`${cluster}/${namespace}`)
    if (known !== undefined) return known
    const slices = new Map<string, Set<string>>()
    this.#slices.set(`${cluster}/${namespace}`, slices)
    for (const key of this.#deps.keysIn(namespace)) {
      const record = parseRecordKey(key)
      if (record.kind === 'EndpointSlice' && record.cluster === cluster) this.#noteSlice(key, record)
    }
    return slices
  }

  /** The slices of an export, and the address of its service. */
  #partsOf({ cluster, namespace, name }: RecordKey): string[] {
    const slices = this.#slices.get(`${cluster}/${namespace}`)?.get(name) ?? []
    return [recordKeyText({ cluster: '', kind: 'ClusterSetIP', namespace, name }), ...slices]
  }

  #apply(key: string, wasThere: boolean): void {
    const { log } = this.#deps
    const known = this.#entries.get(key)
    const before = known === undefined ? (wasThere ? undefined : NOBODY) : known.group
    const after = this.#readersOf(key)
    // What was for all members and is gone is gone for all members.
    if (known === undefined && (after === undefined || after === NOBODY)) return
    if (before === after) return
    const entry = known ?? { group: undefined, losses: [], changedAt: 0 }
    const { revision } = log
    const removedAt = known === undefined && !wasThere ? this.#removed.get(key) : undefined
    if (removedAt !== undefined) entry.losses.push({ revision: removedAt, from: undefined })
    if (isLoss(before, after)) entry.losses.push({ revision, from: before })
    if (entry.losses.length > MAX_LOSSES) this.#forget(entry.losses.shift()?.revision ?? 0)
    entry.group = after
    entry.changedAt = revision
    this.#entries.set(key, entry)
    this.#move(key, before, after)
    if (removedAt !== undefined || (before === undefined && after !== NOBODY)) this.#narrowedAt = revision
    this.#fading.delete(key)
    if (after === undefined || after === NOBODY) this.#fading.set(key, revision)
  }

  #move(key: string, before: Group | undefined, after: Group | undefined): void {
    const { kind, namespace } = parseRecordKey(key)
    const isExport = kind === 'ServiceExport'
    if (isExport) this.#exportsChangedAt = this.#deps.log.revision
    if (before !== undefined && before !== NOBODY) {
      before.keys.delete(key)
      if (isExport) countNamespace(before, namespace, -1)
    }
    if (after !== undefined && after !== NOBODY) {
      after.keys.add(key)
      if (isExport) countNamespace(after, namespace, 1)
    }
  }

  /** Undefined: all members. NOBODY: there is no such record. */
  #readersOf(key: string): Group | undefined {
    const { log } = this.#deps
    const row = log.get('record', key)
    if (row === undefined) return NOBODY
    const { cluster, kind, namespace, name } = parseRecordKey(key)
    if (kind === 'ServiceExport') return this.#exports.get(`${namespace}/${name}`)?.get(cluster)
    if (kind === 'ClusterSetIP') return this.#readersOfAddress(`${namespace}/${name}`)
    if (kind !== 'EndpointSlice') return undefined
    const service = this.#serviceOf.get(key) ?? ''
    const ofExport = this.#exports.get(`${namespace}/${service}`)?.get(cluster)
    const own = row.readers
    if (own === undefined) return ofExport
    const both = ofExport === undefined ? own : own.filter((one) => ofExport.members.has(one))
    return this.#group([...both, cluster])
  }

  #readersOfAddress(service: string): Group | undefined {
    const of = this.#exports.get(service)
    if (of === undefined) return undefined
    const { exporters = [] } = this.#deps.log.get('serviceIp', service) ?? {}
    const members: string[] = []
    for (const exporter of exporters) {
      const group = of.get(exporter)
      if (group === undefined) return undefined
      members.push(...group.members)
    }
    return this.#group(members)
  }

  /** Equal readers are the same object. */
  #group(ids: readonly string[]): Group {
    const sorted = [...new Set(ids)].sort()
    const id = sorted.join(' ')
    const known = this.#groups.get(id)
    if (known !== undefined) return known
    const made = { id, members: new Set(sorted), keys: new Set<string>(), namespaces: new Map<string, number>() }
    this.#groups.set(id, made)
    for (const member of sorted) {
      const groups = this.#groupsOfMember.get(member)
      if (groups === undefined) this.#groupsOfMember.set(member, new Set([made]))
      else groups.add(made)
    }
    return made
  }

  /** Drops entries that no stream needs any more, and the oldest if there are too many. */
  #fade(): void {
    const { compactedRevision } = this.#deps.log
    if (this.#groups.size > 2 * this.#entries.size + 1024)
      for (const group of this.#groups.values()) if (group.keys.size === 0) this.#drop(group)
    for (const [key, revision] of this.#removed) {
      if (revision > compactedRevision) break
      this.#removed.delete(key)
    }
    for (const [key, revision] of this.#fading) {
      if (revision > compactedRevision && this.#fading.size <= MAX_FADING) return
      if (revision > compactedRevision) this.#forget(revision)
      this.#fading.delete(key)
      this.#entries.delete(key)
    }
  }

  #drop(group: Group): void {
    this.#groups.delete(group.id)
    for (const member of group.members) {
      const groups = this.#groupsOfMember.get(member)
      groups?.delete(group)
      if (groups?.size === 0) this.#groupsOfMember.delete(member)
    }
  }

  #forget(revision: number): void {
    this.#forgotten = Math.max(this.#forgotten, revision)
  }
}

function isLoss(before: Group | undefined, after: Group | undefined): boolean {
  if (before === NOBODY || after === undefined) return false
  return before === undefined || [...before.members].some((member) => !after.members.has(member))
}

function countNamespace({ namespaces }: Group, namespace: string, by: 1 | -1): void {
  const count = (namespaces.get(namespace) ?? 0) + by
  if (count > 0) namespaces.set(namespace, count)
  else namespaces.delete(namespace)
}
