/**
 * nft matches of what pods of other clusters may have of a node itself: echo, ICMP errors, answers to what the node
 * asked, and ports that the operator named; and the rules that refuse the rest. Pure.
 */
import { type Family, type OpenPort, familyOf } from '../../model/addresses/addresses.ts'

const ICMP: Readonly<Record<Family, string>> = {
  4: 'icmp type { echo-request, destination-unreachable, time-exceeded, parameter-problem }',
  6: 'icmpv6 type { echo-request, destination-unreachable, packet-too-big, time-exceeded, parameter-problem }',
}

/** What may reach the node, seen at the input hook: one match each. */
export function hostMatches(family: Family, ports: readonly OpenPort[]): string[] {
  const ip = family === 4 ? 'ip' : 'ip6'
  const named = portsOf(family, ports).map(({ protocol, port, address }) => {
    const where = address === undefined ? '' : `${ip} daddr ${address} `
    return `${where}${protocol} dport ${port}`
  })
  return [ICMP[family], 'ct state established,related', ...named]
}

/**
 * A connection that this node leads elsewhere, as it does for its NodePorts; seen at the forward hook, not its answers.
 */
export const LED_ELSEWHERE = 'ct direction original ct status dnat'

/** Which of these connections may go on: one match each. */
export function ledElsewhereMatches(family: Family, ports: readonly OpenPort[]): string[] {
  const ip = family === 4 ? 'ip' : 'ip6'
  return portsOf(family, ports).map(({ protocol, port, address }) => {
    const where = address === undefined ? '' : `ct original ${ip} daddr ${address} `
    return `${where}meta l4proto ${protocol} ct original proto-dst ${port}`
  })
}

/**
 * Rules that refuse whatever comes to them, and count each packet once at that named counter. A connection is reset at
 * its first packet: a caller that is still in connect() passes over an ICMP error and asks again a second later, and
 * the kernel sends few of these. All else is answered by the error, later packets of TCP too: a reset would end a
 * connection of this node that is no longer tracked.
 */
export function refusingRules(counter: string): string[] {
  return [
    `tcp flags & (syn | ack) == syn counter name ${counter} reject with tcp reset`,
    `counter name ${counter} reject`,
  ]
}

function portsOf(family: Family, ports: readonly OpenPort[]): OpenPort[] {
  return ports.filter(({ address }) => address === undefined || familyOf(address) === family)
}
