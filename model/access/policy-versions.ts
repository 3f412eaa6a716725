/**
 * What is in force of a policy that has become invalid: what it said last, as this process has seen it, or as the agent
 * has kept it in the status, so that it outlasts restarts. Pure.
 */
import {
  ACCESS_POLICY_FIELDS,
  CLUSTER_ACCESS_POLICY_FIELDS,
  CLUSTER_TRAFFIC_POLICY_FIELDS,
  TRAFFIC_POLICY_FIELDS,
  loose,
} from '../kinds/kinds.ts'
import { type ObjectKinds, findCondition, objectKeyText } from '../model.ts'
import { MAX_KEPT_SPEC_LENGTH } from '../values/values.ts'

type PolicyKind = 'AccessPolicy' | 'ClusterAccessPolicy' | 'TrafficPolicy' | 'ClusterTrafficPolicy'
/** A policy of which the last valid version stays in force. */
export type AnyPolicy = ObjectKinds[PolicyKind]
/** A version in the status of a policy. */
export type KeptVersion<P extends AnyPolicy = AnyPolicy> = NonNullable<NonNullable<P['status']>['inForce']>
/** Says why a policy is not valid; undefined if it is. */
export type ProblemOf<P extends AnyPolicy> = (policy: P) => string | undefined

const SPECS = {
  AccessPolicy: ACCESS_POLICY_FIELDS.shape.spec,
  ClusterAccessPolicy: CLUSTER_ACCESS_POLICY_FIELDS.shape.spec,
  TrafficPolicy: TRAFFIC_POLICY_FIELDS.shape.spec,
  ClusterTrafficPolicy: CLUSTER_TRAFFIC_POLICY_FIELDS.shape.spec,
} as const
const READABLE = {
  AccessPolicy: loose(ACCESS_POLICY_FIELDS.shape.spec),
  ClusterAccessPolicy: loose(CLUSTER_ACCESS_POLICY_FIELDS.shape.spec),
  TrafficPolicy: loose(TRAFFIC_POLICY_FIELDS.shape.spec),
  ClusterTrafficPolicy: loose(CLUSTER_TRAFFIC_POLICY_FIELDS.shape.spec),
} as const

/** What is wrong about a field whose type no code can read. */
export interface UnreadableField {
  /** The field, such as `spec.from[0]`. */
  readonly field: string
  readonly expected: string
}

/**
 * The first field of the spec whose type is wrong, which an API server without the schema of this release may have
 * stored. Undefined: code may read all fields that it knows.
 */
export function unreadableField({ kind, spec }: AnyPolicy): UnreadableField | undefined {
  // An API server without the schema may have stored none.
  const stated: unknown = spec
  if (typeof stated !== 'object' || stated === null) return { field: 'spec', expected: 'a map' }
  const known = UNREADABLE.get(spec)
  if (known !== undefined) return known.found
  const found = firstUnreadable(kind, spec)
  UNREADABLE.set(spec, { found })
  return found
}

/** By the spec: an object of a cache stays the same until it changes. */
const UNREADABLE = new WeakMap<object, { readonly found: UnreadableField | undefined }>()

function firstUnreadable(kind: PolicyKind, spec: object): UnreadableField | undefined {
  // Numbers and texts outside their limits can be read: who judges the policy says more about them.
  const issue = READABLE[kind].safeParse(spec).error?.issues.find((one) => {
    return one.code === 'invalid_type' && one.expected !== 'int'
  })
  if (issue === undefined) return undefined
  const path = issue.path.map((part) => (typeof part === 'number' ? `[${part}]` : `.${String(part)}`))
  return { field: `spec${path.join('')}`, expected: issue.message }
}

/**
 * The policy itself if it is valid, else its latest valid version: `last`, which this process has seen, or the one in
 * the status, whichever is newer. A version of another object of this name never counts. Undefined: none is known.
 */
export function versionInForce<P extends AnyPolicy>(policy: P, problemOf: ProblemOf<P>, last?: P): P | undefined {
  if (problemOf(policy) === undefined) return policy
  const seen = last?.metadata.uid === policy.metadata.uid ? last : undefined
  const kept = keptVersion(policy, problemOf)
  if (kept === undefined || seen === undefined) return seen ?? kept
  const { generation: seenAt = Infinity } = seen.metadata
  return (kept.metadata.generation ?? 0) > seenAt ? kept : seen
}

/**
 * The version in the status, if it is the last valid one of this object before this generation, and valid by the rules
 * of this release. The agent writes it together with the condition. If it has not observed the generation before this
 * one, then that generation may have been valid, and have taken away what the version in the status allows.
 */
