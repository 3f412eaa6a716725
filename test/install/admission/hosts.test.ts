/**
 * Systems with a read-only root and SELinux: the pods of gateway and routeagent, as a first join plans them, against a
 * model of each host. What they mount exists or can be made, what they write may be written, and nothing calls modprobe.
 */
import t from 'tap'
import { advice } from '../../../cli/discovery/advice/advice.ts'
import { discover } from '../../../cli/discovery/discover.ts'
import { planJoin } from '../../../cli/cluster/plan-join.ts'
import { DEFAULT_VALUES, type InstallValues } from '../../../install/values/install-values.ts'
import { planMember } from '../../../install/plan-member.ts'
import { parseClusterId } from '../../../model/ids.ts'
import { nodeObject } from '../../support/objects/node-objects.ts'
import { PRODUCT, sourceFiles } from '../../support/source-tree.ts'
import { plain } from './our-pods.ts'
import { type Pod, containersOf } from './pod.ts'

type ModuleState = 'built in' | 'on demand' | 'absent'

interface Host {
  readonly osImage: string
  /** Paths that exist beside `/` and its parents. */
  readonly present: readonly string[]
  /** The longest of these prefixes of a path counts. */
  readonly mounts: Readonly<Record<string, 'read-only' | 'writable'>>
  /** `on demand`: the kernel loads the module itself, by the modprobe of the host. */
  readonly modules: Readonly<Record<'wireguard' | 'vxlan' | 'nf_tables' | 'tun', ModuleState>>
  readonly selinux: {
    readonly mode: 'enforcing' | 'permissive' | 'unused'
    readonly types: readonly string[]
    /** The type of a container without options. */
    readonly standard: string
    /** The prefixes that a container of a type may write on the host. */
    readonly mayWrite: Readonly<Record<string, readonly string[]>>
  }
  /** The advice that names the system. */
  readonly advised: string | undefined
  /** What a first join sets because of it. */
  readonly set: { readonly userSpaceWireguard: boolean; readonly type: string | undefined }
}

const KERNEL_FILES = ['/proc/sys/net', '/sys/devices/virtual/net']
const MEMORY = { '/proc': 'writable', '/sys': 'writable', '/dev': 'writable', '/run': 'writable' } as const
const ALL = ['/']

const HOSTS: Readonly<Record<string, Host>> = {
  // Root is a squashfs; /var is the EPHEMERAL partition. Its policy lets any process write sysctls and sysfs, and pods
  // /var (siderolabs/talos: internal/pkg/selinux/policy). Older policies have no type spc_t.
  talos: {
    osImage: 'Talos (v1.11.2)',
    present: KERNEL_FILES,
    mounts: { '/': 'read-only', ...MEMORY, '/var': 'writable' },
    modules: { wireguard: 'built in', vxlan: 'built in', nf_tables: 'built in', tun: 'absent' },
    selinux: {
      mode: 'enforcing',
      types: ['pod_t'],
      standard: 'pod_t',
      mayWrite: { pod_t: ['/proc/sys', '/sys', '/var', '/run'] },
    },
    advised: 'talos',
    set: { userSpaceWireguard: false, type: undefined },
  },
  // Root is under dm-verity; /var is on the data partition. Its policy lets container_t write local files and /proc
  // (bottlerocket-core-kit: packages/selinux-policy).
  bottlerocket: {
    osImage: 'Bottlerocket OS 1.48.0 (aws-k8s-1.33)',
    present: KERNEL_FILES,
    mounts: { '/': 'read-only', ...MEMORY, '/var': 'writable', '/mnt': 'writable' },
    modules: { wireguard: 'on demand', vxlan: 'on demand', nf_tables: 'on demand', tun: 'absent' },
    selinux: {
      mode: 'enforcing',
      types: ['container_t', 'control_t', 'super_t'],
      standard: 'container_t',
      mayWrite: { container_t: ['/proc/sys', '/sys', '/var', '/mnt'] },
    },
    advised: 'bottlerocket',
    set: { userSpaceWireguard: false, type: undefined },
  },
  // /usr is read-only, and SELinux permissive as shipped.
  flatcar: {
    osImage: 'Flatcar Container Linux by Kinvolk 4230.2.3 (Oklo)',
    present: [...KERNEL_FILES, '/dev/net/tun'],
    mounts: { '/': 'writable', ...MEMORY, '/usr': 'read-only', '/lib': 'read-only' },
    modules: { wireguard: 'on demand', vxlan: 'on demand', nf_tables: 'on demand', tun: 'on demand' },
    selinux: { mode: 'permissive', types: ['container_t', 'spc_t'], standard: 'container_t', mayWrite: {} },
    advised: 'flatcar',
    set: { userSpaceWireguard: true, type: undefined },
  },
  // container-selinux: container_t may write neither sysctls nor var_lib_t.
  fedora: {
    osImage: 'Fedora CoreOS 42.20251012.3.0',
    present: [...KERNEL_FILES, '/dev/net/tun'],
    mounts: { '/': 'read-only', ...MEMORY, '/var': 'writable', '/etc': 'writable' },
    modules: { wireguard: 'on demand', vxlan: 'on demand', nf_tables: 'on demand', tun: 'on demand' },
    selinux: {
      mode: 'enforcing',
      types: ['container_t', 'spc_t'],
      standard: 'container_t',
      mayWrite: { container_t: [], spc_t: ALL },
    },
    advised: 'container-selinux',
    set: { userSpaceWireguard: true, type: 'spc_t' },
  },
  ubuntu: {
    osImage: 'Ubuntu 24.04.3 LTS',
    present: [...KERNEL_FILES, '/dev/net/tun'],
    mounts: { '/': 'writable', ...MEMORY },
    modules: { wireguard: 'on demand', vxlan: 'on demand', nf_tables: 'on demand', tun: 'on demand' },
    selinux: { mode: 'unused', types: [], standard: '', mayWrite: {} },
    advised: undefined,
    set: { userSpaceWireguard: true, type: undefined },
  },
}

