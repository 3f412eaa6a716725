/** Builds ValidatingAdmissionPolicies, each with its binding. */
import { type ManifestObject, type PartName, accountName, objectName, partLabels } from '../values/values.ts'

const GROUP = 'admissionregistration.k8s.io'

/** The kind of the parameter that describes this cluster's membership. */
export const MEMBERSHIP_KIND = { apiVersion: 'sealane.io/v1alpha1', kind: 'Membership' }

export interface PolicyInit {
  readonly name: string
  readonly spec: Readonly<Record<string, unknown>>
  /** The object that the rules can use as `params`. */
  readonly param?: {
    readonly name: string
    /** The namespace of a namespaced object. */
    readonly namespace?: string
    /**
     * The result if the object is missing. Allow: there is nothing to protect, and no client is locked out. Deny: all
     * requests that the constraints select are rejected until the object exists, whatever the match conditions say. So
     * the constraints must select Sealane's own objects only.
     */
    readonly absent: 'Allow' | 'Deny'
  }
}

/** A policy and its binding. */
export function policy({ name, spec, param }: PolicyInit): readonly ManifestObject[] {
  const metadata = { name, labels: partLabels('policies') }
  const place = param?.namespace === undefined ? {} : { namespace: param.namespace }
  const paramRef =
    param === undefined ? {} : { paramRef: { name: param.name, ...place, parameterNotFoundAction: param.absent } }
  return [
    {
      apiVersion: `${GROUP}/v1`,
      kind: 'ValidatingAdmissionPolicy',
      metadata,
      // A missing kind of the parameter has the same result as a missing parameter.
      spec: { failurePolicy: param?.absent === 'Allow' ? 'Ignore' : 'Fail', ...spec },
    },
    {
      apiVersion: `${GROUP}/v1`,
      kind: 'ValidatingAdmissionPolicyBinding',
      metadata,
      spec: { policyName: name, validationActions: ['Deny'], ...paramRef },
    },
  ]
}

/**
 * The constraints with the server's defaults filled in: the server treats them as one field, so a later apply must
 * contain the same.
 */
export function constraints(
  group: string,
  version: string,
  resources: readonly string[],
  operations: readonly string[],
) {
  return matching([{ group, version, resources, operations }])
}

export interface MatchRule {
  readonly group: string
  readonly version: string
  readonly resources: readonly string[]
  readonly operations: readonly string[]
}

/** Which objects a policy is about, besides their kinds. Absent: all. */
export interface MatchScope {
  readonly namespace?: string
  /** A label that the object has, or had before the request. */
  readonly label?: readonly [name: string, value: string]
}

/** The same as constraints(), for several groups, or for some objects only. */
export function matching(rules: readonly MatchRule[], { namespace, label }: MatchScope = {}) {
  const namespaceSelector = namespace === undefined ? {} : { matchLabels: { [NAMESPACE_NAME]: namespace } }
  const objectSelector = label === undefined ? {} : { matchLabels: { [label[0]]: label[1] } }
  const resourceRules = rules.map(({ group, version, resources, operations }) => {
    return { apiGroups: [group], apiVersions: [version], resources, operations, scope: '*' }
  })
  return { matchConstraints: { matchPolicy: 'Equivalent', namespaceSelector, objectSelector, resourceRules } }
}

/** The API server sets this label. */
const NAMESPACE_NAME = 'kubernetes.io/metadata.name'

/** A list of texts in CEL. The texts are constants without quotes. */
export function celList(texts: readonly string[]): string {
  return `[${texts.map((text) => `'${text}'`).join(', ')}]`
}

/** The user name of a part's ServiceAccount. */
export function account(namespace: string, part: PartName): string {
  return accountName(namespace, objectName(part))
}
