/**
 * Rules that RBAC cannot say, as ValidatingAdmissionPolicies. Two hold our own ServiceAccounts to less than their roles
 * let them; two keep the About API's promises (KEP-2149). None of them judges what an administrator does with objects
 * of other products.
 */
import {
  LABEL_MANAGED_BY,
  MANAGED_BY_SEALANE,
  PROPERTY_CLUSTERSET,
  PROPERTY_CLUSTER_ID,
} from '../model/spec-constants.ts'
import type { ManifestObject } from './manifest-object.ts'
import { type PartName, objectName, partLabels } from './names.ts'

const GROUP = 'admissionregistration.k8s.io'

interface PolicyInit {
  readonly name: string
  readonly spec: Readonly<Record<string, unknown>>
  /** Object that the rules may look at as `params`; without it there is nothing to keep. */
  readonly param?: string
}

function policy({ name, spec, param }: PolicyInit): readonly ManifestObject[] {
  const metadata = { name, labels: partLabels('policies') }
  const paramRef = param === undefined ? {} : { paramRef: { name: param, parameterNotFoundAction: 'Allow' } }
  return [
    {
      apiVersion: `${GROUP}/v1`,
      kind: 'ValidatingAdmissionPolicy',
      metadata,
      // Where the kind of the parameter is gone, nothing is left to keep, and nobody must be locked out.
      spec: { failurePolicy: param === undefined ? 'Fail' : 'Ignore', ...spec },
    },
    {
      apiVersion: `${GROUP}/v1`,
      kind: 'ValidatingAdmissionPolicyBinding',
      metadata,
      spec: { policyName: name, validationActions: ['Deny'], ...paramRef },
    },
  ]
}

function constraints(group: string, version: string, resources: readonly string[], operations: readonly string[]) {
  return {
    matchConstraints: { resourceRules: [{ apiGroups: [group], apiVersions: [version], resources, operations }] },
  }
}

function account(namespace: string, part: PartName): string {
  return `system:serviceaccount:${namespace}:${objectName(part)}`
}

/** RBAC cannot tell our EndpointSlices from those of other controllers. */
function agentSlices(namespace: string): readonly ManifestObject[] {
  const ours = (object: string): string =>
    `(has(${object}.metadata.labels) && '${LABEL_MANAGED_BY}' in ${object}.metadata.labels && ` +
    `${object}.metadata.labels['${LABEL_MANAGED_BY}'] == '${MANAGED_BY_SEALANE}')`
  return policy({
    name: 'sealane-agent-slices',
    spec: {
      ...constraints('discovery.k8s.io', '*', ['endpointslices'], ['CREATE', 'UPDATE', 'DELETE']),
      matchConditions: [{ name: 'agent', expression: `request.userInfo.username == '${account(namespace, 'agent')}'` }],
      validations: [
        {
          expression: `(object == null || ${ours('object')}) && (oldObject == null || ${ours('oldObject')})`,
          message: `the agent writes only EndpointSlices with label ${LABEL_MANAGED_BY}=${MANAGED_BY_SEALANE}`,
        },
      ],
    },
  })
}

const NODE_CLAIM = 'authentication.kubernetes.io/node-name'

/** A node that was broken into speaks for itself alone. Tokens say since Kubernetes 1.30 on which node they are. */
function nodeWrites(namespace: string): readonly ManifestObject[] {
  const accounts = (['gateway', 'routeagent'] as const).map((part) => `'${account(namespace, part)}'`).join(', ')
  return policy({
    name: 'sealane-node-writes',
    spec: {
      ...constraints(
        'sealane.io',
        '*',
        ['endpoints', 'gateways', 'gateways/status', 'routeagents', 'routeagents/status'],
        ['CREATE', 'UPDATE', 'DELETE'],
      ),
      matchConditions: [
        { name: 'node-part', expression: `request.userInfo.username in [${accounts}]` },
        {
          name: 'bound-token',
          expression: `has(request.userInfo.extra) && '${NODE_CLAIM}' in request.userInfo.extra`,
        },
      ],
      variables: [
        { name: 'node', expression: `request.userInfo.extra['${NODE_CLAIM}'][0]` },
        { name: 'about', expression: 'object == null ? oldObject : object' },
      ],
      validations: [
        {
          expression:
            "request.resource.resource == 'endpoints' ? variables.about.spec.node == variables.node" +
            ' : variables.about.metadata.name == variables.node',
          messageExpression: "'a pod on node ' + variables.node + ' writes only the objects of that node'",
        },
      ],
    },
  })
}

/** The id of a cluster stays while it belongs to a clusterset. The agent keeps it right and takes it away at the end. */
function aboutId(namespace: string): readonly ManifestObject[] {
  return policy({
    name: 'sealane-about-id',
    param: PROPERTY_CLUSTERSET,
    spec: {
      ...constraints('about.k8s.io', '*', ['clusterproperties'], ['UPDATE', 'DELETE']),
      paramKind: { apiVersion: 'about.k8s.io/v1beta1', kind: 'ClusterProperty' },
      matchConditions: [
        { name: 'id', expression: `request.name == '${PROPERTY_CLUSTER_ID}'` },
        { name: 'not-the-agent', expression: `request.userInfo.username != '${account(namespace, 'agent')}'` },
      ],
      validations: [
        {
          expression: 'object != null && object.spec.value == oldObject.spec.value',
          messageExpression:
            `'${PROPERTY_CLUSTER_ID} must not change while this cluster is a member of clusterset ' + params.spec.value` +
            " + ': leave it first with sealane leave'",
        },
      ],
    },
  })
}

/** The clusterset stays while this cluster is a member; `sealane leave` says that it leaves before it removes it. */
function aboutClusterset(): readonly ManifestObject[] {
  return policy({
    name: 'sealane-about-clusterset',
    param: 'self',
    spec: {
      ...constraints('about.k8s.io', '*', ['clusterproperties'], ['UPDATE', 'DELETE']),
      paramKind: { apiVersion: 'sealane.io/v1alpha1', kind: 'Membership' },
      matchConditions: [{ name: 'clusterset', expression: `request.name == '${PROPERTY_CLUSTERSET}'` }],
      validations: [
        {
          expression:
            "params.spec.phase != 'joined' || oldObject.spec.value != params.spec.clusterset || " +
            '(object != null && object.spec.value == oldObject.spec.value)',
          message: `${PROPERTY_CLUSTERSET} must not change while this cluster is a member: leave first with sealane leave`,
        },
      ],
    },
  })
}

export function memberPolicies(namespace: string): readonly ManifestObject[] {
  return [...agentSlices(namespace), ...nodeWrites(namespace), ...aboutId(namespace), ...aboutClusterset()]
}
