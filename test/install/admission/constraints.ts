/**
 * Admission by SecurityContextConstraints, by OpenShift's published rules ("Managing security context constraints" and
 * its API reference): what the constraints fill in where a pod says nothing, and then what they refuse. Pure.
 */
import { type Container, type ContainerContext, type Pod, type SeLinuxOptions, defaulted, kindOf } from './pod.ts'

interface Range {
  readonly min: number
  readonly max: number
}

interface Groups {
  readonly type: string
  readonly ranges?: readonly Range[]
}

export interface Constraints {
  readonly metadata: { readonly name: string }
  readonly priority: number | null
  readonly users: readonly string[]
  readonly groups: readonly string[]
  readonly allowHostNetwork: boolean
  readonly allowHostPorts: boolean
  readonly allowHostDirVolumePlugin: boolean
  readonly allowHostPID: boolean
  readonly allowHostIPC: boolean
  readonly allowPrivilegedContainer: boolean
  readonly allowPrivilegeEscalation: boolean
  readonly allowedCapabilities: readonly string[] | null
  readonly defaultAddCapabilities: readonly string[] | null
  readonly requiredDropCapabilities: readonly string[] | null
  readonly readOnlyRootFilesystem: boolean
  readonly runAsUser: { readonly type: string; readonly uid?: number }
  readonly fsGroup: Groups
  readonly supplementalGroups: Groups
  readonly seLinuxContext: { readonly type: string; readonly seLinuxOptions?: SeLinuxOptions }
  readonly seccompProfiles: readonly string[]
  readonly volumes: readonly string[]
}

/** The annotations that OpenShift gives each namespace: `openshift.io/sa.scc.uid-range` and others. */
export interface NamespaceRanges {
  readonly uids: Range
  readonly groups: Range
  readonly level: string
}

export const NAMESPACE: NamespaceRanges = {
  uids: { min: 1_000_700_000, max: 1_000_709_999 },
  groups: { min: 1_000_700_000, max: 1_000_709_999 },
  level: 's0:c26,c20',
}

/** Of the release (cluster-kube-apiserver-operator, OpenShift 4.11 and later). */
const V2 = {
  ...{ priority: null, users: [], groups: [] },
  ...{ allowHostNetwork: false, allowHostPorts: false, allowHostDirVolumePlugin: false },
  ...{ allowHostPID: false, allowHostIPC: false, allowPrivilegedContainer: false, allowPrivilegeEscalation: false },
  ...{ allowedCapabilities: ['NET_BIND_SERVICE'], defaultAddCapabilities: null, requiredDropCapabilities: ['ALL'] },
  readOnlyRootFilesystem: false,
  seLinuxContext: { type: 'MustRunAs' },
  seccompProfiles: ['runtime/default'],
  supplementalGroups: { type: 'RunAsAny' },
  volumes: ['configMap', 'downwardAPI', 'emptyDir', 'persistentVolumeClaim', 'projected', 'secret'],
} as const
export const RESTRICTED_V2: Constraints = {
  ...V2,
  metadata: { name: 'restricted-v2' },
  runAsUser: { type: 'MustRunAsRange' },
  fsGroup: { type: 'MustRunAs' },
}
export const NONROOT_V2: Constraints = {
  ...V2,
  metadata: { name: 'nonroot-v2' },
  runAsUser: { type: 'MustRunAsNonRoot' },
  fsGroup: { type: 'RunAsAny' },
}

/** What the constraints refuse. Empty if they admit the pod. */
export function refusals(given: Pod, scc: Constraints, namespace: NamespaceRanges = NAMESPACE): readonly string[] {
  const { spec } = defaulted(given)
  const { securityContext: context = {}, volumes = [], containers, initContainers = [] } = spec
  const seLinux = context.seLinuxOptions ?? filledSeLinux(scc, namespace)
  return [
    ...(spec.hostNetwork === true && !scc.allowHostNetwork ? ['hostNetwork'] : []),
    ...(spec.hostPID === true && !scc.allowHostPID ? ['hostPID'] : []),
    ...(spec.hostIPC === true && !scc.allowHostIPC ? ['hostIPC'] : []),
    ...volumes.map(kindOf).flatMap((kind) => {
      const isListed = scc.volumes.includes(kind) || scc.volumes.includes('*')
      const isAllowed = isListed && (kind !== 'hostPath' || scc.allowHostDirVolumePlugin)
      return isAllowed ? [] : [`volume ${kind}`]
    }),
    ...groupRefusals('fsGroup', context.fsGroup === undefined ? [] : [context.fsGroup], scc.fsGroup, namespace),
    ...groupRefusals('supplementalGroups', context.supplementalGroups ?? [], scc.supplementalGroups, namespace),
    ...(context.sysctls ?? []).map(({ name }) => `sysctl ${name}`),
    ...[...containers, ...initContainers].flatMap((container) =>
      containerRefusals(container, { pod: given, seLinux, scc, namespace }),
    ),
  ]
}

