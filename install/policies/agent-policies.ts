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
import { ADDITION_KEY, BLOCK_PATTERN } from '../../model/cluster-dns/cluster-dns.ts'
import {
  ANNOTATION_CHOSEN_BY,
  ANNOTATION_PUBLIC_ADDRESS,
  ANY_LANE_VALUE,
  CHOSEN_BY_AGENT,
  CLUSTER_LEASE_PREFIX,
  LABEL_GATEWAY,
} from '../../model/lanes/lanes.ts'
import { ANNOTATION_DERIVED_SERVICE, DERIVED_SUFFIX, LABEL_DERIVED } from '../../model/services/services.ts'
import { MEMBERSHIP_KIND, account, celList, constraints, matching, policy } from './admission-policy.ts'
import {
  AGENT_LEASE,
  IDENTITY_SECRET,
  IDENTITY_SECRET_TYPE,
  type ManifestObject,
  SITE_CONFIG,
  SITE_KEY,
} from '../values/values.ts'

function byAgent(namespace: string): object {
  return {
    matchConditions: [{ name: 'agent', expression: `request.userInfo.username == '${account(namespace, 'agent')}'` }],
  }
}

const SLICES = { group: 'discovery.k8s.io', version: '*', resources: ['endpointslices'] }
const SERVICES = { group: '', version: '*', resources: ['services'] }
const IMPORTS = { group: 'multicluster.x-k8s.io', version: '*', resources: ['serviceimports'] }
/** agentObjects() refuses objects of the agent without these labels, so a policy of labelled objects misses none. */
const OWN_SLICE = [LABEL_MANAGED_BY, MANAGED_BY_SEALANE] as const
const OWN_IMPORT = [LABEL_APP_MANAGED_BY, APP_MANAGED_BY_SEALANE] as const

const OWN_SERVICE = [LABEL_DERIVED, 'true'] as const

/** The variable of derivedNameAllowed(). */
const NAME_PARTS = {
  name: 'parts',
  expression: `namespaceObject.metadata.?annotations[?'${ANNOTATION_DERIVED_SERVICE}'].orValue('').split('*')`,
}

/**
 * Whether a Service may be derived under the name, in CEL. A policy cannot see whether the Service of an EndpointSlice
 * is a user's own, so the name decides: it has the fixed end, or fits the annotation of the Namespace, which the agent
 * cannot write.
 */
function derivedNameAllowed(name: string): string {
  const [start, end] = ['variables.parts[0]', 'variables.parts[1]']
  return (
    `(${name}.endsWith('${DERIVED_SUFFIX}') || (size(variables.parts) == 2 && ${start} + ${end} != '' && ` +
    `${name}.startsWith(${start}) && ` +
    `${name}.endsWith(${end}) && size(${name}) > size(${start}) + size(${end})))`
  )
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
        variables: [NAME_PARTS],
        validations: [
          only('EndpointSlices', LABEL_MANAGED_BY, MANAGED_BY_SEALANE),
          {
            // kube-proxy, cluster DNS and ingress controllers select slices by this label, whichever controller manages
            // the slice.
            expression:
              'object == null || !has(object.metadata.labels) || ' +
              `!('${LABEL_K8S_SERVICE_NAME}' in object.metadata.labels) || (${labelOf(LABEL_DERIVED)} == 'true' && ` +
              `${labelOf(LABEL_SERVICE_NAME)} == '' && ${derivedNameAllowed(labelOf(LABEL_K8S_SERVICE_NAME))})`,
            message:
              `the agent writes EndpointSlices with label ${LABEL_K8S_SERVICE_NAME} only for derived Services, whose ` +
              `names end with ${DERIVED_SUFFIX} or fit annotation ${ANNOTATION_DERIVED_SERVICE} of the Namespace`,
          },
          {
            // The names that importedSlice() and derivedSlice() give. A policy cannot check the addresses against the
            // source cluster, since it sees one object only.
            expression:
              `object == null || [${labelOf(LABEL_SERVICE_NAME)}, ${labelOf(LABEL_K8S_SERVICE_NAME)}].exists(one, ` +
              `one != '' && ${labelOf(LABEL_SOURCE_CLUSTER)} != '' && ` +
              `object.metadata.name.startsWith(one + '-' + ${labelOf(LABEL_SOURCE_CLUSTER)} + '-'))`,
            message:
              `the agent writes only EndpointSlices that are named after the labels ${LABEL_SERVICE_NAME} or ` +
              `${LABEL_K8S_SERVICE_NAME}, and ${LABEL_SOURCE_CLUSTER}`,
          },
        ],
      },
    }),
    ...policy({
      name: 'sealane-agent-services',
      spec: {
        ...constraints('', '*', ['services'], all),
        ...byAgent(namespace),
        variables: [NAME_PARTS],
        validations: [
          only('Services', ...OWN_SERVICE),
          {
            // A selector, an external name or an external address would take traffic to where no import leads.
            expression:
              "object == null || (object.spec.?type.orValue('ClusterIP') == 'ClusterIP' && " +
              'size(object.spec.?selector.orValue({})) == 0 && size(object.spec.?externalIPs.orValue([])) == 0)',
            message: 'the agent writes only Services of type ClusterIP without selector and externalIPs',
          },
          {
            expression: `object == null || ${derivedNameAllowed('object.metadata.name')}`,
            message:
              `the agent writes only Services whose names end with ${DERIVED_SUFFIX} or fit annotation ` +
              `${ANNOTATION_DERIVED_SERVICE} of the Namespace`,
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
      ...matching([{ ...IMPORTS, operations: ['CREATE', 'UPDATE'] }], { label: OWN_IMPORT }),
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
  const rows = [
    { name: 'sealane-agent-namespaces', rule: SLICES, label: OWN_SLICE },
    { name: 'sealane-agent-import-namespaces', rule: IMPORTS, label: OWN_IMPORT },
    { name: 'sealane-agent-service-namespaces', rule: SERVICES, label: OWN_SERVICE },
  ]
  return rows.flatMap(({ name, rule, label }) =>
    policy({
      name,
      param: { name: SITE_CONFIG, namespace, absent: 'Deny' },
      spec: {
        ...matching([{ ...rule, operations: ['CREATE', 'UPDATE'] }], { label }),
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
    }),
  )
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
            `${same('connections')} && ${['relays', 'heartbeatTime', 'up', 'failure', 'failureReason'].map(sameOrNone).join(' && ')}`,
          message: 'the agent writes only conditions of a Gateway: the gateway writes the rest',
        },
      ],
    },
  })
}

