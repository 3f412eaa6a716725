/**
 * Restricts the pods in Sealane's namespace other than the node parts. A namespace has only one Pod Security level, and
 * gateway and route agent need the node's network: so it is `privileged`, and this policy decides which pod may use
 * which privilege (docs/decisions/0085-who-is-privileged-in-our-namespace.md).
 */
import { type ManifestObject, objectName } from '../values/values.ts'
import { NODE_PATHS } from '../workloads/workloads.ts'
import { celList, matching, policy } from './admission-policy.ts'

const NODE_ACCOUNTS = (['gateway', 'routeagent'] as const).map((part) => objectName(part))

/** The volume types that Pod Security `restricted` allows. */
const VOLUMES = [
  ...['configMap', 'csi', 'downwardAPI', 'emptyDir', 'ephemeral', 'persistentVolumeClaim', 'projected', 'secret'],
]
const SELINUX_TYPES = ['', 'container_t', 'container_init_t', 'container_kvm_t', 'container_engine_t']
/** The type that may write on the node, where that is SELinux's decision (values.platform.seLinuxOptions). */
const NODE_SELINUX_TYPE = 'spc_t'

/** CEL rules for the security contexts of pods and containers. Each is true if the field is not set. */
const PLAIN_SELINUX =
  `((one.?seLinuxOptions.?type.orValue('') in ${celList(SELINUX_TYPES)} || ` +
  `(variables.onNode && one.?seLinuxOptions.?type.orValue('') == '${NODE_SELINUX_TYPE}')) && ` +
  `one.?seLinuxOptions.?user.orValue('') == '' && one.?seLinuxOptions.?role.orValue('') == '')`
const CONFINED =
  "one.?seccompProfile.?type.orValue('RuntimeDefault') != 'Unconfined' && " +
  "one.?appArmorProfile.?type.orValue('RuntimeDefault') != 'Unconfined'"

const VARIABLES = [
  {
    name: 'containers',
    expression:
      'object.spec.containers.map(one, dyn(one)) + ' +
      'object.spec.?initContainers.orValue([]).map(one, dyn(one)) + ' +
      'object.spec.?ephemeralContainers.orValue([]).map(one, dyn(one))',
  },
  {
    // The account alone is not enough, since a user who can create pods here can name any account.
    name: 'onNode',
    expression:
      `object.spec.?serviceAccountName.orValue('') in ${celList(NODE_ACCOUNTS)} && ` +
      'object.metadata.?ownerReferences.orValue([]).exists(one, ' +
      "one.kind == 'DaemonSet' && one.name == object.spec.serviceAccountName)",
  },
  {
    name: 'contexts',
    expression:
      '[dyn(object.spec.?securityContext.orValue({}))] + ' +
      'variables.containers.map(one, dyn(one.?securityContext.orValue({})))',
  },
]

const ELSE = 'only the DaemonSets of gateway and routeagent'

/** CEL rules, with the message for a pod that violates one. */
const VALIDATIONS = [
  {
    expression:
      '(variables.onNode || !object.spec.?hostNetwork.orValue(false)) && ' +
      '!object.spec.?hostPID.orValue(false) && !object.spec.?hostIPC.orValue(false)',
    message: `hostNetwork is allowed for ${ELSE}; hostPID and hostIPC are not allowed in this namespace`,
  },
  {
    expression:
      'variables.onNode || variables.containers.all(one, ' +
      'one.?ports.orValue([]).all(port, port.?hostPort.orValue(0) == 0))',
    message: `hostPort is allowed for ${ELSE}`,
  },
  {
    expression:
      'object.spec.?volumes.orValue([]).all(one, has(one.hostPath) ? ' +
      `variables.onNode && one.hostPath.path in ${celList(NODE_PATHS)} : ` +
      `(${VOLUMES.map((kind) => `has(one.${kind})`).join(' || ')}))`,
    message: `a hostPath volume is allowed for ${ELSE}, with these paths: ${NODE_PATHS.join(', ')}; other volumes must be of restricted kinds`,
  },
  {
    expression:
      'variables.containers.all(one, !one.?securityContext.?privileged.orValue(false) && ' +
      '!one.?securityContext.?allowPrivilegeEscalation.orValue(true) && ' +
      "one.?securityContext.?procMount.orValue('Default') == 'Default')",
    message: 'every container here needs allowPrivilegeEscalation: false, and must not be privileged or set procMount',
  },
  {
    expression:
      "variables.containers.all(one, 'ALL' in one.?securityContext.?capabilities.?drop.orValue([]) && " +
      'one.?securityContext.?capabilities.?add.orValue([]).all(name, ' +
      "name == (variables.onNode ? 'NET_ADMIN' : 'NET_BIND_SERVICE')))",
    message: `every container here must drop ALL capabilities; NET_ADMIN is allowed for ${ELSE}`,
  },
  {
    expression:
      'variables.onNode || (variables.contexts.all(one, one.?runAsUser.orValue(1) != 0) && ' +
      'variables.containers.all(one, one.?securityContext.?runAsNonRoot.orValue(' +
      'object.spec.?securityContext.?runAsNonRoot.orValue(false))))',
    message: `runAsNonRoot: true is required; root is allowed for ${ELSE}`,
  },
  {
    expression:
      `variables.contexts.all(one, ${CONFINED}) && variables.containers.all(one, ` +
      "one.?securityContext.?seccompProfile.?type.orValue(object.spec.?securityContext.?seccompProfile.?type.orValue('')) " +
      "!= '')",
    message:
      'every container here needs seccompProfile RuntimeDefault or Localhost, and must not set AppArmor profile Unconfined',
  },
  {
    expression:
      `variables.contexts.all(one, ${PLAIN_SELINUX} && !one.?windowsOptions.?hostProcess.orValue(false)) && ` +
      'object.spec.?securityContext.?sysctls.orValue([]).size() == 0',
    message:
      'pods here must not set sysctls, a host process, or their own SELinux user, role or type; ' +
      `type ${NODE_SELINUX_TYPE} is allowed for ${ELSE}`,
  },
]

export function podPolicies(namespace: string): readonly ManifestObject[] {
  const of = { group: '', version: 'v1', resources: ['pods', 'pods/ephemeralcontainers'] }
  return policy({
    name: 'sealane-pods',
    spec: {
      ...matching([{ ...of, operations: ['CREATE', 'UPDATE'] }], { namespace }),
      matchConditions: [
        // Other updates cannot change what the rules check, and must be possible for older pods, which need label
        // changes and removal.
        {
          name: 'new-or-debugged',
          expression:
            "request.operation == 'CREATE' || (has(request.subResource) && request.subResource == 'ephemeralcontainers')",
        },
      ],
      variables: VARIABLES,
      validations: VALIDATIONS,
    },
  })
}
