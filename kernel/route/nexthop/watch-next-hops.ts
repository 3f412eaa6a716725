/** Notifications about next-hop objects and groups. */
import { watchGroups } from '../netlink-socket.ts'
import { RTM_NEWNEXTHOPBUCKET } from './next-hop-codec.ts'

/** RTNLGRP_NEXTHOP; a kernel without next-hop objects accepts the number too, and sends nothing. */
const NEXT_HOP_GROUP = 32

/**
 * Calls back (coalesced) when next-hop objects or groups change, but not when the kernel moves buckets, as it does
 * every few seconds where there is traffic. The function given back ends it. Throws KernelError.
 */
export function watchNextHops(listener: () => void): () => void {
  return watchGroups([NEXT_HOP_GROUP], listener, ({ type }) => type !== RTM_NEWNEXTHOPBUCKET)
}