/** Every `bind` line of the text `added` is also a line of the text `before`, where a comment may follow it. */
function bindsAreThere(added: string, before: string): string {
  const isSame = "b.trim() == line.trim() || b.trim().startsWith(line.trim() + ' #')"
  return (
    `${added}.split('\\n').all(line, !line.startsWith('    bind') || ` + `${before}.split('\\n').exists(b, ${isSame}))`
  )
}

/**
 * A stolen token must not redirect the names of a whole cluster, and must not write what CoreDNS would refuse to start
 * with: to a Corefile the agent only adds its own block at the end, and it changes nothing else of a ConfigMap. Two
 * forms are admitted, each with the text of BLOCK_PATTERN: a block at the end of a value that has none, on lines of its
 * own, whose `bind` lines the value has already; and a new key of additions. Keys that a Corefile imports inside a
 * server block (`*.override`) are no place for a block.
 */
function agentClusterDns(namespace: string): readonly ManifestObject[] {
  const [before, after] = ['oldObject.?data.orValue({})[k]', 'object.?data.orValue({})[k]']
  const had = 'k in oldObject.?data.orValue({})'
  const added = `${after}.substring(size(${before}))`
  return policy({
    name: 'sealane-agent-cluster-dns',
    spec: {
      ...constraints('', '*', ['configmaps'], ['CREATE', 'UPDATE', 'DELETE']),
      ...byAgent(namespace),
      validations: [
        {
          expression: 'object != null && oldObject != null',
          message: 'the agent creates and deletes no ConfigMap',
        },
        {
          expression:
            'object == null || oldObject == null || (' +
            'oldObject.?data.orValue({}).all(k, k in object.?data.orValue({})) && ' +
            `object.?data.orValue({}).all(k, ${had} ? (${after} == ${before} || (${after}.startsWith(${before}) && ` +
            `!k.endsWith('.override') && !${before}.contains('# sealane begin') && ` +
            `${before}.endsWith('\\n') != ${added}.startsWith('\\n') && ` +
            `${added}.matches(r'${BLOCK_PATTERN}') && ${bindsAreThere(added, before)})) ` +
            `: (k == '${ADDITION_KEY}' && ${after}.matches(r'${BLOCK_PATTERN}'))) && ` +
            'object.?binaryData.orValue({}) == oldObject.?binaryData.orValue({}))',
          message: "the agent only adds Sealane's block to a ConfigMap",
        },
        {
          expression:
            'object == null || oldObject == null || (' +
            'object.?immutable.orValue(false) == oldObject.?immutable.orValue(false) && ' +
            'object.metadata.?labels.orValue({}) == oldObject.metadata.?labels.orValue({}) && ' +
            'object.metadata.?annotations.orValue({}) == oldObject.metadata.?annotations.orValue({}) && ' +
            'object.metadata.?ownerReferences.orValue([]) == oldObject.metadata.?ownerReferences.orValue([]) && ' +
            'object.metadata.?finalizers.orValue([]) == oldObject.metadata.?finalizers.orValue([]))',
          message: "the agent only adds Sealane's block to a ConfigMap",
        },
      ],
    },
  })
}

