/**
 * Which addresses a member may state for its pods and Services, and which no member may, because machines need them
 * outside the lanes. The broker and each importer apply the same rule. Pure.
 */
import {
  type Address,
  type Family,
  type Prefix,
  addressBits,
  classifyAddress,
  containsAddress,
  containsPrefix,
  formatPrefix,
  overlaps,
  parseAddress,
  parsePrefix,
  prefixOf,
  specialPart,
} from '../values/values.ts'
import { aggregate, isInside } from './prefix-set.ts'

/**
 * Private (RFC 1918, RFC 4193), shared (RFC 6598) and benchmark (RFC 2544) space. Every network may use it, so it needs
 * no grant.
 */
export const UNGRANTED_SPACE: readonly Prefix[] = [
  '10.0.0.0/8',
  '172.16.0.0/12',
  '192.168.0.0/16',
  '100.64.0.0/10',
  '198.18.0.0/15',
  'fc00::/7',
].map((text) => parsePrefix(text))

/** The most required ranges that a member may state. */
export const MAX_NEEDED = 64
/**
 * Prefix length of the widest network of each family that may be stated as required. Pods inside such a network are
 * translated.
 */
export const SHORTEST_NEEDED: Readonly<Record<Family, number>> = { 4: 8, 6: 16 }

/** A range that must not be routed into a lane, and what it is, in words: `the broker`. */
export interface NeededRange {
  readonly prefix: Prefix
  readonly what: string
}

/** Whether a member may state the prefix: all of it must lie in ungranted space or in ranges that its token names. */
export function mayState(prefix: Prefix, granted: readonly Prefix[]): boolean {
  return isInside(prefix, aggregate([...UNGRANTED_SPACE, ...granted]))
}

/** Returns the first required range that overlaps the prefix. */
export function neededIn(prefix: Prefix, needed: readonly NeededRange[]): NeededRange | undefined {
  return needed.find((one) => overlaps(one.prefix, prefix))
}

/** Completes a sentence that begins with a prefix: `holds 192.0.2.1, the broker`. */
export function neededText({ prefix, what }: NeededRange): string {
  const text = formatPrefix(prefix)
  const single = prefix.length === addressBits(prefix.family)
  return single ? `holds ${text.slice(0, text.lastIndexOf('/'))}, ${what}` : `overlaps ${text}, ${what}`
}

/**
 * Takes addresses and CIDRs. It ignores other texts, and special networks: packets to those do not leave the machine or
 * the link, so routes do not affect them.
 */
export function neededRanges(texts: readonly string[], what: string): NeededRange[] {
  return texts.flatMap((text) => {
    const prefix = readRange(text)
    return prefix === undefined ? [] : [{ prefix, what }]
  })
}

/**
 * Parses an address, an interface's `address/length` or a CIDR. Returns undefined for other texts and for special
 * networks.
 */
function readRange(text: string): Prefix | undefined {
  const [address = '', length] = text.split('/')
  const value = parsed(address)
  if (value === undefined || classifyAddress(value) !== 'usable') return undefined
  const bits = addressBits(value.family)
  const wanted = length === undefined ? bits : Number(length)
  if (!Number.isInteger(wanted) || wanted < SHORTEST_NEEDED[value.family] || wanted > bits) return undefined
  const prefix = prefixOf(value, wanted)
  return specialPart(prefix) === undefined ? prefix : undefined
}

function parsed(text: string): Address | undefined {
  try {
    return parseAddress(text)
  } catch {
    return undefined
  }
}

/**
 * Returns what this machine needs besides the addresses of its cluster's nodes: the next hops of its default routes,
 * its name servers, and the whole networks of its interfaces that contain such a node or next hop.
 */
export function machineRequiredRanges(machine: {
  readonly nodes: readonly string[]
  /** Addresses of its interfaces, with the prefix length. */
  readonly interfaces: readonly string[]
  readonly nextHops: readonly string[]
  readonly nameServers: readonly string[]
}): NeededRange[] {
  const nodes = neededRanges(machine.nodes, '')
  const hops = neededRanges(machine.nextHops, 'a default gateway of this node')
  const around = [...nodes, ...hops].map(({ prefix }) => prefix)
  const networks = neededRanges(machine.interfaces, 'a network of this node').filter(({ prefix }) =>
    around.some((one) => containsAddress(prefix, one)),
  )
  return [...hops, ...neededRanges(machine.nameServers, 'a name server of this node'), ...networks]
}

/**
 * Returns at most `max` prefixes that contain all of these: the same addresses if they are few enough, else the
 * prefixes are widened by as few bits as possible. The result is sorted text.
 */
export function fewRanges(prefixes: readonly Prefix[], max = MAX_NEEDED): string[] {
  let few = aggregate(prefixes)
  for (let cut = 1; few.length > max && cut < 128; cut += 1) {
    few = aggregate(
      few.map((prefix) => {
        const length = Math.min(
          prefix.length,
          Math.max(SHORTEST_NEEDED[prefix.family], addressBits(prefix.family) - cut),
        )
        return prefixOf(prefix, length)
      }),
    )
  }
  return few.slice(0, max).map(formatPrefix)
}

// Which prefixes of other clusters are public space: all except ranges that only one clusterset or organisation uses.
// Pure.

/**
 * RFC 1112 section 4: it is not routed in the Internet. Our default ranges lie in it, and no member may state it
 * without a grant.
 */
const CLASS_E = parsePrefix('240.0.0.0/4')

/**
 * Whether any part of the prefix is public. `globalRange` is that of this clusterset; it is not public, wherever it
 * lies.
 */
export function isPublicSpace(prefix: Prefix, globalRange: string | undefined): boolean {
  const ours = globalRange === undefined ? [] : [parsePrefix(globalRange)]
  const closed = [...UNGRANTED_SPACE, CLASS_E, ...ours]
  return !closed.some((space) => space.family === prefix.family && containsPrefix(space, prefix))
}
