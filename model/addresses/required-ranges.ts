/**
 * What a member may state as addresses of its pods and Services, and what no other member's may hold: addresses that
 * somebody's machines need outside the lanes. One rule for the broker and for each importer. Pure.
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
} from './ip.ts'
import { aggregate, isInside } from './prefix-set.ts'

/**
 * Private (RFC 1918, RFC 4193), shared (RFC 6598) and benchmark (RFC 2544) space: nobody else's, wherever it is used.
 */
export const UNGRANTED_SPACE: readonly Prefix[] = [
  '10.0.0.0/8',
  '172.16.0.0/12',
  '192.168.0.0/16',
  '100.64.0.0/10',
  '198.18.0.0/15',
  'fc00::/7',
].map((text) => parsePrefix(text))

/** A member states no more of them than this. */
export const MAX_NEEDED = 64
/** A node reports no more to its own cluster than this. */
export const MAX_REPORTED_BY_NODE = 16
/** Length of the widest network of each family that may be stated as needed: pods inside it are translated. */
export const SHORTEST_NEEDED: Readonly<Record<Family, number>> = { 4: 8, 6: 16 }

/** What must not lead into a lane, and whose or what it is, in words: `the broker`. */
export interface NeededRange {
  readonly prefix: Prefix
  readonly what: string
}

/** Whether a member may state the prefix: all of it lies in space that is nobody else's, or that its token names. */
export function mayState(prefix: Prefix, granted: readonly Prefix[]): boolean {
  return isInside(prefix, aggregate([...UNGRANTED_SPACE, ...granted]))
}

/** The first of them that has an address of the prefix. */
export function neededIn(prefix: Prefix, needed: readonly NeededRange[]): NeededRange | undefined {
  return needed.find((one) => overlaps(one.prefix, prefix))
}

/** Reads on after a prefix: `holds 192.0.2.1, the broker`. */
export function neededText({ prefix, what }: NeededRange): string {
  const text = formatPrefix(prefix)
  const single = prefix.length === addressBits(prefix.family)
  return single ? `holds ${text.slice(0, text.lastIndexOf('/'))}, ${what}` : `overlaps ${text}, ${what}`
}

/**
 * Takes addresses and CIDRs. What is no such text is left out, and what no packet is sent to outside its own machine or
 * link: there a route makes no difference.
 */
export function neededRanges(texts: readonly string[], what: string): NeededRange[] {
  return texts.flatMap((text) => {
    const prefix = readRange(text)
    return prefix === undefined ? [] : [{ prefix, what }]
  })
}

/** An address, an interface's `address/length` or a CIDR; undefined for anything else, and for special networks. */
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
 * What this machine needs beside the addresses of its cluster's nodes: the next hops of its default routes; the servers
 * that it asks for names; the networks of its interfaces that hold one of these nodes or next hops, as a whole.
 */
export function machineNeeds(machine: {
  readonly nodes: readonly string[]
  /** Of its interfaces, with the length. */
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
 * At most `max` prefixes that hold all of these: the same addresses where they are few enough, else wider ones, each as
 * little as it takes. Texts, sorted.
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

// Which prefixes of other clusters may hold what a node needs for itself: everything but space that nobody outside a
// clusterset or an organisation has. Pure.

/** RFC 1112 section 4: nobody routes it. Our own default ranges are there, and no member may state it unasked. */
const CLASS_E = parsePrefix('240.0.0.0/4')

/** Whether any part of the prefix is public. `globalRange`: of this clusterset, which is ours wherever it lies. */
export function isPublicSpace(prefix: Prefix, globalRange: string | undefined): boolean {
  const ours = globalRange === undefined ? [] : [parsePrefix(globalRange)]
  const closed = [...UNGRANTED_SPACE, CLASS_E, ...ours]
  return !closed.some((space) => space.family === prefix.family && containsPrefix(space, prefix))
}
