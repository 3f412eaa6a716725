/** What the broker refused of this cluster. */
import type { RefusalReason } from '../../model/reasons/reasons.ts'

export interface RefusedRecord {
  /** memberKeyText of the record; undefined when the cluster's facts or its status were refused. */
  readonly key: string | undefined
  readonly field: string
  readonly reason: RefusalReason
  readonly message: string
}
