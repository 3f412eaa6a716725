/** Plans the condition Valid of access policies. Pure. */
import {
  ANNOTATION_UNREAD_FILE,
  type AccessDefault,
  AccessRules,
  AccessVersions,
  type AnyAccessPolicy,
  type KeptVersion,
  accessProblem,
  unknownPolicyParts,
} from '../../model/access/access.ts'
import {
  type AccessPolicy,
  CLUSTER_ACCESS_POLICY_NAME,
  type Cluster,
  type ClusterAccessPolicy,
  type ConditionFinding,
  type ServiceKey,
  serviceKey,
  objectKeyText,
  setCondition,
} from '../../model/model.ts'
import { type ConditionReason, type ReasonCode, joinReasons } from '../../model/reasons/reasons.ts'
import { canonicalJson } from '../../protocol/codec/codec.ts'
import { KeyedMemo } from '../../reconcile/reconcile.ts'
import { type LostVersions, isLostVersion, keptVersion } from './plan-kept-versions.ts'

export interface PolicyWorld {
  /** Id of this cluster. */
  readonly self: string
  readonly clustersetDefault: AccessDefault | undefined
  readonly policies: readonly AccessPolicy[]
  readonly clusterPolicies: readonly ClusterAccessPolicy[]
  readonly clusters: readonly Pick<Cluster, 'spec'>[]
  readonly exports: ReadonlySet<ServiceKey>
  /** What this process has written into `inForce`, by objectKeyText(): an API of an earlier release drops it each time. */
  readonly kept?: ReadonlyMap<string, KeptVersion>
  /** Absent: the API has kept all of it, as far as this process knows. */
  readonly lost?: LostVersions
}

/** The number of names in one message. The rest is counted. */
const MAX_NAMES = 3

export class PolicyConditions {
  readonly #findings = new KeyedMemo<ConditionFinding>()
  readonly #versions: AccessVersions
  /** Whether the version in the status is that in force. */
  readonly #isKept = new KeyedMemo<boolean>()
  #members: { readonly text: string; readonly rules: AccessRules } | undefined
  /** How many policies were looked at since the start. */
  looked = 0

  /** `versions` is what this process has seen of the policies. */
  constructor(versions = new AccessVersions()) {
    this.#versions = versions
  }

  /** The policies whose status differs, with the new one. */
  plan(world: PolicyWorld, nowMs: number): AnyAccessPolicy[] {
    const rules = this.#rulesOf(world)
    const counting = this.#versions.policies(world.policies)
    const ofCluster = this.#versions.clusterPolicies(world.clusterPolicies)
    const own = world.policies.map((policy, i) => {
      const { namespace = '', name, generation } = policy.metadata
      const version = goodVersion(counting[i])
      const missing = missingTargets(counting[i] ?? policy, world.exports)
      const isLost = version !== undefined && isLostVersion(objectKeyText(policy), version, world.lost)
      const finding = this.#findings.get(
        `${namespace}/${name}`,
        [
          ...[policy.spec, version?.spec, version?.metadata.generation, generation],
          ...[policy.metadata.annotations?.[ANNOTATION_UNREAD_FILE], rules, isLost, ...missing],
        ],
        () => {
          this.looked += 1
          return policyFinding(policy, { version, rules, missing, isLost })
        },
      )
      return this.#withStatus(policy, { finding, version, world }, nowMs)
    })
    const changedOfCluster = world.clusterPolicies.map((policy, i) => {
      const version = policy.metadata.name === CLUSTER_ACCESS_POLICY_NAME ? goodVersion(ofCluster[i]) : undefined
      const isLost = version !== undefined && isLostVersion(objectKeyText(policy), version, world.lost)
      const finding = clusterPolicyFinding(policy, { version, isLost }, world.clustersetDefault)
      return this.#withStatus(policy, { finding, version, world }, nowMs)
    })
    this.#findings.endRound()
    this.#isKept.endRound()
    return [...own, ...changedOfCluster].filter((changed) => changed !== undefined)
  }

  #withStatus<T extends AnyAccessPolicy>(
    policy: T,
    { finding, version, world }: { finding: ConditionFinding; version: T | undefined; world: PolicyWorld },
    nowMs: number,
  ): T | undefined {
    const { generation } = policy.metadata
    const before = policy.status?.conditions ?? []
    const wanted = generation === undefined ? finding : { ...finding, observedGeneration: generation }
    const conditions = setCondition(before, wanted, nowMs)
    const key = objectKeyText(policy)
    const inForce = keptVersion(key, version, world.lost)
    const written = policy.status?.inForce ?? world.kept?.get(key)
    const isKept = this.#isKept.get(key, [written, inForce?.spec, inForce?.generation, inForce?.uid], () => {
      return canonicalJson(written) === canonicalJson(inForce)
    })
    if (conditions === before && isKept) return undefined
    return { ...policy, status: { conditions, ...(inForce === undefined ? {} : { inForce }) } }
  }

  /** The same object while ids and labels are the same: statuses of Clusters change all the time. */
  #rulesOf({ self, clusters }: PolicyWorld): AccessRules {
    const members = clusters.map(({ spec: { id, labels } }) => ({ id, labels }))
    const text = JSON.stringify(members.sort((a, b) => (a.id < b.id ? -1 : 1)))
    if (this.#members?.text !== text) {
      const rules = new AccessRules({ self, clusters, policies: [], clusterPolicies: [] })
      this.#members = { text, rules }
    }
    return this.#members.rules
  }
}

