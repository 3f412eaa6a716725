/** Plans the condition Valid of access policies. Pure. */
import {
  ANNOTATION_UNREAD_FILE,
  type AccessDefault,
  AccessRules,
  unknownCallerParts,
} from '../../model/access/access.ts'
import {
  type AccessPolicy,
  CLUSTER_ACCESS_POLICY_NAME,
  type Cluster,
  type ClusterAccessPolicy,
  type ConditionFinding,
  type ServiceKey,
  serviceKey,
  setCondition,
} from '../../model/model.ts'
import { type ConditionReason, type ReasonCode, joinReasons } from '../../model/reasons/reasons.ts'
import { KeyedMemo } from '../../reconcile/reconcile.ts'

export interface PolicyWorld {
  /** Id of this cluster. */
  readonly self: string
  readonly clustersetDefault: AccessDefault | undefined
  readonly policies: readonly AccessPolicy[]
  readonly clusterPolicies: readonly ClusterAccessPolicy[]
  readonly clusters: readonly Pick<Cluster, 'spec'>[]
  readonly exports: ReadonlySet<ServiceKey>
}

/** The number of names in one message. The rest is counted. */
const MAX_NAMES = 3

export class PolicyConditions {
  readonly #findings = new KeyedMemo<ConditionFinding>()
  #members: { readonly text: string; readonly rules: AccessRules } | undefined
  /** How many policies were looked at since the start. */
  looked = 0

  /** The policies whose status differs, with the new one. */
  plan(world: PolicyWorld, nowMs: number): (AccessPolicy | ClusterAccessPolicy)[] {
    const rules = this.#rulesOf(world)
    const own = world.policies.map((policy) => {
      const { namespace = '', name, generation } = policy.metadata
      const missing = missingTargets(policy, world.exports)
      const finding = this.#findings.get(
        `${namespace}/${name}`,
        [policy.spec, policy.metadata.annotations?.[ANNOTATION_UNREAD_FILE], generation, rules, ...missing],
        () => {
          this.looked += 1
          return policyFinding(policy, rules, missing)
        },
      )
      return withFinding(policy, finding, nowMs)
    })
    this.#findings.endRound()
    const ofCluster = world.clusterPolicies.map((policy) =>
      withFinding(policy, clusterPolicyFinding(policy, world.clustersetDefault), nowMs),
    )
    return [...own, ...ofCluster].filter((changed) => changed !== undefined)
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

function withFinding<T extends AccessPolicy | ClusterAccessPolicy>(
  policy: T,
  finding: ConditionFinding,
  nowMs: number,
): T | undefined {
  const { generation } = policy.metadata
  const before = policy.status?.conditions ?? []
  const wanted = generation === undefined ? finding : { ...finding, observedGeneration: generation }
  const conditions = setCondition(before, wanted, nowMs)
  return conditions === before ? undefined : { ...policy, status: { ...policy.status, conditions } }
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
function policyFinding(policy: AccessPolicy, rules: AccessRules, missing: readonly string[]): ConditionFinding {
  const unread = unreadFinding(policy)
  if (unread !== undefined) return unread
  const { unknownParts, unknownIds, namesNobody } = rules.notesOn(policy)
  const notes: (readonly [ReasonCode, string])[] = []
  if (unknownParts.length > 0) notes.push(['PolicyNotUnderstood', `not understood: ${listed(unknownParts)}`])
  if (namesNobody) notes.push(['PolicyNamesNobody', 'lets in no other member'])
  if (unknownIds.length > 0) notes.push(['PolicyNamesUnknown', `names no members: ${listed(unknownIds)}`])
  if (missing.length > 0) notes.push(['PolicyTargetMissing', `no ServiceExport: ${listed(missing)}`])
  const [first, ...more] = notes.map(([reason]) => reason)
  const isByLabels = policy.spec.from.some(({ selector = {} }) => Object.keys(selector).length > 0)
  const trust = isByLabels && !namesNobody && unknownParts.length === 0 ? [LABELS_TRUSTED] : []
  const message = [...notes.map(([, text]) => text), ...trust].join('; ')
  if (first === undefined) return valid('True', 'PolicyInForce', message)
  return valid(unknownParts.length > 0 ? 'False' : 'True', joinReasons([first, ...more]), message)
}

function clusterPolicyFinding(
  { metadata, spec }: ClusterAccessPolicy,
  clustersetDefault: AccessDefault | undefined,
): ConditionFinding {
  const unread = unreadFinding({ metadata })
  if (unread !== undefined) return unread
  if (metadata.name !== CLUSTER_ACCESS_POLICY_NAME)
    return valid('False', 'PolicyIgnored', `only the one named ${CLUSTER_ACCESS_POLICY_NAME} counts`)
  const unknown = Object.keys(spec).filter((field) => !CLUSTER_FIELDS.includes(field))
  unknown.push(...(spec.egress ?? []).flatMap((entry, i) => unknownCallerParts(entry, `egress[${i}]`)))
  if (!['allow', 'deny'].includes(spec.default)) unknown.unshift('default')
  if (unknown.length > 0)
    return valid('False', 'PolicyNotUnderstood', `not understood: ${listed(unknown.map((field) => `spec.${field}`))}`)
  const isStricter = spec.default === 'allow' && clustersetDefault !== undefined && clustersetDefault !== 'allow'
  const message = isStricter ? `the default of the clusterset is stricter: ${clustersetDefault}` : ''
  return valid('True', 'PolicyInForce', message)
}

const CLUSTER_FIELDS = ['default', 'egress', 'keepOpenConnections']

function valid(status: 'True' | 'False', reason: ConditionReason, message: string): ConditionFinding {
  return { type: 'Valid', status, reason, message }
}

function listed(names: readonly string[]): string {
  const shown = names.slice(0, MAX_NAMES).map((name) => name.slice(0, 100))
  const more = names.length > MAX_NAMES ? ` and ${names.length - MAX_NAMES} more` : ''
  return `${shown.join(', ')}${more}`
}
