/** Advice for each CNI. For Sealane's own data path see routeagent/README.md and gateway/README.md. */
import { addressBits, formatPrefix, parsePrefix } from '../../../model/addresses/addresses.ts'
import { APP_MANAGED_BY_SEALANE, DEFAULT_GLOBAL_RANGE, LABEL_APP_MANAGED_BY, isDnsLabel } from '../../../model/model.ts'
import type { Discovery } from '../discover.ts'
import type { Cni, CniName } from '../evidence.ts'
import { type AdviceRow, type DataPath, platformOf, says, traitOf } from './advice-row.ts'

/**
 * CNIs that masquerade packets to other networks, but not the packets of Sealane, if the conditions of plainCni() hold.
 */
const MASQUERADERS: Readonly<Partial<Record<CniName, string>>> = {
  antrea: 'Antrea',
  azure: 'Azure CNI Overlay',
  canal: 'Canal',
  flannel: 'Flannel',
  gke: 'GKE',
  kindnet: 'kindnet',
  'kube-router': 'kube-router',
  kubenet: 'kubenet',
}

const plainCni: AdviceRow = ({ discovery, dataPath }) => {
  const cni = discovery.cni?.value
  const name = cni === undefined ? undefined : MASQUERADERS[cni.name]
  if (cni === undefined || name === undefined || cni.bypassesNetfilter || !knowsRanges(cni, dataPath)) return undefined
  if (cni.traits.includes('cloud-addresses')) return undefined
  if (cni.traits.includes('kindnet-early-masquerade') && !dataPath.keepsSourceBefore90) return undefined
  const where = cni.podRanges === 'own' ? 'the routes of each node' : 'Node.spec.podCIDRs'
  const text = `Nothing to do: pods are found by ${where}, and Sealane’s translation rule comes before its masquerading.`
  return says(`cni-${cni.name}`, name, 'nothing', text)
}

/** True if gateways can find out which node runs which pod. */
function knowsRanges(cni: Cni, dataPath: DataPath): boolean {
  return cni.podRanges === 'node' || dataPath.knowsRangesOfCnis
}

const unknownCni: AdviceRow = ({ discovery }) => {
  if (discovery.cni !== undefined) return undefined
  const text =
    'No known CNI was found. Sealane needs one whose pods use the routes and netfilter of their node, with addresses of Node.spec.podCIDRs or a route to each pod on its node. Try it on a test cluster first.'
  return says('cni-unknown', 'CNI', 'limit', text)
}

const kubeOvnVpcs: AdviceRow = ({ discovery }) => {
  const found = platformOf(discovery, 'kube-ovn-vpcs')
  if (found === undefined) return undefined
  const text = `Kube-OVN isolates the pods of other VPCs from the nodes (${found.how}): they cannot call other clusters or be called from them, and are left out of the pod CIDRs.`
  return says('kube-ovn-vpcs', 'Kube-OVN', 'limit', text)
}

const calicoEbpf: AdviceRow = ({ discovery }) => {
  if (!traitOf(discovery, 'calico-ebpf')) return undefined
  const text =
    "Packets of pods bypass netfilter in Calico's eBPF data plane, and clusterset IPs are load-balanced in netfilter. First change to the nftables or iptables data plane, which needs kube-proxy."
  const patch = '{"spec":{"calicoNetwork":{"linuxDataplane":"Iptables"}}}'
  const commands = [`kubectl patch installation.operator.tigera.io default --type merge -p '${patch}'`]
  return says('calico-ebpf', 'Calico', 'unsupported', text, { commands })
}

const calicoNetworks: AdviceRow = ({ discovery }) => {
  if (discovery.cni?.value.name !== 'calico' || traitOf(discovery, 'calico-ebpf')) return undefined
  const apiVersion = traitOf(discovery, 'calico-api-v3') ? 'projectcalico.org/v3' : 'crd.projectcalico.org/v1'
  const objects = calicoPools([DEFAULT_GLOBAL_RANGE], apiVersion)
  const text = `An IPPool that gives out no addresses tells Calico that ${DEFAULT_GLOBAL_RANGE}, the range of translated clusters, belongs to pods. This is a precaution: Sealane’s rule keeps source addresses before Calico masquerades, also towards clusters that keep their own ranges. Those ranges have no IPPool; docs/reference.md has one to apply.`
  return says('calico-pools', 'Calico', 'action', text, { objects })
}

const ciliumHostRouting: AdviceRow = ({ discovery }) => {
  if (!traitOf(discovery, 'cilium-bpf-host-routing')) return undefined
  const text =
    "With Cilium's BPF host routing, packets of pods bypass netfilter and the routing rules, which handle clusterset IPs. Switch to legacy host routing; nothing else in Cilium changes."
  return says('cilium-host-routing', 'Cilium', 'instruction', text, {
    commands: ciliumCommands(discovery, 'bpf.hostLegacyRouting=true'),
  })
}