/** Undefined for what counts of a policy of which no valid version is known. */
function goodVersion<T extends AnyAccessPolicy>(counting: T | undefined): T | undefined {
  return counting === undefined || accessProblem(counting) !== undefined ? undefined : counting
}

function missingTargets({ metadata, spec }: AccessPolicy, exports: ReadonlySet<ServiceKey>): string[] {
  const { namespace = '' } = metadata
  const names = (spec.targetRefs ?? []).map(({ name }) => name)
  return names.filter((name) => !exports.has(serviceKey(namespace, name)))
}

/** The policy stands for one in a file that cannot be read. */
function unreadFinding({ metadata }: Pick<AccessPolicy, 'metadata'>): ConditionFinding | undefined {
  const file = metadata.annotations?.[ANNOTATION_UNREAD_FILE]
  return file === undefined
    ? undefined
    : valid('False', 'PolicyFileInvalid', `closed until this file is valid: ${file}`)
}

/** The broker alone knows which labels have been vouched for. */
const LABELS_TRUSTED =
  'labels of members are their own word unless their join token states them or operators of the broker approve joins'

/** Only a part that is not understood makes it invalid. All else is in force as written, and reported. */
function policyFinding(
  policy: AccessPolicy,
  { version, rules, missing, isLost }: InForce<AccessPolicy> & { rules: AccessRules; missing: readonly string[] },
): ConditionFinding {
  const unread = unreadFinding(policy)
  if (unread !== undefined) return unread
  if (version !== undefined && version.spec !== policy.spec)
    return notUnderstood(unknownPolicyParts(policy), { version, isLost })
  const { unknownParts, unknownIds, namesNobody } = rules.notesOn(policy)
  const notes: (readonly [ReasonCode, string])[] = []
  if (unknownParts.length > 0) notes.push(['PolicyNotUnderstood', `not understood: ${listed(unknownParts)}`])
  if (namesNobody) notes.push(['PolicyNamesNobody', 'lets in no other member'])
  if (unknownIds.length > 0) notes.push(['PolicyNamesUnknown', `names no members: ${listed(unknownIds)}`])
  if (missing.length > 0) notes.push(['PolicyTargetMissing', `no ServiceExport: ${listed(missing)}`])
  const [first, ...more] = notes.map(([reason]) => reason)
  const isByLabels =
    unknownParts.length === 0 && policy.spec.from.some(({ selector = {} }) => Object.keys(selector).length > 0)
  const trust = isByLabels && !namesNobody ? [LABELS_TRUSTED] : []
  const message = [...notes.map(([, text]) => text), ...trust].join('; ')
  if (first === undefined) return valid('True', 'PolicyInForce', message)
  return valid(unknownParts.length > 0 ? 'False' : 'True', joinReasons([first, ...more]), message)
}

function clusterPolicyFinding(
  policy: ClusterAccessPolicy,
  inForce: InForce<ClusterAccessPolicy>,
  clustersetDefault: AccessDefault | undefined,
): ConditionFinding {
  const { metadata, spec } = policy
  const unread = unreadFinding(policy)
  if (unread !== undefined) return unread
  if (metadata.name !== CLUSTER_ACCESS_POLICY_NAME)
    return valid('False', 'PolicyIgnored', `only the one named ${CLUSTER_ACCESS_POLICY_NAME} counts`)
  const unknown = unknownPolicyParts(policy)
  if (unknown.length > 0) return notUnderstood(unknown, inForce)
  const isStricter = spec.default === 'allow' && clustersetDefault !== undefined && clustersetDefault !== 'allow'
  const message = isStricter ? `the default of the clusterset is stricter: ${clustersetDefault}` : ''
  return valid('True', 'PolicyInForce', message)
}

/** What is in force of a policy, and whether the API does not keep it. */
interface InForce<P extends AnyAccessPolicy> {
  readonly version: P | undefined
  readonly isLost: boolean
}

/** `version` stays in force; undefined: none is known, and what is not understood lets nobody in. */
function notUnderstood(parts: readonly string[], { version, isLost }: InForce<AnyAccessPolicy>): ConditionFinding {
  const problem = `not understood: ${listed(parts)}`
  const { generation } = version?.metadata ?? {}
  const counts =
    generation === undefined ? 'what it said before stays in force' : `generation ${generation} stays in force`
  if (version === undefined) return valid('False', 'PolicyNotUnderstood', problem)
  if (!isLost) return valid('False', 'PolicyNotUnderstood', `${problem}; ${counts}`)
  const lost = 'the API server does not keep it, so parts that start let nobody in'
  return valid('False', joinReasons(['PolicyNotUnderstood', 'PolicyVersionNotKept']), `${problem}; ${counts}; ${lost}`)
}

function valid(status: 'True' | 'False', reason: ConditionReason, message: string): ConditionFinding {
  return { type: 'Valid', status, reason, message }
}

function listed(names: readonly string[]): string {
  const shown = names.slice(0, MAX_NAMES).map((name) => name.slice(0, 100))
  const more = names.length > MAX_NAMES ? ` and ${names.length - MAX_NAMES} more` : ''
  return `${shown.join(', ')}${more}`
}
