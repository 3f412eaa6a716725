/** Whether UDP gets out of the network of a gateway, by what is known of its links. Pure. */

/** A link of the gateway. */
export interface UdpLink {
  /** The far cluster. */
  readonly cluster: string
  /** How it is up. None: it is not. */
  readonly by: 'udp' | 'tcp-443' | 'none'
  /** Its far end can be called from outside by UDP, as far as is known, and the topology permits that. */
  readonly isCallable: boolean
  /** It came up less than UDP_SETTLES_MS ago: UDP may still follow. */
  readonly isNew: boolean
}

/**
 * Passes: something has answered by UDP. Blocked: links to callable far ends of several clusters are over port 443 alone.
 * One-sided: the same with the only far cluster, so that the far end's network may be the one. Unknown: neither is shown.
 */
export type UdpFinding = 'passes' | 'blocked' | 'one-sided' | 'unknown'

/** A link that has come up has so long to leave port 443. */
export const UDP_SETTLES_MS = 10_000

/** `isAnswered`: a relay of a member answers by UDP. */
export function udpFinding(links: readonly UdpLink[], isAnswered: boolean): UdpFinding {
  if (isAnswered || links.some(({ by }) => by === 'udp')) return 'passes'
  const showing = links.filter(({ by, isCallable, isNew }) => by === 'tcp-443' && isCallable && !isNew)
  const clusters = new Set(showing.map(({ cluster }) => cluster))
  if (clusters.size >= 2) return 'blocked'
  return clusters.size === 1 && links.every(({ cluster }) => clusters.has(cluster)) ? 'one-sided' : 'unknown'
}

/** The finding as a clause. Undefined unless UDP seems to be blocked. */
export function udpBlockedText(finding: UdpFinding): string | undefined {
  switch (finding) {
    case 'blocked':
      return 'UDP gets no answer, and port 443 does'
    case 'one-sided':
      return "UDP gets no answer, and port 443 does: this network or the far end's lets no UDP through"
    case 'passes':
    case 'unknown':
      return undefined
  }
}
