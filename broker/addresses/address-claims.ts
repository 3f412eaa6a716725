/**
 * What members claim of the address space, from the rows of the log. The claims determine which members are translated,
 * and whose IPv6 is left out.
 */
import {
  type CidrClaims,
  type Ipv6Clash,
  type NeededRange,
  type Prefix,
  formatPrefix,
  ipv4Among,
  ipv6Among,
  ipv6Clashes,
  neededRanges,
  parsePrefix,
} from '../../model/addresses/addresses.ts'
import { RECORD_FORMS } from '../../model/grammar/grammar.ts'
import { type ClusterId, type ClusterSpec, isDnsLabel, recordKeyText } from '../../model/model.ts'
import { type ClusterFacts, parseBrokerAddress } from '../../protocol/protocol.ts'
import { canonicalJson } from '../../protocol/codec/codec.ts'
import {
  type AwaitedRow,
  type HeldMember,
  type LogView,
  type MemberRow,
  type PublicKeyRow,
  SETTINGS_KEY,
  type Transaction,
  isLive,
} from '../store/store.ts'
import { type AddressClaims, MAX_INDEX } from './allocation.ts'
import { candidateRanges, machineRanges, remembered } from './stated-ranges.ts'

// Members that joined between a backup and its restore, as reported by other members. What they have is reserved for
// them. If reports differ, the rules here decide. Pure, or inside a transaction.

/** The default limit of members in a clusterset. */
const MAX_AWAITED = 1000
/** Limit of reports about one member: an odd number, within the bounds of a row. */
const MAX_WORDS = 5

const CIDRS = RECORD_FORMS.Cluster.fields.spec.fields.podCIDRs

/**
 * Stores what `by` reports of a member that is unknown here. Returns false if there is no room, or if the report cannot
 * be correct.
 */
export function noteAwaited(tx: Transaction, by: string, spec: ClusterSpec, nowMs: number): boolean {
  const { id, index, podCIDRs, serviceCIDRs, globalCIDRs, labels } = spec
  if (!isDnsLabel(id) || index < 1 || index > MAX_INDEX) return false
  if ([podCIDRs, serviceCIDRs, globalCIDRs].some((list) => list.length > CIDRS.most || !list.every(isPrefix)))
    return false
  const row = tx.get('awaited', id)
  if (row === undefined && tx.count('awaited') >= MAX_AWAITED) return false
  const others = (row?.held ?? []).filter((one) => one.by !== by)
  if (others.length >= MAX_WORDS) return true
  const held = { by, index, podCIDRs, serviceCIDRs, globalCIDRs, labels }
  tx.put('awaited', id, { sinceMs: row?.sinceMs ?? nowMs, held: [...others, held] })
  return true
}

/** The report that most members agree on. With a tie, the earliest one. */
export function agreedMember({ held }: AwaitedRow): (HeldMember & { readonly words: number }) | undefined {
  const words = new Map<string, { readonly first: HeldMember; count: number }>()
  for (const one of held) {
    const { by: _by, ...said } = one
    const text = canonicalJson(said)
    const same = words.get(text)
    if (same === undefined) words.set(text, { first: one, count: 1 })
    else same.count += 1
  }
  const most = [...words.values()].reduce<{ readonly first: HeldMember; count: number } | undefined>(
    (best, one) => (best === undefined || one.count > best.count ? one : best),
    undefined,
  )
  return most === undefined ? undefined : { ...most.first, words: most.count }
}

/** Blocks by pod CIDR, as in MemberRow. */
export function heldBlocks({
  podCIDRs,
  globalCIDRs,
}: Pick<HeldMember, 'podCIDRs' | 'globalCIDRs'>): Map<string, Prefix> {
  const own = new Set(ipv4Among(podCIDRs))
  const pairs = podCIDRs.flatMap((cidr, i): [string, Prefix][] => {
    const block = globalCIDRs[i]
    if (block === undefined || !own.has(cidr)) return []
    const prefix = parsePrefix(block)
    return prefix.family === 4 && prefix.length === parsePrefix(cidr).length ? [[cidr, prefix]] : []
  })
  return new Map(pairs)
}

