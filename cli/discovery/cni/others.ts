/** Detects kindnet, kube-router, Weave Net, Flannel, Canal, Antrea, OVN-Kubernetes and OpenShift SDN. */
import { type Evidence, cniClaim, networks } from '../evidence.ts'
import { byFamily, prefixesIn } from '../prefix-texts.ts'
import {
  type World,
  annotationOf,
  at,
  configText,
  containersOf,
  daemonSet,
  documentIn,
  environmentOf,
  flagOf,
  nameOf,
  pathOf,
  textAt,
} from '../snapshot.ts'

export function kindnet(world: World): Evidence[] {
  const workload = daemonSet(world, 'kindnet')
  if (workload === undefined) return []
  const how = pathOf(workload)
  const cidrs = byFamily(prefixesIn([environmentOf(workload, 'POD_SUBNET')]))
  // The kindnet that kind installs masquerades with iptables. The standalone kindnet does so with nftables, at an
  // earlier priority.
  const early = containersOf(workload).some(
    (container) => textAt(container, 'image')?.includes('aojea/kindnet') === true,
  )
  return [
    cniClaim('kindnet', {
      mode: 'routes between nodes',
      how,
      traits: early ? ['kindnet-early-masquerade'] : [],
    }),
    ...networks('podCIDRs', cidrs, 'certain', `${how} POD_SUBNET`),
  ]
}

export function kubeRouter(world: World): Evidence[] {
  const workload = daemonSet(world, 'kube-router')
  if (workload === undefined || flagOf(workload, 'run-router') === 'false') return []
  const how = pathOf(workload)
  const overlay = flagOf(workload, 'enable-overlay') !== 'false'
  const claims = [cniClaim('kube-router', { mode: overlay ? 'bgp, overlay between subnets' : 'bgp', how })]
  if (flagOf(workload, 'run-service-proxy') !== 'true') return claims
  const value = { mode: 'ipvs', insteadOf: 'kube-router' } as const
  return [...claims, { about: 'kubeProxy', value, confidence: 'certain', how: `${how} --run-service-proxy` }]
}

/** The default of Weave Net, which is no longer maintained. */
const WEAVE_DEFAULT = '10.32.0.0/12'

export function weave(world: World): Evidence[] {
  const workload = daemonSet(world, 'weave-net')
  if (workload === undefined) return []
  const how = pathOf(workload)
  const range = prefixesIn([environmentOf(workload, 'IPALLOC_RANGE')])
  return [
    cniClaim('weave', { mode: 'one bridged network', how, podRanges: 'own' }),
    ...(range.length > 0
      ? networks('podCIDRs', range, 'certain', `${how} IPALLOC_RANGE`)
      : networks('podCIDRs', [WEAVE_DEFAULT], 'certain', `${how}: no IPALLOC_RANGE, Weave then uses ${WEAVE_DEFAULT}`)),
  ]
}

// Flannel, as a DaemonSet or inside k3s, and Canal, which is Flannel with Calico's policy.

const FLANNEL_CONFIG = ['kube-flannel/kube-flannel-cfg', 'kube-system/kube-flannel-cfg']
const CANAL_CONFIG = ['kube-system/canal-config', 'kube-system/rke2-canal-config']

export function canal(world: World): Evidence[] {
  const workload = daemonSet(world, 'canal', 'rke2-canal')
  return workload === undefined ? [] : claims(world, 'canal', pathOf(workload), CANAL_CONFIG)
}

export function flannel(world: World): Evidence[] {
  if (daemonSet(world, 'canal', 'rke2-canal') !== undefined) return []
  const workload = daemonSet(world, 'kube-flannel-ds', 'kube-flannel')
  if (workload !== undefined) return claims(world, 'flannel', pathOf(workload), FLANNEL_CONFIG)
  const node = world.list('Node', '').find((one) => annotationOf(one, BACKEND) !== undefined)
  // An annotation may outlive the product, so a DaemonSet of another CNI takes precedence.
  return node === undefined ? [] : claims(world, 'flannel', `Node ${nameOf(node)} annotation ${BACKEND}`, [], 'likely')
}

const BACKEND = 'flannel.alpha.coreos.com/backend-type'

function claims(
  world: World,
  name: 'flannel' | 'canal',
  how: string,
  configMaps: readonly string[],
  confidence: 'certain' | 'likely' = 'certain',
): Evidence[] {
  const config = configText(world, configMaps, ['net-conf.json'])
  const document = documentIn(config?.text)
  const annotated = world.list('Node', '').map((node) => annotationOf(node, BACKEND))
  const mode = textAt(document, 'Backend', 'Type') ?? annotated.find((text) => text !== undefined) ?? 'vxlan'
  const cidrs = byFamily(prefixesIn([textAt(document, 'Network'), textAt(document, 'IPv6Network')]))
  return [
    cniClaim(name, { mode, how, confidence }),
    ...networks('podCIDRs', cidrs, 'certain', `${config?.where ?? ''} Network`),
  ]
}

