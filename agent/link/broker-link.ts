/**
 * The broker as the agent's loops see it: a set of records to keep published, and a copy of all members' records.
 * protocol-link.ts implements the connections, retries and wire format.
 */
import type { AccessDefault } from '../../model/access/access.ts'
import type { MemberRecord, MemberStatus, StoredRecord } from '../../model/model.ts'
import type { ClusterFacts } from '../../protocol/protocol.ts'
import type { ReplicaChange } from '../../protocol/replica/replica.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'

export type PublishState =
  /** Not sent to the broker yet, or not answered yet. */
  | { readonly t: 'pending' }
  /** The broker has stored exactly the current record durably. */
  | { readonly t: 'stored' }
  /** The broker refuses the current record. */
  | { readonly t: 'refused'; readonly field: string; readonly reason: ReasonCode; readonly message: string }

export interface Publisher {
  /**
   * False until the broker has answered a declaration once in the life of this process. Until then, the state of all
   * records is unknown.
   */
  readonly answered: boolean
  /**
   * Sets all records to publish, by memberKey text. A record that is the same object as before counts as unchanged and
   * is not compared.
   */
  setDesired(records: ReadonlyMap<string, MemberRecord>): void
  /**
   * Sets the facts that this cluster states about itself, whenever they change. Until the first call, the facts it
   * joined with are used.
   */
  setFacts(facts: ClusterFacts): void
  /** Sets what this cluster reports about itself. A broker of an earlier release does not get it. */
  setStatus(status: MemberStatus): void
  /** The state of a record of the current set. */
  state(key: string): PublishState
  /**
   * Calls back after states have changed: of the given records, or of any record if undefined. Gives the function that
   * unsubscribes.
   */
  onChange(listener: (keys: readonly string[] | undefined) => void): () => void
}

export interface ReplicaView {
  /**
   * False until one whole snapshot was received. Stays true while the broker is unreachable; the copy does not change
   * then.
   */
  readonly synced: boolean
  /** False while everything known was saved to disk, by an earlier process or by this one before it lost leadership. */
  readonly confirmed: boolean
  /**
   * Owners whose missing records are known to be withdrawn. '' stands for the broker itself. See WatchMessage `synced`.
   */
  readonly complete: ReadonlySet<string>
  readonly departed: ReadonlySet<string>
  /** Whether all records of this namespace are here, so that a missing record is also missing at the broker. */
  holds(namespace: string): boolean
  /**
   * Namespaces in which any cluster exports a service, including those without interest. If undefined, the broker has
   * not reported them, and the records of all namespaces are here.
   */
  readonly exported: ReadonlySet<string> | undefined
  /** An unchanged record is the same object as before. */
  records(): Iterable<StoredRecord>
  /** Calls back with all changes to the records since the last call. */
  onChange(listener: (changes: readonly ReplicaChange[]) => void): () => void
  /** Calls back after `exported` has changed. */
  onExported(listener: () => void): () => void
}

export interface ContactView {
  /**
   * Members that have no connection to the broker, with the milliseconds since when, by the broker's latest report. All
   * other members are connected. Undefined while this cluster itself is not connected to the broker, when nothing is
   * known.
   */
  silent(): ReadonlyMap<string, number> | undefined
  onChange(listener: () => void): () => void
}

/** The state of the connection to the broker, for /status. Contains no addresses. */
export interface LinkState {
  readonly publish: 'closed' | 'waiting' | 'connecting' | 'declaring' | 'live'
  readonly watch: 'closed' | 'waiting' | 'connecting' | 'syncing' | 'live'
  /** RFC 3339 time since when both are live, or not. */
  readonly since: string
  /** Why there is no connection, if the cause has a reason code. */
  readonly reason?: ReasonCode
  /** Why the broker refuses the facts that this cluster states. Absent if it accepts them. */
  readonly factsRefused?: ReasonCode
  /** RFC 3339 time of the broker's last message. */
  readonly heardAt?: string
  /** The number of known broker addresses, and how many of them failed at the last attempt. */
  readonly addresses: number
  readonly failing: number
  /** RFC 3339 time at which the certificate expires. */
  readonly certificateEnds?: string
  /**
   * The shortest time that the broker took to confirm one of the last three changes. Absent without three recent
   * changes.
   */
  readonly answeredMs?: number
  /** How far the broker's clock is ahead of the local clock, negative if it is behind. Absent while unknown. */
  readonly aheadMs?: number
}

/** The default of the clusterset for exports without an AccessPolicy. */
export type AccessWord = AccessDefault | 'none' | 'unknown'

export interface StatedAccess {
  /**
   * The last default that a broker has stated to this process: one that states none takes nothing back. Without one,
   * undefined until a broker has answered, `none` if no operator has set one, and `unknown` if the broker, or a replica
   * of it, may be of a release that does not know it. Keeps its value while the broker is unreachable.
   */
  get(): AccessWord | undefined
  onChange(listener: () => void): () => void
}

export interface StatedRelays {
  /** Relays on port 443, as a broker has stated them last. Undefined while none has. Each is a valid address. */
  get(): readonly string[] | undefined
  onChange(listener: () => void): () => void
}

export interface BrokerLink {
  readonly publisher: Publisher
  readonly replica: ReplicaView
  readonly contact: ContactView
  /** Absent if the broker states no default. */
  readonly access?: StatedAccess
  /** Absent if the broker states none. */
  readonly relays?: StatedRelays
  /** Sets the namespaces whose records are needed here; undefined for all. Until the first call, none are requested. */
  setInterest(namespaces: ReadonlySet<string> | undefined): void
  /** The problem of the connection as text. Undefined if there is none. */
  problem(): string | undefined
  state(): LinkState
  /** Connects, and reconnects whenever the connection breaks, until the signal. */
  run(signal: AbortSignal): Promise<void>
  /**
   * Keeps this cluster's identity from expiring, until the signal. Works also while run() is not called. Never rejects.
   */
  keepIdentity(signal: AbortSignal): Promise<void>
  /** Removes the state that is kept for the next start. Called after run(), when this cluster has left. */
  forget(): Promise<void>
}
