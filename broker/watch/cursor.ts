/** Where one stream stands, and what it has heard. */
import type { WatchMessage } from '../../protocol/broker-api.ts'
import type { Lists } from './member-lists.ts'
import type { ExportedMessage } from './namespace-index.ts'
import type { TakenSnapshot } from './snapshots.ts'
import type { View } from './view.ts'

export type ContactMessage = Extract<WatchMessage, { t: 'contact' }>
export type AuthoritiesMessage = Extract<WatchMessage, { t: 'authorities' }>

export interface Cursor {
  readonly takesPacked: boolean
  readonly takesOwners: boolean
  /** Everything up to here has been handed over. */
  revision: number
  /** Removals from here on are needed: a snapshot begun at this revision cannot hold what was removed before. */
  floor: number
  /** What is being handed over, and its next part. */
  snapshot: { readonly of: TakenSnapshot; next: number } | undefined
  /** Undefined: everything. */
  readonly view: View | undefined
  /** Of a stream with an interest: what is to be said of where something is exported, and as of when it was said. */
  readonly exported: { readonly waiting: ExportedMessage[]; at: number | undefined } | undefined
  /** The revision that the member has heard of last. */
  said: number
  reported: Lists | undefined
  contact: ContactMessage | undefined
  authorities: AuthoritiesMessage | undefined
}