/** Indexes in any report: until it is known which is correct, all of them are taken. */
export function awaitedIndexes(view: LogView): number[] {
  return view.list('awaited').flatMap(({ value }) => value.held.map(({ index }) => index))
}

/** Blocks in any report, as claims of departed members: they are given to others only if the range is full. */
function awaitedClaims(view: LogView): AddressClaims[] {
  return view.list('awaited').flatMap(({ key, value }) =>
    value.held.map((held, i) => {
      const blocks = [...heldBlocks(held)].map(([cidr, block]) => [cidr, formatPrefix(block)] as const)
      return {
        // Not the id of a member, so that what is planned for it is not written.
        id: `~${key}/${i}`,
        index: held.index,
        podCIDRs: [],
        serviceCIDRs: [],
        translated: false,
        blocks: Object.fromEntries(blocks),
        departed: true,
      }
    }),
  )
}

function isPrefix(text: string): boolean {
  try {
    parsePrefix(text)
    return true
  } catch {
    return false
  }
}

/** Limit of gateway addresses per member, approximately: a member may publish very many Endpoints. */
const MAX_CANDIDATES = 256

const NONE: readonly string[] = []
const NO_RANGES: readonly NeededRange[] = []

/** Rows by cluster id. */
export type Members = ReadonlyMap<string, MemberRow>

export function membersOf(view: LogView): Members {
  return new Map(view.list('member').map(({ key, value }) => [key, value]))
}

/** The required ranges of all members: the addresses at which they call the broker. */
export function neededByAll(view: LogView): NeededRange[] {
  const settings = view.get('settings', SETTINGS_KEY)
  const hosts = (settings?.advertise ?? []).map((one) => parseBrokerAddress(one).host)
  return neededRanges([...new Set([...hosts, ...(settings?.resolved ?? [])])], 'the broker')
}

/**
 * The claims of all these members, and of those that are awaited after a restore. Departed and awaited members claim
 * only their blocks.
 */
export function allClaims(view: LogView, members: Members): AddressClaims[] {
  const candidates = candidatesByCluster(view)
  const claims = [...members].map(([id, row]) => claimsOf(id, row, candidates.get(id) ?? NO_RANGES))
  return [...claims, ...awaitedClaims(view)]
}

/**
 * Claims by a member's row. The object is the same as long as the row and its candidates are, so its ranges are parsed
 * once too.
 */
const claimsByRow = new WeakMap<
  MemberRow,
  { readonly candidates: readonly NeededRange[]; readonly claims: AddressClaims }
>()

function claimsOf(id: string, row: MemberRow, candidates: readonly NeededRange[]): AddressClaims {
  const known = claimsByRow.get(row)
  if (known?.candidates === candidates && known.claims.id === id) return known.claims
  const { facts, translated, blocks, index, claimed = {} } = row
  const { podCIDRs, serviceCIDRs } = facts
  const departed = !isLive(row)
  const needed = departed ? [] : [...machineRanges(facts.neededCIDRs ?? NONE), ...candidates]
  const claims = { id, index, claimed, podCIDRs, serviceCIDRs, needed, translated, blocks, departed }
  claimsByRow.set(row, { candidates, claims })
  return claims
}

/** Which of these members have IPv6 that is not carried, and why. */
export function ipv6NotCarried(view: LogView, members: Members): ReadonlyMap<string, Ipv6Clash> {
  const claims: CidrClaims[] = [...members].flatMap(([id, row]) => {
    const { facts, index, claimed = {} } = row
    if (!isLive(row) || !statesIpv6(facts)) return []
    const { podCIDRs, serviceCIDRs } = facts
    return [{ id, index, claimed, podCIDRs, serviceCIDRs, needed: machineRanges(facts.neededCIDRs ?? NONE) }]
  })
  return ipv6Clashes(claims, neededByAll(view))
}

