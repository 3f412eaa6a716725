/** Restricts the agent beyond its role, so that a stolen token gives access only to the agent's own objects. */
import { formatPrefix, parsePrefix } from '../../model/addresses/addresses.ts'
import {
  APP_MANAGED_BY_SEALANE,
  CLUSTERSET_IPV6_PREFIX,
  GUARDED_NAMESPACES,
  GUARDED_PREFIXES,
  LABEL_APP_MANAGED_BY,
  LABEL_K8S_SERVICE_NAME,
  LABEL_MANAGED_BY,
  LABEL_SERVICE_NAME,
  LABEL_SOURCE_CLUSTER,
  LEAVE_REQUESTED_ANNOTATION,
  MANAGED_BY_SEALANE,
  MEMBERSHIP_NAME,
  PROPERTY_CLUSTERSET,
  PROPERTY_CLUSTER_ID,
} from '../../model/model.ts'
import { CLUSTER_LEASE_PREFIX } from '../../model/lanes/lanes.ts'
import { MEMBERSHIP_KIND, account, celList, constraints, matching, policy } from './admission-policy.ts'
import { AGENT_LEASE, type ManifestObject, SITE_CONFIG, SITE_KEY } from '../values/values.ts'

function byAgent(namespace: string): object {
  return {
    matchConditions: [{ name: 'agent', expression: `request.userInfo.username == '${account(namespace, 'agent')}'` }],
  }
}

/** RBAC cannot distinguish Sealane's EndpointSlices and ServiceImports from those of others. */
function agentObjects(namespace: string): readonly ManifestObject[] {
  const ours = (object: string, label: string, value: string): string =>
    `(${object} == null || (has(${object}.metadata.labels) && '${label}' in ${object}.metadata.labels && ` +
    `${object}.metadata.labels['${label}'] == '${value}'))`
  const only = (kind: string, label: string, value: string): object => ({
    expression: `${ours('object', label, value)} && ${ours('oldObject', label, value)}`,
    message: `the agent writes only ${kind} with label ${label}=${value}`,
  })
  const all = ['CREATE', 'UPDATE', 'DELETE']
  return [
    ...policy({
      name: 'sealane-agent-slices',
      spec: {
        ...constraints('discovery.k8s.io', '*', ['endpointslices'], all),
        ...byAgent(namespace),
        validations: [
          only('EndpointSlices', LABEL_MANAGED_BY, MANAGED_BY_SEALANE),
          {
            // kube-proxy, cluster DNS and ingress controllers select slices by this label, whichever controller manages
            // the slice.
            expression:
              'object == null || !has(object.metadata.labels) || ' +
              `!('${LABEL_K8S_SERVICE_NAME}' in object.metadata.labels)`,
            message: `the agent writes no EndpointSlice with label ${LABEL_K8S_SERVICE_NAME}: it would belong to a Service`,
          },
          {
            // The name that importedSlice() gives. A policy cannot check the addresses against the source cluster,
            // since it sees one object only.
            expression:
              'object == null || (' +
              `${labelOf(LABEL_SERVICE_NAME)} != '' && ${labelOf(LABEL_SOURCE_CLUSTER)} != '' && ` +
              `object.metadata.name.startsWith(${labelOf(LABEL_SERVICE_NAME)} + '-' + ` +
              `${labelOf(LABEL_SOURCE_CLUSTER)} + '-'))`,
            message:
              `the agent writes only EndpointSlices that are named after the labels ${LABEL_SERVICE_NAME} and ` +
              LABEL_SOURCE_CLUSTER,
          },
        ],
      },
    }),
    ...policy({
      name: 'sealane-agent-imports',
      spec: {
        ...constraints('multicluster.x-k8s.io', '*', ['serviceimports'], all),
        ...byAgent(namespace),
        validations: [only('ServiceImports', LABEL_APP_MANAGED_BY, APP_MANAGED_BY_SEALANE)],
      },
    }),
  ]
}

function labelOf(label: string): string {
  return `object.metadata.?labels[?'${label}'].orValue('')`
}

/**
 * Nodes redirect traffic to the clusterset IP of a ServiceImport. An address outside the range would capture other
 * traffic, such as that to the API server.
 */
