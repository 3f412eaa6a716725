/** ValidatingAdmissionPolicies in short, each with the binding that puts it in force. */
import { type ManifestObject, type PartName, objectName, partLabels } from '../values/values.ts'

const GROUP = 'admissionregistration.k8s.io'

/** Of the parameter that says what this cluster is a member of. */
export const MEMBERSHIP_KIND = { apiVersion: 'sealane.io/v1alpha1', kind: 'Membership' }

export interface PolicyInit {
  readonly name: string
  readonly spec: Readonly<Record<string, unknown>>
  /** Object that the rules may look at as `params`. */
  readonly param?: {
    readonly name: string
    /** Of one that is in a namespace. */
    readonly namespace?: string
    /**
     * Allow: without it there is nothing to keep, and nobody is locked out. Deny: nothing may be done before it is
     * there.
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
      // Where the kind of the parameter is gone, it is as where the parameter is.
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

/** With what the server would fill in: it owns these as a whole, so a later apply must say the same. */
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

/** As constraints(), of several groups, or of one namespace only. */
export function matching(rules: readonly MatchRule[], namespace?: string) {
  const namespaceSelector = namespace === undefined ? {} : { matchLabels: { [NAMESPACE_NAME]: namespace } }
  const resourceRules = rules.map(({ group, version, resources, operations }) => {
    return { apiGroups: [group], apiVersions: [version], resources, operations, scope: '*' }
  })
  return { matchConstraints: { matchPolicy: 'Equivalent', namespaceSelector, objectSelector: {}, resourceRules } }
}

/** The API server sees to it that it is right. */
const NAMESPACE_NAME = 'kubernetes.io/metadata.name'

/** A list of texts as CEL has it. The texts are ours and have no quotes. */
export function celList(texts: readonly string[]): string {
  return `[${texts.map((text) => `'${text}'`).join(', ')}]`
}

/** How the API server calls the account of a part. */
export function account(namespace: string, part: PartName): string {
  return `system:serviceaccount:${namespace}:${objectName(part)}`
}
