/** The Membership of a cluster: its part in a clusterset, as stored in its own API. Pure. */
import type { ClusterId, NamespaceLists } from './ids.ts'
import { type Cluster, MEMBERSHIP_NAME, type Membership } from './objects.ts'
import type { Topology } from './records.ts'

/**
 * On the Membership of a member: `true` requests that the cluster leaves. Nothing is removed until the broker has
 * acknowledged it. Any other value withdraws the request; steps that have begun are completed.
 */
export const LEAVE_REQUESTED_ANNOTATION = 'sealane.io/leave-requested'

/** Whether the cluster is asked to leave and has not begun to. */
export function isLeaveRequested({ metadata, spec }: Pick<Membership, 'metadata' | 'spec'>): boolean {
  return spec.phase === 'joined' && metadata.annotations?.[LEAVE_REQUESTED_ANNOTATION] === 'true'
}

/** On the Membership: leave even if the broker cannot be reached. */
export const LEAVE_UNREPORTED_ANNOTATION = 'sealane.io/leave-untold'

type Ranges = Pick<Membership['spec'], 'globalRange' | 'clustersetIpRange'>

/** The stored part of a broker's answer. `ranges` is absent if an earlier release stored it. */
export interface KeptAnswer {
  readonly cluster: ClusterId
  readonly clusterset: string
  /** The address from which the broker saw this cluster join. */
  readonly observedAddress: string
  /** False if `observedAddress` is not this cluster's own, as far as the broker can tell. */
  readonly observedCounts?: boolean | undefined
  readonly ranges?: Ranges | undefined
}

type AnswerFacts = Omit<KeptAnswer, 'cluster' | 'ranges'> & { readonly ranges: Ranges; readonly access: AccessOfMember }

export interface JoinAnswer extends Omit<KeptAnswer, 'cluster' | 'ranges'>, Ranges {
  /** The broker's remarks on this cluster's addresses, one line each. */
  readonly notes?: readonly string[] | undefined
}

/** On a Membership: the broker's remarks on this cluster's addresses at the join, one line each. */
export const ANNOTATION_ADDRESS_NOTES = 'sealane.io/address-notes'

/**
 * On this cluster's own Cluster: the members that the broker reports, sorted and separated by commas, including this
 * one. `:` and the reason code follow the id of a member that is not used here.
 */
export const ANNOTATION_KNOWN_MEMBERS = 'sealane.io/known-members'

/** Limit for one annotation; the API server accepts 256 KiB for all annotations of an object. */
const MAX_KNOWN_MEMBERS = 1000

/**
 * On this cluster's own Cluster, for the relays of its gateways: the topology of the clusterset as JSON. Absent: all
 * clusters link, or the topology is longer than MAX_TOPOLOGY_TEXT, which the broker has not accepted since topologies
 * know transit.
 */
export const ANNOTATION_TOPOLOGY = 'sealane.io/topology'

/**
 * On the Endpoint of another cluster, for this cluster's gateways: ids of the members whose relays alone may carry
 * links with it, separated by commas. Absent: they may have any way. The topology and labels that decide this are those
 * of the agent alone. One object says where a gateway is and how it may be reached, so nothing is called in between.
 */
export const ANNOTATION_VIA = 'sealane.io/via'

/** Characters: with ANNOTATION_KNOWN_MEMBERS less than the API server accepts for all annotations of an object. */
export const MAX_TOPOLOGY_TEXT = 150_000

/** Formats the annotation. */
export function topologyText(topology: Topology): string {
  return JSON.stringify(topology)
}

/** Formats the annotation. `leftOut` is the reason code by id. */
export function knownMembersText(ids: Iterable<string>, leftOut: ReadonlyMap<string, string>): string {
  const named = [...ids].sort().slice(0, MAX_KNOWN_MEMBERS)
  return named.map((id) => (leftOut.has(id) ? `${id}:${leftOut.get(id) ?? ''}` : id)).join()
}