function importAddresses(namespace: string): readonly ManifestObject[] {
  const twins = formatPrefix(parsePrefix(CLUSTERSET_IPV6_PREFIX))
  return policy({
    name: 'sealane-agent-import-ips',
    param: { name: MEMBERSHIP_NAME, absent: 'Deny' },
    spec: {
      ...constraints('multicluster.x-k8s.io', '*', ['serviceimports'], ['CREATE', 'UPDATE']),
      paramKind: MEMBERSHIP_KIND,
      ...byAgent(namespace),
      validations: [
        {
          expression:
            'object.spec.?ips.orValue([]).all(one, isIP(one) && (ip(one).family() == 4 ' +
            `? cidr(params.spec.clustersetIpRange).containsIP(one) : cidr('${twins}').containsIP(one)))`,
          messageExpression:
            "'the agent assigns only clusterset IPs to a ServiceImport, from ' + params.spec.clustersetIpRange + " +
            `' and ${twins}'`,
        },
      ],
    },
  })
}

/** Stands for the namespace. */
const WANTED = '@'

/**
 * A regular expression for site files that allow a guarded namespace. CEL cannot read YAML, so it accepts only what can
 * be nothing else, in the form in which `sealane join` writes it: `spec` as a block that is indented by two spaces, with
 * allowedNamespaces as a key of its own and a list of names. All lines before the key must be keys of the site, items,
 * deeper lines, blank lines or comments, so that the key is no part of a text. For RE2.
 */
function allowedPattern(): string {
  const [rest, skip, end] = ['[^\\r\\n]*', ' *(?:#[^\\r\\n]*)?\\n', '(?: *| +#[^\\r\\n]*)']
  const quoted = (name: string): string => `(?:${name}|"${name}"|\\x27${name}\\x27)`
  const [item, wanted] = [quoted('[a-z0-9][a-z0-9-]*'), quoted(WANTED)]
  const space = '(?: |\\n  )*'
  const flow =
    ` +\\[${space}(?:${item}${space},${space})*${wanted}${space}(?:,${space}${item}${space})*` +
    `(?:,${space})?\\]${end}(?:\\n|$)`
  const block = (dash: string): string =>
    `${end}\\n(?:${skip}|${dash}- +${item}${end}\\n)*${dash}- +${wanted}${end}` +
    // A deeper line would belong to the item.
    `(?:$|\\n(?:${skip})*(?: *$|[^ #\\n]|  [^ #\\n]|${dash}-))`
  // A value that is opened on the line of its key ends there, and not with an escaped quote: "a\" and 'a'' go on.
  const text = '"(?:[^"\\\\\\r\\n]|\\\\.)*"|(?:\\x27[^\\x27\\r\\n]*\\x27)+'
  const value = `(?:${text}|\\[${rest}\\]|\\{${rest}\\}|[^ "\\x27\\[{&!\\r\\n]${rest})?`
  const others = `(?:  (?:[A-Za-z]+:|-) *${value}${end}\\n(?:${skip}|   +[^ #\\r\\n]${rest}\\n)*)*`
  const before = `^(?:${skip})*(?:---${end}\\n)?(?:(?:[ #]${rest}|(?:apiVersion|kind|metadata):${rest})?\\n)*`
  return (
    `${before}spec:${end}\\n(?:${skip})*${others}  allowedNamespaces:` +
    `(?:${flow}|${['  ', '    '].map(block).join('|')})`
  )
}

/**
 * Clients trust names in namespaces of the platform and of Sealane. The agent may write there only if the site file,
 * which it cannot write, allows it. Deletion is always allowed, so that objects can be cleaned up.
 */
function guardedNamespaces(namespace: string): readonly ManifestObject[] {
  const operations = ['CREATE', 'UPDATE']
  return policy({
    name: 'sealane-agent-namespaces',
    param: { name: SITE_CONFIG, namespace, absent: 'Deny' },
    spec: {
      ...matching([
        { group: 'discovery.k8s.io', version: '*', resources: ['endpointslices'], operations },
        { group: 'multicluster.x-k8s.io', version: '*', resources: ['serviceimports'], operations },
      ]),
      paramKind: { apiVersion: 'v1', kind: 'ConfigMap' },
      ...byAgent(namespace),
      variables: [
        {
          name: 'allowed',
          // A namespace name has only a-z, 0-9 and -, so it needs no escaping.
          expression:
            `params.data['${SITE_KEY}'].matches(r'${allowedPattern()}'` + `.replace('${WANTED}', request.namespace))`,
        },
      ],
      validations: [
        {
          expression:
            `!(${GUARDED_PREFIXES.map((prefix) => `request.namespace.startsWith('${prefix}')`).join(' || ')} || ` +
            `request.namespace in ${celList([...GUARDED_NAMESPACES, namespace])}) || variables.allowed`,
          messageExpression:
            "'the agent imports nothing into namespace ' + request.namespace + ': it is guarded, and allowedNamespaces " +
            "of the site file, a list with two spaces before its key, does not name it'",
        },
      ],
    },
  })
}

