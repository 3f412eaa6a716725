/**
 * Authorization of what a member may see. Every path by which the broker sends records of other members checks it:
 * snapshots, changes, records of a widened interest, and the list of namespaces with exports. Pure.
 */
import type { ClusterId, RecordKey } from '../../model/model.ts'

/**
 * Members that may see the same records. All of them share one object, so a message to them is encoded once per
 * authorization.
 */
export interface Authorization {
  /** Whether these members may see the record. The answer for a key must not change while the object is in use. */
  readonly maySee: (record: RecordKey) => boolean
}

/** The authorization of members that may see everything. */
export const EVERYBODY: Authorization = { maySee: () => true }

/** The authorization of a member. There are no access policies yet, so all members have the same one. */
export function authorizationOf(_member: ClusterId): Authorization {
  return EVERYBODY
}
