/**
 * Pod Security Standards for pods of Linux (kubernetes.io/docs/concepts/security/pod-security-standards, v1.34): which
 * controls of a level a pod violates. Pure, and independent of what is tested with it.
 */
import { type Pod, containersOf, defaulted, kindOf } from './pod.ts'

export const LEVELS = ['restricted', 'baseline', 'privileged'] as const
/** From the strictest to the widest. */
export type Level = (typeof LEVELS)[number]

const BASELINE_CAPABILITIES = new Set([
  ...['AUDIT_WRITE', 'CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'FSETID', 'KILL', 'MKNOD', 'NET_BIND_SERVICE'],
  ...['SETFCAP', 'SETGID', 'SETPCAP', 'SETUID', 'SYS_CHROOT'],
])
const SELINUX_TYPES = new Set([...['', 'container_t', 'container_init_t', 'container_kvm_t', 'container_engine_t']])
const SAFE_SYSCTLS = new Set([
  ...['kernel.shm_rmid_forced', 'net.ipv4.ip_local_port_range', 'net.ipv4.ip_unprivileged_port_start'],
  ...['net.ipv4.tcp_syncookies', 'net.ipv4.ping_group_range', 'net.ipv4.ip_local_reserved_ports'],
  ...['net.ipv4.tcp_keepalive_time', 'net.ipv4.tcp_fin_timeout', 'net.ipv4.tcp_keepalive_intvl'],
  ...['net.ipv4.tcp_keepalive_probes', 'net.ipv4.tcp_rmem', 'net.ipv4.tcp_wmem'],
])
const RESTRICTED_VOLUMES = new Set([
  ...['configMap', 'csi', 'downwardAPI', 'emptyDir', 'ephemeral', 'persistentVolumeClaim', 'projected', 'secret'],
])

type Check = readonly [control: string, isViolated: (pod: Pod) => boolean]

const contexts = (pod: Pod) => [
  pod.spec.securityContext ?? {},
  ...containersOf(pod).map(({ securityContext }) => securityContext ?? {}),
]
const own = (pod: Pod) => containersOf(pod).map(({ securityContext }) => securityContext ?? {})

const BASELINE: readonly Check[] = [
  ['HostProcess', (pod) => contexts(pod).some(({ windowsOptions }) => windowsOptions?.hostProcess === true)],
  ['Host Namespaces', ({ spec }) => [spec.hostNetwork, spec.hostPID, spec.hostIPC].includes(true)],
  ['Privileged Containers', (pod) => own(pod).some(({ privileged }) => privileged === true)],
  [
    'Capabilities',
    (pod) =>
      own(pod).some(({ capabilities }) => (capabilities?.add ?? []).some((cap) => !BASELINE_CAPABILITIES.has(cap))),
  ],
  ['HostPath Volumes', ({ spec }) => (spec.volumes ?? []).some((volume) => kindOf(volume) === 'hostPath')],
  ['Host Ports', (pod) => containersOf(pod).some(({ ports = [] }) => ports.some(({ hostPort = 0 }) => hostPort !== 0))],
  [
    'Host Probes',
    (pod) =>
      containersOf(pod).some(({ startupProbe, livenessProbe, readinessProbe, lifecycle }) =>
        [startupProbe, livenessProbe, readinessProbe, lifecycle?.postStart, lifecycle?.preStop].some(
          (handler) => (handler?.httpGet?.host ?? handler?.tcpSocket?.host ?? '') !== '',
        ),
      ),
  ],
  [
    'AppArmor',
    (pod) =>
      contexts(pod).some(({ appArmorProfile }) => appArmorProfile?.type === 'Unconfined') ||
      Object.entries(pod.metadata.annotations ?? {}).some(
        ([key, value]) =>
          key.startsWith('container.apparmor.security.beta.kubernetes.io/') &&
          !/^(runtime\/default|localhost\/.*)?$/.test(value),
      ),
  ],
  [
    'SELinux',
    (pod) =>
      contexts(pod).some(
        ({ seLinuxOptions: { type = '', user = '', role = '' } = {} }) =>
          !SELINUX_TYPES.has(type) || user !== '' || role !== '',
      ),
  ],
  ['/proc Mount Type', (pod) => own(pod).some(({ procMount = 'Default' }) => procMount !== 'Default')],
  ['Seccomp', (pod) => contexts(pod).some(({ seccompProfile }) => seccompProfile?.type === 'Unconfined')],
  ['Sysctls', ({ spec }) => (spec.securityContext?.sysctls ?? []).some(({ name }) => !SAFE_SYSCTLS.has(name))],
]

const RESTRICTED: readonly Check[] = [
  ['Volume Types', ({ spec }) => (spec.volumes ?? []).some((volume) => !RESTRICTED_VOLUMES.has(kindOf(volume)))],
  ['Privilege Escalation', (pod) => own(pod).some((context) => context.allowPrivilegeEscalation !== false)],
  [
    'Running as Non-root',
    (pod) => own(pod).some(({ runAsNonRoot = pod.spec.securityContext?.runAsNonRoot }) => runAsNonRoot !== true),
  ],
  ['Running as Non-root user', (pod) => contexts(pod).some(({ runAsUser }) => runAsUser === 0)],
  [
    'Seccomp (restricted)',
    (pod) =>
      own(pod).some(
        ({ seccompProfile = pod.spec.securityContext?.seccompProfile }) =>
          !['RuntimeDefault', 'Localhost'].includes(seccompProfile?.type ?? ''),
      ),
  ],
  [
    'Capabilities (restricted)',
    (pod) =>
      own(pod).some(
        ({ capabilities: { add = [], drop = [] } = {} }) =>
          !drop.includes('ALL') || add.some((cap) => cap !== 'NET_BIND_SERVICE'),
      ),
  ],
]

const CHECKS: Readonly<Record<Level, readonly Check[]>> = {
  restricted: [...BASELINE, ...RESTRICTED],
  baseline: BASELINE,
  privileged: [],
}

/** The names of the controls that the pod violates. Empty if the level admits it. */
export function violations(pod: Pod, level: Level): readonly string[] {
  const admitted = defaulted(pod)
  return CHECKS[level].filter(([, isViolated]) => isViolated(admitted)).map(([control]) => control)
}

/** The strictest level that admits the pod. */
export function levelOf(pod: Pod): Level {
  return LEVELS.find((level) => violations(pod, level).length === 0) ?? 'privileged'
}
