/**
 * Members that joined between a backup and its restore, as other members hold them. What they have is kept for them;
 * whose word counts where those others disagree is said here. Pure, or inside a transaction.
 */
import { MAX_CIDRS } from '../../protocol/limits.ts'
import { isDnsLabel } from '../../model/ids.ts'
import type { ClusterSpec } from '../../model/objects.ts'
import { type Prefix, formatPrefix, ipv4Among, parsePrefix } from '../../model/addresses/ip.ts'
import { type AddressClaims, MAX_INDEX } from '../addresses/allocation.ts'
import type { LogView, Transaction } from '../log/record-log.ts'
import type { AwaitedRow, HeldMember } from '../state/state.ts'

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
export function awaitedClaims(view: LogView): AddressClaims[] {
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
