/** System packages by what they are needed for, in Debian's names. The command shows whether one is there. */

export interface SystemPackage {
  readonly name: string
  readonly command: string
}

export type Purpose = 'proto' | 'demo' | 'test' | 'etcd' | 'kernel' | 'kube' | 'browser' | 'bench' | 'image'

const NODE_PACKAGES: readonly SystemPackage[] = [
  { name: 'iproute2', command: 'ip' },
  { name: 'nftables', command: 'nft' },
  { name: 'procps', command: 'sysctl' },
  { name: 'wireguard-tools', command: 'wg' },
  { name: 'wireguard-go', command: 'wireguard-go' },
  { name: 'ethtool', command: 'ethtool' },
]

const CLIENTS: readonly SystemPackage[] = [
  { name: 'curl', command: 'curl' },
  { name: 'bind9-dnsutils', command: 'dig' },
  { name: 'iputils-ping', command: 'ping' },
  { name: 'iperf3', command: 'iperf3' },
  { name: 'busybox-static', command: 'busybox' },
]

const VIRTUAL_MACHINE: readonly SystemPackage[] = [
  { name: 'qemu-system-x86', command: 'qemu-system-x86_64' },
  { name: 'busybox-static', command: 'busybox' },
  { name: 'cpio', command: 'cpio' },
  { name: 'kmod', command: 'modprobe' },
  { name: 'xz-utils', command: 'xz' },
  { name: 'zstd', command: 'zstd' },
  { name: 'binutils', command: 'strip' },
]

const ETCD: SystemPackage = { name: 'etcd-server', command: 'etcd' }

const CLUSTER: readonly SystemPackage[] = [
  ETCD,
  // What the pods of the conformance suite call, and how a test reaches into a network namespace.
  { name: 'socat', command: 'socat' },
  { name: 'netcat-openbsd', command: 'nc' },
  // An ingress that knows only Services.
  { name: 'haproxy', command: 'haproxy' },
  // What sends packets to an engine of NetworkPolicies on kernels without nft's own `queue`.
  { name: 'iptables', command: 'iptables' },
]

const IMAGE: readonly SystemPackage[] = [
  { name: 'buildah', command: 'buildah' },
  { name: 'apt', command: 'apt-get' },
  { name: 'dpkg', command: 'dpkg-deb' },
  { name: 'tar', command: 'tar' },
]

/** With promtool, which tests rules. */
const PROMETHEUS: SystemPackage = { name: 'prometheus', command: 'promtool' }
const CONNTRACK: SystemPackage = { name: 'conntrack', command: 'conntrack' }
/** Another wall clock for a process. */
const FAKETIME: SystemPackage = { name: 'faketime', command: 'faketime' }
/** With systemd-analyze, which verifies units. systemd itself need not run. */
const SYSTEMD: SystemPackage = { name: 'systemd', command: 'systemd-analyze' }
const PROTOC: SystemPackage = { name: 'protobuf-compiler', command: 'protoc' }

export const SYSTEM_PACKAGES: Readonly<Record<Purpose, readonly SystemPackage[]>> = {
  demo: [...NODE_PACKAGES, ...CLIENTS],
  proto: [PROTOC],
  test: [...NODE_PACKAGES, ...CLIENTS, CONNTRACK, FAKETIME, PROTOC, PROMETHEUS, SYSTEMD],
  // setpriv, which ends a program with its test; strace, which makes a disk slow.
  etcd: [
    ...[ETCD, { name: 'util-linux', command: 'setpriv' }, { name: 'strace', command: 'strace' }],
    ...[
      { name: 'iproute2', command: 'ip' },
      { name: 'nftables', command: 'nft' },
    ],
  ],
  kernel: [...NODE_PACKAGES, ...CLIENTS, CONNTRACK, ...VIRTUAL_MACHINE],
  kube: [...NODE_PACKAGES, ...CLIENTS, CONNTRACK, ...CLUSTER, ...IMAGE],
  // Its libraries bring fonts along; playwright-core drives it, and downloads no browser of its own.
  browser: [{ name: 'chromium', command: 'chromium' }],
  image: IMAGE,
  bench: [...NODE_PACKAGES, ...CLIENTS, { name: 'knot', command: 'knotd' }, { name: 'dnsperf', command: 'dnsperf' }],
}
