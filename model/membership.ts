/** The Membership of a cluster: its part in a clusterset, as its own API has it. Pure. */
import type { ClusterId } from './ids.ts'
import { type Cluster, MEMBERSHIP_NAME, type Membership } from './objects.ts'

/**
 * On the Membership of a member: `true`, somebody wants it to leave. Until the broker has been told, nothing is taken
 * away. Any other value: that is taken back, and what is under way comes to its end.
 */
export const LEAVE_REQUESTED_ANNOTATION = 'sealane.io/leave-requested'

/** Whether this cluster is to leave, and has not begun to. */
export function isLeaveRequested({ metadata, spec }: Pick<Membership, 'metadata' | 'spec'>): boolean {
  return spec.phase === 'joined' && metadata.annotations?.[LEAVE_REQUESTED_ANNOTATION] === 'true'
}

/** On the Membership: leave although the broker cannot be reached. */
export const LEAVE_UNREPORTED_ANNOTATION = 'sealane.io/leave-untold'

type Ranges = Pick<Membership['spec'], 'globalRange' | 'clustersetIpRange'>

/** What is kept of a broker's answer; `ranges` is absent where an earlier release kept less. */
export interface KeptAnswer {
  readonly cluster: ClusterId
  readonly clusterset: string
  /** From which address the broker saw this cluster join. */
  readonly observedAddress: string
  /** False: `observedAddress` is not this cluster's own, as far as the broker can know. */
  readonly observedCounts?: boolean | undefined
  readonly ranges?: Ranges | undefined
}

type AnswerFacts = Omit<KeptAnswer, 'cluster' | 'ranges'> & { readonly ranges: Ranges }

export interface JoinAnswer extends Omit<KeptAnswer, 'cluster' | 'ranges'>, Ranges {
  /** What the broker said of this cluster's addresses, a line each. */
  readonly notes?: readonly string[] | undefined
}

/** On a Membership: what the broker said of this cluster's addresses when it joined, a line each. */
export const ANNOTATION_ADDRESS_NOTES = 'sealane.io/address-notes'

/**
 * On this cluster's own Cluster: the members that the broker told of, sorted and joined by commas, this one among them.
 * Behind one that is not used here stands `:` and the reason code.
 */
export const ANNOTATION_KNOWN_MEMBERS = 'sealane.io/known-members'

/** An annotation has room for so many; the API server takes 256 KiB of all of them. */
const MAX_KNOWN_MEMBERS = 1000

/** `leftOut`: the reason code by id. */
export function knownMembersText(ids: Iterable<string>, leftOut: ReadonlyMap<string, string>): string {
  const named = [...ids].sort().slice(0, MAX_KNOWN_MEMBERS)
  return named.map((id) => (leftOut.has(id) ? `${id}:${leftOut.get(id) ?? ''}` : id)).join()
}

/** By id, the reason why it is not used here, undefined where it is. Undefined: the broker has not told yet. */
export function knownMembers({
  metadata,
}: Pick<Cluster, 'metadata'>): ReadonlyMap<string, string | undefined> | undefined {
  const text = metadata.annotations?.[ANNOTATION_KNOWN_MEMBERS]
  if (text === undefined) return undefined
  return new Map(
    text
      .split(',')
      .filter((part) => part !== '')
      .map((part): [string, string | undefined] => {
        const [id = '', reason] = part.split(':', 2)
        return [id, reason]
      }),
  )
}

/** What is written there. */
export function addressNotes({ metadata }: Pick<Membership, 'metadata'>): string[] {
  const text = metadata.annotations?.[ANNOTATION_ADDRESS_NOTES] ?? ''
  return text.split('\n').filter((line) => line !== '')
}

/** As the broker's answer to a join makes it. */
export function joinedMembership(id: ClusterId, answer: JoinAnswer): Membership {
  const { clusterset, globalRange, clustersetIpRange, observedAddress, observedCounts, notes = [] } = answer
  const membership = membershipOf(id, {
    clusterset,
    observedAddress,
    observedCounts,
    ranges: { globalRange, clustersetIpRange },
  })
  if (notes.length === 0) return membership
  const annotations = { [ANNOTATION_ADDRESS_NOTES]: notes.map(oneLine).join('\n') }
  return { ...membership, metadata: { ...membership.metadata, annotations } }
}

/** The broker wrote it; here it goes to terminals. */
export function oneLine(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f]+/g, ' ')
}

/** The same, from what was kept of the answer; undefined where an earlier release kept less. */
export function keptMembership({ cluster, ranges, ...kept }: KeptAnswer): Membership | undefined {
  return ranges === undefined ? undefined : membershipOf(cluster, { ...kept, ranges })
}

function membershipOf(
  clusterId: ClusterId,
  { clusterset, observedAddress, observedCounts, ranges }: AnswerFacts,
): Membership {
  const observed = observedCounts === false ? {} : { observedAddress }
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Membership',
    metadata: { name: MEMBERSHIP_NAME },
    spec: { clusterId, phase: 'joined', clusterset, ...ranges, ...observed },
  }
}
