/** Derives advice from a discovery: what Sealane does itself, what the user has to do, and what does not work. Pure. */
import { parsePrefix } from '../../../model/addresses/addresses.ts'
import { LABEL_MACHINE, LABEL_VIRTUAL_NODE, VXLAN_PORT } from '../../../model/model.ts'
import type { Discovery } from '../discover.ts'
import type { KubeProxyMode } from '../evidence.ts'
import type { PlatformKey } from '../platform.ts'
import { CNI_ROWS } from './advice-cni.ts'
import { type Advice, type AdviceRow, type AdviceWorld, DATA_PATH, platformOf, says } from './advice-row.ts'

const PROXY_TEXT: Readonly<Record<KubeProxyMode, string>> = {
  iptables: 'Nothing to do: clusterset IPs are load-balanced one step before Services.',
  ipvs: 'Nothing to do: clusterset IPs are not Services and are load-balanced before IPVS sees a packet; strictARP may be on or off, because the overlay does not use ARP.',
  nftables:
    'Nothing to do: clusterset IPs are load-balanced in a table of Sealane, one step before that of kube-proxy.',
  none: 'Nothing to do: another service proxy handles Services. It ignores clusterset IPs, which Sealane handles.',
}

const serviceProxy: AdviceRow = ({ discovery }) => {
  const proxy = discovery.kubeProxy?.value
  return proxy === undefined
    ? undefined
    : says(`proxy-${proxy.mode}`, 'Service proxy', 'nothing', PROXY_TEXT[proxy.mode])
}

type MachineKind = 'nothing' | 'action' | 'instruction' | 'limit' | 'unsupported'

const MACHINES: Readonly<
  Record<PlatformKey, { readonly about: string; readonly kind: MachineKind; readonly text: string }>
> = {
  bottlerocket: {
    about: 'Bottlerocket',
    kind: 'nothing',
    text: 'Nothing to do: its SELinux policy lets containers write /proc/sys/net and /var/lib, and the kernel loads WireGuard itself, so a first join leaves WireGuard in user space out. Lane keys are stored in /var, which is kept.',
  },
  'container-selinux': {
    about: 'SELinux',
    kind: 'action',
    text: 'Gateway and routeagent run as spc_t, since container_t may write neither /proc/sys/net nor /var/lib. A container runtime without SELinux ignores the type.',
  },
  'doubtful-virtual-nodes': {
    about: 'Virtual nodes by name',
    kind: 'instruction',
    text: `Only name or roles show that these nodes are virtual, and a machine may have these too. So join does not label them, and the DaemonSets want pods there, which may never run. No gateway is put there, and their pods are not waited for. If they are machines: kubectl label node NODE ${LABEL_MACHINE}=true; if they are virtual: ${LABEL_MACHINE}=false`,
  },
  'eks-auto': {
    about: 'EKS Auto Mode',
    kind: 'limit',
    text: 'Cluster DNS runs on the nodes and cannot be changed: set dnsConfig in the pods to query Sealane’s dns at its own Service IP.',
  },
  'eks-fargate': {
    about: 'EKS Fargate',
    kind: 'limit',
    text: 'Pods on Fargate have no node for a routeagent: they cannot call other clusters or be called from them.',
  },
  flatcar: {
    about: 'Flatcar',
    kind: 'limit',
    text: 'SELinux is permissive as shipped, and nothing is to do. If you enforce it, gateway and routeagent must run as spc_t: value platform.seLinuxOptions of the chart.',
  },
  'gke-autopilot': {
    about: 'GKE Autopilot',
    kind: 'unsupported',
    text: 'Autopilot allows no NET_ADMIN on the host network, which gateway and routeagent need. Use a Standard cluster.',
  },
  'ipv6-nodes': {
    about: 'IPv6',
    kind: 'limit',
    text: 'Nodes without an IPv4 InternalIP are left out: the overlay between nodes is IPv4 in this release.',
  },
  'old-kernel': {
    about: 'Kernel',
    kind: 'limit',
    text: 'Before Linux 5.6 the kernel has no WireGuard: lanes on such a node run in user space, much slower. Label newer nodes as gateways.',
  },
  'some-selinux': {
    about: 'SELinux',
    kind: 'limit',
    text: 'Only some nodes have the policy container-selinux, and a pod’s SELinux type counts on all of them, so none is set. Where SELinux is enforced for containers, gateway and routeagent cannot write /proc/sys/net: set value platform.seLinuxOptions of the chart if the policies of all nodes have spc_t.',
  },
  talos: {
    about: 'Talos',
    kind: 'limit',
    text: 'Nodes have no shell: use kubectl debug to look into the kernel. Lane keys are stored in /var, which is kept. WireGuard is in the kernel, and module tun is not loaded, so a first join leaves WireGuard in user space out.',
  },
  'virtual-nodes': {
    about: 'Virtual nodes',
    kind: 'limit',
    text: 'Pods on virtual nodes have no routeagent: they cannot call other clusters or be called from them.',
  },
  'unlabelled-virtual-nodes': {
    about: 'Virtual nodes without a label',
    kind: 'action',
    text: `No node affinity can tell these nodes from machines, so join labels them ${LABEL_VIRTUAL_NODE}=join. Where GitOps or Helm installs Sealane, label them: kubectl label node NODE ${LABEL_VIRTUAL_NODE}=true`,
  },
  'windows-nodes': {
    about: 'Windows',
    kind: 'limit',
    text: 'Windows nodes are left out: nothing there translates a clusterset IP, so calls of their pods to other clusters end unanswered, and other clusters cannot call them.',
  },
}

