/** Counts the packets that arrive in a namespace, with a table of the test's own. */
import { parseCounters } from '../../../kernel/nft/nft-text.ts'
import type { Netns } from '../../support/netns.ts'

/** Matches in the language of nft, each by a name: `{ own: 'ip saddr 244.1.0.9' }`. */
export type Matches = Readonly<Record<string, string>>

/**
 * Begins to count in this namespace. Returns a function that reads the packets of each match until now, in their order.
 */
export async function countArrivals(
  ns: Netns,
  family: 'ip' | 'ip6',
  matches: Matches,
): Promise<() => Promise<number[]>> {
  const names = Object.keys(matches)
  const table = `table ${family} arrivals {
    ${names.map((name) => `counter ${name} { }`).join('\n')}
    chain seen {
      type filter hook prerouting priority -500;
      ${names.map((name) => `${matches[name]} counter name ${name}`).join('\n')}
    }
  }`
  await ns.exec('nft', ['-f', '-'], { input: table })
  return async () => {
    const counters = parseCounters(await ns.exec('nft', ['list', 'counters', 'table', family, 'arrivals']))
    return names.map((name) => counters.get(name) ?? NaN)
  }
}
