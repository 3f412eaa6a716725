/** What nft calls the types of ICMP messages (1.0.6, `nft describe icmp type`), for the tracer. */

export const ICMP_TYPES: Readonly<Record<'icmp' | 'icmpv6', Readonly<Record<string, number>>>> = {
  icmp: {
    'echo-reply': 0,
    'destination-unreachable': 3,
    'source-quench': 4,
    redirect: 5,
    'echo-request': 8,
    'router-advertisement': 9,
    'router-solicitation': 10,
    'time-exceeded': 11,
    'parameter-problem': 12,
    'timestamp-request': 13,
    'timestamp-reply': 14,
  },
  icmpv6: {
    'destination-unreachable': 1,
    'packet-too-big': 2,
    'time-exceeded': 3,
    'parameter-problem': 4,
    'echo-request': 128,
    'echo-reply': 129,
    'mld-listener-query': 130,
    'mld-listener-report': 131,
    'mld-listener-done': 132,
    'nd-router-solicit': 133,
    'nd-router-advert': 134,
    'nd-neighbor-solicit': 135,
    'nd-neighbor-advert': 136,
    'nd-redirect': 137,
  },
}

/** Whether the type as a rule says it (a name or a number) is that of a packet. */
export function isIcmpType(protocol: 'icmp' | 'icmpv6', said: string, type: number): boolean {
  return said === String(type) || ICMP_TYPES[protocol][said] === type
}