/** Changes one value of the Helm release, in the namespace that Cilium is in. */
function ciliumCommands(discovery: Discovery, value: string): string[] {
  const found = discovery.cni?.value.namespace ?? ''
  // The name is printed as part of a command.
  const namespace = isDnsLabel(found) ? found : 'NAMESPACE'
  return [
    `helm upgrade cilium cilium/cilium --namespace ${namespace} --reuse-values --set ${value}`,
    `kubectl --namespace ${namespace} rollout restart daemonset/cilium`,
  ]
}

const ciliumDevices: AdviceRow = ({ discovery }) => {
  if (!traitOf(discovery, 'cilium-wide-devices')) return undefined
  const text =
    'The setting devices matches Sealane’s devices (sealane0, sealane-vx): Cilium would attach its programs to them and masquerade. List the devices of the nodes instead.'
  const commands = ciliumCommands(discovery, 'devices=DEVICE')
  return says('cilium-devices', 'Cilium', 'instruction', text, { commands })
}

const ciliumFirewall: AdviceRow = ({ discovery, overlayPort }) => {
  if (!traitOf(discovery, 'cilium-host-firewall')) return undefined
  const text = `The host firewall is on: where a policy selects nodes, allow UDP ${overlayPort} from the other nodes, and UDP 4500 to 4507 to gateway nodes from everywhere.`
  return says('cilium-host-firewall', 'Cilium', 'instruction', text)
}

const ciliumPlain: AdviceRow = ({ discovery, dataPath }) => {
  const cni = discovery.cni?.value
  if (cni?.name !== 'cilium' || cni.bypassesNetfilter || !knowsRanges(cni, dataPath)) return undefined
  if (cni.traits.includes('cloud-addresses')) return undefined
  const masquerade = cni.traits.includes('cilium-bpf-masquerade')
    ? 'Cilium masquerades in BPF only on the devices of the node, not on those of Sealane.'
    : 'Sealane’s translation rule comes before the masquerading.'
  return says(
    'cni-cilium',
    'Cilium',
    'nothing',
    `Nothing to do: pods use the routes and netfilter of the node. ${masquerade}`,
  )
}

const ovnSharedGateway: AdviceRow = ({ discovery }) => {
  if (!traitOf(discovery, 'ovn-shared-gateway')) return undefined
  const patch =
    '{"spec":{"defaultNetwork":{"ovnKubernetesConfig":{"gatewayConfig":{"routingViaHost":true,"ipForwarding":"Global"}}}}}'
  const text =
    'Packets of pods leave the node through Open vSwitch and bypass its routes and netfilter. Route them through the host; the network operator then restarts the network of one node after the other.'
  const commands = [`oc patch network.operator.openshift.io cluster --type merge --patch '${patch}'`]
  return says('ovn-shared-gateway', 'OVN-Kubernetes', 'instruction', text, { commands })
}

const ovnSource: AdviceRow = ({ discovery }) => {
  if (discovery.cni?.value.name !== 'ovn-kubernetes') return undefined
  const text =
    'OVN-Kubernetes masquerades all packets from the host to its pods: they see the address of their node’s ovn-k8s-mp0 instead of the remote pod’s.'
  return says('ovn-source-address', 'OVN-Kubernetes', 'limit', text)
}

const openshiftSdn: AdviceRow = ({ discovery }) => {
  if (discovery.cni?.value.name !== 'openshift-sdn') return undefined
  const text = 'OpenShift SDN was removed in OpenShift 4.17. Migrate to OVN-Kubernetes first.'
  return says('cni-openshift-sdn', 'OpenShift SDN', 'unsupported', text)
}

const weave: AdviceRow = ({ discovery }) => {
  if (discovery.cni?.value.name !== 'weave') return undefined
  const text =
    'Weave Net puts the pods of all nodes on one bridged network, so no route shows on which node a pod is, and masquerades incoming packets. It has not been maintained since 2024: change to another CNI.'
  return says('cni-weave', 'Weave Net', 'unsupported', text)
}

const kindnetEarly: AdviceRow = ({ discovery, dataPath }) => {
  if (!traitOf(discovery, 'kindnet-early-masquerade') || dataPath.keepsSourceBefore90) return undefined
  const text =
    'This kindnet masquerades at priority 90, before our rule: remote pods see the address of a node. Add the other clusters to its list of networks that it does not masquerade to.'
  return says('kindnet-masquerade', 'kindnet', 'limit', text)
}

const gkeDataplane: AdviceRow = ({ discovery }) => {
  const cni = discovery.cni?.value
  if (cni?.name !== 'gke' || !cni.bypassesNetfilter) return undefined
  const text =
    'Dataplane V2 is Cilium with settings that Google manages: Sealane cannot see or set whether packets of pods pass netfilter. Use a cluster without Dataplane V2.'
  return says('gke-dataplane-v2', 'GKE', 'unsupported', text)
}

