/** The part of a log that is read: rows in memory, and who wants to know of changes. Shared by the drivers. */
import type { RecordKind } from '../../model/records.ts'
import { Listeners } from '../../reconcile/listeners.ts'
import { SETTINGS_KEY, type Scope, type Scopes } from '../state/state.ts'
import type { LogState } from './log-state.ts'
import type { Change, LogView, Row } from './record-log.ts'

export abstract class LogReader implements LogView {
  readonly #state: LogState
  /** Made with the store. */
  protected abstract readonly madeEpoch: string
  readonly #callbacks = new Listeners<[changes: readonly Change[]]>()

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
  onCommit(callback: (changes: readonly Change[]) => void): () => void {
    return this.#callbacks.add(callback)
  }

  protected reportCommit(changes: readonly Change[]): void {
    this.#callbacks.call(changes)
  }

  protected forgetCallbacks(): void {
    this.#callbacks.clear()
  }
}
