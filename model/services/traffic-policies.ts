/** Which traffic policy counts for a service, which policies are valid, and what their authors should know. Pure. */
import {
  CLUSTER_TRAFFIC_POLICY_NAME,
  type ClusterTrafficPolicy,
  type LabelSelector,
  type PropertySelector,
  type ServiceImportType,
  type ServiceKey,
  type TrafficPolicy,
  type TrafficTier,
  isDnsLabel,
  objectKeyText,
  serviceKey,
} from '../model.ts'
import { type SeenVersions, seeVersion, unreadableField, versionInForce } from '../access/access.ts'
import type { ReasonCode } from '../reasons/reasons.ts'
import { MAX_AFFINITY_SECONDS, MAX_TRAFFIC_TIERS, MAX_TRAFFIC_WEIGHT } from '../values/values.ts'
import { labelRequirements, propertySelectorProblem, requirementProblem } from './cluster-selection.ts'

export type AnyTrafficPolicy = TrafficPolicy | ClusterTrafficPolicy

/** What a process has seen of traffic policies. */
export type SeenPolicies = SeenVersions<AnyTrafficPolicy>

export interface TrafficPoliciesInit {
  readonly policies: readonly TrafficPolicy[]
  readonly clusterPolicies: readonly ClusterTrafficPolicy[]
  /** `seen` of the policies before: a policy that has become invalid counts with what it said last. */
  readonly before?: SeenPolicies
}

/** A later release may have other groups and kinds. */
const MCS_GROUP: string = 'multicluster.x-k8s.io'
const TARGET_KIND: string = 'ServiceImport'
const RULE_FIELDS = ['order', 'spillBelowPercent', 'sessionAffinity', 'whenNoneReady', 'headless', 'passiveHealth']
const TIER_KINDS = ['local', 'clusters', 'selector', 'any'] as const

/** The policies of one cluster. Built once for many services. */
export class TrafficPolicies {
  /**
   * What counts as long as a policy is not replaced by another valid one. Of a policy that is missing no valid version
   * is known: it does not count, and calls go as without it.
   */
  readonly seen: SeenPolicies
  /** Older first. */
  readonly #named = new Map<ServiceKey, TrafficPolicy[]>()
  readonly #ofNamespace = new Map<string, TrafficPolicy[]>()
  readonly #default: ClusterTrafficPolicy | undefined

