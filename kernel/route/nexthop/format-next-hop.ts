/** Next-hop objects and groups as the `ip nexthop` command that makes them. */
import { ROUTE_PROTOCOL } from '../../../model/kernel-ids.ts'
import type { GroupMember, NextHopGroup, NextHopObject } from './next-hop-table.ts'

export function formatHop({ id, family, device, via, onlink }: NextHopObject): string {
  // The tool takes the family from the gateway; without one it needs -6.
  const tool = family === 6 ? 'ip -6' : 'ip'
  const gateway = via === undefined ? '' : `via ${via} `
  return (
    `${tool} nexthop replace id ${id} ${gateway}dev ${device}${onlink === true ? ' onlink' : ''} ` +
    `proto ${ROUTE_PROTOCOL}`
  )
}

/** Members in order of their ids. */
export function formatGroup(group: NextHopGroup): string {
  const members = sortedMembers(group.members).map(({ id, weight = 1 }) => (weight === 1 ? `${id}` : `${id},${weight}`))
  const kind = group.kind === 'resilient' ? ` ${formatResilience(group)}` : ''
  return `ip nexthop replace id ${group.id} group ${members.join('/')}${kind} proto ${ROUTE_PROTOCOL}`
}

export function formatNextHopDeletion({ id }: { readonly id: number }): string {
  return `ip nexthop del id ${id}`
}

export function sortedMembers(members: readonly GroupMember[]): readonly GroupMember[] {
  return [...members].sort((a, b) => a.id - b.id)
}

function formatResilience({
  buckets,
  idleTimerMs,
  unbalancedTimerMs,
}: Extract<NextHopGroup, { readonly kind: 'resilient' }>): string {
  const [idle, unbalanced] = [idleTimerMs / 1000, unbalancedTimerMs / 1000]
  return `type resilient buckets ${buckets} idle_timer ${idle} unbalanced_timer ${unbalanced}`
}
