/**
 * The part of a log that drivers share: transactions queue up, and all that came in while the last group was being
 * written go to disk together (group commit).
 */
import { errorOf } from '../../runtime/thrown.ts'
import type { RecordKind } from '../../model/records.ts'
import type { Scope, Scopes } from '../state/state.ts'
import { LogState } from './log-state.ts'
import type { Change, RecordLog, Row, Transaction } from './record-log.ts'
import { WriteLayer } from './write-layer.ts'

export interface JournalContent {
  readonly epoch: string
  readonly revision: number
  readonly compactedRevision: number
  /** In order of revisions. */
  readonly changes: readonly Change[]
}

/** Where a group is made durable. Methods throw StateError. */
export interface Journal {
  load(): JournalContent
  /** Starts a group and gives what other processes have written since `revision`, if anything. */
  begin(revision: number): (JournalContent & { readonly whole: boolean }) | undefined
  write(changes: readonly Change[]): void
  /** Forgets removals up to this revision. */
  compact(upTo: number): void
  /** Makes the group durable. */
  commit(revision: number): void
  rollback(): void
  close(): void
}

export interface GroupedLogInit {
  /** Removals that are remembered for readers that come back. */
  readonly keepRemoved: number
  /** Called with the duration of each group and its number of changes. */
  readonly onGroup?: (changes: number) => void
}

interface Waiting {
  readonly run: (group: WriteLayer) => void
  readonly settle: () => void
  readonly fail: (error: unknown) => void
}

export class GroupedLog implements RecordLog {
  readonly epoch: string
  readonly #journal: Journal
  readonly #init: GroupedLogInit
  readonly #state = new LogState()
  readonly #callbacks = new Set<(changes: readonly Change[]) => void>()
  #waiting: Waiting[] = []
  /** By other processes, not yet passed on: they are durable even when the group that met them fails. */
  #foreign: readonly Change[] = []
  #scheduled: NodeJS.Immediate | undefined
  #closed = false

  constructor(journal: Journal, init: GroupedLogInit) {
    this.#journal = journal
    this.#init = init
    const content = journal.load()
    this.epoch = content.epoch
    this.#take(content)
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
  onCommit(callback: (changes: readonly Change[]) => void): () => void {
    this.#callbacks.add(callback)
    return () => void this.#callbacks.delete(callback)
  }

  transact<T>(decide: (transaction: Transaction) => T): Promise<T> {
    if (this.#closed) return Promise.reject(new Error('the log is closed'))
    return new Promise<T>((resolve, reject) => {
      let outcome:
        { readonly ok: true; readonly value: T } | { readonly ok: false; readonly error: unknown } | undefined
      this.#waiting.push({
        run: (group) => {
          const layer = new WriteLayer(group)
          try {
            outcome = { ok: true, value: decide(layer) }
            group.absorb(layer)
          } catch (error) {
            outcome = { ok: false, error }
          }
        },
        settle: () => {
          if (outcome?.ok === true) resolve(outcome.value)
          else reject(errorOf(outcome?.error))
        },
        fail: reject,
      })
      this.#scheduled ??= setImmediate(() => this.#flush())
    })
  }

  async refresh(): Promise<void> {
    await this.transact(() => undefined)
  }

  close(): Promise<void> {
    if (!this.#closed) {
      this.#closed = true
      if (this.#scheduled !== undefined) clearImmediate(this.#scheduled)
      if (this.#waiting.length > 0) this.#flush()
      this.#journal.close()
      this.#callbacks.clear()
    }
    return Promise.resolve()
  }

  #flush(): void {
    this.#scheduled = undefined
    const waiting = this.#waiting
    this.#waiting = []
    let changes: readonly Change[]
    try {
      changes = this.#writeGroup(waiting)
    } catch (error) {
      for (const one of waiting) one.fail(error)
      return
    }
    for (const one of waiting) one.settle()
    if (changes.length > 0) for (const callback of [...this.#callbacks]) callback(changes)
  }

  /** Gives the changes that became visible: this group's and those of other processes. */
  #writeGroup(waiting: readonly Waiting[]): readonly Change[] {
    try {
      this.#begin()
      const group = new WriteLayer(this.#state)
      for (const one of waiting) one.run(group)
      const changes = this.#changesOf(group)
      if (changes.length > 0) this.#journal.write(changes)
      const compactTo = this.#compactTo()
      if (compactTo !== undefined) this.#journal.compact(compactTo)
      this.#journal.commit(this.#state.revision + changes.length)
      this.#state.apply(changes)
      if (compactTo !== undefined) this.#state.forgetRemoved(compactTo)
      if (changes.length > 0) this.#init.onGroup?.(changes.length)
      const visible = [...this.#foreign, ...changes]
      this.#foreign = []
      return visible
    } catch (error) {
      this.#journal.rollback()
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

  #changesOf(group: WriteLayer): Change[] {
    let revision = this.#state.revision
    return [...group.writes]
      .filter((write) => write.value !== undefined || this.#state.get(write.scope, write.key) !== undefined)
      .map((write) => ({ ...write, revision: (revision += 1) }))
  }

  /** Half of them go at once, so that compaction is rare. */
  #compactTo(): number | undefined {
    if (this.#state.removedCount <= this.#init.keepRemoved) return undefined
    return this.#state.compactionPoint(Math.floor(this.#init.keepRemoved / 2))
  }
}
