/** The interfaces to connection tracking of this network namespace: open connections, and translated flows. */
import type { Prefix } from '../../model/addresses/addresses.ts'

/**
 * The client and the server that answers it after destination address translation. Addresses are numbers because there
 * are many connections.
 */
export interface TrackedConnection {
  readonly client: number
  readonly server: number
}

export interface ConnectionScan {
  /** False if there were more entries than the limit. */
  readonly whole: boolean
}

/** Counts open connections. IPv4 only. */
export interface ConnectionTable {
  /**
   * Calls `visit` for each established TCP connection and each UDP connection that has lasted a while in both
   * directions (assured), in no particular order. Reads at most `limit` entries. Connections that open or close during
   * the scan may be missed. Throws KernelError: EPERM, EINVAL if the kernel cannot list connections, TIMEOUT, EINTR on
   * abort.
   */
  scan(limit: number, visit: (connection: TrackedConnection) => void, signal?: AbortSignal): Promise<ConnectionScan>
}

/** Addresses in the form that nft prints: dotted quads, and RFC 5952. */
export interface FlowEnd {
  readonly address: string
  readonly port: number
}

/** A flow: the client, what it called, and what answers after destination address translation. */
export interface TranslatedFlow {
  readonly client: FlowEnd
  readonly called: FlowEnd
  readonly server: FlowEnd
  /** The kernel's number of the entry, and its zone (0 unless a CNI uses zones). */
  readonly id: number
  readonly zone: number
  /** Absent: UDP. */
  readonly protocol?: 'TCP'
  /** Of an established TCP connection: for at least so long no packet of it has come. Absent: not known. */
  readonly idleSeconds?: number
}

/**
 * `unanswered`: connections of which only the client has sent packets. `answered`: those whose server has sent packets
 * too, also after their end for as long as the kernel keeps them.
 */
export type CallState = 'unanswered' | 'answered'

export interface CallsInit {
  /** The prefix of the addresses that were called. Its family is the one that is read. */
  readonly called: Prefix
  readonly state: CallState
  /** Most entries that are read. */
  readonly limit: number
}

/** The packets that answer a call: from its server, after destination address translation, to its client. */
export interface AnswerEnds {
  readonly protocol: 'TCP' | 'UDP'
  readonly server: FlowEnd
  readonly client: FlowEnd
}

/**
 * Of a single entry. `closing`: an end of the TCP connection has sent FIN or a reset; the kernel keeps the entry for a
 * while after that.
 */
export type EntryState = CallState | 'closing'

/** Looks up single calls, without a listing. */
export interface CallLookup {
  /**
   * The state of each call, in the order of `calls`; undefined for those of which there is no entry. An entry of another
   * connection tracking zone than 0 is not found. Throws KernelError: EPERM, EINVAL, TIMEOUT, EINTR on abort.
   */
  states(calls: readonly AnswerEnds[], signal?: AbortSignal): Promise<readonly (EntryState | undefined)[]>
}

/** UDP flows and TCP connections. The kernel keeps the translation for as long as the client goes on sending. */
export interface FlowTable {
  /**
   * Calls `visit` for each UDP flow, of the family of `called`, whose client called an address in that prefix; in no
   * particular order. Reads at most `limit` entries. Throws as ConnectionTable.scan().
   */
  flows(
    called: Prefix,
    limit: number,
    visit: (flow: TranslatedFlow) => void,
    signal?: AbortSignal,
  ): Promise<ConnectionScan>
  /** Calls `visit` for each TCP connection of this state, in no particular order. Throws as ConnectionTable.scan(). */
  calls(init: CallsInit, visit: (call: TranslatedFlow) => void, signal?: AbortSignal): Promise<ConnectionScan>
  /**
   * Removes the entries of these flows: the next packet of each is translated as that of a new flow. Returns how many
   * were still there. Throws KernelError, after it may have removed some.
   */
  forget(flows: readonly TranslatedFlow[], signal?: AbortSignal): Promise<number>
}
