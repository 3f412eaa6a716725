/**
 * Returns the nft matches of the traffic that pods of other clusters may send to a node itself (echo, ICMP errors,
 * replies to connections of the node, and ports that the operator opened), and the rules that refuse the rest. Pure.
 */
import { type Family, type OpenPort, familyOf } from '../../model/addresses/addresses.ts'

const ICMP: Readonly<Record<Family, string>> = {
  4: 'icmp type { echo-request, destination-unreachable, time-exceeded, parameter-problem }',
  6: 'icmpv6 type { echo-request, destination-unreachable, packet-too-big, time-exceeded, parameter-problem }',
}

/** Returns one match for each kind of traffic that may reach the node, for the input hook. */
export function hostMatches(family: Family, ports: readonly OpenPort[]): string[] {
  return [ICMP[family], 'ct state established,related', ...openPortMatches(family, ports)]
}

/** Returns one match for each of these ports of the node. */
export function openPortMatches(family: Family, ports: readonly OpenPort[]): string[] {
  const ip = family === 4 ? 'ip' : 'ip6'
  return portsOf(family, ports).map(({ protocol, port, address }) => {
    const where = address === undefined ? '' : `${ip} daddr ${address} `
    return `${where}${protocol} dport ${port}`
  })
}

/**
 * Matches the original direction of a connection that this node redirects, as it does for its NodePorts; for the
 * forward hook.
 */
export const LED_ELSEWHERE = 'ct direction original ct status dnat'

/** Returns one match for each of these connections that is allowed. */
export function ledElsewhereMatches(family: Family, ports: readonly OpenPort[]): string[] {
  const ip = family === 4 ? 'ip' : 'ip6'
  return portsOf(family, ports).map(({ protocol, port, address }) => {
    const where = address === undefined ? '' : `ct original ${ip} daddr ${address} `
    return `${where}meta l4proto ${protocol} ct original proto-dst ${port}`
  })
}

/**
 * Returns rules that refuse every packet and count it once on the named counter. The first packet of a TCP connection
 * gets a reset: a client in connect() ignores an ICMP error and retries a second later, and the kernel limits the rate
 * of ICMP errors. Everything else gets an ICMP error, later TCP packets too: a reset would end a connection of this
 * node that is no longer tracked.
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
