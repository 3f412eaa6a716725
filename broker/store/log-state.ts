/** The rows of a log in memory, in the order of their revisions. All drivers share it. */
import type { RecordKind } from '../../model/model.ts'
import { Listeners } from '../../reconcile/reconcile.ts'
import { AS_WRITTEN, type Change, type ChangesFrom, type LogView, type Row, type RowPacking } from './record-log.ts'
import { SETTINGS_KEY, type Scope, type Scopes } from './rows.ts'

type Rows = Map<string, Change>

export class LogState implements LogView {
  revision = 0
  compactedRevision = 0
  readonly #scopes = new Map<Scope, Map<string, Rows>>()
  /** Removed rows, oldest first. Readers learn of removals from them. */
  readonly #gone = new Map<string, Change>()
  /** Record changes by revision. Overwritten ones stay until the next sweep, and readers skip them. */
  #order: Change<'record'>[] = []
  #recordCount = 0
  readonly #bytes = new Map<string, number>()
  /** Number of records by group and kind. */
  readonly #kinds = new Map<string, number>()

  readonly #packing: RowPacking

  constructor(packing = AS_WRITTEN) {
    this.#packing = packing
  }

  get<S extends Scope>(scope: S, key: string): Scopes[S] | undefined {
    return this.change(scope, key)?.value
  }

  change<S extends Scope>(scope: S, key: string): Change<S> | undefined {
    return this.#scopes.get(scope)?.get(groupOf(key))?.get(key) as Change<S> | undefined
  }

  list<S extends Scope>(scope: S, group?: string): { readonly key: string; readonly value: Scopes[S] }[] {
    const groups = this.#scopes.get(scope)
    const maps = group === undefined ? [...(groups?.values() ?? [])] : [groups?.get(group) ?? new Map<string, Change>()]
    const rows: { readonly key: string; readonly value: Scopes[S] }[] = []
    for (const map of maps) for (const { key, value } of map.values()) rows.push({ key, value: value as Scopes[S] })
    return rows.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0))
  }

  count(scope: Scope, group?: string): number {
    const groups = this.#scopes.get(scope)
    if (groups === undefined) return 0
    if (group !== undefined) return groups.get(group)?.size ?? 0
    let sum = 0
    for (const rows of groups.values()) sum += rows.size
    return sum
  }

  recordBytes(group: string): number {
    return this.#bytes.get(group) ?? 0
  }

  recordCount(group: string, kind: RecordKind): number {
    return this.#kinds.get(`${group}/${kind}`) ?? 0
  }

  get removedCount(): number {
    return this.#gone.size
  }

  /**
   * Applies changes in the order of their revisions. It takes them one at a time, so that a load need not hold them all
   * in memory.
   */
  apply(changes: Iterable<Change>): void {
    for (const change of changes) this.#applyOne(change)
    if (this.#order.length > 2 * (this.#recordCount + this.#gone.size) + 1024) this.#sweep()
  }

  recordsAfter(revision: number, limit: number): Change<'record'>[] {
    const found: Change<'record'>[] = []
    for (let i = this.#firstAfter(revision); i < this.#order.length && found.length < limit; i += 1) {
      const change = this.#order[i]
      if (change !== undefined && this.#isCurrent(change)) found.push(change)
    }
    return found
  }

  /**
   * Returns the revision up to which removals must be forgotten so that at most `keep` remain. Undefined if no more
   * than `keep` are remembered.
   */
  compactionPoint(keep: number): number | undefined {
    let excess = this.#gone.size - keep
    if (excess <= 0) return undefined
    for (const change of this.#gone.values()) {
      excess -= 1
      if (excess === 0) return change.revision
    }
    return undefined
  }

  /** The removed rows that forgetRemoved() would forget. */
  removedUpTo(upTo: number): Change[] {
    const found: Change[] = []
    for (const change of this.#gone.values()) {
      if (change.revision > upTo) break
      found.push(change)
    }
    return found
  }

  /** The row does not exist, and its removal is not remembered. */
  isForgotten(scope: Scope, key: string): boolean {
    return this.change(scope, key) === undefined && !this.#gone.has(`${scope} ${key}`)
  }

  forgetRemoved(upTo: number): void {
    for (const [id, change] of this.#gone) {
      if (change.revision > upTo) break
      this.#gone.delete(id)
    }
    this.compactedRevision = Math.max(this.compactedRevision, upTo)
  }

  clear(): void {
    this.#scopes.clear()
    this.#gone.clear()
    this.#order = []
    this.#recordCount = 0
    this.#bytes.clear()
    this.#kinds.clear()
  }

  #applyOne(given: Change): void {
    const change = given.scope === 'record' ? this.#packing.pack(given as Change<'record'>) : given
    const id = `${change.scope} ${change.key}`
    const rows = this.#rows(change.scope, groupOf(change.key))
    const old = rows.get(change.key)
    this.#gone.delete(id)
    if (change.value === undefined) {
      rows.delete(change.key)
      if (rows.size === 0) this.#scopes.get(change.scope)?.delete(groupOf(change.key))
      this.#gone.set(id, change)
    } else {
      rows.set(change.key, change)
    }
    if (change.scope === 'record') {
      this.#order.push(change as Change<'record'>)
      this.#count(change as Change<'record'>, old as Change<'record'> | undefined)
    }
    this.revision = Math.max(this.revision, change.revision)
  }

  #count(change: Change<'record'>, old: Change<'record'> | undefined): void {
    const group = groupOf(change.key)
    add(this.#bytes, group, (change.value?.bytes ?? 0) - (old?.value?.bytes ?? 0))
    const by = Number(change.value !== undefined) - Number(old !== undefined)
    add(this.#kinds, kindOf(change.key), by)
    this.#recordCount += by
  }

  #rows(scope: Scope, group: string): Rows {
    let groups = this.#scopes.get(scope)
    if (groups === undefined) this.#scopes.set(scope, (groups = new Map<string, Rows>()))
    let rows = groups.get(group)
    if (rows === undefined) groups.set(group, (rows = new Map<string, Change>()))
    return rows
  }

  #isCurrent(change: Change<'record'>): boolean {
    if (change.value === undefined) return this.#gone.get(`record ${change.key}`) === change
    return this.change('record', change.key) === change
  }

  #firstAfter(revision: number): number {
    let low = 0
    let high = this.#order.length
    while (low < high) {
      const middle = (low + high) >> 1
      if ((this.#order[middle]?.revision ?? 0) > revision) high = middle
      else low = middle + 1
    }
    return low
  }

  #sweep(): void {
    this.#order = this.#order.filter((change) => this.#isCurrent(change))
  }
}