const machines: readonly AdviceRow[] = (Object.keys(MACHINES) as PlatformKey[]).map((key) => ({ discovery }) => {
  const found = platformOf(discovery, key)
  const { about, kind, text } = MACHINES[key]
  return found === undefined ? undefined : says(key, about, kind, text)
})

const openShift: AdviceRow = ({ discovery }) => {
  if (discovery.distribution.value !== 'openshift') return undefined
  const text =
    'Agent and dns may use nonroot-v2, gateway and routeagent a SecurityContextConstraints of their own, sealane-node: root with NET_ADMIN on the network of the node, and nothing else.'
  return says('openshift', 'OpenShift', 'action', text)
}

const ports: AdviceRow = ({ discovery, overlayPort }) => {
  const text = {
    openshift: `In a cloud, the installer’s security groups allow only OpenShift’s own ports: open UDP ${overlayPort} between all nodes, and UDP 4500 to 4507 to the gateway nodes.`,
    gke: `Open UDP 4500 to 4507 to the gateway nodes in the VPC’s firewall, and UDP ${overlayPort} between nodes if the default rules were removed.`,
    eks: `Open UDP 4500 to 4507 to the gateway nodes in their security group; UDP ${overlayPort} is open between nodes of one cluster security group.`,
    aks: `Open UDP 4500 to 4507 to the gateway nodes in the network security group; inside the VNet UDP ${overlayPort} is open unless one of your rules blocks it.`,
    kubeadm: undefined,
    k3s: undefined,
    rke2: undefined,
    kind: undefined,
    unknown: undefined,
  }[discovery.distribution.value]
  return text === undefined ? undefined : says('open-ports', 'Firewall', 'instruction', text)
}

const families: AdviceRow = ({ discovery }) => {
  const pods = (discovery.podCIDRs?.value ?? []).map((text) => parsePrefix(text))
  if (pods.length === 0 || pods.some((prefix) => prefix.family === 4)) {
    const both = pods.some((prefix) => prefix.family === 6)
    return both
      ? says(
          'dual-stack',
          'IPv6',
          'limit',
          'IPv6 is never translated: if its range overlaps that of another cluster, the cluster that joins later is reached over IPv4 only.',
        )
      : undefined
  }
  return says(
    'ipv6-only',
    'IPv6',
    'unsupported',
    'Pods have IPv6 addresses only; a member needs IPv4 addresses for its pods as well in this release.',
  )
}

/** If the network overlaps another cluster's, it needs a block of the same size in 244.0.0.0/8. */
const hugeNetwork: AdviceRow = ({ discovery }) => {
  const huge = (discovery.podCIDRs?.value ?? []).filter((text) => {
    const prefix = parsePrefix(text)
    return prefix.family === 4 && prefix.length < 11
  })
  if (huge.length === 0) return undefined
  const text = `${huge.join(', ')} is very large. If it overlaps another cluster’s, translating it needs a block of the same size in 244.0.0.0/8. Give the smaller networks that are in use instead.`
  return says('large-pod-cidr', 'Pod CIDRs', 'limit', text)
}

const immutableDns: AdviceRow = ({ discovery }) => {
  const { flavour } = discovery.dns
  if (flavour.value !== 'immutable' && flavour.value !== 'unknown') return undefined
  const text =
    flavour.value === 'immutable'
      ? 'Cluster DNS cannot be changed here: names in clusterset.local resolve only in pods that query Sealane’s dns directly.'
      : 'No known cluster DNS was found: make it forward clusterset.local to the Service sealane-dns in sealane-system.'
  return says('cluster-dns', 'Cluster DNS', flavour.value === 'immutable' ? 'limit' : 'instruction', text)
}

const otherOwners: AdviceRow = ({ discovery }) => {
  const owners = discovery.others.filter((one) => one.value.ownsMcs).map((one) => one.value.name)
  if (owners.length === 0) return undefined
  const text = `${owners.join(' and ')} also writes ServiceExports and ServiceImports: two writers of one object undo each other. First remove it, or switch its Multi-Cluster Services off.`
  return says('other-mcs-owner', owners.join(', '), 'unsupported', text)
}

const otherGuests: AdviceRow = ({ discovery }) => {
  const guests = discovery.others.filter((one) => !one.value.ownsMcs).map((one) => one.value.name)
  if (guests.length === 0) return undefined
  return says(
    'other-product',
    guests.join(', '),
    'nothing',
    'It uses its own objects and networks, so both can be installed.',
  )
}

/** Advice that does not depend on the CNI: service proxy, machines, addresses, DNS and other products. */
const PLATFORM_ROWS: readonly AdviceRow[] = [
  serviceProxy,
  ...machines,
  openShift,
  ports,
  families,
  hugeNetwork,
  immutableDns,
  otherOwners,
  otherGuests,
]

export type { Advice } from './advice-row.ts'

/** Sorted by urgency, the most urgent first. */
export function advice(
  discovery: Discovery,
  { dataPath = DATA_PATH, overlayPort = VXLAN_PORT }: Partial<Omit<AdviceWorld, 'discovery'>> = {},
): Advice[] {
  const world = { discovery, dataPath, overlayPort }
  const given = [...CNI_ROWS, ...PLATFORM_ROWS].map((row) => row(world)).filter((one) => one !== undefined)
  return given.sort((a, b) => WEIGHT[b.kind] - WEIGHT[a.kind])
}

/** The advice that stops a join without `--force`. */
export function hindrances(given: readonly Advice[]): Advice[] {
  return given.filter((one) => one.kind === 'unsupported')
}

const WEIGHT: Readonly<Record<Advice['kind'], number>> = {
  unsupported: 4,
  instruction: 3,
  action: 2,
  limit: 1,
  nothing: 0,
}
