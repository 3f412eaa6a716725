/**
 * A history as the callers and watchers observed it. Times are milliseconds of one monotonic clock. A call takes effect
 * at some moment between its start and its end. A call with outcome `unknown` took effect then, takes effect later, or
 * never does.
 */

export type Outcome = 'ok' | 'failed' | 'unknown'

interface Call {
  readonly start: number
  /** The time when the caller received its answer or stopped waiting. */
  readonly end: number
  readonly outcome: Outcome
}

export interface TokenCall extends Call {
  readonly t: 'token'
  /** The id of the token; absent when no answer arrived. */
  readonly token?: string
}

export interface JoinCall extends Call {
  readonly t: 'join'
  readonly token: string
  readonly cluster: string
  /** The number of this membership of the cluster, counted from its first join. */
  readonly life: number
  readonly index?: number
  readonly blocks?: readonly string[]
}

export interface RecordCall extends Call {
  readonly t: 'put' | 'remove'
  readonly cluster: string
  readonly life: number
  /** The key of the record, as recordKeyText() writes it. */
  readonly key: string
  /** A number that grows with each call of a cluster. A record that is put contains it. */
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

/** One record as a watcher received it. */
export interface SeenRecord {
  readonly key: string
  /** The value; absent when the record was removed. */
  readonly value?: RecordValue
}

export interface RecordValue {
  /** The version in a member's record. */
  readonly version?: number
  /** The addresses of a service, in a record of the broker itself. */
  readonly ips?: readonly string[]
  readonly revision: number
  /** The whole content of the record as text. */
  readonly text: string
}

/** One message that changed the records or the position of a watcher. */
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

/** The store while no call is under way, and the state of all watchers at that time. */
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