function add(sums: Map<string, number>, key: string, by: number): void {
  const sum = (sums.get(key) ?? 0) + by
  if (sum === 0) sums.delete(key)
  else sums.set(key, sum)
}

/** The group and kind of a record's key. */
export function kindOf(key: string): string {
  const slash = key.indexOf('/', key.indexOf('/') + 1)
  return slash < 0 ? key : key.slice(0, slash)
}

/** The part of a key before its first '/'. */
export function groupOf(key: string): string {
  const slash = key.indexOf('/')
  return slash < 0 ? key : key.slice(0, slash)
}

/** The read side of a log: rows in memory, and callbacks for changes. All drivers share it. */
export abstract class LogReader implements LogView {
  readonly #state: LogState
  /** Epoch from the creation of the store. */
  protected abstract readonly madeEpoch: string
  readonly #callbacks = new Listeners<[changes: readonly Change[], from: ChangesFrom]>()

  constructor(state: LogState) {
    this.#state = state
  }

  get epoch(): string {
    const timeline = this.#state.get('settings', SETTINGS_KEY)?.timeline
    return timeline === undefined ? this.madeEpoch : `${this.madeEpoch}.${timeline.id}`
  }
  get revision(): number {
    return this.#state.revision
  }
  get compactedRevision(): number {
    return this.#state.compactedRevision
  }
  get<S extends Scope>(scope: S, key: string): Scopes[S] | undefined {
    return this.#state.get(scope, key)
  }
  list<S extends Scope>(scope: S, group?: string): { readonly key: string; readonly value: Scopes[S] }[] {
    return this.#state.list(scope, group)
  }
  count(scope: Scope, group?: string): number {
    return this.#state.count(scope, group)
  }
  recordBytes(group: string): number {
    return this.#state.recordBytes(group)
  }
  recordCount(group: string, kind: RecordKind): number {
    return this.#state.recordCount(group, kind)
  }
  row<S extends Scope>(scope: S, key: string): Row<S> | undefined {
    const change = this.#state.change(scope, key)
    return change?.value === undefined ? undefined : { key, revision: change.revision, value: change.value }
  }
  recordsAfter(revision: number, limit: number): Change<'record'>[] {
    return this.#state.recordsAfter(revision, limit)
  }
  onCommit(callback: (changes: readonly Change[], from: ChangesFrom) => void): () => void {
    return this.#callbacks.add(callback)
  }

  protected reportCommit(changes: readonly Change[], from: ChangesFrom = 'commit'): void {
    this.#callbacks.call(changes, from)
  }

  protected forgetCallbacks(): void {
    this.#callbacks.clear()
  }
}