function isUnder(path: string, prefix: string): boolean {
  return prefix === '/' || path === prefix || path.startsWith(`${prefix}/`)
}

function isWritable({ mounts }: Host, path: string): boolean {
  const [longest] = Object.entries(mounts)
    .filter(([prefix]) => isUnder(path, prefix))
    .sort(([a], [b]) => b.length - a.length)
  return longest?.[1] === 'writable'
}

/** Why the pod does not start, or does not work, on the host. Empty if it does. */
function troubles(host: Host, pod: Pod): readonly string[] {
  const { spec } = pod
  const { selinux, modules, present } = host
  const paths = (spec.volumes ?? []).flatMap(({ name, hostPath }) =>
    hostPath === undefined ? [] : [{ name, ...hostPath }],
  )
  const asked = spec.securityContext?.seLinuxOptions?.type
  const type = asked ?? selinux.standard
  const [container] = containersOf(pod)
  const written = paths.filter(({ name }) =>
    container?.volumeMounts?.some((one) => one.name === name && one.readOnly !== true),
  )
  return [
    ...paths.flatMap(({ path, type: kind }) => {
      if (present.includes(path)) return []
      return kind === 'DirectoryOrCreate' && isWritable(host, path) ? [] : [`${path} does not exist`]
    }),
    ...(asked === undefined || selinux.mode === 'unused' || selinux.types.includes(asked) ? [] : [`no type ${asked}`]),
    ...(selinux.mode === 'enforcing' ? written : [])
      .filter(({ path }) => !(selinux.mayWrite[type] ?? []).some((prefix) => isUnder(path, prefix)))
      .map(({ path }) => `${type} may not write ${path}`),
    ...(['wireguard', 'vxlan', 'nf_tables'] as const)
      .filter((name) => modules[name] === 'absent')
      .map((name) => `no ${name}`),
  ]
}

function nodePods(values: InstallValues): readonly Pod[] {
  return plain(planMember(values).flatMap(({ objects }) => objects))
    .filter(({ kind }) => kind === 'DaemonSet')
    .map((object) => (object['spec'] as { readonly template: Pod }).template)
}

function discovered(...images: readonly string[]) {
  const objects = images.map((osImage, i) => {
    return {
      ...nodeObject(`n${i}`),
      status: { nodeInfo: { osImage, operatingSystem: 'linux', kernelVersion: '6.12.1' } },
    }
  })
  return discover({ version: { gitVersion: 'v1.33.5' }, objects, crds: [], serviceProbes: [], unread: [] })
}

