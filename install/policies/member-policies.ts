/**
 * Defines rules that RBAC cannot express, as ValidatingAdmissionPolicies. Some restrict Sealane's own ServiceAccounts
 * beyond their roles, one restricts the nodes' accounts, and one the pods of Sealane's namespace. Two enforce the About
 * API (KEP-2149), and one the way to leave a clusterset. None of them restricts what an administrator does with objects
 * of other products.
 */
import {
  ANNOTATION_CHOSEN_BY,
  ANNOTATION_LISTEN_PORT,
  ANNOTATION_PUBLIC_ADDRESS,
  ANNOTATION_PUBLIC_PORT,
  ANNOTATION_PORT_MAPPING,
  ANNOTATION_RELAY,
  LABEL_GATEWAY,
  LANE_LEASE_PREFIX,
} from '../../model/lanes/lanes.ts'
import { MEMBERSHIP_NAME, PROPERTY_CLUSTERSET, PROPERTY_CLUSTER_ID } from '../../model/model.ts'
import { MEMBERSHIP_KIND, account, constraints, policy } from './admission-policy.ts'
import { agentPolicies } from './agent-policies.ts'
import { podPolicies } from './pod-policies.ts'
import type { ManifestObject } from '../values/values.ts'

const NODE_CLAIM = 'authentication.kubernetes.io/node-name'

/** Kubelets get such tokens for their pods since Kubernetes 1.30, and all supported releases are newer. */
const IS_BOUND = `has(request.userInfo.extra) && '${NODE_CLAIM}' in request.userInfo.extra`

/** A compromised node can write only its own objects. A token without a node name can write none. */
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
      matchConditions: [{ name: 'node-part', expression: `request.userInfo.username in [${accounts}]` }],
      variables: [
        // No Node has an empty name.
        { name: 'node', expression: `${IS_BOUND} ? request.userInfo.extra['${NODE_CLAIM}'][0] : ''` },
        { name: 'about', expression: 'object == null ? oldObject : object' },
      ],
      validations: [
        {
          expression:
            "request.resource.resource == 'endpoints' ? variables.about.spec.node == variables.node" +
            ' : variables.about.metadata.name == variables.node',
          messageExpression:
            "variables.node == '' ? 'its token does not name its node: a pod writes only the objects of its own node'" +
            " : 'a pod on node ' + variables.node + ' writes only the objects of that node'",
        },
      ],
    },
  })
}

/**
 * A gateway can take a lane only for its own node, can release only its own lane, and can write no other Lease, such as
 * that of the agents' election. The policy does not prevent that a gateway takes a lane before the Lease has expired.
 */
function laneLeases(namespace: string): readonly ManifestObject[] {
  const holder = (object: string): string => `(has(${object}.spec.holderIdentity) ? ${object}.spec.holderIdentity : '')`
  const own = `request.userInfo.extra['${NODE_CLAIM}'][0]`
  return policy({
    name: 'sealane-lane-leases',
    spec: {
      ...constraints('coordination.k8s.io', '*', ['leases'], ['CREATE', 'UPDATE']),
      matchConditions: [
        { name: 'gateway', expression: `request.userInfo.username == '${account(namespace, 'gateway')}'` },
      ],
      validations: [
        {
          expression: `object.metadata.name.matches('^${LANE_LEASE_PREFIX}[0-9]{1,3}$')`,
          message: `a gateway writes only the Leases of lanes, ${LANE_LEASE_PREFIX}<number>`,
        },
        {
          expression:
            `${IS_BOUND} && (${holder('object')} == ${own} || ` +
            `(${holder('object')} == '' && oldObject != null && ${holder('oldObject')} == ${own}))`,
          message: 'a gateway takes a lane only for its own node, and releases only its own lane',
        },
      ],
    },
  })
}

/**
 * A compromised node must not make itself a gateway or move one. NodeRestriction lets a kubelet change this label and
 * annotation of its own Node, also together with the status. At registration the kubelet may set them, as node pools
 * do.
 */
