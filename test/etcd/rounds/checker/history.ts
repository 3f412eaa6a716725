/**
 * What happened, as those saw it who called and watched. Times are milliseconds of one clock that only goes forward. A
 * call counts as made somewhere between its start and its end; `unknown` ones were made then, later, or never.
 */

export type Outcome = 'ok' | 'failed' | 'unknown'

interface Call {
  readonly start: number
  /** When the caller had its answer, or waited no longer. */
  readonly end: number
  readonly outcome: Outcome
}

export interface TokenCall extends Call {
  readonly t: 'token'
  /** Its id. Absent: nobody was told. */
  readonly token?: string
}

export interface JoinCall extends Call {
  readonly t: 'join'
  readonly token: string
  readonly cluster: string
  /** Counts the memberships of one cluster. */
  readonly life: number
  readonly index?: number
  readonly blocks?: readonly string[]
}

export interface RecordCall extends Call {
  readonly t: 'put' | 'remove'
  readonly cluster: string
  readonly life: number
  /** recordKeyText() */
  readonly key: string
  /** Grows with each call of a cluster, and is in the record that is put. */
  readonly version: number
}

export interface EndCall extends Call {
  readonly t: 'end'
  readonly how: 'left' | 'evicted'
  readonly cluster: string
  readonly life: number
}

export interface RenewCall extends Call {
  readonly t: 'renew'
  readonly cluster: string
  readonly life: number
}

export type AnyCall = TokenCall | JoinCall | RecordCall | EndCall | RenewCall

/** What a watcher was shown of one record. */
export interface SeenRecord {
  readonly key: string
  /** Absent: it is gone. */
  readonly value?: RecordValue
}

export interface RecordValue {
  /** Of a member's record. */
  readonly version?: number
  /** Addresses of a service, of a record of the broker's own. */
  readonly ips?: readonly string[]
  readonly revision: number
  /** All that it says. */
  readonly text: string
}

/** One message to a watcher that changed what it has, or where it is. */
export interface Observation {
  readonly watcher: string
  readonly at: number
  readonly epoch: string
  readonly revision: number
  readonly changes: readonly SeenRecord[]
}

export interface StoredMember {
  readonly cluster: string
  readonly index: number
  readonly blocks: readonly string[]
  readonly isMember: boolean
}

export interface StoredToken {
  readonly id: string
  readonly usesLeft: number
  readonly usedBy: readonly string[]
}

export interface WatcherState {
  readonly watcher: string
  readonly epoch: string
  readonly records: ReadonlyMap<string, RecordValue>
}

/** The store as it is while no call is under way, and what all watchers have then. */
export interface QuietLook {
  readonly at: number
  readonly epoch: string
  readonly records: ReadonlyMap<string, RecordValue>
  readonly members: readonly StoredMember[]
  readonly tokens: readonly StoredToken[]
  readonly watchers: readonly WatcherState[]
}

export interface History {
  readonly calls: readonly AnyCall[]
  readonly observations: readonly Observation[]
  readonly looks: readonly QuietLook[]
}
