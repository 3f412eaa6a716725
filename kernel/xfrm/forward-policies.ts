/**
 * Policies that the kernel checks before it forwards a packet (direction `fwd` of XFRM). They belong to the kernel's
 * IPsec, yet work without it: a policy without templates allows or drops. They are not part of nftables, so
 * `nft flush ruleset` does not remove them. They end after a time, because a program that does not know them, such as an
 * earlier release, never removes them, and nobody admits packets then.
 */
import { type Family, familyOf } from '../../model/addresses/addresses.ts'
import { XFRM_PRIORITY_ADMITTED, XFRM_PRIORITY_REFUSED } from '../../model/model.ts'
import { KernelError } from '../kernel.ts'

/** One policy of ours. The priority follows from the action. */
export interface ForwardPolicy {
  /** Prefixes in their canonical form, of one family. */
  readonly source: string
  readonly destination: string
  readonly action: 'allow' | 'block'
  /** Bits that the mark of a packet must have. Absent: packets with any mark. */
  readonly mark?: number
  /** The number of the device by which a packet leaves. Absent: any device. */
  readonly outputIndex?: number
}

/** A policy in the kernel, with its number there. */
export interface ListedPolicy extends ForwardPolicy {
  readonly index: number
}

/** A policy of other software that the kernel prefers to ours, whatever its action. */
export interface EarlierPolicy extends Pick<ForwardPolicy, 'source' | 'destination'> {
  readonly priority: number
}

export interface PolicyListing {
  /** Those with our priorities, of both families. */
  readonly ours: readonly ListedPolicy[]
  /** Those for packets with any mark and of any XFRM device. They may be for one protocol alone. */
  readonly earlier: readonly EarlierPolicy[]
}

/** All methods throw KernelError: EOPNOTSUPP if this kernel does not have XFRM. */
export interface ForwardPolicies {
  list(signal?: AbortSignal): Promise<PolicyListing>
  /** Throws EEXIST if there is one with the same prefixes and mark, whatever its priority and its owner. */
  add(policy: ForwardPolicy, signal?: AbortSignal): Promise<void>
  /** The policy gets its whole lifetime again, and keeps its number. Adds it if there is none. */
  refresh(policy: ForwardPolicy, signal?: AbortSignal): Promise<void>
  /** Removes this one and no other, by its number. Throws ENOENT if there is none. */
  remove(policy: ListedPolicy, signal?: AbortSignal): Promise<void>
}

export function priorityOf({ action }: Pick<ForwardPolicy, 'action'>): number {
  return action === 'allow' ? XFRM_PRIORITY_ADMITTED : XFRM_PRIORITY_REFUSED
}

/**
 * How long a policy that blocks lasts after it was added or refreshed. It is short, because after a downgrade it drops
 * what comes neither by a lane nor by the overlay.
 */
export const BLOCK_SECONDS = 300

/** What admits lasts longer than what blocks, so that no admitted packet meets only the latter. */
export function lifetimeSeconds({ action }: Pick<ForwardPolicy, 'action'>): number {
  return action === 'allow' ? BLOCK_SECONDS + 60 : BLOCK_SECONDS
}

export function policyFamily({ destination }: Pick<ForwardPolicy, 'destination'>): Family {
  return familyOf(destination)
}

/** The command that adds the policy. */
export function formatPolicy(policy: ForwardPolicy): string {
  return formatAs('add', policy)
}

/** The command that refreshes the policy. */
export function formatPolicyUpdate(policy: ForwardPolicy): string {
  return formatAs('update', policy)
}

function formatAs(verb: 'add' | 'update', policy: ForwardPolicy): string {
  const { source, destination, action, outputIndex } = policy
  const device = outputIndex === undefined ? '' : ` dev if${outputIndex}`
  const limit = `limit time-hard ${lifetimeSeconds(policy)}`
  const rest = `action ${action} priority ${priorityOf(policy)} ${limit}`
  return `ip xfrm policy ${verb} src ${source} dst ${destination}${device} dir fwd${marked(policy)} ${rest}`
}

/** The command that removes the policy. */
export function formatPolicyDeletion(policy: Pick<ListedPolicy, 'index' | 'mark'>): string {
  return `ip xfrm policy delete index ${policy.index} dir fwd${marked(policy)}`
}

function marked({ mark }: Pick<ForwardPolicy, 'mark'>): string {
  if (mark === undefined) return ''
  const text = `0x${mark.toString(16)}`
  return ` mark ${text} mask ${text}`
}

/** Throws KernelError EINVAL. */
export function checkPolicy(policy: ForwardPolicy): void {
  const families = [policy.source, policy.destination].map((text) => (text.includes('/') ? familyOf(text) : undefined))
  if (families[0] === undefined || families[0] !== families[1])
    throw new KernelError('EINVAL', formatPolicy(policy), 'source and destination: expected prefixes of one family')
}
