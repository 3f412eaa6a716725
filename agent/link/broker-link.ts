/**
 * The broker as the agent's loops see it: a set of records to keep published, and a copy of everybody's records.
 * Connections, retries and the wire are behind it (protocol-link.ts).
 */
import type { MemberRecord, MemberStatus, StoredRecord } from '../../model/model.ts'
import type { ClusterFacts } from '../../protocol/protocol.ts'
import type { ReplicaChange } from '../../protocol/replica/replica.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'

export type PublishState =
  /** Not sent to the broker yet, or no answer yet. */
  | { readonly t: 'pending' }
  /** The broker has it durably, exactly as desired now. */
  | { readonly t: 'stored' }
  /** The broker does not take it as it is now. */
  | { readonly t: 'refused'; readonly field: string; readonly reason: ReasonCode; readonly message: string }

export interface Publisher {
  /**
   * False until the broker has answered a declaration once in the life of this process: until then nothing is known.
   */
  readonly answered: boolean
  /**
   * The whole set to publish, by memberKey text. Records whose object is the very same as last time are taken as
   * unchanged without a look inside.
   */
  setDesired(records: ReadonlyMap<string, MemberRecord>): void
  /** What this cluster states about itself, whenever it differs; until the first time, it is as it joined. */
  setFacts(facts: ClusterFacts): void
  /** What this cluster reports about itself. A broker of an earlier release does not get it. */
  setStatus(status: MemberStatus): void
  /** What became of a record of the set last given. */
  state(key: string): PublishState
  /**
   * Calls back after states have changed: of these records, or of any when undefined. Gives the function that ends it.
   */
  onChange(listener: (keys: readonly string[] | undefined) => void): () => void
}

export interface ReplicaView {
  /**
   * False until one snapshot was received whole. Stays true while the broker is away: the copy then does not change.
   */
  readonly synced: boolean
  /** False while all that is known was saved by an earlier process, or by this one when it acted before. */
  readonly confirmed: boolean
  /** Owners whose absent records are gone for certain ('' is the broker itself): see WatchMessage `synced`. */
  readonly complete: ReadonlySet<string>
  readonly departed: ReadonlySet<string>
  /** Whether a record of this namespace that is not here is not at the broker either. */
  holds(namespace: string): boolean
  /**
   * Namespaces in which some cluster exports something, also those that were not asked for. Undefined: nobody has said,
   * and the records of all namespaces are here.
   */
  readonly exported: ReadonlySet<string> | undefined
  /** A record that has not changed is the very same object as before. */
  records(): Iterable<StoredRecord>
  /** Calls back with all that has changed in the records since the last call. */
  onChange(listener: (changes: readonly ReplicaChange[]) => void): () => void
  /** Calls back when `exported` has changed. */
  onExported(listener: () => void): () => void
}

export interface ContactView {
  /**
   * Members that have no connection to the broker, and for how many milliseconds, as the broker said a moment ago; all
   * other members have one. Undefined while this cluster itself has no connection to the broker: then nothing is known.
   */
  silent(): ReadonlyMap<string, number> | undefined
  onChange(listener: () => void): () => void
}

/** How the way to the broker does, for /status: no addresses. */
export interface LinkState {
  readonly publish: 'closed' | 'waiting' | 'connecting' | 'declaring' | 'live'
  readonly watch: 'closed' | 'waiting' | 'connecting' | 'syncing' | 'live'
  /** RFC 3339: since when both are live, or not. */
  readonly since: string
  /** Why there is no connection, where that has a name. */
  readonly reason?: ReasonCode
  /** Why the broker does not take what this cluster states of itself; absent: it does. */
  readonly factsRefused?: ReasonCode
  /** RFC 3339: the broker's last word. */
  readonly heardAt?: string
  /** How many addresses of brokers are known, and at how many of them the last attempt failed. */
  readonly addresses: number
  readonly failing: number
  /** RFC 3339. */
  readonly certificateEnds?: string
  /** At least so long the broker took to confirm each of the last three changes; absent: there were not three lately. */
  readonly answeredMs?: number
  /** How far the broker's clock is ahead of the one here, negative where behind; absent: not known yet. */
  readonly aheadMs?: number
}

export interface BrokerLink {
  readonly publisher: Publisher
  readonly replica: ReplicaView
  readonly contact: ContactView
  /** Namespaces whose records are of use here; undefined: all. Until it is said, nothing is asked for. */
  setInterest(namespaces: ReadonlySet<string> | undefined): void
  /** What is wrong with the connection, in words; undefined while all is well. */
  problem(): string | undefined
  state(): LinkState
  /** Connects, and again whenever the connection breaks, until the signal. */
  run(signal: AbortSignal): Promise<void>
  /**
   * Keeps what the broker knows this cluster by from ending, until the signal; also while run() is not called. Never
   * rejects.
   */
  keepIdentity(signal: AbortSignal): Promise<void>
  /** After run(): removes what is kept for the next start. This cluster has left. */
  forget(): Promise<void>
}
