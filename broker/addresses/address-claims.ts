/**
 * What members claim of the address space, from the rows of the log. It decides which members are translated, and whose
 * IPv6 is left out.
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
import { type ClusterId, type ClusterSpec, isDnsLabel, recordKeyText } from '../../model/model.ts'
import { type ClusterFacts, MAX_CIDRS, parseBrokerAddress } from '../../protocol/protocol.ts'
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

// Members that joined between a backup and its restore, as other members hold them. What they have is kept for them;
// whose word counts where those others disagree is said here. Pure, or inside a transaction.

/** As many members as a clusterset has by default. */
const MAX_AWAITED = 1000
/** Members whose word is kept, about one: an odd number, and no more than a row can have. */
const MAX_WORDS = 5

/** Notes what `by` holds of a member that is none here. Gives false where there is no room, or nothing in it can be right. */
export function noteAwaited(tx: Transaction, by: string, spec: ClusterSpec, nowMs: number): boolean {
  const { id, index, podCIDRs, serviceCIDRs, globalCIDRs, labels } = spec
  if (!isDnsLabel(id) || index < 1 || index > MAX_INDEX) return false
  if ([podCIDRs, serviceCIDRs, globalCIDRs].some((list) => list.length > MAX_CIDRS || !list.every(isPrefix)))
    return false
  const row = tx.get('awaited', id)
  if (row === undefined && tx.count('awaited') >= MAX_AWAITED) return false
  const others = (row?.held ?? []).filter((one) => one.by !== by)
  if (others.length >= MAX_WORDS) return true
  const held = { by, index, podCIDRs, serviceCIDRs, globalCIDRs, labels }
  tx.put('awaited', id, { sinceMs: row?.sinceMs ?? nowMs, held: [...others, held] })
  return true
}

/** What most of them say; of as many, what was said first. */
export function agreedMember({ held }: AwaitedRow): (HeldMember & { readonly words: number }) | undefined {
  const words = new Map<string, { readonly first: HeldMember; count: number }>()
  for (const one of held) {
    const { by: _by, ...said } = one
    const text = JSON.stringify(said)
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

/** Blocks by pod CIDR, as MemberRow has them. */
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

/** Numbers that any of them holds: until it is known who is right, all of them are taken. */
export function awaitedIndexes(view: LogView): number[] {
  return view.list('awaited').flatMap(({ value }) => value.held.map(({ index }) => index))
}

/** Blocks that any of them holds, as claims of members that have left: they give way only where the range is full. */
function awaitedClaims(view: LogView): AddressClaims[] {
  return view.list('awaited').flatMap(({ key, value }) =>
    value.held.map((held, i) => {
      const blocks = [...heldBlocks(held)].map(([cidr, block]) => [cidr, formatPrefix(block)] as const)
      return {
        // No id of a member, so that what is planned for it is written nowhere.
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

/** A member may publish very many Endpoints; more addresses of gateways than about this it has not. */
const MAX_CANDIDATES = 256

const NONE: readonly string[] = []
const NO_RANGES: readonly NeededRange[] = []

/** Rows by cluster id. */
export type Members = ReadonlyMap<string, MemberRow>

export function membersOf(view: LogView): Members {
  return new Map(view.list('member').map(({ key, value }) => [key, value]))
}

/** What all members need: the addresses under which they call the broker. */
export function neededByAll(view: LogView): NeededRange[] {
  const settings = view.get('settings', SETTINGS_KEY)
  const hosts = (settings?.advertise ?? []).map((one) => parseBrokerAddress(one).host)
  return neededRanges([...new Set([...hosts, ...(settings?.resolved ?? [])])], 'the broker')
}

/**
 * Of all these members, and of those that are awaited after a restore. Who has left, or is awaited, claims nothing but
 * its blocks.
 */
export function allClaims(view: LogView, members: Members): AddressClaims[] {
  const candidates = candidatesByCluster(view)
  const claims = [...members].map(([id, row]) => claimsOf(id, row, candidates.get(id) ?? NO_RANGES))
  return [...claims, ...awaitedClaims(view)]
}

/** By a member's row: what it claims. The same object as long as both are, so that its ranges are made once too. */
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

/** Of these members: whose IPv6 is not carried, and why. */
export function ipv6NotCarried(view: LogView, members: Members): ReadonlyMap<string, Ipv6Clash> {
  const claims: CidrClaims[] = [...members].flatMap(([id, row]) => {
    const { facts, index, claimed = {} } = row
    if (!isLive(row) || !statesIpv6(facts)) return []
    const { podCIDRs, serviceCIDRs } = facts
    return [{ id, index, claimed, podCIDRs, serviceCIDRs, needed: machineRanges(facts.neededCIDRs ?? NONE) }]
  })
  return ipv6Clashes(claims, neededByAll(view))
}

/** Whether these facts have a say in whose IPv6 is carried. */
export const statesIpv6 = remembered(({ podCIDRs, serviceCIDRs, neededCIDRs = NONE }: ClusterFacts): boolean =>
  [podCIDRs, serviceCIDRs, neededCIDRs].some((texts) => ipv6Among(texts).length > 0),
)

/** Of a member only so many candidates count. Members of earlier releases state nothing else that they need. */
function candidatesByCluster(view: LogView): ReadonlyMap<string, readonly NeededRange[]> {
  const found = new Map<string, readonly NeededRange[]>()
  // One row for each gateway's key; the records themselves may be very many.
  for (const { value } of view.list('publicKey')) {
    const known = found.get(value.cluster)
    // Of a former key there is nothing, and a member has many of those.
    if (value.endpoints.length === 0 || (known !== undefined && known.length >= MAX_CANDIDATES)) continue
    const ranges = candidatesOf(view, value)
    if (ranges.length === 0) continue
    found.set(value.cluster, known === undefined ? ranges : bothOf(known, ranges))
  }
  return found
}

/** By the row of a public key, which is written anew with each Endpoint that states the key: where they are called. */
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

/** By the first of two lists: the second, and both in one. The same lists give the same one. */
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

/** The order of its claims, with those that are new after all others of all members. */
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
    // What an earlier release took came before all that is numbered.
    if (order !== undefined) claimed[cidr] = order
  }
  return claimed
}

const latestOf = remembered((orders: Readonly<Record<string, number>>) => Math.max(0, ...Object.values(orders)))

/** Each in one way of writing: else a range in other words would be one that an earlier release took. */
function statedRanges({ podCIDRs, serviceCIDRs, neededCIDRs = [] }: ClusterFacts): string[] {
  return [...podCIDRs, ...serviceCIDRs, ...neededCIDRs].map((text) => formatPrefix(parsePrefix(text)))
}