/**
 * For pods with addresses of the cloud's own network, which has routing rules for each pod and checks source addresses.
 */
const cloudAddresses: AdviceRow = ({ discovery, dataPath }) => {
  const cni = discovery.cni?.value
  if (cni === undefined || !cni.traits.includes('cloud-addresses')) return undefined
  const about = cni.name === 'aws-vpc' ? 'Amazon VPC CNI' : cni.name === 'azure' ? 'Azure CNI' : 'Cilium'
  const lacking = [
    ...(dataPath.knowsRangesOfCnis
      ? []
      : ['no Node lists its pod addresses, and the cloud drops packets from addresses that are not its own']),
    ...(dataPath.rulesBeforeThoseOfPods || cni.name === 'azure'
      ? []
      : [
          'rules for each pod (priority 512 to 1536, or 110) come before those of Sealane and send packets through the cloud',
        ]),
    ...(dataPath.nodesMayBeInPodCidrs
      ? []
      : ['nodes have addresses inside the pod CIDRs, which gateways do not advertise']),
  ]
  if (lacking.length === 0) {
    const text = [
      'Works: packets between nodes go through Sealane’s overlay, not as packets of pods through the cloud.',
      'But nodes have addresses inside the pod CIDRs: ports that are open on a node can be reached by pods of other clusters, unless the node’s firewall blocks them.',
    ].join(' ')
    return says('cloud-addresses', about, 'limit', text)
  }
  const other = cni.name === 'azure' ? ' Azure CNI Overlay works.' : ''
  return says(
    'cloud-addresses',
    about,
    'unsupported',
    `Pods have addresses of the cloud's network: ${lacking.join('; ')}.${other}`,
  )
}

/** For all other CNIs whose pod ranges are not in Node.spec.podCIDRs. */
const ownRanges: AdviceRow = ({ discovery, dataPath }) => {
  const cni = discovery.cni?.value
  if (cni === undefined || knowsRanges(cni, dataPath)) return undefined
  if (cni.traits.includes('cloud-addresses') || ['weave', 'openshift-sdn'].includes(cni.name)) return undefined
  const text = [
    'Pods have addresses that Node.spec.podCIDRs does not contain.',
    'Sealane then passes packets that come out of a lane to the CNI, which works for pods on other nodes if rp_filter is 0 or 2 there.',
    'Pods on gateway nodes cannot be called and cannot call clusterset IPs: keep pods off these nodes.',
  ].join(' ')
  const commands = ['kubectl taint nodes NODE sealane.io/gateway=:NoExecute']
  return says('own-pod-ranges', 'Pod ranges', 'instruction', text, { commands })
}

export const CNI_ROWS: readonly AdviceRow[] = [
  plainCni,
  unknownCni,
  kubeOvnVpcs,
  calicoEbpf,
  calicoNetworks,
  ciliumHostRouting,
  ciliumDevices,
  ciliumFirewall,
  ciliumPlain,
  ovnSharedGateway,
  ovnSource,
  openshiftSdn,
  weave,
  kindnetEarly,
  gkeDataplane,
  cloudAddresses,
  ownRanges,
]

// IPPools that represent other clusters. Calico assigns no addresses from them, and does not masquerade packets to
// their networks. Pure.

interface CalicoPool {
  readonly apiVersion: string
  readonly kind: 'IPPool'
  readonly metadata: { readonly name: string; readonly labels: Readonly<Record<string, string>> }
  readonly spec: {
    readonly cidr: string
    readonly blockSize: number
    readonly disabled: true
    readonly disableBGPExport: true
    readonly natOutgoing: false
    readonly ipipMode: 'Never'
    readonly vxlanMode: 'Never'
    readonly nodeSelector: string
  }
}

/** One pool for each network, named after it: `sealane-244-0-0-0-8`. Throws InvalidAddressError. */
export function calicoPools(prefixes: readonly string[], apiVersion: string): CalicoPool[] {
  return [...new Set(prefixes)].sort().map((text) => {
    const prefix = parsePrefix(text)
    const usual = prefix.family === 4 ? 26 : 122
    return {
      apiVersion,
      kind: 'IPPool',
      metadata: {
        name: `sealane-${formatPrefix(prefix).replaceAll(/[^0-9a-f]+/g, '-')}`,
        labels: { [LABEL_APP_MANAGED_BY]: APP_MANAGED_BY_SEALANE },
      },
      spec: {
        cidr: formatPrefix(prefix),
        // A block must not be larger than its pool.
        blockSize: Math.min(addressBits(prefix.family), Math.max(usual, prefix.length)),
        disabled: true,
        disableBGPExport: true,
        natOutgoing: false,
        ipipMode: 'Never',
        vxlanMode: 'Never',
        nodeSelector: '!all()',
      },
    }
  })
}
