/**
 * Allocates addresses to clusters. Pure: takes what was allocated before and returns what is to be added. Nothing is
 * ever taken back from a member. Only IPv4: IPv6 is never translated and causes no translation.
 */
import {
  MAX_CLUSTER_INDEX,
  type NeededRange,
  PoolFullError,
  type Prefix,
  addressBits,
  allocateBlock,
  containsPrefix,
  formatPrefix,
  ipv4Among,
  ipv6Among,
  neededText,
  parsePrefix,
  prefixSize,
} from '../../model/addresses/addresses.ts'
import {
  type ClaimOrder,
  type OrderedClaim,
  STATED_FIRST,
  blockPrefixes,
  ipv4Ranges,
  isEarlier,
  remembered,
} from './stated-ranges.ts'

export interface AddressClaims {
  readonly id: string
  readonly podCIDRs: readonly string[]
  readonly serviceCIDRs: readonly string[]
  /** Ranges that its machines require outside the lanes. Absent if they are unknown. */
  readonly needed?: readonly NeededRange[]
  /** Once true, it stays true while the cluster has a pod CIDR with a block. */
  readonly translated: boolean
  /** Every block that was ever allocated, by pod CIDR. */
  readonly blocks: Readonly<Record<string, string>>
  /** See stated-ranges.ts: the cluster that stated a range first keeps its addresses. */
  readonly claimed?: ClaimOrder
  readonly index: number
  /** A departed cluster. Its blocks are kept for its return as long as there is room without them. */
  readonly departed: boolean
}

export type AddressPlan = ReadonlyMap<string, Pick<AddressClaims, 'translated' | 'blocks'>>

/** Highest cluster index: see laneAddress() in model/addresses/addressing.ts. */
export const MAX_INDEX = MAX_CLUSTER_INDEX
const MAX_FORMER_BLOCKS = 16

/** No block, index or address is left. `field` names what is exhausted. */
export class NoRoomError extends Error {
  readonly field: string
  constructor(field: string, message: string) {
    super(message)
    this.name = 'NoRoomError'
    this.field = field
  }
}

/** Owner of required ranges that belong to no cluster, such as those of the broker: they count against all clusters. */
const NOBODY = ''

/** The global range has no block for the pods of a cluster. */
class NoBlockError extends NoRoomError {}

const NONE: ReadonlySet<string> = new Set()

/**
 * Returns the clusters whose addresses change, in the order of their ids. A cluster is translated if its pods'
 * addresses are ambiguous: its pod CIDRs overlap another member's pod CIDRs, service CIDRs that were stated earlier,
 * required ranges of another member, or those of all (`needed`). Of clusters whose pods overlap each other, all are
 * translated, not only the newest. A translated cluster that was renumbered, and overlaps no other one with its new pod
 * CIDRs, is reached at its own addresses again. Clusters in `spared` keep their addresses if there is no room for them.
 * `overlapping` is the result of addressOverlaps(), if the caller has it. Throws NoRoomError if there is no room for
 * any other cluster.
 */
export function planAddresses(
  clusters: readonly AddressClaims[],
  globalRange: string,
  needed: readonly NeededRange[] = [],
  spared: () => ReadonlySet<string> = () => NONE,
  overlapping?: ReadonlyMap<string, string>,
): AddressPlan {
  const sorted = [...clusters].sort((a, b) => (a.id < b.id ? -1 : 1))
  const ambiguous = overlapping ?? addressOverlaps(sorted, needed)
  const range = parsePrefix(globalRange)
  // A departed cluster loses its reserved blocks only if that makes room.
  const departed = new Set(sorted.filter((one) => one.departed).map((one) => one.id))
  const first = attempt(() => plan(sorted, range, { ambiguous, forgotten: NONE, spared: NONE }))
  if (!(first instanceof NoRoomError)) return first
  const second =
    first instanceof NoBlockError
      ? attempt(() => plan(sorted, range, { ambiguous, forgotten: departed, spared: NONE }))
      : first
  if (!(second instanceof NoRoomError)) return second
  const terms = { ambiguous, spared: spared() }
  if (terms.spared.size === 0) throw second
  const third = attempt(() => plan(sorted, range, { ...terms, forgotten: NONE }))
  if (!(third instanceof NoRoomError)) return third
  if (!(third instanceof NoBlockError)) throw third
  return plan(sorted, range, { ...terms, forgotten: departed })
}

