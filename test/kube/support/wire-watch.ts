/** Counts what passes the bridge between nodes, from its own place: no node's word is taken for it. */
import { execFileSync } from 'node:child_process'

export interface WireCounts {
  /** Packets of lanes: WireGuard's ports. */
  readonly lanes: number
  /** Packets that bear a pod's address and go to something that is no pod of its cluster. */
  readonly bare: number
  /**
   * Who sent them to whom, each once and in nft's words, at most 1,000 of each family: the ports of TCP and UDP, of
   * ICMP its first bytes. A later fragment has none, and is only counted.
   */
  readonly bareKinds: readonly string[]
}

const FAMILIES = ['ip', 'ip6'] as const
type Family = (typeof FAMILIES)[number]

/** Starts counting in the bridge's namespace; gives the way to read. Takes the pod ranges of all clusters. */
export function watchWire(wan: string, podCIDRs: readonly string[]): () => WireCounts {
  const bare = podCIDRs.map((range) => {
    const family = range.includes(':') ? 'ip6' : 'ip'
    return `${family} saddr ${range} ${family} daddr != ${range} counter name bare jump note_${family}`
  })
  const rules = ['udp dport 4500-4509 counter name lanes', ...bare].join('\n      ')
  nft(
    wan,
    ['-f', '-'],
    `table bridge watch {
    counter lanes {}
    counter bare {}
    ${FAMILIES.map(kindsOf).join('\n    ')}
    chain forward {
      type filter hook forward priority 0
      ${rules}
    }
  }`,
  )
  const read = (name: string): number => {
    const listing = nft(wan, ['list', 'counter', 'bridge', 'watch', name])
    return Number(/packets (\d+)/.exec(listing)?.[1])
  }
  return () => ({
    lanes: read('lanes'),
    bare: read('bare'),
    bareKinds: FAMILIES.flatMap((family) => kinds(wan, family)),
  })
}

function kindsOf(family: Family): string {
  const kind = `${family} saddr . th sport . ${family} daddr . th dport . meta l4proto`
  return `set ${family}_kinds { typeof ${kind}; size 1000; flags dynamic; }
    chain note_${family} {
      add @${family}_kinds { ${kind} }
    }`
}

function kinds(wan: string, family: Family): readonly string[] {
  const listing = nft(wan, ['list', 'set', 'bridge', 'watch', `${family}_kinds`])
  const elements = /elements = \{([^}]*)\}/.exec(listing)?.[1] ?? ''
  return elements
    .split(',')
    .map((element) => element.trim())
    .filter((element) => element !== '')
}

function nft(netns: string, args: readonly string[], input = ''): string {
  return execFileSync('ip', ['netns', 'exec', netns, 'nft', ...args], { input, encoding: 'utf8' })
}
