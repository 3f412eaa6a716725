/**
 * The part of a log that drivers share. Transactions queue up, and all that arrive while one group is written go to
 * disk together (group commit).
 */
import type { RecordKind } from '../../model/model.ts'
import { errorOf } from '../../runtime/runtime.ts'
import { LogReader, LogState, groupOf, kindOf } from './log-state.ts'
import type { Change, LogView, RecordLog, RowPacking, Transaction } from './record-log.ts'
import type { RecordRow, Scope, Scopes } from './rows.ts'

// Writes that are not yet durable, as a layer above the durable rows. Reads through the layer see both.

interface Write {
  readonly scope: Scope
  readonly key: string
  readonly value: Scopes[Scope] | undefined
}

export class WriteLayer implements Transaction {
  readonly store: object
  readonly #below: LogView
  /**
   * By scope and key. Two nested maps avoid building combined keys: a join reads thousands of rows through two layers.
   */
  readonly #writes = new Map<Scope, Map<string, Write>>()
  /** In the order of the latest writes. */
  readonly #order = new Set<Write>()
  /** Difference in the number of rows to the view below, by scope and group. */
  readonly #added = new Map<string, number>()
  readonly #addedBytes = new Map<string, number>()
  constructor(below: LogView) {
    this.#below = below
    this.store = below instanceof WriteLayer ? below.store : below
  }

  get writes(): Iterable<Write> {
    return this.#order
  }

  get size(): number {
    return this.#order.size
  }

  get<S extends Scope>(scope: S, key: string): Scopes[S] | undefined {
    const write = this.#writes.get(scope)?.get(key)
    return write === undefined ? this.#below.get(scope, key) : (write.value as Scopes[S] | undefined)
  }

  list<S extends Scope>(scope: S, group?: string): { readonly key: string; readonly value: Scopes[S] }[] {
    const own = [...(this.#writes.get(scope)?.values() ?? [])].filter(
      ({ key }) => group === undefined || groupOf(key) === group,
    )
    const below = this.#below.list(scope, group)
    if (own.length === 0) return below
    const rows = new Map(below.map((row) => [row.key, row.value]))
    for (const write of own) {
      if (write.value === undefined) rows.delete(write.key)
      else rows.set(write.key, write.value as Scopes[S])
    }
    return [...rows].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)).map(([key, value]) => ({ key, value }))
  }

  count(scope: Scope, group?: string): number {
    return this.#below.count(scope, group) + (this.#added.get(countKey(scope, group)) ?? 0)
  }

  recordBytes(group: string): number {
    return this.#below.recordBytes(group) + (this.#addedBytes.get(group) ?? 0)
  }

  recordCount(group: string, kind: RecordKind): number {
    return this.#below.recordCount(group, kind) + (this.#added.get(countKey('record', `${group}/${kind}`)) ?? 0)
  }

  put<S extends Scope>(scope: S, key: string, value: Scopes[S]): void {
    this.#write({ scope, key, value })
  }

  remove(scope: Scope, key: string): void {
    if (this.get(scope, key) !== undefined) this.#write({ scope, key, value: undefined })
  }

  /** Takes over the writes of a layer above this one. */
  absorb(layer: WriteLayer): void {
    for (const write of layer.writes) this.#write(write)
  }

  #countBytes(key: string, value: RecordRow | undefined): void {
    const group = groupOf(key)
    const by = (value?.bytes ?? 0) - (this.get('record', key)?.bytes ?? 0)
    if (by !== 0) this.#addedBytes.set(group, (this.#addedBytes.get(group) ?? 0) + by)
  }

  #write(write: Write): void {
    const by = Number(write.value !== undefined) - Number(this.get(write.scope, write.key) !== undefined)
    const counts = [countKey(write.scope), countKey(write.scope, groupOf(write.key))]
    if (write.scope === 'record') counts.push(countKey('record', kindOf(write.key)))
    for (const key of counts) {
      if (by !== 0) this.#added.set(key, (this.#added.get(key) ?? 0) + by)
    }
    if (write.scope === 'record') this.#countBytes(write.key, write.value as RecordRow | undefined)
    let ofScope = this.#writes.get(write.scope)
    if (ofScope === undefined) this.#writes.set(write.scope, (ofScope = new Map<string, Write>()))
    const before = ofScope.get(write.key)
    if (before !== undefined) this.#order.delete(before)
    ofScope.set(write.key, write)
    this.#order.add(write)
  }
}

