/** Says what a drained cluster still carries, and waits until that is nothing, as far as its own counts show it. */
import { type OpenConnections, openConnectionsText } from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { MemberSummary } from '../../protocol/admin/admin.ts'
import { formatDuration } from '../../runtime/runtime.ts'
import { type WaitInit, waitUntil } from '../installation/installation.ts'

/**
 * Nodes count once a minute, and a figure that stays the same is not reported again. So a 0 is one of after the drain
 * once this time is over: a minute, and 15 seconds for the way to the broker.
 */
const ZERO_COUNTS_AFTER_MS = 75_000

/** The part of a member that decides. */
type DrainedMember = Pick<MemberSummary, 'state' | 'openConnections' | 'podCIDRs' | 'reported'>

interface Carried {
  /** Whether no connection is left, as far as they are counted. */
  readonly done: boolean
  readonly sentence: string
}

/**
 * Takes a member, or undefined if the broker does not name it, and the time since the drain in milliseconds. A count of
 * 0 is believed only of a member in contact, and only once it cannot be older than the drain. IPv6 is never counted.
 */
export function carriedBy(id: string, member: DrainedMember | undefined, sinceDrainMs: number): Carried {
  const not = (sentence: string): Carried => ({ done: false, sentence })
  const open = member?.openConnections
  if (member === undefined || open === undefined)
    return not(
      `cluster ${id} has not reported how many connections its pods have with other clusters${silentText(member)}`,
    )
  const ipv6 = member.podCIDRs.some((cidr) => cidr.includes(':')) ? '; connections over IPv6 are not counted' : ''
  const figure = `${openConnectionsText(open)} with other clusters${silentText(member)}`
  if (member.state !== 'in contact')
    return not(`cluster ${id} is not in contact with the broker; at its last report its pods had ${figure}${ipv6}`)
  if (open.count > 0 || open.atLeast) return not(`the pods of cluster ${id} have ${figure}${ipv6}`)
  if (sinceDrainMs >= ZERO_COUNTS_AFTER_MS)
    return { done: true, sentence: `the pods of cluster ${id} have ${figure}${ipv6}` }
  const after = formatDuration(ZERO_COUNTS_AFTER_MS)
  return not(
    `the pods of cluster ${id} had ${figure} at the last count, which may be older than the drain: ` +
      `pods are counted once a minute, and this counts ${after} after the drain${ipv6}`,
  )
}

/** Names of nodes do not leave a cluster, but their number does. */
function silentText(member: DrainedMember | undefined): string {
  const silent = member?.reported?.problems.find(({ code }) => code === ('RouteAgentSilent' satisfies ReasonCode))
  if (silent === undefined) return ''
  const nodes = silent.count === 1 ? '1 node does not report its own' : `${silent.count} nodes do not report theirs`
  return ` (${nodes}: RouteAgentSilent, run sealane status in that cluster)`
}

/** `timeoutMs` is 0 for a single look. */
export type ConnectionsInit = Omit<WaitInit, 'what' | 'hint'>

/**
 * To be called at once after the drain. Waits until no connection is left, and gives what the member carries then.
 * Throws TookTooLong, and what `look` throws.
 */
export async function connectionsOf(
  id: string,
  look: () => Promise<DrainedMember | undefined>,
  init: ConnectionsInit,
): Promise<{ readonly openConnections: OpenConnections | undefined; readonly sentence: string }> {
  const { timeoutMs, clock } = init
  const drainedAt = clock.monotonic()
  let member: DrainedMember | undefined
  const lookAgain = async (): Promise<Carried> => {
    // Time is taken first: what the broker answers is at least that new.
    const sinceDrainMs = clock.monotonic() - drainedAt
    member = await look()
    return carriedBy(id, member, sinceDrainMs)
  }
  let found: Carried | undefined
  const probe = async () => {
    found = await lookAgain()
    return found.done ? undefined : { what: 'connections', why: found.sentence }
  }
  if (timeoutMs > 0) {
    const hint = `it stays drained; to end that: sealane cluster undrain ${id}`
    await waitUntil(probe, { ...init, what: `the connections of cluster ${id} to end`, hint })
  }
  const { sentence } = found ?? (await lookAgain())
  return { openConnections: member?.openConnections, sentence }
}
