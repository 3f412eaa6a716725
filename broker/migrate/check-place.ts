/** Whether a store may be served or changed: not while it is being moved, and not when it was moved away. */
import { type LogView, StateError } from '../log/record-log.ts'
import { MIGRATION_KEY, timeText } from '../state/state.ts'

/** `name` is how messages name the store. Throws StateError (Moved, HalfMoved). */
export function checkNotMoved(log: LogView, name: string): void {
  const row = log.get('migration', MIGRATION_KEY)
  if (row === undefined || row.t === 'arrived') return
  const { t, peer } = row
  const at = timeText(row.atMs)
  if (t === 'moved') {
    throw new StateError(
      'Moved',
      name,
      `${name} was moved to ${peer} at ${at}: serve that one; "sealane broker migrate" moves it back, and ` +
        '"sealane broker migrate --cancel" takes the move back while nothing was done there',
    )
  }
  const way = t === 'leaving' ? `from here to ${peer}` : `here from ${peer}`
  const text = `${name}: a move ${way} began at ${at} and is not over: run the same "sealane broker migrate" again, or --cancel it`
  throw new StateError('HalfMoved', name, text)
}
