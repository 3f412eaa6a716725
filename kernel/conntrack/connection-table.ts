/** The interface to connection tracking of this network namespace, IPv4 only. Read only. */

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

export interface ConnectionTable {
  /**
   * Calls `visit` for each established TCP connection and each UDP connection that has lasted a while in both
   * directions (assured), in no particular order. Reads at most `limit` entries. Connections that open or close during
   * the scan may be missed. Throws KernelError: EPERM, EINVAL if the kernel cannot list connections, TIMEOUT, EINTR on
   * abort.
   */
  scan(limit: number, visit: (connection: TrackedConnection) => void, signal?: AbortSignal): Promise<ConnectionScan>
}
