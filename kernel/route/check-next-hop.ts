/**
 * Checks of next hops and groups that both drivers make before any request (KernelError EINVAL), and the form of items
 * in listings.
 */
import { InvalidAddressError, parseAddress } from '../../model/addresses/addresses.ts'
import { NEXT_HOP_IDS } from '../../model/model.ts'
import { KernelError } from '../kernel.ts'
import { usualAddress } from './address-text.ts'
import { checkDeviceName, refuseInvalid } from './check-route.ts'
import {
  type GroupMember,
  type NextHopGroup,
  type NextHopObject,
  type ResilientGroup,
  formatGroup,
  formatHop,
  sortedMembers,
} from './next-hop-table.ts'

/** Older kernels accept no more, though the field has room for 256. */
const MAX_WEIGHT = 255
const MAX_BUCKETS = 0xffff
const TIMER_STEP_MS = 100
/** The kernel counts timers in hundredths of a second, in 32 bits. */
const MAX_TIMER_MS = 10 * 0xffffffff - ((10 * 0xffffffff) % TIMER_STEP_MS)

export function isOurId(id: number): boolean {
  return Number.isInteger(id) && id >= NEXT_HOP_IDS.first && id <= NEXT_HOP_IDS.last
}

export function checkNextHopId(id: number, operation: string): void {
  if (!isOurId(id)) refuse(operation, `id ${id}: expected ${NEXT_HOP_IDS.first} to ${NEXT_HOP_IDS.last}`)
}

export function checkHop(hop: NextHopObject): void {
  const operation = formatHop(hop)
  const { family, via } = hop
  checkNextHopId(hop.id, operation)
  checkDeviceName(hop.device, operation)
  if (via === undefined && hop.onlink === true) refuse(operation, 'onlink without a gateway: expected via')
  refuseInvalid(operation, () => {
    if (via === undefined || parseAddress(via, 'via').family === family) return
    throw new InvalidAddressError('via', via, `an IPv${family} address, as the next hop is of that family`)
  })
}

export function checkGroup(group: NextHopGroup): void {
  const operation = formatGroup(group)
  checkNextHopId(group.id, operation)
  if (group.members.length === 0) refuse(operation, 'no members: expected at least one')
  for (const { id, weight = 1 } of group.members) {
    checkNextHopId(id, operation)
    checkNumber('weight', weight, 1, MAX_WEIGHT, operation)
  }
  const ids = new Set(group.members.map(({ id }) => id))
  if (ids.size < group.members.length) refuse(operation, 'a member is named twice')
  if (ids.has(group.id)) refuse(operation, `member ${group.id}: a group cannot be a member of itself`)
  if (group.kind === 'resilient') checkResilience(group, operation)
}

/** Checks that the kernel can replace an existing item in place. Throws KernelError EINVAL. */
export function checkReplacement(
  before: NextHopObject | NextHopGroup,
  after: NextHopObject | NextHopGroup,
  operation: string,
): void {
  const problem = cannotReplace(before, after)
  if (problem !== undefined) refuse(operation, problem)
}

/** Returns why the kernel cannot replace one item by the other in place. Undefined if it can. */
export function cannotReplace(
  before: NextHopObject | NextHopGroup,
  after: NextHopObject | NextHopGroup,
): string | undefined {
  if ('members' in before !== 'members' in after) return 'a next hop cannot become a group, nor a group a next hop'
  if (!('members' in before) || !('members' in after)) return undefined
  if (before.kind !== after.kind) return `the kind of a group cannot be changed from ${before.kind} to ${after.kind}`
  if (before.kind === 'plain' || after.kind === 'plain' || before.buckets === after.buckets) return undefined
  return `the number of buckets cannot be changed from ${before.buckets} to ${after.buckets}`
}

/** Returns a hop as it is listed: without default values, with addresses in canonical form. */
export function normalHop({ id, family, device, via, onlink }: NextHopObject): NextHopObject {
  return {
    id,
    family,
    device,
    ...(via === undefined ? {} : { via: usualAddress(via) }),
    ...(onlink === true ? { onlink } : {}),
  }
}

/** Returns a group as it is listed: without default values, with members sorted by id. */
export function normalGroup(group: NextHopGroup): NextHopGroup {
  const members = sortedMembers(group.members).map(({ id, weight = 1 }): GroupMember => ({
    id,
    ...(weight === 1 ? {} : { weight }),
  }))
  if (group.kind === 'plain') return { kind: 'plain', id: group.id, members }
  const { kind, id, buckets, idleTimerMs, unbalancedTimerMs } = group
  return { kind, id, members, buckets, idleTimerMs, unbalancedTimerMs }
}

function checkResilience({ buckets, idleTimerMs, unbalancedTimerMs }: ResilientGroup, operation: string): void {
  checkNumber('buckets', buckets, 1, MAX_BUCKETS, operation)
  for (const [field, value] of Object.entries({ idleTimerMs, unbalancedTimerMs })) {
    checkNumber(field, value, 0, MAX_TIMER_MS, operation)
    if (value % TIMER_STEP_MS !== 0) refuse(operation, `${field} ${value}: expected a multiple of ${TIMER_STEP_MS}`)
  }
}

function checkNumber(field: string, value: number, least: number, most: number, operation: string): void {
  if (Number.isInteger(value) && value >= least && value <= most) return
  refuse(operation, `${field} ${value}: expected a whole number from ${least} to ${most}`)
}

function refuse(operation: string, detail: string): never {
  throw new KernelError('EINVAL', operation, detail)
}
