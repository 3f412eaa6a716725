/** The evaluators of Pod Security Standards and SecurityContextConstraints, against the published rules. */
import t from 'tap'
import { type Constraints, NAMESPACE, NONROOT_V2, RESTRICTED_V2, refusals } from './constraints.ts'
import type { Container, ContainerContext, Pod, PodContext, Volume } from './pod.ts'
import { type Level, levelOf, violations } from './pod-security.ts'

interface Change {
  readonly spec?: Partial<Pod['spec']>
  readonly context?: PodContext
  readonly container?: ContainerContext
  readonly more?: Partial<Container>
  readonly volume?: Volume
}

/** A pod that each rule admits, with the change. */
function pod({ spec = {}, context = {}, container = {}, more = {}, volume }: Change = {}): Pod {
  return {
    metadata: {},
    spec: {
      securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' }, ...context },
      containers: [
        {
          name: 'a',
          securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] }, ...container },
          ...more,
        },
      ],
      volumes: volume === undefined ? [] : [volume],
      ...spec,
    },
  }
}

t.test('Pod Security: each control, in the level that has it', async (t) => {
  t.equal(levelOf(pod()), 'restricted')
  t.equal(levelOf({ metadata: {}, spec: { containers: [{ name: 'a' }] } }), 'baseline', 'a pod that says nothing')
  const rows: readonly (readonly [control: string, level: Level, change: Change])[] = [
    ['HostProcess', 'privileged', { context: { windowsOptions: { hostProcess: true } } }],
    ['Host Namespaces', 'privileged', { spec: { hostNetwork: true } }],
    ['Host Namespaces', 'privileged', { spec: { hostPID: true } }],
    ['Host Namespaces', 'privileged', { spec: { hostIPC: true } }],
    ['Privileged Containers', 'privileged', { container: { privileged: true } }],
    ['Capabilities', 'privileged', { container: { capabilities: { drop: ['ALL'], add: ['NET_ADMIN'] } } }],
    ['Capabilities', 'privileged', { container: { capabilities: { drop: ['ALL'], add: ['NET_RAW'] } } }],
    ['Capabilities (restricted)', 'baseline', { container: { capabilities: { drop: ['ALL'], add: ['CHOWN'] } } }],
    ['Capabilities (restricted)', 'baseline', { container: { capabilities: { drop: ['NET_RAW'] } } }],
    ['HostPath Volumes', 'privileged', { volume: { name: 'v', hostPath: { path: '/' } } }],
    ['Host Ports', 'privileged', { more: { ports: [{ containerPort: 80, hostPort: 80 }] } }],
    ['Host Probes', 'privileged', { more: { livenessProbe: { httpGet: { host: '127.0.0.1' } } } }],
    ['AppArmor', 'privileged', { container: { appArmorProfile: { type: 'Unconfined' } } }],
    ['SELinux', 'privileged', { context: { seLinuxOptions: { type: 'spc_t' } } }],
    ['SELinux', 'privileged', { container: { seLinuxOptions: { user: 'system_u' } } }],
    ['/proc Mount Type', 'privileged', { container: { procMount: 'Unmasked' } }],
    ['Seccomp', 'privileged', { container: { seccompProfile: { type: 'Unconfined' } } }],
    ['Sysctls', 'privileged', { context: { sysctls: [{ name: 'net.ipv4.ip_forward' }] } }],
    ['Volume Types', 'baseline', { volume: { name: 'v', nfs: {} } }],
    ['Privilege Escalation', 'baseline', { container: { allowPrivilegeEscalation: true } }],
    ['Running as Non-root', 'baseline', { context: { runAsNonRoot: false } }],
    ['Running as Non-root user', 'baseline', { context: { runAsUser: 0 } }],
    ['Seccomp (restricted)', 'baseline', { context: { seccompProfile: {} } }],
  ]
  for (const [control, level, change] of rows) {
    t.equal(levelOf(pod(change)), level, JSON.stringify(change))
    t.ok(violations(pod(change), 'restricted').includes(control), control)
  }
  const still: readonly Change[] = [
    { container: { capabilities: { drop: ['ALL'], add: ['NET_BIND_SERVICE'] } } },
    { context: { seLinuxOptions: { level: 's0', type: 'container_t' } } },
    { context: { runAsNonRoot: false }, container: { runAsNonRoot: true } },
    { context: { sysctls: [{ name: 'net.ipv4.tcp_syncookies' }] } },
    { volume: { name: 'v', projected: {} } },
    { more: { ports: [{ containerPort: 80 }] } },
  ]
  for (const change of still) t.strictSame(violations(pod(change), 'restricted'), [], JSON.stringify(change))
})

const WIDE: Constraints = {
  ...NONROOT_V2,
  metadata: { name: 'wide' },
  ...{ allowHostNetwork: true, allowHostPorts: true, allowHostDirVolumePlugin: true, allowHostPID: true },
  ...{ allowHostIPC: true, allowPrivilegedContainer: true, allowPrivilegeEscalation: true },
  ...{ allowedCapabilities: ['*'], requiredDropCapabilities: null },
  runAsUser: { type: 'RunAsAny' },
  seLinuxContext: { type: 'RunAsAny' },
  seccompProfiles: ['*'],
  volumes: ['*'],
}

