/**
 * What is in force of access policies. One that has become invalid leaves in force what it said last; without such a
 * version it only closes. Pure.
 */
import type { AccessPolicy, ClusterAccessPolicy } from '../model.ts'
import { PolicyVersions, unreadableField, versionInForce } from './policy-versions.ts'
import { hasOnly, isUnderstoodSelector } from './match-labels.ts'

export type AnyAccessPolicy = AccessPolicy | ClusterAccessPolicy
/** The part of a policy that says who: an entry of `from`, or of `egress`. */
type Entry = AccessPolicy['spec']['from'][number]

export const CALLER_FIELDS = ['clusters', 'selector', 'namespaces', 'namespaceSelector']
const TARGET_FIELDS = ['group', 'kind', 'name']
const SPEC_FIELDS = ['targetRefs', 'from']
const CLUSTER_SPEC_FIELDS = ['default', 'egress', 'keepOpenConnections']
/** A later release may have other groups, kinds and words. */
const MCS_GROUP: string = 'multicluster.x-k8s.io'
const TARGET_KIND: string = 'ServiceExport'
const DEFAULTS: readonly string[] = ['allow', 'deny']

/** By the spec: an object of a cache stays the same until it changes. */
const PARTS = new WeakMap<object, readonly string[]>()

/**
 * What of a policy this release does not understand, for people: fields as paths, and the first field of a wrong type
 * with what was expected. Empty: the policy is valid.
 */
export function unknownPolicyParts(policy: AnyAccessPolicy): readonly string[] {
  const unreadable = unreadableField(policy)
  if (unreadable !== undefined) return [`${unreadable.field}: expected ${unreadable.expected}`]
  let parts = PARTS.get(policy.spec)
  if (parts === undefined) PARTS.set(policy.spec, (parts = partsOf(policy)))
  return parts
}

function partsOf(policy: AnyAccessPolicy): readonly string[] {
  return policy.kind === 'AccessPolicy' ? unknownParts(policy.spec) : unknownClusterParts(policy.spec)
}

function unknownParts(spec: AccessPolicy['spec']): string[] {
  const parts = unknownFields(spec, SPEC_FIELDS, 'spec')
  for (const [i, target] of (spec.targetRefs ?? []).entries()) {
    const at = `spec.targetRefs[${i}]`
    const { group = MCS_GROUP, kind = TARGET_KIND } = target
    parts.push(...unknownFields(target, TARGET_FIELDS, at))
    if (group !== MCS_GROUP) parts.push(`${at}.group`)
    if (kind !== TARGET_KIND) parts.push(`${at}.kind`)
  }
  parts.push(...spec.from.flatMap((callers, i) => unknownEntryParts(callers, `spec.from[${i}]`)))
  return parts
}

function unknownClusterParts(spec: ClusterAccessPolicy['spec']): string[] {
  return [
    ...(DEFAULTS.includes(spec.default) ? [] : ['spec.default']),
    ...unknownFields(spec, CLUSTER_SPEC_FIELDS, 'spec'),
    ...(spec.egress ?? []).flatMap((entry, i) => unknownEntryParts(entry, `spec.egress[${i}]`)),
  ]
}

function unknownEntryParts(entry: Entry, at: string): string[] {
  const selectors = (['selector', 'namespaceSelector'] as const).filter((field) => {
    const selector = entry[field]
    return selector !== undefined && !isUnderstoodSelector(selector)
  })
  return [...unknownFields(entry, CALLER_FIELDS, at), ...selectors.map((field) => `${at}.${field}`)]
}

function unknownFields(object: object, fields: readonly string[], at: string): string[] {
  return Object.keys(object)
    .filter((field) => !fields.includes(field))
    .map((field) => `${at}.${field}`)
}