function gatewayLabel(): readonly ManifestObject[] {
  const held = (object: string, map: 'labels' | 'annotations', key: string): string => {
    const at = `${object}.metadata.${map}`
    return `(has(${at}) && '${key}' in ${at} ? [${at}['${key}']] : [])`
  }
  const stays = (map: 'labels' | 'annotations', key: string): string =>
    `${held('object', map, key)} == ${held('oldObject', map, key)}`
  return policy({
    name: 'sealane-gateway-label',
    spec: {
      ...constraints('', 'v1', ['nodes', 'nodes/status'], ['UPDATE']),
      matchConditions: [
        { name: 'a-node', expression: "has(request.userInfo.groups) && 'system:nodes' in request.userInfo.groups" },
      ],
      validations: [
        {
          expression: stays('labels', LABEL_GATEWAY),
          message: `a node must not change label ${LABEL_GATEWAY}: it does not decide whether it is a gateway`,
        },
        {
          expression: stays('annotations', ANNOTATION_CHOSEN_BY),
          message: `a node must not change annotation ${ANNOTATION_CHOSEN_BY}: it does not decide whether it is replaced`,
        },
        ...[
          [ANNOTATION_PUBLIC_ADDRESS, 'public address'],
          [ANNOTATION_PUBLIC_PORT, 'public ports'],
          [ANNOTATION_LISTEN_PORT, 'listen ports'],
          [ANNOTATION_RELAY, 'offer to relay'],
          [ANNOTATION_PORT_MAPPING, 'questions to routers'],
        ].map(([key = '', what = '']) => ({
          expression: stays('annotations', key),
          message: `a node must not change annotation ${key}: it does not decide its ${what}`,
        })),
      ],
    },
  })
}

/**
 * A node can write only Endpoints of its own cluster, since nodes of several clusters may have the same name. Two
 * policies, since a gateway must be able to clean up after the Membership is gone.
 */
function endpointCluster(namespace: string): readonly ManifestObject[] {
  const rows = [
    { name: 'sealane-endpoint-cluster', operations: ['CREATE', 'UPDATE'], absent: 'Deny' },
    { name: 'sealane-endpoint-removal', operations: ['DELETE'], absent: 'Allow' },
  ] as const
  const isOwn = (object: string): string => `(${object} == null || ${object}.spec.cluster == params.spec.clusterId)`
  return rows.flatMap(({ name, operations, absent }) =>
    policy({
      name,
      param: { name: MEMBERSHIP_NAME, absent },
      spec: {
        ...constraints('sealane.io', '*', ['endpoints'], operations),
        paramKind: MEMBERSHIP_KIND,
        matchConditions: [
          { name: 'gateway', expression: `request.userInfo.username == '${account(namespace, 'gateway')}'` },
        ],
        validations: [
          {
            expression: `${isOwn('object')} && ${isOwn('oldObject')}`,
            messageExpression: "'a gateway writes only the Endpoints of its own cluster, ' + params.spec.clusterId",
          },
        ],
      },
    }),
  )
}

/**
 * Deleting the Membership of a member would take its lanes down at once without notifying the broker. `sealane leave`
 * first sets the phase to leaving, also with --force. Deleting the CRD deletes its objects without this check.
 */
function membershipStays(): readonly ManifestObject[] {
  return policy({
    name: 'sealane-membership',
    spec: {
      ...constraints('sealane.io', '*', ['memberships'], ['DELETE']),
      validations: [
        {
          expression: `oldObject.metadata.name != '${MEMBERSHIP_NAME}' || oldObject.spec.phase != 'joined'`,
          messageExpression:
            "'this cluster is a member of clusterset ' + oldObject.spec.clusterset + ': leave first with sealane leave'",
        },
      ],
    },
  })
}

/**
 * The cluster id cannot change while the cluster belongs to a clusterset. The agent maintains the property and removes
 * it at the end.
 */
function aboutId(namespace: string): readonly ManifestObject[] {
  return policy({
    name: 'sealane-about-id',
    param: { name: PROPERTY_CLUSTERSET, absent: 'Allow' },
    spec: {
      ...constraints('about.k8s.io', '*', ['clusterproperties'], ['UPDATE', 'DELETE']),
      paramKind: { apiVersion: 'about.k8s.io/v1beta1', kind: 'ClusterProperty' },
      matchConditions: [
        { name: 'id', expression: `oldObject.metadata.name == '${PROPERTY_CLUSTER_ID}'` },
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

/**
 * The clusterset cannot change while this cluster is a member. `sealane leave` sets the phase to leaving before it is
 * removed.
 */
function aboutClusterset(): readonly ManifestObject[] {
  return policy({
    name: 'sealane-about-clusterset',
    param: { name: MEMBERSHIP_NAME, absent: 'Allow' },
    spec: {
      ...constraints('about.k8s.io', '*', ['clusterproperties'], ['UPDATE', 'DELETE']),
      paramKind: MEMBERSHIP_KIND,
      matchConditions: [{ name: 'clusterset', expression: `oldObject.metadata.name == '${PROPERTY_CLUSTERSET}'` }],
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
  return [
    ...agentPolicies(namespace),
    ...podPolicies(namespace),
    ...nodeWrites(namespace),
    ...laneLeases(namespace),
    ...gatewayLabel(),
    ...endpointCluster(namespace),
    ...membershipStays(),
    ...aboutId(namespace),
    ...aboutClusterset(),
  ]
}