/**
 * Returns the changes of a layer to the view below, with the revisions after `revision`. Removing a row that does not
 * exist is not a change.
 */
export function changesOf(layer: WriteLayer, below: LogView, revision: number): Change[] {
  let next = revision
  return (
    [...layer.writes]
      .filter((write) => write.value !== undefined || below.get(write.scope, write.key) !== undefined)
      // Fields are listed, since a copy made by spreading takes more memory for as long as the row exists.
      .map(({ scope, key, value }) => ({ scope, key, revision: (next += 1), value }))
  )
}

/** A group may be '': the broker's own records. */
function countKey(scope: Scope, group?: string): string {
  return group === undefined ? scope : `${scope} ${group}`
}

export interface JournalContent {
  readonly epoch: string
  readonly revision: number
  readonly compactedRevision: number
  /** In order of revisions. The result of load() can be iterated once, and must be iterated at once. */
  readonly changes: Iterable<Change>
}

/** Makes groups durable. Methods throw StateError. */
export interface Journal {
  load(): JournalContent
  /** Starts a group and returns what other processes have written since `revision`, if anything. */
  begin(
    revision: number,
  ): (JournalContent & { readonly whole: boolean; readonly changes: readonly Change[] }) | undefined
  write(changes: readonly Change[]): void
  /** Forgets removals up to this revision. */
  compact(upTo: number): void
  /** Makes the group durable. */
  commit(revision: number): void
  rollback(): void
  close(): void
}

/** Observes each group. Must not throw. */
export interface GroupObserver {
  begins(): void
  /** The group is durable. */
  wrote(changes: number): void
  /** Nothing of the group was written. */
  failed(error: unknown): void
}

export interface GroupedLogInit {
  /** Number of removals to remember for readers that reconnect. */
  readonly keepRemoved: number
  readonly observer?: GroupObserver
  /** Default: AS_WRITTEN. */
  readonly packing?: RowPacking
}

interface WrittenGroup {
  /** Changes that became visible: those of this group and of other processes. */
  readonly changes: readonly Change[]
  /** Number of transactions in the group. The rest waits for the next one. */
  readonly count: number
}

/** A group ends once it has this many rows, so that other work runs between two groups. */
const MAX_GROUP_ROWS = 128

export class GroupedLog extends LogReader implements RecordLog {
  protected readonly madeEpoch: string
  readonly #journal: Journal
  readonly #init: GroupedLogInit
  readonly #state: LogState
  #waiting: PendingTransaction[] = []
  /** Changes of other processes that are not yet reported. They are durable even if the group that read them fails. */
  #foreign: readonly Change[] = []
  #scheduled: NodeJS.Immediate | undefined
  #closed = false

  constructor(journal: Journal, init: GroupedLogInit) {
    const state = new LogState(init.packing)
    super(state)
    this.#state = state
    this.#journal = journal
    this.#init = init
    const content = journal.load()
    this.madeEpoch = content.epoch
    this.#take(content)
  }