function attempt<T>(work: () => T): T | NoRoomError {
  try {
    return work()
  } catch (error) {
    if (error instanceof NoRoomError) return error
    throw error
  }
}

/**
 * Members that had to be translated before this change and for which there was no room: their addresses became
 * ambiguous without their doing (a gateway, the broker's name). A member that changes now is not refused because of
 * them, unless its new claims overlap theirs and the old ones did not.
 */
export function withoutRoom(
  before: readonly AddressClaims[],
  after: readonly AddressClaims[],
  { changed, needed }: { readonly changed: string; readonly needed: readonly NeededRange[] },
): ReadonlySet<string> {
  const ambiguous = addressOverlaps(before, needed)
  const now = new Map(after.map((one) => [one.id, one]))
  const [was, is] = [before.find(({ id }) => id === changed), now.get(changed)]
  const meets = (one: AddressClaims, other: AddressClaims | undefined): boolean =>
    other !== undefined && addressOverlaps([one, other]).has(one.id)
  const found = before.filter((one) => {
    if (one.departed || one.translated || !ambiguous.has(one.id)) return false
    if (one.id === changed) return one.podCIDRs.join() === is?.podCIDRs.join()
    return !meets(now.get(one.id) ?? one, is) || meets(one, was)
  })
  return new Set(found.map(({ id }) => id))
}

/** globalCIDRs of a Cluster record: in the order of podCIDRs, or empty. For an IPv6 CIDR, the CIDR itself. */
export function globalCIDRs(row: Pick<AddressClaims, 'podCIDRs' | 'translated' | 'blocks'>): string[] {
  if (!row.translated) return []
  const kept = new Set(ipv6Among(row.podCIDRs))
  return row.podCIDRs.map((cidr) => (kept.has(cidr) ? cidr : (row.blocks[cidr] ?? '')))
}

/** The smallest free index from 1. Throws NoRoomError. */
export function nextIndex(taken: Iterable<number>): number {
  const used = new Set(taken)
  for (let index = 1; index <= MAX_INDEX; index += 1) if (!used.has(index)) return index
  throw new NoRoomError('cluster', `all ${MAX_INDEX} cluster numbers are taken`)
}

interface PlanTerms {
  readonly ambiguous: ReadonlyMap<string, string>
  readonly forgotten: ReadonlySet<string>
  readonly spared: ReadonlySet<string>
}

function plan(
  clusters: readonly AddressClaims[],
  range: Prefix,
  { ambiguous, forgotten, spared }: PlanTerms,
): AddressPlan {
  const changed = new Map<string, { translated: boolean; blocks: Record<string, string> }>()
  let blocksOfAll: Prefix[] | undefined
  // Computed on demand: most changes allocate no block.
  const taken = (): Prefix[] =>
    (blocksOfAll ??= clusters.filter((one) => !forgotten.has(one.id)).flatMap((one) => blockPrefixes(one.blocks)))
  for (const one of clusters) {
    if (forgotten.has(one.id)) {
      if (Object.keys(one.blocks).length > 0) changed.set(one.id, { translated: false, blocks: {} })
      continue
    }
    if (one.departed || !(one.translated || ambiguous.has(one.id))) continue
    const own = ipv4Among(one.podCIDRs)
    const missing = own.filter((cidr) => one.blocks[cidr] === undefined)
    if (one.translated && missing.length === 0) continue
    if (isRenumbered(one, missing.length === own.length) && !ambiguous.has(one.id)) {
      changed.set(one.id, { translated: false, blocks: boundBlocks(one.blocks, one.podCIDRs) })
      continue
    }
    const given = attempt(() => {
      const blocks = new Map<string, Prefix>()
      for (const cidr of missing) {
        const wanted = { cluster: one.id, cidr, range, taken: [...taken(), ...blocks.values()] }
        blocks.set(cidr, blockFor(wanted, ambiguous.get(one.id)))
      }
      return blocks
    })
    if (given instanceof NoRoomError) {
      if (spared.has(one.id)) continue
      throw given
    }
    taken().push(...given.values())
    const added = [...given].map(([cidr, block]) => [cidr, formatPrefix(block)] as const)
    const blocks = { ...one.blocks, ...Object.fromEntries(added) }
    changed.set(one.id, { translated: true, blocks: boundBlocks(blocks, one.podCIDRs) })
  }
  return changed
}

