/** Brings next-hop objects and groups to a plan, as a part of applyRouting. */
import type { NextHopIds } from '../../model/kernel-ids.ts'
import { isNotFound } from '../errors.ts'
import { normalHop } from '../route/nexthop/check-next-hop.ts'
import { formatGroup, formatHop, formatNextHopDeletion } from '../route/nexthop/format-next-hop.ts'
import type { NextHopGroup, NextHopListing, NextHopObject, NextHopTable } from '../route/nexthop/next-hop-table.ts'
import { bring, type Kind } from './bring.ts'
import { planClearance, planGroups } from './plan-next-hops.ts'
import type { Round } from './round.ts'

/** Which next hops are the caller's own. */
export interface NextHopScope {
  readonly table: NextHopTable
  readonly ids: NextHopIds
}

export const NO_NEXT_HOPS: NextHopListing = { hops: [], groups: [] }

/** Those of the caller. Throws KernelError. */
export async function observeNextHops(scope: NextHopScope | undefined, signal: AbortSignal): Promise<NextHopListing> {
  if (scope === undefined) return NO_NEXT_HOPS
  const { ids, table } = scope
  const isOurs = ({ id }: { readonly id: number }): boolean => id >= ids.first && id <= ids.last
  const { hops, groups } = await table.list(signal)
  return { hops: hops.filter(isOurs), groups: groups.filter(isOurs) }
}

/**
 * Removes what cannot be replaced in place. True when something was removed: the kernel then has removed the routes
 * over it too, and the caller has to read again.
 */
export async function clearNextHops(
  { table }: NextHopScope,
  desired: NextHopListing,
  observed: NextHopListing,
  round: Round,
  signal: AbortSignal,
): Promise<boolean> {
  const clearance = planClearance(desired, observed)
  for (const item of clearance) {
    const kind = 'members' in item ? 'next-hop-group' : 'next-hop'
    await round.change(kind, formatNextHopDeletion(item), () => table.remove(item.id, signal), isNotFound)
  }
  if (clearance.length > 0) round.drift?.forget('next-hop', 'next-hop-group', 'route')
  return clearance.length > 0
}

/** Adds and changes; gives what removes the rest, hops and groups apart. */
export async function bringNextHops(
  { table }: NextHopScope,
  desired: NextHopListing,
  observed: NextHopListing,
  round: Round,
  signal: AbortSignal,
): Promise<readonly (() => Promise<void>)[]> {
  const hops = await bring(hopKind(table, signal), desired.hops, observed.hops, round)
  const { groups, kept } = planGroups(desired.groups, new Set(hops.failed.map(({ id }) => id)))
  const there = observed.groups.filter(({ id }) => !kept.has(id))
  return [hops.remove, (await bring(groupKind(table, signal), groups, there, round)).remove]
}

function hopKind(table: NextHopTable, signal: AbortSignal): Kind<NextHopObject> {
  return {
    kind: 'next-hop',
    key: ({ id }) => String(id),
    text: (hop) => formatHop(normalHop(hop)),
    format: formatHop,
    formatDeletion: formatNextHopDeletion,
    put: (hop) => table.replaceHop(hop, signal),
    remove: ({ id }) => table.remove(id, signal),
  }
}

function groupKind(table: NextHopTable, signal: AbortSignal): Kind<NextHopGroup> {
  return {
    kind: 'next-hop-group',
    key: ({ id }) => String(id),
    format: formatGroup,
    formatDeletion: formatNextHopDeletion,
    put: (group) => table.replaceGroup(group, signal),
    remove: ({ id }) => table.remove(id, signal),
  }
}