  transact<T>(decide: (transaction: Transaction) => T): Promise<T> {
    if (this.#closed) return Promise.reject(closedLog())
    const { pending, outcome } = pendingTransaction(decide)
    this.#waiting.push(pending)
    this.#scheduled ??= setImmediate(() => this.#flush())
    return outcome
  }

  async refresh(): Promise<void> {
    await this.transact(() => undefined)
  }

  close(): Promise<void> {
    if (!this.#closed) {
      this.#closed = true
      while (this.#waiting.length > 0) this.#flush()
      clearImmediate(this.#scheduled)
      this.#journal.close()
      this.forgetCallbacks()
    }
    return Promise.resolve()
  }

  #flush(): void {
    this.#scheduled = undefined
    const waiting = this.#waiting
    this.#waiting = []
    let written: WrittenGroup
    try {
      written = this.#writeGroup(waiting)
    } catch (error) {
      for (const one of waiting) one.fail(error)
      return
    }
    const { changes, count } = written
    for (const one of waiting.slice(0, count)) one.settle()
    this.#waiting = [...waiting.slice(count), ...this.#waiting]
    if (this.#waiting.length > 0) this.#scheduled ??= setImmediate(() => this.#flush())
    if (changes.length > 0) this.reportCommit(changes)
  }

  #writeGroup(waiting: readonly PendingTransaction[]): WrittenGroup {
    try {
      this.#init.observer?.begins()
      this.#begin()
      const group = new WriteLayer(this.#state)
      let count = 0
      for (const one of waiting) {
        one.run(group)
        count += 1
        if (group.size >= MAX_GROUP_ROWS) break
      }
      const changes = changesOf(group, this.#state, this.#state.revision)
      if (changes.length > 0) this.#journal.write(changes)
      const compactTo = this.#compactTo()
      if (compactTo !== undefined) this.#journal.compact(compactTo)
      this.#journal.commit(this.#state.revision + changes.length)
      this.#state.apply(changes)
      if (compactTo !== undefined) this.#state.forgetRemoved(compactTo)
      if (changes.length > 0) this.#init.observer?.wrote(changes.length)
      const visible = [...this.#foreign, ...changes]
      this.#foreign = []
      return { changes: visible, count }
    } catch (error) {
      this.#journal.rollback()
      this.#init.observer?.failed(error)
      throw error
    }
  }

  #begin(): void {
    const foreign = this.#journal.begin(this.#state.revision)
    if (foreign === undefined) return
    if (foreign.whole) this.#state.clear()
    this.#take(foreign)
    this.#foreign = [...this.#foreign, ...foreign.changes]
  }

  #take(content: JournalContent): void {
    this.#state.apply(content.changes)
    this.#state.forgetRemoved(content.compactedRevision)
    this.#state.revision = Math.max(this.#state.revision, content.revision)
  }

  /** Compaction forgets half of the removals at once, so that it is rare. */
  #compactTo(): number | undefined {
    if (this.#state.removedCount <= this.#init.keepRemoved) return undefined
    return this.#state.compactionPoint(Math.floor(this.#init.keepRemoved / 2))
  }
}

// A transaction in the queue. It may run several times before it is settled.

export interface PendingTransaction {
  /** Decides on the rows of the group and adds its writes to the group. Adds none if `decide` throws. */
  run(group: WriteLayer): void
  /** The group of the last run is durable. */
  settle(): void
  fail(error: unknown): void
}

/** Also returns the promise that settle() and fail() settle. */
export function pendingTransaction<T>(decide: (transaction: Transaction) => T): {
  readonly pending: PendingTransaction
  readonly outcome: Promise<T>
} {
  const { promise, resolve, reject } = Promise.withResolvers<T>()
  let last: { readonly ok: true; readonly value: T } | { readonly ok: false; readonly error: unknown } | undefined
  const pending: PendingTransaction = {
    run: (group) => {
      const layer = new WriteLayer(group)
      try {
        last = { ok: true, value: decide(layer) }
        group.absorb(layer)
      } catch (error) {
        last = { ok: false, error }
      }
    },
    settle: () => {
      if (last?.ok === true) resolve(last.value)
      else reject(errorOf(last?.error))
    },
    fail: (error) => reject(errorOf(error)),
  }
  return { pending, outcome: promise }
}

export function closedLog(): Error {
  return new Error('the log is closed')
}