function keptVersion<P extends AnyPolicy>(policy: P, problemOf: ProblemOf<P>): P | undefined {
  const { metadata, status } = policy
  const { generation: current = 0 } = metadata
  const kept = status?.inForce
  if (kept === undefined || kept.uid !== metadata.uid || kept.generation >= current) return undefined
  const observed = findCondition(status?.conditions, 'Valid')?.observedGeneration ?? 0
  if (observed < current - 1) return undefined
  const { generation, spec } = kept
  const version = { ...policy, metadata: { ...metadata, generation }, spec }
  return problemOf(version) === undefined ? version : undefined
}

const KEPT = new WeakMap<object, boolean>()

/**
 * What the status of a policy keeps of the version in force, for parts that start while the policy is not valid.
 * Undefined for an object without uid or generation, and for a spec that is too long to be kept twice or that the CRD
 * of this release refuses: then nothing is kept, since an earlier version must not come back.
 */
export function versionToKeep<P extends AnyPolicy>({ kind, metadata, spec }: P): KeptVersion<P> | undefined {
  const { uid, generation } = metadata
  if (uid === undefined || generation === undefined) return undefined
  let isKept = KEPT.get(spec)
  if (isKept === undefined) {
    isKept = JSON.stringify(spec).length <= MAX_KEPT_SPEC_LENGTH && SPECS[kind].safeParse(spec).success
    KEPT.set(spec, isKept)
  }
  return isKept ? { uid, generation, spec } : undefined
}

/** What a process has found to be in force of a policy. */
export interface SeenVersion<P extends AnyPolicy = AnyPolicy> {
  readonly version: P
  /** The generation of the policy when this version was found to be in force. */
  readonly lookedAt: number
  /** The version comes from the status alone, and counts as long as the status has it. Absent: the process has seen it. */
  readonly isFromStatus?: true
}

/** What a process has seen of policies, by objectKeyText(). A policy of which no valid version is known is missing. */
export type SeenVersions<P extends AnyPolicy = AnyPolicy> = ReadonlyMap<string, SeenVersion<P>>

/**
 * What is in force of a policy, with what this process has seen of it. A version counts only if the process has looked
 * at the generation before the current one: a generation that it missed may have been valid, and have taken away what
 * the version allows. Nor does one that was in the status alone and has left it: the agent has found that the API cuts
 * it short. Gives what it has seen now; undefined: no valid version is known.
 */
export function seeVersion<P extends AnyPolicy>(
  policy: P,
  problemOf: ProblemOf<P>,
  seen: SeenVersion<P> | undefined,
): SeenVersion<P> | undefined {
  const { generation = 0 } = policy.metadata
  const isKnown = seen !== undefined && seen.lookedAt >= generation - 1 && !hasLeftStatus(seen, policy)
  const last = isKnown ? seen.version : undefined
  const version = versionInForce(policy, problemOf, last)
  if (version === undefined) return undefined
  const isFromStatus = version !== policy && (version !== last || seen?.isFromStatus === true)
  return { version, lookedAt: generation, ...(isFromStatus ? { isFromStatus } : {}) }
}

function hasLeftStatus({ version, isFromStatus }: SeenVersion, { status }: AnyPolicy): boolean {
  if (isFromStatus !== true) return false
  const { uid, generation } = version.metadata
  const kept = status?.inForce
  if (kept === undefined || kept.uid !== uid || kept.generation !== generation) return true
  return kept.spec !== version.spec && JSON.stringify(kept.spec) !== JSON.stringify(version.spec)
}

/** Remembers the valid versions of the policies of one kind that a process has seen, as long as the policies exist. */
export class PolicyVersions<P extends AnyPolicy> {
  readonly #problemOf: ProblemOf<P>
  #seen = new Map<string, SeenVersion<P>>()

  constructor(problemOf: ProblemOf<P>) {
    this.#problemOf = problemOf
  }

  /** Takes what a cache reports between two looks: a policy may change twice, and the version in between counts. */
  see(policy: P): void {
    const key = objectKeyText(policy)
    const seen = seeVersion(policy, this.#problemOf, this.#seen.get(key))
    if (seen === undefined) this.#seen.delete(key)
    else this.#seen.set(key, seen)
  }

  /** Takes all policies of the kind. Gives what is in force of each, in the same order; undefined: nothing is known. */
  look(policies: readonly P[]): readonly (P | undefined)[] {
    const now = new Map<string, SeenVersion<P>>()
    const found = policies.map((policy) => {
      const key = objectKeyText(policy)
      const seen = seeVersion(policy, this.#problemOf, this.#seen.get(key))
      if (seen !== undefined) now.set(key, seen)
      return seen?.version
    })
    this.#seen = now
    return found
  }
}
