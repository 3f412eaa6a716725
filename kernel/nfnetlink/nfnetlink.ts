/** Netfilter's netlink subsystems in a network namespace: connection tracking, and the packets of `log group N`. */
export type {
  AnswerEnds,
  CallLookup,
  CallState,
  CallsInit,
  ConnectionScan,
  ConnectionTable,
  EntryState,
  FlowEnd,
  FlowTable,
  TrackedConnection,
  TranslatedFlow,
} from './connection-table.ts'
export { Conntrack } from './ctnetlink.ts'
export { COPIED_BYTES, COPIED_BYTES_OF_ERROR } from './log-codec.ts'
export { NetlinkPacketLog } from './netlink-packet-log.ts'
export type { LoggedPacket, PacketLog } from './packet-log.ts'