/** The agent's own election, and its Leases for other clusters. Only gateways write the Leases of lanes. */
function agentLeases(namespace: string): readonly ManifestObject[] {
  const name = '(object == null ? oldObject : object).metadata.name'
  return policy({
    name: 'sealane-agent-leases',
    spec: {
      ...constraints('coordination.k8s.io', '*', ['leases'], ['CREATE', 'UPDATE', 'DELETE']),
      ...byAgent(namespace),
      validations: [
        {
          expression: `${name} == '${AGENT_LEASE}' || ${name}.startsWith('${CLUSTER_LEASE_PREFIX}')`,
          message: `the agent writes only the Leases ${AGENT_LEASE} and ${CLUSTER_LEASE_PREFIX}<cluster>`,
        },
      ],
    },
  })
}

/** The agent joins. An administrator requests to leave, and the agent sets the phase once the broker knows. */
function agentMembership(namespace: string): readonly ManifestObject[] {
  const asked = (object: string): string =>
    `(has(${object}.metadata.annotations) && '${LEAVE_REQUESTED_ANNOTATION}' in ${object}.metadata.annotations)`
  return policy({
    name: 'sealane-agent-membership',
    spec: {
      ...constraints('sealane.io', '*', ['memberships'], ['UPDATE']),
      ...byAgent(namespace),
      validations: [
        {
          expression: `object.spec.phase == 'joined' || oldObject.spec.phase != 'joined' || ${asked('oldObject')}`,
          message: 'the agent does not remove this cluster from its clusterset: use sealane leave',
        },
        {
          expression: `!${asked('object')} || ${asked('oldObject')}`,
          message: 'the agent does not request that this cluster leaves its clusterset: use sealane leave',
        },
        {
          // The policy sealane-agent-import-ips relies on these ranges.
          expression:
            "oldObject.spec.phase != 'joined' || (object.spec.clustersetIpRange == oldObject.spec.clustersetIpRange " +
            '&& object.spec.globalRange == oldObject.spec.globalRange)',
          message: 'the agent does not change the ranges of the clusterset of this cluster',
        },
      ],
    },
  })
}

/** RBAC cannot restrict `create` to names. */
function agentProperties(namespace: string): readonly ManifestObject[] {
  const names = [PROPERTY_CLUSTER_ID, PROPERTY_CLUSTERSET]
  return policy({
    name: 'sealane-agent-properties',
    spec: {
      ...constraints('about.k8s.io', '*', ['clusterproperties'], ['CREATE']),
      ...byAgent(namespace),
      validations: [
        {
          expression: `object.metadata.name in ${celList(names)}`,
          message: `the agent creates only the ClusterProperties ${names.join(' and ')}`,
        },
      ],
    },
  })
}

/** The agent may set a silent gateway's conditions to Unknown, but must not write the rest of its status. */
function agentGatewayStatus(namespace: string): readonly ManifestObject[] {
  const same = (field: string): string => `object.status.${field} == oldObject.status.${field}`
  const sameOrNone = (field: string): string => {
    const at = `status.${field}`
    return `has(object.${at}) == has(oldObject.${at}) && (!has(object.${at}) || ${same(field)})`
  }
  return policy({
    name: 'sealane-agent-gateway-status',
    spec: {
      ...constraints('sealane.io', '*', ['gateways/status'], ['UPDATE']),
      ...byAgent(namespace),
      validations: [
        {
          expression:
            `has(object.status) && has(oldObject.status) && ${same('version')} && ${same('lanes')} && ` +
            `${same('connections')} && ${['heartbeatTime', 'up', 'failure', 'failureReason'].map(sameOrNone).join(' && ')}`,
          message: 'the agent writes only conditions of a Gateway: the gateway writes the rest',
        },
      ],
    },
  })
}

export function agentPolicies(namespace: string): readonly ManifestObject[] {
  return [
    ...agentObjects(namespace),
    ...importAddresses(namespace),
    ...guardedNamespaces(namespace),
    ...agentLeases(namespace),
    ...agentMembership(namespace),
    ...agentProperties(namespace),
    ...agentGatewayStatus(namespace),
  ]
}
