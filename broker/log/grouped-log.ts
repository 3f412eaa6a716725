/**
 * The part of a log that drivers share: transactions queue up, and all that came in while the last group was being
 * written go to disk together (group commit).
 */
import { LogReader } from './log-reader.ts'
import { LogState } from './log-state.ts'
import type { RowPacking } from './row-packing.ts'
import { type PendingTransaction, closedLog, pendingTransaction } from './pending-transaction.ts'
import type { Change, RecordLog, Transaction } from './record-log.ts'
import { WriteLayer, changesOf } from './write-layer.ts'

export interface JournalContent {
  readonly epoch: string
  readonly revision: number
  readonly compactedRevision: number
  /** In order of revisions. Of load(): to be taken once, and at once. */
  readonly changes: Iterable<Change>
}

/** Where a group is made durable. Methods throw StateError. */
export interface Journal {
  load(): JournalContent
  /** Starts a group and gives what other processes have written since `revision`, if anything. */
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

/** Is told of each group, and of what it changes. Must not throw. */
export interface GroupObserver {
  begins(): void
  /** It is durable. */
  wrote(changes: number): void
  /** Nothing of it was written. */
  failed(error: unknown): void
}

export interface GroupedLogInit {
  /** Removals that are remembered for readers that come back. */
  readonly keepRemoved: number
  readonly observer?: GroupObserver
  /** Absent: as written. */
  readonly packing?: RowPacking
}

interface WrittenGroup {
  /** That became visible: this group's, and those of other processes. */
  readonly changes: readonly Change[]
  /** Transactions that were in it; the rest waits for the next. */
  readonly count: number
}

/** A group ends once it has so many rows: what else there is to do comes between two groups. */
const MAX_GROUP_ROWS = 128

export class GroupedLog extends LogReader implements RecordLog {
  protected readonly madeEpoch: string
  readonly #journal: Journal
  readonly #init: GroupedLogInit
  readonly #state: LogState
  #waiting: PendingTransaction[] = []
  /** By other processes, not yet passed on: they are durable even when the group that met them fails. */
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

  /** Half of them go at once, so that compaction is rare. */
  #compactTo(): number | undefined {
    if (this.#state.removedCount <= this.#init.keepRemoved) return undefined
    return this.#state.compactionPoint(Math.floor(this.#init.keepRemoved / 2))
  }
}
