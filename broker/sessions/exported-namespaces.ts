/**
 * All records, indexed by namespace, so that a namespace can be read without a scan of all records. Also, in which
 * namespaces something is exported, which is sent to members that do not get the records. What is offered to some
 * members only is apart (readers.ts). The index is updated before each read.
 */
import {
  type Interest,
  type MemberStatus,
  type RecordBody,
  type RecordKey,
  followsInterest,
} from '../../model/model.ts'
import { MAX_EXPORTED_NAMESPACES, MAX_EXPORTED_PART, type WatchMessage } from '../../protocol/protocol.ts'
import { type Change, type RecordLog, parseRecordKey } from '../store/store.ts'
import { Readers, type TakenChange } from './readers.ts'
import type { Sight } from './sights.ts'

export type ExportedMessage = Extract<WatchMessage, { t: 'exportedNamespaces' }>

/** Records in a bucket, and how many of them are exports for all members. */
interface Bucket {
  readonly keys: Set<string>
  exports: number
  /** Exports for some members only. */
  readonly restricted: Set<string>
  /** The number of exports for all members, by owner. */
  readonly byOwner: Map<string, number>
}

/** What a stream was reported. */
export interface ReportedNamespaces {
  /** Undefined: nothing. */
  at: number | undefined
  /** Namespaces that are exported for this member by restricted exports. Undefined: not known, it was reported before. */
  own: ReadonlySet<string> | undefined
}

/** A change of a namespace: it got its first export or lost its last one, or may have. */
interface Turn {
  readonly revision: number
  readonly namespace: string
}

interface OwnerTurn extends Turn {
  readonly owner: string
}

const PAGE = 4096
const MAX_OWNER_TURNS = 8192
const NO_OWNERS: ReadonlyMap<string, number> = new Map()
const NO_KEYS: ReadonlySet<string> = new Set()

interface Reporters {
  /** About the service. */
  readonly named: Iterable<string>
  /** About all services of the namespace. */
  readonly all: Iterable<string>
}

/** Which members report that they import nothing of a namespace or a service, whoever exports it. */
class Findings {
  /** What each member reports on, as `namespace/name`, or `namespace/` for all. */
  readonly #places = new Map<string, readonly string[]>()
  readonly #reporters = new Map<string, Set<string>>()

  clear(): void {
    this.#places.clear()
    this.#reporters.clear()
  }

  /** Takes the latest status of a member. Undefined: it has none. */
  take(reporter: string, body: RecordBody | undefined): void {
    for (const place of this.#places.get(reporter) ?? []) {
      const there = this.#reporters.get(place)
      there?.delete(reporter)
      if (there?.size === 0) this.#reporters.delete(place)
    }
    const findings = body?.kind === 'MemberStatus' ? body.notImported : []
    const places = findings.flatMap(({ cluster, namespace, name }) => (cluster === '' ? [`${namespace}/${name}`] : []))
    if (places.length === 0) this.#places.delete(reporter)
    else this.#places.set(reporter, places)
    for (const place of places)
      this.#reporters.set(place, (this.#reporters.get(place) ?? new Set<string>()).add(reporter))
  }

  about(namespace: string, name: string): Reporters {
    return {
      named: this.#reporters.get(`${namespace}/${name}`) ?? [],
      all: this.#reporters.get(`${namespace}/`) ?? [],
    }
  }
}

export class NamespaceIndex {
  readonly #log: RecordLog
  /** By namespace. '' has the records that are sent regardless of the interest. */
  readonly #buckets = new Map<string, Bucket>()
  /** Turns in the order of their revisions. */
  #turns: Turn[] = []
  /** Turns up to this revision are not known. */
  #turnsFrom = 0
  #at = 0
  /** The same by owner, for those that do not see all owners; and the revision up to which these are not known. */
  #ownerTurns: OwnerTurn[] = []
  #ownerTurnsFrom = 0
  /** Messages by the position of the first turn that they contain. */
  readonly #messages = new Map<number, readonly ExportedMessage[]>()

  readonly readers: Readers
  readonly #findings = new Findings()