function joined(values: InstallValues, ...images: readonly string[]): InstallValues {
  const chosen = { clusterId: parseClusterId('c1'), podCIDRs: ['10.42.0.0/16'], serviceCIDRs: ['10.43.0.0/16'] }
  const plan = planJoin(discovered(...images), { ...chosen, labels: {}, gateways: [{ node: 'n0' }] }, values)
  return plan.values.common
}

for (const [name, host] of Object.entries(HOSTS)) {
  t.test(`${name}: gateway and routeagent start and work after a first join`, async (t) => {
    const values = joined(DEFAULT_VALUES, host.osImage, host.osImage)
    for (const pod of nodePods(values)) t.strictSame(troubles(host, pod), [], pod.spec.serviceAccountName ?? '')
    t.strictSame(
      { userSpaceWireguard: values.gateway.userSpaceWireguard, type: values.platform.seLinuxOptions['type'] },
      host.set,
    )
    const given = advice(discovered(host.osImage)).filter(({ id }) => Object.hasOwn(HOSTS, id) || /selinux/.test(id))
    t.strictSame(
      given.map(({ id }) => id),
      host.advised === undefined ? [] : [host.advised],
      'the advice names the system',
    )
  })
}

t.test('the model refuses what does not work', async (t) => {
  const [talos, fedora] = [HOSTS['talos'], HOSTS['fedora']]
  if (talos === undefined || fedora === undefined) throw new Error('a host is missing')
  const all = (host: Host, values: InstallValues): readonly string[] => [
    ...new Set(nodePods(values).flatMap((pod) => troubles(host, pod))),
  ]
  t.strictSame(all(talos, DEFAULT_VALUES), ['/dev/net/tun does not exist', 'pod_t may not write /dev/net/tun'])
  t.strictSame(all(fedora, DEFAULT_VALUES), [
    'container_t may not write /var/lib/sealane',
    'container_t may not write /proc/sys/net',
    'container_t may not write /sys/devices/virtual/net',
    'container_t may not write /dev/net/tun',
  ])
  t.ok(all(talos, joined(DEFAULT_VALUES, fedora.osImage)).includes('no type spc_t'))
})

t.test('a type for all nodes only where all have it; in OpenShift its constraints set it', async (t) => {
  const rhel = [
    'Red Hat Enterprise Linux 9.6 (Plow)',
    'Rocky Linux 9.5',
    'AlmaLinux 9.6',
    'SLE Micro 6.0',
    'CentOS Stream 9',
  ]
  const type = (...images: readonly string[]) => joined(DEFAULT_VALUES, ...images).platform.seLinuxOptions['type']
  t.equal(type(...rhel), 'spc_t')
  for (const other of ['Talos (v1.11.2)', 'Bottlerocket OS 1.48.0', 'Ubuntu 24.04.3 LTS', 'Amazon Linux 2023']) {
    t.equal(type('Rocky Linux 9.5', other), undefined, other)
    t.ok(
      advice(discovered('Rocky Linux 9.5', other)).some(({ id }) => id === 'some-selinux'),
      `${other}: advice`,
    )
  }
  t.equal(type('Not Red Hat Enterprise Linux', 'Fedoraish 1'), undefined, 'names are not guessed')
  const openshift = { ...DEFAULT_VALUES, platform: { ...DEFAULT_VALUES.platform, openshift: true } }
  t.strictSame(joined(openshift, ...rhel).platform, { openshift: true, seLinuxOptions: {} })
})

t.test('nothing of ours calls modprobe or reads /lib/modules: the kernel loads what it needs', async (t) => {
  const calling = sourceFiles(/\.ts$/, PRODUCT).filter(({ text }) =>
    /['"`/](modprobe|insmod)['"`\s]|\/lib\/modules/.test(text),
  )
  t.strictSame(
    calling.map(({ path }) => path),
    [],
  )
  for (const pod of nodePods(DEFAULT_VALUES)) {
    t.notMatch(JSON.stringify(pod), /SYS_MODULE|lib\/modules/)
  }
})
