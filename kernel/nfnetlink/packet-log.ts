/** The interface to logged packets. Drivers: netlink-packet-log.ts, and fake/fake-packet-log.ts for tests. */

/** What is read of a packet: where it came from, and what it was for. */
export interface LoggedPacket {
  /** As the rule says: `log prefix "…"`. */
  readonly prefix: string
  /** In the form that nft prints. */
  readonly source: string
  readonly destination: string
  /** `tcp`, `udp`, `sctp`, `icmp`, `icmpv6`, or the number of another protocol. */
  readonly protocol: string
  /** The destination port. Absent where the protocol has none, and in parts of packets without their first part. */
  readonly port?: number
  /** Where there is a destination port. */
  readonly sourcePort?: number
  /** When the kernel saw it: milliseconds since 1970, exact to the microsecond. Absent where the kernel does not say. */
  readonly atMs?: number
  /** Of an ICMP error: the packet that it is about. Absent if its addresses are not complete. */
  readonly about?: Omit<LoggedPacket, 'prefix' | 'atMs' | 'about'>
}

export interface PacketLog {
  /**
   * Calls `listener` with each packet that the kernel logs to the group, until the returned function is called. Only one
   * program of a network namespace can follow a group. Does not keep the process alive. Throws KernelError: EPERM, also
   * if another program follows the group, EINVAL or EOPNOTSUPP if the kernel cannot log to groups, TIMEOUT, EINTR on
   * abort.
   */
  follow(group: number, listener: (packet: LoggedPacket) => void, signal?: AbortSignal): Promise<() => void>
}