/**
 * Whether a translated cluster has none of the pod CIDRs any more for which it has blocks. All of its addresses change
 * anyway, so it needs no new global ones unless its new ones are ambiguous.
 */
function isRenumbered({ translated, blocks }: AddressClaims, lacksAll: boolean): boolean {
  return translated && lacksAll && Object.keys(blocks).length > 0
}

/** Blocks of former pod CIDRs are kept for their return, up to a limit. */
function boundBlocks(blocks: Readonly<Record<string, string>>, podCIDRs: readonly string[]): Record<string, string> {
  const former = Object.keys(blocks).filter((cidr) => !podCIDRs.includes(cidr))
  const dropped = new Set(former.slice(0, Math.max(0, former.length - MAX_FORMER_BLOCKS)))
  return Object.fromEntries(Object.entries(blocks).filter(([cidr]) => !dropped.has(cidr)))
}

function blockFor(wanted: MissingBlock, why: string | undefined): Prefix {
  const { cidr, range, taken } = wanted
  const { length } = parsePrefix(cidr)
  if (length < range.length) {
    const reason = why ?? 'this cluster has been translated since an earlier overlap'
    throw new NoRoomError(
      'podCIDRs',
      `pod CIDR ${cidr} has to be translated (${reason}) and is larger than the global range ${formatPrefix(range)}`,
    )
  }
  try {
    return allocateBlock(range, length, taken)
  } catch (error) {
    if (error instanceof PoolFullError) throw new NoBlockError('podCIDRs', describeMissingBlock(wanted))
    throw error
  }
}

interface ClaimedRange extends OrderedClaim {
  readonly id: string
  readonly prefix: Prefix
  /** First and last address. All ranges are IPv4. */
  readonly from: number
  readonly to: number
  readonly is: 'pods' | 'services' | 'needed'
  /** For a required range, what uses it. */
  readonly what: string
}

/**
 * Clusters with ambiguous pod addresses, and a text on the first overlap of each. Prefixes are nested or disjoint, so
 * in the order of addresses, the ranges that overlap a range are those that are still open before it.
 */
export function addressOverlaps(
  clusters: readonly AddressClaims[],
  needed: readonly NeededRange[] = [],
): ReadonlyMap<string, string> {
  const live = clusters.filter((one) => !one.departed)
  const ranges = [...live.flatMap(claimedRanges), ...neededBy(NOBODY, needed)]
  ranges.sort((a, b) => a.from - b.from || b.to - a.to)
  const ambiguous = new Map<string, string>()
  const note = (pods: ClaimedRange, other: ClaimedRange): void => {
    if (givesWay(pods, other) && !ambiguous.has(pods.id)) ambiguous.set(pods.id, overlapText(pods, other))
  }
  // Pods are kept apart from other ranges, since overlaps between two ranges without pods are harmless: a thousand
  // clusters may have the same Services.
  const [openPods, openOthers]: [OpenRange[], OpenRange[]] = [[], []]
  for (const [at, range] of ranges.entries()) {
    closeBefore(openPods, range)
    closeBefore(openOthers, range)
    const isPods = range.is === 'pods'
    for (const { range: outer } of isPods ? inOrder(openPods, openOthers) : openPods) {
      if (outer.id === range.id) continue
      note(range, outer)
      note(outer, range)
    }
    ;(isPods ? openPods : openOthers).push({ at, range })
  }
  return ambiguous
}

interface OpenRange {
  /** Position in the order of all ranges. */
  readonly at: number
  readonly range: ClaimedRange
}

/** Removes ranges that have ended. */
function closeBefore(open: OpenRange[], { from }: ClaimedRange): void {
  for (let last = open.at(-1); last !== undefined && last.range.to < from; last = open.at(-1)) open.pop()
}

