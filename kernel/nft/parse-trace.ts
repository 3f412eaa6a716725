/**
 * Parses the lines of `nft monitor trace`: which chains a traced packet passes, which rules match it, and what becomes of
 * it. Rules are those of any program, so their text may be anything; a line that is not understood is left out. Pure.
 */

/** What is known of a packet where a chain begins. */
export interface TracedPacket {
  readonly inDevice?: string
  readonly outDevice?: string
  readonly protocol?: string
  readonly source?: string
  readonly destination?: string
  readonly sourcePort?: number
  readonly port?: number
}

export interface TraceLine {
  /** The same for all lines about one packet. */
  readonly id: string
  /** The address family of the table, such as `ip` or `inet`. */
  readonly family: string
  readonly table: string
  readonly chain: string
  /** policy: the packet came to the end of a base chain. return: to that of another chain, or to such a rule. */
  readonly what: 'packet' | 'rule' | 'policy' | 'return'
  readonly packet?: TracedPacket
  /** The text of the rule, as nft prints it. */
  readonly rule?: string
  /** For example `accept`, `drop`, `continue`, `jump` or `goto`. */
  readonly action?: string
  /** The chain of a jump or goto. */
  readonly to?: string
}

/** Longer ones are left out. */
export const MOST_LINE = 8192
const MOST_RULE = 400
const HEAD = /^trace id ([0-9a-f]{1,16}) (ip|ip6|inet|arp|bridge|netdev) (\S{1,128}) (\S{1,128}) (.*)$/
const VERDICT = /^verdict ([a-z]{1,16})(?: (\S{1,128}))?$/
const RULE = /^(?:rule (.*)|(unknown rule handle \d{1,20})) \(verdict ([a-z]{1,16})(?: ([^\s()]{1,128}))?\)$/

/** Undefined for a line that is none of a trace, or is not understood. */
export function parseTraceLine(line: string): TraceLine | undefined {
  if (line.length > MOST_LINE) return undefined
  // A comment may be of any script. Without the line, a packet that ends there would seem to go on.
  const [, id, family, table, chain, said] = HEAD.exec(line.replaceAll(/[^\x20-\x7e\t]/g, '?')) ?? []
  if (id === undefined || family === undefined || table === undefined || chain === undefined) return undefined
  const at = { id, family, table, chain }
  const rest = (said ?? '').trim()
  if (rest.startsWith('packet: ')) return { ...at, what: 'packet', packet: packetOf(rest.slice('packet: '.length)) }
  const [, policy] = /^policy (accept|drop)(?: |$)/.exec(rest) ?? []
  if (policy !== undefined) return { ...at, what: 'policy', action: policy }
  const [, rule, unknown, ruled, target] = RULE.exec(rest) ?? []
  if (ruled !== undefined) {
    const text = (rule ?? unknown ?? '').slice(0, MOST_RULE)
    return { ...at, what: 'rule', rule: text, action: ruled, ...(target === undefined ? {} : { to: target }) }
  }
  // Behind it the mark of the packet may follow.
  const [, verdict, to] = VERDICT.exec(rest.replace(/ ?meta mark .*$/, '')) ?? []
  if (verdict === undefined) return undefined
  return { ...at, what: 'return', action: verdict, ...(to === undefined ? {} : { to }) }
}

const FIELDS: readonly (readonly [field: keyof TracedPacket, pattern: RegExp])[] = [
  ['inDevice', /(?:^| )iif "([^"\s]{1,15})"/],
  ['outDevice', /(?:^| )oif "([^"\s]{1,15})"/],
  ['source', / ip6? saddr ([0-9a-f.:]{2,45})(?= |$)/],
  ['destination', / ip6? daddr ([0-9a-f.:]{2,45})(?= |$)/],
]

function packetOf(text: string): TracedPacket {
  const named = FIELDS.flatMap(([field, pattern]) => {
    const value = pattern.exec(` ${text}`)?.[1]
    return value === undefined ? [] : [[field, value] as const]
  })
  const ports = ['sport', 'dport'].map((word) => new RegExp(` (?:tcp|udp) ${word} (\\d{1,5})(?= |$)`).exec(text)?.[1])
  const [sourcePort, port] = ports.map((digits) => (digits === undefined ? undefined : Number(digits)))
  const protocol = / (tcp|udp) [sd]port /.exec(text)?.[1]
  return {
    ...(Object.fromEntries(named) as TracedPacket),
    ...(protocol === undefined ? {} : { protocol }),
    ...(sourcePort === undefined ? {} : { sourcePort }),
    ...(port === undefined ? {} : { port }),
  }
}
