/** The packets that rules of nftables log to a group of this network namespace: `log group N`. */
export type { LoggedPacket, PacketLog } from './packet-log.ts'
export { COPIED_BYTES, COPIED_WITH_ERRORS } from './log-codec.ts'
export { NetlinkPacketLog } from './netlink-packet-log.ts'