  constructor(log: RecordLog) {
    this.#log = log
    this.readers = new Readers({ log, keysIn: (namespace) => this.#buckets.get(namespace)?.keys ?? [] })
    this.#make()
  }

  /**
   * Updates the index. The caller runs it before each read and after each commit. Returns whether the set of namespaces
   * with exports may have changed.
   */
  follow(): boolean {
    if (this.#at === this.#log.revision) return false
    if (this.#log.compactedRevision > this.#at) {
      this.#make()
      return true
    }
    const before = this.#turns.length
    const changedAt = this.readers.exportsChangedAt
    this.#read(false)
    return this.#turns.length > before || this.readers.exportsChangedAt > changedAt
  }

  /**
   * Namespaces of an interest that have records. `common` adds '', for records that are sent regardless of the
   * interest.
   */
  namesOf(interest: Interest | undefined, common: boolean): string[] {
    this.follow()
    const names = [...(interest ?? [...this.#buckets.keys()].filter((name) => name !== ''))]
    return [...(common ? [''] : []), ...names].filter((name) => this.#buckets.has(name))
  }

  sizeOf(name: string): number {
    return this.#buckets.get(name)?.keys.size ?? 0
  }

  /** Keys of the records of these namespaces. */
  keys(names: Iterable<string>): string[] {
    this.follow()
    const found: string[] = []
    for (const name of names) for (const key of this.#buckets.get(name)?.keys ?? []) found.push(key)
    return found
  }

  /** The same of owners that the sight sees, and of the broker. Others are not looked at: there may be a thousand. */
  keysFor(sight: Sight, names: Iterable<string>): string[] {
    this.follow()
    const wanted = new Set(names)
    const owners = ['', ...sight.owners()]
    return owners.flatMap((owner) =>
      this.#log.list('record', owner).flatMap(({ key }) => (wanted.has(placeOf(parseRecordKey(key))) ? [key] : [])),
    )
  }

  /**
   * Messages for a stream that has everything up to `since`, or nothing if undefined. Empty if there is no
   * change. All streams share the message objects.
   */
  exportedSince(since: number | undefined): readonly ExportedMessage[] {
    this.follow()
    if (since === undefined || since < this.#turnsFrom) return this.#messagesFrom(-1)
    const first = this.#firstAfter(since)
    return first === this.#turns.length ? [] : this.#messagesFrom(first)
  }

  /**
   * Namespaces in which an owner that the sight sees got its first export for all members since the revision, or lost
   * its last one. Undefined if that is not known.
   */
  turnedSince(revision: number, sight: Sight): ReadonlySet<string> | undefined {
    if (revision < this.#ownerTurnsFrom) return undefined
    const names = new Set<string>()
    for (let i = this.#ownerTurns.length - 1; i >= 0; i -= 1) {
      const turn = this.#ownerTurns[i]
      if (turn === undefined || turn.revision <= revision) break
      if (!names.has(turn.namespace) && sight.sees(turn.owner)) names.add(turn.namespace)
    }
    return names
  }

  /**
   * The same for a member that does not link with all: only namespaces of exports that it sees. The first message
   * replaces what it was reported before.
   */
  exportedForSight(member: string, sight: Sight, reported: ReportedNamespaces): readonly ExportedMessage[] {
    this.follow()
    const { at, own: before } = reported
    const isSame = before !== undefined && at !== undefined && this.readers.exportsChangedAt <= at
    const turned = (isSame ? this.turnedSince(at, sight) : undefined) ?? this.#buckets.keys()
    reported.at = this.#log.revision
    const own = new Set<string>(before)
    const [added, removed]: [string[], string[]] = [[], []]
    for (const name of new Set([...turned, ...(isSame ? [] : own)])) {
      const bucket = this.#buckets.get(name)
      const isSeen = bucket !== undefined && this.#isSeen(bucket, member, sight)
      if (isSeen && !own.has(name) && own.size < MAX_EXPORTED_NAMESPACES) {
        own.add(name)
        added.push(name)
      } else if (!isSeen && own.delete(name)) removed.push(name)
    }
    reported.own = own
    if (before === undefined) return inParts(true, added.sort(), [])
    return added.length + removed.length === 0 ? [] : inParts(false, added, removed)
  }

  #isSeen({ byOwner, restricted }: Bucket, member: string, sight: Sight): boolean {
    for (const _ of seenAmong(byOwner, sight)) return true
    for (const key of restricted)
      if (sight.sees(parseRecordKey(key).cluster) && this.readers.isShown(key, member)) return true
    return false
  }

  /**
   * A member's status as members of the sight may read it: without findings about services that none of the members
   * exports which they see. A reader is an exporter of nothing that is left out, so the number of those left out stays.
   * That cannot be said of a service that one of these offers to some members only.
   */
  asSeen<S extends MemberStatus>(status: S, sight: Sight): S {
    this.follow()
    let unsure = 0
    const notImported = status.notImported.filter(({ cluster, namespace, name }) => {
      if (cluster !== '') return sight.sees(cluster)
      const { byOwner = NO_OWNERS, keys = NO_KEYS, restricted = NO_KEYS } = this.#buckets.get(namespace) ?? {}
      const isNamed = (key: string): boolean => name === '' || parseRecordKey(key).name === name
      for (const owner of seenAmong(byOwner, sight)) {
        const key = `${owner}/ServiceExport/${namespace}/${name}`
        if (name === '' || (keys.has(key) && !restricted.has(key))) return true
      }
      for (const key of restricted) {
        if (!isNamed(key) || !sight.sees(parseRecordKey(key).cluster)) continue
        unsure += 1
        break
      }
      return false
    })
    if (notImported.length === status.notImported.length) return status
    return { ...status, notImported, leftOut: status.leftOut + unsure }
  }

  /**
   * Members whose status says more to the members of the sight since a change of an export, and has not changed itself
   * since: a finding about any exporter of the namespace was none about them before.
   */
  statusesAfter({ key, revision, value }: Change<'record'>, sight: Sight): readonly string[] {
    const { cluster, kind, namespace, name } = parseRecordKey(key)
    if (kind !== 'ServiceExport' || value === undefined) return []
    if (sight.member !== cluster) return []
    this.follow()
    const { named, all } = this.#findings.about(namespace, name)
    const seen = (list: Iterable<string>): string[] => [...list].filter((one) => sight.sees(one))
    const reporters = new Set(seen(named))
    const others = seen(all).filter((one) => !reporters.has(one))
    if (others.length > 0 && this.#isFirst({ key, revision, isShared: value.readers === undefined }))
      for (const one of others) reporters.add(one)
    return [...reporters]
  }

  /** Whether the owner had no such export in the namespace before. One that was written again may be taken for it. */
  #isFirst({ key, revision, isShared }: { key: string; revision: number; isShared: boolean }): boolean {
    const { cluster, namespace } = parseRecordKey(key)
    const { keys = NO_KEYS, restricted = NO_KEYS } = this.#buckets.get(namespace) ?? {}
    const start = `${cluster}/ServiceExport/`
    for (const one of keys) {
      if (one === key || !one.startsWith(start) || (isShared && restricted.has(one))) continue
      if ((this.#log.row('record', one)?.revision ?? revision) < revision) return false
    }
    return true
  }

  /**
   * The same for one member: also the namespaces of exports that only it and some others may see. Updates `reported`, as the
   * caller sends all of the messages.
   */
  exportedFor(member: string, reported: ReportedNamespaces): readonly ExportedMessage[] {
    const shared = this.exportedSince(reported.at)
    const { at, own: before } = reported
    const isSame = before !== undefined && at !== undefined && this.readers.exportsChangedAt <= at
    reported.at = this.#log.revision
    if (isSame && (shared.length === 0 || before.size === 0)) return shared
    const own = this.readers.namespacesOf(member)
    reported.own = own
    const former = at === undefined ? [] : (before ?? this.readers.lostNamespaces(member, at))
    const isShared = (name: string): boolean => (this.#buckets.get(name)?.exports ?? 0) > 0
    const lost = [...former].filter((name) => !own.has(name) && !isShared(name))
    if (own.size === 0 && lost.length === 0) return shared
    const kept = shared.map((one): ExportedMessage => {
      return { ...one, removed: one.removed.filter((name) => !own.has(name)) }
    })
    const added = [...own].filter((name) => !isShared(name)).slice(0, MAX_EXPORTED_NAMESPACES)
    return [...kept, ...inParts(false, added, lost)]
  }

  /** See WatchHub.isPublic(). */
  isPublic({
    cluster,
    namespace,
    name,
  }: Pick<RecordKey, 'namespace' | 'name'> & { readonly cluster: string }): boolean {
    const bucket = this.#buckets.get(namespace)
    if (bucket === undefined || bucket.restricted.size === 0) return true
    if (name === '') return bucket.exports > 0
    const end = `/ServiceExport/${namespace}/${name}`
    if (cluster !== '') return !bucket.restricted.has(`${cluster}${end}`)
    for (const key of bucket.restricted) if (key.endsWith(end)) return false
    return true
  }

  #make(): void {
    this.#buckets.clear()
    this.#findings.clear()
    this.#messages.clear()
    this.#turns = []
    this.#at = 0
    this.#turnsFrom = this.#log.compactedRevision
    this.#ownerTurns = []
    this.#read(true)
    this.#ownerTurns = []
    this.#ownerTurnsFrom = this.#log.revision
  }

  /** `isFirst`: the earlier state is not known, so each change of an export counts as a turn. */
  #read(isFirst: boolean): void {
    const turned: Turn[] = []
    const taken: TakenChange[] = []
    const all: Change<'record'>[] = []
    for (;;) {
      const changes = this.#log.recordsAfter(this.#at, PAGE)
      for (const change of changes) {
        const { key, revision } = change
        if (!isFirst) taken.push({ key, wasThere: this.#bucketOf(key)?.keys.has(key) === true })
        const namespace = this.#take(change, isFirst)
        if (namespace !== undefined) turned.push({ revision, namespace })
        this.#at = revision
      }
      if (isFirst) all.push(...changes)
      if (changes.length < PAGE) break
    }
    this.#at = this.#log.revision
    if (isFirst) this.readers.reset(all)
    else this.readers.take(taken)
    if (this.#ownerTurns.length > MAX_OWNER_TURNS) {
      const dropped = this.#ownerTurns.splice(0, this.#ownerTurns.length - MAX_OWNER_TURNS / 2)
      this.#ownerTurnsFrom = dropped.at(-1)?.revision ?? 0
    }
    if (turned.length === 0) return
    this.#turns.push(...(isFirst ? latest(turned) : turned))
    this.#messages.clear()
    if (this.#turns.length > 2 * this.#buckets.size + 1024) this.#turns = latest(this.#turns)
  }

  /** Returns the namespace if it got its first export or lost its last one. */
  #take({ key, revision, value }: Change<'record'>, isFirst: boolean): string | undefined {
    const record = parseRecordKey(key)
    if (record.kind === 'MemberStatus') this.#findings.take(record.cluster, value?.body)
    const at = placeOf(record)
    const bucket = this.#buckets.get(at) ?? { keys: new Set(), exports: 0, restricted: new Set(), byOwner: new Map() }
    const wasShared = bucket.keys.has(key) && !bucket.restricted.has(key)
    const isThere = value !== undefined
    const isShared = isThere && value.readers === undefined
    if (isThere) bucket.keys.add(key)
    else bucket.keys.delete(key)
    if (bucket.keys.size > 0) this.#buckets.set(at, bucket)
    else this.#buckets.delete(at)
    if (record.kind !== 'ServiceExport') return undefined
    if (isThere && !isShared) bucket.restricted.add(key)
    else bucket.restricted.delete(key)
    const before = bucket.exports
    bucket.exports += Number(isShared) - Number(wasShared)
    if (isShared !== wasShared && countOwner(bucket, record.cluster, isShared ? 1 : -1))
      this.#ownerTurns.push({ revision, namespace: at, owner: record.cluster })
    if (isFirst) return isThere && !isShared ? undefined : at
    return before > 0 !== bucket.exports > 0 ? at : undefined
  }

  #bucketOf(key: string): Bucket | undefined {
    return this.#buckets.get(placeOf(parseRecordKey(key)))
  }

  #firstAfter(revision: number): number {
    let low = 0
    let high = this.#turns.length
    while (low < high) {
      const middle = (low + high) >> 1
      if ((this.#turns[middle]?.revision ?? 0) > revision) high = middle
      else low = middle + 1
    }
    return low
  }

  /** Messages for the turns from this one on, or with the whole list for -1. */
  #messagesFrom(first: number): readonly ExportedMessage[] {
    const known = this.#messages.get(first)
    if (known !== undefined) return known
    const isExported = (name: string): boolean => (this.#buckets.get(name)?.exports ?? 0) > 0
    const names = first < 0 ? this.#buckets.keys() : this.#turns.slice(first).map(({ namespace }) => namespace)
    const touched = [...new Set(names)].sort()
    const added = touched.filter(isExported).slice(0, MAX_EXPORTED_NAMESPACES)
    const removed = first < 0 ? [] : touched.filter((name) => !isExported(name))
    const made = inParts(first < 0, added, removed)
    this.#messages.set(first, made)
    return made
  }
}

/** The owners that the members of the sight see. Looks at the shorter list: there may be a thousand in either. */
function* seenAmong(owners: ReadonlyMap<string, unknown>, sight: Sight): Iterable<string> {
  const seen = sight.owners()
  if (seen.size < owners.size) {
    for (const one of seen) if (owners.has(one)) yield one
  } else for (const one of owners.keys()) if (sight.sees(one)) yield one
}

/** Returns whether the owner got its first one or lost its last one. */
function countOwner({ byOwner }: Pick<Bucket, 'byOwner'>, owner: string, by: 1 | -1): boolean {
  const before = byOwner.get(owner) ?? 0
  if (before + by > 0) byOwner.set(owner, before + by)
  else byOwner.delete(owner)
  return before === 0 || before + by === 0
}

function placeOf({ kind, namespace }: RecordKey): string {
  return followsInterest(kind) ? namespace : ''
}

/** At least one message. */
function inParts(whole: boolean, added: readonly string[], removed: readonly string[]): ExportedMessage[] {
  const made: ExportedMessage[] = []
  for (let i = 0; i === 0 || i < Math.max(added.length, removed.length); i += MAX_EXPORTED_PART) {
    const part = (list: readonly string[]): string[] => list.slice(i, i + MAX_EXPORTED_PART)
    made.push({ t: 'exportedNamespaces', whole: whole && i === 0, added: part(added), removed: part(removed) })
  }
  return made
}

/** The latest turn of each namespace, in order. Pure. */
function latest(turns: readonly Turn[]): Turn[] {
  const by = new Map<string, Turn>()
  for (const turn of turns) {
    by.delete(turn.namespace)
    by.set(turn.namespace, turn)
  }
  return [...by.values()]
}
