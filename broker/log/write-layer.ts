/** Writes that are not durable yet, laid over what is: reads through it see both. */
import type { RecordKind } from '../../model/records.ts'
import type { RecordRow, Scope, Scopes } from '../state/state.ts'
import { groupOf, kindOf } from './log-state.ts'
import type { Change, LogView, Transaction } from './record-log.ts'

export interface Write {
  readonly scope: Scope
  readonly key: string
  readonly value: Scopes[Scope] | undefined
}

export class WriteLayer implements Transaction {
  readonly #below: LogView
  /** By key. Its keys are looked for as they are: a join reads thousands of rows through two layers. */
  readonly #writes = new Map<Scope, Map<string, Write>>()
  /** In the order of the last writes. */
  readonly #order = new Set<Write>()
  /** How many rows there are more (or less) than below, by scope and group. */
  readonly #added = new Map<string, number>()
  readonly #addedBytes = new Map<string, number>()
  constructor(below: LogView) {
    this.#below = below
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

  /** Takes over the writes of a layer that lay above this one. */
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

/** What a layer changes in what is below it, with the revisions after `revision`. To remove what is not there is nothing. */
export function changesOf(layer: WriteLayer, below: LogView, revision: number): Change[] {
  let next = revision
  return (
    [...layer.writes]
      .filter((write) => write.value !== undefined || below.get(write.scope, write.key) !== undefined)
      // Written out: a copy by spreading takes more memory for as long as the row is there.
      .map(({ scope, key, value }) => ({ scope, key, revision: (next += 1), value }))
  )
}

/** A group may be '': the broker's own records. */
function countKey(scope: Scope, group?: string): string {
  return group === undefined ? scope : `${scope} ${group}`
}
