/** Counts what passes the bridge between nodes, from its own place: no node's word is taken for it. */
import { execFileSync } from 'node:child_process'

export interface WireCounts {
  /** Packets of lanes: WireGuard's ports. */
  readonly lanes: number
  /** Packets that bear a pod's address and leave its cluster: they go to none of its pods and to none of its nodes. */
  readonly bare: number
  /**
   * Who sent them to whom, each once and in nft's words, at most 1,000: the ports of TCP and UDP, of ICMP its first bytes.
   * A later fragment has none, and is only counted.
   */
  readonly bareKinds: readonly string[]
}

const FAMILIES = ['ip', 'ip6'] as const
type Family = (typeof FAMILIES)[number]

export interface WireCluster {
  readonly podCIDRs: readonly string[]
  /** Addresses of its nodes. */
  readonly nodes: readonly string[]
}

/** Starts counting in the bridge's namespace; gives the way to read. */
export function watchWire(wan: string, clusters: readonly WireCluster[]): () => WireCounts {
  const bare = clusters.flatMap(({ podCIDRs, nodes }) =>
    podCIDRs.map((range) => {
      const family = familyOf(range)
      const own = [range, ...nodes.filter((node) => familyOf(node) === family)].join(', ')
      return `${family} saddr ${range} ${family} daddr != { ${own} } counter name bare jump kinds_${family}`
    }),
  )
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

function familyOf(address: string): Family {
  return address.includes(':') ? 'ip6' : 'ip'
}

function kindsOf(family: Family): string {
  const kind = `${family} saddr . th sport . ${family} daddr . th dport . meta l4proto`
  return `set ${family}_kinds { typeof ${kind}; size 1000; flags dynamic; }
    chain kinds_${family} {
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
