/** The settings of hardened hosts (CIS, STIG) before Sealane starts. */

/** Forwarding is on, but new devices do not inherit it, and other settings also keep packets from Sealane. */
export const HARDENED: readonly (readonly [name: string, value: string])[] = [
  ['net/ipv4/ip_forward', '1'],
  ['net/ipv4/conf/default/forwarding', '0'],
  ['net/ipv4/conf/default/rp_filter', '1'],
  ['net/ipv4/conf/default/accept_local', '1'],
]