function filledSeLinux({ seLinuxContext }: Constraints, { level }: NamespaceRanges): SeLinuxOptions | undefined {
  return seLinuxContext.type === 'MustRunAs' ? { level, ...seLinuxContext.seLinuxOptions } : undefined
}

function groupRefusals(
  field: string,
  ids: readonly number[],
  { type, ranges }: Groups,
  { groups }: NamespaceRanges,
): readonly string[] {
  if (type === 'RunAsAny') return []
  const allowed = ranges ?? [groups]
  return ids.filter((id) => !allowed.some(({ min, max }) => min <= id && id <= max)).map((id) => `${field} ${id}`)
}

interface Surroundings {
  readonly pod: Pod
  readonly seLinux: SeLinuxOptions | undefined
  readonly scc: Constraints
  readonly namespace: NamespaceRanges
}

function containerRefusals(container: Container, { pod, seLinux, scc, namespace }: Surroundings): readonly string[] {
  const whole = pod.spec.securityContext ?? {}
  const own: ContainerContext = container.securityContext ?? {}
  const { add = [] } = own.capabilities ?? {}
  const allowed = [...(scc.allowedCapabilities ?? []), ...(scc.defaultAddCapabilities ?? [])]
  const seccomp = own.seccompProfile ?? whole.seccompProfile
  return [
    ...userRefusals(own.runAsUser ?? whole.runAsUser, own.runAsNonRoot ?? whole.runAsNonRoot, scc, namespace),
    ...seLinuxRefusals(own.seLinuxOptions ?? seLinux, scc, namespace),
    ...(own.privileged === true && !scc.allowPrivilegedContainer ? ['privileged'] : []),
    ...(own.allowPrivilegeEscalation === true && !scc.allowPrivilegeEscalation ? ['allowPrivilegeEscalation'] : []),
    ...add.filter((cap) => !allowed.includes(cap) && !allowed.includes('*')).map((cap) => `capability ${cap}`),
    // What must be dropped is dropped in addition to what the container drops, but must not be added.
    ...(scc.requiredDropCapabilities ?? []).filter((cap) => add.includes(cap)).map((cap) => `capability ${cap} kept`),
    ...(own.readOnlyRootFilesystem === false && scc.readOnlyRootFilesystem ? ['writable root file system'] : []),
    ...(seccomp === undefined || scc.seccompProfiles.includes('*') || scc.seccompProfiles.includes(profileOf(seccomp))
      ? []
      : [`seccomp ${profileOf(seccomp)}`]),
    ...((container.ports ?? []).some(({ hostPort = 0 }) => hostPort !== 0) && !scc.allowHostPorts ? ['hostPort'] : []),
  ]
}

function profileOf({ type = '', localhostProfile = '' }: { type?: string; localhostProfile?: string }): string {
  if (type === 'RuntimeDefault') return 'runtime/default'
  return type === 'Localhost' ? `localhost/${localhostProfile}` : 'unconfined'
}

function userRefusals(
  user: number | undefined,
  nonRoot: boolean | undefined,
  { runAsUser: { type, uid } }: Constraints,
  { uids }: NamespaceRanges,
): readonly string[] {
  const wrong = user === undefined ? [] : [`runAsUser ${user}`]
  if (type === 'MustRunAs') return user === undefined || user === uid ? [] : wrong
  if (type === 'MustRunAsRange') return user === undefined || (uids.min <= user && user <= uids.max) ? [] : wrong
  if (type === 'MustRunAsNonRoot') return user === 0 || (user === undefined && nonRoot === false) ? ['root'] : []
  return []
}

function seLinuxRefusals(
  given: SeLinuxOptions | undefined,
  scc: Constraints,
  namespace: NamespaceRanges,
): readonly string[] {
  if (scc.seLinuxContext.type !== 'MustRunAs') return []
  const wanted = filledSeLinux(scc, namespace) ?? {}
  return (['user', 'role', 'type', 'level'] as const)
    .filter((field) => (given?.[field] ?? '') !== (wanted[field] ?? ''))
    .map((field) => `seLinuxOptions.${field} ${given?.[field] ?? ''}`)
}
