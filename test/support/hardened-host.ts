/** What hardened hosts (CIS, STIG) set before Sealane starts. */

/** Forwarding is on, and new devices do not get it; nor do they get what else keeps packets from us. */
export const HARDENED: readonly (readonly [name: string, value: string])[] = [
  ['net/ipv4/ip_forward', '1'],
  ['net/ipv4/conf/default/forwarding', '0'],
  ['net/ipv4/conf/default/rp_filter', '1'],
  ['net/ipv4/conf/default/accept_local', '1'],
]
