/** ValidatingAdmissionPolicies in short, each with the binding that puts it in force. */
import type { ManifestObject } from '../manifest-object.ts'
import { type PartName, objectName, partLabels } from '../names.ts'

const GROUP = 'admissionregistration.k8s.io'

export interface PolicyInit {
  readonly name: string
  readonly spec: Readonly<Record<string, unknown>>
  /** Object that the rules may look at as `params`. */
  readonly param?: {
    readonly name: string
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
  const paramRef = param === undefined ? {} : { paramRef: { name: param.name, parameterNotFoundAction: param.absent } }
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
  const rule = { apiGroups: [group], apiVersions: [version], resources, operations, scope: '*' }
  return {
    matchConstraints: {
      matchPolicy: 'Equivalent',
      namespaceSelector: {},
      objectSelector: {},
      resourceRules: [rule],
    },
  }
}

/** How the API server calls the account of a part. */
export function account(namespace: string, part: PartName): string {
  return `system:serviceaccount:${namespace}:${objectName(part)}`
}
