/**
 * Rules that RBAC cannot say, as ValidatingAdmissionPolicies. Some hold our own ServiceAccounts to less than their
 * roles let them, one the nodes' accounts, and one the pods of our namespace; two keep the About API's promises
 * (KEP-2149), and one the way out of a clusterset. None of them concerns what an administrator does with objects of
 * other products.
 */
import { ANNOTATION_PUBLIC_ADDRESS, LABEL_GATEWAY, LANE_LEASE_PREFIX } from '../../model/lanes/lanes.ts'
import { MEMBERSHIP_NAME, PROPERTY_CLUSTERSET, PROPERTY_CLUSTER_ID } from '../../model/model.ts'
import { MEMBERSHIP_KIND, account, constraints, policy } from './admission-policy.ts'
import { agentPolicies } from './agent-policies.ts'
import { podPolicies } from './pod-policies.ts'
import type { ManifestObject } from '../values/values.ts'

const NODE_CLAIM = 'authentication.kubernetes.io/node-name'

/** Kubelets get such tokens for their pods since Kubernetes 1.30, which is older than any that we run on. */
const IS_BOUND = `has(request.userInfo.extra) && '${NODE_CLAIM}' in request.userInfo.extra`

/** A node that was broken into speaks for itself alone, and who names no node for none. */
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
            "variables.node == '' ? 'its token does not say on which node it is: a pod writes only the objects of its own'" +
            " : 'a pod on node ' + variables.node + ' writes only the objects of that node'",
        },
      ],
    },
  })
}

/**
 * A gateway takes a lane for its own node and gives up its own, and writes no other Lease: the agents' election is
 * beside them. That it takes one before its time is not prevented; it is a gateway all the same.
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
          message: 'a gateway takes a lane only for the node that it is on, and gives up only its own',
        },
      ],
    },
  })
}

/**
 * A node that was broken into must not make itself a gateway, or move one. NodeRestriction lets a kubelet change these
 * of its own Node, also with its status. At registration it may set them: node pools do.
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
          message: `a node does not change label ${LABEL_GATEWAY}: it does not decide whether it is a gateway`,
        },
        {
          expression: stays('annotations', ANNOTATION_PUBLIC_ADDRESS),
          message: `a node does not change annotation ${ANNOTATION_PUBLIC_ADDRESS}: it does not decide where it is called`,
        },
      ],
    },
  })
}

/**
 * A node speaks for its own cluster alone: nodes of several clusters may have the same name. Two policies, since a
 * gateway that cleans up must not need the Membership, which may be gone before it.
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
 * Deleting the Membership of a member would take its lanes down at once and leave the broker untold. `sealane leave`,
 * also by force, says first that it leaves. A CRD that is deleted takes its objects along without being asked here.
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
 * The id of a cluster stays while it belongs to a clusterset. The agent keeps it right and takes it away at the end.
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

/** The clusterset stays while this cluster is a member; `sealane leave` says that it leaves before it removes it. */
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
