/** Notifications about next-hop objects and groups. */
import { watchGroups } from '../netlink-socket.ts'
import { RTM_NEWNEXTHOPBUCKET } from './next-hop-codec.ts'

/** RTNLGRP_NEXTHOP; a kernel without next-hop objects takes the number too, and says nothing there. */
const NEXT_HOP_GROUP = 32

/**
 * Calls back (coalesced) when next-hop objects or groups change, but not when the kernel moves buckets: that is every few
 * seconds where traffic is. The function given back ends it. Throws KernelError.
 */
export function watchNextHops(listener: () => void): () => void {
  return watchGroups([NEXT_HOP_GROUP], listener, ({ type }) => type !== RTM_NEWNEXTHOPBUCKET)
}