/** Whether these facts affect whose IPv6 is carried. */
export const statesIpv6 = remembered(({ podCIDRs, serviceCIDRs, neededCIDRs = NONE }: ClusterFacts): boolean =>
  [podCIDRs, serviceCIDRs, neededCIDRs].some((texts) => ipv6Among(texts).length > 0),
)

/** The number of candidates per member is limited. Members of earlier releases state no other required ranges. */
function candidatesByCluster(view: LogView): ReadonlyMap<string, readonly NeededRange[]> {
  const found = new Map<string, readonly NeededRange[]>()
  // There is one row for each gateway's key. The records themselves may be very many.
  for (const { value } of view.list('publicKey')) {
    const known = found.get(value.cluster)
    // Former keys have no Endpoints, and a member has many of them.
    if (value.endpoints.length === 0 || (known !== undefined && known.length >= MAX_CANDIDATES)) continue
    const ranges = candidatesOf(view, value)
    if (ranges.length === 0) continue
    found.set(value.cluster, known === undefined ? ranges : bothOf(known, ranges))
  }
  return found
}

/**
 * Gateway addresses by the row of a public key, which is replaced with each write of an Endpoint that states the key.
 */
const called = new WeakMap<PublicKeyRow, readonly NeededRange[]>()

function candidatesOf(view: LogView, row: PublicKeyRow): readonly NeededRange[] {
  const known = called.get(row)
  if (known !== undefined) return known
  const cluster = row.cluster as ClusterId
  const found: NeededRange[] = []
  for (const name of row.endpoints) {
    const body = view.get('record', recordKeyText({ cluster, kind: 'Endpoint', namespace: '', name }))?.body
    if (body?.kind !== 'Endpoint' || found.length >= MAX_CANDIDATES) continue
    found.push(...candidateRanges(body.spec.candidates))
  }
  called.set(row, found)
  return found
}

/** By the first of two lists: the second one and their concatenation. The same lists give the same object. */
const joined = new WeakMap<
  readonly NeededRange[],
  { readonly second: readonly NeededRange[]; readonly both: readonly NeededRange[] }
>()

function bothOf(first: readonly NeededRange[], second: readonly NeededRange[]): readonly NeededRange[] {
  const known = joined.get(first)
  if (known?.second === second) return known.both
  const both = [...first, ...second]
  joined.set(first, { second, both })
  return both
}

/** The order of the member's claims. New claims come after all existing ones of all members. */
export function orderClaims(
  members: Members,
  before: MemberRow | undefined,
  facts: ClusterFacts,
): Readonly<Record<string, number>> {
  let last = 0
  for (const { claimed: orders } of members.values()) if (orders !== undefined) last = Math.max(last, latestOf(orders))
  const stays = isLive(before) ? before : undefined
  const known = new Set(stays === undefined ? [] : statedRanges(stays.facts))
  const claimed: Record<string, number> = {}
  for (const cidr of new Set(statedRanges(facts))) {
    const order = known.has(cidr) ? stays?.claimed?.[cidr] : (last += 1)
    // Claims without an order were taken by an earlier release and precede all numbered ones.
    if (order !== undefined) claimed[cidr] = order
  }
  return claimed
}

const latestOf = remembered((orders: Readonly<Record<string, number>>) => Math.max(0, ...Object.values(orders)))

/** CIDRs in canonical form. Otherwise a range in another notation would count as taken by an earlier release. */
function statedRanges({ podCIDRs, serviceCIDRs, neededCIDRs = [] }: ClusterFacts): string[] {
  return [...podCIDRs, ...serviceCIDRs, ...neededCIDRs].map((text) => formatPrefix(parsePrefix(text)))
}
