/** What connection tracking of this network namespace knows of connections over IPv4. Read only. */

/** Who called and who answers, after address translation of the destination. Addresses as numbers: there are many. */
export interface TrackedConnection {
  readonly client: number
  readonly server: number
}

export interface ConnectionScan {
  /** False: there were more entries than were to be read. */
  readonly whole: boolean
}

export interface ConnectionTable {
  /**
   * Calls back for each TCP connection that is established, and each UDP one that both sides have kept up for a while
   * (assured), in no order. Reads at most `limit` entries. One that is opened or closed meanwhile may be missed. Throws
   * KernelError: EPERM, EINVAL where the kernel cannot list them, TIMEOUT, EINTR by the signal.
   */
  scan(limit: number, visit: (connection: TrackedConnection) => void, signal?: AbortSignal): Promise<ConnectionScan>
}