/** Detects Antrea. The configuration of its agents is a YAML file in a ConfigMap. */
export function antrea(world: World): Evidence[] {
  const workload = daemonSet(world, 'antrea-agent')
  if (workload === undefined) return []
  // In older releases the name ends with a hash.
  const maps = world
    .list('ConfigMap', '')
    .map(nameOf)
    .filter((name) => name.startsWith('antrea-config'))
  const paths = maps.map((name) => `kube-system/${name}`)
  const agent = configText(world, paths, ['antrea-agent.conf'])
  const controller = configText(world, paths, ['antrea-controller.conf'])
  const document = documentIn(agent?.text)
  const encapsulation = textAt(document, 'trafficEncapMode') ?? 'encap'
  const ipam = at(documentIn(controller?.text), 'nodeIPAM')
  const mode = encapsulation === 'encap' ? (textAt(document, 'tunnelType') ?? 'geneve') : encapsulation
  const pools = at(ipam, 'enableNodeIPAM') === true ? prefixesIn(clusterCidrs(ipam)) : []
  return [
    // In the policy-only mode another CNI forwards the packets.
    ...(encapsulation === 'networkPolicyOnly' ? [] : [cniClaim('antrea', { mode, how: pathOf(workload) })]),
    ...networks('podCIDRs', pools, 'certain', `${controller?.where ?? ''} nodeIPAM.clusterCIDRs`),
    ...proxy(document, agent?.where ?? ''),
  ]
}

function clusterCidrs(ipam: unknown): string[] {
  const value = at(ipam, 'clusterCIDRs')
  return Array.isArray(value) ? value.filter((one): one is string => typeof one === 'string') : []
}

function proxy(document: unknown, where: string): Evidence[] {
  if (at(document, 'antreaProxy', 'proxyAll') !== true) return []
  const how = `${where} antreaProxy.proxyAll`
  return [{ about: 'kubeProxy', value: { mode: 'none', insteadOf: 'Antrea' }, confidence: 'likely', how }]
}

// OVN-Kubernetes, of OpenShift or standalone, and the older OpenShift SDN.

export function ovnKubernetes(world: World): Evidence[] {
  const network = world.list('Network', 'config.openshift.io')[0]
  const type = textAt(network, 'status', 'networkType') ?? textAt(network, 'spec', 'networkType')
  const workload = daemonSet(world, 'ovnkube-node')
  if (type !== 'OVNKubernetes' && workload === undefined) return []
  const field = type === undefined ? 'ovnkube-node' : 'Network.config.openshift.io cluster status.networkType'
  const how = workload === undefined ? field : pathOf(workload)
  const operator = world.list('Network', 'operator.openshift.io')[0]
  const gateway = at(operator, 'spec', 'defaultNetwork', 'ovnKubernetesConfig', 'gatewayConfig')
  const viaHost = at(gateway, 'routingViaHost') === true && textAt(gateway, 'ipForwarding') === 'Global'
  const plain = textAt(world.get('ConfigMap', 'ovn-config', 'ovn-kubernetes'), 'data', 'net_cidr')
  return [
    cniClaim('ovn-kubernetes', {
      mode: viaHost ? 'geneve, through the host' : 'geneve, through the shared gateway',
      how,
      bypassesNetfilter: !viaHost,
      // The ranges of the nodes are in an annotation of OVN-Kubernetes.
      podRanges: 'own',
      traits: viaHost ? [] : ['ovn-shared-gateway'],
    }),
    { about: 'kubeProxy', value: { mode: 'none', insteadOf: 'OVN-Kubernetes' }, confidence: 'likely', how },
    // `10.244.0.0/16/24`: the network, followed by the prefix length of a node's range.
    ...networks(
      'podCIDRs',
      prefixesIn([plain?.replace(/(\/\d+)\/\d+$/, '$1')]),
      'likely',
      'ConfigMap ovn-kubernetes/ovn-config net_cidr',
    ),
  ]
}

export function openshiftSdn(world: World): Evidence[] {
  const network = world.list('Network', 'config.openshift.io')[0]
  if (textAt(network, 'status', 'networkType') !== 'OpenShiftSDN') return []
  const how = 'Network.config.openshift.io cluster status.networkType'
  return [
    cniClaim('openshift-sdn', { mode: 'vxlan in Open vSwitch', how, podRanges: 'own' }),
    { about: 'kubeProxy', value: { mode: 'iptables', insteadOf: 'OpenShift SDN' }, confidence: 'likely', how },
  ]
}