/** Whether the fields of the policy and of its targets are those of this release. Takes a spec that can be read. */
export function hasKnownTargets({ spec }: AccessPolicy): boolean {
  return (
    hasOnly(spec, SPEC_FIELDS) &&
    (spec.targetRefs ?? []).every((target) => {
      const { group = MCS_GROUP, kind = TARGET_KIND } = target
      return group === MCS_GROUP && kind === TARGET_KIND && hasOnly(target, TARGET_FIELDS)
    })
  )
}

/** Why a policy is not valid; undefined if it is. */
export function accessProblem(policy: AnyAccessPolicy): string | undefined {
  return unknownPolicyParts(policy)[0]
}

/**
 * What counts of a policy: the policy if it is valid, else its latest valid version by its status. Without one, its
 * parts that are not understood let nobody in. The fields of the result can be read.
 */
export function accessInForce<P extends AnyAccessPolicy>(policy: P): P {
  return versionInForce(policy, accessProblem) ?? closing(policy)
}

/** Without a valid version. The same policy gives the same object. */
const CLOSING = new WeakMap<AnyAccessPolicy, AnyAccessPolicy>()

function closing<P extends AnyAccessPolicy>(policy: P): P {
  let closed = CLOSING.get(policy)
  if (closed === undefined) {
    closed = policy.kind === 'AccessPolicy' ? closingPolicy(policy) : closingDefault(policy)
    CLOSING.set(policy, closed)
  }
  return closed as P
}

/** It closes the services that it names, or all of its namespace if that cannot be read. */
function closingPolicy(policy: AccessPolicy): AccessPolicy {
  if (unreadableField(policy) === undefined) return policy
  const { targetRefs = [] } = statedFields(policy.spec)
  const named = { ...policy, spec: { targetRefs, from: [] } }
  return unreadableField(named) === undefined ? named : { ...policy, spec: { from: [] } }
}

/** An API server without our schema may have stored no spec, or a part of one. */
function statedFields<T extends object>(spec: T): Partial<T> {
  const stated: unknown = spec
  return typeof stated === 'object' && stated !== null ? stated : {}
}

/** A field of a later release may limit what `allow` means. Calls of this cluster are cut only where egress is stated. */
function closingDefault(policy: ClusterAccessPolicy): ClusterAccessPolicy {
  if (unreadableField(policy) === undefined) {
    const { spec } = policy
    if (spec.default !== 'allow' || hasOnly(spec, CLUSTER_SPEC_FIELDS)) return policy
    return { ...policy, spec: { ...spec, default: 'deny' } }
  }
  const { egress } = statedFields(policy.spec)
  if (egress === undefined) return { ...policy, spec: { default: 'deny' } }
  const limited: ClusterAccessPolicy = { ...policy, spec: { default: 'deny', egress } }
  return unreadableField(limited) === undefined ? limited : { ...policy, spec: { default: 'deny', egress: [] } }
}

/** Remembers what a process has seen of all access policies of its cluster: also what no status has kept yet. */
export class AccessVersions {
  readonly #named = new PolicyVersions<AccessPolicy>(accessProblem)
  readonly #ofCluster = new PolicyVersions<ClusterAccessPolicy>(accessProblem)

  /** Takes each version that a cache reports: a policy may change twice between two rounds. */
  see(policy: AnyAccessPolicy): void {
    if (policy.kind === 'AccessPolicy') this.#named.see(policy)
    else this.#ofCluster.see(policy)
  }

  /** Takes all AccessPolicies. Gives what counts of each, in the same order. */
  policies(listed: readonly AccessPolicy[]): readonly AccessPolicy[] {
    return this.#named.look(listed).map((version, i) => version ?? closing(listed[i] as AccessPolicy))
  }

  /** Takes all ClusterAccessPolicies. Gives what counts of each, in the same order. */
  clusterPolicies(listed: readonly ClusterAccessPolicy[]): readonly ClusterAccessPolicy[] {
    return this.#ofCluster.look(listed).map((version, i) => version ?? closing(listed[i] as ClusterAccessPolicy))
  }
}
