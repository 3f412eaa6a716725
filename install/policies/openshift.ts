/**
 * What OpenShift needs to admit our pods: its SecurityContextConstraints (security.openshift.io/v1) refuse every pod
 * that asks for more than one of those that its ServiceAccount may use. New accounts may use `restricted-v2` only, which
 * also refuses a fixed user id.
 */
import { type ManifestObject, type PartName, objectName, partLabels } from '../values/values.ts'
import { SCC } from '../workloads/workloads.ts'
import { RBAC_GROUP } from './member-access.ts'

export const SCC_GROUP = 'security.openshift.io'

/** OpenShift has a ClusterRole for each of its own constraints. */
const UNPRIVILEGED_ROLE = `system:openshift:scc:${SCC.unprivileged}`

/**
 * Lets these parts, which need no privileges, keep their fixed user id. RoleBindings only, since a permission to use
 * constraints is checked in the namespace of the pod.
 */
export function constraintsAccess(
  parts: readonly [PartName, ...PartName[]],
  namespace: string,
): readonly ManifestObject[] {
  const [first] = parts
  return [
    {
      apiVersion: `${RBAC_GROUP}/v1`,
      kind: 'RoleBinding',
      metadata: { name: `${objectName(first)}-scc`, namespace, labels: partLabels(first) },
      roleRef: { apiGroup: RBAC_GROUP, kind: 'ClusterRole', name: UNPRIVILEGED_ROLE },
      subjects: accounts(parts, namespace),
    },
  ]
}

/**
 * The constraints of gateway and routeagent, and the permission to use them: exactly what their pods have
 * (workloads/pod.ts). None of OpenShift's own is smaller: those with NET_ADMIN are `privileged`.
 */
export function nodeConstraints(namespace: string): readonly ManifestObject[] {
  const metadata = { name: SCC.node, namespace, labels: partLabels('policies') }
  return [
    {
      apiVersion: `${SCC_GROUP}/v1`,
      kind: 'SecurityContextConstraints',
      metadata: { name: SCC.node, labels: partLabels('policies') },
      // Without a priority, so that no pod that may use others too gets these first.
      priority: null,
      // Empty, since these lists count in every namespace: the RoleBinding names the accounts.
      users: [],
      groups: [],
      allowHostNetwork: true,
      // Kubernetes makes each port of a container on the network of the node a port of the node.
      allowHostPorts: true,
      allowHostDirVolumePlugin: true,
      allowHostPID: false,
      allowHostIPC: false,
      allowPrivilegedContainer: false,
      allowPrivilegeEscalation: false,
      defaultAllowPrivilegeEscalation: false,
      allowedCapabilities: ['NET_ADMIN'],
      defaultAddCapabilities: null,
      requiredDropCapabilities: ['ALL'],
      readOnlyRootFilesystem: true,
      runAsUser: { type: 'MustRunAs', uid: 0 },
      // Without capabilities, what root may read and write follows from its groups too: none but its own.
      fsGroup: { type: 'MustRunAs', ranges: [{ min: 0, max: 0 }] },
      supplementalGroups: { type: 'MustRunAs', ranges: [{ min: 0, max: 0 }] },
      // container_t may write neither /proc/sys/net nor /var/lib. OpenShift adds the level of the namespace.
      seLinuxContext: { type: 'MustRunAs', seLinuxOptions: { type: 'spc_t' } },
      seccompProfiles: ['runtime/default'],
      // `projected` is the token of the account.
      volumes: ['configMap', 'emptyDir', 'hostPath', 'projected'],
    },
    {
      apiVersion: `${RBAC_GROUP}/v1`,
      kind: 'Role',
      metadata,
      rules: [
        {
          apiGroups: [SCC_GROUP],
          resources: ['securitycontextconstraints'],
          resourceNames: [SCC.node],
          verbs: ['use'],
        },
      ],
    },
    {
      apiVersion: `${RBAC_GROUP}/v1`,
      kind: 'RoleBinding',
      metadata,
      roleRef: { apiGroup: RBAC_GROUP, kind: 'Role', name: SCC.node },
      subjects: accounts(['gateway', 'routeagent'], namespace),
    },
  ]
}

function accounts(parts: readonly PartName[], namespace: string): readonly object[] {
  return parts.map((part) => ({ kind: 'ServiceAccount', name: objectName(part), namespace }))
}
