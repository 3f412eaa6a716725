/**
 * The records that members of one authorization may see, indexed by namespace, so that a namespace can be read without a scan of all
 * records. Also, in which namespaces something is exported, which is sent to members that do not get the records. The
 * index is updated before each read.
 */
import { followsInterest, type Interest } from '../../model/model.ts'
import { MAX_EXPORTED_NAMESPACES, MAX_EXPORTED_PART, type WatchMessage } from '../../protocol/protocol.ts'
import { type RecordLog, parseRecordKey } from '../store/store.ts'
import type { Authorization } from './authorization.ts'

export type ExportedMessage = Extract<WatchMessage, { t: 'exportedNamespaces' }>

/** Records in a bucket, and how many of them are exports. */
interface Bucket {
  readonly keys: Set<string>
  exports: number
}

/** A change of a namespace: it got its first export or lost its last one, or may have. */
interface Turn {
  readonly revision: number
  readonly namespace: string
}

const PAGE = 4096

export class NamespaceIndex {
  readonly #log: RecordLog
  readonly #authorization: Authorization
  /** By namespace. '' has the records that are sent regardless of the interest. */
  readonly #buckets = new Map<string, Bucket>()
  /** Turns in the order of their revisions. */
  #turns: Turn[] = []
  /** Turns up to this revision are not known. */
  #turnsFrom = 0
  #at = 0
  /** Messages by the position of the first turn that they contain. */
  readonly #messages = new Map<number, readonly ExportedMessage[]>()

  constructor(log: RecordLog, authorization: Authorization) {
    this.#log = log
    this.#authorization = authorization
    this.#make()
  }

  /**
   * Updates the index. The caller runs it before each read and after each commit. Returns whether the set of namespaces
   * with exports may have changed.
   */
  follow(): boolean {
    if (this.#log.compactedRevision > this.#at) {
      this.#make()
      return true
    }
    const before = this.#turns.length
    this.#read(false)
    return this.#turns.length > before
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

  /**
   * Messages for a stream that has been told everything up to `since`, or nothing if undefined. Empty if there is no
   * change. All streams share the message objects.
   */
  exportedSince(since: number | undefined): readonly ExportedMessage[] {
    this.follow()
    if (since === undefined || since < this.#turnsFrom) return this.#messagesFrom(-1)
    const first = this.#firstAfter(since)
    return first === this.#turns.length ? [] : this.#messagesFrom(first)
  }

  #make(): void {
    this.#buckets.clear()
    this.#messages.clear()
    this.#turns = []
    this.#at = 0
    this.#turnsFrom = this.#log.compactedRevision
    this.#read(true)
  }

  /** `isFirst`: the earlier state is not known, so each change of an export counts as a turn. */
  #read(isFirst: boolean): void {
    const turned: Turn[] = []
    for (;;) {
      const changes = this.#log.recordsAfter(this.#at, PAGE)
      for (const { key, revision, value } of changes) {
        const namespace = this.#take(key, value !== undefined, isFirst)
        if (namespace !== undefined) turned.push({ revision, namespace })
        this.#at = revision
      }
      if (changes.length < PAGE) break
    }
    this.#at = this.#log.revision
    if (turned.length === 0) return
    this.#turns.push(...(isFirst ? latest(turned) : turned))
    this.#messages.clear()
    if (this.#turns.length > 2 * this.#buckets.size + 1024) this.#turns = latest(this.#turns)
  }

  /** Returns the namespace if it got its first export or lost its last one. */
  #take(key: string, isThere: boolean, isFirst: boolean): string | undefined {
    const record = parseRecordKey(key)
    if (!this.#authorization.maySee(record)) return undefined
    const at = followsInterest(record.kind) ? record.namespace : ''
    const bucket = this.#buckets.get(at) ?? { keys: new Set(), exports: 0 }
    const wasThere = bucket.keys.has(key)
    if (isThere) bucket.keys.add(key)
    else bucket.keys.delete(key)
    if (bucket.keys.size > 0) this.#buckets.set(at, bucket)
    else this.#buckets.delete(at)
    if (record.kind !== 'ServiceExport') return undefined
    const before = bucket.exports
    bucket.exports += Number(isThere) - Number(wasThere)
    return isFirst || before > 0 !== bucket.exports > 0 ? at : undefined
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
    const made: ExportedMessage[] = []
    for (let i = 0; i === 0 || i < Math.max(added.length, removed.length); i += MAX_EXPORTED_PART) {
      const part = (list: readonly string[]): string[] => list.slice(i, i + MAX_EXPORTED_PART)
      made.push({ t: 'exportedNamespaces', whole: first < 0 && i === 0, added: part(added), removed: part(removed) })
    }
    this.#messages.set(first, made)
    return made
  }
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