  constructor({ policies, clusterPolicies, before = new Map() }: TrafficPoliciesInit) {
    const now = new Map<string, NonNullable<ReturnType<typeof seePolicy>>>()
    for (const policy of [...policies, ...clusterPolicies]) {
      const key = objectKeyText(policy)
      const seen = seePolicy(policy, before)
      if (seen !== undefined) now.set(key, seen)
    }
    this.seen = now
    const inForce = [...now.values()].map(({ version }) => version).sort(byAge)
    for (const policy of inForce) if (policy.kind === 'TrafficPolicy') this.#add(policy)
    this.#default = inForce.find(
      (policy) => policy.kind === 'ClusterTrafficPolicy' && policy.metadata.name === CLUSTER_TRAFFIC_POLICY_NAME,
    ) as ClusterTrafficPolicy | undefined
  }

  #add(policy: TrafficPolicy): void {
    const { namespace = '' } = policy.metadata
    const names = targetNames(policy)
    if (names.length === 0) pushTo(this.#ofNamespace, namespace, policy)
    else for (const name of names) pushTo(this.#named, serviceKey(namespace, name), policy)
  }

  /** The policy that counts for a service, whole: one that names it, one of its namespace, or the cluster's default. */
  policyFor(namespace: string, name: string): AnyTrafficPolicy | undefined {
    if (this.#named.size === 0 && this.#ofNamespace.size === 0) return this.#default
    const [named] = this.#named.get(serviceKey(namespace, name)) ?? []
    const [ofNamespace] = this.#ofNamespace.get(namespace) ?? []
    return named ?? ofNamespace ?? this.#default
  }

  /** The other policies of the same rank for a service of this policy, older first, each once. */
  rivalsOf(policy: TrafficPolicy): TrafficPolicy[] {
    const { namespace = '' } = policy.metadata
    const names = targetNames(policy)
    const same =
      names.length === 0
        ? (this.#ofNamespace.get(namespace) ?? [])
        : names.flatMap((name) => this.#named.get(serviceKey(namespace, name)) ?? [])
    return [...new Set(same)].filter(({ metadata }) => metadata.name !== policy.metadata.name).sort(byAge)
  }
}

/** Remembers what a process has seen of all traffic policies of its cluster. */
export class TrafficVersions {
  #seen = new Map<string, NonNullable<ReturnType<typeof seePolicy>>>()

  /** Takes each version that a cache reports: a policy may change twice between two rounds. Gives what counts of it. */
  see(policy: AnyTrafficPolicy): ReturnType<typeof seePolicy> {
    const seen = seePolicy(policy, this.#seen)
    if (seen === undefined) this.#seen.delete(objectKeyText(policy))
    else this.#seen.set(objectKeyText(policy), seen)
    return seen
  }

  /** What counts of a policy, as this process has seen it last. */
  of(policy: AnyTrafficPolicy): ReturnType<typeof seePolicy> {
    return this.#seen.get(objectKeyText(policy))
  }

  /** Takes all policies. */
  look(policies: readonly TrafficPolicy[], clusterPolicies: readonly ClusterTrafficPolicy[]): TrafficPolicies {
    const found = new TrafficPolicies({ policies, clusterPolicies, before: this.#seen })
    this.#seen = new Map(found.seen)
    return found
  }
}

/** What a process sees of a policy that has seen these before. Undefined: nothing is in force. */
export function seePolicy(policy: AnyTrafficPolicy, before: SeenPolicies): ReturnType<SeenPolicies['get']> {
  return seeVersion(policy, trafficPolicyProblem, before.get(objectKeyText(policy)))
}

/**
 * What is in force of a policy for a process that has seen nothing of it before: the policy itself if it is valid, else
 * the version that the agent has written into the status of the object. A version of another object of this name never
 * counts. Undefined: nothing is in force.
 */
export function policyInForce(policy: AnyTrafficPolicy): AnyTrafficPolicy | undefined {
  return versionInForce(policy, trafficPolicyProblem)
}

/** What the condition of a policy depends on, besides the policy. */
export interface TrafficWorld {
  readonly policies: TrafficPolicies
  /** Ids of all members, this cluster included. */
  readonly members: ReadonlySet<string>
  readonly imports: ReadonlyMap<ServiceKey, ServiceImportType>
}

export interface TrafficNotes {
  /** Undefined: the policy is valid. Path of the field, the value and what was expected. */
  readonly problem: string | undefined
  /** What its author should know besides; the policy is in force. */
  readonly notes: readonly (readonly [ReasonCode, string])[]
}

/** The number of names in one message. The rest is counted. */
const MAX_NAMES = 3

/** What the author of the policy should know. */
export function trafficNotes(policy: AnyTrafficPolicy, world: TrafficWorld): TrafficNotes {
  const problem = trafficPolicyProblem(policy)
  if (problem !== undefined) return { problem, notes: [] }
  const notes: (readonly [ReasonCode, string])[] = []
  const unknown = unknownIds(policy, world.members)
  if (unknown.length > 0) notes.push(['TrafficNamesUnknown', `names no members: ${listed(unknown)}`])
  const zero = (policy.spec.order ?? []).findIndex((tier) => givesNothing(tier, world.members))
  if (zero >= 0)
    notes.push(['TrafficWeightsZero', `spec.order[${zero}].weights: 0 for all members: expected one above 0`])
  if (policy.kind === 'TrafficPolicy') notes.push(...targetNotes(policy, world))
  return { problem, notes }
}

function targetNotes(policy: TrafficPolicy, { policies, imports }: TrafficWorld): (readonly [ReasonCode, string])[] {
  const { namespace = '' } = policy.metadata
  const notes: (readonly [ReasonCode, string])[] = []
  const rivals = policies.rivalsOf(policy)
  if (rivals.length > 0) {
    const lost = rivals.filter((rival) => byAge(rival, policy) < 0).map(({ metadata }) => metadata.name)
    const won = rivals.filter((rival) => byAge(rival, policy) > 0).map(({ metadata }) => metadata.name)
    const texts = [
      ...(lost.length === 0 ? [] : [`older and counts instead for the same services: ${listed(lost)}`]),
      ...(won.length === 0 ? [] : [`younger and does not count for the same services: ${listed(won)}`]),
    ]
    notes.push(['TrafficPolicyConflict', texts.join('; ')])
  }
  const names = targetNames(policy)
  const missing = names.filter((name) => !imports.has(serviceKey(namespace, name)))
  if (missing.length > 0) notes.push(['TrafficTargetMissing', `no ServiceImport: ${listed(missing)}`])
  const headless = names.filter((name) => imports.get(serviceKey(namespace, name)) === 'Headless')
  if (headless.length > 0 && policy.spec.headless === undefined) {
    const message = `spec.headless: not set: expected follow, as these are headless: ${listed(headless)}`
    notes.push(['TrafficHeadlessIgnored', message])
  }
  return notes
}

/** Whether all members that are there now have weight 0 in a tier for any of them. */
function givesNothing({ any, weights = {} }: TrafficTier, members: ReadonlySet<string>): boolean {
  return (
    any !== undefined && members.size > 0 && [...members].every((id) => Object.hasOwn(weights, id) && weights[id] === 0)
  )
}

/** Ids in tiers and weights that no member has, sorted. They count as soon as such a cluster joins. */
function unknownIds({ spec }: AnyTrafficPolicy, members: ReadonlySet<string>): string[] {
  const ids = (spec.order ?? []).flatMap(({ clusters = [], weights = {} }) => [...clusters, ...Object.keys(weights)])
  return [...new Set(ids)].filter((id) => !members.has(id)).sort()
}

/**
 * Why a policy is not valid: the path of the field, the value, and what was expected. Undefined if it is valid. The API
 * server checks most of it, but a later release may have other fields, and then the policy must do nothing else than its
 * author meant.
 */
export function trafficPolicyProblem(policy: AnyTrafficPolicy): string | undefined {
  const { kind, metadata, spec } = policy
  const unreadable = unreadableField(policy)
  if (unreadable !== undefined) return `${unreadable.field}: expected ${unreadable.expected}`
  if (kind === 'ClusterTrafficPolicy' && metadata.name !== CLUSTER_TRAFFIC_POLICY_NAME)
    return complaint('metadata.name', metadata.name, CLUSTER_TRAFFIC_POLICY_NAME)
  const fields = kind === 'TrafficPolicy' ? [...RULE_FIELDS, 'targetRefs'] : RULE_FIELDS
  return (
    extraField(spec, fields, 'spec') ??
    (kind === 'TrafficPolicy' ? targetProblem(policy) : undefined) ??
    settingProblem(policy) ??
    orderProblem(spec.order ?? [])
  )
}

function targetProblem({ spec }: TrafficPolicy): string | undefined {
  for (const [i, target] of (spec.targetRefs ?? []).entries()) {
    const at = `spec.targetRefs[${i}]`
    const { group = MCS_GROUP, kind = TARGET_KIND } = target
    if (group !== MCS_GROUP) return complaint(`${at}.group`, group, MCS_GROUP)
    if (kind !== TARGET_KIND) return complaint(`${at}.kind`, kind, TARGET_KIND)
    const extra = extraField(target, ['group', 'kind', 'name'], at)
    if (extra !== undefined) return extra
  }
  return undefined
}

function settingProblem({ spec }: AnyTrafficPolicy): string | undefined {
  const { spillBelowPercent = 0, sessionAffinity, whenNoneReady = 'all' } = spec
  if (!isWithin(spillBelowPercent, 0, 100)) return complaint('spec.spillBelowPercent', spillBelowPercent, '0 to 100')
  const seconds = sessionAffinity?.clientIP.timeoutSeconds
  const path = 'spec.sessionAffinity.clientIP.timeoutSeconds'
  if (seconds !== undefined && !isWithin(seconds, 1, MAX_AFFINITY_SECONDS))
    return complaint(path, seconds, `1 to ${MAX_AFFINITY_SECONDS}`)
  if (!['all', 'refuse'].includes(whenNoneReady)) return complaint('spec.whenNoneReady', whenNoneReady, 'all or refuse')
  // A later release may have other words.
  const headless: string = spec.headless ?? 'follow'
  return headless === 'follow' ? undefined : complaint('spec.headless', headless, 'follow')
}

function orderProblem(order: readonly TrafficTier[]): string | undefined {
  if (order.length > MAX_TRAFFIC_TIERS)
    return complaint('spec.order', `${order.length} tiers`, `at most ${MAX_TRAFFIC_TIERS}`)
  return order.map((tier, i) => tierProblem(tier, `spec.order[${i}]`)).find((found) => found !== undefined)
}

function tierProblem(tier: TrafficTier, at: string): string | undefined {
  const extra = extraField(tier, [...TIER_KINDS, 'weights'], at)
  if (extra !== undefined) return extra
  const kinds = TIER_KINDS.filter((kind) => tier[kind] !== undefined)
  if (kinds.length !== 1) return complaint(at, kinds.join(), `exactly one of ${TIER_KINDS.join(', ')}`)
  const { clusters, selector, weights = {} } = tier
  if (clusters?.length === 0) return complaint(`${at}.clusters`, '', 'at least one id')
  const wrongId = [...(clusters ?? []), ...Object.keys(weights)].find((id) => !isDnsLabel(id))
  if (wrongId !== undefined) return complaint(at, wrongId, 'ids of clusters: RFC 1123 labels')
  const wrong = selector === undefined ? undefined : selectorProblem(selector, `${at}.selector`)
  return wrong ?? weightProblem(tier, weights, `${at}.weights`)
}

function selectorProblem(selector: NonNullable<TrafficTier['selector']>, at: string): string | undefined {
  const extra = extraField(selector, ['labels', 'properties'], at)
  if (extra !== undefined) return extra
  const { labels, properties } = selector
  if (labels === undefined && properties === undefined) return complaint(at, '', 'labels or properties')
  return labelProblem(labels, `${at}.labels`) ?? propertyProblem(properties, `${at}.properties`)
}

function labelProblem(labels: LabelSelector | undefined, at: string): string | undefined {
  if (labels === undefined) return undefined
  const extra = extraField(labels, ['matchLabels', 'matchExpressions'], at)
  if (extra !== undefined) return extra
  if (labelRequirements(labels).length === 0)
    return complaint(at, '', 'at least one entry in matchLabels or matchExpressions')
  const found = (labels.matchExpressions ?? []).map((one, i) => requirementProblem(one, `${at}.matchExpressions[${i}]`))
  const wrong = found.find((one) => one !== undefined)
  return wrong && complaint(wrong.field, wrong.value, wrong.expected)
}

function propertyProblem(properties: PropertySelector | undefined, at: string): string | undefined {
  const wrong = properties && propertySelectorProblem(properties, at)
  return wrong && complaint(wrong.field, wrong.value, wrong.expected)
}

/** With named clusters that all have weight 0, nothing could ever go to the tier. */
function weightProblem(
  { clusters }: TrafficTier,
  weights: Readonly<Record<string, number>>,
  at: string,
): string | undefined {
  for (const [id, weight] of Object.entries(weights)) {
    if (!isWithin(weight, 0, MAX_TRAFFIC_WEIGHT)) return complaint(`${at}.${id}`, weight, `0 to ${MAX_TRAFFIC_WEIGHT}`)
    if (clusters !== undefined && !clusters.includes(id)) return complaint(`${at}.${id}`, weight, 'an id of clusters')
  }
  const isNothing = clusters?.every((id) => Object.hasOwn(weights, id) && weights[id] === 0) === true
  return isNothing ? complaint(at, 'all 0', 'at least one above 0, or an id without a weight') : undefined
}

function isWithin(value: number, least: number, most: number): boolean {
  return Number.isInteger(value) && value >= least && value <= most
}

function extraField(value: object, fields: readonly string[], at: string): string | undefined {
  const extra = Object.keys(value).find((name) => !fields.includes(name))
  return extra === undefined ? undefined : complaint(`${at}.${extra}`, extra, `one of ${fields.join(', ')}`)
}

function complaint(field: string, value: string | number, expected: string): string {
  const text = typeof value === 'string' ? JSON.stringify(value.slice(0, 100)) : String(value)
  return `${field}: ${text}: expected ${expected}`
}

/** The names of the services of a policy, each once. Empty: all of the namespace. */
function targetNames({ spec }: TrafficPolicy): string[] {
  return [...new Set((spec.targetRefs ?? []).map(({ name }) => name))]
}

/** Older first; of the same age by name. */
function byAge(a: AnyTrafficPolicy, b: AnyTrafficPolicy): number {
  const [first, second] = [a, b].map(({ metadata: { creationTimestamp = '', namespace = '', name } }) => {
    return [creationTimestamp, namespace, name].join('/')
  }) as [string, string]
  return first < second ? -1 : first > second ? 1 : 0
}

function pushTo<K, V>(lists: Map<K, V[]>, key: K, value: V): void {
  const list = lists.get(key)
  if (list === undefined) lists.set(key, [value])
  else list.push(value)
}

function listed(names: readonly string[]): string {
  const shown = names.slice(0, MAX_NAMES).map((name) => name.slice(0, 100))
  const more = names.length > MAX_NAMES ? ` and ${names.length - MAX_NAMES} more` : ''
  return `${shown.join(', ')}${more}`
}