t.test('SecurityContextConstraints: what they fill in, and what they refuse', async (t) => {
  const rows: readonly (readonly [change: Change, refused: Readonly<Record<'restricted' | 'nonroot', string[]>>])[] = [
    [{}, { restricted: [], nonroot: [] }],
    [{ context: { runAsUser: 65_532 } }, { restricted: ['runAsUser 65532'], nonroot: [] }],
    [{ context: { runAsUser: NAMESPACE.uids.min + 1 } }, { restricted: [], nonroot: [] }],
    [{ context: { runAsUser: 0 } }, { restricted: ['runAsUser 0'], nonroot: ['root'] }],
    [{ context: { runAsNonRoot: false } }, { restricted: [], nonroot: ['root'] }],
    [{ context: { fsGroup: 65_532 } }, { restricted: ['fsGroup 65532'], nonroot: [] }],
    [{ context: { supplementalGroups: [5] } }, { restricted: [], nonroot: [] }],
    [{ spec: { hostNetwork: true } }, { restricted: ['hostNetwork'], nonroot: ['hostNetwork'] }],
    [
      { spec: { hostNetwork: true }, more: { ports: [{ containerPort: 80 }] } },
      { restricted: ['hostNetwork', 'hostPort'], nonroot: ['hostNetwork', 'hostPort'] },
    ],
    [{ spec: { hostPID: true } }, { restricted: ['hostPID'], nonroot: ['hostPID'] }],
    [{ spec: { hostIPC: true } }, { restricted: ['hostIPC'], nonroot: ['hostIPC'] }],
    [
      { volume: { name: 'v', hostPath: { path: '/' } } },
      { restricted: ['volume hostPath'], nonroot: ['volume hostPath'] },
    ],
    [{ volume: { name: 'v', nfs: {} } }, { restricted: ['volume nfs'], nonroot: ['volume nfs'] }],
    [{ volume: { name: 'v', persistentVolumeClaim: {} } }, { restricted: [], nonroot: [] }],
    [{ container: { privileged: true } }, { restricted: ['privileged'], nonroot: ['privileged'] }],
    [
      { container: { allowPrivilegeEscalation: true } },
      { restricted: ['allowPrivilegeEscalation'], nonroot: ['allowPrivilegeEscalation'] },
    ],
    [
      { container: { capabilities: { drop: ['ALL'], add: ['NET_ADMIN'] } } },
      { restricted: ['capability NET_ADMIN'], nonroot: ['capability NET_ADMIN'] },
    ],
    [{ container: { capabilities: { add: ['NET_BIND_SERVICE'] } } }, { restricted: [], nonroot: [] }],
    [
      { context: { seccompProfile: { type: 'Unconfined' } } },
      { restricted: ['seccomp unconfined'], nonroot: ['seccomp unconfined'] },
    ],
    [
      { context: { seccompProfile: { type: 'Localhost', localhostProfile: 'x.json' } } },
      { restricted: ['seccomp localhost/x.json'], nonroot: ['seccomp localhost/x.json'] },
    ],
    [{ context: { seLinuxOptions: { level: NAMESPACE.level } } }, { restricted: [], nonroot: [] }],
    [
      { context: { seLinuxOptions: { type: 'spc_t' } } },
      {
        restricted: ['seLinuxOptions.type spc_t', 'seLinuxOptions.level '],
        nonroot: ['seLinuxOptions.type spc_t', 'seLinuxOptions.level '],
      },
    ],
  ]
  for (const [change, { restricted, nonroot }] of rows) {
    const title = JSON.stringify(change)
    t.strictSame(refusals(pod(change), RESTRICTED_V2), restricted, `restricted-v2: ${title}`)
    t.strictSame(refusals(pod(change), NONROOT_V2), nonroot, `nonroot-v2: ${title}`)
    t.strictSame(refusals(pod(change), WIDE), [], `the widest: ${title}`)
  }
  const root: Constraints = { ...WIDE, runAsUser: { type: 'MustRunAs', uid: 0 }, readOnlyRootFilesystem: true }
  t.strictSame(refusals(pod({ context: { runAsUser: 0 } }), root), [])
  t.strictSame(refusals(pod({ context: { runAsUser: 1 } }), root), ['runAsUser 1'])
  t.strictSame(refusals(pod({ container: { readOnlyRootFilesystem: false } }), root), ['writable root file system'])
  const groups: Constraints = { ...WIDE, supplementalGroups: { type: 'MustRunAs', ranges: [{ min: 0, max: 0 }] } }
  t.strictSame(refusals(pod({ context: { supplementalGroups: [0, 6] } }), groups), ['supplementalGroups 6'])
  const typed: Constraints = { ...WIDE, seLinuxContext: { type: 'MustRunAs', seLinuxOptions: { type: 'spc_t' } } }
  t.strictSame(refusals(pod(), typed), [], 'the type is filled in')
  const killing: Constraints = { ...WIDE, requiredDropCapabilities: ['KILL'] }
  t.strictSame(refusals(pod({ container: { capabilities: { add: ['KILL'] } } }), killing), ['capability KILL kept'])
})
