/** How a log holds the rows of records. A broker that serves packs them (packed-row.ts); a command reads a few and ends. */
import type { RecordRow } from '../state/state.ts'
import type { Change } from './record-log.ts'

export interface RowPacking {
  /** The same change where there is nothing to pack: streams know it by its identity. */
  readonly pack: (change: Change<'record'>) => Change
  /** The row that a store has as this text. Throws SyntaxError. */
  readonly fromText: (text: string) => RecordRow
}

/** As they were written, also where what is looked through may be damaged. */
export const AS_WRITTEN: RowPacking = {
  pack: (change) => change,
  fromText: (text) => JSON.parse(text) as RecordRow,
}
