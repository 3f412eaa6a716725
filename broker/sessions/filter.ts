/**
 * Filters the records for a stream: those that it has asked for, of members with which its own links. Streams with the
 * same filter share one View and the messages that are made for it. A stream that asks for all records, and may have all,
 * has no View and no filter cost. Which of the records are offered to its member is in readers.ts.
 */
import { createHash } from 'node:crypto'
import { type Interest, isOfInterest } from '../../model/model.ts'
import { type RecordLog, parseRecordKey } from '../store/store.ts'
import { NamespaceIndex } from './exported-namespaces.ts'
import type { Sight } from './sights.ts'

/** Changes that are checked before streams are woken. If there are more, some are almost certainly shown. */
const MOST = 512

/**
 * Ranges of revisions in which nothing has changed that a view shows. Its streams are not woken for them, and a stream
 * at a revision before such a range may skip to its end.
 */
class QuietTimes {
  /** No change in (from, to] is shown. */
  #from = 0
  #to = 0
  /** Streams have been woken for all shown changes up to here. */
  #checked = 0

  /** The revision to which a stream at `revision` may skip. */
  skip(revision: number): number {
    return revision >= this.#from && revision < this.#to ? this.#to : revision
  }

  /** Notes that no change between them is shown. */
  note(from: number, to: number): void {
    if (from <= this.#to && from >= this.#from) this.#to = Math.max(this.#to, to)
    else [this.#from, this.#to] = [from, to]
  }

  /** Whether any change since the last call is shown. */
  hasNews(log: Pick<RecordLog, 'recordsAfter' | 'revision'>, shows: (key: string) => boolean): boolean {
    const from = this.#checked
    const changes = log.recordsAfter(from, MOST)
    this.#checked = log.revision
    if (changes.length === MOST || changes.some(({ key }) => shows(key))) return true
    this.note(from, log.revision)
    return false
  }
}

export class View {
  /** Undefined for all namespaces. */
  readonly interest: Interest | undefined
  /** Undefined if its members link with all. */
  readonly sight: Sight | undefined
  /** Key for caches. */
  readonly id: string
  readonly quiet = new QuietTimes()
  /** Wake functions of streams that wait for a shown change. */
  readonly sleepers = new Set<() => void>()
  users = 0

  constructor({ interest, sight, id }: Pick<View, 'interest' | 'sight' | 'id'>) {
    this.interest = interest
    this.sight = sight
    this.id = id
  }

  /** Takes the key of a record in the log. */
  shows(key: string): boolean {
    const record = parseRecordKey(key)
    return isOfInterest(this.interest, record) && this.sight?.shows(record) !== false
  }

  /**
   * Whether a change of the record may change what the members of the view are sent: also of an export that they may not
   * have, because the readers of the clusterset IP depend on it.
   */
  concerns(key: string): boolean {
    return this.shows(key) || (this.sight !== undefined && this.#isExportOfInterest(key))
  }

  #isExportOfInterest(key: string): boolean {
    const record = parseRecordKey(key)
    return record.kind === 'ServiceExport' && isOfInterest(this.interest, record)
  }
}

/** The views that are in use, each once. */
export class Views {
  readonly #log: RecordLog
  readonly #used = new Map<string, View>()
  readonly index: NamespaceIndex
  #lookedAt = 0

  constructor(log: RecordLog) {
    this.#log = log
    // Building the index for the first stream would block the event loop, so it is built here.
    this.index = new NamespaceIndex(log)
  }

  /** Views that show something that has changed since the last call. The caller runs it after each commit. */
  withNews(): View[] {
    const hasTurned = this.index.follow()
    const from = this.#lookedAt
    this.#lookedAt = this.#log.revision
    return [...this.#used.values()].filter((view) => {
      const hasNews = view.quiet.hasNews(this.#log, (key) => view.concerns(key))
      return hasNews || hasTurned || this.#hasTurnedFor(view, from)
    })
  }

  /** Whether there may be news of namespaces with exports for members that do not see all owners. */
  #hasTurnedFor({ interest, sight }: View, since: number): boolean {
    if (sight === undefined || interest === undefined) return false
    return this.index.turnedSince(since, sight)?.size !== 0
  }

  get all(): Iterable<View> {
    return this.#used.values()
  }

  get size(): number {
    return this.#used.size
  }

  /** The caller must return the view with release(). Undefined for a stream that gets all records. */
  take(interest: Interest | undefined, sight?: Sight): View | undefined {
    if (interest === undefined && sight === undefined) return undefined
    const names = interest === undefined ? 'all' : hashOf(interest)
    const id = sight === undefined ? names : `${names} ${sight.id}`
    const view = this.#used.get(id) ?? new View({ interest, sight, id })
    this.#used.set(id, view)
    view.users += 1
    return view
  }

  release(view: View | undefined): void {
    if (view === undefined) return
    view.users -= 1
    if (view.users === 0) this.#used.delete(view.id)
  }
}

/** A cryptographic hash: a client cannot find names that collide with the names of another client. */
export function hashOf(names: Iterable<string>): string {
  return createHash('sha256')
    .update([...names].sort().join('\n'))
    .digest('base64')
}