function inOrder(one: readonly OpenRange[], other: readonly OpenRange[]): readonly OpenRange[] {
  if (one.length === 0 || other.length === 0) return one.length === 0 ? other : one
  return [...one, ...other].sort((a, b) => a.at - b.at)
}

/**
 * Whether the first range is of pods that are translated because of the second. Service addresses that are stated later
 * over pods have no effect on them: the member that states them does not reach these pods.
 */
function givesWay(one: ClaimedRange, other: ClaimedRange): boolean {
  return one.is === 'pods' && (other.is !== 'services' || !isEarlier(one, other))
}

function overlapText(pods: ClaimedRange, other: ClaimedRange): string {
  const own = formatPrefix(pods.prefix)
  if (other.is === 'needed') {
    const whose = other.id === NOBODY ? '' : ` of cluster ${other.id}`
    return `${own} ${neededText({ prefix: other.prefix, what: `${other.what}${whose}` })}`
  }
  return `${own} overlaps ${other.is} ${formatPrefix(other.prefix)} of cluster ${other.id}`
}

const claimedRanges = remembered((claims: AddressClaims): readonly ClaimedRange[] => {
  const { id, index, claimed, podCIDRs, serviceCIDRs, needed = [] } = claims
  const stated = (texts: readonly string[], is: 'pods' | 'services'): ClaimedRange[] =>
    ipv4Ranges(texts).map(({ prefix, text }) => {
      return { id, index, prefix, ...bounds(prefix), is, what: '', order: claimed?.[text] ?? STATED_FIRST }
    })
  return [...stated(podCIDRs, 'pods'), ...stated(serviceCIDRs, 'services'), ...neededBy(id, needed)]
})

/** Ranges of machines, which cannot be translated: the order of claims does not apply. */
function neededBy(id: string, needed: readonly NeededRange[]): ClaimedRange[] {
  return needed
    .filter(({ prefix }) => prefix.family === 4)
    .map(({ prefix, what }) => ({ id, index: -1, order: -1, prefix, ...bounds(prefix), is: 'needed', what }))
}

function bounds(prefix: Prefix): Pick<ClaimedRange, 'from' | 'to'> {
  return { from: Number(prefix.value), to: Number(prefix.value + prefixSize(prefix) - 1n) }
}

// The error if no block of the global range is left: what was requested, what is free, and what the operator can do.
// Pure.

interface MissingBlock {
  readonly cluster: string
  /** The pod CIDR that needs a block. */
  readonly cidr: string
  readonly range: Prefix
  /** Every block that is allocated or reserved. */
  readonly taken: readonly Prefix[]
}

/** One sentence for a member that joins or states other addresses. */
function describeMissingBlock({ cluster, cidr, range, taken }: MissingBlock): string {
  const given = taken.filter((block) => containsPrefix(range, block))
  const all = prefixSize(range)
  const free = all - given.reduce((sum, block) => sum + prefixSize(block), 0n)
  const largest = largestFree(range, taken)
  const room = largest === undefined ? 'no block is free' : `the largest free block is a /${largest}`
  return (
    `the global range ${formatPrefix(range)} is exhausted: pod CIDR ${cidr} of cluster ${JSON.stringify(cluster)} overlaps ` +
    `another cluster's and needs a /${parsePrefix(cidr).length} block, and ${room} ` +
    `(${free} of ${all} addresses are free, ${given.length === 1 ? '1 block is' : `${given.length} blocks are`} given): choose pod CIDRs that no other cluster uses, ` +
    `or smaller ones; or evict members that are gone for good ("sealane cluster list", "sealane cluster evict"); ` +
    `or create a clusterset with a larger range (--global-range at the first start of its broker)`
  )
}

/** Prefix length of the largest block that could be allocated now. Undefined if no address is free. */
function largestFree(range: Prefix, taken: readonly Prefix[]): number | undefined {
  for (let length = range.length; length <= addressBits(range.family); length += 1) {
    try {
      allocateBlock(range, length, taken)
      return length
    } catch {
      // No block of this size is free.
    }
  }
  return undefined
}
