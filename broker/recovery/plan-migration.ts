/**
 * Decides the next step of a migration from the marks of both ends. An interrupted migration continues when it is run
 * again, and a finished one has nothing left to do. Pure.
 */
import type { MigrationRow, StateError } from '../store/store.ts'

export interface EndOfMove {
  readonly name: string
  readonly mark: MigrationRow | undefined
  readonly clusterset: string | undefined
  /** Number of rows without the mark. 0 if there is no store. */
  readonly rows: number
}

export type MigrationPlan =
  /** `renews`: the target is replaced by an empty store first. */
  | { readonly t: 'copy'; readonly id: string; readonly renews: boolean }
  | { readonly t: 'done'; readonly id: string }
  | { readonly t: 'refused'; readonly code: StateError['code']; readonly end: 'from' | 'to'; readonly text: string }

/** `newId` is for a migration that starts now. */
export function planMigration(from: EndOfMove, to: EndOfMove, newId: string): MigrationPlan {
  return refusedBySource(from, to) ?? planTarget(from, to, newId)
}

function refusedBySource({ name, mark, rows }: EndOfMove, to: EndOfMove): MigrationPlan | undefined {
  const refused = (code: StateError['code'], text: string): MigrationPlan => ({ t: 'refused', code, end: 'from', text })
  if (mark?.t === 'arriving')
    return refused(
      'HalfMoved',
      `a move from ${mark.peer} to ${name} is not complete: complete it, or cancel it with --cancel`,
    )
  if (rows === 0) return refused('Absent', `${name} is empty: there is nothing to move`)
  if (mark === undefined || mark.t === 'arrived') return undefined
  if (mark.t === 'leaving' && mark.peer !== to.name)
    return refused(
      'HalfMoved',
      `a move from ${name} to ${mark.peer} is not complete: complete it, or cancel it with --cancel`,
    )
  if (mark.t === 'moved' && (mark.peer !== to.name || to.mark?.id !== mark.id))
    return refused('Moved', `${name} was moved to ${mark.peer}: later changes are only in that store`)
  return undefined
}

function planTarget(from: EndOfMove, to: EndOfMove, newId: string): MigrationPlan {
  const begun = from.mark
  const id = begun?.t === 'leaving' || begun?.t === 'moved' ? begun.id : newId
  if (to.rows === 0 && to.mark === undefined) return { t: 'copy', id, renews: false }
  const { mark } = to
  if (mark?.id === id && mark.t === 'arriving') return { t: 'copy', id, renews: false }
  if (mark?.id === id && mark.t === 'arrived' && begun?.t === 'moved') return { t: 'done', id }
  const isOwn = mark?.peer === from.name && (to.clusterset === undefined || to.clusterset === from.clusterset)
  // The target is left from a cancelled migration, or is the store from which this one was migrated earlier.
  if (isOwn && (mark.t === 'arriving' || mark.t === 'moved')) return { t: 'copy', id, renews: true }
  const whose = to.clusterset === undefined ? 'data' : `clusterset "${to.clusterset}"`
  const text = `${to.name} contains ${whose}: expected an empty store, or the store from which ${from.name} was moved`
  return { t: 'refused', code: 'NotEmpty', end: 'to', text }
}
