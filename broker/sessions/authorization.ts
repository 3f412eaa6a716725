/**
 * What a member may see. Everything that the broker hands out of other members' records asks here: snapshots, changes,
 * what is added to an interest, and the list of namespaces in which something is exported. Pure.
 */
import type { ClusterId, RecordKey } from '../../model/model.ts'

/** Members that may see the same. One object for all of them: what is sent to them is made once for each audience. */
export interface Audience {
  /** May these members see this record? The answer for a key must not change while the object is in use. */
  readonly maySee: (record: RecordKey) => boolean
}

/** Who may see everything. */
export const EVERYBODY: Audience = { maySee: () => true }

/** Which audience a member belongs to. There are no access policies yet: all are one. */
export function audienceOf(_member: ClusterId): Audience {
  return EVERYBODY
}