/**
 * The agent makes a node a gateway by a label and two annotations. RBAC cannot restrict a patch of Nodes to them. It can
 * take no gateway's label away, and can give a node no public address that the node does not have.
 */
function agentNodes(namespace: string): readonly ManifestObject[] {
  const map = (object: string, field: 'labels' | 'annotations'): string => `${object}.metadata.?${field}.orValue({})`
  const sameBut = (field: 'labels' | 'annotations', own: readonly string[]): string => {
    const [now, before] = [map('object', field), map('oldObject', field)]
    const isOwn = `key in ${celList(own)}`
    return (
      `${now}.all(key, ${isOwn} || (key in ${before} && ${before}[key] == ${now}[key])) && ` +
      `${before}.all(key, ${isOwn} || key in ${now})`
    )
  }
  const value = (object: string, field: 'labels' | 'annotations', key: string): string =>
    `${object}.metadata.?${field}[?'${key}']`
  const keepsOr = (field: 'labels' | 'annotations', key: string, isAllowed: string): string =>
    `${value('object', field, key)} == ${value('oldObject', field, key)} || (${isAllowed})`
  const isSet = (field: 'labels' | 'annotations', key: string, text: string): string =>
    `${value('object', field, key)}.orValue('') == '${text}'`
  const address = value('object', 'annotations', ANNOTATION_PUBLIC_ADDRESS)
  return policy({
    name: 'sealane-agent-nodes',
    spec: {
      ...constraints('', '*', ['nodes'], ['UPDATE']),
      ...byAgent(namespace),
      validations: [
        {
          expression:
            `${sameBut('labels', [LABEL_GATEWAY])} && ` +
            `${sameBut('annotations', [ANNOTATION_CHOSEN_BY, ANNOTATION_PUBLIC_ADDRESS])} && ` +
            'object.spec == oldObject.spec && ' +
            'object.metadata.?finalizers == oldObject.metadata.?finalizers && ' +
            'object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences',
          message:
            `the agent changes only label ${LABEL_GATEWAY} and annotations ${ANNOTATION_CHOSEN_BY} and ` +
            `${ANNOTATION_PUBLIC_ADDRESS} of a Node`,
        },
        {
          expression: keepsOr(
            'labels',
            LABEL_GATEWAY,
            `!${value('oldObject', 'labels', LABEL_GATEWAY)}.hasValue() && ${isSet('labels', LABEL_GATEWAY, ANY_LANE_VALUE)}`,
          ),
          message: `the agent sets label ${LABEL_GATEWAY} to ${ANY_LANE_VALUE} where a Node has none, and changes no other one`,
        },
        {
          expression: keepsOr(
            'annotations',
            ANNOTATION_CHOSEN_BY,
            isSet('annotations', ANNOTATION_CHOSEN_BY, CHOSEN_BY_AGENT),
          ),
          message: `the agent sets annotation ${ANNOTATION_CHOSEN_BY} to ${CHOSEN_BY_AGENT} only`,
        },
        {
          expression: keepsOr(
            'annotations',
            ANNOTATION_PUBLIC_ADDRESS,
            `${address}.hasValue() && object.status.?addresses.orValue([]).exists(one, ` +
              `one.type == 'ExternalIP' && one.address == ${address}.orValue(''))`,
          ),
          message: `the agent sets annotation ${ANNOTATION_PUBLIC_ADDRESS} to an ExternalIP of the Node only`,
        },
      ],
    },
  })
}

/**
 * The agent may create Secrets: in a join without a command, no other program creates that of the identity. With the type
 * of a ServiceAccount's token, the Secret would give the agent the rights of another account.
 */
function agentIdentity(namespace: string): readonly ManifestObject[] {
  return policy({
    name: 'sealane-agent-identity',
    spec: {
      ...constraints('', '*', ['secrets'], ['CREATE']),
      ...byAgent(namespace),
      validations: [
        {
          expression: `object.metadata.name == '${IDENTITY_SECRET}' && object.?type.orValue('') == '${IDENTITY_SECRET_TYPE}'`,
          message: `the agent creates only Secret ${IDENTITY_SECRET}, with type ${IDENTITY_SECRET_TYPE}`,
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
    ...agentClusterDns(namespace),
    ...agentNodes(namespace),
    ...agentIdentity(namespace),
  ]
}