/**
 * Returns, by id, the reason why a member is not used here, or undefined if it is used. The result is undefined if the
 * broker has not reported the members yet.
 */
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

/** The members that the topology of the clusterset does not link with this one, by its own Cluster. Sorted. */
export function notLinkedMembers(own: Pick<Cluster, 'metadata'>): readonly string[] {
  return [...(knownMembers(own) ?? [])].flatMap(([id, reason]) => (reason === 'NotLinkedByTopology' ? [id] : []))
}

/** Returns the lines of ANNOTATION_ADDRESS_NOTES. */
export function addressNotes({ metadata }: Pick<Membership, 'metadata'>): string[] {
  const text = metadata.annotations?.[ANNOTATION_ADDRESS_NOTES] ?? ''
  return text.split('\n').filter((line) => line !== '')
}

/** What a Membership says about access. */
export type AccessOfMember = Pick<
  Membership['spec'],
  'exposure' | 'accessDefault' | 'allowedNamespaces' | 'excludedNamespaces'
>

/**
 * What a new member exposes, unless its configuration states something else. Its exports are closed until the broker
 * states the default of the clusterset, which then replaces this one.
 */
const NEW_MEMBER: AccessOfMember = { exposure: 'exports', accessDefault: 'deny' }

/** The lists of a Membership as one value. */
export function namespaceLists(membership: Pick<Membership, 'spec'> | undefined): NamespaceLists {
  return { allowed: membership?.spec.allowedNamespaces, excluded: membership?.spec.excludedNamespaces }
}

export interface MembershipAround {
  /** What the configuration of the cluster states. */
  readonly exposure?: AccessOfMember['exposure'] | undefined
  /** The latest Membership of this cluster. */
  readonly before?: Membership | undefined
  /** What the latest Membership said, if it is lost. */
  readonly kept?: (AccessOfMember & { readonly clusterset: string }) | undefined
}

/** A member that joins again exposes neither more nor less than before. */
function accessOf(clusterset: string, { exposure, before, kept }: MembershipAround): AccessOfMember {
  const latest = before === undefined ? kept : before.spec.phase === 'joined' ? before.spec : undefined
  const { exposure: known, accessDefault } = latest?.clusterset === clusterset ? latest : NEW_MEMBER
  const stated = exposure ?? known
  return {
    ...(stated === undefined ? {} : { exposure: stated }),
    ...(accessDefault === undefined ? {} : { accessDefault }),
  }
}

/** Builds the Membership from the broker's answer to a join. */
export function joinedMembership(id: ClusterId, answer: JoinAnswer, around: MembershipAround = {}): Membership {
  const { clusterset, globalRange, clustersetIpRange, observedAddress, observedCounts, notes = [] } = answer
  const membership = membershipOf(id, {
    clusterset,
    observedAddress,
    observedCounts,
    ranges: { globalRange, clustersetIpRange },
    access: accessOf(clusterset, around),
  })
  if (notes.length === 0) return membership
  const annotations = { [ANNOTATION_ADDRESS_NOTES]: notes.map(oneLine).join('\n') }
  return { ...membership, metadata: { ...membership.metadata, annotations } }
}

/** Replaces control characters: the text comes from the broker and is shown on terminals. */
export function oneLine(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f]+/g, ' ')
}

/** Builds the Membership from the stored part of the answer; undefined if an earlier release stored too little. */
export function keptMembership(
  { cluster, ranges, ...kept }: KeptAnswer,
  around: MembershipAround = {},
): Membership | undefined {
  if (ranges === undefined) return undefined
  return membershipOf(cluster, { ...kept, ranges, access: accessOf(kept.clusterset, around) })
}

function membershipOf(
  clusterId: ClusterId,
  { clusterset, observedAddress, observedCounts, ranges, access }: AnswerFacts,
): Membership {
  const observed = observedCounts === false ? {} : { observedAddress }
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Membership',
    metadata: { name: MEMBERSHIP_NAME },
    spec: { clusterId, phase: 'joined', clusterset, ...ranges, ...access, ...observed },
  }
}
